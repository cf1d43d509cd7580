# SPDX-License-Identifier: Apache-2.0
r"""Compare releases of two worlds, and show how far apart they are at least.

For convex models retraining is cheap, so an auditor can play both operators: the one
who removed and the one who retrained. The auditor sees everything, including both
noise-free models, and looks at a release through two scores:

    along   its place on the line between the two models. For Gaussian noise of equal
            size the likelihood ratio is a function of it, so no test does better.
    away    its distance from the retrained model, where noise of unequal size shows.

An event A is a score above or below a threshold. It is chosen on the first half of the
draws, where its bound looks best, and counted on the second half, which the choice has
not seen. Clopper and Pearson bound its probability from the count alone, exactly and
whatever the distribution: p >= p_low in the world where A is likelier, q <= q_up in the
other. From these follow

    mu      >= Phi^-1(p_low) - Phi^-1(q_up)     if the worlds are mu-close as Gaussians,
    epsilon >= log((p_low - delta) / q_up)      if they are (epsilon, delta)-close,
    advantage >= p_low - q_up                   of betting on A,

lower bounds on what the budget promises from above. Two events with two one-sided
bounds each, at a quarter of the error allowed: an honest build fails with a probability
of at most 1 - confidence.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import Any, TypeAlias

import numpy as np
from scipy.special import betaincinv, ndtri

from ..core.arrays import Index, Matrix, Vector
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import Private
from ..engines import read_engine, require_jobs
from ..exceptions import InvalidInput
from ..private_model.model import PrivateModel
from ..promise.budget import Budget, epsilon_of
from ..promise.noise import Noise, make_noise, round_to_grid
from ..removal import Mechanism, Newton, Retrain

Bound: TypeAlias = Callable[[Vector, Vector], Vector]
Worlds: TypeAlias = tuple[Matrix, Matrix]

# Thresholds tried for each score, as shares of the draws. mu and an advantage show best
# in the middle: in the tails, the largest of many noisy bounds is luck. A ratio is
# largest in the tails.
MIDDLE: Vector = np.linspace(0.1, 0.9, 33)
TAIL: Vector = np.geomspace(1e-4, 0.1, 24, endpoint=False)
ALL_SHARES: Vector = np.concatenate([TAIL, MIDDLE, 1.0 - TAIL])
TINY = 1e-300
# Numbers drawn at once, to share the overhead of a draw among releases.
BLOCK = 2**16
FEWEST_DRAWS = 100

NOT_SHOWN = (
    "that the promise holds: a pass is a failed attack, and the proof is the radius "
    "behind the certificate",
    "anything about other rows or other requests: one removal was audited",
    "what earlier releases reveal: they contained the removed people",
    "what the private state or a guessable source of noise would reveal",
)
PRIVATE = "keep it with the private record: its figures depend on the removed rows"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A removal to audit.

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
class AuditOptions:
    """How releases are made, how many, and how sure the finding must be.

    Parameters
    ----------
    budget
        The budget whose claim is tested; of a model that keeps its rows.
    noise
        Source of the releases' noise, in both worlds; None takes the budget's own, from
        a secure source.
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
        """Raise InvalidInput for an audit that could not find anything."""
        if self.n_draws < FEWEST_DRAWS:
            raise InvalidInput(
                f"n_draws={self.n_draws}; at least {FEWEST_DRAWS} are needed, and "
                "20000 to find noise that is a third too small"
            )
        if not 0.0 < self.confidence < 1.0:
            raise InvalidInput(
                f"confidence={self.confidence}; it must lie strictly between 0 and 1"
            )
        object.__setattr__(self, "budget", self.budget.at_fit(rows_kept=True))

    @property
    def error_rate(self) -> float:
        """Allowed probability of a wrong finding: one minus the confidence."""
        return 1.0 - self.confidence

    @property
    def source(self) -> Noise:
        """The noise as given, or the budget's own."""
        return make_noise(self.budget, None) if self.noise is None else self.noise


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ModelPair(Private):
    """Two noise-free models, (d k,) each, that an attacker tries to tell apart."""

    first: Vector
    second: Vector


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CaseModels(Private):
    """The noise-free models of a case: before, after the removal, and retrained."""

    before: Vector
    removed: Vector
    retrained: Vector

    @property
    def worlds(self) -> ModelPair:
        """What the certificate compares: the removal's answer and retraining's."""
        return ModelPair(self.removed, self.retrained)

    @property
    def presence(self) -> ModelPair:
        """With and without the person. The certificate says nothing about it."""
        return ModelPair(self.before, self.retrained)

    @property
    def history(self) -> ModelPair:
        """Before and after the removal. The certificate says nothing about it."""
        return ModelPair(self.before, self.removed)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found, beside what the budget claims for one release.

    The figures depend on the removed rows: keep the report with the private record.

    Attributes
    ----------
    epsilon_lower
        Epsilon is at least this at ``delta``, with ``confidence``: the larger of
        ``epsilon_direct`` and what ``mu_lower`` costs at delta.
    epsilon_claimed, delta
        The budget's upper bound for one release.
    epsilon_direct
        The bound that follows from the definition of (epsilon, delta) alone. It depends
        on the tails and needs many more draws.
    mu_lower, mu_claimed
        The same in Gaussian differential privacy, which the budget's noise provides.
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
        """Whether the finding is compatible with the claim."""
        return self.epsilon_lower <= self.epsilon_claimed

    @property
    def shows(self) -> str:
        """What the audit shows, in words."""
        found = (
            f"epsilon is at least {self.epsilon_lower:.3g} at delta {self.delta:g}, "
            f"with {100 * self.confidence:g} % confidence ({self.n_draws} releases of "
            f"each world); the budget claims at most {self.epsilon_claimed:.3g}"
        )
        if self.passes:
            return f"{found}: the strongest test of this removal found no violation"
        return f"{found}: this build breaks its budget"

    @property
    def does_not_show(self) -> tuple[str, ...]:
        """What you must not conclude from it."""
        return NOT_SHOWN if self.passes else NOT_SHOWN[1:]

    def __str__(self) -> str:
        """Return the finding with its limits, for a terminal."""
        lines = ["PASSES" if self.passes else "FAILS", f"  shows: {self.shows}"]
        lines += [f"  does not show: {line}" for line in self.does_not_show]
        return "\n".join([*lines, f"  {PRIVATE}"])


