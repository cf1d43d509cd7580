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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import isfinite
from numbers import Integral
from typing import Literal, TypeAlias, get_args

import numpy as np

from ..core.arrays import Index
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import UNDERFLOW, Private, stored
from ..exceptions import InvalidInput
from ..promise.accountant import Accountant, TunedOnData, TunedRemovably

Method: TypeAlias = Literal["certified", "recomputed"]
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

    def distinct(self) -> list[int]:
        """Return the chosen position, then all others that equal no earlier one."""
        others = set(range(len(self.intervals))) - {self.chosen, *self.equal_candidates}
        return [self.chosen, *sorted(others)]


def choose(intervals: Sequence[ErrorInterval], zeros: Sequence[bool]) -> Choice:
    """Return the choice among candidates in order of preference.

    Parameters
    ----------
    intervals
        Bounds on each candidate's error.
    zeros
        Which candidates are certified to be all zeros in every fold, and so equal.
    """
    equal = [position for position, zero in enumerate(zeros) if zero]
    merged = _merge_equal(intervals, equal)
    positions = [
        position for position in range(len(merged)) if position not in equal[1:]
    ]
    # By the upper ends: the middle of a wide interval says little.
    best = min(positions, key=lambda position: (merged[position].high, position))
    limit = merged[best].high
    # Equal ends could be a tie, and ties are for the order of preference to decide.
    rivals = [p for p in positions if p != best and not merged[p].low > limit]
    contenders = tuple(sorted([best, *rivals]))
    chosen = min(contenders, key=lambda position: (merged[position].value, position))
    return Choice(chosen, not rivals, contenders, tuple(merged), tuple(equal[1:]))


def _merge_equal(
    intervals: Sequence[ErrorInterval], equal: Sequence[int]
) -> list[ErrorInterval]:
    """Return the intervals, those of equal candidates replaced by what they share."""
    merged = list(intervals)
    if equal:
        shared = [intervals[position] for position in equal]
        low = max(item.low for item in shared)
        high = min(item.high for item in shared)
        for position in equal:
            merged[position] = ErrorInterval(low, intervals[equal[0]].value, high)
    return merged


def pool_intervals(
    intervals: Sequence[ErrorInterval], *, weight: float
) -> ErrorInterval:
    """Return bounds on the mean over the rows of several folds."""
    lows, values, highs = (
        [getattr(part, end) / weight for part in intervals]
        for end in ("low", "value", "high")
    )
    low = sum(lows) - SLACK * sum(map(abs, lows)) - UNDERFLOW
    high = sum(highs) + SLACK * sum(map(abs, highs)) + UNDERFLOW
    return ErrorInterval(low, sum(values), high)


def fold_of(subject: str, key: bytes, *, n_folds: int) -> int:
    """Return a person's fold, which depends on the id and the key alone."""
    digest = blake2b(subject.encode(), key=key, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % n_folds


def folds_of(owners: Sequence[str], key: bytes, *, n_folds: int) -> Index:
    """Return the fold of each row, by its owner."""
    fold_by_owner = {
        owner: fold_of(owner, key, n_folds=n_folds) for owner in set(owners)
    }
    return np.array([fold_by_owner[owner] for owner in owners], dtype=np.intp)


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

    def folds_at(self, positions: Index) -> Index:
        """Return the fold of each row at these positions."""
        return np.searchsorted(self.bounds, positions, side="right") - 1

    def without(self, gone: Index) -> "Split":
        """Return the split with weight zero on these rows."""
        weight = self.rows.weight.copy()
        weight[gone] = 0.0
        return replace(self, rows=replace(self.rows, weight=weight))

    def validation(self, fold: int) -> Rows:
        """Return a view of the rows of a fold."""
        return self.rows.take(slice(*self.bounds[fold : fold + 2]))

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
        Number of folds.
    key
        Key of the hash that assigns people to folds.
    method
        "certified" updates every model and proves the choice; "recomputed" tunes again
        from scratch at each request.
    """

    objectives: tuple[Objective, ...]
    n_folds: int
    key: bytes
    method: Method

    def __post_init__(self) -> None:
        """Raise InvalidInput for a rule that cannot be followed."""
        if self.method not in get_args(Method):
            words = " or ".join(map(repr, get_args(Method)))
            raise InvalidInput(f"method={self.method!r}; choose {words}")
        folds: object = self.n_folds
        if isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2:
            raise InvalidInput(f"folds={folds!r}; give at least 2")
        if not 1 <= len(self.key) <= MAX_KEY_SIZE:
            raise InvalidInput(
                f"fold_key of {len(self.key)} bytes; give 1 to {MAX_KEY_SIZE}, or None"
            )

    def account(self, accountant: Accountant, choice: Choice) -> Accountant:
        """Return the account after a choice.

        Removal does not undo a choice that could not be certified.
        """
        if self.method == "recomputed":
            return accountant.compose(TunedRemovably(certified=False))
        if not choice.certified:
            return accountant.compose(TunedOnData("cross-validation"))
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
