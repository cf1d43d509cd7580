# SPDX-License-Identifier: Apache-2.0
"""What preprocessing learns: features from statistics, as scikit-learn defines them.

A function of exact sums, counts and sorted values alone, each number rounded once. So
what is learned after a removal is, to the last bit, what the remaining rows give.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isfinite, nan, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Vector
from ..core.exact_sums import UNIT, find_deviation, find_mean, to_units
from ..core.rows import RowSource
from ..exceptions import InvalidInput
from .bins import find_edges, name_bins
from .columns import UNKNOWN, Column, Recipe
from .description import (
    Bins,
    FillGaps,
    FitQuantiles,
    FitRange,
    Group,
    OneHot,
    Scale,
    Standardise,
    WeighTerms,
)
from .features import GAP, Feature, Features
from .statistics import Statistics, count_rows

# Below this scikit-learn takes a range for zero.
NO_RANGE = 10.0 * float(np.finfo(np.float64).eps)


class _Spot(NamedTuple):
    """One column: its group, its index, how it is read, and what is known of it."""

    group: Group
    column_index: int
    column: Column
    statistics: Statistics


def learn(recipe: Recipe, raw: RowSource) -> tuple[Recipe, Statistics, Features]:
    """Return what preprocessing learns from raw rows, some of them at a time."""
    parts = raw.map_present(lambda rows: rows.dense())
    statistics = count_rows(recipe, next(parts))
    for more in parts:
        statistics = statistics.including(more)
    recipe = drop_categories(recipe, statistics)
    return recipe, statistics, learn_features(recipe, statistics)


def drop_categories(recipe: Recipe, statistics: Statistics) -> Recipe:
    """Return the recipe without categories that nobody has any more.

    A missing value is a category too; declared ones stay. The same recipe is returned
    if nothing changes.
    """
    columns = list(recipe.columns)
    for index, group in enumerate(recipe.groups):
        column, counts = columns[index], statistics.counts.get(str(index))
        declared = getattr(group.encode, "categories", None) is not None
        if counts is None or declared or counts[list(column.codes)].all():
            continue
        present = set(np.flatnonzero(counts).tolist())
        if group.fill is not None and None in column.categories:
            # What is missing later has the code of the most frequent category.
            present.add(column.codes[column.categories.index(None)])
        if present < set(column.codes):
            columns[index] = column.keep(present)
    if all(new is old for new, old in zip(columns, recipe.columns, strict=True)):
        return recipe
    return replace(recipe, columns=tuple(columns))


def learn_features(recipe: Recipe, statistics: Statistics) -> Features:
    """Return what fitting the preprocessing to the counted rows gives."""
    features: list[Feature] = []
    edges: dict[str, Vector] = {}
    for group, spots in _spots_by_group(recipe, statistics):
        if isinstance(group.encode, OneHot):
            features += [one for spot in spots for one in _learn_flags(spot)]
        elif isinstance(group.encode, Bins):
            for spot in spots:
                own = _learn_edges(spot)
                edges[str(spot.column_index)] = own
                features += _learn_bins(spot, own)
        else:
            features += [one for spot in spots for one in _learn_number(spot)]
            features += [one for spot in spots for one in _learn_indicator(spot)]
    if not features:
        raise InvalidInput(
            "preprocessing leaves no column; check the groups, or declare categories"
        )
    return Features.of(features, edges=edges)


def learn_again(
    recipe: Recipe, statistics: Statistics, *, before: Features
) -> Features:
    """Return the same as ``learn_features``, for a recipe that has not changed.

    Numbers alone are learned again where nothing else can have changed.
    """
    changed: list[Feature] = []
    keys = before.layout.keys
    for group, spots in _spots_by_group(recipe, statistics):
        if isinstance(group.encode, OneHot):
            for spot in () if _is_settled(group) else spots:
                flags = _learn_flags(spot)
                at = np.flatnonzero(before.layout.columns == spot.column_index)
                then = [(before.layout.names[j], before.layout.codes[j]) for j in at]
                if [(one.name, one.codes) for one in flags] != then:
                    return learn_features(recipe, statistics)
                changed += flags if group.scale is not None else []
            continue
        if isinstance(group.encode, Bins):
            if not all(_has_same_bins(spot, before) for spot in spots):
                return learn_features(recipe, statistics)
            continue
        if group.fill is None and group.scale is None:
            continue
        for spot in spots:
            found = [*_learn_number(spot), *_learn_indicator(spot)]
            possible = ((spot.column_index, None), (spot.column_index, GAP))
            old = [key for key in possible if key in keys]
            if [(one.column, one.codes) for one in found] != old:
                return learn_features(recipe, statistics)
            changed += found
    return before.replace_numbers(changed) if changed else before


def _spots_by_group(
    recipe: Recipe, statistics: Statistics
) -> Iterator[tuple[Group, list[_Spot]]]:
    """Yield each group with its columns."""
    index = 0
    for group in recipe.described.groups:
        spots = []
        for _ in group.columns:
            spots.append(_Spot(group, index, recipe.columns[index], statistics))
            index += 1
        yield group, spots


def _is_settled(group: Group) -> bool:
    """Whether flags depend on nothing but which categories there are."""
    encode = group.encode
    assert isinstance(encode, OneHot)
    filled = group.fill is not None and group.fill.strategy == "most_frequent"
    grouped = encode.least is not None or encode.most is not None
    return group.scale is None and not filled and not grouped


def _learn_edges(spot: _Spot) -> Vector:
    """Return where the ranges of a column of numbers end."""
    encode = spot.group.encode
    assert isinstance(encode, Bins) and isinstance(encode.quantum, tuple)
    quantum = encode.quantum[spot.group.columns.index(spot.column.source)]
    values = spot.statistics.ordered[str(spot.column_index)]
    return find_edges(values, encode.n_bins, quantum=quantum)


def _learn_bins(spot: _Spot, edges: Vector) -> list[Feature]:
    """Return a feature for each range, and one for missing values if there are any."""
    index, statistics = spot.column_index, spot.statistics
    n_observed = len(statistics.ordered[str(index)])
    x = spot.column.label
    x = f"x{x}" if isinstance(spot.column.source, int) else x  # no number is a name
    named = list(enumerate(name_bins(x, edges.tolist())))
    first = 0 if n_observed else -1
    last = None if n_observed < statistics.n_rows else -1
    return [
        Feature(name, index, (code,), 0.0, 1.0, 0.0, nan)
        for code, name in named[first:last]
    ]


def _has_same_bins(spot: _Spot, before: Features) -> bool:
    """Whether a column has the ranges that it had."""
    layout, index, n_rows = before.layout, spot.column_index, spot.statistics.n_rows
    edges, n_observed = _learn_edges(spot), len(spot.statistics.ordered[str(index)])
    return (
        np.array_equal(edges, layout.edges[str(index)])
        and ((index, (0,)) in layout.keys) == (n_observed > 0)
        and ((index, (len(edges) + 1,)) in layout.keys) == (n_observed < n_rows)
    )


def _learn_number(spot: _Spot) -> list[Feature]:
    """Return the feature of a number; none if nothing of it is observed."""
    group, index, column, statistics = spot
    name, fill, scale = column.label, group.fill, group.scale
    if fill is None and scale is None:
        return [Feature(name, index, None, 0.0, 1.0, 0.0, nan)]
    if isinstance(scale, WeighTerms):
        weight = weigh_term(statistics, index)
        return [Feature(name, index, None, 0.0, 1.0 / weight, 0.0, nan)]
    values = _Observed(statistics, index)
    if not values.n_observed:
        return []
    filled = nan if fill is None else values.fill(fill)
    if fill is not None and not group.scale_first:
        values = values.filled(filled)
    centre, size, offset = values.learn_scale(scale)
    if fill is None:
        missing = nan
    elif group.scale_first and fill.strategy == "constant":
        missing = filled
    else:
        missing = (filled - centre) / size + offset
    return [Feature(name, index, None, centre, size, offset, missing)]


def weigh_term(statistics: Statistics, index: int) -> float:
    """Return what the counts of a term are multiplied by, by scikit-learn's formula."""
    n_with = int(statistics.n_with[statistics.terms.index(index)])
    return float(np.log((statistics.n_rows + 1.0) / (n_with + 1.0)) + 1.0)


