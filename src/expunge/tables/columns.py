# SPDX-License-Identifier: Apache-2.0
"""Columns of a table: what they hold, as numbers, days since 1970, or words.

Text from a CSV file is trimmed, and what stands for a missing value is missing. What
could be misread is refused with its column and line. Errors do not quote values, which
may be somebody's.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..exceptions import InvalidInput
from .files import MISSING_WORDS, TableFile

NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
COMMA_NUMBER = r"[-+]?[0-9]*,[0-9]+"
# 1,234 may be a thousand or a little more than one.
DOUBTFUL_COMMA = r"[-+]?[0-9]{1,3},[0-9]{3}"
MISSING_CATEGORY = "missing"
"""The category of a value that is missing."""

REPLACE = "replace it, or remove the row"
VALUE_MISSING = "a value is missing"
FILL_IN = "fill it in, or remove the row"
STEPS_A_DAY = {"s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


class Content(StrEnum):
    """What a column holds."""

    integers = "integers"
    numbers = "numbers"
    booleans = "booleans"
    dates = "dates"
    text = "text"
    nothing = "nothing"
    other = "other"


@dataclass(frozen=True, slots=True, eq=False)
class TableColumn:
    """A column of a file: its name, its values, and the row that each stands in."""

    file: TableFile
    name: str
    values: Any
    rows: Index

    @classmethod
    def of(cls, file: TableFile, table: Any, *, name: str) -> "TableColumn":
        """Return a column of the pyarrow table that was read from a file."""
        values = table[name]
        if file.arrow.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return cls(file, name, values.combine_chunks(), np.arange(len(values)))

    @property
    def content(self) -> Content:
        """What the values are, by their type."""
        kind, types = self.values.type, self.file.arrow.types
        tests: list[tuple[Content, tuple[Callable[[Any], bool], ...]]] = [
            (Content.nothing, (types.is_null,)),
            (Content.integers, (types.is_integer,)),
            (Content.numbers, (types.is_floating, types.is_decimal)),
            (Content.booleans, (types.is_boolean,)),
            (Content.dates, (types.is_date, types.is_timestamp, types.is_time)),
            (Content.text, (types.is_string, types.is_large_string)),
        ]
        found = (what for what, each in tests if any(test(kind) for test in each))
        return next(found, Content.other)

    def take(self, keep: NDArray[np.bool]) -> "TableColumn":
        """Return some of the values, with the rows that they stand in."""
        values = self.values.filter(self.file.arrow.array(keep))
        return replace(self, values=values, rows=self.rows[keep])

    def clean(self, missing: frozenset[str] = MISSING_WORDS) -> "TableColumn":
        """Return text trimmed, without words for missing values; other types as is."""
        if self.content is not Content.text:
            return self
        compute, arrow = self.file.arrow.compute, self.file.arrow
        trimmed = compute.utf8_trim_whitespace(self.values)
        absent = arrow.array(sorted(missing), type=trimmed.type)
        gone = compute.is_in(trimmed, value_set=absent)
        none = arrow.scalar(None, type=trimmed.type)
        return replace(self, values=compute.if_else(gone, none, trimmed))

    def parse(self) -> "TableColumn":
        """Return clean text as integers, numbers, booleans or dates, if all of it is.

        The text of a file whose columns have types is text, whatever it looks like.
        """
        if self.content is not Content.text or not self.file.is_text:
            return self
        arrow, encoded = self.file.arrow, self.values.dictionary_encode()
        words = encoded.dictionary
        if not len(words):
            return replace(self, values=arrow.nulls(len(self.values)))
        kinds = (
            arrow.int64(),
            arrow.float64(),
            arrow.bool_(),
            arrow.timestamp("s"),
            arrow.timestamp("us", tz="UTC"),
        )
        for kind in kinds:
            with suppress(arrow.ArrowInvalid):
                words.slice(0, 1).cast(kind)  # most kinds fail here, and at once
                return replace(self, values=words.cast(kind).take(encoded.indices))
        parsed = self._parse_commas(words)
        if parsed is None:
            return self
        return replace(self, values=parsed.take(encoded.indices))

    def to_floats(self, advice: str) -> Vector:
        """Return numbers, days since 1970 or 0 and 1; NaN where one is missing."""
        content, arrow = self.content, self.file.arrow
        if content is Content.nothing:
            return np.full(len(self.values), np.nan)
        if content in (Content.text, Content.other):
            raise self._explain_text(advice)
        if content is Content.dates:
            return self._to_days()
        floats = self.values.cast(arrow.float64(), safe=False)
        numbers: Vector = floats.to_numpy(zero_copy_only=False)
        infinite = np.isinf(numbers)
        if infinite.any():
            raise self.make_error("an infinite number", at=infinite, advice=REPLACE)
        return numbers

    def to_words(self) -> Any:
        """Return the values as categories: text, with a word for missing values."""
        arrow = self.file.arrow
        if self.content is Content.other:
            what = f"it holds {self.values.type}"
            raise self.make_error(what, advice="store text, or leave it out")
        words = self.values.cast(arrow.string())
        return words.fill_null(MISSING_CATEGORY)

    def to_texts(self) -> Any:
        """Return the values as text; a missing one is empty."""
        if self.content is Content.other:
            what = f"it holds {self.values.type}"
            raise self.make_error(what, advice="store text, or leave it out")
        return self.values.cast(self.file.arrow.string()).fill_null("")

    def find_missing(self) -> NDArray[np.bool]:
        """Return which values are missing."""
        absent = self.values.is_null(nan_is_null=True)
        return np.asarray(absent.to_numpy(zero_copy_only=False), dtype=bool)

    def to_codes(self) -> tuple[Index, int]:
        """Return a code for each value, -1 if it is missing, and how many there are."""
        encoded = self.values.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes.astype(np.intp), len(encoded.dictionary)

    def _parse_commas(self, words: Any) -> Any:
        """Return numbers with decimal commas, where commas separate nothing."""
        compute, arrow = self.file.arrow.compute, self.file.arrow
        if self.file.separator == ",":
            return None
        pattern = f"^(?:{COMMA_NUMBER}|{NUMBER})$"
        if not compute.all(compute.match_substring_regex(words, pattern)).as_py():
            return None
        with_comma = words.filter(compute.match_substring(words, ","))
        doubtful = compute.match_substring_regex(with_comma, f"^{DOUBTFUL_COMMA}$")
        if compute.all(doubtful).as_py():
            what = "its commas may separate decimals or thousands"
            raise self.make_error(what, advice="write 1.5 and 1000, without commas")
        pointed = compute.replace_substring(words, ",", ".")
        return pointed.cast(arrow.float64())

    def _to_days(self) -> Vector:
        """Return dates and times as days since 1970, a time of day as part of one."""
        arrow, kind = self.file.arrow, self.values.type
        if arrow.types.is_date32(kind):
            steps, a_day = self.values.cast(arrow.int32()), 1.0
        else:
            unit = "ms" if arrow.types.is_date64(kind) else kind.unit
            wide = arrow.int32() if kind.bit_width == 32 else arrow.int64()
            steps, a_day = self.values.cast(wide), STEPS_A_DAY[unit]
        floats = steps.cast(arrow.float64(), safe=False)
        days: Vector = floats.to_numpy(zero_copy_only=False) / a_day
        return days

    def match(self, pattern: str) -> NDArray[np.bool]:
        """Return which values of text match a pattern from end to end."""
        encoded = self.values.dictionary_encode()
        compute = self.file.arrow.compute
        matches = compute.match_substring_regex(encoded.dictionary, f"^(?:{pattern})$")
        found = matches.take(encoded.indices).fill_null(False)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)

    def _explain_text(self, advice: str) -> InvalidInput:
        """Return the error about values that are not numbers."""
        if self.content is Content.other:
            return self.make_error(f"it holds {self.values.type}", advice=advice)
        odd = ~self.match(NUMBER) & ~self.find_missing()
        if not odd.any():
            return self.make_error("its numbers are stored as text", advice=advice)
        return self.make_error("it is not a number", at=odd, advice=advice)

    def make_error(
        self, what: str, *, advice: str, at: NDArray[np.bool] | None = None
    ) -> InvalidInput:
        """Return the error about the column, or about the values ``at`` some places."""
        rows = () if at is None else self.rows[at].tolist()
        return self.file.make_error(self.name, what, advice=advice, rows=rows)
