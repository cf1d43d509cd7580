# SPDX-License-Identifier: Apache-2.0
"""Open tables: CSV, Parquet and Arrow files, and where in them something is wrong.

A CSV file has a header, is UTF-8, and separates values by commas, semicolons or tabs;
the header tells which. What cannot be read is refused with its file and line.
"""

import csv
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from ..exceptions import InvalidInput, needing

CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ARROW_SUFFIXES = (".arrow", ".feather")
SUFFIXES = (*CSV_SUFFIXES, ".parquet", *ARROW_SUFFIXES)
BLOCK_BYTES = 1 << 22  # no line of a CSV file may be longer
SEPARATORS = (",", ";", "\t")
# What else programs write between values.
OTHER_SEPARATORS = {"|": "vertical bars", ":": "colons"}
# How pandas writes an unnamed row index.
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
MISSING = frozenset(
    {"", "?", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "null", "NULL", "<NA>"}
)
# May be classes, but elsewhere a table tool wrote them for a missing value.
MISSING_WORDS = MISSING | {"None", "NaT"}
# Enough of a value to recognise it, of a list to see what it holds.
SHOWN_LENGTH, N_SHOWN_NAMES, N_SHOWN_ROWS = 40, 20, 3


def import_arrow() -> Any:
    """Import and return pyarrow, which reads tables."""
    with needing("cli,registry,files", "reading tables"):
        for part in ("compute", "csv", "feather", "parquet"):
            import_module(f"pyarrow.{part}")
    return import_module("pyarrow")


def format_names(names: Sequence[str]) -> str:
    """Return names of columns in quotes, a limited number of them."""
    shown = ", ".join(repr(name) for name in names[:N_SHOWN_NAMES])
    more = len(names) - N_SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def shorten(value: object, length: int = SHOWN_LENGTH) -> str:
    """Return the start of a value in quotes."""
    text = str(value)
    return repr(text if len(text) <= length else f"{text[:length]}...")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table in a file, and the names of its columns.

    Attributes
    ----------
    path
        The file.
    names
        Names of the columns, without white space around them.
    arrow
        The module pyarrow.
    spelled
        The names as the file spells them.
    data
        The text of a CSV file; None for files whose columns have types.
    separator
        What stands between the values of a CSV file.
    """

    path: Path
    names: list[str]
    arrow: Any = field(repr=False)
    spelled: list[str] = field(repr=False)
    data: bytes | None = field(default=None, repr=False)
    separator: str = ","

    @property
    def is_text(self) -> bool:
        """Whether values are text, so that their types must be guessed."""
        return self.data is not None

    def require_column(self, name: str) -> None:
        """Raise if the file does not have this column, or several of that name."""
        if name not in self.names:
            refuse_separator(self)
            close = get_close_matches(name, self.names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidInput(
                f"{self.path}: no column {name!r}; {hint}its columns are "
                f"{format_names(self.names)}"
            )
        places = [str(i) for i, one in enumerate(self.names, start=1) if one == name]
        if len(places) > 1:
            what = f"several columns have this name, number {' and '.join(places)}"
            advice = "give them different names, or leave them out with --drop"
            raise self.make_error(name, what, advice=advice)

    def read_columns(self, names: Sequence[str], text: Collection[str]) -> Any:
        """Return a pyarrow table of columns; those in ``text`` of a CSV as text."""
        for name in names:
            self.require_column(name)
        chosen = [self.spelled[self.names.index(name)] for name in names]
        with explain_unreadable(self.path, self.data):
            table = _read_arrow(self, chosen, as_text=[n in text for n in names])
        if self.data is not None and self.arrow.binary() in table.schema.types:
            read_text(self.path, self.data)  # raises with the line that is not UTF-8
        if table.num_rows == 0:
            raise InvalidInput(f"{self.path} has no rows; give a file with rows")
        return table.rename_columns(list(names))

    def make_error(
        self, name: str, what: str, *, advice: str, rows: Iterable[int] = ()
    ) -> InvalidInput:
        """Return the error about a column, or about some of its rows."""
        place, wrong = f"{self.path}, column {name!r}", [int(row) for row in rows]
        if wrong:
            place += f", {locate_rows(self, wrong)}"
        return InvalidInput(f"{place}: {what}; {advice}")


def open_table(path: Path, suffixes: Sequence[str] = SUFFIXES) -> TableFile:
    """Open a file and read the names of its columns."""
    if not path.name.lower().endswith(tuple(suffixes)):
        raise InvalidInput(
            f"{path} ends in {path.suffix!r}; give a {', '.join(suffixes)} file"
        )
    require_regular_file(path)
    arrow = import_arrow()
    if not path.name.lower().endswith(CSV_SUFFIXES):
        with explain_unreadable(path, None):
            names = _read_schema(path, arrow).names
        return TableFile(path, [name.strip() for name in names], arrow, names)
    data = read_bytes(path)
    refuse_binary(path, data)
    separator = _find_separator(data)
    refuse_open_quote(path, data, separator=separator)
    with explain_unreadable(path, data):
        options = _set_csv_options(arrow, separator)
        reader = arrow.csv.open_csv(arrow.BufferReader(data), **options)
        spelled = reader.schema.names
    names = [name.strip() for name in spelled]
    return TableFile(path, names, arrow, spelled, data=data, separator=separator)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(
            f"{path} cannot be read ({shorten(error, 200)}); write it again"
        ) from error


def read_text(path: Path, data: bytes) -> str:
    """Return the text of a file; raise at the first line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{path}, line {line}: not UTF-8; save it as UTF-8"
        ) from None


