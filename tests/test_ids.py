# SPDX-License-Identifier: Apache-2.0
"""Ids: one person has one spelling, and what is missing is nobody."""

import datetime
import sys
import unicodedata
import uuid
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.private_model.subjects import (
    is_row_name,
    objection,
    people,
    person,
    row_name,
)
from expunge.rights.identifiers import LONGEST, is_plain, spell, word_objection

pa: Any = import_module("pyarrow")  # it ships no types
COMPOSED, DECOMPOSED = "Zo\u00eb", "Zoe\u0308"


class Name(str, Enum):  # noqa: UP042 - whose str() is not its text
    ADA = "Ada"


class Number(IntEnum):
    SEVEN = 7


class TestPerson:
    @pytest.mark.parametrize(
        ("subject", "word"),
        [
            ("Ada", "Ada"),
            (" Ada\t\r\n", "Ada"),
            ("\u00a0Ada\u3000", "Ada"),
            ("Ada Lovelace", "Ada Lovelace"),
            (COMPOSED, COMPOSED),
            (DECOMPOSED, COMPOSED),
            ("\u212b", "\u00c5"),
            ("007", "007"),
            ("nan", "nan"),
            ("None", "None"),
            ("1003.0", "1003.0"),
            (Name.ADA, "Ada"),
            (np.str_(" Ada "), "Ada"),
            (1003, "1003"),
            (-3, "-3"),
            (Number.SEVEN, "7"),
            (np.int64(1003), "1003"),
            (np.uint8(3), "3"),
            (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
            (pa.scalar(" Ada"), "Ada"),
            (pa.scalar(7), "7"),
        ],
    )
    def test_has_one_spelling(self, subject: object, word: str) -> None:
        assert person(subject) == word
        assert type(person(subject)) is str

    @pytest.mark.parametrize(
        "subject",
        [
            None,
            float("nan"),
            np.float64("nan"),
            np.float32("nan"),
            np.datetime64("NaT", "D"),
            np.timedelta64("NaT", "D"),
            pd.NA,
            pd.NaT,
            Decimal("nan"),
            Decimal("sNaN"),
            pa.scalar(None),
            pa.scalar(None, pa.string()),
        ],
        ids=repr,
    )
    def test_is_not_missing(self, subject: object) -> None:
        with pytest.raises(InvalidInput, match=r"it is missing; fill it in"):
            person(subject)

    @pytest.mark.parametrize(
        "subject",
        [1003.0, np.float32(3), np.float64(3), Decimal(3), Fraction(3, 2), 3 + 0j],
        ids=repr,
    )
    def test_is_no_float(self, subject: object) -> None:
        with pytest.raises(InvalidInput, match="convert it to int or str") as refused:
            person(subject)
        assert repr(subject) in str(refused.value)

    @pytest.mark.parametrize(
        ("subject", "advice"),
        [
            (True, "mask"),
            (np.False_, "mask"),
            (b"Ada", "decode"),
            (np.bytes_(b"Ada"), "decode"),
            (["Ada"], "one string or integer"),
            (("Ada", 7), "one string or integer"),
            (np.array(1003.0), "one string or integer"),
            (np.ma.masked, "one string or integer"),
            ("", "empty"),
            (" \t\n\u00a0", "empty"),
        ],
        ids=repr,
    )
    def test_is_a_word(self, subject: object, advice: str) -> None:
        with pytest.raises(InvalidInput, match=advice):
            person(subject)

    def test_holds_no_control_character(self) -> None:
        for letter in map(chr, range(sys.maxunicode + 1)):
            if unicodedata.category(letter) in ("Cc", "Cs"):
                with pytest.raises(InvalidInput, match="control characters"):
                    person(f"A{letter}da")

    def test_length_counts_once_normalised(self) -> None:
        assert person(" " * LONGEST + "a" * LONGEST) == "a" * LONGEST
        half = LONGEST // 2
        assert person("e\u0301" * half) == "\u00e9" * half
        for long in ("a" * (LONGEST + 1), "e\u0301" * (half + 1), "\u0958" * half):
            with pytest.raises(InvalidInput, match=f"bytes; use at most {LONGEST}"):
                person(long)

    def test_objection_shows_nothing(self) -> None:
        assert objection("Ada") is None
        for subject in ("A\x07da" * 9, "Ada" * LONGEST, 1234.5, b"Ada", ["Ada"]):
            said = objection(subject)
            assert said is not None
            assert "Ada" not in said and "1234" not in said

    def test_date_is_taken_as_it_prints(self) -> None:
        assert person(datetime.date(2024, 2, 29)) == "2024-02-29"

    @given(st.text(st.characters(max_codepoint=0x17F)))
    def test_is_itself_where_it_is_plain(self, word: str) -> None:
        if is_plain(word):
            assert person(word) == spell(word) == word
            assert word_objection(word) is None
        assert not is_plain(f" {word}")
        assert not is_plain(f"{word}\n")

    @pytest.mark.parametrize("length", [1, 2, LONGEST, LONGEST + 1])
    def test_is_plain_up_to_the_longest(self, length: int) -> None:
        assert is_plain("a" * length) == (length <= LONGEST)

    @given(st.text())
    def test_spelling_stays(self, text: str) -> None:
        try:
            word = person(text)
        except InvalidInput:
            return
        assert person(word) == word == word.strip()
        assert unicodedata.is_normalized("NFC", word)
        for form in ("NFC", "NFD"):
            assert person(f"\t{unicodedata.normalize(form, text)} ") == word


class TestPeople:
    def test_two_spellings_are_one_person(self) -> None:
        asked = [COMPOSED, " Ada", DECOMPOSED, "Ada ", 7, "7"]
        assert people(asked) == (COMPOSED, "Ada", "7")

    def test_columns_of_tables(self) -> None:
        assert people(pd.Series(["b", "a", "b"])) == ("b", "a")
        assert people(pa.chunked_array([["b", "a"], ["b"]])) == ("b", "a")
        assert people(np.array([3, 1, 3])) == ("3", "1")

    @pytest.mark.parametrize(
        ("subjects", "advice"),
        [
            ("Ada", "put it in a list"),
            (b"Ada", "put it in a list"),
            (7, "put it in a list"),
            (None, "put it in a list"),
            ([], "name at least one person"),
            (np.array([["Ada"]]), "one column"),
            (pd.DataFrame({"id": ["Ada"]}), "one column"),
            (["Ada", None], "missing"),
            (pd.Series([1003, None]), "convert it to int or str"),
        ],
        ids=repr,
    )
    def test_is_a_list_of_ids(self, subjects: object, advice: str) -> None:
        with pytest.raises(InvalidInput, match=advice):
            people(subjects)  # type: ignore[arg-type]


class TestRowName:
    @pytest.mark.parametrize("position", [0, 7, 10**6])
    def test_is_nobodys_id(self, position: int) -> None:
        name = row_name(position)
        assert is_row_name(name)
        with pytest.raises(InvalidInput, match="control characters"):
            person(name)

    def test_rows_have_different_names(self) -> None:
        assert len({row_name(position) for position in range(100)}) == 100

    @given(st.text())
    def test_ids_are_no_rows(self, text: str) -> None:
        try:
            word = person(text)
        except InvalidInput:
            return
        assert not is_row_name(word)
