# SPDX-License-Identifier: Apache-2.0
"""What the estimators share: fit, forget, publish, and travel without secrets.

A fitted estimator is one ``Snapshot``, replaced at once: an interrupt, an error or
another thread finds the old model or the new one, never half of each. ``coef_`` and
``intercept_`` always belong to the last release. Pickling and deep copies carry the
release alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    validate_data,
)

from ..core.arrays import Matrix, OneWriter, Private, Vector
from ..core.losses import Loss, Multinomial
from ..core.objective import Objective, Scaling
from ..core.penalties import Penalty
from ..core.rows import Rows
from ..exceptions import CapacityExceeded, InvalidInput, NoPrivateState
from ..plan import Options, PlanReport, plan
from ..private_model.holdings import (
    Holdings,
    without_people,
    without_positions,
    without_rows,
)
from ..private_model.labels import Labels
from ..private_model.snapshot import Shown, Snapshot, carry, snapshot_of
from ..private_model.subjects import list_of_ids, owners_of, positions_of
from ..private_model.training_rows import Kept, Roster
from ..private_model.unlearn import Custody, Release, begin
from ..promise.budget import Budget
from ..promise.certificate import Certificate
from ..promise.noise import SECRET_BYTES, SecureNoise, make_noise, random_bytes
from ..promise.record import Record
from ..removal import Mechanism
from .choices import MECHANISMS, chosen, penalty_of

PRIVATE = ("_lock", "adoption_")
"""Attributes that stay behind when an estimator is pickled or copied."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Prepared(Private):
    """Training data, checked, with the objective for them.

    Attributes
    ----------
    objective, rows
        What is minimised, on which rows.
    labels
        The classes; None unless they are a classifier's.
    weighted
        Whether weights were given.
    """

    objective: Objective
    rows: Rows
    labels: Labels | None
    weighted: bool

    def with_pair(self, pair: Loss | None) -> "Prepared":
        """Return the data of a softmax model that is another one for two classes."""
        if pair is None or not isinstance(self.objective.loss, Multinomial):
            return self
        assert self.labels is not None
        return replace(self, labels=replace(self.labels, pair=pair))


