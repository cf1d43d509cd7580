# SPDX-License-Identifier: Apache-2.0
r"""Trial: make many releases of both worlds and try to tell them apart.

For convex models retraining is cheap, so the operator who retrains can be played for
real. The auditor sees everything, both noise-free models included, and looks at a
release through two scores:

    along   its place on the line between the two models: for Gaussian noise of equal
            size the likelihood ratio is a function of it, no test does better;
    away    its distance from the retrained model: noise of unequal size shows here.

What is found is a lower bound on mu and on epsilon (see ``evidence``), which the
contract promises from above. Two events, each with two one-sided bounds at a quarter of
the error allowed: an honest build fails with a probability of at most 1 - confidence.

Evidence: what two samples prove about the laws that they were drawn from.

An event A happens in hits out of n draws of a world. Clopper and Pearson bound its
probability from the hits alone, exactly and whatever the law: p >= p_low in the world
where A is likelier, q <= q_up in the other. From two such bounds follow

    mu      >= Phi^-1(p_low) - Phi^-1(q_up)     if the worlds are mu-close as Gaussians,
    epsilon >= log((p_low - delta) / q_up)      if they are (epsilon, delta)-close,
    advantage >= p_low - q_up                   of whoever bets on A.

The event is chosen where its bound looks best on the first half of the draws and
judged on the second half, which the choice has not seen. Nothing here knows a model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import TypeAlias

import numpy as np
from scipy.special import betaincinv, ndtri

from ..core.arrays import Index, Matrix, Private, Vector
from ..core.objective import Objective
from ..core.rows import Rows
from ..exceptions import InvalidInput
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.gaussian import epsilon_of
from ..promise.noise import Noise, make_noise, round_to_grid
from ..removal import Mechanism, Newton, Retrain

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


# Numbers drawn in one go: noise for one release after another, without its overhead.
BLOCK = 2**16
FEWEST_DRAWS = 100

NOT_SHOWN = (
    "that the promise holds: a pass is the failure of an attack, and the proof is the "
    "radius behind the certificate",
    "anything about other rows or other requests: one removal was put on trial",
    "what earlier releases tell: they contained the removed people",
    "what the private state or a guessable source of noise would give away",
)
PRIVATE = "keep it with the private record: its figures depend on the removed rows"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A removal to be put on trial.

    Parameters
    ----------
    objective, rows
        What is fitted.
    removed
        Positions of the rows to remove.
    mechanism
        What answers the removal.
    """

    objective: Objective
    rows: Rows
    removed: Index
    mechanism: Mechanism = field(default_factory=Newton)

    @property
    def remaining(self) -> Rows:
        """All other rows."""
        return self.rows.without(self.removed)


