# SPDX-License-Identifier: Apache-2.0
"""Random tables with preprocessing for them, and what it must make of their rows.

Numbers are computed again from integers, categories by scikit-learn. Every row counts
once, whatever its weight. Nothing here comes from the package under attack, but for the
name of what only it has.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

from expunge import Bins, TargetMeans

from . import draws
from .arithmetic import mean_and_deviation
from .draws import Generator, chance, one_of, pick
from .losses import Array

EPSILON = float(np.finfo(float).eps)
STRATEGIES = ("mean", "median", "most_frequent", "constant")
FILLED = "zz"  # a category that takes the place of missing ones


@dataclass(frozen=True, eq=False)
class Scaling:
    """What a scaler does: its name, and the ends of a range."""

    name: str
    low: float = 0.0
    high: float = 1.0
    quantiles: tuple[float, float] = (25.0, 75.0)

    @property
    def needs_order(self) -> bool:
        """Whether it learns extremes, or other values by their rank."""
        return self.name in ("range", "size", "quantiles")

    def step(self) -> Any:
        """Return scikit-learn's scaler, not fitted."""
        made = {
            "standard": StandardScaler(),
            "deviation": StandardScaler(with_mean=False),
            "mean": StandardScaler(with_std=False),
            "range": MinMaxScaler((self.low, self.high)),
            "size": MaxAbsScaler(),
            "quantiles": RobustScaler(quantile_range=self.quantiles),
        }
        return made[self.name]

    def apply(self, column: Array) -> Array:
        """Return a column scaled by what its observed entries teach."""
        centre, size, offset = self.learn(column)
        return np.asarray((column - centre) / size + offset)

    def learn(self, column: Array) -> tuple[float, float, float]:
        """Return centre, scale and offset from the observed entries."""
        seen = column[~np.isnan(column)]
        if self.name == "range":
            width = float(seen.max() - seen.min())
            width = 1.0 if width < 10.0 * EPSILON else width
            return float(seen.min()), width / (self.high - self.low), self.low
        if self.name == "size":
            size = float(np.abs(seen).max())
            return 0.0, 1.0 if size < 10.0 * EPSILON else size, 0.0
        if self.name == "quantiles":
            first, last = np.percentile(seen, self.quantiles)
            size = float(last - first)
            size = 1.0 if size < 10.0 * EPSILON else size
            return float(np.median(seen)), size, 0.0
        mean, deviation = mean_and_deviation(seen, np.ones(len(seen)))
        if is_constant(mean, deviation, len(seen)):
            deviation = 1.0
        centre = 0.0 if self.name == "deviation" else mean
        return centre, 1.0 if self.name == "mean" else deviation, 0.0


def is_constant(mean: float, deviation: float, n_rows: int) -> bool:
    """Whether rounding explains a deviation, by scikit-learn's test."""
    noise = np.longdouble(n_rows) * EPSILON
    square = np.longdouble(deviation) ** 2
    return bool(square <= noise * square + (noise * mean) ** 2)


