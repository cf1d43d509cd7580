# SPDX-License-Identifier: Apache-2.0
"""True errors of the mechanisms against retraining, beside reference figures.

MNIST 3 vs 8, rows of unit norm, logistic loss, L2, alpha 1e-3, "mean" scaling, no
intercept; removed are the first m rows of a seeded permutation. The error is the
distance to what the solver finds on the remaining rows.
"""

from collections.abc import Iterator
from math import floor, log10
from pathlib import Path

import numpy as np

from expunge import L2, Jackknife, Logistic, Newton, Objective, summarise
from expunge.core.solver import minimise
from expunge.removal import Mechanism

from .data import mnist_3_vs_8
from .report import Section, Table, Target
from .stream import request_order
from .timing import progress

# Rows removed: the errors of Jackknife and Newton, derived independently.
REFERENCE = {
    1: (1.29e-5, 1.65e-7),
    10: (1.68e-4, 3.91e-6),
    100: (1.08e-3, 4.49e-5),
    1000: (2.88e-2, 5.90e-4),
    5000: (0.316, 4.04e-3),
}
RESIDUAL = 1e-10


def same_in_two_digits(value: float, reference: float) -> bool:
    """Whether value is within half a unit of the reference's second digit."""
    unit = 10.0 ** (floor(log10(reference)) - 1)
    return abs(value - reference) <= 0.5 * unit


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the table of true errors."""
    dataset = mnist_3_vs_8(data_dir)
    objective = Objective(Logistic(), L2(), alpha=1e-3)
    rows, order = objective.rows(dataset.X, dataset.y), request_order(len(dataset))
    progress("fitting all rows")
    solution = minimise(objective, rows)
    summary = summarise(objective, rows, theta=solution.theta)
    mechanisms: tuple[Mechanism, ...] = (
        Jackknife(certified=False),
        Newton(certified=False),
    )
    states = [mechanism.init(summary) for mechanism in mechanisms]
    lines, matches, residuals = [], 0, [solution.residual]
    for n_removed, references in REFERENCE.items():
        progress(f"{n_removed} removed, against retraining")
        gone = order[:n_removed]
        target = minimise(objective, rows.without(gone), start=solution.theta)
        residuals.append(target.residual)
        cells = [f"{n_removed}"]
        for mechanism, state, reference in zip(
            mechanisms, states, references, strict=True
        ):
            _, draft = mechanism.step(mechanism.update(state, rows.take(gone)))
            error = float(np.linalg.norm(draft.theta - target.theta))
            matches += same_in_two_digits(error, reference)
            cells += [f"{error:.2e}", f"{reference:.2e}"]
        lines.append((*cells, f"{target.residual:.1e}"))
    headers = ("removed", "Jackknife", "ref.", "Newton", "ref.", "retrain residual")
    yield Section(
        "True error against retraining, MNIST 3 vs 8 (11982 x 784, alpha 1e-3)",
        [Table(headers, lines)],
        [
            Target("errors equal to the reference in two digits", matches, low=10),
            Target("largest residual of the solver", max(residuals), high=RESIDUAL),
        ],
    )
