# SPDX-License-Identifier: Apache-2.0
"""The audit can fail: broken builds are caught, their sound counterparts pass.

Each build claims (1, 1e-5). Its claim follows from its own radius, and its sigma is
chosen so that this radius uses the claim up:

printed noise   jackknife with noise that accumulates in increments of 2m + 1, as the
                paper's Algorithm 1 prints it, at m = 50; sum of increments: m^2. The
                first increment comes from the lemma with constants put right, so that
                the recursion alone is on trial.
half the noise  a jackknife whose budget says sigma and whose sampler draws sigma / 2.
rank one        a Newton step by Woodbury's formula under "mean" scaling, with the
                residual assumed to be zero: the radius is its third-order term.

The counterparts have the same data and the same sigma in the budget.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from expunge import L2, HalfSquared, Jackknife, Logistic, Objective, Rows, learn
from expunge.audit import (
    AuditOptions,
    AuditReport,
    Case,
    ModelPair,
    attack_membership,
    attack_reconstruction,
    audit,
    examine,
    fit_models,
)
from expunge.core.arrays import Index, Vector
from expunge.core.linalg import Symmetric
from expunge.core.sums import curvature_rows
from expunge.promise.budget import Budget
from expunge.promise.capacity import jackknife_radius, regularity_of
from expunge.promise.floor import strong_convexity
from expunge.promise.noise import Noise, SeededNoise
from expunge.promise.radius import best_radius, third_order_bound
from expunge.promise.rounding import Rounding
from expunge.removal import Newton, State, measure_gradient
from expunge.removal.newton import woodbury_rows

from .report import Section, Table, Target, number
from .timing import progress

SEEDS = 20
PRINTED_REMOVALS = 50
# A budget that a radius just uses up: one hundredth goes to each solver.
USED = 0.985


@dataclass(frozen=True, slots=True)
class Found:
    """What the audit of a broken build and of its sound counterpart found."""

    broken: AuditReport
    sound: AuditReport


def budget_for(radius: float) -> Budget:
    """Return the budget whose radius budget this radius uses up."""
    # Fixed from the radius for once, so that the trial is as hard as it can be.
    return Budget(sigma=radius / (USED * Budget().gdp), allow_seeded=True)


def make_seeded_noise(budget: Budget, seed: int, share: float = 1.0) -> Noise:
    """Return the budget's noise, or a share of it."""
    return SeededNoise(share * budget.deviation, budget.grid, seed)


class PrintedNoise:
    """Noise of a recursion on the noised model: increments of 2m + 1 steps."""

    source: Literal["seeded"] = "seeded"

    def __init__(self, step: float, grid: float, seed: int) -> None:
        self._increments = [
            SeededNoise((2 * m + 1) * step, grid, PRINTED_REMOVALS * seed + m)
            for m in range(PRINTED_REMOVALS)
        ]

    def draw(self, n_parameters: int, number: int | None = None) -> Vector:
        """Return the sum of all increments: each release passed them on to the next."""
        total = np.zeros(n_parameters)
        for increment in self._increments:
            total += increment.draw(n_parameters)
        return total


def dissenters(seed: int) -> Case:
    """Return 50 rows that disagree with 950: near the worst that the lemma allows."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(1000), 0.2 * rng.normal(size=(1000, 2))])
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.ones(1000)
    y[:PRINTED_REMOVALS] = -1.0
    objective = Objective(Logistic(), L2(), alpha=4.0)
    return Case(
        objective, objective.rows(X, y), np.arange(PRINTED_REMOVALS), Jackknife()
    )


def printed_noise(seed: int, n_draws: int) -> Found:
    """Audit noise that accumulates as printed, and noise of the size it claims."""
    case = dissenters(seed)
    known = regularity_of(case.objective, row_norm=1.0)
    step = jackknife_radius(known, 1, n_samples=len(case.rows)) / Budget().gdp
    needed = PRINTED_REMOVALS**2 * step  # what the increments add up to
    budget = Budget(sigma=needed, allow_seeded=True)
    worlds = fit_models(case, budget).worlds
    sound = AuditOptions(budget, make_seeded_noise(budget, seed), n_draws)
    broken = replace(sound, noise=PrintedNoise(step, budget.grid, seed))
    return Found(examine(worlds, broken), examine(worlds, sound))


def cluster(seed: int, objective: Objective) -> Case:
    """Return the removal of 120 of 600 rows that lie together."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 4))
    X[:120] += np.array([2.0, 1.0, 0.0, 0.0])
    target = X @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=600)
    target[:120] += 2.0
    y = target if isinstance(objective.loss, HalfSquared) else np.sign(target)
    removed: Index = np.arange(120)
    return Case(objective, objective.rows(X, y), removed, Jackknife())


def answer_case(case: Case) -> tuple[State, float]:
    """Return the state after the removal and the best radius of its answer."""
    state = case.mechanism.init(learn(case.objective, case.rows))
    state = case.mechanism.update(state, case.rows.take(case.removed))
    state, draft = case.mechanism.step(state)
    seen = measure_gradient(state, draft, remaining=case.remaining)
    return state, best_radius(state, seen, remaining=case.remaining).value


def half_the_noise(seed: int, n_draws: int, share: float = 0.5) -> Found:
    """Audit a sampler that draws a share of its sigma, and one that draws it all."""
    case = cluster(seed, Objective(HalfSquared(), L2(), alpha=0.1))
    budget = budget_for(answer_case(case)[1])
    sound = AuditOptions(budget, make_seeded_noise(budget, seed), n_draws)
    broken = replace(sound, noise=make_seeded_noise(budget, seed, share))
    worlds = fit_models(case, budget).worlds
    return Found(examine(worlds, broken), examine(worlds, sound))


