# SPDX-License-Identifier: Apache-2.0
"""What the estimators share: fit, forget, publish, and travel without secrets.

``coef_`` and ``intercept_`` always belong to the last release, which is one object
and replaced at once: a prediction in another thread sees the old or the new model,
never half of each. Pickling and deep copies carry the release alone.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from .._typing import Matrix, Vector
from ..budget import Budget
from ..certificate import CHOSEN, Certificate
from ..events import TunedOnData
from ..exceptions import InvalidInput, NoPrivateState
from ..losses import Loss
from ..mechanisms import Mechanism
from ..noise import SecureNoise, release_noise, salt
from ..objective import Objective, Scaling
from ..penalties import Penalty
from ..plan import Options, PlanReport, plan
from ..record import Record
from ..roster import Roster
from ..rows import Rows
from ..unlearn import Release, begin
from .choices import MECHANISMS, chosen, penalty_of
from .holdings import Holdings, noted, published, without_people, without_rows
from .kept import Kept

PRIVATE = ("_holdings", "_record", "_lock", "adoption_")
"""Attributes that stay behind when an estimator is pickled or copied."""


class Forgetful(BaseEstimator, ABC):
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
    """

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

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        subjects: Sequence[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y
            Features, dense or sparse, and labels or targets.
        subjects
            Whose row each is; without it everyone owns one row, and is known by its
            position.
        sample_weight
            Weights; integer weights count rows.
        """
        before = dict(self.__dict__)
        self.__dict__.pop("adoption_", None)  # of an earlier model
        try:
            objective, rows = self._prepared(X, y, sample_weight)
            owners = owners_of(subjects, len(rows))
            self._publish(self._held(objective, rows, owners))
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)  # an earlier model stays whole
            raise
        return self

    def forget(
        self,
        subjects: Sequence[object] | None = None,
        *,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove people, or rows, and make a new release. All or nothing.

        Parameters
        ----------
        subjects
            Whom to forget, where the model keeps its data.
        X, y, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        holdings = self._private_state()
        if (subjects is None) == (X is None):
            raise InvalidInput("say whom to forget: subjects=..., or X=... with y=...")
        with self._lock:
            holdings = self._private_state()
            if subjects is not None:
                require_words(subjects)
                holdings = without_people(holdings, subjects)
            else:
                removed = self._request(holdings, X, y, sample_weight)
                holdings = without_rows(holdings, removed)
            self._holdings = holdings  # removed, whether or not a release may follow
            self._publish(holdings)
        return self

    @property
    def certificate_(self) -> Certificate:
        """The public certificate of the last release."""
        return self._release.certificate

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""
        self._private_state()
        return self._record

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release."""
        return self._shaped(self._release.theta)[0]

    @property
    def intercept_(self) -> Vector:
        """Intercept of the last release; zero without one."""
        return self._shaped(self._release.theta)[1]

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose these parameters.

        Removal does not undo that choice: the certificate says so from now on. The
        tuning estimators choose removably.
        """
        self._private_state()
        with self._lock:
            holdings, shown = self._private_state(), self._release
            event = TunedOnData(type(search).__name__)
            account = holdings.custody.accountant.compose(event)
            paper = replace(
                noted(shown.certificate, (CHOSEN,)),
                status="radius-only",
                selection="not covered",
            )
            public = Release(shown.theta, paper)
            released = holdings.custody.released
            if released is not None:  # the release shown is that of this very state
                released = (public, released[1])
            custody = replace(holdings.custody, accountant=account, released=released)
            self._holdings = replace(holdings, custody=custody)
            self._published = public
        return self

    def plan(self, options: Options | None = None) -> PlanReport:
        """Return how many removals the contract allows, run on the rows kept.

        Planning on the training data is itself a look at it, and warns so: plan a
        contract on other data of the same kind.
        """
        holdings = self._private_state()
        custody = holdings.custody
        if holdings.kept is None or custody.budget is None:
            raise InvalidInput(
                "a plan needs rows and a contract: keep_data=True and budget=..., or "
                "call expunge.plan.plan on rows of your own"
            )
        rows = holdings.kept.remaining(np.array([], dtype=np.intp))
        kept = rows.total_weight / custody.state.anchor_weight
        objective = custody.state.objective.after(kept)
        return plan(objective, rows, custody.budget, custody.mechanism, options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write release and private state into a folder; ``files.load`` reads it."""
        _standing_on_this("files").save(self, path)

    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator that holds the release."""
        return _standing_on_this("adopt").to_sklearn(self)

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, once the labels are known."""

    @abstractmethod
    def _learn_labels(self, y: Any, weight: Vector | None) -> Loss:
        """Learn what labels there are and return the loss for them."""

    @abstractmethod
    def _coded(self, y: Any) -> Vector:
        """Return labels as the loss wants them."""

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

    def _prepared(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Objective, Rows]:
        """Learn features and labels; return objective and rows for them."""
        X, y = self._validated(X, y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        objective = self._objective(self._learn_labels(y, weight))
        return objective, objective.rows(X, self._coded(y), weight)

    def _held(
        self,
        objective: Objective,
        rows: Rows,
        owners: Sequence[str],
        start: Vector | None = None,
    ) -> Holdings:
        """Return the fit to these rows, begun at ``start``, with what is kept."""
        noise = None
        if self.budget is not None:
            noise = release_noise(self.budget, self.random_state)
            if isinstance(noise, SecureNoise):
                noise.prepare(rows.X.shape[1] * objective.loss.outputs)
        mechanism = chosen("mechanism", self.mechanism, MECHANISMS)
        if mechanism.needs_rows and not self.keep_data:
            raise InvalidInput(
                f"mechanism={self.mechanism!r} looks at the remaining rows; set "
                "keep_data=True, or use 'newton'"
            )
        custody = begin(objective, rows, mechanism, self.budget, start)
        kept = Kept(rows, owners) if self.keep_data else None
        return Holdings(custody, noise, Roster.of(rows, salt()), kept)

    def _request(
        self, holdings: Holdings, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> Rows:
        """Return the rows of a request, checked like those of the fit."""
        if y is None:
            raise InvalidInput("X without y: hand over the labels of the rows too")
        X, y = self._validated(X, y, reset=False)
        return holdings.custody.objective.rows(X, self._coded(y), sample_weight)

    def _publish(self, holdings: Holdings) -> None:
        """Release the custody, and show it to everyone at once."""
        self._show(*published(holdings))

    def _show(self, holdings: Holdings, public: Release, record: Record) -> None:
        """Take over holdings with their release; the first ones bring a lock."""
        if not hasattr(self, "_lock"):
            self._lock = threading.Lock()
        self._holdings, self._record = holdings, record
        self._published = public

    def _shaped(self, theta: Vector) -> tuple[Matrix, Vector]:
        """Return parameters as coefficients (k, d) and intercepts (k,)."""
        # By the fit, not by parameters that may have been set since.
        intercept = bool(self._release.certificate.objective["intercept"])
        columns = theta.reshape(self.n_features_in_ + intercept, -1)
        if not intercept:
            return columns.T, np.zeros(columns.shape[1])
        return columns[:-1].T, columns[-1]

    def _predictor(self, X: Any) -> Matrix:
        """Return X coef' + intercept of one and the same release, (n, k)."""
        theta = self._release.theta
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        coef, intercept = self._shaped(theta)
        eta: Matrix = X @ coef.T + intercept
        return eta

    @property
    def _release(self) -> Release:
        check_is_fitted(self, "_published")
        public: Release = self._published
        return public

    def _private_state(self) -> Holdings:
        """Return the holdings, or say why there are none."""
        check_is_fitted(self, "_published")
        if getattr(self, "_holdings", None) is None:
            raise NoPrivateState(
                "this copy carries the release alone, as every pickle and copy does; "
                "use the fitted model itself, or save and load its private state"
            )
        holdings: Holdings = self._holdings
        return holdings

    def __getstate__(self) -> dict[str, Any]:
        """Return what may travel: parameters and the release."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in PRIVATE}

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _standing_on_this(face: str) -> Any:
    """Return a module that imports this one, once it is called for."""
    return import_module(f"expunge.{face}")


def require_words(subjects: Sequence[object]) -> None:
    """Refuse what is no list of ids: one word, bytes, or a table."""
    if isinstance(subjects, str | bytes) or np.ndim(np.asarray(subjects, object)) != 1:
        raise InvalidInput("subjects must be a list of ids, one word or number each")


def owners_of(subjects: Sequence[object] | None, n_rows: int) -> list[str]:
    """Return whose row each is, as words."""
    if subjects is None:
        return [str(place) for place in range(n_rows)]
    require_words(subjects)
    owners = [str(subject) for subject in subjects]
    if len(owners) != n_rows:
        raise InvalidInput(
            f"subjects names {len(owners)} people and X has {n_rows} rows; name the "
            "owner of each row"
        )
    return owners
