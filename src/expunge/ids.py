# SPDX-License-Identifier: Apache-2.0
"""Ids of people: one spelling each, whichever way they come in.

An id is text in Unicode NFC without surrounding white space; integers become their
digits. What a table tool writes for "nobody" is refused: rows of unknown people under
one id would be one person, and leave together.
"""

import operator
import re
import unicodedata
from collections.abc import Collection, Iterable
from numbers import Integral, Number

import numpy as np

from .exceptions import InvalidInput

SPELLING = "NFC, stripped"
"""How ids are normalised; a registry notes it, since its tags depend on it."""

LONGEST = 1024  # bytes of an id
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # Unicode's Cc and Cs
ROW = "\x00"  # refused in every id


def person(subject: object) -> str:
    """Return the id of a person in its one spelling; refuse what cannot be one."""
    word = unicodedata.normalize("NFC", _text(subject)).strip()
    if not word:
        raise InvalidInput(
            f"the id {_shown(subject)} of a person is empty; name the person, or "
            "remove the row"
        )
    if _UNPRINTABLE.search(word):
        raise InvalidInput(
            f"the id {_shown(word)} of a person holds control characters or half a "
            "surrogate pair; check the file that it was read from"
        )
    size = len(word.encode())
    if size > LONGEST:
        raise InvalidInput(
            f"the id {_shown(word)} of a person has {size} bytes, and {LONGEST} are "
            "the most; use the id under which the person was fitted"
        )
    return word


def people(subjects: Iterable[object]) -> tuple[str, ...]:
    """Return ids of people in their one spelling, each once; refuse an empty list."""
    if isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable):
        raise InvalidInput(f"{_shown(subjects)} is not a list of ids; put it in a list")
    if getattr(subjects, "ndim", 1) != 1:
        raise InvalidInput("ids come as a table; give one column of it")
    words = tuple(dict.fromkeys(person(subject) for subject in subjects))
    if not words:
        raise InvalidInput("the list of ids is empty; name at least one person")
    return words


def row_name(position: int) -> str:
    """Return the name of a row that is nobody's; no id of a person is equal to it."""
    return f"{ROW}{position}"


def is_row_name(owner: str) -> bool:
    """Whether an owner is a row that is nobody's, and not a person."""
    return owner.startswith(ROW)


def _text(subject: object) -> str:
    """Return an id as text, as it is spelled."""
    if hasattr(subject, "as_py"):  # the scalars of a pyarrow column
        subject = subject.as_py()
    if isinstance(subject, str):
        return str.__str__(subject)  # the text itself, also of an Enum
    objection = _objection(subject)
    if objection is not None:
        raise InvalidInput(f"{_shown(subject)} is no id of a person: {objection}")
    if isinstance(subject, Integral):
        return str(operator.index(subject))
    return str(subject)


def _objection(subject: object) -> str | None:
    """Return why something that is not text cannot be an id, and what to do."""
    if isinstance(subject, bool | np.bool_):
        return "it is a truth value, as in a mask; give the ids themselves"
    if isinstance(subject, bytes | bytearray | memoryview):
        return "it is bytes; decode it to text"
    if isinstance(subject, Collection):
        return "it is a container; give one word or integer for each person"
    if _is_missing(subject):
        return "it is missing; fill it in, or remove the row"
    if isinstance(subject, Number) and not isinstance(subject, Integral):
        return "it is not an integer; convert it to int or str"
    return None


def _is_missing(subject: object) -> bool:
    """Whether this is None, NaN, NaT or NA, of any library."""
    if subject is None:
        return True
    try:
        return bool(subject != subject)
    except (TypeError, ValueError, ArithmeticError):  # pandas.NA does not compare
        return True


def _shown(value: object) -> str:
    """Return a value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
