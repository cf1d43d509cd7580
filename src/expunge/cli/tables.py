# SPDX-License-Identifier: Apache-2.0
"""Tables: rows to fit and ids to forget, from CSV and Parquet files.

Whatever could be misread is refused with file, column and line: text among numbers,
values that are missing or infinite, names given twice, ids that were written as floats.
Ids are text, normalised as in ``ids``: "007" stays "007". Nothing is encoded, filled in
or left out unasked.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Matrix, Vector
from ..exceptions import InvalidInput, MissingExtra
from ..private_model.subjects import objection, person

SUFFIXES = (".csv", ".csv.gz", ".parquet")
SHOWN_NAMES, SHOWN_CHARACTERS = 20, 40
BLOCK_BYTES = 1 << 22  # no line of a CSV file may be longer
# How pandas writes a row index that has no name.
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
NUMBER = re.compile(r"[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t]*")
MISSING = {"", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "null", "NULL", "<NA>"}
# Words that may be classes, but are nobody's id where a table tool wrote them.
MISSING_IDS = MISSING | {"None", "NaT"}

FILL = "fill it in, or remove the row"
ENCODE = (
    "encode the column as numbers, leave it out with --drop, or name it as --subject "
    "if it says whose rows these are"
)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows as an estimator takes them.

    Attributes
    ----------
    X
        Features, (n, d).
    y
        Targets (n,): integers, floats or words.
    subjects
        Whose row each is, where a column says so.
    features
        Names of the columns of X.
    weight
        What each row weighs, where a column says so.
    """

    X: Matrix
    y: NDArray[Any]
    subjects: list[str] | None
    features: tuple[str, ...]
    weight: Vector | None = None


def read_table(
    path: str | PathLike[str],
    target: str,
    subject: str | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
) -> Table:
    """Return the rows of a file. Every column that is not named here is a feature.

    Numbers and truth values (0 and 1) can be features. A target of integers becomes
    int64, of other numbers float64, and words stay words.

    Parameters
    ----------
    path
        A .csv (commas, header, UTF-8), .csv.gz or .parquet file.
    target, subject
        Columns of what to predict, and of whose row it is.
    drop
        Columns to leave out; they are not looked at.
    weight
        Column of what each row weighs.
    """
    source = _source(Path(path), SUFFIXES)
    words = [target] if subject is None else [target, subject]
    named = words if weight is None else [*words, weight]
    apart = [*named, *drop]
    for name in apart:
        source.require(name)
    if len(set(apart)) < len(named) + len(set(drop)):
        raise InvalidInput(
            f"{source.path}: target {target!r}, subject {subject!r}, weight {weight!r} "
            f"and what is dropped, {_listed(drop)}, must be different columns"
        )
    features = tuple(name for name in source.names if name not in apart)
    for name in filter(INDEX.fullmatch, features):
        advice = "give it a name, or leave it out with --drop"
        raise source.fault(name, None, "an index or a column without a name", advice)
    if not features:
        raise InvalidInput(f"{source.path}: no column is left to learn from; drop less")
    columns = source.columns([*features, *named], words)
    X = np.empty((len(columns[target]), len(features)))
    for place, name in enumerate(features):
        X[:, place] = _numbers(source, name, columns[name], ENCODE)
    y = _targets(source, target, columns[target])
    subjects = None if subject is None else _ids(source, subject, columns[subject])
    weights = None if weight is None else _weights(source, weight, columns[weight])
    return Table(X, y, subjects, features, weights)


def read_ids(path: str | PathLike[str], column: str | None = None) -> list[str]:
    """Return the ids that a file lists, normalised and in order.

    A .txt file has an id on each line and no header; blank lines do not count. Other
    files have a header, and one column unless one is named. A header with a digit or
    an @ counts only when it is named: were it the first id of a list without header,
    somebody's request would be lost.

    Parameters
    ----------
    path
        A .txt, .csv, .csv.gz or .parquet file.
    column
        The column of ids; None where there is only one.
    """
    place = Path(path)
    if place.suffix.lower() == ".txt":
        return _lines(place, column)
    source = _source(place, (".txt", *SUFFIXES))
    name = _only(source) if column is None else column
    source.require(name)
    return _ids(source, name, source.columns([name], [name])[name])


