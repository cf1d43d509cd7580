# SPDX-License-Identifier: Apache-2.0
"""Ids of people in one spelling each, and the owners of rows.

An id is text as ``rights.identifiers`` spells it; integers become their digits. What a
table tool writes for a missing value is refused: rows of unknown people under one id
would count as one person, and be removed together.
"""

import operator
from collections.abc import Collection, Iterable
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..exceptions import InvalidInput
from ..rights.identifiers import LONGEST, is_plain, spell, word_objection

ROW = "\x00"  # never part of an id


def person(subject: object) -> str:
    """Return the id of a person in its one spelling, or raise InvalidInput."""
    if type(subject) is str and is_plain(subject):  # a fifth of the time
        return subject
    reason = objection(subject)
    if reason is not None:
        raise InvalidInput(f"{_show(subject)} cannot be the id of a person: {reason}")
    return _normalise(subject)


def people(subjects: Iterable[object]) -> tuple[str, ...]:
    """Return ids in their one spelling, each once; refuse an empty list."""
    if isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable):
        raise InvalidInput(f"{_show(subjects)} is not a list of ids; put it in a list")
    if getattr(subjects, "ndim", 1) != 1:
        raise InvalidInput("the ids are a table; pass one column of it")
    words = tuple(dict.fromkeys(person(subject) for subject in subjects))
    if not words:
        raise InvalidInput("the list of ids is empty; name at least one person")
    return words


def objection(subject: object) -> str | None:
    """Return why something cannot be an id and what to do; do not quote it."""
    reason = _wrong_kind(subject)
    if reason is not None:
        return reason
    return word_objection(_normalise(subject))


def owners_of(subjects: Iterable[object] | None, n_rows: int) -> list[str]:
    """Return the owner of each row; without subjects, the name of the row."""
    if subjects is None:
        return [row_name(position) for position in range(n_rows)]
    if isinstance(subjects, np.ndarray) and subjects.dtype.kind in "iu":
        # Integers are spelled by their digits: nothing to normalise or to refuse.
        owners = [str(number) for number in _require_list(subjects).tolist()]
    else:
        owners = [person(subject) for subject in list_of_ids(subjects)]
    if len(owners) != n_rows:
        raise InvalidInput(
            f"subjects has {len(owners)} ids and X has {n_rows} rows; give the owner "
            "of each row"
        )
    return owners


def list_of_ids(subjects: object) -> list[object]:
    """Return a list of ids; refuse a single string, a table or a mask."""
    if isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable):
        raise InvalidInput(
            "subjects must be a list of ids, each a string or an integer; put a single "
            "id in a list too"
        )
    ids = _require_list(np.asarray(list(subjects), dtype=object))
    _refuse_mask(ids, "subjects")
    return list(ids)


def _require_list(ids: NDArray[Any]) -> NDArray[Any]:
    """Return the ids, or raise InvalidInput for a table."""
    if ids.ndim != 1:
        raise InvalidInput("subjects is a table; pass a list of ids")
    return ids


def positions_of(rows: ArrayLike) -> list[int]:
    """Return a list of row positions, or raise InvalidInput."""
    try:
        places = np.asarray(rows)
    except ValueError:  # lists of several lengths
        places = np.empty((1, 1))
    _refuse_mask(places.ravel().astype(object), "rows")
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise InvalidInput("rows must be a list of positions, integers from 0")
    return [int(place) for place in places]


def row_name(position: int) -> str:
    """Return the name of a row without an owner; no id is equal to it."""
    return f"{ROW}{position}"


def is_row_name(owner: str) -> bool:
    """Whether an owner stands for a row without one, not for a person."""
    return owner.startswith(ROW)


def _normalise(subject: object) -> str:
    """Return an id as text, normalised."""
    subject = _unwrap(subject)
    if isinstance(subject, str):
        word = str.__str__(subject)  # the text itself, even of an Enum
    elif isinstance(subject, Integral):
        word = f"{operator.index(subject):d}"
    else:
        word = str(subject)
    return spell(word)


def _unwrap(subject: object) -> object:
    """Return the value of a scalar from a pyarrow column; anything else as it is."""
    return subject.as_py() if hasattr(subject, "as_py") else subject


def _wrong_kind(subject: object) -> str | None:
    """Return why something that is not text cannot be an id, and what to do."""
    subject = _unwrap(subject)
    if isinstance(subject, str):
        return None
    if isinstance(subject, bool | np.bool_):
        return "it is a boolean, as in a mask; pass the ids themselves"
    if isinstance(subject, bytes | bytearray | memoryview):
        return "it is bytes; decode it to text"
    if isinstance(subject, Collection):
        return "it is a container; give one string or integer for each person"
    if _is_missing(subject):
        return "it is missing; fill it in, or remove the row"
    if isinstance(subject, Number) and not isinstance(subject, Integral):
        return "it is a number but not an integer; convert it to int or str"
    if isinstance(subject, int) and subject.bit_length() > 4 * LONGEST:
        return "the integer is too long; use the usual id of the person"
    return None


def _is_missing(subject: object) -> bool:
    """Whether this is None, NaN, NaT or NA, of any library."""
    if subject is None:
        return True
    try:
        return bool(subject != subject)
    except (TypeError, ValueError, ArithmeticError):  # pandas.NA does not compare
        return True


def _show(value: object) -> str:
    """Return a value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_mask(values: Any, name: str) -> None:
    """Raise InvalidInput if these are booleans instead of ids or positions."""
    if len(values) and all(isinstance(value, bool | np.bool_) for value in values):
        raise InvalidInput(
            f"{name} looks like a mask of {len(values)} booleans; pass the ids of "
            "people, or the rows themselves: forget(X=X[mask], y=y[mask])"
        )
