# SPDX-License-Identifier: Apache-2.0
"""Releases: models, which checkpoint of theirs is current, and what was released.

A checkpoint is replaced by one that was made from it: a process that worked on another
has been overtaken, and is refused. No two have the same key, so its number tells.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    func,
    insert,
    select,
    update,
)

from ...exceptions import Busy, InvalidInput, ScheduleExhausted, StoreFailed
from ...ledger import ModelRegistered, ReleaseMade, ReleaseWithdrawn
from ...rights.identifiers import ID
from .engine import chunks, write_exactly
from .keystore import mark_dead
from .people_table import count_people
from .tables import models, releases, shipments, shred

HASH_BYTES = 32
_KEYS = select(models.c.name, models.c.key)
_PRESENT = models.c.removed.is_(None)
_BEFORE = releases.alias("before")
_IS_NEWEST = (releases.c.model == models.c.name) & (
    releases.c.number == models.c.number
)
_NEWEST = (
    select(
        models.c.name,
        releases.c.digest,
        _BEFORE.c.digest.label("before"),
    )
    .join(releases, _IS_NEWEST)
    .outerjoin(
        _BEFORE,
        (_BEFORE.c.model == models.c.name) & (_BEFORE.c.number == models.c.number - 1),
    )
    .where(models.c.name.in_(bindparam("names", expanding=True)))
    .order_by(models.c.name)
)


@dataclass(frozen=True, slots=True)
class ReleaseStatus:
    """A release that left the registry.

    Parameters
    ----------
    model, number, made, digest
        Its model and number, when it was made, and the digest of its certificate.
    superseded
        When a newer release replaced this one, which still includes people since
        forgotten; None if it is the newest.
    withdrawn
        When every copy had been taken back; None if that was not stated.
    shipped
        When it left, and under which file name.
    """

    model: str
    number: int
    made: int
    digest: str
    superseded: int | None
    withdrawn: int | None
    shipped: tuple[tuple[int, str], ...]

    @property
    def is_outstanding(self) -> bool:
        """Whether copies are out there that must no longer be used."""
        last, _ = self.shipped[-1]
        taken_back = self.withdrawn is not None and last <= self.withdrawn
        return self.superseded is not None and not taken_back


def model_names(connection: Connection) -> list[str]:
    """Return the names of all models, except those that were removed."""
    names = select(models.c.name).where(_PRESENT).order_by(models.c.name)
    return [*connection.scalars(names)]


def read_subject_kinds(connection: Connection) -> tuple[str, ...]:
    """Return the kinds of identifier that ids of people are, where one was declared.

    Rows of a model that was removed may be sealed apart, so it counts too.
    """
    kinds = select(models.c.subject_kind).where(models.c.subject_kind != ID).distinct()
    return tuple(sorted(connection.scalars(kinds)))


def read_subject_kind(connection: Connection, name: str) -> str:
    """Return the kind of identifier that the ids of a model's people are."""
    kind = select(models.c.subject_kind).where(models.c.name == name)
    return str(connection.scalar(kind) or ID)


def read_columns(connection: Connection, name: str) -> str:
    """Return what the columns of a model's table are, as it was given at the fit."""
    # Not models.c.columns: a collection of columns has an attribute of that name.
    said = select(models.c["columns"]).where(models.c.name == name, _PRESENT)
    return str(connection.scalar(said) or "")


def read_keys(connection: Connection) -> dict[str, int]:
    """Return the number of the key of each model's checkpoint; 0 if it has none."""
    return {name: key for name, key in connection.execute(_KEYS)}


def read_newest(connection: Connection, name: str) -> Row[Any]:
    """Return a model with the content of its newest release."""
    query = (
        select(models, releases.c.content, releases.c.digest)
        .join(releases, _IS_NEWEST)
        .where(models.c.name == name, _PRESENT)
    )
    found = connection.execute(query).first()
    if found is None:
        raise unknown_model_error(connection, name)
    return found


def read_released(connection: Connection, name: str | None) -> list[Row[Any]]:
    """Return each model with the ``content`` of its newest release, or one.

    With them come ``certificate``, ``number``, ``made`` and ``n_people``.
    """
    query = (
        select(
            models.c.name,
            releases.c.content,
            releases.c.certificate,
            releases.c.number,
            releases.c.made,
            count_people(models.c.name).scalar_subquery().label("n_people"),
        )
        .join(releases, _IS_NEWEST)
        .where(_PRESENT)
        .order_by(models.c.name)
    )
    one = query.where(models.c.name == name)
    return list(connection.execute(query if name is None else one))


def check_content(name: str, content: bytes | None) -> bytes:
    """Return the content of a model's release, once its hash, before it, agrees."""
    if content is None:
        raise ScheduleExhausted(
            f"model {name!r} has no release: when it was restored, its budget was "
            "spent, or files no longer held rows that it had to forget; fit it again"
        )
    said, data = content[:HASH_BYTES], content[HASH_BYTES:]
    if sha256(data).digest() != said:
        raise StoreFailed(
            f"the release of model {name!r} was altered in the database; put it back "
            "from a backup and run expunge restore"
        )
    return data


