# SPDX-License-Identifier: Apache-2.0
r"""Trials: what a budget does to a model, found with real models of the same kind.

    score       the estimator is fitted to some of the people, and its releases are
                scored on the others
    requests    the estimator is fitted to everybody, people leave one by one, and the
                answers say which of them read the remaining rows
    leaving     how many leave like this before the first answer that does; a model
                without rows must refuse there. In random orders, and in the worst one

*The worst order* is searched for by removals too. The more somebody moves the model,
the larger the radius is without them, so those leave first without whom it is largest.
Some move it in the same direction and add up, others cancel, so everybody is measured
again after 1, 2, 4, 8 ... have left. No search finds the worst order of all.

Nothing is modelled, so it holds for whatever an estimator does with its rows.
"""

import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Index
from ..exceptions import ExpungeError, InvalidInput, Unsupported
from ..linear_model.base import Forgetful, private_model
from ..preprocessing.columns import take_rows
from ..private_model.model import PrivateModel
from ..private_model.snapshot import forget_owners
from ..private_model.subjects import owners_of
from ..private_model.training_rows import TrainingRows, require_in_memory
from ..promise.budget import Budget
from ..removal import Retrain

# Releases scored for each budget.
DRAWS = 20
# People are held out a fifth at a time, until so many rows are scored.
FOLDS, ENOUGH_ROWS = 5, 5000
FEWEST_PEOPLE = 50
# Random orders in which people leave.
ORDERS = 5
# The share of requests that read the rows is known once so many did.
MOST_LOOKS = 20
# Where there are more people, they are measured in so many groups first, and then the
# people of the heaviest groups; later rounds measure at least the next few.
MOST_MEASURED, NEXT_MEASURED = 1000, 200
# The decision behind an answer that came from the state alone.
WITHOUT_LOOK = ("accepted",)
# Of the noise, and of the orders in which people leave.
SEED = 0

