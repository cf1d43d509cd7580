# SPDX-License-Identifier: Apache-2.0
"""Canonical documents: one spelling, strict reading, immutable values."""

import copy
import json
import pickle
import struct
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, replace
from hashlib import sha256
from math import inf, nan
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.values import LARGEST_INTEGER, dumps, loads
from expunge.exceptions import InvalidInput
from expunge.promise.canonical import (
    Check,
    Document,
    Sentence,
    check_of,
    count,
    freeze,
    hexadecimal,
    number,
    one_of,
    optional,
)
from tests.independent import canonical


@dataclass(frozen=True, slots=True, eq=False)
class Note(Document):
    """A small document."""

    size: Annotated[float, number(0.0, 10.0)]
    rest: Annotated[Mapping[str, Any], Check(freeze, {})]
    version: Literal[1] = 1


NOTE = Note(0.1, {"b": [1, None, {"c": True}], "a": "\u00e9"})
TEXT = '{"rest":{"a":"\u00e9","b":[1,null,{"c":true}]},"size":0.1,"version":1}'

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER)
WORDS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner),
)


def test_json_has_one_spelling() -> None:
    assert NOTE.to_json() == TEXT
    assert NOTE.digest() == sha256(TEXT.encode()).hexdigest()
    assert Note(np.float64(0.1), {"a": "\u00e9", "b": (1, None, {"c": True})}) == NOTE


@given(st.floats(0.0, 10.0, exclude_min=True, exclude_max=True), JSON)
def test_what_is_read_and_written_again_has_the_same_bytes(size: float, x: Any) -> None:
    note = Note(size, {"x": x})
    text = note.to_json()
    read = Note.from_json(text)
    assert read == note
    assert read.to_json() == text
    assert (read.size, type(read.size)) == (size, float)
    assert text == canonical(json.loads(text))


@given(JSON)
def test_spelling_is_that_of_the_package(value: Any) -> None:
    assert dumps(value).encode() == rfc8785.dumps(value)


def test_json_is_spelled_once() -> None:
    note = replace(NOTE)
    assert note.to_json() is note.to_json()


def test_layout_does_not_matter() -> None:
    pretty = json.dumps(json.loads(TEXT), indent=2, sort_keys=False)
    assert Note.from_json(pretty).digest() == NOTE.digest()
    assert Note.from_json(TEXT.encode()) == NOTE
    assert Note.from_json(TEXT.replace("0.1", "1")).to_json().count("1.0") == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ("[1]", "must be an object"),
        (
            TEXT.replace("[1,", "[" + '{"a":' * 64 + "1" + "}" * 64 + ","),
            "too deeply",
        ),
        (TEXT.replace("0.1", "NaN"), "NaN is not JSON"),
        (TEXT.replace("0.1", "1e999"), "finite number"),
        (TEXT.replace("0.1", "1" * 400), "finite number"),
        (TEXT.replace("0.1", "9" * 5000), "finite number"),
        (TEXT.replace("\u00e9", "\\ud800"), "no lone surrogates"),
        (TEXT.replace("0.1", '"0.1"'), "must be a number"),
        (TEXT.replace("0.1", "true"), "must be a number"),
        (TEXT.replace("0.1", "0"), "above 0"),
        (TEXT.replace("[1,", "[1e999,"), "finite number"),
        (TEXT.replace('"size"', '"sizes"'), r"missing fields \['size'\], unknown"),
        (TEXT.replace('"size"', '"size":0.2,"size"'), "given twice"),
        (TEXT.replace('"version":1', '"version":2'), "version 2; it must be 1"),
        (TEXT.replace('"version":1', '"version":true'), "version True"),
        (TEXT.replace('"version":1', '"version":1.0'), "version 1.0"),
        (TEXT.replace(',"version":1', ""), "version None"),
    ],
)
def test_anything_in_doubt_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        Note.from_json(text)