def refuse_binary(path: Path, data: bytes) -> None:
    """Raise if a file for text has bytes that no text has."""
    place = data.find(b"\0")
    if place >= 0:
        read_text(path, data)
        line = data.count(b"\n", 0, place) + 1
        raise InvalidInput(
            f"{path}, line {line}: a NUL byte, which no text has; save it as text again"
        )


def require_regular_file(path: Path) -> None:
    """Raise if this path is not that of a file."""
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file; check the path")


@contextmanager
def explain_unreadable(path: Path, data: bytes | None) -> Iterator[None]:
    """Turn a failure to read a file into an error that says why, and where."""
    arrow = import_arrow()
    try:
        yield
    except (arrow.ArrowException, UnicodeError, OSError) as error:
        if data is not None:
            if not data.removeprefix(b"\xef\xbb\xbf").strip():
                raise InvalidInput(
                    f"{path} is empty; give a file with a header and rows"
                ) from None
            _refuse_uneven_lines(path, data)
        raise InvalidInput(
            f"{path} cannot be read ({shorten(error, 200)}); write it again"
        ) from error


def refuse_separator(file: TableFile) -> None:
    """Raise if the header of a CSV file is one name that holds another separator."""
    if not file.is_text or len(file.names) != 1:
        return
    for separator, word in OTHER_SEPARATORS.items():
        if separator in file.names[0]:
            raise InvalidInput(
                f"{file.path}, line 1: it holds {word}, and no commas, semicolons or "
                "tabs; save the file with commas between the values"
            )


def locate_rows(file: TableFile, rows: Sequence[int]) -> str:
    """Return where rows are: their lines in a CSV file, blank lines counted."""
    wanted, noun = sorted(set(rows)), "row"
    places = [row + 1 for row in wanted]
    if file.data is not None:
        with suppress(csv.Error):  # a value is too long for this slower reader
            records = _read_records(file.path, file.data, separator=file.separator)
            found = set(wanted[:N_SHOWN_ROWS])
            lines = [
                line for row, (line, _) in enumerate(records, start=-1) if row in found
            ]
            noun, places = "line", lines + places[len(lines) :]
    shown = ", ".join(str(place) for place in places[:N_SHOWN_ROWS])
    more = len(places) - N_SHOWN_ROWS
    rest = f" and {more} more" if more > 0 else ""
    return f"{noun}{'s' if len(places) > 1 else ''} {shown}{rest}"


def _find_separator(data: bytes) -> str:
    """Return what separates the names in the first line: comma, semicolon or tab."""
    line = data.lstrip(b"\xef\xbb\xbf\r\n").split(b"\n", 1)[0].decode(errors="replace")
    unquoted = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=unquoted.count)


def _refuse_uneven_lines(path: Path, data: bytes) -> None:
    """Raise at the first line of a CSV file with too many or too few values."""
    width, separator = 0, _find_separator(data)
    with suppress(csv.Error):
        for line, record in _read_records(path, data, separator=separator):
            width = width or len(record)
            if len(record) != width:
                raise InvalidInput(
                    f"{path}, line {line}: {len(record)} values, but {width} names "
                    "in the header; quote values that contain a separator"
                )


def refuse_open_quote(path: Path, data: bytes, *, separator: str) -> None:
    """Raise if a quoted value never ends: it would swallow all later lines."""
    if data.count(b'"') % 2 == 0:
        return
    try:
        deque(_read_records(path, data, separator=separator, strict=True), maxlen=0)
    except csv.Error as error:
        if "end of data" not in str(error):
            return  # a quote inside a value, which is read as it stands
        records = _read_records(path, data, separator=separator)
        line = max(line for line, _ in records)
        raise InvalidInput(
            f"{path}, line {line}: a quote is opened and never closed; close it, or "
            "write a quote inside a value twice"
        ) from None


def _read_records(
    path: Path, data: bytes, *, separator: str, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a CSV file with its first line; the header comes first."""
    text = io.StringIO(read_text(path, data), newline="")
    reader, line = csv.reader(text, delimiter=separator, strict=strict), 1
    for record in reader:
        if record:
            yield line, record
        line = reader.line_num + 1


def _read_schema(path: Path, arrow: Any) -> Any:
    """Return the columns of a Parquet or Arrow file."""
    if not path.name.lower().endswith(ARROW_SUFFIXES):
        return arrow.parquet.read_schema(path)
    return arrow.feather.read_table(path, memory_map=True).schema


def _read_arrow(file: TableFile, names: list[str], *, as_text: list[bool]) -> Any:
    """Return the columns of a file that it spells like this."""
    arrow, path = file.arrow, file.path
    if file.data is None:
        if path.name.lower().endswith(ARROW_SUFFIXES):
            return arrow.feather.read_table(path, columns=names, memory_map=False)
        with arrow.parquet.ParquetFile(path) as opened:
            return opened.read(columns=names)
    text = [name for name, plain in zip(names, as_text, strict=True) if plain]
    options = arrow.csv.ConvertOptions(
        include_columns=names,
        column_types=dict.fromkeys(text, arrow.string()),
        null_values=sorted(MISSING_WORDS),
    )
    return arrow.csv.read_csv(
        arrow.BufferReader(file.data),
        **_set_csv_options(arrow, file.separator),
        convert_options=options,
    )


def _set_csv_options(arrow: Any, separator: str) -> dict[str, Any]:
    """Return how to read CSV: a quoted value may continue on the next line."""
    parse = arrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    return {
        "read_options": arrow.csv.ReadOptions(block_size=BLOCK_BYTES),
        "parse_options": parse,
    }
