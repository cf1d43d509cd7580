# SPDX-License-Identifier: Apache-2.0
"""Estimators that choose their own alpha, and can forget the choice.

Removal at a fixed alpha does not undo the influence that people had on alpha (the
paper's Proposition 1). These estimators keep a removable model for every candidate and
fold, so that the choice after a request is the one that tuning again would make.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..core.arrays import Vector
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.penalties import Penalty
from ..core.rows import in_memory
from ..core.values import Private
from ..display.progress import ProgressBar
from ..engines import require_jobs
from ..private_model.model import PrivateModel
from ..private_model.target_units import has_free_units
from ..promise.budget import Budget
from ..promise.noise import SECRET_BYTES, random_bytes
from ..promise.scope import Scope
from ..removal import Mechanism
from ..selection.choice import Method, Rule, Split, grid
from ..selection.fold_chooser import FoldChooser, sort_by_fold
from ..selection.fold_fits import FoldRunner
from .base import Forgetful, private_model
from .estimators import LinearRegression, LogisticRegression
from .parameters import MECHANISMS, choose_object, name_unknown, penalty_of
from .rows import Prepared, require_encodable

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
        folds: int = 5,
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
        intervals = private.chooser.models.choice.intervals
        fitted = self._public.parameters
        pairs = np.array(grid(fitted["alphas"], fitted["l1_ratios"]))
        return Curve(
            alphas=pairs[:, 0],
            l1_ratios=pairs[:, 1],
            errors=np.array([interval.value for interval in intervals]),
            low=np.array([interval.low for interval in intervals]),
            high=np.array([interval.high for interval in intervals]),
        )

    def _candidates(self, loss: Loss) -> tuple[Objective, ...]:
        return tuple(  # in order of preference
            Objective(
                loss,
                penalty_of(self.penalty, ratio),
                alpha,
                ridge=self.ridge,
                intercept=self.fit_intercept,
                penalize_intercept=self.penalize_intercept and self.fit_intercept,
            )
            for alpha, ratio in grid(self.alphas, self.l1_ratios)
        )

    def _objective(self, loss: Loss, weight: float) -> Objective:
        del weight
        return self._candidates(loss)[0]  # all candidates share the same rows

    def _fit_private(
        self,
        prepared: Prepared,
        *,
        start: Vector | None,
        scope: Scope,
    ) -> PrivateModel:
        key = random_bytes(SECRET_BYTES) if self.fold_key is None else self.fold_key
        rule = Rule(
            objectives=self._candidates(prepared.objective.loss),
            n_folds=int(self.folds),
            key=key.encode() if isinstance(key, str) else key,
            method=self.method,
        )
        mechanism = choose_object("mechanism", self.mechanism, choices=MECHANISMS)
        require_encodable(
            prepared, mechanism=mechanism, budget=self.budget, keep_data=True
        )
        rows = in_memory(prepared.rows)
        kept, bounds = sort_by_fold(rule, rows, owners=prepared.owners)
        encoding = prepared.fit_encoding(kept.rows)
        total = len(rule.objectives) * rule.n_folds
        label = f"tuning {len(rule.objectives)} candidates"
        with ProgressBar(label, total, shown=bool(self.verbose)) as bar:
            runner = FoldRunner(require_jobs(prepared.engine), bar.count)
            chooser = FoldChooser.of(
                rule, Split(kept.rows, bounds), encoding=encoding, runner=runner
            )
        # Candidates whose budgets count differently would be told apart by their noise.
        free = all(map(has_free_units, rule.objectives))
        model = PrivateModel.fit(
            chooser.objective,
            kept.rows,
            encoding=encoding,
            mechanism=mechanism,
            budget=self.budget,
            rows_kept=scope.rows_kept,
            targets=prepared.targets if free else None,
            start=start if encoding.changes else chooser.start,
        )
        stated = encoding.state_in(scope)
        stated = replace(stated, targets_scaled=model.terms.units is not None)
        model = model.with_scope(stated)
        return replace(
            model,
            chooser=chooser,
            accountant=chooser.count_in(model.accountant),
            labels=prepared.labels,
            seed=self.random_state,
            training_rows=kept,
        )


class TunedClassifier(TunedEstimator, LogisticRegression):
    """Logistic regression that chooses its alpha, and can forget the choice too.

    ``loss`` is "logistic" or "squared_hinge".
    """


class TunedRegressor(TunedEstimator, LinearRegression):
    """Linear regression that chooses its alpha, and can forget the choice too.

    ``loss`` is "half_squared" or "huber".
    """