People = NDArray[Any]


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
    at_random, at_worst
        How many people may leave, one after another, before an answer has to read the
        rows: in each random order, and in the worst of all orders tried.
    """

    sigma: float
    score: float
    lowest: float
    without_look: int
    at_random: tuple[int, ...]
    at_worst: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trials:
    """An estimator, the data to try it on, and who leaves.

    Attributes
    ----------
    estimator, X, y
        As given.
    owners
        The owner of each row.
    orders
        All owners, in random orders.
    requests
        How many requests there will be.
    """

    estimator: Forgetful
    X: Any
    y: NDArray[Any]
    owners: People
    orders: tuple[People, ...]
    requests: int

    @classmethod
    def of(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None,
        requests: int,
    ) -> "Trials":
        """Return the trials, or refuse what cannot be tried."""
        if not isinstance(estimator, Forgetful):
            raise InvalidInput(
                f"estimator={type(estimator).__name__}, which cannot forget; give an "
                "estimator of expunge, such as LogisticRegression()"
            )
        mechanism = estimator.get_params(deep=False)["mechanism"]
        if mechanism == "retrain":
            mechanism = Retrain()
        if not isinstance(mechanism, str) and mechanism.needs_rows:
            raise Unsupported(
                f"{type(mechanism).__name__} looks at the remaining rows at every "
                "request, so its answers fit whatever is removed; try Newton or "
                "Jackknife"
            )
        labels = np.asarray(y)
        given = range(len(labels)) if subjects is None else subjects
        owners = np.array(owners_of(given, len(labels)), dtype=np.str_)
        people = np.unique(owners)
        if len(people) < FEWEST_PEOPLE:
            raise InvalidInput(
                f"the rows belong to {len(people)} people; give rows of at least "
                f"{FEWEST_PEOPLE}, some of them to fit and some to score"
            )
        orders = tuple(shuffle(people, SEED + i) for i in range(ORDERS))
        return cls(estimator, X, labels, owners, orders, requests)

    @property
    def metric(self) -> str:
        """What a score is."""
        return "accuracy" if hasattr(type(self.estimator), "classes_") else "R2"

    @property
    def n_leaving(self) -> int:
        """How many people leave: one for each request, at most every other one."""
        return min(self.requests, len(self.orders[0]) // 2)

    def try_budget(
        self, budget: Budget, worst: People, *, before: SigmaTrial | None
    ) -> SigmaTrial:
        """Return what a budget does, or raise NotCertifiable as a fit would.

        ``before`` is the trial of less noise, if there was one: where all could leave
        then, all can leave now.
        """
        scores = self.score_releases(budget)
        model = private_model(self.fit(budget, np.arange(len(self.y))))
        first, *others = (order[: self.n_leaving] for order in (*self.orders, worst))
        n_asked, looks = find_looks(model, first, most=MOST_LOOKS)
        counts = [looks[0] if looks else n_asked]
        at_random = (0,) * ORDERS if before is None else before.at_random
        for people, count in zip(others, (*at_random[1:], 0), strict=True):
            all_left = count == self.n_leaving
            counts.append(count if all_left else count_leaving(model, people))
        return SigmaTrial(
            sigma=budget.deviation,
            score=float(scores.mean()),
            lowest=float(scores.min()),
            without_look=round((1.0 - len(looks) / n_asked) * self.requests),
            at_random=tuple(counts[:ORDERS]),
            at_worst=min(counts),
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
            out = np.isin(self.owners, self.orders[0][fold::FOLDS])
            leaving = np.delete(self.orders[0], np.s_[fold::FOLDS])[: DRAWS - 1]
            X, y = take_rows(self.X, np.flatnonzero(out)), self.y[out]
            model = self.fit(budget, np.flatnonzero(~out))
            scores = [model.score(X, y)]
            scores += [model.forget([person]).score(X, y) for person in leaving]
            sums += len(y) * np.array(scores)
            n_scored += len(y)
        return sums / n_scored

    def find_worst_order(self, budget: Budget) -> People:
        """Return all people, those first who make the radius grow most.

        Which radius fits depends on the budget, and the radius itself hardly: one that
        allows much will do for all.
        """
        model = private_model(self.fit(budget, np.arange(len(self.y))))
        people, most = self.orders[0], MOST_MEASURED
        rest = rank(model, np.array_split(people, min(len(people), most)))
        if len(people) > most:
            rest = np.concatenate([rank(model, rest[:most, None]), rest[most:]])
        taken, rest = rest[:1], rest[1:]
        while len(taken) < self.n_leaving:
            n_taken = len(taken)
            pool, others = np.split(rest, [max(NEXT_MEASURED, 2 * n_taken)])
            pool = rank(model, pool[:, None], after=taken)
            taken = np.concatenate([taken, pool[:n_taken]])
            rest = np.concatenate([pool[n_taken:], others])
        return np.concatenate([taken, rest])

    def fit(self, budget: Budget | None, rows: Index) -> Forgetful:
        """Return the estimator, fitted to these rows under this budget."""
        parameters = self.estimator.get_params(deep=False)
        changes = {"budget": budget, "random_state": SEED, "keep_data": True}
        parameters |= {name: changes[name] for name in changes.keys() & parameters}
        model = type(self.estimator)(**parameters)
        X, y, owners = take_rows(self.X, rows), self.y[rows], self.owners[rows]
        with warnings.catch_warnings():
            # The model without noise is scored here, and thrown away.
            warnings.filterwarnings("ignore", "this model promises nothing")
            return model.fit(X, y, owners)


def find_looks(
    model: PrivateModel, people: People, *, most: int
) -> tuple[int, list[int]]:
    """Return how many people left one by one, and which answers needed the rows.

    Where noise is small every answer looks at them (``Budget.always_looks``); here they
    do so only if they must, as a model without rows would have to. It ends after the
    most looks, and where nobody could answer: if all who are left are of one class,
    say. The model stays as it is.
    """
    assert model.training_rows is not None
    kept, looks = require_in_memory(model.training_rows), list[int]()
    rows = kept.rows.take(np.arange(len(kept.rows)))  # what leaves is overwritten
    terms = replace(model.terms, looks=False)
    model = replace(model, terms=terms, training_rows=TrainingRows(rows, kept.owners))
    for position, person in enumerate(people.tolist()):
        try:
            model = forget_owners(model, {person}).finish()
        except ExpungeError:
            return position + 1, [*looks, position]
        if model.answer.decisions != WITHOUT_LOOK:
            looks.append(position)
        if len(looks) == most:
            return position + 1, looks
    return len(people), looks


def count_leaving(model: PrivateModel, people: People) -> int:
    """Return how many people leave one by one before an answer needs a look."""
    n_asked, looks = find_looks(model, people, most=1)
    return looks[0] if looks else n_asked


def rank(
    model: PrivateModel, groups: Iterable[People], *, after: People | None = None
) -> People:
    """Return the people of these groups by the radius without them, the largest first.

    Others may have left before (``after``). Nobody looks at the rows: a model that is
    not told which rows leave cannot. A tuned one must be told, and starts anew.
    """
    kept, tuned = model.training_rows, model.needs_training_rows
    assert kept is not None
    gone: set[str] = set() if after is None else set(after.tolist())

    def leave(model: PrivateModel, people: set[str]) -> PrivateModel:
        positions = kept.find(people)
        return model.forget(kept.take(positions), gone=positions if tuned else None)

    if gone and not tuned:
        with suppress(ExpungeError):  # without them there may be no answer for anybody
            model, gone = leave(model, gone), set()
    listed, radii = list(groups), []
    for group in listed:
        try:
            radii.append(leave(model, gone | set(group.tolist())).answer.radius.value)
        except ExpungeError:
            radii.append(inf)
    order = np.argsort(np.negative(radii), kind="stable")
    return np.concatenate([listed[i] for i in order])


def shuffle(people: People, seed: int) -> People:
    """Return people in the order of hashes of their positions: a random one."""
    keys = [blake2b(f"{seed}:{i}".encode(), digest_size=16) for i in range(len(people))]
    digests = [key.digest() for key in keys]
    return people[sorted(range(len(people)), key=digests.__getitem__)]