def newest_number(connection: Connection, name: str) -> int:
    """Return which release of a model is the newest."""
    query = select(models.c.number).where(models.c.name == name, _PRESENT)
    found = connection.scalar(query)
    if found is None:
        raise unknown_model_error(connection, name)
    return int(found)


def unknown_model_error(connection: Connection, name: str) -> InvalidInput:
    """Return the error that there is no such model, or no longer."""
    if is_removed(connection, name):
        return InvalidInput(f"model {name!r} was removed; the ledger says when")
    there = model_names(connection)
    return InvalidInput(
        f"there is no model {name!r}; the models are {', '.join(there)}"
        if there
        else f"there is no model {name!r}, nor any other; fit one first"
    )


def insert_model(connection: Connection, model: dict[str, Any]) -> None:
    """Write a new model."""
    connection.execute(insert(models), model)


def insert_absent_model(connection: Connection, name: str, *, created: int) -> None:
    """Write a model of which nothing is left, unless there is one of that name."""
    there = select(models.c.name).where(models.c.name == name)
    if connection.execute(there).first() is None:
        nothing = {"number": 0, "key": 0}
        insert_model(connection, {"name": name, "created": created, **nothing})


_ADVANCE = update(models).where(
    models.c.name == bindparam("of"), models.c.key == bindparam("before")
)


def advance_model(
    connection: Connection, name: str, *, before: int, after: Mapping[str, Any]
) -> None:
    """Let the checkpoint after the one of this key count, with the release it has.

    ``after`` holds ``key`` and ``number``. Raises Busy if another process was faster.
    ``mark_dead`` has the key before destroyed.
    """
    moved = {"of": name, "before": before, **after}
    refusal = model_changed_error(name)
    write_exactly(connection, _ADVANCE, rows=[moved], n=1, refusal=refusal)


def model_changed_error(name: str) -> Busy:
    """Return the error that another process changed a model meanwhile."""
    return Busy(
        f"another process has changed model {name!r} meanwhile; run the command again"
    )


_CERTIFICATES = (
    select(
        models.c.name,
        models.c.key,
        models.c.fits,
        models.c.removed,
        releases.c.certificate,
    )
    .join(releases, _IS_NEWEST)
    .where(models.c.name.in_(bindparam("names", expanding=True)))
)


def read_newest_certificates(
    connection: Connection, wanted: Sequence[str]
) -> dict[str, Row[Any]]:
    """Return the certificate of the newest release of each of these models.

    With it come ``fits``, how often the model was fitted, when it was ``removed``, and
    the ``key`` of its checkpoint.
    """
    found: Iterable[Row[Any]] = connection.execute(_CERTIFICATES, {"names": wanted})
    return {line.name: line for line in found}


_SUPERSEDE = (
    update(releases)
    .where(releases.c.model == bindparam("of"), releases.c.superseded.is_(None))
    .values(superseded=bindparam("time"), content=None)
)
_INSERT = insert(releases)


def insert_release(connection: Connection, release: dict[str, Any]) -> None:
    """Write a release; those before it are superseded and lose their parameters."""
    replaced = {"of": release["model"], "time": release["made"]}
    connection.execute(_SUPERSEDE, replaced)
    connection.execute(_INSERT, release)


def find_release(connection: Connection, name: str, *, number: int) -> Row[Any]:
    """Return one release."""
    query = select(releases).where(
        releases.c.model == name, releases.c.number == number
    )
    found = connection.execute(query).first()
    if found is None:
        if name not in model_names(connection):
            raise unknown_model_error(connection, name)
        raise InvalidInput(f"model {name!r} has no release {number}; see status")
    return found


def read_newest_digests(connection: Connection, names: Sequence[str]) -> list[Row[Any]]:
    """Return the ``digest`` of each model's newest release, and the one ``before`` it.

    These are of certificates; the one before is None for the first release.
    """
    return list(connection.execute(_NEWEST, {"names": names}))


def has_release(connection: Connection, name: str, *, number: int) -> bool:
    """Return whether a model has a release of this number."""
    query = select(releases.c.number).where(
        releases.c.model == name, releases.c.number == number
    )
    return connection.execute(query).first() is not None


def has_certificate(connection: Connection, name: str, *, digest: str) -> bool:
    """Return whether a model has a release whose certificate has this digest."""
    query = select(releases.c.number).where(
        releases.c.model == name, releases.c.digest == digest
    )
    return connection.execute(query.limit(1)).first() is not None