def standardise(X: Array, rows: Array | None = None) -> Array:
    """Return columns less their means over their deviations, learned from some rows."""
    scaling, rows = Scaling("standard"), X if rows is None else rows
    centre, size, _ = np.array([scaling.learn(column) for column in rows.T]).T
    return np.asarray((X - centre) / size)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers: what fills its gaps, and how it is scaled."""

    values: Array
    strategy: str | None
    constant: float
    indicator: bool
    scaling: Scaling | None
    scaled_first: bool

    def steps(self) -> Any:
        """Return scikit-learn's steps, not fitted."""
        scale = [] if self.scaling is None else [self.scaling.step()]
        fill = []
        if self.strategy is not None:
            value = self.constant if self.strategy == "constant" else None
            fill.append(
                SimpleImputer(
                    strategy=self.strategy,
                    fill_value=value,
                    add_indicator=self.indicator,
                )
            )
        both = scale + fill if self.scaled_first else fill + scale
        return make_pipeline(*both) if both else "passthrough"

    @property
    def needs_order(self) -> bool:
        """Whether sums do not tell what is learned."""
        ordered = self.scaling is not None and self.scaling.needs_order
        return ordered or self.strategy in ("median", "most_frequent")

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows."""
        column = self.values[stay]
        gaps = np.isnan(column)
        flags = [gaps.astype(float)] if self.indicator and gaps.any() else []
        numbers = [] if gaps.all() else [self._fill(column)]
        scaling = self.scaling
        if scaling is None:
            return _together(len(column), [*numbers, *flags])
        if not self.scaled_first:
            both = [scaling.apply(one) for one in (*numbers, *flags)]
            return _together(len(column), both)
        if numbers:
            centre, size, offset = scaling.learn(column)
            scaled = (numbers[0] - centre) / size + offset
            if self.strategy == "constant":
                scaled = np.where(gaps, self.constant, scaled)
            numbers = [scaled]
        return _together(len(column), [*numbers, *flags])

    def _fill(self, column: Array) -> Array:
        """Return the column with its gaps filled."""
        if self.strategy is None:
            return column
        seen = column[~np.isnan(column)]
        if self.strategy == "constant":
            value = self.constant
        elif self.strategy == "mean":
            value = mean_and_deviation(seen, np.ones(len(seen)))[0]
        elif self.strategy == "median":
            value = float(np.median(seen))
        else:
            found, counts = np.unique(seen, return_counts=True)
            value = float(found[np.argmax(counts)])
        return np.where(np.isnan(column), value, column)


@dataclass(frozen=True, eq=False)
class Categories:
    """A column of categories: what fills its gaps, its encoder, and its scaler."""

    values: Array
    strategy: str | None
    encoder: OneHotEncoder
    scaling: Scaling | None
    needs_order = False

    def steps(self) -> Any:
        """Return scikit-learn's steps, not fitted."""
        scale = [] if self.scaling is None else [self.scaling.step()]
        return make_pipeline(*self._fill_and_encode(), *scale)

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows."""
        column = self.values[stay][:, None]
        if self.strategy == "constant":  # scikit-learn refuses where all are missing
            column = np.where(column == column, column, FILLED)
        try:
            flags = make_pipeline(*self._fill_and_encode()).fit_transform(column)
        except ValueError:  # nothing is left to encode
            return np.zeros((len(column), 0))
        scaling = self.scaling
        if scaling is not None:
            flags = [scaling.apply(flag) for flag in flags.T]
            return _together(len(column), flags)
        return np.asarray(flags, dtype=float)

    def _fill_and_encode(self) -> list[Any]:
        steps: list[Any] = [OneHotEncoder(**self.encoder.get_params())]
        if self.strategy is not None:
            value = FILLED if self.strategy == "constant" else None
            steps.insert(0, SimpleImputer(strategy=self.strategy, fill_value=value))
        return steps


@dataclass(frozen=True, eq=False)
class Counts:
    """How often a term occurs, weighed by how few rows have it."""

    values: Array
    needs_order = False

    def steps(self) -> Any:
        """Return scikit-learn's step, not fitted."""
        return TfidfTransformer(norm=None)

    def made(self, stay: Array) -> Array:
        """Return the feature of the remaining rows."""
        column = self.values[stay]
        n_with = np.longdouble((column != 0.0).sum())
        weight = np.log((1 + np.longdouble(len(column))) / (1 + n_with)) + 1
        return np.asarray(column * float(weight))[:, None]


