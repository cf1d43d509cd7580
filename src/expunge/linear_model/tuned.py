# SPDX-License-Identifier: Apache-2.0
"""Estimators that choose their own alpha, and can forget the choice.

Removal at a fixed alpha does not undo the influence that people had on alpha (the
paper's Proposition 1). These estimators keep a removable model for every candidate and
fold, so that the choice after a request is the one that tuning again would make.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ..core.arrays import Vector
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.penalties import Penalty
from ..core.rows import in_memory
from ..core.values import Private
from ..display.progress import ProgressBar
from ..engines import DaskEngine, require_jobs
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import Recipe
from ..preprocessing.pipeline_model import fit_pipeline, require_pipeline
from ..private_model.model import PrivateModel
from ..private_model.row_digests import RowDigests
from ..promise.budget import Budget
from ..promise.noise import SECRET_BYTES, noise_for, random_bytes
from ..promise.scope import Scope
from ..removal import Mechanism
from ..removal.state import initial_state, keep_sums
from ..removal.summary import summarise
from ..selection.choice import Method, Rule, Split, grid
from ..selection.fold_fits import Crew, tune_folds
from ..selection.loo import LooResult, leave_one_out
from ..selection.tuned_model import (
    choose_with_noise,
    fit_models,
    make_choice_noise,
    make_tuned,
    needs_folds,
    sort_by_fold,
)
from ..selection.tuned_pipeline import make_tuned_pipeline
from .base import Forgetful
from .estimators import LinearRegression, LogisticRegression
from .parameters import MECHANISMS, Prepared, choose_object, penalty_of
from .sklearn_parameters import name_unknown
from .snapshots import private_model

ALPHAS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Curve(Private):
    """Cross-validation error of each candidate. Private: it depends on all rows.

    Attributes
    ----------
    alphas, l1_ratios
        The candidates.
    errors
        Mean validation loss, as computed.
    low, high
        Bounds on the error of exact minimisers.
    """

    alphas: Vector
    l1_ratios: Vector
    errors: Vector
    low: Vector
    high: Vector


class TunedEstimator(Forgetful):
    """An estimator that chooses among candidates by cross-validation."""

    fits_jobs: ClassVar[bool] = True  # independent of each other, as a cluster runs

    @name_unknown
    def __init__(
        self,
        alphas: Sequence[float] = ALPHAS,
        l1_ratios: Sequence[float] = (0.0,),
        folds: int | Literal["loo"] = 5,
        method: Method = "certified",
        fold_key: bytes | str | None = None,
        penalty: Penalty | None = None,
        ridge: float = 0.0,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        mechanism: str | Mechanism = "auto",
        budget: Budget | None = None,
        random_state: int | None = None,
        loss: str | Loss | None = None,
        verbose: bool = False,
        classes: Sequence[Any] | None = None,
        preprocessing: Any = None,
        class_weight: dict[Any, float] | str | None = None,
    ) -> None:
        self.alphas = alphas
        self.l1_ratios = l1_ratios
        self.folds = folds
        self.method = method
        self.fold_key = fold_key
        self.penalty = penalty
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.mechanism = mechanism
        self.budget = budget
        self.random_state = random_state
        self.loss = loss
        self.verbose = verbose
        self.classes = classes
        self.preprocessing = preprocessing
        self.class_weight = class_weight

    @property
    def alpha_(self) -> float:
        """The alpha of the last release, as its certificate states it."""
        return float(self.certificate_.objective["alpha"])

    @property
    def l1_ratio_(self) -> float:
        """The l1_ratio of the last release; zero with a penalty object."""
        described = self.certificate_.objective["penalty"]
        if described["name"] == "L1" and self._public.parameters["penalty"] is None:
            return 1.0
        return float(described.get("l1_ratio", 0.0))

    @property
    def curve_(self) -> Curve:
        """The cross-validation errors behind the last choice. Private."""
        private: Any = private_model(self)
        intervals = private.models.choice.intervals
        fitted = self._public.parameters
        pairs = np.array(grid(fitted["alphas"], fitted["l1_ratios"]))
        return Curve(
            alphas=pairs[:, 0],
            l1_ratios=pairs[:, 1],
            errors=np.array([interval.value for interval in intervals]),
            low=np.array([interval.low for interval in intervals]),
            high=np.array([interval.high for interval in intervals]),
        )

    def _grid(self) -> list[tuple[float, float]]:
        return grid(self.alphas, self.l1_ratios)

    def _candidates(self, loss: Loss) -> tuple[Objective, ...]:
        """Return the candidates in order of preference."""
        return tuple(
            Objective(
                loss,
                penalty_of(self.penalty, ratio),
                alpha,
                ridge=self.ridge,
                intercept=self.fit_intercept,
                penalize_intercept=self.penalize_intercept and self.fit_intercept,
            )
            for alpha, ratio in self._grid()
        )

    def _objective(self, loss: Loss, weight: float) -> Objective:
        """Return the first candidate; all candidates share the same rows."""
        del weight
        return self._candidates(loss)[0]

    def _fit_private(
        self,
        prepared: Prepared,
        *,
        start: Vector | None,
        scope: Scope,
    ) -> PrivateModel:
        """Tune on these rows and return the private model."""
        rule, budget, seed = (
            self._rule(prepared.objective.loss),
            self.budget,
            self.random_state,
        )
        rows = in_memory(prepared.rows)
        kept, bounds = sort_by_fold(rule, rows, owners=prepared.owners)
        recipe = prepared.recipe
        split, engine = Split(kept.rows, bounds), require_jobs(prepared.engine)
        models = self._tune(rule, split, recipe=recipe, engine=engine)
        noise = None
        if rule.method == "noised":
            assert budget is not None
            noise = noise_for(make_choice_noise(budget, seed), 1)
        chosen = choose_with_noise(models.choice, noise, rule=rule)
        fit: Any = PrivateModel.fit
        if recipe is not None:
            fit = partial(fit_pipeline, recipe=recipe)
            scope = recipe.state_in(scope)
        else:
            start = models.start_of(chosen)
        model = fit(
            rule.objectives[chosen],
            kept.rows,
            mechanism=choose_object("mechanism", self.mechanism, choices=MECHANISMS),
            budget=budget,
            start=start,
        )
        model = replace(
            model.with_scope(scope),
            labels=prepared.labels,
            seed=seed,
            training_rows=kept,
            digests=RowDigests(None, random_bytes(SECRET_BYTES)),
        )
        make: Any = make_tuned if recipe is None else make_tuned_pipeline
        tuned: PrivateModel = make(
            model, rule, bounds=bounds, models=models, chosen=chosen
        )
        return tuned

    def _tune(
        self,
        rule: Rule,
        split: Split,
        *,
        recipe: Recipe | None,
        engine: DaskEngine | None,
    ) -> Any:
        """Return the models of all candidates and the choice among them."""
        # Without preprocessing each candidate is also fitted to all rows.
        times = (rule.n_folds or 0) + (recipe is None)
        total = len(rule.objectives) * times
        label = f"tuning {len(rule.objectives)} candidates"
        if recipe is not None:
            require_pipeline(recipe, self.budget, keep_data=True)
        with ProgressBar(label, total, shown=bool(self.verbose)) as bar:
            crew = Crew(engine, bar.count)
            if recipe is None:
                by_folds = needs_folds(rule, split.rows)
                return fit_models(rule, split, by_folds=by_folds, crew=crew)
            choose = rule.chooser(at_fit=True)
            return tune_folds(rule, split, recipe=recipe, choose=choose, crew=crew)

    def _rule(self, loss: Loss) -> Rule:
        """Return the rule that the parameters describe, with its key."""
        if isinstance(self.folds, str) and self.folds != "loo":
            raise InvalidInput(f"folds={self.folds!r}; pass a number, or 'loo'")
        key = random_bytes(SECRET_BYTES) if self.fold_key is None else self.fold_key
        if isinstance(key, str):
            key = key.encode()
        return Rule(
            objectives=self._candidates(loss),
            n_folds=None if self.folds == "loo" else int(self.folds),
            key=key,
            method=self.method,
            budget=self.budget,
        )


class TunedClassifier(TunedEstimator, LogisticRegression):
    """Logistic regression that chooses its alpha, and can forget the choice too.

    ``loss`` is "logistic" or "squared_hinge".
    """


class TunedRegressor(TunedEstimator, LinearRegression):
    """Linear regression that chooses its alpha, and can forget the choice too.

    ``loss`` is "half_squared" or "huber".
    """


def loo_error(model: Forgetful) -> LooResult:
    """Return leave-one-out losses of a fitted estimator that keeps its data.

    They are computed at the noise-free answer, over the rows that the model still has.
    The model and its account stay as they are: nothing is released.
    """
    private = private_model(model)
    if private.keeps_raw_rows:
        raise Unsupported(
            "leave-one-out with preprocessing or balanced classes, which would be "
            "learned again without each row; fit the model to encoded rows instead"
        )
    rows = private.remaining_rows()
    if rows is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False), and leave-one-out needs "
            "every row; fit with keep_data=True, or call leave_one_out(state, rows)"
        )
    rows = in_memory(rows).gather()
    summary = summarise(
        private.agreement.objective_for(rows), rows, theta=private.answer.draft.theta
    )
    return leave_one_out(keep_sums(initial_state(summary), summary, moment=True), rows)