def read_certificates(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    """Return certificates as JSON, by their digests."""
    found = {}
    for chunk in chunks(digests):
        query = select(releases.c.digest, releases.c.certificate)
        for line in connection.execute(query.where(releases.c.digest.in_(chunk))):
            found[line.digest] = line.certificate
    return found


def read_all_certificates(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield the certificate of every release, and the digest that it should have."""
    query = select(releases.c.certificate, releases.c.digest)
    yield from ((text, digest) for text, digest in connection.execute(query))


def retire_model(connection: Connection, name: str, *, number: int, time: int) -> None:
    """Leave a model without a release, and without a checkpoint."""
    mark_dead(connection, [read_keys(connection)[name]])
    connection.execute(
        update(models).where(models.c.name == name).values(key=0, number=number)
    )
    connection.execute(
        update(releases)
        .where(releases.c.model == name, releases.c.superseded.is_(None))
        .values(superseded=time, content=None)
    )


def is_removed(connection: Connection, name: str) -> bool:
    """Return whether a model was removed."""
    query = select(models.c.removed).where(models.c.name == name)
    return connection.scalar(query) is not None


def mark_removed(connection: Connection, name: str, *, time: int) -> None:
    """Leave of a model only the certificates of its releases, unless that was done."""
    connection.execute(
        insert(shred).from_select(
            ["number"],
            select(models.c.key).where(models.c.name == name, models.c.key > 0),
        )
    )
    connection.execute(
        update(models)
        .where(models.c.name == name, _PRESENT)
        .values(key=0, removed=time)
    )
    connection.execute(_SUPERSEDE, {"of": name, "time": time})


def insert_lost_release(
    connection: Connection,
    entry: ModelRegistered | ReleaseMade,
    *,
    certificate: str,
    time: int,
) -> None:
    """Write a release that the ledger knows of, without parameters.

    ``time`` is when its entry was written, which itself knows the day.
    """
    numbers = select(func.max(releases.c.number)).where(releases.c.model == entry.model)
    connection.execute(
        insert(releases),
        {
            "model": entry.model,
            "number": int(connection.scalar(numbers) or 0) + 1,
            "made": time,
            "certificate": certificate,
            "digest": entry.certificate,
            "superseded": time,
        },
    )


def insert_shipment(connection: Connection, shipment: Mapping[str, Any]) -> None:
    """Write down that a release left, unless that is written."""
    same = (shipments.c[name] == value for name, value in shipment.items())
    if connection.execute(select(shipments.c.id).where(*same)).first() is None:
        connection.execute(insert(shipments), {**shipment})


_SHIPMENTS: Any = (
    select(
        releases.c.model,
        releases.c.number,
        releases.c.made,
        releases.c.digest,
        releases.c.superseded,
        releases.c.withdrawn,
        shipments.c.time,
        shipments.c.name,
    )
    .join(
        shipments,
        (shipments.c.model == releases.c.model)
        & (shipments.c.number == releases.c.number),
    )
    .order_by(releases.c.model, releases.c.number, shipments.c.time)
)


def read_shipments(connection: Connection, name: str | None = None) -> list[Row[Any]]:
    """Return every release that left, once for each time, of one model or of all."""
    of_one = _SHIPMENTS.where(releases.c.model == name)
    return list(connection.execute(_SHIPMENTS if name is None else of_one))


def shipped_releases(
    connection: Connection, name: str | None = None
) -> list[ReleaseStatus]:
    """Return the releases that left, of one model or of all, each once."""
    lines = read_shipments(connection, name)
    found = []
    for _, group in groupby(lines, lambda line: (line.model, line.number)):
        shipments = list(group)
        first = shipments[0]
        found.append(
            ReleaseStatus(
                model=first.model,
                number=first.number,
                made=first.made,
                digest=first.digest,
                superseded=first.superseded,
                withdrawn=first.withdrawn,
                shipped=tuple((line.time, line.name) for line in shipments),
            )
        )
    return found


def mark_withdrawn(connection: Connection, said: Mapping[str, Any]) -> None:
    """Write down that every copy of a release was taken back: model, number, time."""
    _mark_withdrawn(connection, releases.c.number == said["number"], said=said)


def mark_withdrawal(
    connection: Connection, entry: ReleaseWithdrawn, *, time: int
) -> None:
    """Write down what an entry says, that every copy of a release was taken back."""
    said = {"model": entry.model, "time": time}
    _mark_withdrawn(connection, releases.c.digest == entry.certificate, said=said)


def _mark_withdrawn(
    connection: Connection, which: ColumnElement[bool], *, said: Mapping[str, Any]
) -> None:
    """Write down when a release was taken back, unless a later time is written.

    A journal that was rebuilt knows only the day of an entry, and beside it the time.
    """
    earlier = releases.c.withdrawn.is_(None) | (releases.c.withdrawn < said["time"])
    connection.execute(
        update(releases)
        .where(releases.c.model == said["model"], which, earlier)
        .values(withdrawn=said["time"])
    )
