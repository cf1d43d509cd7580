# SPDX-License-Identifier: Apache-2.0
"""Features: what preprocessing has learned, and the rows that a model sees.

Every feature is affine in one quantity of a raw row; what was learned is rounded once:

    number      (x - centre) / scale + offset,  or ``missing`` where x is missing
    flag        [code is one of the feature's codes] / scale + offset
    indicator   [x is missing] / scale + offset

Features of other rows are therefore linear in these, in the indicators of gaps and in a
constant: see ``feature_maps``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Matrix, Vector
from ..core.packing import stored
from ..exceptions import InvalidInput
from .columns import UNKNOWN, Column
from .description import (
    FillGaps,
    FitRange,
    Group,
    OneHot,
    Preprocessing,
    Scale,
    Standardise,
)
from .exact_sums import UNIT, find_deviation, find_mean, to_units
from .statistics import Statistics

GAP: tuple[int, ...] = ()
"""In place of codes: the feature says where a number is missing."""
# Below this scikit-learn takes a range for zero.
NO_RANGE = 10.0 * float(np.finfo(np.float64).eps)


class Feature(NamedTuple):
    """One feature; ``codes`` is None for a number."""

    name: str
    column: int
    codes: tuple[int, ...] | None
    centre: float
    scale: float
    offset: float
    missing: float


@stored
@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """All features in order, attribute by attribute; see the module docstring."""

    names: tuple[str, ...]
    columns: Index
    codes: tuple[tuple[int, ...] | None, ...]
    centre: Vector
    scale: Vector
    offset: Vector
    missing: Vector

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Features":
        """Return these features."""
        names, columns, codes, *rest = zip(*features, strict=True)
        numbers = [np.array(values, dtype=np.float64) for values in rest]
        return cls(names, np.array(columns, dtype=np.intp), codes, *numbers)

    def __len__(self) -> int:
        return len(self.names)

    def equals(self, other: "Features") -> bool:
        """Whether these features are the same function of a raw row."""
        return self is other or (
            self.codes == other.codes
            and np.array_equal(self.columns, other.columns)
            and np.array_equal(self.centre, other.centre)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.offset, other.offset)
            and np.array_equal(self.missing, other.missing, equal_nan=True)
        )

    @property
    def numbers(self) -> Index:
        """Positions of the features that are numbers."""
        return np.flatnonzero([codes is None for codes in self.codes])

    def flags(self) -> Iterator[tuple[int, Index]]:
        """Yield each column that has flags, with their positions."""
        places: dict[int, list[int]] = {}
        for place, codes in enumerate(self.codes):
            if codes is not None:
                places.setdefault(int(self.columns[place]), []).append(place)
        for column, found in places.items():
            yield column, np.array(found, dtype=np.intp)

    def encode(self, raw: Matrix) -> Matrix:
        """Return the rows that a model sees, (rows, features), in new memory."""
        encoded = np.empty((len(raw), len(self)))
        at = self.numbers
        if at.size:
            x = raw[:, self.columns[at]]
            z = (x - self.centre[at]) / self.scale[at] + self.offset[at]
            gaps = np.isnan(x)
            encoded[:, at] = np.where(gaps, self.missing[at], z)
            if np.isnan(encoded[:, at]).any():
                raise InvalidInput(
                    "a value is missing in a column that had no missing values when "
                    "the model was fitted; fill it, or put SimpleImputer() into the "
                    "preprocessing"
                )
        for column, places in self.flags():
            encoded[:, places] = self._encode_flags(raw[:, column], places)
        return encoded

    def _encode_flags(self, values: Vector, places: Index) -> Matrix:
        """Return the flags of one column, by a table of all its codes."""
        chosen = [self.codes[place] for place in places]
        if chosen == [GAP]:
            hit = np.isnan(values)[:, None].astype(np.float64)
            return hit / self.scale[places] + self.offset[places]
        known = [code for codes in chosen for code in codes or ()]
        table = np.zeros((max(known, default=0) + 3, len(places)))
        for j, codes in enumerate(chosen):
            table[np.array(codes, dtype=np.intp) + 1, j] = 1.0
        table = table / self.scale[places] + self.offset[places]
        # A code beyond those of the features has none of them.
        rows = np.clip(values + 1.0, 0, len(table) - 1).astype(np.intp)
        return np.asarray(table[rows])


def learn_features(
    described: Preprocessing, columns: Sequence[Column], statistics: Statistics
) -> Features:
    """Return what fitting the preprocessing to the counted rows gives."""
    features: list[Feature] = []
    first = 0
    for group in described.groups:
        own = range(first, first + len(group.columns))
        first += len(group.columns)
        if isinstance(group.encode, OneHot):
            for place in own:
                features += _learn_flags(group, place, columns[place], statistics)
            continue
        for place in own:
            features += _learn_number(group, place, columns[place], statistics)
        if group.fill is not None and group.fill.indicator:
            for place in own:
                features += _learn_indicator(group, place, columns[place], statistics)
    if not features:
        raise InvalidInput(
            "preprocessing leaves no column; check the groups, or declare categories"
        )
    return Features.of(features)


def _learn_number(
    group: Group, place: int, column: Column, statistics: Statistics
) -> list[Feature]:
    """Return the feature of a number; none if nothing of it is observed."""
    name, fill, scale = str(column.source), group.fill, group.scale
    if fill is None and scale is None:
        return [Feature(name, place, None, 0.0, 1.0, 0.0, nan)]
    values = _Observed(statistics, place)
    if not values.n_observed and not (fill and fill.strategy == "constant"):
        return []
    filled = nan if fill is None else values.fill(fill)
    if fill is not None and not group.scale_first:
        values = values.filled(filled)
    centre, size, offset = values.learn_scale(scale)
    if fill is None:
        missing = nan
    elif group.scale_first and fill.strategy == "constant":
        missing = float(fill.value or 0.0)
    else:
        missing = (filled - centre) / size + offset
    return [Feature(name, place, None, centre, size, offset, missing)]


class _Observed:
    """The values of one column of numbers: their sums, and in order if kept."""

    def __init__(self, statistics: Statistics, place: int) -> None:
        self.statistics = statistics
        j = statistics.sum_place(place)
        self.sums = tuple(powers[j] for powers in statistics.sums.powers)
        self.total = statistics.sums.total
        plain = statistics.unweighted
        self.n_observed = plain.powers[0][j] >> UNIT
        self.mean = find_mean(plain.powers[0][j], plain.powers[1][j])
        self.ordered = statistics.ordered.get(str(place))
        self.value: float | None = None

    def fill(self, fill: FillGaps) -> float:
        """Return what fills the gaps."""
        if fill.strategy == "constant":
            return float(fill.value or 0.0)
        if fill.strategy == "mean":
            return self.mean
        assert self.ordered is not None
        if fill.strategy == "median":
            low, high = (len(self.ordered) - 1) // 2, len(self.ordered) // 2
            return float(np.mean(self.ordered[[low, high]]))
        found, counts = np.unique(self.ordered, return_counts=True)
        return float(found[np.argmax(counts)])

    def filled(self, value: float) -> "_Observed":
        """Return the column with its gaps filled."""
        weight, first, second = self.sums
        gaps, unit = self.total - weight, to_units(value)
        new = object.__new__(_Observed)
        new.statistics, new.total = self.statistics, self.total
        new.sums = (self.total, first + gaps * unit, second + gaps * unit * unit)
        new.n_observed, new.mean = self.statistics.n_rows, self.mean
        new.ordered = self.ordered
        new.value = value if self.n_observed < self.statistics.n_rows else None
        return new

    def learn_scale(self, scale: Scale | None) -> tuple[float, float, float]:
        """Return centre, scale and offset."""
        if scale is None:
            return 0.0, 1.0, 0.0
        if isinstance(scale, Standardise):
            return standardise(scale, *self.sums)
        assert self.ordered is not None
        ends = self.ordered[[0, -1]] if self.ordered.size else np.empty(0)
        more = [] if self.value is None else [self.value]
        return fit_ends(scale, np.array([*ends, *more]))


def standardise(
    scale: Standardise, weight: int, first: int, second: int
) -> tuple[float, float, float]:
    """Return mean and deviation from exact sums, rounded once; the offset is zero.

    A deviation that rounding alone explains counts as zero, by scikit-learn's test.
    """
    mean, deviation = find_mean(weight, first), find_deviation(weight, first, second)
    noise = weight / (1 << UNIT) * float(np.finfo(np.float64).eps)
    if deviation**2 <= noise * deviation**2 + (noise * mean) ** 2:
        deviation = 1.0
    centre = mean if scale.with_mean else 0.0
    return centre, deviation if scale.with_std else 1.0, 0.0


def fit_ends(scale: Scale, ends: Vector) -> tuple[float, float, float]:
    """Return centre, scale and offset from values that include both extremes."""
    if isinstance(scale, FitRange):
        width = float(ends.max() - ends.min())
        width = 1.0 if width < NO_RANGE else width
        return float(ends.min()), width / (scale.high - scale.low), scale.low
    size = float(np.abs(ends).max())
    return 0.0, 1.0 if size < NO_RANGE else size, 0.0


def _learn_flag_scale(
    scale: Scale | None, hits: int, total: int
) -> tuple[float, float]:
    """Return scale and offset of a column of zeros and ones, by its exact weights."""
    if scale is None:
        return 1.0, 0.0
    if isinstance(scale, Standardise):
        sums = (total, hits << UNIT, hits << (2 * UNIT))
        centre, size, offset = standardise(scale, *sums)
    else:
        ends = np.array([0.0] * (hits < total) + [1.0] * (hits > 0))
        centre, size, offset = fit_ends(scale, ends)
    return size, offset - centre / size


def _learn_indicator(
    group: Group, place: int, column: Column, statistics: Statistics
) -> list[Feature]:
    """Return the indicator of a column's gaps; none if it has no gap."""
    if not statistics.has_gaps(place):
        return []
    sums = statistics.sums
    hits = sums.total - sums.powers[0][statistics.sum_place(place)]
    scale = None if group.scale_first else group.scale
    size, offset = _learn_flag_scale(scale, hits, sums.total)
    name = f"missingindicator_{column.source}"
    return [Feature(name, place, GAP, 0.0, size, offset, nan)]


