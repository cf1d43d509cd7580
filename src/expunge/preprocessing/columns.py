# SPDX-License-Identifier: Apache-2.0
"""Columns: from a table as people have it to numbers, one for each cell.

A *raw row* is what a model keeps of a row before anything is learned from it: numbers
as they are, NaN where a value is missing, and categories by their code. A category's
code is its place among the sorted categories of the fit, and stays when others go:
``Column.codes`` says which are left. A category that the fit did not see has code -1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Index, Matrix, Vector
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from ..promise.scope import Scope
from .description import Group, OneHot, Ordinal, Preprocessing, Source

ColumnKind: TypeAlias = Literal["number", "category", "ordinal"]
UNKNOWN = -1


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
    """

    source: Source
    kind: ColumnKind = "number"
    categories: tuple[Any, ...] = ()
    codes: tuple[int, ...] = ()
    filled: Any = None
    unknown: float | None = UNKNOWN
    gaps: bool = False

    def read(self, X: Any) -> Vector:
        """Return the column of a table as numbers."""
        values = take_column(X, self.source)
        if self.kind == "number":
            return self._read_numbers(values)
        keys, places = find_categories(values, self.source)
        known = dict(zip(self.categories, self.codes, strict=True))
        codes = np.array([self._code(key, known) for key in keys], dtype=np.float64)
        return self._require_filled(codes[places])

    def keep(self, codes: set[int]) -> "Column":
        """Return the column without the categories that have other codes."""
        pairs = zip(self.categories, self.codes, strict=True)
        left = [(key, code) for key, code in pairs if code in codes]
        return Column(
            self.source,
            self.kind,
            tuple(key for key, _ in left),
            tuple(code for _, code in left),
            self.filled,
            self.unknown,
        )

    def _code(self, key: Any, known: dict[Any, int]) -> float:
        """Return the code of a category."""
        if key is None and self.filled is not None:
            key = self.filled
        if key in known:
            missing = key is None and self.kind == "ordinal"
            return float("nan") if missing else float(known[key])
        if self.unknown is None:
            raise InvalidInput(
                f"column {self.source!r} holds {key!r}, which is none of its "
                f"{len(known)} categories; correct the table, or encode with "
                "handle_unknown='ignore'"
            )
        return self.unknown

    def _read_numbers(self, values: Any) -> Vector:
        """Return a column of numbers; refuse text, infinity and unexpected gaps."""
        return self._require_filled(to_numbers(values, self.source))

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
    """What is learned from rows besides the model, fixed at the fit.

    Attributes
    ----------
    described, columns
        What preprocessing does, and how columns are read for it.
    balanced
        Whether classes are weighed by how much weight they have left.
    given
        Whether preprocessing was asked for; without it columns pass as they are.
    """

    described: Preprocessing
    columns: tuple[Column, ...]
    balanced: bool = False
    given: bool = True

    def state_in(self, scope: Scope) -> Scope:
        """Return the scope of a model, saying what this recipe does."""
        guessed = self.described.guessed
        return replace(scope, preprocessed=self.given, columns_guessed=guessed)

    @property
    def groups(self) -> list[Group]:
        """The group of each column."""
        return [group for group in self.described.groups for _ in group.columns]


def read_columns(columns: Sequence[Column], X: Any) -> Matrix:
    """Return the raw rows of a table, (rows, columns)."""
    if sparse.issparse(X):
        raise Unsupported(
            "preprocessing takes dense rows; pass X.toarray(), or leave preprocessing "
            "out for a sparse X"
        )
    return np.column_stack([column.read(X) for column in columns])


def learn_columns(described: Preprocessing, X: Any) -> tuple[Column, ...]:
    """Return how each column is read, in the order of the groups."""
    return tuple(
        _learn_column(group, place, X=X)
        for group in described.groups
        for place in range(len(group.columns))
    )


def _learn_column(group: Group, place: int, *, X: Any) -> Column:
    """Return how a column of a group is read, its categories learned or declared."""
    source, encode = group.columns[place], group.encode
    if isinstance(encode, Ordinal):
        declared = encode.categories[place]
        codes = tuple(range(len(declared)))
        gaps = group.fill is not None
        return Column(
            source, "ordinal", declared, codes, unknown=encode.unknown, gaps=gaps
        )
    if encode is None:
        return Column(source, gaps=group.fill is not None)
    filled = None
    if group.fill is not None and group.fill.strategy == "constant":
        filled = group.fill.value
    categories = _find_all(group, place, X=X, encode=encode)
    unknown = None if encode.unknown == "error" else float(UNKNOWN)
    codes = tuple(range(len(categories)))
    return Column(source, "category", categories, codes, filled, unknown)


def _find_all(group: Group, place: int, *, X: Any, encode: OneHot) -> tuple[Any, ...]:
    """Return the categories of a column, sorted, a missing value last."""
    source, fill = group.columns[place], group.fill
    keys, _ = find_categories(take_column(X, source), source)
    found: set[Any] = set(keys)
    if fill is not None and fill.strategy == "most_frequent":
        found.add(None)  # counted by itself, since what fills it may change
    elif fill is not None and None in found:
        found = (found - {None}) | {fill.value}
    if encode.categories is None:
        return sort_categories(found, source)
    return _require_declared(encode.categories[place], found, group=group, place=place)