@dataclass(frozen=True, slots=True)
class _Source:
    """A CSV or Parquet file and the names of its columns."""

    path: Path
    names: list[str]
    arrow: Any

    def require(self, name: str) -> None:
        """Refuse a column that the file does not have."""
        if name in self.names:
            return
        close = get_close_matches(name, self.names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidInput(
            f"{self.path}: no column {name!r}; {hint}its columns are "
            f"{_listed(self.names)}"
        )

    def columns(self, names: list[str], words: list[str]) -> dict[str, Any]:
        """Return columns by name; of a CSV file, those in ``words`` as text."""
        for name in names:
            if self.names.count(name) > 1:
                advice = "give each a name of its own, or leave them out with --drop"
                raise self.fault(name, None, "more than one has this name", advice)
        with _readable(self.path, self.arrow):
            if _is_parquet(self.path):
                with self.arrow.parquet.ParquetFile(self.path) as file:
                    table = file.read(columns=names)
            else:
                options = self.arrow.csv.ConvertOptions(
                    include_columns=names,
                    column_types=dict.fromkeys(words, self.arrow.string()),
                )
                with _stream(self.path, self.arrow) as stream:
                    table = self.arrow.csv.read_csv(
                        stream, **_options(self.arrow), convert_options=options
                    )
        if table.num_rows == 0:
            raise InvalidInput(f"{self.path} has no rows; give a file that has some")
        return {name: _decoded(self.arrow, table[name]) for name in names}

    def fault(self, name: str, row: int | None, what: str, advice: str) -> InvalidInput:
        """Return the refusal of a column for what is in a row of it."""
        place = f"{self.path}, column {name!r}"
        if row is not None:
            place += f", {_where(self.path, row)}"
        return InvalidInput(f"{place}: {what}; {advice}")


def _source(path: Path, suffixes: Sequence[str]) -> _Source:
    """Return a file by the names of its columns."""
    if not path.name.lower().endswith(tuple(suffixes)):
        raise InvalidInput(
            f"{path} ends in {path.suffix!r}; give a {', '.join(suffixes)} file"
        )
    _require_file(path)
    arrow = _arrow()
    with _readable(path, arrow):
        if _is_parquet(path):
            names = arrow.parquet.read_schema(path).names
        else:
            with _stream(path, arrow) as stream:
                names = arrow.csv.open_csv(stream, **_options(arrow)).schema.names
    return _Source(path, names, arrow)


def _numbers(source: _Source, name: str, column: Any, advice: str) -> Any:
    """Return a column as finite floats."""
    kind, types = column.type, source.arrow.types
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    if not (types.is_null(kind) or any(known(kind) for known in numeric)):
        raise _text_fault(source, name, column, advice)
    values = column.cast(source.arrow.float64(), safe=False)
    numbers = values.to_numpy(zero_copy_only=False)
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        infinite = np.isinf(numbers[row])
        what = "an infinite number" if infinite else "a value is missing"
        raise source.fault(name, row, what, FILL)
    return numbers


def _weights(source: _Source, name: str, column: Any) -> Vector:
    """Return a column as weights: finite, and not negative."""
    weights: Vector = _numbers(source, name, column, "give numbers as weights")
    negative = weights < 0.0
    if negative.any():
        row = int(np.argmax(negative))
        raise source.fault(name, row, "a negative weight", "give zero or more")
    return weights


def _text_fault(source: _Source, name: str, column: Any, advice: str) -> InvalidInput:
    """Return the refusal of a column for its first value that is no number."""
    if source.arrow.types.is_binary(column.type) and not _is_parquet(source.path):
        _text(source.path)  # as text it was refused already; this says where
    for row, value in enumerate(column.to_pylist()):
        if value is None or str(value).strip() in MISSING:
            return source.fault(name, row, "a value is missing", FILL)
        if not NUMBER.fullmatch(str(value)):
            return source.fault(name, row, "it is not a number", advice)
    return source.fault(name, None, f"its numbers are {column.type}", advice)


def _targets(source: _Source, name: str, column: Any) -> NDArray[Any]:
    """Return what to predict: integers, floats or words."""
    types = source.arrow.types
    if _is_text(types, column.type):
        words = column.to_pylist()
        for row, word in enumerate(words):
            if word is None or word.strip() in MISSING:
                raise source.fault(name, row, "a value is missing", FILL)
        read = None if _is_parquet(source.path) else _as_numbers(source.arrow, column)
        if read is None:
            return np.array(words, dtype=np.str_)
        column = read
    numbers = _numbers(source, name, column, "give numbers or words to predict")
    if types.is_integer(column.type) or types.is_boolean(column.type):
        with suppress(source.arrow.ArrowInvalid):  # beyond 64 bits they stay floats
            return np.asarray(column.cast(source.arrow.int64()).to_numpy())
    return np.array(numbers, dtype=np.float64)


def _as_numbers(arrow: Any, column: Any) -> Any:
    """Return text as integers, floats or truth values; None if it is none of them."""
    trimmed = arrow.compute.utf8_trim_whitespace(column)
    for kind in (arrow.int64(), arrow.float64(), arrow.bool_()):
        with suppress(arrow.ArrowInvalid):
            return trimmed.cast(kind)
    return None


def _ids(source: _Source, name: str, column: Any) -> list[str]:
    """Return a column of ids as text."""
    types = source.arrow.types
    if types.is_integer(column.type):
        column = column.cast(source.arrow.string())
    if not _is_text(types, column.type):
        raise source.fault(
            name, None, f"ids are stored as {column.type}", "store text or integers"
        )
    ids: list[str | None] = column.to_pylist()
    for row, one in enumerate(ids):
        reason = objection(one)
        if reason is not None:
            raise source.fault(name, row, *reason.split("; "))
    words = [person(one) for one in ids]
    for row, word in enumerate(words):
        if word in MISSING_IDS:
            raise source.fault(name, row, "it reads like a missing value", FILL)
    if not _is_parquet(source.path):  # there a column says of what type it is
        _require_no_floats(source, name, words)
    return words


def _require_no_floats(source: _Source, name: str, ids: list[str]) -> None:
    """Refuse ids that were integers once: "1003.0" is not the person "1003"."""
    numbers = [NUMBER.fullmatch(one) is not None for one in ids]
    # "12e4" may be hexadecimal, unless all the others are numbers too.
    sign = r"[.eE]" if all(numbers) else r"\.|[eE][-+]"
    for row, one in enumerate(ids):
        if numbers[row] and re.search(sign, one):
            advice = "write integers; text that must look so fits in a Parquet file"
            raise source.fault(name, row, "the id is written as a float", advice)


def _lines(path: Path, column: str | None) -> list[str]:
    """Return the lines of a text file as ids."""
    if column is not None:
        raise InvalidInput(f"{path} has no columns; leave the name {column!r} out")
    _require_file(path)
    ids = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        reason = objection(line)
        if reason is not None:
            raise InvalidInput(f"{path}, line {number}: {reason}")
        ids.append(person(line))
    if not ids:
        raise InvalidInput(f"{path} lists no ids; write one on each line")
    return ids


def _only(source: _Source) -> str:
    """Return the name of the only column, if it can be no id."""
    if len(source.names) != 1:
        raise InvalidInput(
            f"{source.path} has {len(source.names)} columns, {_listed(source.names)}; "
            "say with --column which of them holds the ids"
        )
    name = source.names[0]
    if not _is_parquet(source.path) and re.search(r"[\d@]", name):
        raise InvalidInput(
            f"{source.path} begins with {_glimpse(name)}, which may be a header or an "
            "id; say --column if it is the header, or list ids without one in a .txt"
        )
    return name


@contextmanager
def _readable(path: Path, arrow: Any) -> Iterator[None]:
    """Say of a file that cannot be read why, and where."""
    try:
        yield
    except (arrow.ArrowException, UnicodeError, OSError) as error:
        if not _is_parquet(path):
            _require_even(path)
        raise InvalidInput(
            f"{path} cannot be read ({_glimpse(error, 200)}); write it anew"
        ) from error


def _require_even(path: Path) -> None:
    """Refuse a CSV file by its first line that is not UTF-8, too long or too short."""
    width = 0
    with suppress(OSError, EOFError, zlib.error, csv.Error):
        for line, record in _records(path):
            width = width or len(record)
            if len(record) != width:
                raise InvalidInput(
                    f"{path}, line {line}: {len(record)} values, and {width} names in "
                    "the header; put values that hold a comma between quotes"
                )


def _where(path: Path, row: int) -> str:
    """Return where a row is: its line, blank and broken ones counted."""
    if not _is_parquet(path):
        with suppress(csv.Error):  # a value too long for the slower reader
            for place, (line, _) in enumerate(_records(path), start=-1):
                if place == row:
                    return f"line {line}"
    return f"row {row + 1}"


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a CSV file, the header first, with the line it begins on."""
    reader, line = csv.reader(io.StringIO(_text(path), newline="")), 1
    for record in reader:
        if record:
            yield line, record
        line = reader.line_num + 1


def _text(path: Path) -> str:
    """Return a file as text, or refuse it by its first line that is not UTF-8."""
    data = path.read_bytes()
    if _is_gzip(path):
        data = gzip.decompress(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{path}, line {line}: not UTF-8; save it as UTF-8"
        ) from None


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file; check the path")


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _stream(path: Path, arrow: Any) -> Any:
    """Return an open CSV file, to be used in a with statement."""
    return arrow.input_stream(str(path), compression="gzip" if _is_gzip(path) else None)


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _decoded(arrow: Any, column: Any) -> Any:
    """Return a column as plain values; a dictionary is a way to store them."""
    if arrow.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _options(arrow: Any) -> dict[str, Any]:
    """Return how to read CSV: a quoted value may go on in the next line."""
    return {
        "read_options": arrow.csv.ReadOptions(block_size=BLOCK_BYTES),
        "parse_options": arrow.csv.ParseOptions(newlines_in_values=True),
    }


def _listed(names: Sequence[str]) -> str:
    """Return names in quotes, not too many of them."""
    shown = ", ".join(repr(name) for name in names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _glimpse(value: object, length: int = SHOWN_CHARACTERS) -> str:
    """Return the beginning of a value in quotes."""
    text = str(value)
    return repr(text if len(text) <= length else f"{text[:length]}...")


def _arrow() -> Any:
    """Return the library that reads tables."""
    try:
        for part in ("compute", "csv", "parquet"):
            import_module(f"pyarrow.{part}")
    except ImportError as error:
        raise MissingExtra(
            "reading tables needs pyarrow, which is not installed; run "
            "pip install expunge[cli]"
        ) from error
    return import_module("pyarrow")
