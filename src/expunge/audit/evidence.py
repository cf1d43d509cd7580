# SPDX-License-Identifier: Apache-2.0
r"""Evidence: what two samples prove about the laws that they were drawn from.

An event A happens in hits out of n draws of a world. Clopper and Pearson bound its
probability from the hits alone, exactly and whatever the law: p >= p_low in the world
where A is likelier, q <= q_up in the other. From two such bounds follow

    mu      >= Phi^-1(p_low) - Phi^-1(q_up)     if the worlds are mu-close as Gaussians,
    epsilon >= log((p_low - delta) / q_up)      if they are (epsilon, delta)-close,
    advantage >= p_low - q_up                   of whoever bets on A.

The event is chosen where its bound looks best on the first half of the draws and
judged on the second half, which the choice has not seen. Nothing here knows a model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TypeAlias

import numpy as np
from scipy.special import betaincinv, ndtri

from .._typing import Matrix, Vector

Bound: TypeAlias = Callable[[Vector, Vector], Vector]
Worlds: TypeAlias = tuple[Matrix, Matrix]

# Thresholds tried for each score, as shares of the draws. mu and an advantage are
# measured best in the middle; in the tails the largest of many noisy bounds is luck.
# A ratio is largest there.
MIDDLE: Vector = np.linspace(0.1, 0.9, 33)
TAIL: Vector = np.geomspace(1e-4, 0.1, 24, endpoint=False)
WIDE: Vector = np.concatenate([TAIL, MIDDLE, 1.0 - TAIL])
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Event:
    """A score above a threshold, or not above it.

    Attributes
    ----------
    score
        Which of the scores.
    threshold, above
        Where, and on which side.
    likelier
        0 or 1: the world in which it should happen more often.
    """

    score: int
    threshold: float
    above: bool
    likelier: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How often an event happened in n draws of each world.

    Attributes
    ----------
    hits, misses
        Hits in the world where it should be likelier, and hits in the other.
    n
        Draws of each world.
    """

    hits: int
    misses: int
    n: int

    def lower(self, bound: Bound, level: float) -> float:
        """Return the bound, wrong with a probability of at most 2 level."""
        p, q = np.array([self.hits]), np.array([self.misses])
        return float(bound(at_least(p, self.n, level), at_most(q, self.n, level))[0])

    def upper(self, bound: Bound, level: float) -> float:
        """Return what the bound would be at the other ends of both intervals."""
        p, q = np.array([self.hits]), np.array([self.misses])
        return float(bound(at_most(p, self.n, level), at_least(q, self.n, level))[0])


def at_least(hits: Vector, n: int, level: float) -> Vector:
    """Return Clopper and Pearson's lower bound, too high with probability <= level."""
    some = np.maximum(hits, 1.0)
    low = np.asarray(betaincinv(some, n - some + 1.0, level), dtype=np.float64)
    return np.where(hits > 0.0, low, 0.0)


def at_most(hits: Vector, n: int, level: float) -> Vector:
    """Return Clopper and Pearson's upper bound, too low with probability <= level."""
    return 1.0 - at_least(n - hits, n, level)


def curve(p: Vector, q: Vector) -> Vector:
    """Return Phi^-1(p) - Phi^-1(q): the mu of a Gaussian curve through (q, 1 - p)."""
    return np.asarray(ndtri(p) - ndtri(q))


def ratio(delta: float) -> Bound:
    """Return the bound log((p - delta) / q) on epsilon at this delta."""

    def bound(p: Vector, q: Vector) -> Vector:
        return np.log(np.maximum(p - delta, TINY)) - np.log(np.maximum(q, TINY))

    return bound


def difference(p: Vector, q: Vector) -> Vector:
    """Return p - q: how often betting on the event wins more than it loses."""
    return p - q


def judged(
    worlds: Worlds, bound: Bound, level: float, shares: Vector = MIDDLE
) -> Tally:
    """Choose an event on the first half of the draws and count it on the second.

    Parameters
    ----------
    worlds
        For each world its scores, (scores, n), the draws independent.
    bound
        What the event should make large.
    level
        At which Clopper and Pearson's bounds are taken.
    shares
        Quantiles of all draws that are tried as thresholds.
    """
    half = worlds[0].shape[1] // 2
    early = worlds[0][:, :half], worlds[1][:, :half]
    event = _choose(early, bound, level, shares)
    late = [world[:, half:] for world in worlds]
    hits = [_count(event, scores) for scores in late]
    likelier = event.likelier
    return Tally(hits[likelier], hits[1 - likelier], late[0].shape[1])


def _choose(worlds: Worlds, bound: Bound, level: float, shares: Vector) -> Event:
    """Return the event with the largest bound on these draws."""
    n, best, chosen = worlds[0].shape[1], -inf, Event(0, 0.0, True, 0)
    for score, pair in enumerate(zip(*worlds, strict=True)):
        thresholds = np.quantile(np.concatenate(pair), shares)
        over = [n - np.searchsorted(np.sort(s), thresholds, "right") for s in pair]
        for above, likelier in product((True, False), (0, 1)):
            hits = over if above else [n - count for count in over]
            p = at_least(hits[likelier].astype(np.float64), n, level)
            q = at_most(hits[1 - likelier].astype(np.float64), n, level)
            values = bound(p, q)
            at = int(np.argmax(values))
            if values[at] > best:
                best = float(values[at])
                chosen = Event(score, float(thresholds[at]), above, likelier)
    return chosen


def _count(event: Event, scores: Matrix) -> int:
    """Return in how many draws the event happened."""
    over = int(np.count_nonzero(scores[event.score] > event.threshold))
    return over if event.above else scores.shape[1] - over
