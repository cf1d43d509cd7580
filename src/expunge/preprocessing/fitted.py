# SPDX-License-Identifier: Apache-2.0
"""FittedPreprocessing: the public part, which predictions and files need."""

from dataclasses import dataclass
from typing import Any

from ..core.arrays import Matrix
from ..core.packing import stored
from .columns import Column, read_columns
from .description import Preprocessing, Source
from .features import Features


@stored
@dataclass(frozen=True, slots=True, eq=False)
class FittedPreprocessing:
    """What preprocessing does and what it has learned. It carries no noise.

    Attributes
    ----------
    described
        What it does.
    columns
        How each column is read.
    features
        What it has learned.
    """

    described: Preprocessing
    columns: tuple[Column, ...]
    features: Features

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the model sees them."""
        return self.features.encode(read_columns(self.columns, X))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return self.features.layout.names

    @property
    def sources(self) -> tuple[Source, ...]:
        """The columns of the table that are read."""
        return tuple(dict.fromkeys(column.source for column in self.columns))

    def __repr__(self) -> str:
        sizes = f"{len(self.sources)} columns, {len(self.names)} features"
        return f"FittedPreprocessing({sizes})"
