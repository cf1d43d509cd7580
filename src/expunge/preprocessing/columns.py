# SPDX-License-Identifier: Apache-2.0
"""Columns: from a table as people have it to numbers, one for each cell.

A *raw row* is what a model keeps of a row before anything is learned from it: numbers
as they are, NaN where a value is missing, and categories by their code. A category's
code is its place among the sorted categories of the fit, and stays when others go:
``Column.codes`` says which are left. A category that the fit did not see has code -1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Index, Matrix, Vector
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .description import (
    Bins,
    Group,
    MadeColumns,
    OneHot,
    Ordinal,
    Preprocessing,
    Source,
    TargetMeans,
)
from .encoder import encode_rows, keeps_gaps, require_bits, takes_values, title_of

ColumnKind: TypeAlias = Literal["number", "category", "ordinal"]
UNKNOWN = -1
# What NumPy makes of a missing date, and of a missing difference of dates.
NOT_A_TIME = -(2.0**63)
SECONDS_A_DAY = 86_400
LATEST = 1e8  # days; beyond all years that a calendar needs


@stored
@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is read.

    Attributes
    ----------
    source
        Where it is: its name or its position.
    kind
        What it holds.
    categories, codes
        The categories and the code of each; None stands for a missing value. Empty for
        numbers.
    filled
        The category that takes the place of a missing value; None if there is none.
    unknown
        The code, or for ordinal ones the number, of other categories; None refuses
        them.
    gaps
        Whether a number may be missing.
    part
        What is taken of dates; None takes values as they are.
    """

    source: Source
    kind: ColumnKind = "number"
    categories: tuple[Any, ...] = ()
    codes: tuple[int, ...] = ()
    filled: Any = None
    unknown: float | None = UNKNOWN
    gaps: bool = False
    part: str | None = None

    @property
    def label(self) -> str:
        """What features are named after."""
        return str(self.source) if self.part is None else f"{self.source} {self.part}"

    def read(self, X: Any) -> Vector:
        """Return the column of a table as numbers."""
        values = take_values(X, self.source, self.part)
        if self.kind == "number":
            return self._require_filled(to_numbers(values, self.source))
        keys, indices = find_categories(values, self.source)
        code_of = dict(zip(self.categories, self.codes, strict=True))
        codes = np.array([self._code(key, code_of) for key in keys], dtype=np.float64)
        return self._require_filled(codes[indices])

    def keep(self, codes: set[int]) -> "Column":
        """Return the column without the categories that have other codes."""
        pairs = zip(self.categories, self.codes, strict=True)
        left = [(key, code) for key, code in pairs if code in codes]
        return replace(
            self,
            categories=tuple(key for key, _ in left),
            codes=tuple(code for _, code in left),
        )

    def _code(self, key: Any, code_of: dict[Any, int]) -> float:
        if key is None and self.filled is not None:
            key = self.filled
        if key in code_of:
            missing = key is None and self.kind == "ordinal"
            return float("nan") if missing else float(code_of[key])
        if self.unknown is None:
            raise InvalidInput(
                f"column {self.source!r} holds {key!r}, which is none of its "
                f"{len(code_of)} categories; correct the table, or encode with "
                "handle_unknown='ignore'"
            )
        return self.unknown

    def _require_filled(self, numbers: Vector) -> Vector:
        """Return numbers, or codes, after refusing gaps that nothing fills."""
        missing = np.isnan(numbers)
        if not self.gaps and missing.any():
            raise InvalidInput(
                f"column {self.source!r} has missing values "
                f"({int(missing.sum())} of {len(numbers)}); fill them first: put "
                "SimpleImputer() into the preprocessing"
            )
        return numbers


@stored
@dataclass(frozen=True, slots=True)
class Recipe:
    """What preprocessing does, and how columns are read for it."""

    described: Preprocessing
    columns: tuple[Column, ...]

    @property
    def groups(self) -> list[Group]:
        """The group of each column."""
        return [group for group in self.described.groups for _ in group.columns]


def read_columns(
    columns: Sequence[Column], X: Any, made: Sequence[MadeColumns] = ()
) -> Matrix:
    """Return the raw rows of a table, (rows, columns).

    ``made`` are columns that maps make of those of the table first.
    """
    require_dense(X)
    table = extend_table(X, made)
    return np.column_stack([column.read(table) for column in columns])


def require_dense(X: Any) -> None:
    """Refuse a sparse table."""
    if sparse.issparse(X):
        raise Unsupported(
            "preprocessing takes dense rows; pass X.toarray(), or leave preprocessing "
            "out for a sparse X"
        )


