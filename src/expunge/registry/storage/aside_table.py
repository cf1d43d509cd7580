# SPDX-License-Identifier: Apache-2.0
"""Aside table: rows that are kept and that no model may use, sealed apart.

The rows of a model's restricted and held people are in ``rows`` under another name,
``~`` before that of the model, which no model can have. There they have pages and page
keys of their own, in a checkpoint of their own that holds nothing else. So they outlive
the model and every fit of it, and are erased as everybody's rows are: the next
checkpoint lacks the key. What is said of them here is where they are, why, until when,
and which fit of the model they belong to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ...core.values import Private
from ...rights.standing import Place
from .people_table import NO_KEYS, PageKeys, SealedRows, chunks
from .tables import models, rows, set_aside, subjects
from .vault import KEY_BYTES, Checkpoints

MARK = "~"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Aside(Private):
    """What is known of the rows of one person that were set aside.

    Attributes
    ----------
    place
        "restricted" or "held".
    request, reason, until
        Which request set them aside, why, and until which day; empty without an end.
    fit
        Which fit of their model they belong to.
    """

    place: Place
    request: str
    reason: str
    until: str
    fit: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AsideFile(Private):
    """The checkpoint of a model's rows that were set aside: their page keys.

    Attributes
    ----------
    model
        Whose rows they are.
    generation
        Of the checkpoint.
    page_keys
        The keys of the pages.
    exists
        Whether the store knows it already.
    """

    model: str
    generation: int
    page_keys: PageKeys
    exists: bool

    @property
    def name(self) -> str:
        """The name under which the rows are stored."""
        return aside_name(self.model)


def aside_name(model: str) -> str:
    """Return the name under which a model's rows are set aside."""
    return MARK + model


def is_aside(name: str) -> bool:
    """Return whether rows under this name are set aside."""
    return name.startswith(MARK)


def model_of(name: str) -> str:
    """Return the model whose rows are under this name, set aside or not."""
    return name.removeprefix(MARK)


_SAID = (
    select(set_aside)
    .where(set_aside.c.subject.in_(bindparam("numbers", expanding=True)))
    .order_by(set_aside.c.model, set_aside.c.subject)
)
_ENDED = (
    select(
        set_aside.c.model,
        set_aside.c.request,
        rows.c.subject,
        subjects.c.tag,
        rows.c.page,
        rows.c.slot,
        rows.c.sealed,
    )
    .join(
        rows,
        (rows.c.model == set_aside.c.model) & (rows.c.subject == set_aside.c.subject),
    )
    .join(subjects, subjects.c.id == rows.c.subject)
    .where(set_aside.c.until != "", set_aside.c.until < bindparam("day"))
    .order_by(set_aside.c.model, rows.c.page, rows.c.slot)
)
_ONE = (set_aside.c.model == bindparam("of")) & (
    set_aside.c.subject == bindparam("number")
)


def read_asides(
    connection: Connection, numbers: Sequence[int]
) -> dict[tuple[str, int], Aside]:
    """Return what is known of these people's rows, by name and person."""
    found = {}
    for chunk in chunks(numbers):
        for line in connection.execute(_SAID, {"numbers": chunk}):
            known = Aside(line.place, line.request, line.reason, line.until, line.fit)
            found[line.model, line.subject] = known
    return found


def read_ended(connection: Connection, day: str) -> list[tuple[str, str, SealedRows]]:
    """Return the rows whose hold ended before a day, each with name and request."""
    return [
        (name, request, SealedRows(*place))
        for name, request, *place in connection.execute(_ENDED, {"day": day})
    ]


def read_names(connection: Connection) -> list[str]:
    """Return the names under which rows are set aside."""
    return [
        name
        for name in connection.scalars(select(models.c.name).order_by(models.c.name))
        if is_aside(name)
    ]


def read_file(
    connection: Connection, checkpoints: Checkpoints, *, model: str
) -> AsideFile:
    """Return the checkpoint of a model's rows that were set aside.

    Without one, the next generation is that of the vault's keys.
    """
    name = aside_name(model)
    line = connection.execute(select(models).where(models.c.name == name)).first()
    if line is None:
        generation = checkpoints.vault.create_keys(name).generation
        return AsideFile(model, generation, NO_KEYS, exists=False)
    data = np.frombuffer(checkpoints.read(line.checkpoint), np.uint8)
    keys = data.reshape(-1, KEY_BYTES)
    return AsideFile(model, line.generation, keys, exists=True)


def write_aside(
    connection: Connection, name: str, *, subject: int, aside: Aside
) -> None:
    """Record what is known of a person's rows, in place of what was."""
    delete_asides(connection, name, subjects=[subject])
    known = {key: getattr(aside, key) for key in Aside.__slots__}
    line = {"model": name, "subject": subject, **known}
    connection.execute(insert(set_aside), line)


def delete_asides(
    connection: Connection, name: str, *, subjects: Sequence[int]
) -> None:
    """Delete what is known of people's rows."""
    gone = [{"of": name, "number": subject} for subject in subjects]
    if gone:
        connection.execute(delete(set_aside).where(_ONE), gone)


def insert_file(connection: Connection, file: AsideFile, *, created: int) -> None:
    """Record a checkpoint that the store does not know yet."""
    line: Mapping[str, Any] = {
        "name": file.name,
        "created": created,
        "number": 0,
        "generation": file.generation,
        "checkpoint": "",
    }
    connection.execute(insert(models), {**line})


@dataclass(frozen=True, slots=True)
class AsideStatus:
    """How many people have rows sealed apart.

    Parameters
    ----------
    n_restricted, n_held
        How many people are restricted, and under a hold.
    first_end
        The earliest day on which a hold ends; empty if there is none.
    """

    n_restricted: int
    n_held: int
    first_end: str


def read_status(connection: Connection) -> AsideStatus:
    """Return how many people have rows sealed apart."""
    people: dict[str, set[int]] = {"restricted": set(), "held": set()}
    ends = []
    for line in connection.execute(select(set_aside)):
        people[line.place].add(line.subject)
        if line.until:
            ends.append(line.until)
    return AsideStatus(
        len(people["restricted"]), len(people["held"]), min(ends, default="")
    )


def read_tags(connection: Connection) -> set[str]:
    """Return the tags of all people whose rows are set aside."""
    people = select(subjects.c.tag).join(
        set_aside, set_aside.c.subject == subjects.c.id
    )
    return {*connection.scalars(people)}


_FITS = select(models.c.name, models.c.fits).where(
    models.c.name.in_(bindparam("names", expanding=True)), models.c.removed.is_(None)
)


def count_fits(connection: Connection, wanted: Sequence[str]) -> dict[str, int]:
    """Return how often each of these models was fitted; none if it is not there."""
    found = connection.execute(_FITS, {"names": wanted})
    return {name: fits for name, fits in found}


def count_fit(connection: Connection, name: str) -> None:
    """Record that a model was fitted once more."""
    more = update(models).where(models.c.name == name)
    connection.execute(more.values(fits=models.c.fits + 1))
