# SPDX-License-Identifier: Apache-2.0
r"""Scores: what noise costs a release, measured on rows.

Releases are drawn as ``unlearn.release`` would draw them, with seeded noise: the same
seed for every sigma, so that two sigmas differ by their size alone.
"""

from dataclasses import dataclass
from math import nan

import numpy as np

from .._typing import Vector
from ..blocks import block_sum, predict
from ..budget import Budget
from ..exceptions import InvalidInput
from ..losses import Loss
from ..noise import SeededNoise, on_grid
from ..rows import Rows


@dataclass(frozen=True, slots=True)
class Scored:
    """Releases under one sigma.

    Attributes
    ----------
    sigma
        The noise; zero for the noise-free model.
    score, lowest
        Mean and lowest accuracy (or R2) of the releases drawn.
    loss
        Mean loss of a row, averaged over the releases.
    typical, worst
        Removals this sigma allows by the state alone, epsilon and delta as in the
        contract; None where the fit itself cannot be certified, or without noise.
    """

    sigma: float
    score: float
    lowest: float
    loss: float
    typical: int | None = None
    worst: int | None = None


def noise_free(loss: Loss, rows: Rows, theta: Vector) -> Scored:
    """Return the scores of the model itself."""
    score, lost = _score(loss, rows, theta)
    return Scored(sigma=0.0, score=score, lowest=score, loss=lost)


def released(
    loss: Loss, rows: Rows, theta: Vector, contract: Budget, seeds: tuple[int, int]
) -> Scored:
    """Return the scores of releases of this model under a contract.

    ``seeds`` are the seed of the noise and how many releases to draw from it.
    """
    seed, draws = seeds
    noise = SeededNoise(contract.sigma, contract.grid, seed)
    rounded = on_grid(theta, contract.grid)
    thetas = [rounded + noise.draw(theta.size) for _ in range(draws)]
    found = np.array([_score(loss, rows, each) for each in thetas])
    return Scored(
        sigma=contract.sigma,
        score=float(found[:, 0].mean()),
        lowest=float(found[:, 0].min()),
        loss=float(found[:, 1].mean()),
    )


def _score(loss: Loss, rows: Rows, theta: Vector) -> tuple[float, float]:
    """Return accuracy or R2 on these rows, and the mean loss."""
    numbers = takes_numbers(loss)

    def term(block: Rows) -> tuple[float, float]:
        eta = predict(loss, block, theta)
        if numbers:
            errors = (eta - block.y).reshape(len(block), -1)
            points = np.einsum("ij,ij->i", errors, errors)
        elif loss.outputs == 1:
            points = np.where(eta > 0.0, 1.0, -1.0) == block.y
        else:
            points = np.argmax(eta, axis=1) == block.y
        lost = loss.value(block.y, eta)
        return float(block.weight @ points), float(block.weight @ lost)

    points, lost = block_sum(term, rows)
    weight = rows.total_weight
    if not numbers:
        return points / weight, lost / weight
    spread = rows.y - np.average(rows.y, axis=0, weights=rows.weight)
    total = float(np.sum(rows.weight @ spread**2))
    return (1.0 - points / total if total > 0.0 else nan), lost / weight


def takes_numbers(loss: Loss) -> bool:
    """Whether labels are numbers, not classes: one half is no class."""
    shape = (1,) if loss.outputs == 1 else (1, loss.outputs)
    try:
        loss.labels(np.full(shape, 0.5))
    except InvalidInput:
        return False
    return True