class Forgetful(OneWriter, BaseEstimator, ABC):
    """An estimator that can forget the people it was fitted on.

    Parameters
    ----------
    alpha, l1_ratio, penalty
        Factor of the penalty; 0 is L2, 1 is L1, between is elastic net. Or a penalty
        object, and then leave ``l1_ratio`` alone.
    ridge
        A further factor of |coefficients|^2 / 2.
    scaling
        "mean" or "sum": what stays fixed when rows go.
    fit_intercept, penalize_intercept
        Whether there is an intercept, and whether it is penalised.
    mechanism
        "newton", "jackknife", "rescaled", "retrain", or a mechanism.
    budget
        The contract of releases; None makes no promise and adds no noise.
    keep_data
        Whether to keep the rows, so that people can be looked up and any answer can be
        polished. Without them the caller hands over the rows to forget.
    random_state
        A seed for the noise, for tests; None draws it securely.
    loss
        A word or an object; None is the estimator's own.
    classes
        Of a classifier: every label that rows may have, as part of the contract. None
        learns them from the rows, and a class that loses its last row then goes.
    """

    _snapshot: Snapshot

    def __init__(
        self,
        alpha: float = 1e-3,
        l1_ratio: float = 0.0,
        penalty: Penalty | None = None,
        ridge: float = 0.0,
        scaling: Scaling = "mean",
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        mechanism: str | Mechanism = "newton",
        budget: Budget | None = None,
        keep_data: bool = True,
        random_state: int | None = None,
        loss: str | Loss | None = None,
        classes: Sequence[Any] | None = None,
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

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y
            Features, dense or sparse, and labels or targets.
        subjects
            Whose row each is. Without it nobody in the model has an id, and rows are
            forgotten by their position or their content.
        sample_weight
            Weights; integer weights count rows.
        """
        with self._writing:
            fresh = copy(self)  # a fit that fails changes nothing
            prepared = fresh._prepare(X, y, sample_weight)
            owners = owners_of(subjects, len(prepared.rows))
            before = getattr(self, "_snapshot", None)
            fresh._hold(prepared, owners, adjust=partial(carry, before=before))
            self._become(fresh)
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
            Whom to forget, where the model keeps its data.
        rows
            Positions of rows in the data of the fit, where the model keeps its data and
            was fitted without subjects.
        X, y, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        self._private_state()
        if sum(given is not None for given in (subjects, rows, X)) != 1:
            raise InvalidInput(
                "say what to forget, in one way: subjects=..., rows=..., or X=... with "
                "y=..."
            )
        with self._writing:
            holdings = self._private_state()
            _require_alone(holdings)
            if subjects is not None:
                after = without_people(holdings, list_of_ids(subjects))
            elif rows is not None:
                after = without_positions(holdings, positions_of(rows))
            else:
                removed = self._request(holdings, X, y, sample_weight)
                after = without_rows(holdings, removed) if len(removed) else holdings
            self._take_over(after)
        return self

    @property
    def certificate_(self) -> Certificate:
        """The public certificate of the last release."""
        return self._release.certificate

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""
        self._private_state()
        record = self._snapshot.record
        assert record is not None
        return record

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release."""
        return self._shaped(self._release)[0]

    @property
    def intercept_(self) -> Vector:
        """Intercept of the last release; zero without one."""
        return self._shaped(self._release)[1]

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose these parameters.

        Removal does not undo that choice: the certificate says so from now on. The
        tuning estimators choose removably.
        """
        with self._writing:
            self._private_state()
            self._snapshot = self._snapshot.tuned_by(search)
        return self

    def plan(self, options: Options | None = None) -> PlanReport:
        """Return how many removals the contract allows, run on the rows kept.

        Planning on the training data is itself a look at it, and warns so: plan a
        contract on other data of the same kind.
        """
        holdings = self._private_state()
        custody, rows = holdings.custody, holdings.rows()
        if rows is None or custody.budget is None:
            raise InvalidInput(
                "a plan needs rows and a contract: keep_data=True and budget=..., or "
                "call expunge.plan.plan on rows of your own"
            )
        objective = custody.objective_for(rows)
        return plan(objective, rows, custody.budget, custody.mechanism, options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write release and private state into a folder; ``files.load`` reads it."""
        _standing_on_this("files").save(self, path)

    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator that holds the release."""
        return _standing_on_this("adopt").to_sklearn(self)

    @abstractmethod
    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        """Return the loss for these labels, and the classes of a classifier."""

    @abstractmethod
    def _coded(self, y: Any, labels: Labels | None) -> Vector:
        """Return labels as rows keep them."""

    @abstractmethod
    def _validated(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
        """Return features and labels as scikit-learn wants them checked."""

    def _objective(self, loss: Loss) -> Objective:
        """Return the objective that the parameters describe."""
        return Objective(
            loss,
            penalty_of(self.penalty, self.l1_ratio),
            self.alpha,
            ridge=self.ridge,
            scaling=self.scaling,
            intercept=self.fit_intercept,
            penalize_intercept=self.penalize_intercept and self.fit_intercept,
        )

    def _prepare(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Prepared:
        """Learn features and labels, and return the rows with their objective."""
        X, y = self._validated(X, y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        loss, labels = self._learn_labels(y, weight)
        objective = self._objective(loss)
        if labels is not None:
            labels.require_minimiser(objective)
        rows = objective.rows(X, self._coded(y, labels), weight)
        return Prepared(objective, rows, labels, weight is not None)

    def _hold(
        self,
        prepared: Prepared,
        owners: Sequence[str],
        start: Vector | None = None,
        adjust: Callable[[Custody], Custody] = carry,
    ) -> None:
        """Fit the prepared rows and make the first release.

        Parameters
        ----------
        prepared, owners
            The rows, and whose each is.
        start
            Where the solver begins.
        adjust
            What else is to be stated of the model before it is released.
        """
        holdings = self._holdings(prepared, owners, start)
        holdings = replace(holdings, custody=adjust(holdings.custody))
        parameters = deepcopy(self.get_params(deep=False))
        if self.classes is not None:
            parameters["classes"] = list(self.classes)
        self._snapshot = snapshot_of(holdings, parameters, prepared.weighted)

    def _holdings(
        self, prepared: Prepared, owners: Sequence[str], start: Vector | None
    ) -> Holdings:
        """Return the fit to these rows, with what is kept."""
        objective, rows = prepared.objective, prepared.rows
        noise = None
        if self.budget is not None:
            noise = make_noise(self.budget, self.random_state)
            if isinstance(noise, SecureNoise):
                noise.prepare(rows.X.shape[1] * objective.loss.outputs)
        mechanism = chosen("mechanism", self.mechanism, MECHANISMS)
        if mechanism.needs_rows and not self.keep_data:
            raise InvalidInput(
                f"mechanism={self.mechanism!r} looks at the remaining rows; set "
                "keep_data=True, or use 'newton'"
            )
        custody = begin(objective, rows, mechanism, self.budget, start)
        custody = scoped(custody, prepared.labels, rows_kept=self.keep_data)
        kept = Kept(rows, owners) if self.keep_data else None
        roster = Roster.of(
            rows, random_bytes(SECRET_BYTES), None if self.keep_data else owners
        )
        return Holdings(custody, noise, roster, kept, prepared.labels)

    def _request(
        self, holdings: Holdings, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> Rows:
        """Return the rows of a request, checked like those of the fit."""
        if y is None:
            raise InvalidInput("X without y: hand over the labels of the rows too")
        if not _num_samples(X):
            return Rows(np.empty((0, 0)), np.empty(0), np.empty(0))
        X, y = self._validated(X, y, reset=False)
        return holdings.checked(X, self._coded(y, holdings.labels), sample_weight)

    def _take_over(self, after: Holdings) -> None:
        """Release holdings after a request, and make the request so."""
        before = self._snapshot
        if after is before.holdings:
            return
        try:
            self._snapshot = before.released(after)
        except CapacityExceeded:
            # Removed all the same; what is shown stays the release before.
            self._snapshot = before.holding(after)
            self._private_state()
            raise
        self._private_state()

    def _become(self, fresh: Self) -> None:
        """Become a freshly fitted copy of this estimator, at once."""
        self.__dict__ = vars(fresh) | {"_lock": self._writing}

    def _shaped(self, release: Release) -> tuple[Matrix, Vector]:
        """Return a release as coefficients (k, d) and intercepts (k,)."""
        # By the fit, not by parameters that may have been set since.
        intercept = bool(release.certificate.objective["intercept"])
        columns = release.theta.reshape(self.n_features_in_ + intercept, -1)
        if not intercept:
            return columns.T, np.zeros(columns.shape[1])
        return columns[:-1].T, columns[-1]

    def _predictor(self, X: Any, shown: Shown | None = None) -> Matrix:
        """Return X coef' + intercept of one and the same release, (n, k)."""
        release = self._release if shown is None else shown.release
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        coef, intercept = self._shaped(release)
        eta: Matrix = X @ coef.T + intercept
        return eta

    @property
    def _shown(self) -> Shown:
        """What everybody may see of the fitted model."""
        check_is_fitted(self, "_snapshot")
        shown: Shown = self._snapshot.shown
        return shown

    @property
    def _release(self) -> Release:
        public: Release = self._shown.release
        return public

    def _private_state(self) -> Holdings:
        """Return the holdings, all requests settled, or say why there are none."""
        check_is_fitted(self, "_snapshot")
        holdings = self._snapshot.holdings
        if holdings is None:
            raise NoPrivateState(
                "this copy carries the release alone, as every pickle and copy does; "
                "use the fitted model itself, or save and load its private state"
            )
        if holdings.strike is None:
            return holdings
        with self._writing:
            self._snapshot = self._snapshot.settled()
        return self._private_state()

    def __getstate__(self) -> dict[str, Any]:
        """Return what may travel: parameters and the release."""
        state = super().__getstate__()
        state = {name: value for name, value in state.items() if name not in PRIVATE}
        if "_snapshot" in state:
            state["_snapshot"] = state["_snapshot"].public
        return state

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _standing_on_this(face: str) -> Any:
    """Return a module that imports this one, once it is called for."""
    return import_module(f"expunge.{face}")


def _require_alone(holdings: Holdings) -> None:
    """Refuse to change a model whose preprocessing must change with it."""
    if holdings.custody.scope.in_pipeline:
        raise InvalidInput(
            "this model is part of a pipeline that forgets, which would be left "
            "behind; call forget of the pipeline"
        )


def scoped(custody: Custody, labels: Labels | None, *, rows_kept: bool) -> Custody:
    """Return the custody of a fit with what its certificates state of the model."""
    scope = replace(
        custody.scope,
        classes="none" if labels is None else labels.stated,
        rows_kept=rows_kept,
    )
    return replace(custody, scope=scope)
