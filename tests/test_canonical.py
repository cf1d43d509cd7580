# SPDX-License-Identifier: Apache-2.0
"""Canonical documents: one spelling, strict reading, immutable values."""

import copy
import json
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, replace
from hashlib import sha256
from math import inf, nan
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.promise.canonical import (
    Check,
    Document,
    count,
    dumps,
    exactly,
    frozen,
    hexadecimal,
    number,
    one_of,
    optional,
    sentences,
)


@dataclass(frozen=True, slots=True, eq=False)
class Note(Document):
    """A small document."""

    size: float
    rest: Mapping[str, Any]
    version: int = 1

    checks: ClassVar[Mapping[str, Check]] = {
        "size": number(0.0, 10.0),
        "rest": frozen,
        "version": exactly(1),
    }


NOTE = Note(0.1, {"b": [1, None, {"c": True}], "a": "\u00e9"})
TEXT = '{"rest":{"a":"\\u00e9","b":[1,null,{"c":true}]},"size":0.1,"version":1}'

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
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
    assert read.size == size
    assert text.isascii()


def test_layout_does_not_matter() -> None:
    pretty = json.dumps(json.loads(TEXT), indent=2, sort_keys=False)
    assert Note.from_json(pretty).digest() == NOTE.digest()
    assert Note.from_json(TEXT.encode()) == NOTE
    assert Note.from_json(TEXT.replace("0.1", "1")).to_json().count("1.0") == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ("[1]", "must be an object"),
        (TEXT.replace("0.1", "NaN"), "NaN is not JSON"),
        (TEXT.replace("0.1", "1e999"), "finite number"),
        (TEXT.replace("0.1", "1" * 400), "finite number"),
        (TEXT.replace("0.1", "9" * 5000), "not a JSON document"),
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
    assert dumps(frozen([-0.0, 0.0])) == "[0.0,0.0]"


@pytest.mark.parametrize("value", [nan, inf, {1: 2}, {"a": {1, 2}}, b"", np.ones(2)])
def test_only_plain_data_is_frozen(value: object) -> None:
    with pytest.raises(ValueError, match="it must"):
        frozen(value)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (exactly(1), [1], [True, 2, 1.0, None, "1"]),
        (one_of("a", "b"), ["a"], ["c", None, 1, ["a"]]),
        (optional(count(0)), [None, 0], [-1, "0"]),
        (count(1), [1, np.int64(3)], [0, True, 1.0, None, nan]),
        (number(0.0), [1, 1e300, np.float32(2.0)], [0.0, inf, nan, None, True, 1j]),
        (number(0.0, 1.0, closed=True), [0.0, 0.5], [1.0, -1e-300]),
        (sentences, [[], ["a"], ("a", "b")], ["a", [""], [" "], [1], None]),
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