def rank_one_step(state: State, removed: Rows) -> Vector:
    """Return -P c_U, P the inverse downdated by the removed rows and nothing else."""
    inverse, loss = state.preconditioner, state.objective.loss
    assert isinstance(inverse, Symmetric)
    Z = curvature_rows(loss, removed, theta=state.anchor)
    V = woodbury_rows(inverse, Z, sign=-1.0)
    assert V is not None
    c = state.smooth_gradient
    return -(inverse @ c + V.T @ (V @ c))


def rank_one(seed: int, n_draws: int) -> Found:
    """Audit a Newton step by a low-rank inverse, and Newton as it is."""
    case = cluster(seed, Objective(Logistic(), L2(), alpha=1.0))
    state, _ = answer_case(case)
    s = rank_one_step(state, case.rows.take(case.removed))
    budget = budget_for(
        third_order_bound(Rounding(state), s) / strong_convexity(Rounding(state))
    )
    options = AuditOptions(budget, make_seeded_noise(budget, seed), n_draws)
    newton = replace(case, mechanism=Newton())
    retrained = fit_models(newton, budget).retrained
    broken = examine(ModelPair(state.anchor + s, retrained), options)
    return Found(broken, audit(newton, options))


BUILDS: dict[str, Callable[[int, int], Found]] = {
    "printed noise": printed_noise,
    "half the noise": half_the_noise,
    "rank one": rank_one,
}
N_DRAWS = 20_000


def span(values: list[float]) -> str:
    """Return the range of some figures."""
    return f"{number(min(values))} to {number(max(values))}"


def audit_builds() -> Section:
    """Return how many broken builds were caught, and how many sound ones passed."""
    lines, targets = [], []
    for name, build in BUILDS.items():
        progress(f"audit: {name}, {SEEDS} seeds")
        found = [build(seed, N_DRAWS) for seed in range(SEEDS)]
        for kind in ("broken", "sound"):
            reports = [getattr(each, kind) for each in found]
            passing = sum(report.passes for report in reports)
            cells = (
                span([report.epsilon_lower for report in reports]),
                span([report.epsilon_direct for report in reports]),
                span([report.mu_lower / report.mu_claimed for report in reports]),
            )
            lines.append((f"{name}, {kind}", *cells, f"{passing} of {SEEDS}"))
            good = passing if kind == "sound" else SEEDS - passing
            verb = "passes" if kind == "sound" else "caught"
            targets.append(Target(f"{name}, {kind}: {verb}", good, low=SEEDS))
    headers = ("build", "epsilon >=", "without a shape", "mu / claimed >=", "passes")
    return Section(
        f"Audit at 99 % confidence of builds that claim (1, 1e-5), {N_DRAWS} releases",
        [Table(headers, lines)],
        targets,
        ["epsilon from the Gaussian curve; 'without a shape' from its definition"],
    )


def audit_power() -> Section:
    """Return how often too little noise is caught, by how much and how many draws."""
    lines = []
    for share in (0.9, 0.75, 0.5):
        cells = []
        for n_draws in (5_000, 20_000, 80_000):
            progress(f"audit: {share:g} of the noise, {n_draws} releases")
            found = [half_the_noise(seed, n_draws, share) for seed in range(SEEDS)]
            cells.append(f"{sum(not each.broken.passes for each in found)} of {SEEDS}")
        lines.append((f"{share:g} sigma", *cells))
    headers = ("noise drawn", "5,000 releases", "20,000", "80,000")
    return Section("Caught at 99 % confidence", [Table(headers, lines)])


def outsider(seed: int) -> Case:
    """Return the removal of the one row that stands out among 200."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 10))
    X[0] = 2.0 * rng.normal(size=10)
    y = np.sign(X[:, 0] + rng.logistic(size=200))
    y[0] = -np.sign(X[0, 0])
    objective = Objective(Logistic(), L2(), alpha=1e-2)
    return Case(objective, objective.rows(X, y), np.arange(1), Newton())


def attack_earlier_releases() -> Section:
    """Return what releases from before a removal tell, which nothing covers."""
    lines, directions = [], []
    for sigma in (0.3, 0.1, 0.03):
        progress(f"attacks on earlier releases, sigma {sigma:g}")
        case, budget = outsider(0), Budget(sigma=sigma, allow_seeded=True)
        found, person = fit_models(case, budget), case.rows.take(case.removed)
        options = AuditOptions(budget, make_seeded_noise(budget, 0))
        attack = partial(attack_membership, objective=case.objective, person=person)
        before, after = (
            attack(pair, options=options) for pair in (found.presence, found.worlds)
        )
        traced = attack_reconstruction(
            found.history,
            case.objective,
            person=person,
            known=outsider(1).rows,
            options=options,
        )
        directions.append(traced.exact)
        cells = [f"{x:.3f}" for x in (before.advantage, after.advantage)]
        cells += [f"{x:.3f}" for x in (traced.noised, traced.exact, traced.chance)]
        lines.append((f"{sigma:g}", *cells))
    headers = (
        "sigma",
        "member, before",
        "member, after",
        "row, two releases",
        "without noise",
        "blindly",
    )
    return Section(
        "What a certificate does not cover: releases that contained the person",
        [Table(headers, lines)],
        [Target("cosine with the removed row, no noise", min(directions), low=0.9)],
        [
            "member: advantage of a membership attack by the loss of the person's row, "
            "on the release before the removal and on the one after it",
            "row: cosine between the removed row and H (after - before), H from a "
            "sample of the same population",
        ],
    )


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what is caught, what it takes, and what is not covered."""
    del data_dir
    yield audit_builds()
    yield audit_power()
    yield attack_earlier_releases()
