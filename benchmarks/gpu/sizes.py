# SPDX-License-Identifier: Apache-2.0
"""How large the problems on a device are: in full, and small enough for a test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows, features and classes; one class is a binary model."""

    n_rows: int
    n_features: int
    n_classes: int = 1

    def __str__(self) -> str:
        """Return the shape as text."""
        classes = f", k={self.n_classes}" if self.n_classes > 1 else ""
        return f"n={self.n_rows}, d={self.n_features}{classes}"


@dataclass(frozen=True, slots=True)
class DeviceSizes:
    """The shapes on the device; the processor gets one row in ``share`` of them."""

    table: Shape
    head: Shape
    share: int
    repeats: int


FULL = DeviceSizes(Shape(1_000_000, 1024), Shape(200_000, 768, 100), 10, 5)
QUICK = DeviceSizes(Shape(4000, 16), Shape(3000, 12, 4), 2, 2)
