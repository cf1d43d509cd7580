# SPDX-License-Identifier: Apache-2.0
"""A plain, fitted ColumnTransformer from what preprocessing has learned.

Maps before it make columns in steps of their own.

scikit-learn has no way to make a fitted transformer from numbers, so one is fitted to a
few made-up rows, which show it every category and where values may be missing; then
what it learned from them is replaced by what was learned from the real ones. Counts and
extremes that transforming does not need are left out of it.

scikit-learn tells None from NaN in a column of categories, and we do not. Where it
matters, a first step makes one of the other, of functions that numpy and pandas have:
those who load the pipeline need nothing of ours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from ..core.arrays import Index
from ..exceptions import MissingExtra, Unsupported
from .columns import find_turns, read_columns
from .description import (
    Bins,
    FitQuantiles,
    FitRange,
    Group,
    OneHot,
    Ordinal,
    Source,
    Standardise,
    WeighTerms,
)
from .encoder import takes_values
from .features import Features, FittedPreprocessing
from .sklearn_maps import make_plain

# Rows that make a category frequent among the made-up ones, or none of them.
INFREQUENT, EVERYTHING = 2, 10**9


def make_transformer(
    fitted: FittedPreprocessing, names: Sequence[Source], *, named: bool
) -> ColumnTransformer | Pipeline:
    """Return a fitted transformer that gives the same features.

    Parameters
    ----------
    fitted
        What was learned.
    names
        All columns of the table, in order.
    named
        Whether columns have names, so that a data frame is expected.
    """
    if any(column.part == "day" for column in fitted.columns):
        raise Unsupported(
            "dates that become days have no counterpart in scikit-learn; give the "
            "column as days since 1970, or ship the model as .safetensors"
        )
    if not fitted.described.made:
        return _make_table(fitted, names, named=named)
    before, names = _make_columns(fitted, names, named=named)
    table = _make_table(fitted, names, named=False)
    return Pipeline([*before, ("columns", table)])


def _make_columns(
    fitted: FittedPreprocessing, names: Sequence[Source], *, named: bool
) -> tuple[list[tuple[str, Any]], list[Source]]:
    """Return steps that add the columns that maps make, and all columns after them."""
    steps: list[tuple[str, Any]] = []
    columns = [name for name in names if name in fitted.sources]
    words = {
        source
        for one in fitted.described.made
        if takes_values(one.encoder)
        for source in one.columns
    }
    made_up = ["a word" if name in words else 0.5 for name in names]
    rows: Any = np.array([made_up] * 2, dtype=object)
    if named:
        from pandas import DataFrame

        rows = DataFrame(rows, columns=list(names))
    for index, one in enumerate(fitted.described.made):
        # The first step takes columns as the table has them, the others by position.
        known = [*names] if not index and not named else columns
        found: list[Any] = [[*columns], [*one.columns]]
        if index or not named:
            found = [[known.index(source) for source in part] for part in found]
        kept, taken = found
        values = takes_values(one.encoder)
        first = _unify_missing() if values else _make_numbers()
        step = ColumnTransformer(
            [
                ("kept", "passthrough", kept),
                (
                    "made",
                    make_pipeline(first, make_plain(one.encoder, len(taken))),
                    taken,
                ),
            ],
            sparse_threshold=0.0,
        )
        with np.errstate(all="ignore"):
            step.fit(rows)
        columns = [*columns, *one.names]
        made_up = ["a word" if name in words else 0.5 for name in columns]
        rows = np.array([made_up] * 2, dtype=object)
        steps.append((f"made{index}", step))
    return steps, columns


def _make_table(
    fitted: FittedPreprocessing, names: Sequence[Source], *, named: bool
) -> ColumnTransformer:
    """Return a fitted ColumnTransformer of the columns that are read."""
    parts = [(f"part{n}", part) for n, part in enumerate(_find_parts(fitted))]
    # Columns that maps make have names of ours, and are found by their places.
    made = bool(fitted.described.made)
    table = ColumnTransformer(
        [
            (
                name,
                part.make_steps(),
                [names.index(one) if made else one for one in part.sources],
            )
            for name, part in parts
        ],
        remainder="drop",
        sparse_threshold=0.0,
        # Names as ours, unless two columns would have the same.
        verbose_feature_names_out=len(set(fitted.names)) < len(fitted.names),
    )
    rows = _make_rows(fitted, names, named=named)
    table.fit(rows)
    for name, part in parts:
        part.set_learned(table.named_transformers_[name])
    given = dict(zip(names, rows.T, strict=True)) if made else rows
    expected = fitted.features.encode(read_columns(fitted.columns, given))
    if not np.allclose(table.transform(rows), expected, rtol=1e-6):
        raise Unsupported(
            "this preprocessing has no counterpart in scikit-learn that gives the same "
            "features; ship the model as .safetensors or .onnx"
        )
    return table


def _find_parts(fitted: FittedPreprocessing) -> list["_Part"]:
    """Return what is transformed together: a group of numbers, or one category."""
    parts, first = [], 0
    for group in fitted.described.groups:
        own = range(first, first + len(group.columns))
        first += len(group.columns)
        # Nothing is left of a column that has no feature.
        indices = [p for p in own if (fitted.features.layout.columns == p).any()]
        if isinstance(group.encode, OneHot | Bins):
            parts += [_Part(group, [index], fitted) for index in indices]
        elif indices:
            parts.append(_Part(group, indices, fitted))
    return parts


class _Part:
    """Columns of a group that are transformed together."""

    def __init__(
        self, group: Group, indices: list[int], fitted: FittedPreprocessing
    ) -> None:
        self.group, self.indices, self.fitted = group, indices, fitted
        self.sources = [fitted.columns[index].source for index in indices]

    def make_steps(self) -> Any:
        """Return the steps, not fitted."""
        group, steps = self.group, []
        if group.fill is not None and not group.scale_first:
            steps.append(("fill", self._make_imputer()))
        if isinstance(group.encode, OneHot):
            steps.append(("encode", self._make_one_hot(group.encode)))
        elif isinstance(group.encode, Ordinal):
            steps.insert(0, ("encode", self._make_ordinal(group.encode)))
        elif isinstance(group.encode, Bins):
            steps += self._make_bins()
        if group.scale is not None:
            steps.append(("scale", self._make_scaler()))
        if group.fill is not None and group.scale_first:
            steps.append(("fill", self._make_imputer()))
        columns = [self.fitted.columns[index] for index in self.indices]
        if group.part is not None:
            steps = [*_take_part(group.part), *steps]
        elif any(None in c.categories or c.filled is not None for c in columns):
            steps.insert(0, ("missing", _unify_missing()))
        elif any(not isinstance(key, str) for c in columns for key in c.categories):
            steps.insert(0, ("objects", _make_objects()))
        return Pipeline(steps) if steps else "passthrough"

    def _make_imputer(self) -> SimpleImputer:
        fill = self.group.fill
        assert fill is not None
        return SimpleImputer(
            strategy=fill.strategy,
            fill_value=fill.value,
            add_indicator=fill.indicator,
        )

    def _make_one_hot(self, encode: OneHot) -> OneHotEncoder:
        (index,) = self.indices
        column = self.fitted.columns[index]
        rare = set(rare_codes(self.fitted.features, index)) & set(column.codes)
        keys = _with_nan(column.categories)
        least = None
        if rare:
            least = INFREQUENT if len(rare) < len(keys) else EVERYTHING
        return OneHotEncoder(
            categories=[keys],
            handle_unknown=encode.unknown,
            min_frequency=least,
            drop=encode.drop,
            sparse_output=False,
        )

    def _make_ordinal(self, encode: Ordinal) -> OrdinalEncoder:
        declared = [
            _with_nan(self.fitted.columns[index].categories) for index in self.indices
        ]
        if encode.unknown is None:
            return OrdinalEncoder(categories=declared)
        whole = encode.unknown == encode.unknown
        return OrdinalEncoder(
            categories=declared,
            handle_unknown="use_encoded_value",
            unknown_value=int(encode.unknown) if whole else np.nan,
        )

    def _make_bins(self) -> list[tuple[str, Any]]:
        """Return steps that number the ranges of a column, and one-hot encode them."""
        (index,) = self.indices
        layout = self.fitted.features.layout
        at = np.flatnonzero(layout.columns == index)
        codes = [code for j in at for code in layout.codes[j] or ()]
        ends = np.append(layout.edges[str(index)], np.inf)  # NaN comes after
        place = FunctionTransformer(
            np.digitize,
            kw_args={"bins": ends, "right": True},
            feature_names_out="one-to-one",
        )
        encoder = OneHotEncoder(
            categories=[codes], handle_unknown="ignore", sparse_output=False
        )
        return [("numbers", _make_numbers()), ("place", place), ("encode", encoder)]

    def _make_scaler(self) -> Any:
        scale = self.group.scale
        if isinstance(scale, Standardise):
            return StandardScaler(with_mean=scale.with_mean, with_std=scale.with_std)
        if isinstance(scale, FitRange):
            return MinMaxScaler(feature_range=(scale.low, scale.high))
        if isinstance(scale, FitQuantiles):
            return RobustScaler(
                with_centering=scale.with_median,
                with_scaling=scale.with_range,
                quantile_range=(scale.low, scale.high),
                unit_variance=scale.unit != 1.0,
            )
        if isinstance(scale, WeighTerms):
            return TfidfTransformer(norm=None)
        return MaxAbsScaler()

    def set_learned(self, steps: Any) -> None:
        """Replace what fitted steps have learned from made-up rows."""
        if isinstance(steps, str) or not isinstance(steps, Pipeline):
            return
        features = self.fitted.features
        at = np.flatnonzero(np.isin(features.layout.columns, self.indices))
        numbers = np.array(
            [j for j in at if features.layout.codes[j] is None], dtype=np.intp
        )
        for name, step in steps.steps:
            if name == "fill" and numbers.size:
                self._set_fill(step, numbers)
            elif name == "fill":
                filled = self.fitted.columns[self.indices[0]].filled
                step.statistics_ = np.array([filled], dtype=object)
            elif name == "scale":
                self._set_scale(step, numbers if self.group.scale_first else at)

    def _set_fill(self, step: SimpleImputer, numbers: Index) -> None:
        """Set what fills the gaps: as the column is, or scaled if that comes first."""
        features = self.fitted.features
        filled = features.missing[numbers]
        if not self.group.scale_first:
            scale, offset = features.scale[numbers], features.offset[numbers]
            filled = (filled - offset) * scale + features.centre[numbers]
        # A column without a number has nothing but its indicator.
        step.statistics_ = np.full(len(self.indices), np.nan)
        at = np.searchsorted(self.indices, features.layout.columns[numbers])
        step.statistics_[at] = filled

    def _set_scale(self, step: Any, at: Index) -> None:
        """Set centre and scale of the features at these indices."""
        features = self.fitted.features
        scale = features.scale[at]
        # A flag over its scale plus an offset is a flag less a mean, over the scale.
        shift = features.offset[at] - features.centre[at] / scale
        if isinstance(step, StandardScaler):
            centre = features.centre[at]
            step.mean_ = np.where(centre != 0.0, centre, -shift * scale)
            step.var_, step.scale_ = scale**2, scale
            if not step.with_std:
                step.scale_ = step.var_ = None
            if not step.with_mean and not step.with_std:
                step.mean_ = None
        elif isinstance(step, MinMaxScaler):
            step.scale_, step.min_ = 1.0 / scale, shift
            for name in ("data_min_", "data_max_", "data_range_"):
                vars(step).pop(name, None)
        elif isinstance(step, RobustScaler):
            centre = -shift * scale
            step.center_ = centre if step.with_centering else None
            step.scale_ = scale if step.with_scaling else None
        elif isinstance(step, TfidfTransformer):
            step.idf_ = 1.0 / scale
        else:
            step.scale_ = step.max_abs_ = scale
        vars(step).pop("n_samples_seen_", None)


def rare_codes(features: Features, index: int) -> tuple[int, ...]:
    """Return the codes of a column's infrequent categories, which share a feature."""
    for j in np.flatnonzero(features.layout.columns == index):
        if features.layout.names[j].endswith("_infrequent_sklearn"):
            return features.layout.codes[j] or ()
    return ()


