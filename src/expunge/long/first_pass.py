# SPDX-License-Identifier: Apache-2.0
"""The first pass over a table: it checks every row and notes what fits need to know.

It refuses what is no number, in features, targets and weights, and says where: by the
name of the column, the number of the file and that of the row in it. It writes the
index of people, the weights and, if asked to, the decoded rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector, row_squares
from ..core.objective import check_weights
from ..core.values import LARGEST, SMALLEST
from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput
from ..private_model.subjects import objection, owners_of
from .file_arrays import DecodedWriter
from .people import People, PeopleWriter
from .raw_table import RawRows, RawTable

MOST_CLASSES = 10_000
TIMES = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us")  # units of Python's times


@dataclass(frozen=True, slots=True, eq=False)
class TableFacts:
    """What the first pass found.

    Attributes
    ----------
    classes
        How many rows each target has and how many of them with weight, if there are
        at most ``MOST_CLASSES`` targets; else None.
    words
        The targets, if they are words, in the order of their codes.
    short_rows
        Whether a row that is not zero is shorter than fits without an intercept take.
    gaps
        Raw columns in which a value is missing.
    """

    classes: dict[Any, tuple[int, int]] | None
    words: NDArray[Any] | None
    short_rows: bool
    gaps: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FirstPass:
    """How to look through a table.

    Attributes
    ----------
    folder
        The private folder to write to.
    rows_at_once
        How many rows to read at a time.
    key
        The secret key of the index of people; None without owners.
    cache
        Whether to write the decoded rows.
    on_progress
        Called with how many rows are read, of how many.
    """

    folder: Path
    rows_at_once: int
    key: bytes | None
    cache: bool
    on_progress: OnProgress = be_silent


def look_through(table: RawTable, how: FirstPass) -> tuple[TableFacts, People | None]:
    """Read the whole table once; return what is in it, and who."""
    if not table.n_rows:
        raise InvalidInput("the table has no rows; there is nothing to fit")
    people = None if how.key is None else PeopleWriter(how.folder, how.key)
    writer = DecodedWriter(how.folder, table, features=how.cache)
    targets, short, gaps = _Targets(), False, np.zeros(table.n_features, dtype=bool)
    try:
        for begin in range(0, table.n_rows, how.rows_at_once):
            end = min(begin + how.rows_at_once, table.n_rows)
            raw = table.read(begin, end, subjects=people is not None)
            if table.words is None:
                short |= _require_numbers(table, raw, begin=begin)
            else:
                gaps |= _find_gaps(table, raw, begin=begin)
            _require_weights(table, raw, begin=begin)
            y = targets.code(table, raw, begin=begin)
            if people is not None:
                people.add(*find_owners(table, raw.subjects, begin=begin))
            writer.add(raw, y)
            how.on_progress(end, table.n_rows)
        table.require_unchanged()
        holed = frozenset(np.array(table.names)[gaps].tolist())
        facts = TableFacts(targets.classes(), targets.words(), short, holed)
        return facts, None if people is None else people.finish()
    finally:
        writer.close()
        if people is not None:
            people.close()


def _require_numbers(table: RawTable, raw: RawRows, *, begin: int) -> bool:
    """Raise InvalidInput for a feature that is none; tell of short rows."""
    X = raw.X.astype(np.float64, copy=False)
    squares = row_squares(X)
    good = (squares > SMALLEST**2) & (squares < LARGEST**2)
    short = False
    if not good.all():
        rows, columns = np.nonzero(~np.isfinite(X))
        if rows.size:
            name, row = table.names[columns[0]], begin + int(rows[0])
            _refuse(table, row, what=f"column {name!r} holds NaN, infinity or nothing")
        long = np.flatnonzero(squares >= LARGEST**2)
        if long.size:
            _refuse(
                table, begin + int(long[0]), what=f"a row is longer than {LARGEST:g}"
            )
        short = bool(abs(X[~good]).max() > 0.0)
    return short


def _find_gaps(table: RawTable, raw: RawRows, *, begin: int) -> NDArray[np.bool]:
    """Return which raw columns have missing values; refuse infinite ones."""
    rows, columns = np.nonzero(np.isinf(raw.X))
    if rows.size:
        name, row = table.names[columns[0]], begin + int(rows[0])
        _refuse(table, row, what=f"column {name!r} holds infinity")
    return np.asarray(np.isnan(raw.X).any(axis=0))


def _require_weights(table: RawTable, raw: RawRows, *, begin: int) -> None:
    """Raise InvalidInput for a weight that is none."""
    if raw.weight is not None:
        try:
            check_weights(raw.weight, len(raw))
        except InvalidInput as error:
            bad = ~((raw.weight >= 0.0) & (raw.weight <= LARGEST))
            _refuse(table, begin + int(np.flatnonzero(bad)[0]), what=str(error))


def _refuse(table: RawTable, position: int, *, what: str) -> NoReturn:
    """Raise InvalidInput for a row, by its position and not by its content."""
    raise InvalidInput(
        f"{what}, in {table.locate(position)} (counted from 0); correct the row or "
        "leave it out"
    )


class _Targets:
    """The targets met so far: how often each, and the codes of words."""

    def __init__(self) -> None:
        self._rows: Counter[Any] | None = Counter()
        self._weighted: Counter[Any] = Counter()
        self._codes: dict[str, int] = {}
        self._dtype: np.dtype[Any] | None = None

    def code(self, table: RawTable, raw: RawRows, *, begin: int) -> Vector:
        """Count the targets of these rows and return them as numbers."""
        y, weight = raw.y, raw.weight
        self._dtype = y.dtype
        self._count(y, None if weight is None else weight > 0.0)
        if y.dtype.kind in "OUST":
            return self._code_words(table, y, begin=begin)
        if y.dtype.kind not in "biuf":
            raise InvalidInput(f"the target holds {y.dtype}; give numbers or words")
        numbers = y.astype(np.float64)
        bad = ~np.isfinite(numbers)
        if y.dtype.kind in "iu":
            bad |= np.abs(numbers) > 2.0**53
        if bad.any():
            what = "the target is NaN, infinite, missing, or too large an integer"
            _refuse(table, begin + int(np.flatnonzero(bad)[0]), what=what)
        return numbers

    def classes(self) -> dict[Any, tuple[int, int]] | None:
        """Return how many rows each target has, and how many with weight."""
        if self._rows is None:
            return None
        return {one: (n, self._weighted[one]) for one, n in self._rows.items()}

    def words(self) -> NDArray[Any] | None:
        """Return words in the order of their codes; None for numbers."""
        return np.array(list(self._codes)) if self._codes else None

    def _count(self, y: NDArray[Any], weighted: NDArray[np.bool] | None) -> None:
        if self._rows is None:
            return
        counts = _count_values(y)
        self._rows.update(counts)
        self._weighted.update(
            counts if weighted is None else _count_values(y[weighted])
        )
        if len(self._rows) > MOST_CLASSES:
            self._rows, self._weighted = None, Counter()

    def _code_words(self, table: RawTable, y: NDArray[Any], *, begin: int) -> Vector:
        """Return the code of each word, new ones numbered in the order they come."""
        for word in dict.fromkeys(y.tolist()):
            if not isinstance(word, str):
                row = next(i for i, one in enumerate(y) if not isinstance(one, str))
                _refuse(table, begin + row, what="the target is missing, or no word")
            self._codes.setdefault(word, len(self._codes))
        if len(self._codes) > MOST_CLASSES:
            raise InvalidInput(
                f"the target has more than {MOST_CLASSES} different words; choose "
                "another column as target, or give numbers"
            )
        return np.array([self._codes[word] for word in y.tolist()], dtype=np.float64)


def _count_values(y: NDArray[Any]) -> Counter[Any]:
    if y.dtype.kind not in "biuf":
        return Counter(y.tolist())
    values, counts = np.unique(y, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def find_owners(
    table: RawTable, subjects: Any, *, begin: int
) -> tuple[Sequence[str], Index]:
    """Return the people of some rows, each once, and which of them owns each row."""
    ids: NDArray[Any] = np.asarray(subjects)
    if ids.dtype.kind in "iu":
        distinct, codes = np.unique(ids, return_inverse=True)
        return owners_of(distinct, len(distinct)), codes.astype(np.intp)
    fine = ids.dtype.kind in "mM" and np.datetime_data(ids.dtype)[0] not in TIMES
    if fine or any(isinstance(one, np.ndarray | list | dict) for one in ids[:1]):
        what = "times finer than a microsecond" if fine else "lists or structs"
        raise InvalidInput(
            f"the column of subjects holds {what}, which no request could name; write "
            "ids as words or integers"
        )
    numbers: dict[Any, int] = {}
    codes = np.array([numbers.setdefault(one, len(numbers)) for one in ids.tolist()])
    try:
        return owners_of(list(numbers), len(numbers)), codes.astype(np.intp)
    except InvalidInput:
        for number, reason in enumerate(map(objection, numbers)):
            if reason is not None:
                first = begin + int(np.flatnonzero(codes == number)[0])
                raise InvalidInput(
                    f"the subject in {table.locate(first)} (counted from 0) cannot be "
                    f"the id of a person: {reason}"
                ) from None
        raise
