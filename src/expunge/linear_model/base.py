# SPDX-License-Identifier: Apache-2.0
"""What the estimators share: fit, forget, add, release, and copies without secrets.

The model of a fitted estimator is one ``Snapshot``, replaced at once: an interrupt, an
error or another thread finds the old model or the new one, never half of each.
``coef_`` and ``intercept_`` always belong to the last release. Pickles and deep copies
hold the release alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import isabstract
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from ..core.arrays import Matrix, Vector, may_share_memory, write_lock
from ..core.losses import Loss
from ..core.objective import Objective, Scaling, check_weights
from ..core.penalties import Penalty
from ..core.rows import Rows, in_memory
from ..display.progress import ProgressBar
from ..exceptions import CapacityExceeded, InvalidInput, Unsupported
from ..files import save
from ..plan import PlanOptions, PlanReport, plan_model
from ..preprocessing.pipeline_model import (
    fit_pipeline,
    require_following,
    require_pipeline,
)
from ..private_model.answers import Adoption
from ..private_model.labels import Labels
from ..private_model.model import PrivateModel
from ..private_model.row_digests import RowDigests
from ..private_model.snapshot import (
    PublicModel,
    Snapshot,
    carry_over,
)
from ..private_model.subjects import is_row_name
from ..private_model.training_rows import KeptRows
from ..promise.budget import Budget
from ..promise.card import ShowsPromise
from ..promise.certificate import Certificate
from ..promise.noise import SECRET_BYTES, random_bytes
from ..promise.scope import Scope
from ..promise.verification import Record
from ..removal import Mechanism
from ..removal.matrix_free import AUTO, require_matrices
from .parameters import (
    Prepared,
    describe_fitted,
    describe_parameters,
    explain_failed_fit,
    mechanism_of,
    penalty_of,
    require_parameters,
)
from .sklearn_parameters import (
    factors_of,
    name_unknown,
    require_effort,
    warn_without_budget,
    weights_of,
)
from .snapshots import (
    add_asked,
    finished_snapshot,
    prepare_fit,
    private_model,
    public_model,
    read_table,
    remove_asked,
    snapshot_of,
)


class Forgetful(ShowsPromise, BaseEstimator, ABC):
    """An estimator that can forget the people it was fitted on.

    ``parameters.PARAMETERS`` describes what it takes, and completes the docstrings of
    the package's own estimators.
    """

    _snapshot: Snapshot
    by_name: ClassVar[dict[str, type["Forgetful"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the package's own estimators, for loading files, and describe them."""
        super().__init_subclass__(**options)
        if cls.__module__.startswith("expunge."):
            cls.by_name[cls.__name__] = cls
            cls.__doc__ = describe_parameters(cls)

    @name_unknown
    def __init__(
        self,
        alpha: float | None = None,
        l1_ratio: float = 0.0,
        penalty: Penalty | None = None,
        ridge: float = 0.0,
        scaling: Scaling | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        mechanism: str | Mechanism = "auto",
        budget: Budget | None = None,
        keep_data: bool = True,
        random_state: int | None = None,
        loss: str | Loss | None = None,
        classes: Sequence[Any] | None = None,
        preprocessing: Any = None,
        C: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.penalty = penalty
        self.ridge = ridge
        self.scaling = scaling
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.mechanism = mechanism
        self.budget = budget
        self.keep_data = keep_data
        self.random_state = random_state
        self.loss = loss
        self.classes = classes
        self.preprocessing = preprocessing
        self.C = C
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y
            Features, dense or sparse, and labels or targets. With ``preprocessing``, X
            is a table as you have it: a data frame, or an array. A table of
            ``expunge.long`` comes alone.
        subjects
            The owner of each row. Without it nobody in the model has an id, and you
            forget rows by their position or their content.
        sample_weight
            Weights; integer weights count rows.
        engine
            Where passes run: as ``expunge.engines.read_engine`` takes it.
        """
        if self.budget is None:
            warn_without_budget()
        with write_lock(self):
            fresh = copy(self)  # a fit that fails changes nothing
            of_rows = {"subjects": subjects, "sample_weight": sample_weight}
            prepared = prepare_fit(fresh, X, y, engine=engine, **of_rows)
            fit_prepared(fresh, prepared, before=public_model(self))
            self.__dict__ = vars(fresh) | {"_lock": write_lock(self)}
        return self

    def forget(
        self,
        subjects: Iterable[object] | None = None,
        *,
        rows: ArrayLike | None = None,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove people, or rows, and make a new release. All or nothing.

        Parameters
        ----------
        subjects
            Whom to forget, if the model keeps its data.
        rows
            Positions of rows in the data of the fit, if the model keeps its data and
            was fitted without subjects.
        X, y, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        private_model(self)
        if sum(given is not None for given in (subjects, rows, X)) != 1:
            raise InvalidInput(
                "say what to forget in one way: subjects=..., rows=..., or X=... with "
                "y=..."
            )
        asked = {"rows": rows, "X": X, "y": y, "sample_weight": sample_weight}
        # One step, no matter who leaves: more would tell how the answer was reached.
        bar = ProgressBar("forgetting", 1, shown=bool(self.verbose))
        with bar, write_lock(self):
            after = remove_asked(self, subjects=subjects, **asked)
            if after is not self._snapshot.private:
                self._release(after)
            bar.count()
        return self

    def add(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to the fitted model and make a new release. All or nothing.

        A class or a category that the model does not have is refused.

        Parameters
        ----------
        X, y
            The new rows, as ``fit`` takes them.
        subjects, sample_weight
            Whose they are, and their weights, if the model was fitted with these. A
            person may bring rows several times.
        """
        private_model(self)
        bar = ProgressBar("adding", 1, shown=bool(self.verbose))
        with bar, write_lock(self):
            of_rows = {"subjects": subjects, "sample_weight": sample_weight}
            self._snapshot = self._snapshot.release(add_asked(self, X, y, **of_rows))
            private_model(self)
            bar.count()
        return self

    @property
    def certificate_(self) -> Certificate:
        """The public certificate of the last release."""
        return self._public.release.certificate

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""
        private_model(self)
        record = self._snapshot.record
        assert record is not None
        return record

    @property
    def adoption_(self) -> Adoption:
        """How far adoption from scikit-learn moved the model. Private."""
        private = snapshot_of(self).private
        if private is None or private.adoption is None:
            raise AttributeError("the model was not adopted, or this is a copy")
        return private.adoption

    @property
    def n_iter_(self) -> int:
        """Steps of the solver at the last fit or request. Private."""
        return private_model(self).answer.n_steps

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release."""
        return self._public.coefficients[0]

    @property
    def intercept_(self) -> Vector:
        """Intercept of the last release; zero if there is none."""
        return self._public.coefficients[1]

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose these parameters.

        Removal does not undo that choice, and the certificate says so from now on.
        """
        with write_lock(self):
            private_model(self)
            self._snapshot = self._snapshot.declare(search)
        return self

    def plan(self, options: PlanOptions | None = None) -> PlanReport:
        """Return how many removals the budget allows, tried on the rows kept.

        Planning on the training data looks at them, and it warns you of that: plan a
        budget on other data of the same kind.
        """
        return plan_model(private_model(self), options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write release and private state into a folder; ``expunge.load`` reads it."""
        require_known(self)
        with write_lock(self):
            # This model goes on as the one in the file does, to the last bit.
            self._snapshot = finished_snapshot(self).compact()
            save(self._snapshot, path)

    @abstractmethod
    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator with the release in it."""

    @abstractmethod
    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        """Return the loss for these labels, and the classes of a classifier."""

    @abstractmethod
    def _code_labels(self, y: Any, labels: Labels | None) -> Vector:
        """Return labels as the codes that rows keep."""

    @abstractmethod
    def _validate(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
        """Return features and labels, checked as scikit-learn checks them."""

    def _objective(self, loss: Loss, weight: float) -> Objective:
        """Return the objective of the parameters, for rows of this total weight."""
        return Objective(
            loss,
            penalty_of(self.penalty, self.l1_ratio),
            **factors_of(self.get_params(deep=False), weight),
            intercept=self.fit_intercept,
            penalize_intercept=self.penalize_intercept and self.fit_intercept,
        )

    def _prepare(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Prepared:
        """Learn features and labels, and return the rows with their objective."""
        require_parameters(self.get_params(deep=False))
        recipe = None
        if self.preprocessing is None:
            X, y = self._validate(X, y)
        if self.preprocessing is not None or self.class_weight == "balanced":
            X, y, recipe = read_table(self, X, y)
        weight = weights_of(self, X, y, sample_weight=sample_weight)
        loss, labels = self._learn_labels(y, weight)
        total = len(y) if weight is None else float(np.add.reduce(weight))
        objective = self._objective(loss, total)
        if labels is not None:
            labels.require_minimiser(objective)
        coded = self._code_labels(y, labels)
        if recipe is None:
            rows = objective.rows(X, coded, weight)
        else:
            rows = Rows(X, objective.loss.labels(coded), check_weights(weight, len(X)))
        weighted = sample_weight is not None
        shared = may_share_memory(rows.X, X)
        return Prepared(objective, rows, labels, weighted, recipe=recipe, shared=shared)

    def _fit_private(
        self,
        prepared: Prepared,
        *,
        start: Vector | None,
        scope: Scope,
    ) -> PrivateModel:
        """Fit these rows and return the private model."""
        rows, owners = prepared.rows, prepared.owners
        mechanism = mechanism_of(self.mechanism, keep_data=self.keep_data)
        if prepared.recipe is None and not self.keep_data:
            require_matrices(prepared.objective, rows.n_columns)
        fit: Any = PrivateModel.fit
        if prepared.recipe is not None:
            require_pipeline(prepared.recipe, self.budget, keep_data=self.keep_data)
            if mechanism is not None and not self.keep_data:
                require_following(mechanism)
            fit = partial(fit_pipeline, recipe=prepared.recipe)
            scope = prepared.recipe.state_in(scope)
        with ProgressBar("fitting", 1, shown=bool(self.verbose)) as bar:
            model: PrivateModel = fit(
                prepared.objective,
                rows if prepared.placed is None else prepared.placed,
                mechanism=mechanism,
                budget=self.budget,
                start=start,
            )
            bar.count()
        require_effort(model.answer, tol=self.tol, max_iter=self.max_iter)
        kept_here = scope.rows_kept and self.keep_data, prepared.table is not None
        scope = replace(scope, rows_kept=kept_here[0], rows_in_files=kept_here[1])
        key = random_bytes(SECRET_BYTES)
        kept: KeptRows | None = None
        digests = RowDigests(None, key)
        if self.keep_data:
            kept = prepared.keep_rows()
        else:
            # Where every row is a person, digests need no owners.
            named = None if is_row_name(owners[0]) else owners
            digests = RowDigests.of(in_memory(rows), key, owners=named)
        return replace(
            self._name_mechanism(model).with_scope(scope),
            labels=prepared.labels,
            seed=self.random_state,
            training_rows=kept,
            digests=digests,
        )

    def _name_mechanism(self, model: PrivateModel) -> PrivateModel:
        """Return the model with its mechanism named as the rule's, if it is."""
        name = model.scope.mechanism
        if self.mechanism != "auto" or name.endswith(AUTO):
            return model
        return replace(model, scope=replace(model.scope, mechanism=name + AUTO))

    def _release(self, after: PrivateModel) -> None:
        """Release the model after a request, and finish the request."""
        before = self._snapshot
        try:
            self._snapshot = before.release(after)
        except CapacityExceeded:
            # The rows are removed all the same; the old release stays public.
            self._snapshot = before.keep(after)
            private_model(self)
            raise
        private_model(self)

    @property
    def _public(self) -> PublicModel:
        """The public part of the fitted model."""
        return snapshot_of(self).public

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle may hold: parameters and the release."""
        state: dict[str, Any] = super().__getstate__()
        state = {name: value for name, value in state.items() if name != "_lock"}
        if "_snapshot" in state:
            state["_snapshot"] = state["_snapshot"].without_secrets()
        return state

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: sparse input is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def require_known(estimator: object) -> None:
    """Raise Unsupported for an estimator that could not be loaded again."""
    known = {n: kind for n, kind in Forgetful.by_name.items() if not isabstract(kind)}
    if known.get(type(estimator).__name__) is not type(estimator):
        raise Unsupported(
            f"{type(estimator)} cannot be saved, shipped or kept in a registry; "
            f"{', '.join(sorted(known))} of expunge.linear_model can"
        )


def fit_prepared(
    estimator: Forgetful,
    prepared: Prepared,
    *,
    start: Vector | None = None,
    scope: Scope | None = None,
    before: PublicModel | None = None,
) -> None:
    """Fit an estimator to prepared rows and make its first release.

    Parameters
    ----------
    estimator
        The estimator, which gets the snapshot.
    prepared
        The rows, with their owners.
    start
        Where the solver starts.
    scope
        What else certificates should state.
    before
        The model of an earlier fit, whose declarations still hold.
    """
    labels = prepared.labels
    scope = carry_over(scope or Scope(), before, budget=estimator.budget)
    scope = replace(scope, classes="none" if labels is None else labels.stated)
    scope = replace(scope, classes_weighted=isinstance(estimator.class_weight, dict))
    with explain_failed_fit(estimator, prepared):
        private = estimator._fit_private(prepared, start=start, scope=scope)
    private, release, record = private.with_noise().release()
    public = PublicModel(
        release=release,
        n_targets=getattr(estimator, "_n_targets", None),
        pair=None if labels is None else labels.pair,
        **describe_fitted(estimator, prepared),
        **private.public_parts,
    )
    estimator._snapshot = Snapshot(public, private, record)
