# SPDX-License-Identifier: Apache-2.0
"""Read tables: rows to fit and ids to forget, from CSV and Parquet files.

Whatever could be misread is refused with its file, column and line: text among numbers,
values that are missing or infinite, repeated column names, ids written as floats. Ids
are text and are normalised, so "007" stays "007". Nothing is encoded, filled in or left
out unless you ask for it.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Matrix, Vector
from ..exceptions import InvalidInput
from ..private_model.subjects import objection, person
from .common import format_names, import_arrow, shorten

SUFFIXES = (".csv", ".csv.gz", ".parquet")
N_SHOWN_ROWS = 10
BLOCK_BYTES = 1 << 22  # no line of a CSV file may be longer
# How pandas writes an unnamed row index.
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
NUMBER = re.compile(r"[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t]*")
MISSING = {"", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "null", "NULL", "<NA>"}
# May be classes, but as ids they were written by a table tool for a missing value.
MISSING_IDS = MISSING | {"None", "NaT"}

# What else programs write between values, above all where numbers have commas.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}

VALUE_MISSING = "a value is missing"
FILL_IN = "fill it in, or remove the row"
REPLACE = "replace it, or remove the row"
ENCODE = (
    "encode the column as numbers, leave it out with --drop, or give it as --subject "
    "if it holds ids of people"
)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingTable:
    """Training data as an estimator takes them.

    Attributes
    ----------
    X
        Features, (n, d).
    y
        Targets (n,): integers, floats or words.
    subjects
        Whose row each one is, if a column says so.
    features
        Names of the columns of X.
    weight
        Weight of each row, if a column gives it.
    """

    X: Matrix
    y: NDArray[Any]
    subjects: list[str] | None
    features: tuple[str, ...]
    weight: Vector | None = None


def read_table(
    path: str | PathLike[str],
    target: str,
    *,
    subject: str | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
) -> TrainingTable:
    """Return the rows of a file; every column not named here is a feature.

    Features are numbers or booleans (0 and 1). A target of integers becomes int64, of
    other numbers float64, and words stay words.

    Parameters
    ----------
    path
        A .csv (commas, header, UTF-8), .csv.gz or .parquet file.
    target, subject
        Columns of the target and of the ids.
    drop
        Columns to leave out; they are not read.
    weight
        Column of the weights.
    """
    source = _open_table(Path(path), SUFFIXES)
    words = [target] if subject is None else [target, subject]
    named = words if weight is None else [*words, weight]
    apart = [*named, *drop]
    for name in apart:
        source.require_column(name)
    for name in named:
        if apart.count(name) > 1:
            raise InvalidInput(
                f"{source.path}: column {name!r} is used twice; give different columns "
                "as target, subject and weight, and drop none of them"
            )
    features = tuple(name for name in source.names if name not in apart)
    for name in filter(INDEX.fullmatch, features):
        advice = "give it a name, or leave it out with --drop"
        raise source.make_error(name, "an index or an unnamed column", advice=advice)
    if not features:
        raise InvalidInput(f"{source.path}: no column is left as a feature; drop fewer")
    columns = source.read_columns([*features, *named], words)
    X = np.empty((len(columns[target].values), len(features)))
    for place, name in enumerate(features):
        X[:, place] = columns[name].to_numbers(ENCODE)
    y = columns[target].to_targets()
    subjects = None if subject is None else columns[subject].to_ids()
    weights = None if weight is None else columns[weight].to_weights()
    return TrainingTable(X, y, subjects, features, weights)


def read_ids(path: str | PathLike[str], column: str | None = None) -> list[str]:
    """Return the ids listed in a file, normalised and in order.

    A .txt file has one id per line and no header; blank lines are skipped. Other files
    have a header, and a single column unless you name one. A header that contains a
    digit or an @ must be named: it could be the first id of a list without a header,
    and that person's request would be lost.

    Parameters
    ----------
    path
        A .txt, .csv, .csv.gz or .parquet file.
    column
        The column of ids; None if there is only one.
    """
    place = Path(path)
    if place.suffix.lower() == ".txt":
        return _read_lines(place, column)
    source = _open_table(place, (".txt", *SUFFIXES))
    name = _find_only_column(source) if column is None else column
    source.require_column(name)
    return source.read_columns([name], [name])[name].to_ids()


@dataclass(frozen=True, slots=True)
class _TableFile:
    """A CSV or Parquet file, and the names of its columns."""

    path: Path
    names: list[str]
    arrow: Any

    @property
    def is_parquet(self) -> bool:
        """Whether columns have types of their own."""
        return _is_parquet(self.path)

    def require_column(self, name: str) -> None:
        """Raise if the file does not have this column."""
        if name in self.names:
            return
        if not self.is_parquet:
            _refuse_separator(self.path, self.names)
        close = get_close_matches(name, self.names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidInput(
            f"{self.path}: no column {name!r}; {hint}its columns are "
            f"{format_names(self.names)}"
        )

    def read_columns(self, names: list[str], words: list[str]) -> "dict[str, _Column]":
        """Return columns by name; those in ``words`` of a CSV file as text."""
        for name in names:
            if self.names.count(name) > 1:
                advice = "give them different names, or leave them out with --drop"
                what = "several columns have this name"
                raise self.make_error(name, what, advice=advice)
        with _explain_unreadable(self.path, self.arrow):
            if self.is_parquet:
                with self.arrow.parquet.ParquetFile(self.path) as file:
                    table = file.read(columns=names)
            else:
                options = self.arrow.csv.ConvertOptions(
                    include_columns=names,
                    column_types=dict.fromkeys(words, self.arrow.string()),
                )
                with _open_stream(self.path, self.arrow) as stream:
                    table = self.arrow.csv.read_csv(
                        stream, **_set_csv_options(self.arrow), convert_options=options
                    )
        if table.num_rows == 0:
            raise InvalidInput(f"{self.path} has no rows; give a file with rows")
        return {
            name: _Column(self, name, _decode(self.arrow, table[name]))
            for name in names
        }

    def make_error(
        self, name: str, what: str, *, advice: str, row: int | None = None
    ) -> InvalidInput:
        """Return the error about a column, or about one of its rows."""
        place = f"{self.path}, column {name!r}"
        if row is not None:
            place += f", {locate_rows(self.path, [row])}"
        return InvalidInput(f"{place}: {what}; {advice}")


def _open_table(path: Path, suffixes: Sequence[str]) -> _TableFile:
    """Open a file and read the names of its columns."""
    if not path.name.lower().endswith(tuple(suffixes)):
        raise InvalidInput(
            f"{path} ends in {path.suffix!r}; give a {', '.join(suffixes)} file"
        )
    _require_file(path)
    arrow = import_arrow()
    with _explain_unreadable(path, arrow):
        if _is_parquet(path):
            names = arrow.parquet.read_schema(path).names
        else:
            with _open_stream(path, arrow) as stream:
                reader = arrow.csv.open_csv(stream, **_set_csv_options(arrow))
                names = reader.schema.names
    return _TableFile(path, names, arrow)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file: its name, and its values as pyarrow read them."""

    file: _TableFile
    name: str
    values: Any

    def is_text(self) -> bool:
        """Return whether the values are text."""
        types, kind = self.file.arrow.types, self.values.type
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def to_numbers(self, advice: str) -> Any:
        """Return the values as finite floats."""
        kind, types = self.values.type, self.file.arrow.types
        is_number = types.is_integer(kind) or types.is_floating(kind)
        is_number = is_number or types.is_decimal(kind) or types.is_boolean(kind)
        if not (is_number or types.is_null(kind)):
            raise self._explain_text(advice)
        values = self.values.cast(self.file.arrow.float64(), safe=False)
        numbers = values.to_numpy(zero_copy_only=False)
        finite = np.isfinite(numbers)
        if not finite.all():
            row = int(np.argmin(finite))
            infinite = np.isinf(numbers[row])
            what = "an infinite number" if infinite else VALUE_MISSING
            advice = REPLACE if infinite else FILL_IN
            raise self._make_error(what, row=row, advice=advice)
        return numbers

    def to_weights(self) -> Vector:
        """Return the values as weights: finite and not negative."""
        weights: Vector = self.to_numbers("give numbers as weights")
        negative = weights < 0.0
        if negative.any():
            row = int(np.argmax(negative))
            advice = "give zero or more"
            raise self._make_error("a negative weight", row=row, advice=advice)
        return weights

    def to_targets(self) -> NDArray[Any]:
        """Return the values as targets: integers, floats or words."""
        arrow, column = self.file.arrow, self
        if self.is_text():
            words = self.values.to_pylist()
            for row, word in enumerate(words):
                if word is None or word.strip() in MISSING:
                    raise self._make_error(VALUE_MISSING, row=row, advice=FILL_IN)
            # In a Parquet file text is text, though it may look like numbers.
            parsed = None
            if not self.file.is_parquet:
                parsed = _parse_numbers(arrow, self.values)
            if parsed is None:
                return np.array(words, dtype=np.str_)
            column = replace(self, values=parsed)
        numbers = column.to_numbers("give numbers or words to predict")
        kind = column.values.type
        if arrow.types.is_integer(kind) or arrow.types.is_boolean(kind):
            with suppress(arrow.ArrowInvalid):  # integers beyond 64 bits stay floats
                return np.asarray(column.values.cast(arrow.int64()).to_numpy())
        return np.array(numbers, dtype=np.float64)

    def to_ids(self) -> list[str]:
        """Return the values as normalised ids."""
        arrow, column = self.file.arrow, self
        if arrow.types.is_integer(self.values.type):
            column = replace(self, values=self.values.cast(arrow.string()))
        if not column.is_text():
            what = f"ids are stored as {self.values.type}"
            raise self._make_error(what, advice="store text or integers")
        ids = []
        for row, one in enumerate(column.values.to_pylist()):
            reason = objection(one)
            if reason is not None:
                what, advice = reason.split("; ")
                raise self._make_error(what, row=row, advice=advice)
            ids.append(person(one))
            if ids[-1] in MISSING_IDS:
                what = "it looks like a missing value"
                raise self._make_error(what, row=row, advice=FILL_IN)
        if not self.file.is_parquet:
            self._refuse_floats(ids)
        return ids

    def _refuse_floats(self, ids: list[str]) -> None:
        """Raise if ids were integers once: "1003.0" is not the person "1003"."""
        numbers = [NUMBER.fullmatch(one) is not None for one in ids]
        # "12e4" may be hexadecimal, unless all other ids are numbers too.
        sign = r"[.eE]" if all(numbers) else r"\.|[eE][-+]"
        for row, one in enumerate(ids):
            if numbers[row] and re.search(sign, one):
                what = "the id is written as a float"
                advice = "write integers, or use a Parquet file if ids look like this"
                raise self._make_error(what, row=row, advice=advice)

    def _explain_text(self, advice: str) -> InvalidInput:
        """Return the error about the first value that is not a number."""
        file, kind = self.file, self.values.type
        if file.arrow.types.is_binary(kind) and not file.is_parquet:
            _read_text(file.path)  # raises with the line that is not UTF-8
        for row, value in enumerate(self.values.to_pylist()):
            if value is None or str(value).strip() in MISSING:
                return self._make_error(VALUE_MISSING, row=row, advice=FILL_IN)
            if not NUMBER.fullmatch(str(value)):
                return self._make_error("it is not a number", row=row, advice=advice)
        return self._make_error(f"its numbers are {kind}", advice=advice)

    def _make_error(self, what: str, **where: Any) -> InvalidInput:
        return self.file.make_error(self.name, what, **where)


