# SPDX-License-Identifier: Apache-2.0
"""Batches: many requests in one text, a line of NDJSON or CSV for each.

CSV is read as spreadsheets write it (``spreadsheets``), with headings in any case, and
with empty lines below.
"""

import csv
import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ..core.values import refuse_duplicates
from ..exceptions import InvalidInput
from .documents import RequestIn
from .problems import explain_field, name_field
from .spreadsheets import read_table

NDJSON, CSV = "application/x-ndjson", "text/csv"
MEDIA_TYPES = (NDJSON, CSV)
MOST_LINES = 10_000
# Every other column is a kind of identifier.
OWN_COLUMNS = ("id", "right", "regime", "submitted", "reason", "until", "reference")
CODES = ("right", "regime", "reason")  # which are lower case, whatever was typed
PERSON = "person"  # in CSV the column of the id that models know
HEADINGS = {"e-mail": "email", "mail": "email", "telephone": "phone"}
"""Usual headings of columns, and the kinds that they mean."""


def read_batch(body: bytes, media_type: str) -> list[RequestIn]:
    """Return the requests of a batch; refuse all if one line is wrong."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("the batch is not UTF-8; encode it as UTF-8") from None
    lines = _read_csv(text) if media_type == CSV else _read_ndjson(text)
    found: list[RequestIn] = []
    for number, fields in lines:
        if len(found) == MOST_LINES:
            raise InvalidInput(
                f"more than {MOST_LINES} lines; send several batches, each complete"
            )
        found.append(_read_line(number, fields))
    if not found:
        raise InvalidInput("the batch has no line; send at least one request")
    return found


def _read_ndjson(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line, object_pairs_hook=refuse_duplicates)
            except (ValueError, RecursionError):
                raise InvalidInput(
                    f"line {number} is not JSON, or has a field twice"
                ) from None


def _read_csv(text: str) -> Iterator[tuple[int, Any]]:
    reader = read_table(text)
    try:
        headings = [_fold(one) for one in reader.fieldnames or ()]
        if len({*headings}) < len(headings):
            raise InvalidInput(
                "two columns have the same name; give each kind of identifier one"
            )
        reader.fieldnames = headings
        for fields in reader:
            if any(fields.values()):  # spreadsheets write empty lines, too
                yield reader.line_num, _name_fields(fields, reader.line_num)
    except csv.Error:
        raise InvalidInput(f"line {reader.line_num} is not CSV") from None


def _fold(heading: str) -> str:
    """Return the heading of a column as a kind of identifier is spelled."""
    name = heading.strip().casefold()
    return HEADINGS.get(name, name)


def _name_fields(fields: dict[Any, Any], number: int) -> dict[str, Any]:
    """Return a line of CSV as a request."""
    if None in fields or None in fields.values():
        raise InvalidInput(
            f"line {number} does not have as many fields as the first line"
        )
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
    given |= {name: given[name].casefold() for name in CODES if name in given}
    person = {
        "id" if name == PERSON else name: value
        for name, value in given.items()
        if name not in OWN_COLUMNS
    }
    own = {name: given[name] for name in OWN_COLUMNS if name in given}
    return {**own, "people": [person]}


def _read_line(number: int, fields: Any) -> RequestIn:
    try:
        return RequestIn.model_validate(fields)
    except ValidationError as error:
        first = dict(error.errors()[0])
        where = name_field(first) or "the line"
        reason = explain_field(first)
        raise InvalidInput(f"line {number}: {where}: {reason}") from None
