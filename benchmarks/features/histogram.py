# SPDX-License-Identifier: Apache-2.0
"""Histogram: how much each cell of an image slopes in each direction.

Dalal and Triggs, "Histograms of Oriented Gradients for Human Detection", CVPR 2005,
without their blocks: the row as a whole has norm 1. It never saw the data.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..data import Dataset
from .grey import standardise, unit_rows
from .kinds import Features
from .svhn import Digits


@dataclass(frozen=True, slots=True)
class Histogram:
    """Gradient magnitudes summed by cell and direction.

    Directions are taken modulo pi, since digits come light on dark and dark on
    light; a gradient is shared between the two nearest of them.

    Parameters
    ----------
    cell
        Pixels a side of a square cell; it divides the side of the image.
    directions
        Bins of the half circle.
    """

    requires: ClassVar[tuple[str, ...]] = ("numpy",)

    cell: int = 4
    directions: int = 9

    def __call__(self, digits: Digits) -> Features:
        """Return the features of both parts: 576 columns by default."""
        return Features(
            Dataset(self.rows(digits.train_images), digits.train_labels),
            Dataset(self.rows(digits.test_images), digits.test_labels),
        )

    def rows(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return one unit row an image, direction by direction."""
        grey = standardise(images)
        across, down = np.gradient(grey, axis=2), np.gradient(grey, axis=1)
        size = np.hypot(across, down)
        turn = np.mod(np.arctan2(down, across) / np.pi, 1.0) * self.directions
        below = np.floor(turn)
        nearer = turn - below
        lower = below.astype(np.int8) % self.directions
        upper = (lower + 1) % self.directions
        bins = [
            self._summed(
                size * (1.0 - nearer) * (lower == i) + size * nearer * (upper == i)
            )
            for i in range(self.directions)
        ]
        return unit_rows(np.stack(bins, axis=1))

    def _summed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sum over each cell."""
        n, height, width = values.shape
        if height % self.cell or width % self.cell:
            raise ValueError(
                f"cell={self.cell} does not divide an image of {height} x {width}; "
                "choose one that does"
            )
        down, across = height // self.cell, width // self.cell
        cells = values.reshape(n, down, self.cell, across, self.cell)
        total: NDArray[np.float32] = cells.sum(axis=(2, 4))
        return total
