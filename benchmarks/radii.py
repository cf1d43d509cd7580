# SPDX-License-Identifier: Apache-2.0
"""How far radii are above the truth: on MNIST, and over random removals.

A radius below the true error anywhere would be a wrong certificate; one far above it
costs noise for nothing.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count, islice
from math import inf
from pathlib import Path

import numpy as np

from expunge import L2, Jackknife, Logistic, Newton, Objective, learn
from expunge.core.rows import Rows
from expunge.core.solver import minimise
from expunge.promise.capacity import jackknife_radius, newton_radius, regularity_of
from expunge.promise.radius import Radii
from expunge.removal import Draft, Mechanism, State, measure_gradient
from tests.evidence import Outcome, outcome, ratios
from tests.instances import FITTING, MECHANISMS

from .data import Dataset, mnist_3_vs_8
from .report import Section, Table, Target, number
from .stream import request_order
from .timing import progress

REMOVED = (1, 10, 100, 1000, 5000)
EACH = 50
KINDS = ("measured", "measured-local", "residual", "residual-local", "two-step")
A_PRIORI = {"Jackknife": jackknife_radius, "Newton": newton_radius}
NAMED: dict[str, Mechanism] = {"Jackknife": Jackknife(), "Newton": Newton()}


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield radii on MNIST, then the evidence of random removals."""
    dataset = mnist_3_vs_8(data_dir)
    yield on_mnist(dataset)
    yield with_free_intercept(dataset)
    yield evidence()


def all_radii(state: State, draft: Draft, remaining: Rows) -> dict[str, float]:
    """Return every radius of a draft that has looked at the rows."""
    radii = Radii(state, draft, remaining=remaining)
    return {
        "measured": radii.measured(),
        "measured-local": radii.measured_local(),
        "residual": radii.residual(),
        "residual-local": radii.residual_local(),
        "two-step": radii.two_step(),
    }


def compare(
    objective: Objective, dataset: Dataset, counts: tuple[int, ...]
) -> Iterator[tuple[str, int, float, dict[str, float]]]:
    """Yield mechanism, count, true error and radii over the mechanisms."""
    rows, order = objective.rows(dataset.X, dataset.y), request_order(len(dataset))
    summary = learn(objective, rows)
    constants = regularity_of(objective, summary.magnitude.row_norm)
    for n_removed in counts:
        progress(f"radii with {n_removed} removed, alpha {objective.alpha:g}")
        gone = order[:n_removed]
        remaining = rows.without(gone)
        target = minimise(objective, remaining, start=summary.anchor).theta
        for name, mechanism in NAMED.items():
            state = mechanism.update(mechanism.init(summary), rows.take(gone))
            state, draft = mechanism.step(state)
            error = float(np.linalg.norm(draft.theta - target))
            radii = all_radii(
                state, measure_gradient(state, draft, remaining=remaining), remaining
            )
            if constants.strong_convexity > 0.0:
                radii["a-priori"] = A_PRIORI[name](
                    constants, n_removed, n_samples=len(rows)
                )
            yield name, n_removed, error, radii


def on_mnist(dataset: Dataset) -> Section:
    """Return radii over true errors on MNIST, alpha 1e-3."""
    objective = Objective(Logistic(), L2(), alpha=1e-3)
    lines, blind, seeing = [], defaultdict(list), []
    for name, n_removed, error, radii in compare(objective, dataset, REMOVED):
        over = [number(radii[kind] / error) for kind in (*KINDS, "a-priori")]
        lines.append((f"{name}, {n_removed} removed", f"{error:.2e}", *over))
        best = min(radii["measured"], radii["measured-local"])
        blind[name].append(best / error)
        looked = (radii[kind] for kind in ("residual", "residual-local", "two-step"))
        seeing.append(min(looked) / error)
    headers = ("radius / true error", "error", *KINDS, "a-priori")
    return Section(
        "Radii on MNIST 3 vs 8, alpha 1e-3",
        [Table(headers, lines)],
        [
            Target("Jackknife without rows, largest", max(blind["Jackknife"]), 1, 3),
            Target("Newton without rows, largest", max(blind["Newton"]), 1, 35),
            Target("both with rows, largest", max(seeing), 1, 2),
        ],
    )


def with_free_intercept(dataset: Dataset) -> Section:
    """Return radii where nothing penalises the intercept."""
    lines, targets = [], []
    for alpha in (1e-3, 1e-4):
        objective = Objective(Logistic(), L2(), alpha=alpha, intercept=True)
        for name, n_removed, error, radii in compare(objective, dataset, (1000,)):
            over = [number(radii[kind] / error) for kind in KINDS]
            lines.append((f"{name}, alpha {alpha:g}", f"{error:.2e}", *over))
            if (name, alpha) == ("Newton", 1e-4):
                ratio = radii["residual-local"] / error
                title = f"{name}, {n_removed} removed, alpha {alpha:g}, with rows"
                targets.append(Target(title, ratio, 1, 3))
    return Section(
        "Radii with an unpenalised intercept, 1000 removed",
        [Table(("radius / true error", "error", *KINDS), lines)],
        targets,
        ["inf: strong convexity is not there to divide by"],
    )


def evidence() -> Section:
    """Return what thousands of random removals show."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for done, each in enumerate(FITTING):
        if done % 20 == 0:
            progress(f"random removals, combination {done + 1} of {len(FITTING)}")
        tried = (outcome(each, seed) for seed in count())
        valid = (case for case in tried if case is not None)
        found[each.mechanism] += islice(valid, EACH)
    cases = [case for outcomes in found.values() for case in outcomes]
    violations = sum(len(case.violated) for case in cases)
    hard = float(np.mean([case.ill_conditioned for case in cases]))
    lines = [
        line
        for name in MECHANISMS
        for kind in KINDS
        if (line := distribution(name, kind, found[name])) is not None
    ]
    headers = ("radius / true error", "finite", "5 %", "median", "95 %")
    return Section(
        f"Random removals: {len(FITTING)} combinations, each {EACH} times",
        [Table(headers, lines)],
        [
            Target("cases", len(cases), low=3000),
            Target("radii below the true error", violations, high=0),
            Target("share of badly conditioned cases", hard, low=0.2),
        ],
        ["cases without a minimiser, or refused, are not counted"],
    )


def distribution(
    mechanism: str, kind: str, outcomes: list[Outcome]
) -> tuple[str, ...] | None:
    """Return how one kind of radius compares with the truth for one mechanism."""
    over = ratios(outcomes, kind)
    finite = sum(case.radii.get(kind, inf) < inf for case in outcomes)
    if not over.size:
        return None
    quantiles = (number(float(q)) for q in np.quantile(over, [0.05, 0.5, 0.95]))
    return (f"{mechanism}, {kind}", f"{finite} of {len(outcomes)}", *quantiles)