def audit(case: Case, options: AuditOptions) -> AuditReport:
    """Audit one removal: remove, retrain, release both many times, and test.

    Parameters
    ----------
    case
        What is fitted and what is removed.
    options
        The budget, the noise, how many releases, and the confidence.
    """
    return examine(fit_models(case, options.budget).worlds, options)


def audit_each(
    cases: Iterable[tuple[Case, AuditOptions]], *, engine: Any = None
) -> list[AuditReport]:
    """Audit several removals, each with options and noise of its own.

    Parameters
    ----------
    cases
        As ``audit`` takes them.
    engine
        "dask://HOST:PORT" or a ``Client`` of Dask, whose workers run the audits and get
        their rows; this process, one after the other, if not given.
    """
    workers = require_jobs(read_engine(engine))
    if workers is None:
        return [audit(case, options) for case, options in cases]
    return workers.map(lambda pair: audit(*pair), cases)


def fit_models(case: Case, budget: Budget) -> CaseModels:
    """Return the noise-free models of a case, made as the library makes them.

    The removal is answered with the remaining rows at hand, so it fits the budget. The
    retrained model is a fit from a cold start, certified to be within tau.
    """
    remaining = case.remaining
    budget = budget.at_fit(rows_kept=True)
    before = PrivateModel.fit(
        case.objective, case.rows, mechanism=case.mechanism, budget=budget
    )
    after = before.forget(case.rows.take(case.removed), remaining=remaining)
    kept = remaining.total_weight / case.rows.total_weight
    fresh = PrivateModel.fit(
        case.objective.after(kept), remaining, mechanism=Retrain(), budget=budget
    )
    worlds = (one.answer.draft.theta for one in (before, after, fresh))
    return CaseModels(*worlds)


def examine(worlds: ModelPair, options: AuditOptions) -> AuditReport:
    """Return how far apart the releases of two models can be shown to be.

    Use it for a build that is not this library's: give its noise-free answer, the
    retrained model, the budget it claims, and its noise.

    Parameters
    ----------
    worlds
        The removal's answer, and the retrained model.
    options
        The claim, the noise of both, how many releases, and the confidence.
    """
    budget, level = options.budget, 0.25 * options.error_rate
    scores = _score_releases(worlds, options)
    counts = count_best_event(scores, gaussian_bound, level=level)
    mu = max(0.0, counts.lower(gaussian_bound, level))
    ratio = make_ratio_bound(budget.delta)
    counts = count_best_event(scores, ratio, level=level, shares=ALL_SHARES)
    direct = max(0.0, counts.lower(ratio, level))
    return AuditReport(
        epsilon_lower=max(direct, epsilon_of(mu, budget.delta)),
        # Of one release at delta; of its share, if several are joint.
        epsilon_claimed=budget.epsilon
        if budget.releases is None
        else epsilon_of(budget.gdp, budget.delta),
        delta=budget.delta,
        epsilon_direct=direct,
        mu_lower=mu,
        mu_claimed=budget.gdp,
        n_draws=options.n_draws,
        confidence=options.confidence,
    )