def read_constant(fill: FillGaps) -> float:
    """Return the number that fills gaps; zero if none is given."""
    value = 0.0 if fill.value is None else fill.value
    if not isinstance(value, Real) or not isfinite(value):
        raise InvalidInput(
            f"SimpleImputer(fill_value={fill.value!r}) for a column of numbers; give a "
            "number"
        )
    return float(value)


class _Observed:
    """The values of one column of numbers: their sums, and in order if kept."""

    def __init__(self, statistics: Statistics, index: int) -> None:
        self.statistics = statistics
        j = statistics.sum_index(index)
        self.sums = tuple(powers[j] for powers in statistics.sums.powers)
        self.total = statistics.sums.total
        self.n_observed = self.sums[0] >> UNIT
        self.mean = find_mean(self.sums[0], self.sums[1])
        self.ordered = statistics.ordered.get(str(index))
        self.value: float | None = None
        self.n_filled = 0

    def fill(self, fill: FillGaps) -> float:
        """Return what fills the gaps."""
        if fill.strategy == "constant":
            return read_constant(fill)
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
        new.n_filled = self.statistics.n_rows - self.n_observed
        new.value = value if new.n_filled else None
        return new

    def learn_scale(self, scale: Scale | None) -> tuple[float, float, float]:
        """Return centre, scale and offset."""
        if scale is None:
            return 0.0, 1.0, 0.0
        if isinstance(scale, Standardise):
            return standardise(scale, self.sums)
        if isinstance(scale, FitRange) and scale.ends is not None:
            return fit_ends(scale, np.array(scale.ends))
        assert self.ordered is not None
        if isinstance(scale, FitQuantiles):
            return fit_quantiles(scale, self.ranked, n_values=self.n_observed)
        ends = self.ordered[[0, -1]] if self.ordered.size else np.empty(0)
        more = [] if self.value is None else [self.value]
        return fit_ends(scale, np.array([*ends, *more]))

    def ranked(self, rank: int) -> float:
        """Return the value of a rank, from 0; what fills gaps is among them."""
        assert self.ordered is not None
        if self.value is None:
            return float(self.ordered[rank])
        first = int(np.searchsorted(self.ordered, self.value))
        if first <= rank < first + self.n_filled:
            return self.value
        return float(self.ordered[rank - self.n_filled * (rank > first)])


