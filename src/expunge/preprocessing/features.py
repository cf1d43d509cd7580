# SPDX-License-Identifier: Apache-2.0
"""Features: what preprocessing has learned, and the rows that a model sees.

Every feature is affine in one quantity of a raw row; what was learned is rounded once:

    number      (x - centre) / scale + offset,  or ``missing`` where x is missing
    flag        [code is one of the feature's codes] / scale + offset
    indicator   [x is missing] / scale + offset

The code of a number is the range that it lies in (``bins``).

A ``Layout`` says which features there are, ``Features`` what their numbers are. Most
requests change the numbers alone. ``FittedPreprocessing`` is the public part, which
predictions and files need.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Index, Matrix, Vector
from ..core.split import Codes, Flags, SplitMatrix
from ..core.values import stored
from ..exceptions import InvalidInput
from .bins import find_bins
from .columns import UNKNOWN, Column, read_columns
from .description import Preprocessing, Source
from .encoder import is_encoder

GAP: tuple[int, ...] = ()
"""In place of codes: the feature says where a number is missing."""


class Feature(NamedTuple):
    """One feature; ``codes`` is None for a number."""

    name: str
    column: int
    codes: tuple[int, ...] | None
    centre: float
    scale: float
    offset: float
    missing: float


class LevelTable(NamedTuple):
    """Where a code finds its level, for one column of categories.

    Attributes
    ----------
    column
        The column.
    at
        The features of its levels, in order.
    levels
        The level of each code, that of code -1 first; ``len(at)`` for none, and for a
        code beyond those of the features, which has the last entry.
    """

    column: int
    at: Index
    levels: Codes


class FlagTable(NamedTuple):
    """Where a code finds its feature, for all columns of categories at once.

    Attributes
    ----------
    columns
        The columns.
    first, last
        Where the codes of each begin and end in ``indices``.
    indices
        The feature of each code, that of code -1 first; -1 for none.
    """

    columns: Index
    first: Index
    last: Index
    indices: Index


@stored
@dataclass(frozen=True, eq=False)
class Layout:
    """Which features there are: name, column and codes of each.

    ``edges`` are where ranges end in columns of numbers that have codes, by position.
    """

    names: tuple[str, ...]
    columns: Index
    codes: tuple[tuple[int, ...] | None, ...]
    edges: Mapping[str, Vector] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone.

        What was computed on the way tells how the last request was answered, and so
        who left; a copy computes it again.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def equals(self, other: "Layout") -> bool:
        """Whether these features are about the same."""
        return self is other or (self.keys == other.keys and self.has_bins_of(other))

    def has_bins_of(self, other: "Layout") -> bool:
        """Whether ranges of numbers are those of another layout."""
        return self is other or (
            self.bins == other.bins
            and self.edges.keys() == other.edges.keys()
            and all(
                np.array_equal(own, other.edges[name])
                for name, own in self.edges.items()
            )
        )

    @cached_property
    def bins(self) -> set[tuple[int, tuple[int, ...] | None]]:
        """Column and codes of each feature that is a range of numbers."""
        return {key for key in self.keys if str(key[0]) in self.edges}

    def place_of(
        self, key: tuple[int, tuple[int, ...] | None], other: "Layout"
    ) -> int | None:
        """Return which feature was the other's of this key; None if none was.

        Of a bin it is that in which the other's ends.
        """
        column, codes = key
        ends = other.edges.get(str(column))
        if ends is not None and codes:
            end = np.append(ends, [np.inf, np.nan])[codes[0]]
            own = find_bins(self.edges[str(column)], np.array([end]))
            key = column, (int(own[0]),)
        return self.keys.get(key)

    def find_codes(self, raw: Matrix, column: int) -> Index:
        """Return the code of each raw row in one column."""
        edges = self.edges.get(str(column))
        if edges is None:
            return raw[:, column].astype(np.intp)
        return find_bins(edges, raw[:, column])

    @cached_property
    def keys(self) -> dict[tuple[int, tuple[int, ...] | None], int]:
        """The index of each feature by its column and codes, in order."""
        pairs = zip(self.columns.tolist(), self.codes, strict=True)
        return {key: index for index, key in enumerate(pairs)}

    @cached_property
    def numbers(self) -> Index:
        """Places of the features that are numbers."""
        return np.flatnonzero([codes is None for codes in self.codes])

    @cached_property
    def indicators(self) -> Index:
        """Places of the features that say where a number is missing."""
        return np.flatnonzero([codes == GAP for codes in self.codes])

    @cached_property
    def flags(self) -> FlagTable:
        """Where the codes of categories find their features."""
        tables: dict[int, dict[int, int]] = {}
        for index, (column, codes) in enumerate(
            zip(self.columns.tolist(), self.codes, strict=True)
        ):
            if codes:
                tables.setdefault(column, {}).update(dict.fromkeys(codes, index))
        # A code beyond those of the features has none of them: the last entry.
        sizes = [max(table) + 3 for table in tables.values()]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        indices = np.full(first[-1], -1, dtype=np.intp)
        for begin, table in zip(first, tables.values(), strict=False):
            for code, index in table.items():
                indices[begin + code + 1] = index
        columns = np.array(list(tables), dtype=np.intp)
        return FlagTable(columns, first[:-1], first[1:] - 1, indices)

    @cached_property
    def levels(self) -> tuple[LevelTable, ...]:
        """Where the codes of each column of categories find their levels."""
        tables = []
        for column, first, last in zip(
            self.flags.columns.tolist(),
            self.flags.first.tolist(),
            self.flags.last.tolist(),
            strict=True,
        ):
            indices = self.flags.indices[first : last + 1]
            at = np.unique(indices[indices >= 0])
            levels = np.where(indices >= 0, np.searchsorted(at, indices), len(at))
            tables.append(LevelTable(column, at, levels.astype(np.int32)))
        return tuple(tables)


@stored
@dataclass(frozen=True, eq=False)
class Features:
    """All features in order, attribute by attribute; see the module docstring."""

    layout: Layout
    centre: Vector
    scale: Vector
    offset: Vector
    missing: Vector

    @classmethod
    def of(
        cls, features: Sequence[Feature], *, edges: Mapping[str, Vector] | None = None
    ) -> "Features":
        """Return these features, with the ``edges`` of ranges of numbers."""
        names, columns, codes, *rest = zip(*features, strict=True)
        layout = Layout(names, np.array(columns, dtype=np.intp), codes, edges or {})
        return cls(layout, *[np.array(values, dtype=np.float64) for values in rest])

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def has_categories(self) -> bool:
        """Whether some features are flags of categories, which rows can split off."""
        return bool(self.layout.levels)

    def equals(self, other: "Features") -> bool:
        """Whether these features are the same function of a raw row."""
        return self is other or (
            self.layout.equals(other.layout)
            and np.array_equal(self.centre, other.centre)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.offset, other.offset)
            and np.array_equal(self.missing, other.missing, equal_nan=True)
        )

    def replace_numbers(self, features: Sequence[Feature]) -> "Features":
        """Return the features with the numbers of these in place of the old ones."""
        keys = self.layout.keys
        indices = [keys[feature.column, feature.codes] for feature in features]
        changed = []
        for name in ("centre", "scale", "offset", "missing"):
            values = getattr(self, name).copy()
            values[indices] = [getattr(feature, name) for feature in features]
            changed.append(values)
        return Features(self.layout, *changed)

    def encode(self, raw: Matrix) -> Matrix:
        """Return the rows that a model sees, (rows, features), in new memory."""
        layout = self.layout
        encoded = np.empty((len(raw), len(self)))
        encoded[:] = self.offset
        at = layout.numbers
        if at.size:
            encoded[:, at] = self._encode_numbers(raw[:, layout.columns[at]], at)
        at = layout.indicators
        if at.size:
            gaps = np.isnan(raw[:, layout.columns[at]])
            encoded[:, at] += gaps / self.scale[at]
        table = layout.flags
        if table.columns.size:
            codes = raw[:, table.columns]
            if layout.edges:
                each = (layout.find_codes(raw, j) for j in table.columns.tolist())
                codes = np.column_stack(list(each))
            codes = codes.astype(np.intp)
            indices = table.indices[np.minimum(table.first + codes + 1, table.last)]
            rows, found = np.nonzero(indices >= 0)
            hit = indices[rows, found]
            encoded[rows, hit] += 1.0 / self.scale[hit]
        return encoded

    def split(self, raw: Matrix, more: Sequence[Vector | float] = ()) -> SplitMatrix:
        """Return the same rows split: categories stay codes.

        ``more`` are columns that follow the features.
        """
        layout, n = self.layout, len(self)
        numbers, gaps = layout.numbers, layout.indicators
        width = len(numbers) + len(gaps)
        X = np.empty((len(raw), width + len(more)))
        if numbers.size:
            x = raw[:, layout.columns[numbers]]
            X[:, : len(numbers)] = self._encode_numbers(x, numbers)
        if gaps.size:
            missing = np.isnan(raw[:, layout.columns[gaps]])
            X[:, len(numbers) : width] = self.offset[gaps]
            X[:, len(numbers) : width] += missing / self.scale[gaps]
        for k, column in enumerate(more, start=width):
            X[:, k] = column
        at = np.concatenate([numbers, gaps, np.arange(n, n + len(more))])
        codes = np.empty((len(layout.levels), len(raw)), dtype=np.int32)
        flags = []
        for own, table in zip(codes, layout.levels, strict=True):
            given = layout.find_codes(raw, table.column).astype(np.int32)
            given += 1
            np.minimum(given, len(table.levels) - 1, out=given)
            np.take(table.levels, given, out=own)
            other = self.offset[table.at]
            hit = other + 1.0 / self.scale[table.at]  # as ``encode`` adds them
            flags.append(Flags(table.at, hit, other if other.any() else None))
        return SplitMatrix(X, at.astype(np.intp), codes, tuple(flags))

    def _encode_numbers(self, x: Matrix, at: Index) -> Matrix:
        z = (x - self.centre[at]) / self.scale[at] + self.offset[at]
        gaps = np.isnan(x)
        if not gaps.any():
            return np.asarray(z)
        filled = np.where(gaps, self.missing[at], z)
        if np.isnan(filled).any():
            raise InvalidInput(
                "a value is missing in a column that had no missing values when the "
                "model was fitted; fill it, or put SimpleImputer() into the "
                "preprocessing"
            )
        return filled


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

        Codes are numbers among all categories of the first fit: public ones would tell
        that somebody left, and about what they had.
        """
        layout = features.layout
        indices = [
            {code: index for index, code in enumerate(column.codes)}
            | {UNKNOWN: UNKNOWN}
            for column in columns
        ]
        codes = tuple(
            own
            if str(j) in layout.edges
            else own and tuple(indices[j][code] for code in own if code in indices[j])
            for j, own in zip(layout.columns.tolist(), layout.codes, strict=True)
        )
        if codes != layout.codes:  # else keep what the layout has computed
            features = replace(features, layout=replace(layout, codes=codes))
        plain = tuple(
            replace(column, codes=tuple(range(len(column.codes)))) for column in columns
        )
        return cls(described, plain, features)

    @property
    def n_features(self) -> int:
        """How many features there are."""
        return len(self.names)

    @property
    def takes_inputs(self) -> bool:
        """False: it takes tables."""
        return False

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the model sees them."""
        made = self.described.made
        return self.features.encode(read_columns(self.columns, X, made))

    def require_consistent(self, columns: Collection[Source]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together.

        ``columns`` are those that a table may have.
        """
        layout, n_features = self.features.layout, len(self.names)
        numbers = [
            getattr(self.features, field.name) for field in fields(self.features)
        ]
        codes = [own for own in layout.codes if own is not None]
        given: tuple[Any, ...] = self.columns  # anything, by a file
        known = {*columns}
        made = True
        for one in self.described.made:
            made = made and is_encoder(one.encoder) and known.issuperset(one.columns)
            known |= set(one.names)
        reads = all(
            isinstance(column, Column)
            and type(column.source) in (int, str)
            and column.source in known
            and len(column.codes) == len(column.categories)
            for column in given
        )
        if not (
            reads
            and made
            and all(isinstance(name, str) for name in self.names)
            and layout.columns.shape == (n_features,)
            and np.isin(layout.columns, np.arange(len(self.columns))).all()
            and len(layout.codes) == n_features
            and all(isinstance(code, int) for own in codes for code in own)
            and all(
                name in map(str, range(len(self.columns)))
                and edges.ndim == 1
                and edges.dtype == np.float64
                and bool((edges[1:] > edges[:-1]).all())
                for name, edges in layout.edges.items()
            )
            and all(
                array.shape == (n_features,) and array.dtype == np.float64
                for array in numbers[1:]
            )
        ):
            raise ValueError("the parts of this preprocessing do not go together")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return self.features.layout.names

    @property
    def sources(self) -> tuple[Source, ...]:
        """The columns of the table that are read."""
        own = {name for one in self.described.made for name in one.names}
        read = [column.source for column in self.columns]
        read += [source for one in self.described.made for source in one.columns]
        return tuple(source for source in dict.fromkeys(read) if source not in own)

    def __repr__(self) -> str:
        sizes = f"{len(self.sources)} columns, {len(self.names)} features"
        return f"FittedPreprocessing({sizes})"