def _parse_numbers(arrow: Any, values: Any) -> Any:
    """Return text as integers, floats or booleans; None if it is none of them."""
    trimmed = arrow.compute.utf8_trim_whitespace(values)
    for kind in (arrow.int64(), arrow.float64(), arrow.bool_()):
        with suppress(arrow.ArrowInvalid):
            return trimmed.cast(kind)
    return None


def _read_lines(path: Path, column: str | None) -> list[str]:
    """Return the lines of a text file as ids."""
    if column is not None:
        raise InvalidInput(f"{path} has no columns; omit --column {column!r}")
    _require_file(path)
    ids = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        reason = objection(line)
        if reason is not None:
            raise InvalidInput(f"{path}, line {number}: {reason}")
        ids.append(person(line))
    if not ids:
        raise InvalidInput(f"{path} lists no ids; write one per line")
    return ids


def _find_only_column(source: _TableFile) -> str:
    """Return the name of the only column, if it cannot be an id."""
    if len(source.names) != 1:
        raise InvalidInput(
            f"{source.path} has several columns, {format_names(source.names)}; say "
            "with --column which one holds the ids"
        )
    name = source.names[0]
    if source.is_parquet:
        return name
    _refuse_separator(source.path, source.names)
    if re.search(r"[\d@]", name):
        raise InvalidInput(
            f"{source.path} starts with {shorten(name)}, which may be a header or an "
            "id; give --column if it is the header, or use a .txt file without one"
        )
    return name


