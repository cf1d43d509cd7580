# SPDX-License-Identifier: Apache-2.0
"""People table: whose rows are where, under tags, each line sealed under its own key.

A line is the rows of one person in one fit of a model. It is in use by the model, or
it is set aside, restricted or held: then no model may use it, and it outlives the model
and every fit of it. To set rows aside is to say so; nothing is sealed again. To remove
a person is to delete their lines and destroy the keys, whose numbers are in them.

New rows that a request brings wait here too, and belong to nobody until it is applied.

A row without a person has the tag ``row:`` and its position. Tags of people begin with
the hexadecimal name of a key, so no request finds such a row, and it does not count as
a person.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from ...core.values import Private
from ...rights.standing import Place
from .engine import analyse, chunks
from .keystore import (
    Keystore,
    destroyed_error,
    place_of,
    seal,
    unseal,
)
from .tables import models, request_tags, rows, shred, subjects

AT_ONCE = 4096  # people who are sealed at once
ROW_TAG = "row:"
IN_USE: Final = "in use"
RESTRICTED: Final = "restricted"
HELD: Final = "held"
APART = (RESTRICTED, HELD)
WAITING = "waiting"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PersonRows(Private):
    """Rows of one person in one fit of a model.

    Attributes
    ----------
    key
        The number of the key that seals them; 0 if they are not stored yet.
    model, subject, tag, fit
        Of which model and whose they are, and to which fit they belong. The subject is
        a number, 0 if the store does not know the person.
    place
        "in use", "restricted" or "held".
    request, reason, until
        Which request set them aside, why, and until which day; empty without an end.
    sealed
        As the store keeps them.
    new
        As bytes, if they are not stored yet.
    """

    key: int
    model: str
    subject: int
    tag: str
    fit: int
    place: Place = IN_USE
    request: str = ""
    reason: str = ""
    until: str = ""
    sealed: bytes = b""
    new: bytes = b""

    @property
    def said(self) -> tuple[str, ...]:
        """Where they are and why."""
        return self.place, self.request, self.reason, self.until

    @property
    def what(self) -> str:
        """What they are sealed as."""
        return _rows_of(self.tag, self.model)


def _rows_of(tag: str, model: str) -> str:
    return f"rows of {tag} in {model}"


_COLUMNS = (
    rows.c.key,
    rows.c.model,
    rows.c.subject,
    subjects.c.tag,
    rows.c.fit,
    rows.c.place,
    rows.c.request,
    rows.c.reason,
    rows.c.until,
    rows.c.sealed,
)
# Statements are made once: a request is a few dozen of them.
EVERY_LINE = select(*_COLUMNS).join(subjects, rows.c.subject == subjects.c.id)
_TAGGED = EVERY_LINE.where(
    subjects.c.tag.in_(bindparam("tags", expanding=True))
).order_by(rows.c.key)
# Of everybody at once, so nothing is read that opening rows does not take.
_IN_USE = (
    select(rows.c.key, subjects.c.tag, rows.c.sealed)
    .join(subjects, rows.c.subject == subjects.c.id)
    .where(
        rows.c.model == bindparam("model"),
        rows.c.place == IN_USE,
        rows.c.key >= bindparam("first"),
    )
    .order_by(rows.c.key)
)
_ENDED = EVERY_LINE.where(
    rows.c.place == HELD, rows.c.until > "", rows.c.until < bindparam("day")
).order_by(rows.c.key)
_ASKED = (
    select(request_tags.c.request, *_COLUMNS)
    .join(subjects, subjects.c.tag == request_tags.c.tag)
    .join(rows, rows.c.subject == subjects.c.id)
    .where(request_tags.c.request.in_(bindparam("ids", expanding=True)))
    .order_by(rows.c.key)
)
_HOLDERS = (
    select(subjects.c.tag, rows.c.model, rows.c.place)
    .join(rows, rows.c.subject == subjects.c.id)
    .where(subjects.c.tag.in_(bindparam("tags", expanding=True)))
)
_KNOWN = select(subjects.c.tag, subjects.c.id).where(
    subjects.c.tag.in_(bindparam("tags", expanding=True))
)
_NEAR = select(subjects.c.near, subjects.c.tag).where(
    subjects.c.near.in_(bindparam("near", expanding=True))
)
_WRITE_NEAR = (
    update(subjects)
    .where(subjects.c.tag == bindparam("of"))
    .values(near=bindparam("loose"))
)
_STRIKE = delete(rows).where(rows.c.key.in_(bindparam("keys", expanding=True)))
_SAY = (
    update(rows)
    .where(rows.c.key == bindparam("number"))
    .values(
        place=bindparam("at"),
        request=bindparam("by"),
        reason=bindparam("why"),
        until=bindparam("end"),
    )
)
_DROP = delete(subjects).where(
    subjects.c.id.in_(bindparam("numbers", expanding=True)),
    subjects.c.id.not_in(
        select(rows.c.subject).where(
            rows.c.subject.in_(bindparam("numbers", expanding=True))
        )
    ),
)
_OF_MODEL = (rows.c.model == bindparam("of")) & (rows.c.place == IN_USE)
_WAITING = (rows.c.place == WAITING) & rows.c.request.in_(
    bindparam("ids", expanding=True)
)
_FITS = select(models.c.name, models.c.fits).where(
    models.c.name.in_(bindparam("names", expanding=True)), models.c.removed.is_(None)
)


def models_by_tag(
    connection: Connection, tags: Sequence[str], *, in_use: bool = False
) -> dict[str, set[str]]:
    """Return for each known tag the models that hold rows under it.

    Those that are set aside count too, unless they must be ``in_use``.
    """
    held: dict[str, set[str]] = {}
    for chunk in chunks(tags):
        for tag, model, place in connection.execute(_HOLDERS, {"tags": chunk}):
            if place == IN_USE or not in_use:
                held.setdefault(tag, set()).add(model)
    return held


def find_nearest(connection: Connection, tags: Sequence[str]) -> dict[str, str]:
    """Return for each tag itself, if somebody has it, or else the next one in order.

    The store takes the same steps for everybody, as ``aliases`` does.
    """
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    found: dict[str, str] = {}
    for chunk in chunks(tags):
        marks = ", ".join([f"({mark})"] * len(chunk))
        lines = connection.exec_driver_sql(
            f"WITH wanted (place) AS (VALUES {marks}) SELECT place, "
            "(SELECT min(tag) FROM subjects WHERE tag >= place) FROM wanted",
            tuple(chunk),
        )
        found |= {place: tag for place, tag in lines}
    return found


def find_near(connection: Connection, near: Sequence[str]) -> dict[str, set[str]]:
    """Return for each tag of a loosest form the tags of people who are held with it."""
    found: dict[str, set[str]] = {}
    for chunk in chunks(near):
        for loose, tag in connection.execute(_NEAR, {"near": chunk}):
            found.setdefault(loose, set()).add(tag)
    return found


def write_near(connection: Connection, near: Mapping[str, str]) -> None:
    """Write the tag of the loosest form of each person's id, by the person's tag."""
    lines = [{"of": tag, "loose": loose} for tag, loose in near.items()]
    for chunk in chunks(lines):
        connection.execute(_WRITE_NEAR, chunk)


def count_people(model: Any) -> Select[int]:
    """Return the query of how many people a model holds; other rows do not count."""
    return (
        select(func.count(rows.c.subject.distinct()))
        .join(subjects, rows.c.subject == subjects.c.id)
        .where(
            rows.c.model == model,
            rows.c.place == IN_USE,
            subjects.c.tag.not_like(f"{ROW_TAG}%"),
        )
    )


def row_tag(position: int) -> str:
    """Return the tag of a row without a person."""
    return f"{ROW_TAG}{position}"


def insert_people(
    connection: Connection,
    keystore: Keystore,
    *,
    model: str,
    fit: int,
    people: Iterable[tuple[str, bytes]],
) -> list[int]:
    """Insert people, each a tag with rows as bytes; return the numbers of their keys.

    Known tags get these rows beside those of other models. However many people there
    are, only some of them are in memory.
    """
    numbers: list[int] = []
    left = iter(people)
    while members := list(islice(left, AT_ONCE)):
        lines = seal_rows(
            keystore,
            [PersonRows(0, model, 0, tag, fit, new=data) for tag, data in members],
        )
        insert_rows(connection, lines)
        numbers += [line.key for line in lines]
    analyse(connection, "subjects (id)", "rows (key, model, subject, place)")
    return numbers


def seal_rows(keystore: Keystore, found: Sequence[PersonRows]) -> list[PersonRows]:
    """Return new rows as they are stored, each line under a new key."""
    keys = keystore.add(len(found)) if found else {}
    return [
        replace(
            one,
            key=number,
            sealed=seal(one.new, key, place=place_of(number, one.what)),
            new=b"",
        )
        for one, (number, key) in zip(found, keys.items(), strict=True)
    ]


def unseal_rows(keystore: Keystore, found: Sequence[PersonRows]) -> Iterator[bytes]:
    """Yield rows as they were before they were sealed."""
    return _unseal(keystore, [(one.key, one.what, one.sealed) for one in found])


def unseal_rows_in_use(
    keystore: Keystore, model: str, *, found: Sequence[tuple[int, str, bytes]]
) -> Iterator[bytes]:
    """Yield rows that ``read_rows_in_use`` found, as they were."""
    return _unseal(
        keystore, [(key, _rows_of(tag, model), sealed) for key, tag, sealed in found]
    )


def _unseal(
    keystore: Keystore, found: Sequence[tuple[int, str, bytes]]
) -> Iterator[bytes]:
    """Yield what each key opens, with what it was sealed as."""
    keys = keystore.load(number for number, _, _ in found)
    for number, what, sealed in found:
        if number not in keys:
            raise destroyed_error("somebody's rows")
        yield unseal(sealed, keys[number], place=place_of(number, what))


def find_numbers(connection: Connection, tags: Sequence[str]) -> dict[str, int]:
    """Return the number of each tag; new ones are inserted."""
    known = _read_ids(connection, tags)
    new = [{"tag": tag} for tag in tags if tag not in known]
    for chunk in chunks(new):
        connection.execute(insert(subjects), chunk)
    return known | _read_ids(connection, [item["tag"] for item in new])


def insert_rows(connection: Connection, found: Sequence[PersonRows]) -> None:
    """Insert sealed rows.

    People may be named by their tags alone, which costs reading their numbers.
    """
    unknown = [one.tag for one in found if not one.subject]
    numbers = find_numbers(connection, unknown) if unknown else {}
    lines = [
        {
            "key": one.key,
            "model": one.model,
            "subject": one.subject or numbers[one.tag],
            "fit": one.fit,
            "place": one.place,
            "request": one.request,
            "reason": one.reason,
            "until": one.until,
            "sealed": one.sealed,
        }
        for one in found
    ]
    for chunk in chunks(lines):
        connection.execute(insert(rows), chunk)


def find_tagged_rows(connection: Connection, tags: Sequence[str]) -> list[PersonRows]:
    """Return the rows of these people, wherever they are."""
    return [
        PersonRows(*line)
        for chunk in chunks(tags)
        for line in connection.execute(_TAGGED, {"tags": chunk})
    ]


def find_asked_rows(
    connection: Connection, requests: Sequence[str]
) -> list[tuple[str, PersonRows]]:
    """Return the rows that waiting requests are about, each with the request.

    What two requests name comes twice.
    """
    found = []
    for chunk in chunks(requests):
        for request, *line in connection.execute(_ASKED, {"ids": chunk}):
            found.append((request, PersonRows(*line)))
    return found


def read_rows_in_use(
    connection: Connection, model: str, *, first: int = 0
) -> list[tuple[int, str, bytes]]:
    """Return key, tag and sealed rows of all in a model, or from this key on."""
    found = connection.execute(_IN_USE, {"model": model, "first": first})
    return [(key, tag, sealed) for key, tag, sealed in found]


def read_rows_apart(connection: Connection) -> list[PersonRows]:
    """Return all rows that no model may use."""
    query = EVERY_LINE.where(rows.c.place.in_(APART)).order_by(rows.c.key)
    return [PersonRows(*line) for line in connection.execute(query)]


def read_ended(connection: Connection, day: str) -> list[PersonRows]:
    """Return the rows whose hold ended before a day."""
    return [PersonRows(*line) for line in connection.execute(_ENDED, {"day": day})]


def say_where(connection: Connection, found: Sequence[PersonRows]) -> None:
    """Record where rows are now, and why."""
    lines = [
        {
            "number": one.key,
            "at": one.place,
            "by": one.request,
            "why": one.reason,
            "end": one.until,
        }
        for one in found
    ]
    if lines:
        connection.execute(_SAY, lines)


def delete_rows(connection: Connection, found: Sequence[PersonRows]) -> None:
    """Delete rows, and leave their tags; ``mark_dead`` has their keys destroyed."""
    for chunk in chunks([one.key for one in found]):
        connection.execute(_STRIKE, {"keys": chunk})


def delete_all_people(connection: Connection, model: str) -> None:
    """Delete everybody from a model, and tags that nothing uses; read nothing.

    Rows that are set aside stay.
    """
    _delete(connection, _OF_MODEL, given={"of": model})
    used = select(rows.c.subject).where(rows.c.subject == subjects.c.id)
    connection.execute(delete(subjects).where(~used.exists()))


def what_waits(request: str, model: str) -> str:
    """Return what the new rows are sealed as that a request brings."""
    return f"rows for {model} of request {request}"


def insert_waiting(connection: Connection, lines: Sequence[Mapping[str, Any]]) -> None:
    """Insert new rows: each ``request``, ``model``, ``key`` and ``sealed``."""
    if lines:
        rest = {"place": WAITING, "fit": 0}
        connection.execute(insert(rows), [{**line, **rest} for line in lines])


def read_waiting(connection: Connection, requests: Sequence[str]) -> list[Row[Any]]:
    """Return the sealed new rows that requests bring."""
    columns = rows.c.request, rows.c.model, rows.c.key, rows.c.sealed
    found: list[Row[Any]] = []
    for chunk in chunks(requests):
        found += connection.execute(select(*columns).where(_WAITING), {"ids": chunk})
    return found


def delete_waiting(connection: Connection, requests: Sequence[str]) -> None:
    """Delete the new rows that requests bring."""
    for chunk in chunks(requests):
        _delete(connection, _WAITING, given={"ids": chunk})


def _delete(connection: Connection, which: Any, *, given: Mapping[str, Any]) -> None:
    """Delete some rows, whose keys are to be destroyed; read nothing."""
    connection.execute(
        insert(shred).from_select(["number"], select(rows.c.key).where(which)), given
    )
    connection.execute(delete(rows).where(which), given)


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
    people: dict[str, set[int]] = {place: set() for place in APART}
    ends = []
    asked = select(rows.c.place, rows.c.subject, rows.c.until)
    for line in connection.execute(asked.where(rows.c.place.in_(APART))):
        people[line.place].add(line.subject)
        if line.until:
            ends.append(line.until)
    return AsideStatus(
        len(people[RESTRICTED]), len(people[HELD]), min(ends, default="")
    )


def read_tags_apart(connection: Connection) -> set[str]:
    """Return the tags of all people whose rows are set aside."""
    people = select(subjects.c.tag).join(rows, rows.c.subject == subjects.c.id)
    return {*connection.scalars(people.where(rows.c.place.in_(APART)))}


def count_fits(connection: Connection, wanted: Sequence[str]) -> dict[str, int]:
    """Return how often each of these models was fitted; none if it is not there."""
    found = connection.execute(_FITS, {"names": wanted})
    return {name: fits for name, fits in found}


def _read_ids(connection: Connection, tags: Sequence[str]) -> dict[str, int]:
    known: dict[str, int] = {}
    for chunk in chunks(tags):
        lines = connection.execute(_KNOWN, {"tags": chunk})
        known |= {tag: number for tag, number in lines}
    return known


def delete_unused_tags(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete those of these tags under which no rows are left."""
    for chunk in chunks(numbers):
        connection.execute(_DROP, {"numbers": chunk})
