# SPDX-License-Identifier: Apache-2.0
"""Aliases from a table: a person's id, a kind and a value on each line.

A line that cannot be used is refused with its number. Errors do not quote values, which
are somebody's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from ..exceptions import InvalidInput
from ..rights.identifiers import Identifier, read_identifier
from .columns import Content, TableColumn
from .files import TableFile, locate_rows, open_table
from .roles import FILL_IN, VALUE_MISSING, take_ids


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
