# SPDX-License-Identifier: Apache-2.0
"""Raw columns of a table: words and gaps, for estimators that encode them.

Words are numbered in the order in which they come, so that blocks of a table are
numbers alone. An estimator with preprocessing reads these numbers as its own columns
do: ``RawColumns`` makes of a block what reading the same rows in memory gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Vector
from ..core.rows import Rows, RowSource
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import Column, Recipe, find_categories, learn_columns
from ..preprocessing.description import OneHot, Preprocessing
from ..preprocessing.statistics import needs_order

MOST_WORDS = 10_000


class Words:
    """The words of each column, numbered as they come, and where some are missing."""

    def __init__(self, names: Iterable[str]) -> None:
        self._codes: dict[str, dict[Any, int]] = {name: {} for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._codes

    def code(self, name: str, values: NDArray[Any]) -> Vector:
        """Return the number of each word; NaN where it is missing."""
        codes = self._codes[name]
        keys, indices = find_categories(values, name)
        numbers = [
            np.nan if key is None else codes.setdefault(key, len(codes)) for key in keys
        ]
        if len(codes) > MOST_WORDS:
            raise InvalidInput(
                f"column {name!r} has more than {MOST_WORDS} different words; is it an "
                "id? leave it out with features=[...]"
            )
        return np.array(numbers, dtype=np.float64)[indices]

    def of(self, name: str) -> list[Any]:
        """Return the words of a column in the order of their numbers."""
        return list(self._codes[name])


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RawColumns:
    """Makes raw rows, as preprocessing reads them, of rows of a table.

    Attributes
    ----------
    columns
        The columns that preprocessing reads.
    indices
        Where each is among the features of the table.
    numbers
        What each reads of the words by their numbers, and last of a missing one; None
        for a column of numbers.
    """

    columns: tuple[Column, ...]
    indices: tuple[int, ...]
    numbers: tuple[Vector | None, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __call__(self, rows: Rows) -> Rows:
        """Return the raw rows."""
        X = np.asarray(rows.X)
        raw = X[:, self.indices] + 0.0  # numbers as columns read them: no minus zero
        for k, (column, numbers) in enumerate(
            zip(self.columns, self.numbers, strict=True)
        ):
            values = X[:, self.indices[k]]
            if numbers is not None:
                last = len(numbers) - 1
                codes = np.where(np.isnan(values), last, values).astype(np.intp)
                raw[:, k] = numbers[codes]
            elif column.kind != "number":
                raw[:, k] = column.read({str(column.source): values})
        return Rows(raw, rows.y, rows.weight)


def learn_recipe(
    described: Preprocessing,
    rows: RowSource,
    *,
    names: tuple[str, ...],
    words: Words,
    gaps: frozenset[str],
) -> tuple[Recipe, RawColumns]:
    """Return how preprocessing reads the columns of a table, by words and by gaps.

    ``rows`` are those of the table, read only where numbers are categories. Raises
    Unsupported for what takes all values of a column at once.
    """
    for group in described.groups:
        if needs_order(group):
            raise Unsupported(
                "extremes, medians, quantiles, the most frequent number and learnt "
                "bins are not for long tables "
                f"({', '.join(map(repr, group.columns[:4]))}): they take all values at "
                "once; use StandardScaler and the mean"
            )
    wanted = [
        str(source)
        for group in described.groups
        if isinstance(group.encode, OneHot) and group.part is None
        for source in group.columns
    ]
    numeric = {name: names.index(name) for name in wanted if name not in words}
    found = _find_numbers(rows, numeric) if numeric else {}
    table = {
        name: _known(found.get(name), name, words=words, gaps=gaps) for name in names
    }
    columns = learn_columns(described, table)
    for column in columns:
        if column.source in gaps and column.kind != "category" and not column.gaps:
            raise InvalidInput(
                f"column {column.source!r} has missing values; fill them first: put "
                "SimpleImputer() into the preprocessing"
            )
    numbers = tuple(
        _read_words(column, words=words, gaps=gaps)
        if str(column.source) in words
        else None
        for column in columns
    )
    indices = tuple(names.index(str(column.source)) for column in columns)
    return Recipe(described, columns), RawColumns(columns, indices, numbers)


def _known(
    numbers: NDArray[Any] | None, name: str, *, words: Words, gaps: frozenset[str]
) -> NDArray[Any]:
    """Return each value of a column once, and None if some are missing."""
    values = words.of(name) if name in words else [] if numbers is None else numbers
    table = np.empty(len(values) + (name in gaps), dtype=object)
    table[: len(values)] = values
    return table


def _find_numbers(
    rows: RowSource, indices: Mapping[str, int]
) -> dict[str, NDArray[np.float64]]:
    """Return the different numbers in some columns, by a pass."""
    numbers = {name: np.empty(0) for name in indices}
    for X in rows.map_present(lambda block: np.asarray(block.X)):
        for name, index in indices.items():
            values = X[:, index]
            both = np.concatenate([numbers[name], values[~np.isnan(values)]])
            numbers[name] = np.unique(both)
            if len(numbers[name]) > MOST_WORDS:
                raise InvalidInput(
                    f"column {name!r} has more than {MOST_WORDS} different numbers: "
                    "too many for OneHotEncoder; scale it as a number, or leave it out"
                )
    return numbers


def _read_words(column: Column, *, words: Words, gaps: frozenset[str]) -> Vector:
    """Return what a column reads of each word, and last of a missing one."""
    name = str(column.source)
    words_once = _known(None, name, words=words, gaps=gaps)
    numbers = column.read({name: words_once})
    return numbers if name in gaps else np.append(numbers, np.nan)
