# SPDX-License-Identifier: Apache-2.0
r"""The choice among candidates: its rule, its folds, and what proves it.

A *rule* is fixed before anyone sees the data: the candidates, the folds and the method.
Two worlds that differ in one person then follow the same rule.

*Folds* come from a keyed hash of the person's id. Shuffled folds would be dealt again
whenever a row leaves, and "tune again without this person" would not be well defined.
With the hash, everyone who stays keeps their fold. Rows are stored once, sorted by
fold; a fold trains on the rows before and after its own.

A *choice* is proved by intervals. For each candidate, an interval contains the
cross-validation error that exact minimisers would have. If one interval lies below all
others, tuning again would choose that candidate, wherever in the intervals the true
errors are. Candidates are in order of preference, the most regularised first. Ties are
real: with a kinked penalty, every alpha beyond some point gives the same model, all
zeros. Candidates *certified* to have the same model count as one, and the first of them
stands for all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isfinite, sqrt
from numbers import Integral
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Index, norm
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import UNDERFLOW, Private, stored
from ..exceptions import InvalidInput
from ..promise.accountant import Accountant, NoisyTuning, TunedOnData, TunedRemovably
from ..promise.budget import SOLVER_SHARE, Budget

Method: TypeAlias = Literal["certified", "recomputed", "noised"]
METHODS: tuple[Method, ...] = ("certified", "recomputed", "noised")
HASH_BYTES = 8
# Rounding in a sum over folds.
SLACK = 1e-14
MAX_KEY_SIZE = blake2b.MAX_KEY_SIZE


@stored
@dataclass(frozen=True, slots=True, repr=False)
class ErrorInterval(Private):
    """Bounds on a validation error, and the value computed for it."""

    low: float
    value: float
    high: float

    @property
    def error_bound(self) -> float:
        """How far the true error can be from the computed value."""
        return max(self.high - self.value, self.value - self.low)


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Choice(Private):
    """The chosen candidate, and whether the intervals prove the choice.

    Attributes
    ----------
    chosen
        Position of the candidate.
    certified
        Whether no other candidate can be better, or equally good and preferred.
    contenders
        Positions that the intervals do not rule out, including the chosen one.
    intervals
        One for each candidate.
    equal_candidates
        Positions of candidates certified to have the same model as an earlier one.
    """

    chosen: int
    certified: bool
    contenders: tuple[int, ...]
    intervals: tuple[ErrorInterval, ...]
    equal_candidates: tuple[int, ...] = ()

    def distinct(self, first: int) -> list[int]:
        """Return ``first``, then all other positions that equal no earlier one."""
        others = set(range(len(self.intervals))) - {first, *self.equal_candidates}
        return [first, *sorted(others)]


Chooser: TypeAlias = Callable[[Sequence[ErrorInterval], Sequence[bool]], Choice]
"""Makes a choice from the intervals, and from which candidates are all zeros."""


def choose(intervals: Sequence[ErrorInterval], zeros: Sequence[bool]) -> Choice:
    """Return the choice among candidates in order of preference.

    Parameters
    ----------
    intervals
        Bounds on each candidate's error.
    zeros
        Which candidates are certified to be all zeros in every fold, and so equal.
    """
    equal = [place for place, zero in enumerate(zeros) if zero]
    merged = _merge_equal(intervals, equal)
    places = [place for place in range(len(merged)) if place not in equal[1:]]
    # By the upper ends: the middle of a wide interval says little.
    best = min(places, key=lambda place: (merged[place].high, place))
    limit = merged[best].high
    # Equal ends could be a tie, and ties are for the order of preference to decide.
    rivals = [p for p in places if p != best and not merged[p].low > limit]
    contenders = tuple(sorted([best, *rivals]))
    chosen = min(contenders, key=lambda place: (merged[place].value, place))
    return Choice(chosen, not rivals, contenders, tuple(merged), tuple(equal[1:]))


def make_noised_chooser(room: float) -> Chooser:
    """Return a chooser for scores that will get noise.

    It certifies once the error bounds of all scores have a norm of at most ``room``;
    which score is smallest is decided later, by the noise.
    """

    def choose_when_narrow(
        intervals: Sequence[ErrorInterval], zeros: Sequence[bool]
    ) -> Choice:
        del zeros
        bounds = [interval.error_bound for interval in intervals]
        each = 0.5 * room / sqrt(len(bounds))
        wide = tuple(place for place, bound in enumerate(bounds) if bound > each)
        best = min(range(len(bounds)), key=lambda place: intervals[place].value)
        narrow = norm(np.array(bounds)) <= room
        return Choice(best, narrow, wide, tuple(intervals))

    return choose_when_narrow


def _merge_equal(
    intervals: Sequence[ErrorInterval], equal: Sequence[int]
) -> list[ErrorInterval]:
    """Return the intervals, those of equal candidates replaced by what they share."""
    merged = list(intervals)
    if equal:
        shared = [intervals[place] for place in equal]
        low = max(item.low for item in shared)
        high = min(item.high for item in shared)
        for place in equal:
            merged[place] = ErrorInterval(low, intervals[equal[0]].value, high)
    return merged


def pool_intervals(
    intervals: Sequence[ErrorInterval], *, weight: float
) -> ErrorInterval:
    """Return bounds on the mean over the rows of several folds."""
    low = sum(part.low for part in intervals) / weight * (1.0 - SLACK) - UNDERFLOW
    high = sum(part.high for part in intervals) / weight * (1.0 + SLACK) + UNDERFLOW
    value = sum(part.value for part in intervals) / weight
    return ErrorInterval(max(low, 0.0), value, high)


def fold_of(subject: str, key: bytes, *, n_folds: int) -> int:
    """Return a person's fold, which depends on the id and the key alone."""
    digest = blake2b(subject.encode(), key=key, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % n_folds


def folds_of(owners: Sequence[str], key: bytes, *, n_folds: int) -> Index:
    """Return the fold of each row, by its owner."""
    known = {owner: fold_of(owner, key, n_folds=n_folds) for owner in set(owners)}
    return np.array([known[owner] for owner in owners], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Split(Private):
    """Rows sorted by fold. Removed rows stay in place with weight zero.

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
    def of(cls, rows: Rows, folds: Index, *, n_folds: int) -> "Split":
        """Return the split of rows that are sorted by their folds."""
        if (np.diff(folds) < 0).any():
            raise InvalidInput("rows must be sorted by fold: take them by argsort")
        return cls(rows, np.searchsorted(folds, np.arange(n_folds + 1)))

    @property
    def n_folds(self) -> int:
        """Number of folds, including empty ones."""
        return len(self.bounds) - 1

    def folds_at(self, places: Index) -> Index:
        """Return the fold of each row at these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def without(self, gone: Index) -> "Split":
        """Return the split with weight zero on these rows."""
        weight = self.rows.weight.copy()
        weight[gone] = 0.0
        return replace(self, rows=replace(self.rows, weight=weight))

    def validation(self, fold: int) -> Rows:
        """Return a view of the rows of a fold."""
        return self.rows.take(slice(*self.bounds[fold : fold + 2]))

    def training_views(self, fold: int) -> list[Rows]:
        """Return views of the rows before and after those of a fold."""
        begin, end = self.bounds[fold : fold + 2]
        parts = (self.rows.take(slice(0, begin)), self.rows.take(slice(end, None)))
        return [part for part in parts if part.total_weight > 0.0]

    def training(self, fold: int | None) -> Rows:
        """Return a copy of the rows a fold trains on; None takes all rows."""
        keep = self.rows.weight > 0.0
        if fold is not None:
            keep[slice(*self.bounds[fold : fold + 2])] = False
        return self.rows.take(keep)

    def by_fold(self) -> list[Rows]:
        """Return views of the rows of each fold."""
        return [self.validation(fold) for fold in range(self.n_folds)]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rule(Private):
    """Candidates, folds and method.

    Attributes
    ----------
    objectives
        The candidates in order of preference: the most regularised first.
    n_folds
        Number of folds; None leaves out one row at a time.
    key
        Key of the hash that assigns people to folds.
    method
        "certified" updates every model and proves the choice; "recomputed" tunes again
        from scratch at each request; "noised" adds noise to the scores it compares.
    budget
        Privacy budget; with method "noised" it must include ``choice_sigma``.
    """

    objectives: tuple[Objective, ...]
    n_folds: int | None
    key: bytes
    method: Method
    budget: Budget | None

    def __post_init__(self) -> None:
        """Raise InvalidInput for a rule that cannot be followed."""
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
                "method='noised' and Budget(choice_sigma=...) belong together; give "
                "both or neither"
            )

    def chooser(self, *, at_fit: bool) -> Chooser:
        """Return how intervals become a choice.

        The noise pays for the errors of both worlds: a fit may use the solver's share,
        a removal the rest.
        """
        if self.method != "noised":
            return choose
        assert self.budget is not None
        room = self.budget.scores_budget(len(self.objectives))
        share = SOLVER_SHARE if at_fit else 1.0 - SOLVER_SHARE
        return make_noised_chooser(room * share)

    def account(self, accountant: Accountant, choice: Choice) -> Accountant:
        """Return the account after a choice.

        Removal does not undo a choice that could not be certified.
        """
        if self.method == "recomputed":
            return accountant.compose(TunedRemovably(certified=False))
        if not choice.certified:
            return accountant.compose(TunedOnData("cross-validation"))
        if self.method == "noised":
            assert self.budget is not None
            if accountant.pending:  # by a choice that nobody has seen or will see
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
        raise InvalidInput(
            f"alphas and l1_ratios must be lists of numbers: {error}"
        ) from error
    if not alpha_list or not ratio_list:
        raise InvalidInput(
            f"alphas={alpha_list}, l1_ratios={ratio_list}; give at least one of each"
        )
    for name, values in (("alphas", alpha_list), ("l1_ratios", ratio_list)):
        if len(set(values)) < len(values):
            raise InvalidInput(f"{name}={values}; list each value only once")
    if not all(isfinite(alpha) and alpha > 0.0 for alpha in alpha_list):
        raise InvalidInput(f"alphas={alpha_list}; all must be positive numbers")
    pairs = ((alpha, ratio) for alpha in alpha_list for ratio in ratio_list)
    return sorted(pairs, reverse=True)
