# SPDX-License-Identifier: Apache-2.0
r"""Choice: which candidate has the smallest error, if intervals can tell.

Each candidate's cross-validation error is known up to an interval that contains the
error which exact minimisers would have. The candidate whose interval lies below all
others is what tuning again would choose, whatever the truth inside the intervals.

Candidates are in order of preference, the most regularised first. Ties are real: a
penalty with a kink gives the same model, all zeros, for every alpha beyond some
point. Candidates whose models are *certified* to be the same count as one, and the
first of them stands for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

import numpy as np

from ..linalg import norm
from ..private import Private


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
