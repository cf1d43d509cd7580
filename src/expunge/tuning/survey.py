# SPDX-License-Identifier: Apache-2.0
"""Survey: one pass over the rows for the models of all folds and candidates.

A fold's rows train the models of all other folds and judge their own. Block by block,
one product with the rows gives the predictors of every model, and another one their
gradients: what a model trains on is the sum over all blocks but one, and what judges it
is that one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from .._typing import Matrix, Vector
from ..blocks import largest_moves, slopes_at_each
from ..losses import Loss
from ..private import Private
from .folds import Split

Place: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sighting(Private):
    """What the rows say of one model.

    Attributes
    ----------
    slopes
        Gradient of sum w loss over what it trains on.
    judged, judged_slopes
        Sum w loss over its fold's own rows, and the gradient.
    """

    slopes: Vector
    judged: float
    judged_slopes: Vector


def surveyed(
    loss: Loss, split: Split, places: Sequence[Place], thetas: Matrix
) -> list[Sighting]:
    """Return what the rows say of models at these places with these parameters."""
    folds = np.array([fold for fold, _ in places])

    def of_block(block: int) -> tuple[Matrix, Vector]:
        own = np.flatnonzero(folds == block)
        return slopes_at_each(loss, split.validation(block), thetas, own)

    found = side_by_side(of_block, range(split.n_folds))
    slopes = np.array([gradients for gradients, _ in found])
    values = np.sum([value for _, value in found], axis=0)
    own = slopes[folds, np.arange(len(places))]
    # Summed over the other blocks, never by subtraction: nothing may cancel.
    slopes[folds, np.arange(len(places))] = 0.0
    rest = slopes.sum(axis=0)
    return [
        Sighting(slope, float(value), judged)
        for slope, value, judged in zip(rest, values, own, strict=True)
    ]


def moves(loss: Loss, split: Split, steps: Matrix) -> Vector:
    """Return how far each step moves any row's predictors."""
    found = side_by_side(
        lambda block: largest_moves(loss, split.validation(block), steps),
        range(split.n_folds),
    )
    largest: Vector = np.max(found, axis=0)
    return largest


def side_by_side(work: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Return what each task gives, in order, worked on in threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))