class ExtendedTable(Mapping[Source, NDArray[Any]]):
    """A table with the columns that maps make of it, each map applied when needed."""

    def __init__(self, X: Any, made: Sequence[MadeColumns]) -> None:
        self.table = as_table(X)
        self.makers = {name: one for one in made for name in one.names}
        self.made: dict[Source, NDArray[Any]] = {}

    def __getitem__(self, source: Source) -> NDArray[Any]:
        """Return a column that is made, or one of the table."""
        if source not in self.makers:
            return take_column(self.table, source)
        if source not in self.made:
            one = self.makers[source]
            own = _make_columns(one, [self[given] for given in one.columns])
            self.made |= zip(one.names, own.T, strict=True)
        return self.made[source]

    def __iter__(self) -> Iterator[Source]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


def extend_table(X: Any, made: Sequence[MadeColumns]) -> Any:
    """Return what columns are taken from, with those that maps make."""
    return ExtendedTable(X, made) if made else as_table(X)


def _make_columns(one: MadeColumns, given: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return what a map makes of columns, or refuse it."""
    if takes_values(one.encoder):
        values = np.empty((len(given[0]), len(given)), dtype=object)
        for index, column in enumerate(given):
            values[:, index] = column
        found: NDArray[Any] = one.encoder.encode(values)
        return found
    named = zip(given, one.columns, strict=True)
    X = np.column_stack([to_numbers(column, source) for column, source in named])
    gaps = np.isnan(X)
    if not gaps.any():
        return encode_rows(one.encoder, X, n_features=len(one.names))
    if not keeps_gaps(one.encoder):
        raise InvalidInput(
            f"columns {', '.join(map(repr, one.columns[:4]))} have missing values, and "
            f"{title_of(one.encoder)} takes none; fill them before it: "
            "FunctionTransformer(np.nan_to_num, kw_args={'nan': 0.0})"
        )
    made = np.asarray(one.encoder.encode(X), dtype=np.float64)
    if not (np.isfinite(made) | gaps).all():
        raise InvalidInput(
            f"{title_of(one.encoder)} makes an infinite or missing number of columns "
            f"{', '.join(map(repr, one.columns[:4]))}; correct them, or leave such "
            "rows out"
        )
    return made


def require_same_maps(described: Preprocessing) -> None:
    """Raise InvalidInput if a map rounds otherwise than when rows were read."""
    for one in described.made:
        require_bits(one.encoder, one.bits, n_columns=len(one.columns))


def learn_columns(described: Preprocessing, X: Any) -> tuple[Column, ...]:
    """Return how each column is read, in the order of the groups."""
    table = extend_table(X, described.made)
    return tuple(
        _learn_column(group, index, X=table)
        for group in described.groups
        for index in range(len(group.columns))
    )


def _learn_column(group: Group, index: int, *, X: Any) -> Column:
    """Return how a column of a group is read, its categories learned or declared."""
    source, encode, part = group.columns[index], group.encode, group.part
    if isinstance(encode, Ordinal):
        declared = encode.categories[index]
        codes = tuple(range(len(declared)))
        gaps = group.fill is not None
        return Column(
            source, "ordinal", declared, codes, unknown=encode.unknown, gaps=gaps
        )
    if encode is None or isinstance(encode, Bins):
        gaps = encode is not None or group.fill is not None
        return Column(source, gaps=gaps, part=part)
    if isinstance(encode, TargetMeans):
        encode = OneHot(unknown="ignore")
    filled = None
    if group.fill is not None and group.fill.strategy == "constant":
        filled = group.fill.value
    categories = _find_all(group, index, X=X, encode=encode)
    unknown = None if encode.unknown == "error" else float(UNKNOWN)
    codes = tuple(range(len(categories)))
    return Column(source, "category", categories, codes, filled, unknown, part=part)


def _find_all(group: Group, index: int, *, X: Any, encode: OneHot) -> tuple[Any, ...]:
    """Return the categories of a column, sorted, a missing value last."""
    source, fill = group.columns[index], group.fill
    keys, _ = find_categories(take_values(X, source, group.part), source)
    categories: set[Any] = set(keys)
    if fill is not None and fill.strategy == "most_frequent":
        categories.add(None)  # counted by itself, since what fills it may change
    elif fill is not None and None in categories:
        categories = (categories - {None}) | {fill.value}
    if encode.categories is None:
        return sort_categories(categories, source)
    return _require_declared(
        encode.categories[index], categories, group=group, index=index
    )


def _require_declared(
    declared: tuple[Any, ...], categories: set[Any], *, group: Group, index: int
) -> tuple[Any, ...]:
    """Return declared categories, and the missing one if that is filled later."""
    filled = group.fill is not None and group.fill.strategy == "most_frequent"
    strangers = categories - set(declared) - ({None} if filled else set())
    if strangers:
        example = min(map(repr, strangers))
        raise InvalidInput(
            f"column {group.columns[index]!r} holds {example}, which is none of its "
            f"{len(declared)} declared categories; declare it, or correct the table"
        )
    return (*declared, None) if filled and None not in declared else declared


def sort_categories(categories: set[Any], source: Source) -> tuple[Any, ...]:
    """Return categories in order, a missing value last."""
    try:
        ordered = sorted(categories - {None})
    except TypeError:
        raise InvalidInput(
            f"column {source!r} mixes text and numbers, which have no order; make "
            "them all text or all numbers"
        ) from None
    return (*ordered, *([None] if None in categories else []))


def as_frame(X: Any) -> Any:
    """Return a data frame, or a table of pyarrow, by narwhals; None for another X."""
    if isinstance(X, np.ndarray | list | tuple | Mapping) or sparse.issparse(X):
        return None
    import narwhals as nw

    if isinstance(X, nw.DataFrame):
        return X
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        return frame if isinstance(frame, nw.DataFrame) and frame.columns else None
    except nw.exceptions.DuplicateError as error:
        raise InvalidInput(
            f"the table has columns of one name; rename them ({error})"
        ) from None


def take_rows(X: Any, rows: Index) -> Any:
    """Return some rows of a table, a column, a matrix or a list, of the same kind."""
    if isinstance(X, np.ndarray | list | tuple):
        return np.asarray(X)[rows]
    if sparse.issparse(X):
        matrix: Any = X
        return matrix.tocsr()[rows]
    import narwhals as nw

    found = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(found, nw.DataFrame | nw.Series):
        return found[rows].to_native()
    return np.asarray(X)[rows]


def as_table(X: Any) -> Any:
    """Return what columns are taken from: a frame, a mapping by name, or an array."""
    if isinstance(X, np.ndarray | Mapping):
        return X
    frame = as_frame(X)
    return np.asarray(X, dtype=object) if frame is None else frame


def take_column(X: Any, source: Source) -> NDArray[Any]:
    """Return one column of a table or an array."""
    table = as_table(X)
    if isinstance(table, np.ndarray):
        return _take_from_array(table, source)
    if isinstance(table, Mapping):
        values: NDArray[Any] = table[source]
        return values
    try:
        named = isinstance(source, str)
        column = table.get_column(source) if named else table[:, source]
    except Exception:
        # To ask for all names first would cost more than a column of a few rows.
        if source not in table.columns and isinstance(source, str):
            raise InvalidInput(
                f"the table has no column {source!r}; it has "
                f"{', '.join(map(repr, table.columns[:8]))}"
            ) from None
        raise
    if table.implementation.is_pyarrow() and str(column.dtype) == "Categorical":
        # As an array, narwhals takes the first category for a gap.
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_list()
        return values
    values = column.to_numpy()
    return values


def _take_from_array(table: NDArray[Any], source: Source) -> NDArray[Any]:
    if table.ndim != 2:
        raise InvalidInput(
            f"X has shape {table.shape}; it must be (rows, columns), even for one row"
        )
    if isinstance(source, str) or source >= table.shape[1]:
        raise InvalidInput(
            f"X has {table.shape[1]} columns and no names; column {source!r} is not "
            "there; pass the table as it was fitted"
        )
    return table[:, source]


def take_values(X: Any, source: Source, part: str | None) -> NDArray[Any]:
    """Return one column of a table, or a part of its dates."""
    values = take_column(X, source)
    return values if part is None else take_part(values, source, part=part)


def take_part(values: NDArray[Any], source: Source, *, part: str) -> Vector:
    """Return a part of dates as numbers: NaN where one is missing or beyond all years.

    A day is a number of days since 1970, and the time of day a part of it; months are
    counted from 1, weekdays from Monday as 0, hours from 0.
    """
    if values.dtype == object and not find_missing(values).all():
        some = next(value for value in values if not _is_missing(value))
        if not isinstance(some, Real):
            dates = [None if _is_missing(one) else _to_date(one) for one in values]
            values = np.array(dates, dtype="M8[us]")
    if values.dtype.kind == "M":
        seconds = values.astype("M8[us]").astype(np.int64) / 1e6
        seconds[np.isnat(values)] = np.nan
    else:
        seconds = to_numbers(values, source) * SECONDS_A_DAY
    if part == "day":
        return np.asarray(seconds / SECONDS_A_DAY)
    known = np.abs(seconds) < LATEST * SECONDS_A_DAY
    whole = np.rint(np.where(known, seconds, 0.0)).astype(np.int64)
    days = whole // SECONDS_A_DAY
    if part == "month":
        found = days.astype("M8[D]").astype("M8[M]").astype(np.int64) % 12 + 1
    elif part == "weekday":
        found = (days + 3) % 7  # the first of January 1970 was a Thursday
    else:
        found = whole % SECONDS_A_DAY // 3600
    return np.where(known, found, np.nan)


def find_turns(part: str) -> tuple[float, Vector, Vector]:
    """Return after how many days a part of dates repeats, and when it changes to what.

    Half a second early, as times are rounded to seconds. Day 0 is the first of 1970.
    """
    early = 0.5 / SECONDS_A_DAY
    if part == "month":
        months = np.arange(4801).astype("M8[M]")  # of 400 years
        starts = months.astype("M8[D]").astype(np.int64).astype(np.float64)
        return float(starts[-1]), starts[:-1] - early, np.arange(4800.0) % 12 + 1.0
    if part == "weekday":
        return 7.0, np.arange(7.0) - early, (np.arange(7.0) + 3.0) % 7.0
    return 1.0, np.arange(24.0) / 24.0 - early, np.arange(24.0)


def _to_date(value: Any) -> Any:
    """Return a date of Python, or of a time zone, as NumPy has it, in UTC."""
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(value, "us")


def to_numbers(values: NDArray[Any], source: Source) -> Vector:
    """Return a column as finite numbers, NaN where a value is missing."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = _to_numbers_slowly(values, source)
    lowest = np.flatnonzero(numbers == NOT_A_TIME)
    if lowest.size:  # a missing date, or that number itself
        found = np.asarray(values, dtype=object)[lowest]
        numbers[lowest[find_missing(found)]] = np.nan
    numbers[np.isnan(numbers)] = np.nan  # one spelling, for digests
    infinite = np.isinf(numbers)
    if infinite.any():
        raise InvalidInput(
            f"column {source!r} holds an infinite value in row "
            f"{int(np.flatnonzero(infinite)[0])}; correct it, or make it missing"
        )
    return numbers + 0.0


def _to_numbers_slowly(values: Any, source: Source) -> Vector:
    """Return numbers from objects, or say which one is no number."""
    numbers = np.empty(len(values))
    for index, value in enumerate(np.asarray(values, dtype=object)):
        if _is_missing(value):
            numbers[index] = np.nan
        elif isinstance(value, Real):
            numbers[index] = float(value)
        else:
            raise InvalidInput(
                f"column {source!r} holds {str(value)[:40]!r} in row {index}, which "
                "is not a number; encode the column with OneHotEncoder() in the "
                "preprocessing"
            )
    return numbers


def find_categories(column: NDArray[Any], source: Source) -> tuple[list[Any], Index]:
    """Return the categories of a column, and for each row which one it has.

    Any missing value becomes None, the last category if there is one. Equal numbers are
    one category, however they are written.
    """
    values = np.asarray(column)
    found: dict[Any, int] = {}
    try:
        if values.dtype.kind in "OUST":  # text needs no sorting
            given = (found.setdefault(one, len(found)) for one in values.tolist())
            indices = np.fromiter(given, dtype=np.intp, count=len(values))
            distinct = list(found)
        else:
            unique, indices = np.unique(values, return_inverse=True)
            distinct = unique.tolist()
    except TypeError:
        raise InvalidInput(
            f"column {source!r} holds lists, or other values that are neither text nor "
            "numbers; make them text"
        ) from None
    keys: dict[Any, int] = {}
    codes = [
        None if _is_missing(one) else keys.setdefault(_plain(one), len(keys))
        for one in distinct
    ]
    gaps = [None] if None in codes else []
    code_of = [len(keys) if code is None else code for code in codes]
    return [*keys, *gaps], np.array(code_of, dtype=np.intp)[indices]


def _plain(value: Any) -> Any:
    """Return a category as a plain value: a whole number as an int."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool | str):
        return value
    whole = isinstance(value, Real) and bool(value == value // 1)
    return int(value) if whole else value


def find_missing(column: NDArray[Any]) -> NDArray[np.bool]:
    """Return where a value is missing: None, NaN, NaT or NA."""
    if column.dtype != object:
        return np.asarray(column != column)
    return np.array([_is_missing(value) for value in column], dtype=bool)


def _is_missing(value: Any) -> bool:
    # pandas' NA has no truth value, hence no comparison with itself.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