def test_documents_cannot_be_changed() -> None:
    rest = {"list": [1]}
    note = Note(1.0, rest)
    rest["list"].append(2)
    assert note.rest["list"] == (1,)
    with pytest.raises(TypeError):
        note.rest["more"] = 1  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        note.size = 2.0  # type: ignore[misc]


def test_documents_are_values() -> None:
    assert hash(NOTE) == hash(Note.from_json(TEXT))
    assert NOTE != replace(NOTE, size=0.2)
    assert NOTE != TEXT
    assert copy.deepcopy(NOTE) == pickle.loads(pickle.dumps(NOTE)) == NOTE


def test_minus_zero_is_zero() -> None:
    assert dumps(freeze([-0.0, 0.0])) == "[0,0]"


@pytest.mark.parametrize(
    "value",
    [nan, inf, 2**53, "\ud800", {"\ud800": 1}, {1: 2}, {"a": {1, 2}}, b"", np.ones(2)],
)
def test_only_plain_data_is_frozen(value: object) -> None:
    with pytest.raises(ValueError, match="it must"):
        freeze(value)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (one_of(1), [1], [True, 2, 1.0, None, "1"]),
        (one_of("a", "b"), ["a"], ["c", None, 1, ["a"]]),
        (optional(count(0)), [None, 0], [-1, "0"]),
        (count(1), [1, np.int64(3), 2**53 - 1], [0, True, 1.0, None, nan, 2**53]),
        (number(0.0), [1, 1e300, np.float32(2.0)], [0.0, inf, nan, None, True, 1j]),
        (number(0.0, 1.0, closed=True), [0.0, 0.5], [1.0, -1e-300]),
        (
            check_of(tuple[Sentence, ...]),
            [[], ["a"], ("a", "b")],
            ["a", [""], [" "], [1], None],
        ),
        (hexadecimal(2), ["00ff"], ["00FF", "00f", "00ff\n", None, b"00ff"]),
    ],
)
def test_check_tells_good_from_bad(
    check: Check, good: list[object], bad: list[object]
) -> None:
    for value in good:
        check(value)
    for value in bad:
        with pytest.raises(ValueError, match="it must"):
            check(value)


# RFC 8785, appendix B: the bits of a double, and how it is spelled.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize("bits", NUMBERS)
def test_numbers_are_spelled_as_in_rfc_8785(bits: str) -> None:
    (real,) = struct.unpack(">d", bytes.fromhex(bits))
    assert dumps(real) == NUMBERS[bits] == canonical(real)
    assert struct.pack(">d", float(NUMBERS[bits])) == struct.pack(">d", real + 0.0)


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000"])
def test_what_is_no_number_is_refused(bits: str) -> None:
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        dumps(struct.unpack(">d", bytes.fromhex(bits)))


@given(FLOATS)
def test_numbers_are_spelled_as_an_independent_implementation_does(real: float) -> None:
    assert dumps(real) == canonical(real)
    found = loads(f'{{"x":{dumps(real)}}}', "test")["x"]
    assert float(found) == real


def test_example_of_rfc_8785() -> None:
    given = r"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3,
                  0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    expected = (
        '{"literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert dumps(loads(given, "example")) == expected
    assert canonical(json.loads(given)) == expected


def test_keys_are_sorted_as_in_rfc_8785() -> None:
    given = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    names = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(dumps(given))) == names
    assert dumps(given) == canonical(given)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (2**53, "beyond 2\\^53 - 1"),
        ([-(2**53)], "beyond 2\\^53 - 1"),
        ({"a": "secret\ud800"}, "lone surrogates"),
        ({1: "secret"}, "not JSON"),
        ({"secret"}, "not JSON"),
    ],
)
def test_what_has_no_spelling_is_refused_and_not_repeated(
    value: object, complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint) as raised:
        dumps(value)
    assert "secret" not in str(raised.value)
    assert "9007199254740992" not in str(raised.value)
    assert raised.value.__context__ is None
