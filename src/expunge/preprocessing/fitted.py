# SPDX-License-Identifier: Apache-2.0
"""FittedPreprocessing: the public part, which predictions and files need."""

from dataclasses import dataclass, replace
from typing import Any

from ..core.arrays import Matrix
from ..core.packing import stored
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

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the model sees them."""
        return self.features.encode(read_columns(self.columns, X))

    def renumber(self) -> "FittedPreprocessing":
        """Return the same preprocessing, with the codes that a new fit would give.

        Codes are places among the categories of the fit. A code that nobody has now
        would tell that somebody has left.
        """
        if all(not c.codes or c.codes[-1] == len(c.codes) - 1 for c in self.columns):
            return self
        own = [{code: new for new, code in enumerate(c.codes)} for c in self.columns]
        columns = [replace(c, codes=tuple(range(len(c.codes)))) for c in self.columns]
        codes, layout = [], self.features.layout
        for place, found in zip(layout.columns.tolist(), layout.codes, strict=True):
            # A code of no category is that of a missing value, which comes last.
            new, last = own[place] | {UNKNOWN: UNKNOWN}, len(own[place])
            known = tuple(new.get(code, last) for code in found or ())
            codes.append(None if found is None else known)
        features = replace(self.features, layout=replace(layout, codes=tuple(codes)))
        return FittedPreprocessing(self.described, tuple(columns), features)

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