@contextmanager
def _explain_unreadable(path: Path, arrow: Any) -> Iterator[None]:
    """Turn a failure to read a file into an error that says why, and where."""
    try:
        yield
    except (arrow.ArrowException, UnicodeError, OSError) as error:
        if not _is_parquet(path):
            _refuse_uneven_lines(path)
        raise InvalidInput(
            f"{path} cannot be read ({shorten(error, 200)}); write it again"
        ) from error


def _refuse_uneven_lines(path: Path) -> None:
    """Raise at the first line of a CSV file with too many or too few values."""
    width = 0
    with suppress(OSError, EOFError, zlib.error, csv.Error):
        for line, record in _read_records(path):
            if not width:
                _refuse_separator(path, record)
            width = width or len(record)
            if len(record) != width:
                raise InvalidInput(
                    f"{path}, line {line}: {len(record)} values, but {width} names "
                    "in the header; quote values that contain a comma"
                )


def _refuse_separator(path: Path, names: list[str]) -> None:
    """Raise if the header of a CSV file is one name that holds another separator."""
    if len(names) != 1 or "," in names[0]:
        return
    for separator, word in SEPARATORS.items():
        if separator in names[0]:
            raise InvalidInput(
                f"{path}: the first line holds {word} and no commas; save the "
                "file with commas between the values, and points in numbers"
            )


