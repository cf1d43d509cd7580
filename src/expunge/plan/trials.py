# SPDX-License-Identifier: Apache-2.0
"""Trials: what a budget does to a model, found with real models of the same kind.

    score       the estimator is fitted to some of the people, and its releases are
                scored on the others
    requests    the estimator is fitted to everybody, people leave one by one, and the
                records say which requests read the remaining rows

Nothing is modelled, so it holds for whatever an estimator does with its rows.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Index
from ..exceptions import InvalidInput
from ..private_model.subjects import owners_of
from ..promise.budget import Budget
from ..promise.verification import Record
from ..removal import Retrain
from .removals import permute, require_plannable

# Releases scored for each budget.
DRAWS = 20
# People are held out a fifth at a time, until so many rows are scored.
FOLDS, ENOUGH_ROWS = 5, 5000
FEWEST_PEOPLE = 50
# The share of requests that read the rows is known once so many did.
MOST_LOOKS = 20
# The decision behind an answer that came from the state alone.
WITHOUT_LOOK = ("accepted",)
# Of the noise, and of the order in which people leave.
SEED = 0


class Advisable(Protocol):
    """What is needed of an estimator to try budgets with it."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return its parameters by name."""

    def fit(self, X: Any, y: Any, subjects: Any = None) -> Self:
        """Fit it, and make its first release."""

    def forget(self, subjects: Any = None) -> Self:
        """Remove people, and make a new release."""

    def score(self, X: Any, y: Any) -> float:
        """Return accuracy or R2 of the last release."""

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""


@dataclass(frozen=True, slots=True)
class SigmaTrial:
    """What noise of one size does to a model.

    Attributes
    ----------
    sigma
        Standard deviation of the noise.
    score, lowest
        Mean and lowest score of the releases.
    without_look
        How many of the requests are answered without reading the rows.
    """

    sigma: float
    score: float
    lowest: float
    without_look: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trials:
    """An estimator, and the data to try it on.

    Attributes
    ----------
    estimator, X, y
        As given.
    owners
        The owner of each row.
    order
        All owners, in a random order.
    """

    estimator: Advisable
    X: Any
    y: NDArray[Any]
    owners: NDArray[Any]
    order: NDArray[Any]

    @classmethod
    def of(
        cls,
        estimator: Advisable,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None,
    ) -> "Trials":
        """Return the trials, or refuse what cannot be tried."""
        if not hasattr(estimator, "forget"):
            raise InvalidInput(
                f"estimator={type(estimator).__name__}, which cannot forget; give an "
                "estimator of expunge, such as LogisticRegression()"
            )
        mechanism = estimator.get_params(deep=False)["mechanism"]
        if mechanism == "retrain":
            mechanism = Retrain()
        if not isinstance(mechanism, str):
            require_plannable(mechanism)
        labels = np.asarray(y)
        given = range(len(labels)) if subjects is None else subjects
        owners = np.array(owners_of(given, len(labels)), dtype=np.str_)
        people = np.unique(owners)
        if len(people) < FEWEST_PEOPLE:
            raise InvalidInput(
                f"the rows belong to {len(people)} people; give rows of at least "
                f"{FEWEST_PEOPLE}, some of them to fit and some to score"
            )
        order = people[permute(len(people), SEED)]
        return cls(estimator, X, labels, owners, order)

    @property
    def metric(self) -> str:
        """What a score is."""
        return "accuracy" if hasattr(type(self.estimator), "classes_") else "R2"

    def people_to_ask(self, requests: int) -> NDArray[Any]:
        """Return who leaves: as many as there are requests, at most every other one."""
        return self.order[: min(requests, len(self.order) // 2)]

    def try_budget(self, budget: Budget, requests: int) -> SigmaTrial:
        """Return what a budget does, or raise NotCertifiable as a fit would."""
        scores = self.score_releases(budget)
        share = self.find_share(budget, requests)
        return SigmaTrial(
            sigma=budget.sigma,
            score=float(scores.mean()),
            lowest=float(scores.min()),
            without_look=round(share * requests),
        )

    def score_releases(self, budget: Budget | None) -> NDArray[Any]:
        """Return the scores of releases on people who were not fitted.

        The first release is that of the fit; each further one comes after a person has
        left. Without a budget the same people leave, so that scores with and without
        noise differ by the noise alone.
        """
        if budget is not None:
            budget = replace(budget, releases=None)  # these are not made public
        n_folds = min(FOLDS, ceil(FOLDS * ENOUGH_ROWS / len(self.y)))
        sums, n_scored = np.zeros(DRAWS), 0
        for fold in range(n_folds):
            out = np.isin(self.owners, self.order[fold::FOLDS])
            leaving = np.delete(self.order, np.s_[fold::FOLDS])[: DRAWS - 1]
            X, y = take_rows(self.X, np.flatnonzero(out)), self.y[out]
            model = self.fit(budget, np.flatnonzero(~out))
            scores = [model.score(X, y)]
            scores += [model.forget([one]).score(X, y) for one in leaving]
            sums += len(y) * np.array(scores)
            n_scored += len(y)
        return sums / n_scored

    def find_share(self, budget: Budget, requests: int) -> float:
        """Return the share of requests that are answered without reading the rows."""
        model = self.fit(budget, np.arange(len(self.y)))
        n_asked = n_looks = 0
        for one in self.people_to_ask(requests):
            model.forget([one])
            n_asked += 1
            n_looks += model.record_.decisions != WITHOUT_LOOK
            if n_looks == MOST_LOOKS:
                break
        return 1.0 - n_looks / n_asked

    def fit(self, budget: Budget | None, rows: Index) -> Advisable:
        """Return the estimator, fitted to these rows under this budget."""
        parameters = self.estimator.get_params(deep=False)
        changes = {"budget": budget, "random_state": SEED, "keep_data": True}
        parameters |= {name: changes[name] for name in changes.keys() & parameters}
        model: Advisable = type(self.estimator)(**parameters)
        X, y, owners = take_rows(self.X, rows), self.y[rows], self.owners[rows]
        with warnings.catch_warnings():
            # The model without noise is scored here, and thrown away.
            warnings.filterwarnings("ignore", "this model promises nothing")
            return model.fit(X, y, owners)


def take_rows(X: Any, rows: Index) -> Any:
    """Return these rows of an array, a sparse matrix or a table."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "combine_chunks"):  # a table of pyarrow
        return X.take(rows)
    return np.asarray(X)[rows] if isinstance(X, Sequence) else X[rows]
