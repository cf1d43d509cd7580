# SPDX-License-Identifier: Apache-2.0
"""Soundness on a device: no certified radius is below the true error.

Random problems are fitted on the device, and people leave them. Each answer is judged
by the minimiser on the remaining rows, in extended precision and in memory:

    python -m tests.gpu_soundness --device cuda --count 2000

It needs no test framework: a machine with a GPU may have none.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge import (
    L1,
    L2,
    Budget,
    ElasticNet,
    GroupLasso,
    MatrixFree,
    Newton,
    Objective,
    Rows,
)
from expunge.core.losses import Loss
from expunge.core.penalties import Penalty
from expunge.exceptions import NotCertifiable, NotConverged
from expunge.gpu import DeviceRows, to_device
from expunge.private_model.model import PrivateModel
from expunge.removal import Mechanism
from tests.exact import LD, exact_minimiser, length
from tests.instances import LOSSES, labelled

KINKS: tuple[Penalty, ...] = (L1(), ElasticNet(0.4), GroupLasso([0, 0, 1, 1, 2, 2]))
N_REQUESTS = 3
# A stranger's loss is written for NumPy, and refused on a device.
OURS = [name for name in LOSSES if type(LOSSES[name][0]).__module__[:8] == "expunge."]
# Rows of a block: few have more than one of them.
LENGTHS = (20, 60, 200, 600, 3000)


@dataclass(frozen=True)
class Case:
    """A problem on a device, the same rows in memory, and how to remove."""

    name: str
    objective: Objective
    on_device: DeviceRows
    in_memory: Rows
    mechanism: Mechanism
    budget: Budget


@dataclass(frozen=True)
class Verdict:
    """Answers that were judged, the worst error over radius, and what was refused."""

    n_judged: int = 0
    n_violations: int = 0
    n_refused: int = 0
    worst: float = 0.0

    def __add__(self, other: "Verdict") -> "Verdict":
        """Return both together."""
        return Verdict(
            self.n_judged + other.n_judged,
            self.n_violations + other.n_violations,
            self.n_refused + other.n_refused,
            max(self.worst, other.worst),
        )


def draw_case(seed: int, device: str) -> Case:
    """Return a random case."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(OURS))
    loss: Loss = LOSSES[name][0]
    mechanism: Mechanism = MatrixFree() if rng.random() < 0.5 else Newton()
    smooth = isinstance(mechanism, MatrixFree) or rng.random() < 0.6
    penalty = L2() if smooth else KINKS[rng.integers(len(KINKS))]
    n_rows = int(rng.choice(LENGTHS, p=(0.25, 0.25, 0.3, 0.17, 0.03)))
    X, y = labelled(name, rng, n_rows)
    X *= 10.0 ** rng.uniform(-1, 1)
    if rng.random() < 0.3:  # a few rows that rule
        X[: max(1, n_rows // 20)] *= 30.0
    objective = Objective(
        loss,
        penalty,
        alpha=float(10.0 ** rng.uniform(-4, 0)),
        ridge=0.0 if smooth else float(10.0 ** rng.uniform(-3, -1)),
        scaling="sum" if rng.random() < 0.5 else "mean",
        intercept=bool(rng.random() < 0.6),
    )
    dtype: Any = "float32" if rng.random() < 0.5 else "float64"
    X = X.astype(dtype)
    weight = rng.integers(1, 4, size=n_rows) if rng.random() < 0.5 else None
    return Case(
        name,
        objective,
        to_device(objective, X, y, sample_weight=weight, device=device),
        objective.rows(X, y, weight),
        mechanism,
        Budget(sigma=float(10.0 ** rng.uniform(-4, 1))),
    )


def judge(model: PrivateModel, rest: Rows) -> Verdict:
    """Return whether the answer is as near to retraining as its radius says."""
    answer = model.answer
    objective = model.terms.objective_for(rest)
    exact = exact_minimiser(objective, rest, answer.draft.theta)
    error = length(answer.draft.theta.astype(LD) - exact.theta)
    radius = answer.radius.value
    if not exact.doubt <= 0.5 * error + 1e-15:  # the oracle cannot tell
        return Verdict()
    wrong = error > LD(radius) + exact.doubt
    return Verdict(1, int(wrong), 0, float(error / LD(radius)) if radius else 0.0)


def run_case(seed: int, device: str) -> Verdict:
    """Return what became of a case: its fit, and its requests one after another."""
    case, rng = draw_case(seed, device), np.random.default_rng([seed, 1])
    try:
        model = PrivateModel.fit(
            case.objective,
            case.on_device,
            mechanism=case.mechanism,
            budget=case.budget,
        )
    except (NotCertifiable, NotConverged):
        return Verdict(n_refused=1)
    verdict, left = judge(model, case.in_memory), case.on_device
    people = rng.permutation(len(case.in_memory))
    gone = people[:0]
    for n_gone in np.cumsum(rng.integers(1, 1 + len(people) // 10, size=N_REQUESTS)):
        leaving = people[len(gone) : n_gone]
        gone = people[:n_gone]
        removed, left = left.take(leaving), left.without(leaving)
        try:
            model = model.forget(removed, remaining=left)
        except (NotCertifiable, NotConverged):
            return verdict + Verdict(n_refused=1)
        left.erase()
        verdict += judge(model, case.in_memory.without(gone))
    return verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run so many cases, and say how many radii were too small."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_soundness")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    verdict = Verdict()
    for seed in range(options.first, options.first + options.count):
        found = run_case(seed, options.device)
        if found.n_violations:
            print(f"seed {seed}: {found}", flush=True)
        verdict += found
        if (seed + 1) % 100 == 0:
            print(f"{seed + 1 - options.first} cases: {verdict}", flush=True)
    print(
        f"{options.count} cases on {options.device}: {verdict.n_judged} answers "
        f"judged, {verdict.n_violations} violations, {verdict.n_refused} refused, "
        f"largest error over radius {verdict.worst:.5f}"
    )
    return 1 if verdict.n_violations or not verdict.n_judged else 0


if __name__ == "__main__":
    sys.exit(main())
