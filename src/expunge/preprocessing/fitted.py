# SPDX-License-Identifier: Apache-2.0
"""FittedPreprocessing: the public part, which predictions and files need."""

from dataclasses import dataclass, replace
from typing import Any

from ..core.arrays import Matrix
from ..core.values import stored
from .columns import UNKNOWN, Column, read_columns
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

    @classmethod
    def of(
        cls,
        described: Preprocessing,
        columns: tuple[Column, ...],
        *,
        features: Features,
    ) -> "FittedPreprocessing":
        """Return these parts with categories numbered 0, 1, ...

        Codes are places among all categories of the first fit: public ones would tell
        that somebody left, and about what they had.
        """
        layout = features.layout
        places = [
            {code: place for place, code in enumerate(column.codes)}
            | {UNKNOWN: UNKNOWN}
            for column in columns
        ]
        codes = tuple(
            own and tuple(places[j][code] for code in own if code in places[j])
            for j, own in zip(layout.columns.tolist(), layout.codes, strict=True)
        )
        if codes != layout.codes:  # else keep what the layout has computed
            features = replace(features, layout=replace(layout, codes=codes))
        plain = tuple(
            replace(column, codes=tuple(range(len(column.codes)))) for column in columns
        )
        return cls(described, plain, features)

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