@dataclass(frozen=True, slots=True)
class Trial:
    """How releases are made, how many, and how sure the finding must be.

    Parameters
    ----------
    budget
        The contract: its claim is what is tried.
    noise
        Where the releases' noise comes from, in both worlds; ``None`` takes the
        contract's own, from a secure source.
    n_draws
        Releases of each world.
    confidence
        An honest build fails with a probability of at most one minus this.
    """

    budget: Budget
    noise: Noise | None = None
    n_draws: int = 20_000
    confidence: float = 0.99

    def __post_init__(self) -> None:
        """Refuse a trial that could not find anything."""
        if self.n_draws < FEWEST_DRAWS:
            raise InvalidInput(
                f"n_draws={self.n_draws}; at least {FEWEST_DRAWS} are needed, and "
                "20000 to find noise that is a third too small"
            )
        if not 0.0 < self.confidence < 1.0:
            raise InvalidInput(
                f"confidence={self.confidence}; it must lie strictly between 0 and 1"
            )

    @property
    def doubt(self) -> float:
        """Probability of a wrong finding that is allowed: one minus the confidence."""
        return 1.0 - self.confidence


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Pair(Private):
    """Two noise-free models, (d k,) each, that somebody may try to tell apart."""

    first: Vector
    second: Vector


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Models(Private):
    """The noise-free models of a case: before, after, and as retraining has it."""

    before: Vector
    removed: Vector
    retrained: Vector

    @property
    def worlds(self) -> Pair:
        """What the certificate compares: the removal's answer and retraining's."""
        return Pair(self.removed, self.retrained)

    @property
    def presence(self) -> Pair:
        """With and without the person. The certificate says nothing about it."""
        return Pair(self.before, self.retrained)

    @property
    def history(self) -> Pair:
        """Before and after the removal. The certificate says nothing about it."""
        return Pair(self.before, self.removed)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a trial found, beside what the contract claims for one release.

    The figures depend on the removed rows: keep the report with the private record.

    Attributes
    ----------
    epsilon_lower
        Epsilon is at least this at ``delta``, with ``confidence``: the larger of
        ``epsilon_direct`` and what ``mu_lower`` costs at delta.
    epsilon_claimed, delta
        The contract's upper bound for one release.
    epsilon_direct
        The bound that follows from the definition of (epsilon, delta) alone. It
        lives in the tails and needs many more draws.
    mu_lower, mu_claimed
        The same in Gaussian differential privacy, which is what the contract's noise
        provides.
    n_draws, confidence
        Releases of each world, and how sure the lower bounds are, jointly.
    """

    epsilon_lower: float
    epsilon_claimed: float
    delta: float
    epsilon_direct: float
    mu_lower: float
    mu_claimed: float
    n_draws: int
    confidence: float

    @property
    def passes(self) -> bool:
        """Whether what was found is compatible with what is claimed."""
        return self.epsilon_lower <= self.epsilon_claimed

    @property
    def shows(self) -> str:
        """What the trial shows, in words."""
        found = (
            f"epsilon is at least {self.epsilon_lower:.3g} at delta {self.delta:g}, "
            f"with {100 * self.confidence:g} % confidence ({self.n_draws} releases of "
            f"each world); the contract claims at most {self.epsilon_claimed:.3g}"
        )
        if self.passes:
            return f"{found}: the strongest test of this removal found no violation"
        return f"{found}: this build breaks its contract"

    @property
    def does_not_show(self) -> tuple[str, ...]:
        """What must not be concluded from it."""
        return NOT_SHOWN if self.passes else NOT_SHOWN[1:]

    def __str__(self) -> str:
        """Return the finding with its limits, for a terminal."""
        lines = ["PASSES" if self.passes else "FAILS", f"  shows: {self.shows}"]
        lines += [f"  does not show: {line}" for line in self.does_not_show]
        return "\n".join([*lines, f"  {PRIVATE}"])


def audit(case: Case, trial: Trial) -> AuditReport:
    """Put one removal on trial: remove, retrain, release both many times, test.

    Parameters
    ----------
    case
        What is fitted and what is removed.
    trial
        The contract, the noise, how many releases, and the confidence.
    """
    return examine(models(case, trial.budget).worlds, trial)


def models(case: Case, budget: Budget) -> Models:
    """Return the noise-free models of a case, made as the verbs make them.

    The removal is answered with the remaining rows at hand, so it fits the contract.
    The retrained model is a fit from cold that is certified to be within tau.
    """
    remaining = case.remaining
    before = PrivateModel.fit(
        case.objective, case.rows, mechanism=case.mechanism, budget=budget
    )
    after = before.forget(case.rows.take(case.removed), remaining=remaining)
    kept = remaining.total_weight / case.rows.total_weight
    fresh = PrivateModel.fit(
        case.objective.after(kept), remaining, mechanism=Retrain(), budget=budget
    )
    worlds = (one.answer.draft.theta for one in (before, after, fresh))
    return Models(*worlds)


def examine(worlds: Pair, trial: Trial) -> AuditReport:
    """Return how far apart the releases of two models can be shown to be.

    For a build that is not this library's: give its noise-free answer, the retrained
    model, the contract it claims, and its noise.

    Parameters
    ----------
    worlds
        The removal's answer, and the retrained model.
    trial
        The claim, the noise of both, how many releases, and the confidence.
    """
    budget, level = trial.budget, 0.25 * trial.doubt
    scores = _scores(worlds, trial)
    mu = max(0.0, judged(scores, curve, level).lower(curve, level))
    tails = ratio(budget.delta)
    direct = max(0.0, judged(scores, tails, level, WIDE).lower(tails, level))
    return AuditReport(
        epsilon_lower=max(direct, epsilon_of(mu, budget.delta)),
        epsilon_claimed=_claimed(budget),
        delta=budget.delta,
        epsilon_direct=direct,
        mu_lower=mu,
        mu_claimed=budget.gdp,
        n_draws=trial.n_draws,
        confidence=trial.confidence,
    )


def releases(theta: Vector, trial: Trial, noise: Noise) -> Iterator[Matrix]:
    """Yield releases of a model in blocks, (some, d k): on the grid, with noise."""
    centre, size = round_to_grid(theta, trial.budget.grid), theta.size
    left, block = trial.n_draws, max(1, BLOCK // theta.size)
    while left:
        some = min(block, left)
        yield centre + noise.draw(some * size).reshape(some, size)
        left -= some


def source_of(trial: Trial) -> Noise:
    """Return the noise of a trial: as given, or the contract's own."""
    return make_noise(trial.budget, None) if trial.noise is None else trial.noise


def _scores(worlds: Pair, trial: Trial) -> Worlds:
    """Return both scores, (2, n), of the releases of each world."""
    noise = source_of(trial)
    gap = worlds.first - worlds.second
    length = float(np.linalg.norm(gap))
    unit = gap / length if length > 0.0 else gap

    def scores(theta: Vector) -> Matrix:
        blocks = []
        for block in releases(theta, trial, noise):
            moved = block - worlds.second
            away = np.sqrt(np.einsum("ij,ij->i", moved, moved))
            blocks.append(np.stack([moved @ unit, away]))
        return np.concatenate(blocks, axis=1)

    return scores(worlds.first), scores(worlds.second)


def _claimed(budget: Budget) -> float:
    """Return the epsilon of one release at delta: of its share, where T are joint."""
    if budget.releases is None:
        return budget.epsilon
    return epsilon_of(budget.gdp, budget.delta)