def draw_releases(
    theta: Vector, options: AuditOptions, *, noise: Noise
) -> Iterator[Matrix]:
    """Yield releases of a model in blocks, (some, d k): on the grid, with noise."""
    centre, size = round_to_grid(theta, options.budget.grid), theta.size
    left, block = options.n_draws, max(1, BLOCK // theta.size)
    while left:
        some = min(block, left)
        yield centre + noise.draw(some * size).reshape(some, size)
        left -= some


def _score_releases(worlds: ModelPair, options: AuditOptions) -> Worlds:
    """Return both scores, (2, n), of the releases of each world."""
    noise = options.source
    gap = worlds.first - worlds.second
    length = float(np.linalg.norm(gap))
    unit = gap / length if length > 0.0 else gap

    def score(theta: Vector) -> Matrix:
        blocks = []
        for block in draw_releases(theta, options, noise=noise):
            moved = block - worlds.second
            away = np.sqrt(np.einsum("ij,ij->i", moved, moved))
            blocks.append(np.stack([moved @ unit, away]))
        return np.concatenate(blocks, axis=1)

    return score(worlds.first), score(worlds.second)


@dataclass(frozen=True, slots=True)
class ScoreEvent:
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
class EventCounts:
    """How often an event happened in n draws of each world.

    Attributes
    ----------
    hits, misses
        How often in the world where it should be likelier, and in the other.
    n
        Draws of each world.
    """

    hits: int
    misses: int
    n: int

    def lower(self, bound: Bound, level: float) -> float:
        """Return the bound, wrong with a probability of at most 2 level."""
        p, q = np.array([self.hits]), np.array([self.misses])
        low = lower_probability(p, self.n, level=level)
        return float(bound(low, upper_probability(q, self.n, level=level))[0])

    def upper(self, bound: Bound, level: float) -> float:
        """Return the bound at the other ends of both intervals."""
        p, q = np.array([self.hits]), np.array([self.misses])
        high = upper_probability(p, self.n, level=level)
        return float(bound(high, lower_probability(q, self.n, level=level))[0])


def lower_probability(hits: Vector, n: int, *, level: float) -> Vector:
    """Return Clopper and Pearson's lower bound, too high with probability <= level."""
    some = np.maximum(hits, 1.0)
    low = np.asarray(betaincinv(some, n - some + 1.0, level), dtype=np.float64)
    return np.where(hits > 0.0, low, 0.0)


def upper_probability(hits: Vector, n: int, *, level: float) -> Vector:
    """Return Clopper and Pearson's upper bound, too low with probability <= level."""
    return 1.0 - lower_probability(n - hits, n, level=level)


def gaussian_bound(p: Vector, q: Vector) -> Vector:
    """Return Phi^-1(p) - Phi^-1(q): the mu of a Gaussian curve through (q, 1 - p)."""
    return np.asarray(ndtri(p) - ndtri(q))


def make_ratio_bound(delta: float) -> Bound:
    """Return the bound log((p - delta) / q) on epsilon at this delta."""

    def bound(p: Vector, q: Vector) -> Vector:
        return np.log(np.maximum(p - delta, TINY)) - np.log(np.maximum(q, TINY))

    return bound


def advantage_bound(p: Vector, q: Vector) -> Vector:
    """Return p - q: how often betting on the event wins more than it loses."""
    return p - q


def count_best_event(
    worlds: Worlds, bound: Bound, *, level: float, shares: Vector = MIDDLE
) -> EventCounts:
    """Choose an event on the first half of the draws and count it on the second.

    Parameters
    ----------
    worlds
        For each world its scores, (scores, n); draws are independent.
    bound
        What the event should make large.
    level
        Level of Clopper and Pearson's bounds.
    shares
        Quantiles of all draws to try as thresholds.
    """
    half = worlds[0].shape[1] // 2
    early = worlds[0][:, :half], worlds[1][:, :half]
    event = _choose_event(early, bound, level=level, shares=shares)
    late = [world[:, half:] for world in worlds]
    hits = [_count(event, scores) for scores in late]
    likelier = event.likelier
    return EventCounts(hits[likelier], hits[1 - likelier], late[0].shape[1])


def _choose_event(
    worlds: Worlds, bound: Bound, *, level: float, shares: Vector
) -> ScoreEvent:
    """Return the event with the largest bound on these draws."""
    n, best, chosen = worlds[0].shape[1], -inf, ScoreEvent(0, 0.0, True, 0)
    for score, pair in enumerate(zip(*worlds, strict=True)):
        thresholds = np.quantile(np.concatenate(pair), shares)
        over = [n - np.searchsorted(np.sort(s), thresholds, "right") for s in pair]
        for above, likelier in product((True, False), (0, 1)):
            hits = over if above else [n - count for count in over]
            p = lower_probability(hits[likelier].astype(np.float64), n, level=level)
            q = upper_probability(hits[1 - likelier].astype(np.float64), n, level=level)
            values = bound(p, q)
            at = int(np.argmax(values))
            if values[at] > best:
                best = float(values[at])
                chosen = ScoreEvent(score, float(thresholds[at]), above, likelier)
    return chosen


def _count(event: ScoreEvent, scores: Matrix) -> int:
    """Return in how many draws the event happened."""
    over = int(np.count_nonzero(scores[event.score] > event.threshold))
    return over if event.above else scores.shape[1] - over