def _make_numbers() -> FunctionTransformer:
    """Return a step that makes numbers of values, which a table may mix with words."""
    return FunctionTransformer(
        np.asarray, kw_args={"dtype": float}, feature_names_out="one-to-one"
    )


def _take_part(part: str) -> list[tuple[str, Any]]:
    """Return steps that take a part of dates, which are numbers of days.

    NumPy's interpolation knows periods: between steps that are this steep there is no
    number that a time rounded to seconds could be.
    """
    period, starts, values = find_turns(part)
    ends = np.append(starts[1:], period + starts[0]) - 1e-9
    stairs = {
        "xp": np.column_stack([starts, ends]).ravel(),
        "fp": np.repeat(values, 2),
        "period": period,
    }
    made: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("refuse_dates", np.positive, {}),  # which NumPy would take for nanoseconds
        ("numbers", np.asarray, {"dtype": float}),
        ("part", np.interp, stairs),
    )
    return [
        (
            name,
            FunctionTransformer(
                function, kw_args=options, feature_names_out="one-to-one"
            ),
        )
        for name, function, options in made
    ]


def _make_objects() -> FunctionTransformer:
    """Return a step that makes objects of values.

    Encoders compare numbers as they are typed, and types differ from table to table.
    """
    return FunctionTransformer(
        np.asarray, kw_args={"dtype": object}, feature_names_out="one-to-one"
    )


