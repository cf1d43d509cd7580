# SPDX-License-Identifier: Apache-2.0
"""People as files name them: lists of ids, and aliases.

Ids are text and are normalised, so "007" stays "007". An id that a table tool may have
written for a missing value, or as a float, is refused with its line: rows of unknown
people would become one person, and "1003.0" is not the person "1003".

A table of aliases has a person's id, a kind and a value on each line. Errors do not
quote values, which are somebody's.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path

import numpy as np

from ..core.arrays import Index
from ..exceptions import InvalidInput
from ..private_model.subjects import objection, person
from ..rights.identifiers import Identifier, read_identifier
from .columns import FILL_IN, NUMBER, VALUE_MISSING, Content, TableColumn
from .files import (
    MISSING_WORDS,
    SUFFIXES,
    TableFile,
    format_names,
    locate_rows,
    open_table,
    read_bytes,
    read_text,
    refuse_separator,
    require_regular_file,
    shorten,
)

BLOCK = 1 << 20  # rows of a Parquet file that are looked at together
FEWEST_NUMBERS = 0.2  # different numbers, as a share of the rows, if they are ids
MOST_CODES = 150  # different ages or codes; in a long table of visits ids are a few %


def take_ids(column: TableColumn) -> list[str]:
    """Return ids, normalised."""
    arrow, words = column.file.arrow, column
    if column.content is Content.integers:
        words = replace(column, values=column.values.cast(arrow.string()))
    if words.content is not Content.text:
        what = f"ids are stored as {column.values.type}"
        raise column.make_error(what, advice="store text or integers")
    encoded = words.values.dictionary_encode("encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    spellings = encoded.dictionary.to_pylist()
    reasons = [_explain_id(word) for word in spellings]
    for reason in filter(None, reasons):
        at = np.array([one == reason for one in reasons])[codes]
        what, advice = reason.split("; ")
        raise column.make_error(what, at=at, advice=advice)
    ids = [person(word) for word in spellings]
    if column.file.is_text:
        _refuse_float_ids(column, ids, codes=codes)
    return [ids[code] for code in codes.tolist()]


def read_ids(path: str | PathLike[str], column: str | None = None) -> list[str]:
    """Return the ids listed in a file, normalised and in order.

    A .txt file has one id per line and no header; blank lines are skipped. Other files
    have a header, and a single column unless you name one. A header that contains a
    digit or an @ must be named: it could be the first id of a list without a header,
    and that person's request would be lost.

    Parameters
    ----------
    path
        A .txt file, or a table.
    column
        The column of ids; None if there is only one.
    """
    place = Path(path)
    if place.suffix.lower() == ".txt":
        return _read_lines(place, column)
    file = open_table(place, (".txt", *SUFFIXES))
    name = _find_only_column(file) if column is None else column
    table = file.read_columns([name], [name])
    return take_ids(TableColumn.of(file, table, name=name))


def read_possible_ids(
    path: str | PathLike[str], target: str, *, known: Collection[str] = ()
) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of a table that may hold ids of people, block by block.

    Columns of words, and of whole numbers of which there are many: few different ones
    are ages or codes, whichever person may have such a number. A column whose name is
    among ``known``, as that of ids in another table, is one however few they are.
    """
    file = open_table(Path(path))
    for name in file.names:
        if name == target:
            continue
        for column in _read_blocks(file, name):
            ids = _find_possible_ids(column, is_known=name in known)
            if ids is None:
                break
            yield name, ids


def _read_blocks(file: TableFile, name: str) -> Iterator[TableColumn]:
    """Yield a column, block by block if it is of a Parquet file."""
    if file.is_text or file.path.suffix != ".parquet":
        table = file.read_columns([name], [name])
        yield TableColumn.of(file, table, name=name)
        return
    parquet = import_module("pyarrow.parquet")

    spelled = file.spelled[file.names.index(name)]
    with parquet.ParquetFile(file.path) as opened:
        for batch in opened.iter_batches(BLOCK, columns=[spelled]):
            table = file.arrow.Table.from_batches([batch]).rename_columns([name])
            yield TableColumn.of(file, table, name=name)


def _find_possible_ids(column: TableColumn, *, is_known: bool) -> list[str] | None:
    """Return the different ids that a column may hold; None if it holds none."""
    if column.content not in (Content.text, Content.integers, Content.numbers):
        return None
    words = column.values.cast(column.file.arrow.string()).unique().to_pylist()
    ids = [person(word) for word in words if objection(word) is None]
    are_numbers = column.content is not Content.text or all(
        re.fullmatch(NUMBER, one) for one in ids
    )
    if are_numbers:
        # A table tool makes floats of integers among which one is missing.
        fewest = min(FEWEST_NUMBERS * len(column.values), MOST_CODES)
        if not all(map(_is_whole, ids)) or (len(ids) < fewest and not is_known):
            return None
    return ids


