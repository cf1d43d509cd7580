# SPDX-License-Identifier: Apache-2.0
"""Ids of people: one spelling each, whichever way they come in.

An id is text in Unicode NFC without surrounding white space; integers become their
digits. What a table tool writes for "nobody" is refused: rows of unknown people under
one id would be one person, and leave together.

Owners: whose row each is, and which people or rows a request names.
"""

import operator
import re
import unicodedata
from collections.abc import Collection, Iterable
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..exceptions import InvalidInput

SPELLING = "NFC, stripped"
"""How ids are normalised; a registry notes it, since its tags depend on it."""

LONGEST = 1024  # bytes of an id
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # Unicode's Cc and Cs
ROW = "\x00"  # refused in every id


def person(subject: object) -> str:
    """Return the id of a person in its one spelling; refuse what cannot be one."""
    reason = objection(subject)
    if reason is not None:
        raise InvalidInput(f"{_shown(subject)} is no id of a person: {reason}")
    return _spelled(subject)


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


def objection(subject: object) -> str | None:
    """Return why something cannot be an id, and what to do, without showing it."""
    reason = _wrong_kind(subject)
    if reason is not None:
        return reason
    word = _spelled(subject)
    if not word:
        return "it is empty; fill it in, or remove the row"
    if _UNPRINTABLE.search(word):
        return "it holds control characters; check the file that it was read from"
    size = len(word.encode())
    if size > LONGEST:
        return f"it has {size} bytes; use at most {LONGEST}"
    return None


def row_name(position: int) -> str:
    """Return the name of a row that is nobody's; no id of a person is equal to it."""
    return f"{ROW}{position}"


def is_row_name(owner: str) -> bool:
    """Whether an owner is a row that is nobody's, and not a person."""
    return owner.startswith(ROW)


def _spelled(subject: object) -> str:
    """Return an id as text, normalised."""
    subject = _plain(subject)
    if isinstance(subject, str):
        word = str.__str__(subject)  # the text itself, also of an Enum
    elif isinstance(subject, Integral):
        word = f"{operator.index(subject):d}"
    else:
        word = str(subject)
    return unicodedata.normalize("NFC", word).strip()


def _plain(subject: object) -> object:
    """Return the value of a scalar from a pyarrow column; anything else as it is."""
    return subject.as_py() if hasattr(subject, "as_py") else subject


def _wrong_kind(subject: object) -> str | None:
    """Return why something that is not text cannot be an id, and what to do."""
    subject = _plain(subject)
    if isinstance(subject, str):
        return None
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
    if isinstance(subject, int) and subject.bit_length() > 4 * LONGEST:
        return "it is too long an integer; use the id under which people are known"
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


def list_of_ids(subjects: object) -> list[object]:
    """Return ids; refuse what is no list of them: one word, a table, a mask."""
    if isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable):
        raise InvalidInput("subjects must be a list of ids, one word or number each")
    ids = np.asarray(list(subjects), dtype=object)
    if ids.ndim != 1:
        raise InvalidInput("subjects must be a list of ids; this is a table")
    _refuse_mask(ids, "subjects")
    return list(ids)


def positions_of(rows: ArrayLike) -> list[int]:
    """Return positions of rows; refuse what is no list of them."""
    try:
        places = np.asarray(rows)
    except ValueError:  # lists of several lengths
        places = np.empty((1, 1))
    _refuse_mask(places.ravel().astype(object), "rows")
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise InvalidInput("rows must be a list of positions: integers from 0 on")
    return [int(place) for place in places]


def _refuse_mask(values: Any, name: str) -> None:
    """Refuse truth values where ids or positions are asked for."""
    if len(values) and all(isinstance(value, bool | np.bool_) for value in values):
        raise InvalidInput(
            f"{name} looks like a mask: {len(values)} truth values; give the ids of "
            "people, or the rows themselves: forget(X=X[mask], y=y[mask])"
        )


def owners_of(subjects: Iterable[object] | None, n_rows: int) -> list[str]:
    """Return whose row each is, in one spelling; rows without subjects are nobody's."""
    if subjects is None:
        return [row_name(position) for position in range(n_rows)]
    owners = [person(subject) for subject in list_of_ids(subjects)]
    if len(owners) != n_rows:
        raise InvalidInput(
            f"subjects names {len(owners)} people and X has {n_rows} rows; name the "
            "owner of each row"
        )
    return owners