def _unify_missing() -> FunctionTransformer:
    """Return a step that makes NaN of whatever stands for a missing category."""
    try:
        from pandas import DataFrame
    except ImportError as error:  # no extra has it; data frames come with it
        raise MissingExtra(
            "a plain pipeline with categories that may be missing needs pandas, which "
            "is not installed; run pip install pandas"
        ) from error
    # pandas' categories know one missing value.
    unified = FunctionTransformer(DataFrame, kw_args={"dtype": "category"})
    steps = Pipeline(
        [("objects", _make_objects()), ("unify", unified), ("again", _make_objects())]
    )
    steps.fit(np.zeros((1, 1)))
    # As one function, so that set_output does not reach in between.
    return FunctionTransformer(steps.transform, feature_names_out="one-to-one")


def _make_rows(
    fitted: FittedPreprocessing, names: Sequence[Source], *, named: bool
) -> Any:
    """Return made-up rows that show every category and where values may be missing."""
    columns: dict[Source, list[Any]] = {}
    for index, column in enumerate(fitted.columns):
        values = _make_values(fitted, index)
        # Categories of a column are numbers too, where it is used as both.
        if column.source not in columns or column.kind != "number":
            columns[column.source] = values
    length = max(map(len, columns.values()), default=2)
    filled = {}
    for name in names:
        values = columns.get(name, [0.0])
        repeated = [*values, *[values[0]] * (length - len(values))]
        filled[name] = np.array(repeated, dtype=object)
    if named:
        from pandas import DataFrame

        return DataFrame(filled)
    return np.column_stack([filled[name] for name in names])


def _make_values(fitted: FittedPreprocessing, index: int) -> list[Any]:
    """Return values of a column: each frequent category twice, the others once."""
    column, layout = fitted.columns[index], fitted.features.layout
    gap = [np.nan] if index in layout.columns[layout.indicators] else []
    if column.kind == "number":
        return [0.0, 1.0, *gap]
    if column.kind == "ordinal":
        return [*_with_nan(column.categories), *gap]
    rare = rare_codes(fitted.features, index)
    keys = zip(column.categories, column.codes, strict=True)
    # Those that may be repeated come first.
    ordered = sorted(keys, key=lambda pair: pair[1] in rare)
    return [
        np.nan if key is None else key
        for key, code in ordered
        for _ in range(1 if code in rare else INFREQUENT)
    ]


def _with_nan(categories: Sequence[Any]) -> list[Any]:
    """Return categories as scikit-learn has them, NaN for a missing one."""
    return [np.nan if key is None else key for key in categories]
