# SPDX-License-Identifier: Apache-2.0
"""Spreadsheets: CSV in the encodings, and with the delimiters, that they write."""

import csv
import io

from ..exceptions import InvalidInput

DELIMITERS = ",;\t"


def decode_spreadsheet(data: bytes) -> str:
    """Return the text of a file that a spreadsheet wrote, in the encoding that it has.

    Without a mark and where it is not UTF-8 it is that of Windows in the west.
    """
    for begin, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(begin):
            return _decode(data, encoding)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _decode(data, "cp1252")


def _decode(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise InvalidInput(
            "the file is not text; save it as CSV UTF-8 and choose it again"
        ) from None


def read_table(text: str) -> "csv.DictReader[str]":
    """Return a reader of a CSV text, whatever delimiter and headings it has."""
    if text[:4].lower() == "sep=":
        text = text.partition("\n")[2]
    first = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)  # the comma, if there is none
    lines = io.StringIO(text, newline="")
    return csv.DictReader(lines, strict=True, delimiter=delimiter)