@dataclass(frozen=True, eq=False)
class Terms:
    """Columns of counts, weighed as ``Counts`` are, each row over its norm."""

    values: Array
    norm: str
    needs_order = False

    def steps(self) -> Any:
        """Return scikit-learn's step, not fitted."""
        return TfidfTransformer(norm=self.norm)

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows."""
        weighed = np.hstack([Counts(one).made(stay) for one in self.values.T])
        return apply_maps([Normalizer(norm=self.norm)], weighed)


@dataclass(frozen=True, eq=False)
class Curved:
    """A number, filled and scaled, and a map after it: fixed, or learnt from all."""

    number: Numbers
    then: tuple[Any, ...]

    @property
    def values(self) -> Array:
        """The numbers."""
        return self.number.values

    @property
    def needs_order(self) -> bool:
        """Always: without its rows a model has no such map."""
        return True

    def steps(self) -> Any:
        """Return scikit-learn's steps, not fitted."""
        before = self.number.steps()
        return make_pipeline(before, *map(clone, self.then))

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows, by scikit-learn itself."""
        return apply_maps(self.then, self.number.made(stay))


@dataclass(frozen=True, eq=False)
class Ranges:
    """A column of numbers in learnt bins: of how many parts, rounded to what."""

    values: Array
    n_bins: int
    quantum: float
    needs_order = True

    def steps(self) -> Any:
        """Return the description, which only the package has."""
        return Bins(self.n_bins, self.quantum)

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows: those with the same edges below.

        Edges that nothing lies between tell no row from another.
        """
        column = self.values[stay].tolist()
        seen = [value for value in column if value == value]
        edges = self.edges(seen)
        places = [
            sum(edge < value for edge in edges) if value == value else len(edges) + 1
            for value in column
        ]
        found = sorted(set(places))
        flags = [[float(place == one) for one in found] for place in places]
        return np.array(flags).reshape(len(column), len(found))

    def edges(self, seen: list[float]) -> list[float]:
        """Return edges of observed values, by counting."""
        often = {v for v in seen if self.n_bins * seen.count(v) > len(seen)}
        rest = sorted(v for v in seen if v not in often)
        once = sorted(set(rest))
        edges = [edge for v in often for edge in (np.nextafter(v, -np.inf), v)]
        for values in (once, rest if len(rest) > 2 * len(once) else []):
            for j in range(1, self.n_bins):
                # The smallest of them up to which are j parts of all, or more.
                least = -(-j * len(values) // self.n_bins)
                if values:
                    edges.append(round(values[least - 1] / self.quantum) * self.quantum)
        return edges


@dataclass(frozen=True, eq=False)
class Made:
    """Columns that a map makes of others, by scikit-learn itself, and their scaler."""

    values: Array
    steps_before: tuple[Any, ...]
    scaling: Scaling | None

    @property
    def needs_order(self) -> bool:
        """Whether sums do not tell what is learned."""
        return self.scaling is not None and self.scaling.needs_order

    def steps(self) -> Any:
        """Return scikit-learn's steps, not fitted."""
        scale = [] if self.scaling is None else [self.scaling.step()]
        return make_pipeline(*map(clone, self.steps_before), *scale)

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows."""
        made = apply_maps(self.steps_before, self.values[stay])
        if self.scaling is None:
            return made
        return _together(len(made), [self.scaling.apply(one) for one in made.T])


@dataclass(frozen=True, eq=False)
class Averages:
    """A column of categories, each encoded by what people who have it answered.

    The answers are labels, or the code of a class for each row; people are the owners
    of rows.
    """

    values: Array
    least: int
    smooth: float | str
    folds: int
    key: int
    answers: Array
    coded: bool
    people: Array
    needs_order = True  # without its rows a model has no such column

    def steps(self) -> Any:
        """Return the description, which only the package has."""
        return TargetMeans(self.least, self.smooth, self.folds, self.key)  # type: ignore[arg-type]

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows, as others would be encoded."""
        return self._encode(stay, [(stay, stay)])

    def crossed(self, stay: Array) -> Array:
        """Return the features that the model learns from: by what others answered."""
        folds = np.array([self._fold(person) for person in self.people.tolist()])
        pairs = [(stay & (folds == k), stay & (folds != k)) for k in range(self.folds)]
        return self._encode(stay, pairs)

    def _fold(self, person: str) -> int:
        """Return in which fold a person is, by the digest of key and id."""
        digest = hashlib.sha256(f"{self.key}:{person}".encode()).hexdigest()
        return (int(digest[:16], 16) >> 12) % self.folds

    def _encode(self, stay: Array, pairs: Sequence[tuple[Array, Array]]) -> Array:
        """Return what each group of rows makes of what the other one answered."""
        kinds = np.unique(self.answers[stay]).tolist() if self.coded else [None]
        kinds = kinds[1:] if self.coded and len(kinds) == 2 else kinds
        found = np.zeros((len(stay), len(kinds)))
        keys = np.array([str(value) for value in self.values])
        for k, kind in enumerate(kinds):
            y = self.answers if kind is None else (self.answers == kind).astype(float)
            for seen, taught in pairs:
                if not taught.any():
                    found[seen, k] = _exact_moments(y[stay])[0]
                    continue
                overall, spread = _exact_moments(y[taught])
                for key in np.unique(keys[seen]).tolist():
                    own, value = taught & (keys == key), overall
                    if len(np.unique(self.people[own])) >= self.least:
                        mean, variance = _exact_moments(y[own])
                        n = int(own.sum())
                        if self.smooth == "auto":
                            share = n * spread / ((n * spread + variance) or 1.0)
                            value = share * mean + (1.0 - share) * overall
                        else:
                            value = (n * mean + float(self.smooth) * overall) / (
                                n + float(self.smooth)
                            )
                    found[seen & (keys == key), k] = value
        if not self.coded:
            overall, spread = _exact_moments(self.answers[stay])
            found = (found - overall) / (np.sqrt(spread) or 1.0)
        return found[stay]


def _exact_moments(y: Array) -> tuple[float, float]:
    """Return mean and variance of numbers, each rounded once."""
    numbers = [Fraction(value) for value in y.tolist()]
    mean = sum(numbers, Fraction(0)) / len(numbers)
    squares = sum((value * value for value in numbers), Fraction(0))
    return float(mean), float(squares / len(numbers) - mean * mean)


Part = Averages | Numbers | Categories | Counts | Terms | Curved | Ranges | Made


def apply_maps(steps: Sequence[Any], X: Array) -> Array:
    """Return what scikit-learn makes of rows, all together."""
    for step in steps:
        # Splines ask for two rows to fit; two equal ones are no other than one.
        if not X.shape[1]:  # everything is missing
            return X
        rows = np.vstack([X, X]) if len(X) == 1 else X
        X = clone(step).fit(rows).transform(X)
    return np.asarray(X, dtype=float)


@dataclass(frozen=True, eq=False)
class RawTable:
    """Raw rows, column by column, with their preprocessing."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> Array:
        """The rows as users have them, (n, columns), of any type."""
        columns = [part.values.astype(object) for part in self.parts]
        return np.column_stack(columns)

    @property
    def places(self) -> list[list[int]]:
        """Where the columns of each part are."""
        widths = [
            1 if part.values.ndim == 1 else part.values.shape[1] for part in self.parts
        ]
        ends = np.cumsum(widths).tolist()
        return [[*range(end - k, end)] for k, end in zip(widths, ends, strict=True)]

    @property
    def needs_order(self) -> bool:
        """Whether some column needs its values in order."""
        return any(part.needs_order for part in self.parts)

    def preprocessing(self) -> ColumnTransformer:
        """Return scikit-learn's transformer, not fitted."""
        parts = [
            (f"c{j}", part.steps(), places)
            for j, (part, places) in enumerate(
                zip(self.parts, self.places, strict=True)
            )
        ]
        return ColumnTransformer(parts, sparse_threshold=0.0)

    def made(self, stay: Array) -> Array:
        """Return the features of the remaining rows, learned from these alone."""
        return np.hstack([part.made(stay) for part in self.parts])

    def taught(self, stay: Array) -> Array:
        """Return the features that a model of these rows learns from."""
        return np.hstack(
            [
                part.crossed(stay) if isinstance(part, Averages) else part.made(stay)
                for part in self.parts
            ]
        )


def _together(n_rows: int, features: Sequence[Array]) -> Array:
    """Return features side by side; none is a table without columns."""
    return np.column_stack(features) if len(features) else np.zeros((n_rows, 0))


def draw_scaling(rng: Generator) -> Scaling | None:
    """Return a scaler, or none."""
    name = pick(
        rng, "standard", "deviation", "mean", "range", "size", "quantiles", "none",
        p=[0.3, 0.1, 0.1, 0.1, 0.1, 0.15, 0.15],
    )  # fmt: skip
    if name == "none":
        return None
    ends = (-1.0, 2.0) if chance(rng, 0.4) else (0.0, 1.0)
    wide = (10.0, 90.0) if chance(rng, 0.5) else (25.0, 75.0)
    return Scaling(name, *ends, quantiles=wide)


def draw_table(
    rng: Generator,
    n: int,
    *,
    sums_only: bool,
    binned: bool = False,
    curved: bool = False,
) -> RawTable:
    """Return a random table; without columns that need an order, with bins or maps."""
    parts: list[Part] = [draw_numbers(rng, n) for _ in range(int(rng.integers(0, 4)))]
    for _ in range(int(rng.integers(1, 3)) if binned else 0):
        ranges = draw_ranges(rng, n)
        parts.append(ranges)
        if chance(rng, 0.5):  # beside the number itself
            scaling = Scaling("standard")
            parts.append(Numbers(ranges.values, "mean", 0.0, False, scaling, False))
    least = 0 if parts else 1
    for _ in range(int(rng.integers(least, 3))):
        parts.append(draw_categories(rng, n))
    if sums_only:
        parts = [_without_order(part) for part in parts]
    if chance(rng, 0.3):
        parts.append(draw_made(rng, n))
        parts[-1:] = [_without_order(parts[-1])] if sums_only else parts[-1:]
    if curved:
        parts += [draw_curved(rng, n) for _ in range(int(rng.integers(1, 3)))]
        if chance(rng, 0.4):
            often = 10.0 ** rng.uniform(-1.5, 0.7, int(rng.integers(2, 5)))
            counts = rng.poisson(often, (n, len(often))).astype(float)
            parts.append(Terms(counts, pick(rng, "l1", "l2")))
    if chance(rng, 0.2):
        often = 10.0 ** rng.uniform(-1.5, 0.7, int(rng.integers(1, 4)))
        parts += [Counts(rng.poisson(one, n).astype(float)) for one in often]
    order = rng.permutation(len(parts))
    return RawTable(tuple(parts[i] for i in order))


def _without_order(part: Part) -> Part:
    """Return the column with a scaler and a filling that sums tell."""
    if not part.needs_order:
        return part
    if isinstance(part, Made):
        return replace(part, scaling=Scaling("standard"))
    assert isinstance(part, Numbers)
    strategy = None if part.strategy is None else "mean"
    return replace(part, strategy=strategy, scaling=Scaling("standard"))


def draw_numbers(rng: Generator, n: int) -> Numbers:
    """Return numbers of any size, some far from zero, some with gaps or extremes."""
    column = draws.design(rng, n, 1)[:, 0] * 10.0 ** rng.uniform(-3.0, 3.0)
    if chance(rng, 0.3):
        column = column + 10.0 ** rng.uniform(0.0, 5.0) * np.abs(column).max()
    if chance(rng, 0.2):
        column = np.round(column)
    if chance(rng, 0.25):  # people who hold the extremes
        column[rng.integers(0, n)] *= 10.0 ** rng.uniform(0.0, 4.0)
    holes = chance(rng, 0.5)
    if holes:
        column[rng.random(n) < rng.uniform(0.02, 0.5)] = np.nan
        if np.isnan(column).sum() > n - 3:
            column[:3] = (1.0, 2.0, 4.0)
    filled = holes or chance(rng, 0.2)
    strategy = pick(rng, *STRATEGIES, p=[0.55, 0.15, 0.15, 0.15]) if filled else None
    scaling = draw_scaling(rng)
    return Numbers(
        column,
        strategy,
        constant=float(rng.integers(-2, 3)),
        indicator=filled and chance(rng, 0.4),
        scaling=scaling,
        scaled_first=scaling is not None and filled and chance(rng, 0.2),
    )


def draw_curved(rng: Generator, n: int) -> Curved:
    """Return a number of ordinary size, with ties or without, and a map after it."""
    number = draw_numbers(rng, n)
    if chance(rng, 0.5):  # the same values again and again
        spread = float(np.nanmax(number.values) - np.nanmin(number.values)) or 1.0
        step = spread / int(rng.integers(2, 12))
        number = replace(number, values=np.round(number.values / step) * step)
    strategy = number.strategy
    if np.isnan(number.values).any() and strategy is None:
        strategy = "mean"
    number = replace(number, strategy=strategy, indicator=False)
    if chance(rng, 0.25):
        # Of numbers that are far apart powers would be huge.
        number = replace(number, scaling=Scaling("standard"), scaled_first=False)
        calm = FunctionTransformer(one_of(rng, np.tanh, np.arctan))
        more = [PolynomialFeatures(3, include_bias=False)] if chance(rng, 0.5) else []
        return Curved(number, (calm, *more))
    if chance(rng, 0.4):
        ranks = QuantileTransformer(
            n_quantiles=one_of(rng, 2, 5, 20, 1000),
            output_distribution=pick(rng, "uniform", "normal"),
            subsample=None,
        )
        return Curved(number, (ranks,))
    splines = SplineTransformer(
        n_knots=int(rng.integers(2, 7)),
        degree=int(rng.integers(1, 4)),
        knots=pick(rng, "quantile", "uniform"),
        extrapolation=pick(rng, "constant", "linear", "continue"),
        include_bias=chance(rng, 0.5),
    )
    return Curved(number, (splines,))


def draw_ranges(rng: Generator, n: int) -> Ranges:
    """Return numbers that come again and again or never, often one of them, in bins."""
    column = rng.normal(size=n) * 10.0 ** rng.uniform(-2.0, 4.0)
    column += 10.0 ** rng.uniform(-2.0, 4.0) * (rng.random() < 0.4)
    spread = float(np.ptp(column))
    if chance(rng, 0.5):
        step = spread / int(rng.integers(3, 30))
        column = np.round(column / step) * step
    if chance(rng, 0.4):
        column[rng.random(n) < rng.uniform(0.1, 0.9)] = column[0]
    if chance(rng, 0.3):
        column[rng.random(n) < 0.15] = np.nan
        column[:3] = (1.0, 2.0, 4.0)
    quantum = 10.0 ** np.floor(np.log10(spread / 10.0 ** rng.uniform(0.5, 3.0)))
    return Ranges(column, int(rng.integers(2, 8)), float(quantum))


def draw_made(rng: Generator, n: int) -> Made:
    """Return columns of numbers of ordinary size, with maps that learn nothing."""
    k = int(rng.integers(1, 4))
    values = draws.design(rng, n, k)
    values = values / max(1.0, float(np.abs(values).max()) / 3.0)
    if chance(rng, 0.2):
        values = np.round(2.0 * values) / 2.0
    first = [draw_map(rng, k)] if chance(rng, 0.8) else [FunctionTransformer(np.expm1)]
    second = [FunctionTransformer(np.arctan)] if chance(rng, 0.3) else []
    return Made(values, (*first, *second), draw_scaling(rng))


def draw_map(rng: Generator, k: int) -> Any:
    """Return a transformer of k columns that learns nothing."""
    seed = int(rng.integers(0, 99))
    few = int(rng.integers(1, 5))
    knots = np.tile(np.linspace(-2.0, 2.0, 3)[:, None], k)
    beyond = pick(rng, "constant", "linear", "continue")
    bins = sorted(rng.choice(13, 3, replace=False) / 2.0 - 3.0)
    return one_of(
        rng,
        Normalizer(norm=pick(rng, "l1", "l2", "max")),
        Binarizer(threshold=float(rng.normal())),
        FunctionTransformer(one_of(rng, np.tanh, np.sinh, np.cbrt, np.abs, np.exp)),
        FunctionTransformer(np.clip, kw_args={"a_min": -1.0, "a_max": 0.5}),
        FunctionTransformer(np.digitize, kw_args={"bins": bins}),
        PolynomialFeatures(2, interaction_only=chance(rng, 0.5), include_bias=False),
        SplineTransformer(knots=knots, degree=2, extrapolation=beyond),
        RBFSampler(gamma=0.4, n_components=few, random_state=seed),
        SkewedChi2Sampler(skewedness=5.0, n_components=few, random_state=seed),
        GaussianRandomProjection(n_components=min(few, k), random_state=seed),
    )


def draw_categories(rng: Generator, n: int) -> Categories:
    """Return categories, some of them rare, some declared, some missing."""
    k = int(rng.integers(2, 8))
    words = np.array([f"c{i}" for i in range(k)], dtype=object)
    column = words[rng.choice(k, n, p=rng.dirichlet(np.full(k, 0.6)))]
    holes = chance(rng, 0.3)
    if holes:
        column[rng.random(n) < 0.15] = np.nan
    strategy = None
    if chance(rng, 0.5 if holes else 0.1):
        strategy = pick(rng, "most_frequent", "constant")
    settings: dict[str, Any] = {}
    rare = pick(rng, "none", "rows", "share", "most", p=[0.5, 0.2, 0.15, 0.15])
    if rare == "rows":
        settings["min_frequency"] = int(rng.integers(2, 8))
    elif rare == "share":
        settings["min_frequency"] = float(rng.uniform(0.01, 0.3))
    elif rare == "most":
        settings["max_categories"] = int(rng.integers(1, 5))
    if chance(rng, 0.3):
        settings["drop"] = pick(rng, "first", "if_binary")
    if chance(rng, 0.2):
        more: list[Any] = [FILLED] if strategy == "constant" else []
        more += [np.nan] if holes and strategy is None else []
        settings["categories"] = [[*map(str, words), "never", *more]]
    unknown = pick(rng, "ignore", "infrequent_if_exist")
    encoder = OneHotEncoder(sparse_output=False, handle_unknown=unknown, **settings)
    scaling = draw_scaling(rng) if chance(rng, 0.3) else None
    return Categories(column, strategy, encoder, scaling)


def draw_averages(
    rng: Generator, answers: Array, *, coded: bool, people: Array
) -> Averages:
    """Return categories that the answers of people encode, some of them rare."""
    n, k = len(answers), int(rng.integers(1, 9))
    words = np.array([f"c{i}" for i in range(k)], dtype=object)
    column = words[rng.choice(k, n, p=rng.dirichlet(np.full(k, 0.8)))]
    if chance(rng, 0.3):
        column[rng.random(n) < 0.15] = np.nan
    if chance(rng, 0.3):  # a person has one category
        column = column[np.unique(people, return_inverse=True)[1]]
    return Averages(
        column,
        least=int(rng.integers(2, 12)),
        smooth=one_of(rng, "auto", 0.0, 1.5, 20.0),
        folds=int(rng.integers(2, 7)),
        key=0,
        answers=answers,
        coded=coded,
        people=people,
    )


def awkward_rows(rng: Generator, table: RawTable, stay: Array) -> Iterator[Array]:
    """Yield groups of remaining rows that change what is learned, as masks."""
    for j in rng.permutation(len(table.parts)):
        part = table.parts[j]
        if isinstance(part, Categories | Averages):
            words = np.array([str(value) for value in part.values])
            found, counts = np.unique(words[stay], return_counts=True)
            yield stay & (words == found[np.argmin(counts)])
            continue
        if isinstance(part, Made | Terms):
            size = np.where(stay, np.abs(part.values).max(axis=1), -1.0)
            yield size >= np.sort(size)[-2]
            continue
        gaps = stay & np.isnan(part.values)
        if gaps.any() and chance(rng, 0.3):
            yield gaps
        size = np.where(stay & ~np.isnan(part.values), np.abs(part.values), -1.0)
        if chance(rng, 0.5):  # the extremes, which owners may share
            yield size >= np.sort(size)[-2]
        else:
            yield stay & (part.values == np.nanmin(part.values[stay], initial=np.inf))