def locate_rows(path: Path, rows: Sequence[int]) -> str:
    """Return where rows are, the first few of them: their lines in a CSV file."""
    shown = rows[:N_SHOWN_ROWS]
    noun, places = "row", [row + 1 for row in shown]
    if not _is_parquet(path):
        with suppress(csv.Error):  # a value is too long for this slower reader
            records = enumerate(_read_records(path), start=-1)
            noun, places = "line", [line for row, (line, _) in records if row in shown]
    more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    said = ", ".join(map(str, places))
    return f"{noun}{'s' if len(rows) > 1 else ''} {said}{more}"


def _read_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record of a CSV file with its first line; the header comes first."""
    reader, line = csv.reader(io.StringIO(_read_text(path), newline="")), 1
    for record in reader:
        if record:
            yield line, record
        line = reader.line_num + 1


def _read_text(path: Path) -> str:
    """Return a file as text; raise at the first line that is not UTF-8."""
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


def _open_stream(path: Path, arrow: Any) -> Any:
    """Return an open CSV file, for use in a with statement."""
    return arrow.input_stream(str(path), compression="gzip" if _is_gzip(path) else None)


def _decode(arrow: Any, column: Any) -> Any:
    """Return a column as plain values, whether or not it was dictionary-encoded."""
    if arrow.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _set_csv_options(arrow: Any) -> dict[str, Any]:
    """Return how to read CSV: a quoted value may continue on the next line."""
    return {
        "read_options": arrow.csv.ReadOptions(block_size=BLOCK_BYTES),
        "parse_options": arrow.csv.ParseOptions(newlines_in_values=True),
    }
