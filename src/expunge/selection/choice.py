# SPDX-License-Identifier: Apache-2.0
r"""Choice: which candidate has the smallest error, if intervals can tell.

Each candidate's cross-validation error is known up to an interval that contains the
error which exact minimisers would have. The candidate whose interval lies below all
others is what tuning again would choose, whatever the truth inside the intervals.

Candidates are in order of preference, the most regularised first. Ties are real: a
penalty with a kink gives the same model, all zeros, for every alpha beyond some
point. Candidates whose models are *certified* to be the same count as one, and the
first of them stands for all.

Rule: how a hyper-parameter is chosen, fixed before the data is seen.

Candidates, folds, their key and the method are part of the contract: two worlds that
differ in a person follow one and the same rule.

Folds: a keyed hash of the person, so that nobody's fold depends on anybody else.

A fold drawn by shuffling the rows would be dealt anew when a row goes, and "tune
again without this person" would not be well defined. The hash is: whoever remains,
remains where they were. The rows lie sorted by fold, one copy for all of them; what a
fold trains on are the rows before and after its own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isfinite, sqrt
from numbers import Integral
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Index, Private, norm
from ..core.objective import Objective
from ..core.packing import stored
from ..core.rows import Rows
from ..exceptions import InvalidInput
from ..promise.accountant import Accountant, NoisyTuning, TunedOnData, TunedRemovably
from ..promise.budget import SOLVER_SHARE, Budget


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Interval(Private):
    """Where an error must lie, and what was computed for it."""

    low: float
    value: float
    high: float

    @property
    def bar(self) -> float:
        """How far the error may be from what was computed."""
        return max(self.high - self.value, self.value - self.low)


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Choice(Private):
    """Which candidate was chosen, and whether the intervals prove it.

    Attributes
    ----------
    chosen
        Position of the candidate.
    certified
        Whether no other candidate can be better, nor as good and preferred.
    contenders
        Positions that the intervals do not rule out, the chosen one among them.
    intervals
        One for each candidate.
    twins
        Positions of candidates that are certified to be equal to an earlier one.
    """

    chosen: int
    certified: bool
    contenders: tuple[int, ...]
    intervals: tuple[Interval, ...]
    twins: tuple[int, ...] = ()

    def distinct(self, first: int) -> list[int]:
        """Return all positions but those of twins, this one first."""
        others = set(range(len(self.intervals))) - {first, *self.twins}
        return [first, *sorted(others)]


Decide: TypeAlias = Callable[[Sequence[Interval], Sequence[bool]], Choice]
"""What makes a choice from intervals and from which candidates are all zeros."""


def choose(intervals: Sequence[Interval], twins: Sequence[bool]) -> Choice:
    """Return the choice among candidates in order of preference.

    Parameters
    ----------
    intervals
        Of each candidate's error.
    twins
        Which candidates are certified to have one and the same model in every fold.
    """
    alike = [place for place, twin in enumerate(twins) if twin]
    merged = _merged(intervals, alike)
    places = [place for place in range(len(merged)) if place not in alike[1:]]
    # By the upper ends: an interval that reaches far says little about its middle.
    best = min(places, key=lambda place: (merged[place].high, place))
    reach = merged[best].high
    # An equal end would be a tie, which the order of preference decides, not we.
    rivals = [p for p in places if p != best and not merged[p].low > reach]
    contenders = tuple(sorted([best, *rivals]))
    chosen = min(contenders, key=lambda place: (merged[place].value, place))
    return Choice(chosen, not rivals, contenders, tuple(merged), tuple(alike[1:]))


def near(room: float) -> Decide:
    """Return what is satisfied once all scores are known up to this length together.

    For scores that get noise: which of them is smallest does not matter yet.
    """

    def decide(intervals: Sequence[Interval], twins: Sequence[bool]) -> Choice:
        del twins
        bars = [interval.bar for interval in intervals]
        wide = [p for p, bar in enumerate(bars) if bar > 0.5 * room / sqrt(len(bars))]
        best = min(range(len(bars)), key=lambda place: intervals[place].value)
        small = norm(np.array(bars)) <= room
        return Choice(best, small, tuple(wide), tuple(intervals))

    return decide


def _merged(intervals: Sequence[Interval], alike: Sequence[int]) -> list[Interval]:
    """Return the intervals, those of equal candidates cut down to what they share."""
    merged = list(intervals)
    if alike:
        shared = [intervals[place] for place in alike]
        low = max(item.low for item in shared)
        high = min(item.high for item in shared)
        for place in alike:
            merged[place] = Interval(low, intervals[alike[0]].value, high)
    return merged


HASH_BYTES = 8


def fold_of(subject: str, key: bytes, n_folds: int) -> int:
    """Return the fold of a person: a keyed hash of the id, and of nothing else."""
    digest = blake2b(subject.encode(), key=key, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % n_folds


def folds_of(owners: Sequence[str], key: bytes, n_folds: int) -> Index:
    """Return the fold of each row, by its owner."""
    known = {owner: fold_of(owner, key, n_folds) for owner in set(owners)}
    return np.array([known[owner] for owner in owners], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Split(Private):
    """Rows sorted by fold; those that are gone have no weight.

    Attributes
    ----------
    rows
        All rows, fold after fold.
    bounds
        Where each fold begins, and where the last one ends.
    """

    rows: Rows
    bounds: Index

    @classmethod
    def of(cls, rows: Rows, folds: Index, n_folds: int) -> "Split":
        """Return the split of rows that are sorted by their folds."""
        if (np.diff(folds) < 0).any():
            raise InvalidInput("rows must be sorted by fold: take them by argsort")
        return cls(rows, np.searchsorted(folds, np.arange(n_folds + 1)))

    @property
    def n_folds(self) -> int:
        """How many folds there are, empty ones included."""
        return len(self.bounds) - 1

    def of_rows(self, places: Index) -> Index:
        """Return the fold of the rows at these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def without(self, gone: Index) -> "Split":
        """Return the split with no weight on these rows; they stay where they are."""
        weight = self.rows.weight.copy()
        weight[gone] = 0.0
        return replace(self, rows=replace(self.rows, weight=weight))

    def validation(self, fold: int) -> Rows:
        """Return the rows of a fold, a view."""
        return self.rows.take(slice(*self.bounds[fold : fold + 2]))

    def training(self, fold: int) -> list[Rows]:
        """Return the rows before and after those of a fold, as views."""
        begin, end = self.bounds[fold : fold + 2]
        parts = (self.rows.take(slice(0, begin)), self.rows.take(slice(end, None)))
        return [part for part in parts if part.total_weight > 0.0]

    def gathered(self, fold: int | None) -> Rows:
        """Return what a fold trains on as a copy of its own; None takes all rows."""
        keep = self.rows.weight > 0.0
        if fold is not None:
            keep[slice(*self.bounds[fold : fold + 2])] = False
        return self.rows.take(keep)

    def blocks(self) -> list[Rows]:
        """Return the rows that are left in each fold, as copies."""
        folds = map(self.validation, range(self.n_folds))
        return [rows.take(rows.weight > 0.0) for rows in folds]