def _learn_flags(
    group: Group, place: int, column: Column, statistics: Statistics
) -> list[Feature]:
    """Return the flags of a column of categories."""
    features = []
    for key, codes in _name_flags(group, place, column, statistics):
        real = [code for code in codes if code != UNKNOWN]
        hits = statistics.weight_of(place, real)
        size, offset = _learn_flag_scale(group.scale, hits, statistics.sums.total)
        name = f"{column.source}_{'nan' if key is None else key}"
        features.append(Feature(name, place, codes, 0.0, size, offset, nan))
    return features


def _name_flags(
    group: Group, place: int, column: Column, statistics: Statistics
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the category and the codes of each flag of a column."""
    encode, counts = group.encode, statistics.counts[str(place)]
    assert isinstance(encode, OneHot)
    pairs = zip(column.categories, column.codes, strict=True)
    codes: dict[Any, tuple[int, ...]] = {key: (code,) for key, code in pairs}
    if group.fill is not None and group.fill.strategy == "most_frequent":
        codes = _fill_most_frequent(codes, counts)
    sizes = {key: int(counts[list(own)].sum()) for key, own in codes.items()}
    if encode.categories is None:
        codes = {key: own for key, own in codes.items() if sizes[key]}
    kept = np.array([sizes[key] for key in codes], dtype=np.int64)
    rare = find_infrequent(encode, kept, statistics.n_rows)
    named = [pair for pair, few in zip(codes.items(), rare, strict=True) if not few]
    if rare.any():
        few = [own for own, few in zip(codes.values(), rare, strict=True) if few]
        shared = [code for own in few for code in own]
        if encode.unknown in ("infrequent_if_exist", "warn"):
            shared.append(UNKNOWN)
        named.append(("infrequent_sklearn", tuple(shared)))
    if encode.drop == "first" or (encode.drop == "if_binary" and len(named) == 2):
        named = named[1:]
    return named


def _fill_most_frequent(
    codes: dict[Any, tuple[int, ...]], counts: NDArray[np.int64]
) -> dict[Any, tuple[int, ...]]:
    """Return the codes of each category, gaps counted to the most frequent one."""
    most = find_most_frequent(codes, counts)
    if most is None or None not in codes:
        return codes
    known = {key: own for key, own in codes.items() if key is not None}
    return {**known, most: (*known[most], *codes[None])}


def find_most_frequent(
    codes: Mapping[Any, tuple[int, ...]], counts: NDArray[np.int64]
) -> Any:
    """Return the most frequent category, of equals the first; None if there is none."""
    known = {key: counts[own[0]] for key, own in codes.items() if key is not None}
    most = max(known, key=known.__getitem__, default=None)
    return most if most is not None and known[most] else None


def find_infrequent(
    encode: OneHot, counts: NDArray[np.int64], n_rows: int
) -> NDArray[np.bool]:
    """Return which categories share a feature, as scikit-learn decides."""
    rare = np.zeros(len(counts), dtype=bool)
    if encode.least is not None:
        whole = isinstance(encode.least, int)
        rare = counts < (encode.least if whole else encode.least * n_rows)
    if encode.most is not None:
        # scikit-learn counts the shared feature in any case.
        n_features = len(counts) - int(rare.sum()) + 1
        if n_features > encode.most:
            order = np.argsort(counts, kind="stable")
            rare[order[: len(order) - (encode.most - 1)]] = True
    return rare
