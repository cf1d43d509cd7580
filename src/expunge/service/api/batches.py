# SPDX-License-Identifier: Apache-2.0
"""Batches: many requests in one call, a line of NDJSON or CSV for each."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ...core.values import refuse_duplicates
from ...exceptions import InvalidInput
from ..problems import explain_field, name_field
from .documents import RequestIn

NDJSON, CSV = "application/x-ndjson", "text/csv"
MEDIA_TYPES = (NDJSON, CSV)
MOST_LINES = 10_000
# Every other column is a kind of identifier.
OWN_COLUMNS = ("id", "right", "regime", "submitted", "reason", "until")
PERSON = "person"  # in CSV the column of the id that models know


def read_batch(body: bytes, media_type: str) -> list[RequestIn]:
    """Return the requests of a batch; refuse all if one line is wrong."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("the batch is not UTF-8; encode it so") from None
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
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = reader.fieldnames or ()
        if len({*columns}) < len(columns):
            raise InvalidInput(
                "two columns have one name; give each kind of identifier one column"
            )
        for fields in reader:
            yield reader.line_num, _name_fields(fields, reader.line_num)
    except csv.Error:
        raise InvalidInput(f"line {reader.line_num} is not CSV") from None


def _name_fields(fields: dict[Any, Any], number: int) -> dict[str, Any]:
    """Return a line of CSV as a request."""
    if None in fields or None in fields.values():
        raise InvalidInput(f"line {number} has not as many fields as the first line")
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
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