def _is_whole(word: str) -> bool:
    """Whether a float as text is a whole number, or none at all."""
    number = float(word)
    return number != number or number.is_integer()


def _explain_id(word: object) -> str | None:
    """Return why a value cannot be an id and what to do; None if it can."""
    reason = objection(word)
    if reason is None and person(word) in MISSING_WORDS:
        return f"it looks like a missing value; {FILL_IN}"
    return reason


def _refuse_float_ids(column: TableColumn, ids: list[str], *, codes: Index) -> None:
    """Raise if ids were integers once: "1003.0" is not the person "1003"."""
    numbers = [re.fullmatch(NUMBER, one) is not None for one in ids]
    # "12e4" may be hexadecimal, unless all other ids are numbers too.
    sign = r"[.eE]" if all(numbers) else r"\.|[eE][-+]"
    marks = [re.search(sign, one) is not None for one in ids]
    floats = np.array(numbers) & np.array(marks)
    if floats.any():
        what = "the id is written as a float"
        advice = "write integers, or use a Parquet file if ids look like this"
        raise column.make_error(what, at=floats[codes], advice=advice)


def _read_lines(path: Path, column: str | None) -> list[str]:
    """Return the lines of a text file as ids."""
    if column is not None:
        raise InvalidInput(f"{path} has no columns; omit --column {column!r}")
    require_regular_file(path)
    ids = []
    lines = read_text(path, read_bytes(path)).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        reason = objection(line)
        if reason is not None:
            raise InvalidInput(f"{path}, line {number}: {reason}")
        ids.append(person(line))
    if not ids:
        raise InvalidInput(f"{path} lists no ids; write one per line")
    return ids


def _find_only_column(file: TableFile) -> str:
    """Return the name of the only column, if it cannot be an id."""
    if len(file.names) != 1:
        raise InvalidInput(
            f"{file.path} has several columns, {format_names(file.names)}; say "
            "with --column which one holds the ids"
        )
    name = file.names[0]
    if not file.is_text:
        return name
    refuse_separator(file)
    if re.search(r"[\d@]", name):
        raise InvalidInput(
            f"{file.path} starts with {shorten(name)}, which may be a header or an "
            "id; give --column if it is the header, or use a .txt file without one"
        )
    return name


@dataclass(frozen=True, slots=True)
class AliasColumns:
    """The names of the columns that hold people, kinds and values."""

    person: str = "person"
    kind: str = "kind"
    value: str = "value"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AliasTable:
    """Pairs of a person's id and an identifier, as a file lists them."""

    file: TableFile
    people: Sequence[str]
    identifiers: Sequence[Identifier]

    def pairs(self) -> list[tuple[object, Identifier]]:
        """Return each person with an identifier."""
        return list(zip(self.people, self.identifiers, strict=True))

    def locate(self, positions: Sequence[int]) -> str:
        """Return in words on which lines some pairs are."""
        return locate_rows(self.file, positions)


def read_aliases(path: str | PathLike[str], columns: AliasColumns) -> AliasTable:
    """Return the aliases that a table lists.

    Values are raw, or hashed after ``sha256:``.

    Parameters
    ----------
    path
        A CSV, Parquet or Arrow file.
    columns
        Which columns hold what.
    """
    file = open_table(Path(path))
    names = [columns.person, columns.kind, columns.value]
    if len(set(names)) < len(names):
        raise InvalidInput(
            f"{file.path}: person, kind and value are in {len(set(names))} columns; "
            "name a column for each"
        )
    table = file.read_columns(names, names)
    owner, kind, value = (TableColumn.of(file, table, name=name) for name in names)
    people = take_ids(owner)
    kinds, values = _take_words(kind), _take_words(value)
    identifiers = []
    for row, (word, text) in enumerate(zip(kinds, values, strict=True)):
        try:
            identifiers.append(read_identifier(word, text))
        except InvalidInput as error:
            place = locate_rows(file, [row])
            raise InvalidInput(f"{file.path}, {place}: {error}") from None
    return AliasTable(file, people, identifiers)


def _take_words(column: TableColumn) -> list[str]:
    """Return a column as text, none of it missing."""
    words = column.clean()
    if words.content is Content.integers:
        words = replace(words, values=words.values.cast(column.file.arrow.string()))
    if words.content is not Content.text:
        what = f"it is stored as {column.values.type}"
        raise column.make_error(what, advice="store text")
    absent = words.find_missing()
    if absent.any():
        raise column.make_error(VALUE_MISSING, at=absent, advice=FILL_IN)
    found: list[str] = words.values.to_pylist()
    return found