def standardise(
    scale: Standardise, sums: tuple[int, ...]
) -> tuple[float, float, float]:
    """Return mean and deviation from exact sums, rounded once; the offset is zero.

    A deviation that rounding alone explains counts as zero, by scikit-learn's test.
    """
    weight, first, _ = sums
    mean, deviation = find_mean(weight, first), find_deviation(sums)
    noise = weight / (1 << UNIT) * float(np.finfo(np.float64).eps)
    # Not squared: that would overflow, or lose what is small.
    if deviation * sqrt(max(1.0 - noise, 0.0)) <= noise * abs(mean):
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


def fit_quantiles(
    scale: FitQuantiles, ranked: Callable[[int], float], *, n_values: int
) -> tuple[float, float, float]:
    """Return median and distance of quantiles of ranked values; the offset is zero.

    Below scikit-learn's tolerance a distance counts as one, before it is divided.
    """
    centre, size = 0.0, 1.0
    if scale.with_median:
        middle = [ranked((n_values - 1) // 2), ranked(n_values // 2)]
        centre = float(np.mean(middle))
    if scale.with_range:
        low, high = (
            find_quantile(ranked, one, n_values=n_values)
            for one in (scale.low, scale.high)
        )
        size = (1.0 if high - low < NO_RANGE else high - low) / scale.unit
    return centre, size, 0.0


def find_quantile(
    ranked: Callable[[int], float], percent: float, *, n_values: int
) -> float:
    """Return a quantile of ranked values, with the bits of NumPy's "linear"."""
    place = percent / 100.0 * (n_values - 1)
    rank = int(place)
    share, first = place - rank, ranked(rank)
    if not share:
        return first
    last = ranked(rank + 1)
    if share >= 0.5:
        return last - (last - first) * (1.0 - share)
    return first + (last - first) * share


def find_ranked(group: Group, statistics: Statistics, *, index: int) -> list[float]:
    """Return the values of a column that its median and quantiles are."""
    scale = group.scale
    if not isinstance(scale, FitQuantiles):
        return []
    values = _Observed(statistics, index)
    if not values.n_observed:
        return []
    if group.fill is not None and not group.scale_first:
        values = values.filled(values.fill(group.fill))
    percents = [50.0] * scale.with_median + [scale.low, scale.high] * scale.with_range
    places = [percent / 100.0 * (values.n_observed - 1) for percent in percents]
    found = [values.ranked(int(place)) for place in places if place == int(place)]
    return [value for value in found if value != values.value]


def _learn_flag_scale(
    scale: Scale | None, hits: int, *, total: int
) -> tuple[float, float]:
    """Return scale and offset of a column of zeros and ones, by its exact weights."""
    if scale is None:
        return 1.0, 0.0
    if isinstance(scale, Standardise):
        sums = (total, hits << UNIT, hits << (2 * UNIT))
        centre, size, offset = standardise(scale, sums)
    elif isinstance(scale, FitQuantiles):
        centre, size, offset = fit_quantiles(
            scale,
            lambda rank: float(rank >= (total - hits) >> UNIT),
            n_values=total >> UNIT,
        )
    else:
        ends = np.array([0.0] * (hits < total) + [1.0] * (hits > 0))
        centre, size, offset = fit_ends(scale, ends)
    return size, offset - centre / size


def _learn_indicator(spot: _Spot) -> list[Feature]:
    """Return the indicator of a column's gaps; none if it has no gap."""
    group, index, column, statistics = spot
    wanted = group.fill is not None and group.fill.indicator
    if not wanted or not statistics.has_gaps(index):
        return []
    sums = statistics.sums
    hits = sums.total - sums.powers[0][statistics.sum_index(index)]
    scale = None if group.scale_first else group.scale
    size, offset = _learn_flag_scale(scale, hits, total=sums.total)
    name = f"missingindicator_{column.label}"
    return [Feature(name, index, GAP, 0.0, size, offset, nan)]


def _learn_flags(spot: _Spot) -> list[Feature]:
    group, index, column, statistics = spot
    total, features = statistics.sums.total, []
    for key, codes in _name_flags(spot):
        real = [code for code in codes if code != UNKNOWN]
        hits = statistics.weight_of(index, real)
        size, offset = _learn_flag_scale(group.scale, hits, total=total)
        name = f"{column.label}_{'nan' if key is None else key}"
        features.append(Feature(name, index, codes, 0.0, size, offset, nan))
    return features


def _name_flags(spot: _Spot) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the category and the codes of each flag of a column."""
    group, index, column, statistics = spot
    encode, counts = group.encode, statistics.counts[str(index)]
    assert isinstance(encode, OneHot)
    pairs = zip(column.categories, column.codes, strict=True)
    codes: dict[Any, tuple[int, ...]] = {key: (code,) for key, code in pairs}
    if group.fill is not None and group.fill.strategy == "most_frequent":
        codes = _fill_most_frequent(codes, counts)
        codes.pop(None, None)  # nothing is left to fill it with
    sizes = {key: int(counts[list(own)].sum()) for key, own in codes.items()}
    if encode.categories is None:
        codes = {key: own for key, own in codes.items() if sizes[key]}
    kept = np.array([sizes[key] for key in codes], dtype=np.int64)
    rare = find_infrequent(encode, kept, n_rows=statistics.n_rows)
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
    present = {key: own for key, own in codes.items() if key is not None}
    return {**present, most: (*present[most], *codes[None])}


def find_most_frequent(
    codes: Mapping[Any, tuple[int, ...]], counts: NDArray[np.int64]
) -> Any:
    """Return the most frequent category, of equals the first; None if there is none."""
    n_rows = {key: counts[own[0]] for key, own in codes.items() if key is not None}
    most = max(n_rows, key=n_rows.__getitem__, default=None)
    return most if most is not None and n_rows[most] else None


def publish_columns(recipe: Recipe, statistics: Statistics) -> tuple[Column, ...]:
    """Return the columns as predictions read them.

    A missing category is read as the most frequent one, if that fills it: then nothing
    says whether one was missing in the rows.
    """
    published = []
    for index, (group, column) in enumerate(
        zip(recipe.groups, recipe.columns, strict=True)
    ):
        fill = None if group.fill is None else group.fill.strategy
        if column.kind == "category" and fill == "most_frequent":
            pairs = zip(column.categories, column.codes, strict=True)
            codes = {key: (code,) for key, code in pairs}
            most = find_most_frequent(codes, statistics.counts[str(index)])
            present = {code for key, (code,) in codes.items() if key is not None}
            column = replace(column.keep(present), filled=most)
        published.append(column)
    return tuple(published)


def find_infrequent(
    encode: OneHot, counts: NDArray[np.int64], *, n_rows: int
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