Method: TypeAlias = Literal["certified", "recomputed", "noised"]
MAX_KEY_SIZE = blake2b.MAX_KEY_SIZE
METHODS: tuple[Method, ...] = ("certified", "recomputed", "noised")


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rule(Private):
    """Candidates, folds and method.

    Attributes
    ----------
    objectives
        The candidates in order of preference: the most regularised first.
    n_folds
        How many folds; None leaves out one row at a time.
    key
        Of the hash that assigns people to folds.
    method
        "certified" updates every model and proves the choice; "recomputed" tunes again
        from nothing at each request; "noised" compares scores with noise.
    budget
        The contract, which must provide for noised choices.
    """

    objectives: tuple[Objective, ...]
    n_folds: int | None
    key: bytes
    method: Method
    budget: Budget | None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        if self.method not in METHODS:
            words = ", ".join(map(repr, METHODS))
            raise InvalidInput(f"method={self.method!r}; choose one of {words}")
        folds: object = self.n_folds
        if folds is not None and (
            isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2
        ):
            raise InvalidInput(f"folds={folds!r}; give at least 2, or 'loo'")
        if not 1 <= len(self.key) <= MAX_KEY_SIZE:
            raise InvalidInput(
                f"fold_key of {len(self.key)} bytes; give 1 to {MAX_KEY_SIZE}, or None"
            )
        noised = self.budget is not None and self.budget.choice_sigma is not None
        if noised != (self.method == "noised"):
            raise InvalidInput(
                f"method={self.method!r} with choice_sigma="
                f"{self.budget.choice_sigma if self.budget else None}: "
                "method='noised' and Budget(choice_sigma=...) belong together"
            )

    def decide(self, *, at_fit: bool) -> Decide:
        """Return how intervals become a choice.

        Noise pays for the errors of both worlds: a fit may use the solver's share, a
        removal the rest.
        """
        if self.method != "noised":
            return choose
        assert self.budget is not None
        room = self.budget.scores_budget(len(self.objectives))
        return near(room * (SOLVER_SHARE if at_fit else 1.0 - SOLVER_SHARE))

    def account(self, accountant: Accountant, choice: Choice) -> Accountant:
        """Return the account after a choice.

        One that could not be certified is one that removal does not undo.
        """
        if self.method == "recomputed":
            return accountant.compose(TunedRemovably(certified=False))
        if not choice.certified:
            return accountant.compose(TunedOnData("cross-validation"))
        if self.method == "noised":
            assert self.budget is not None
            if accountant.pending:  # of a choice that was never shown, nor will be
                return accountant
            return accountant.compose(NoisyTuning(self.budget.choice_gdp))
        return accountant.compose(TunedRemovably(certified=True))


def grid(
    alphas: Iterable[float], l1_ratios: Iterable[float]
) -> list[tuple[float, float]]:
    """Return pairs of alpha and l1_ratio, largest alpha first, then largest ratio."""
    try:
        alpha_list = [float(alpha) for alpha in alphas]
        ratio_list = [float(ratio) for ratio in l1_ratios]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"alphas and l1_ratios must be lists: {error}") from error
    if not alpha_list or not ratio_list:
        raise InvalidInput("alphas and l1_ratios must name at least one value each")
    for name, values in (("alphas", alpha_list), ("l1_ratios", ratio_list)):
        if len(set(values)) < len(values):
            raise InvalidInput(f"{name}={values}; each value may be there only once")
    if not all(isfinite(alpha) and alpha > 0.0 for alpha in alpha_list):
        raise InvalidInput(f"alphas={alpha_list}; all must be positive numbers")
    pairs = ((alpha, ratio) for alpha in alpha_list for ratio in ratio_list)
    return sorted(pairs, reverse=True)
