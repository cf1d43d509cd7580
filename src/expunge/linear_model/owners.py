# SPDX-License-Identifier: Apache-2.0
"""Owners: whose row each is, and which people or rows a request names."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..exceptions import InvalidInput
from ..ids import person, row_name


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