def _require_declared(
    declared: tuple[Any, ...], found: set[Any], *, group: Group, place: int
) -> tuple[Any, ...]:
    """Return declared categories, and the missing one if that is filled later."""
    filled = group.fill is not None and group.fill.strategy == "most_frequent"
    strangers = found - set(declared) - ({None} if filled else set())
    if strangers:
        example = min(map(repr, strangers))
        raise InvalidInput(
            f"column {group.columns[place]!r} holds {example}, which is none of its "
            f"{len(declared)} declared categories; declare it, or correct the table"
        )
    return (*declared, None) if filled and None not in declared else declared


def sort_categories(found: set[Any], source: Source) -> tuple[Any, ...]:
    """Return categories in order, a missing value last."""
    try:
        known = sorted(found - {None})
    except TypeError:
        raise InvalidInput(
            f"column {source!r} mixes text and numbers, which have no order; make "
            "them all text or all numbers"
        ) from None
    return (*known, *([None] if None in found else []))


def names_of(X: Any) -> list[Any]:
    """Return the names of the columns of a data frame or a pyarrow table."""
    # The columns of a pyarrow table are values; a frame may have any attribute.
    is_arrow = hasattr(X, "column_names") and not hasattr(X, "iloc")
    return list(X.column_names if is_arrow else X.columns)


def take_column(X: Any, source: Source) -> Any:
    """Return one column of a table or an array."""
    if hasattr(X, "columns"):
        names = names_of(X)
        if isinstance(source, str):
            if source not in names:
                raise InvalidInput(
                    f"the table has no column {source!r}; it has "
                    f"{', '.join(map(repr, names[:8]))}"
                )
            return X[source]
        return X.iloc[:, source] if hasattr(X, "iloc") else X[names[source]]
    table = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
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


def to_numbers(values: Any, source: Source) -> Vector:
    """Return a column as finite numbers, NaN where a value is missing."""
    try:
        if hasattr(values, "to_numpy") and not hasattr(values, "combine_chunks"):
            plain = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            plain = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        plain = _to_numbers_slowly(values, source)
    numbers = np.array(plain, dtype=np.float64)
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
    for place, value in enumerate(np.asarray(values, dtype=object)):
        if _is_missing(value):
            numbers[place] = np.nan
        elif isinstance(value, Real):
            numbers[place] = float(value)
        else:
            raise InvalidInput(
                f"column {source!r} holds {str(value)[:40]!r} in row {place}, which "
                "is not a number; encode the column with OneHotEncoder() in the "
                "preprocessing"
            )
    return numbers


def find_categories(column: Any, source: Source) -> tuple[list[Any], Index]:
    """Return the categories of a column, and for each row which one it has.

    Any missing value becomes None, the last category if there is one. Equal numbers are
    one category, however they are written.
    """
    factorize: Callable[..., Any] | None = getattr(column, "factorize", None)
    if factorize is not None:  # a pandas column: faster, and text needs no sorting
        places, found = factorize(use_na_sentinel=True)
        keys = [_plain(key) for key in np.asarray(found, dtype=object)]
        places = np.where(places < 0, len(keys), places)
    elif str(getattr(column, "type", "")) in ("string", "large_string"):  # of pyarrow
        encoded = column.combine_chunks().dictionary_encode()
        keys = encoded.dictionary.to_pylist()
        places = encoded.indices.fill_null(len(keys)).to_numpy(zero_copy_only=False)
    else:
        values = np.asarray(column)
        missing = _find_missing(values)
        try:
            found, inner = np.unique(
                _unify_numbers(values[~missing]), return_inverse=True
            )
        except TypeError:
            raise InvalidInput(
                f"column {source!r} mixes text and numbers, which have no order; make "
                "them all text or all numbers"
            ) from None
        keys = [_plain(key) for key in found.tolist()]
        places = np.full(len(values), len(keys), dtype=np.intp)
        places[~missing] = inner
    if (places == len(keys)).any():
        keys.append(None)
    return keys, places.astype(np.intp)


def _plain(value: Any) -> Any:
    """Return a category as a plain value: a whole number as an int."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool | str):
        return value
    whole = isinstance(value, Real) and bool(value == value // 1)
    return int(value) if whole else value


def _find_missing(column: NDArray[Any]) -> NDArray[np.bool]:
    """Return where a value is missing: None, NaN, NaT or NA."""
    if column.dtype != object:
        return np.asarray(column != column)
    return np.array([_is_missing(value) for value in column], dtype=bool)


def _is_missing(value: Any) -> bool:
    # pandas' NA has no truth value, hence no comparison with itself.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _unify_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return equal numbers as the same object: -0.0 as 0.0, and 1.0 as 1 in a mix."""
    if values.dtype.kind == "f":
        return np.asarray(values + 0.0)
    if values.dtype != object:
        return values
    table = np.empty(len(values), dtype=object)
    table[:] = [_plain(value) for value in values]
    return table
