# SPDX-License-Identifier: Apache-2.0
"""What a registry keeps: whose rows where, under which keys, and what else is there."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import event, func, select, text

from expunge.exceptions import ExpungeError, StoreFailed
from expunge.ledger import TagKey, subject_tags
from expunge.private_model.model import PrivateModel, require_optimised
from expunge.registry import Registry
from expunge.registry.context import Paths
from expunge.registry.keys import read_tag_keys
from expunge.registry.loaded_model import load_rows
from expunge.registry.log import read_position
from expunge.registry.recovery.new_log import find_unnamed
from expunge.registry.request import read_tags
from expunge.registry.requests import seal_new_rows
from expunge.registry.storage import (
    Checkpoints,
    Keystore,
    people_table,
    releases_table,
    tables,
)
from expunge.registry.storage.checkpoints import OWNER
from expunge.registry.storage.engine import PRAGMAS
from expunge.registry.storage.keystore import FIRST, place_of, read_dead, unseal
from expunge.registry.storage.people_table import APART, PersonRows
from expunge.registry.storage.people_table import IN_USE as USED

from .inside import Place, inside

IN_USE = {"all": "in use", "half": "in use"}
RESTRICTED = {"all": "restricted", "half": "restricted"}
HELD = {"all": "held", "half": "held"}

__all__ = ["unseal"]


def folder_of(registry: Registry) -> Path:
    """Return the folder of a registry."""
    return registry._context.paths.folder


def is_on_sqlite(at: Place) -> bool:
    """Return whether the database is a file of the registry."""
    return address_of_database(at) is None


def address_of_database(at: Place) -> str | None:
    """Return the address of a database on a server; None if it is a file."""
    with inside(at) as found:
        return found.settings.url


def private_model_of(registry: Registry, name: str) -> PrivateModel:
    """Return the private state of a model."""
    with registry._context.hold_lock(30.0):
        return require_optimised(registry._context.load_model(name).private)


def private_models_in(folder: Path) -> dict[str, PrivateModel]:
    """Return the private state of every model of a registry in which nobody works."""
    with inside(folder) as found:
        with found.store.read() as connection:
            names = releases_table.model_names(connection)
        return {
            name: require_optimised(found.load_model(name).private) for name in names
        }


# The journal.


def journal_of(registry: Registry) -> list[dict[str, Any]]:
    """Return the lines of the journal."""
    return [line for _, line in registry._context.log.read()]


def accepted_in_journal(registry: Registry) -> set[str]:
    """Return the requests that the journal says were accepted."""
    lines = journal_of(registry)
    return {one["request"] for line in lines for one in line.get("accepted", ())}


def journal_file(folder: Path) -> Path:
    """Return the journal, which may lie on another disk."""
    return Paths(folder).journal


def unnamed_in_journal(registry: Registry) -> set[str]:
    """Return the requests that the journal calls completed without saying of whom."""
    return find_unnamed(journal_of(registry))


def knows_its_journal(registry: Registry) -> bool:
    """Return whether the database has a mark after the last line of the journal."""
    with registry._context.store.read() as connection:
        known = read_position(connection).mark
    return known.end == registry._context.paths.journal.stat().st_size


# Rows: where they are.


def where(registry: Registry, person: str) -> dict[str, str]:
    """Return the models that a registry holds a person's rows of, and at which place.

    A place is "in use", "restricted" or "held", or says what does not agree.
    """
    with registry._context.store.read() as connection:
        every = people_table.find_tagged_rows(connection, tags_of(registry, person))
    places: dict[str, str] = {}
    for one in every:
        place, model = one.place, one.model
        if places.get(model, place) != place:
            places[model] = f"{places[model]} and {place}"
        else:
            places[model] = place
    return places


class Apart(NamedTuple):
    """What is said of a person's rows that no model may use."""

    model: str
    place: str
    reason: str
    until: str
    request: str


def said_of_rows_apart(at: Place) -> list[Apart]:
    """Return what is said of all rows that no model may use."""
    with inside(at) as found, found.store.read() as connection:
        return [
            Apart(one.model, one.place, one.reason, one.until, one.request)
            for one in people_table.read_rows_apart(connection)
        ]


def count_rows(registry: Registry, model: str, *, apart: bool = False) -> int:
    """Return how many people a model has rows of, or those that it may not use."""
    table = tables.rows.c
    places = APART if apart else (USED,)
    with registry._context.store.read() as connection:
        asked = select(func.count()).where(
            table.model == model, table.place.in_(places)
        )
        return connection.scalar(asked) or 0


def has_keys(registry: Registry, model: str) -> bool:
    """Return whether anything is left that opens rows or the state of a model."""
    with inside(registry) as found:
        with found.store.read() as connection:
            used = people_table.read_rows_in_use(connection, model)
            state = releases_table.read_keys(connection)[model]
        numbers = [state, *(key for key, _, _ in used)]
        files = [
            int(path.name.rpartition(".")[2])
            for path in found.checkpoints.folder.glob(f"{model}.*")
        ]
        return bool(found.keystore.load([*numbers, *files]))


# Rows: as they are sealed, and what opens them.


def sealed_rows(
    registry: Registry, person: str, model: str, *, apart: bool = False
) -> list[bytes]:
    """Return the rows of a person as they are sealed."""
    return [one.sealed for one in _lines(registry, person, model, apart)]


def live_keys(folder: Path) -> dict[int, bytes]:
    """Return all keys that are not destroyed, by number."""
    keystore = Keystore(Paths(folder).keystore)
    return keystore.load(range(FIRST, keystore.end()))


def keys_in_use(registry: Registry, model: str) -> set[bytes]:
    """Return the keys to the rows that a model uses."""
    with registry._context.store.read() as connection:
        used = people_table.read_rows_in_use(connection, model)
    return {*registry._context.keystore.load(key for key, _, _ in used).values()}


def keys_apart(registry: Registry, model: str) -> set[bytes]:
    """Return the keys to the rows of a model's people that it may not use."""
    with inside(registry) as found, found.store.read() as connection:
        apart = people_table.read_rows_apart(connection)
        numbers = [one.key for one in apart if one.model == model]
        return {*found.keystore.load(numbers).values()}


def open_apart(registry: Registry, person: str, model: str = "all") -> Any:
    """Return the newest features of a person that a model may not use."""
    lines = _lines(registry, person, model, True)
    (*_, content) = people_table.unseal_rows(registry._context.keystore, lines)
    rows, _ = load_rows([content])
    return np.asarray(rows.X)[:, :-1]  # the last column is the intercept's


def opens_apart(registry: Registry, person: str, model: str, *, key: bytes) -> bool:
    """Return whether a key opens the rows of a person that a model may not use."""
    (one,) = _lines(registry, person, model, True)
    try:
        unseal(one.sealed, key, place=place_of(one.key, one.what))
    except StoreFailed:
        return False
    return True


def keys_to_rows(
    registry: Registry, person: str, model: str, *, apart: bool = False
) -> list[bytes]:
    """Return the keys that open the rows of a person, in use by a model or apart."""
    numbers = [one.key for one in _lines(registry, person, model, apart)]
    return [*registry._context.keystore.load(numbers).values()]


class Opened(NamedTuple):
    """The rows of a person that a kept key opens."""

    model: str
    is_apart: bool
    tag: str
    content: bytes


def rows_that_open(folder: Path) -> Iterator[Opened]:
    """Yield all rows that the keys of a registry open."""
    with inside(folder) as opened, opened.store.read() as connection:
        lines = [
            PersonRows(*line) for line in connection.execute(people_table.EVERY_LINE)
        ]
        live = opened.keystore.load(one.key for one in lines)
        there = [one for one in lines if one.key in live]
        blobs = people_table.unseal_rows(opened.keystore, there)
        for one, blob in zip(there, blobs, strict=True):
            yield Opened(one.model, one.place in APART, one.tag, blob)


def states_that_open(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield model, file and content of the states that the keys of a registry open."""
    for path in Paths(folder).checkpoints.iterdir():
        with suppress(ExpungeError):
            name = path.name.rpartition(".")[0]
            yield name, path.name, open_state(folder, path.name)


def _lines(
    registry: Registry, person: str, model: str, apart: bool
) -> list[PersonRows]:
    with registry._context.store.read() as connection:
        found = people_table.find_tagged_rows(connection, tags_of(registry, person))
    places = APART if apart else (USED,)
    return [one for one in found if one.model == model and one.place in places]


# Keys and files.


def tag_keys_of(at: Place) -> tuple[TagKey, ...]:
    """Return the keys of tags, oldest first."""
    with inside(at) as found:
        return read_tag_keys(found.paths)


def tags_of(at: Place, person: str) -> tuple[str, ...]:
    """Return the tags that a person may have."""
    return subject_tags(person, tag_keys_of(at))


def tag_counts(registry: Registry, requests: list[str]) -> dict[str, int]:
    """Return under how many tags each of these waiting requests is kept."""
    with registry._context.store.read() as connection:
        found = read_tags(connection, requests)
    return {request: len(tags) for request, tags in found.items()}


def state_key(registry: Registry, model: str) -> bytes:
    """Return the key to a model's state."""
    found = registry._context
    with found.store.read() as connection:
        number = releases_table.read_keys(connection)[model]
    return found.keystore.load([number])[number]


def open_state(folder: Path, name: str) -> bytes:
    """Return the content of a file of a model's state, or raise what refuses it."""
    paths = Paths(folder)
    model, _, number = name.rpartition(".")
    checkpoints = Checkpoints(paths.checkpoints, Keystore(paths.keystore))
    return checkpoints.read(model, int(number) if number.isdecimal() else 0)


def opens_state(path: Path, key: bytes) -> bool:
    """Return whether a key opens a file of a model's state."""
    number = int(path.name.rpartition(".")[2])
    try:
        unseal(path.read_bytes(), key, place=place_of(number, path.name))
    except StoreFailed:
        return False
    return True


def keys_of_new_rows(at: Place) -> list[str]:
    """Return the requests whose new rows have a key, and "" for keys of nothing."""
    table = tables.rows.c
    with inside(at) as found, found.store.read() as connection:
        asked = select(table.key, table.request).where(table.place == "waiting")
        lines = {key: request for key, request in connection.execute(asked)}
        live = found.keystore.load(lines)
    unused = [""] * len(unused_keys(at))
    return [request for key, request in lines.items() if key in live] + unused


def unused_keys(at: Place) -> list[int]:
    """Return the keys that are not destroyed, and under which nothing is kept."""
    with inside(at) as found:
        with found.store.read() as connection:
            lines = connection.execute(select(tables.rows.c.key))
            used = {key for (key,) in lines}
            used |= {*releases_table.read_keys(connection).values()}
            dead = read_dead(connection)
        every = range(FIRST, found.keystore.end())
        live = found.keystore.load(every)
    assert not used & {*dead}
    return [number for number in live if number not in used]


def make_key_of_new_rows(registry: Registry, request: str) -> None:
    """Leave a key of new rows, as a process does that is killed before it accepts."""
    seal_new_rows(registry._context, request, rows={"all": b"rows"})


def checkpoints_in(folder: Path) -> list[str]:
    """Return the names of the files of models' states."""
    names = sorted(path.name for path in Paths(folder).checkpoints.iterdir())
    return [name for name in names if name != OWNER]


def leftovers_of(folder: Path) -> Iterator[str]:
    """Yield what should have been deleted with what it belongs to."""
    for number in unused_keys(folder):
        yield f"key {number} is not destroyed, and nothing is sealed under it"
    for request in keys_of_new_rows(folder):
        yield f"{request} is answered, and the key of its new rows is kept"
    with inside(folder) as found, found.store.read() as connection:
        keys = releases_table.read_keys(connection)
    there = {f"{model}.{key}" for model, key in keys.items() if key}
    for file in {*checkpoints_in(folder)} ^ there:
        yield f"{file} was left behind, or is missing"


# Requests, releases, aliases, callbacks.


class Waiting(NamedTuple):
    """How much a registry keeps of what a request was sent with, until it is done."""

    n_tags: int
    n_near: int
    n_rows: int


NOTHING = Waiting(0, 0, 0)


def kept_of_request(registry: Registry, request: str) -> Waiting:
    """Return how many tags, tags of looser forms and new rows a request has."""
    tags, rows = tables.request_tags.c, tables.rows.c
    kept = (
        (tags.request == request) & (tags.near == 0),
        (tags.request == request) & (tags.near == 1),
        rows.request == request,
    )
    with registry._context.store.read() as connection:
        counts = [connection.scalar(select(func.count()).where(one)) for one in kept]
    return Waiting(*(int(one or 0) for one in counts))


class StoredRelease(NamedTuple):
    """A release as the database has it."""

    model: str
    number: int
    made: int
    superseded: int | None
    has_content: bool


def releases_of(registry: Registry, *models: str) -> list[StoredRelease]:
    """Return the releases of some models, or of all, by number and model."""
    table = tables.releases.c
    with registry._context.store.read() as connection:
        found = connection.execute(
            select(
                table.model,
                table.number,
                table.made,
                table.superseded,
                table.content.isnot(None),
            ).order_by(table.number, table.model)
        )
        return [
            StoredRelease(*line) for line in found if not models or line[0] in models
        ]


class Shipment(NamedTuple):
    """What left, as the database has it."""

    model: str
    number: int
    name: str


def shipments_of(at: Place) -> list[Shipment]:
    """Return what left."""
    table = tables.shipments.c
    with inside(at) as found, found.store.read() as connection:
        asked = select(table.model, table.number, table.name).order_by(table.id)
        return [Shipment(*line) for line in connection.execute(asked)]


class StoredAlias(NamedTuple):
    """An alias as the database has it: its tag, and whose it is, twice."""

    tag: str
    person: str
    sealed: bytes


def aliases_of(registry: Registry) -> list[StoredAlias]:
    """Return all aliases."""
    table = tables.aliases.c
    with registry._context.store.read() as connection:
        found = connection.execute(select(table.tag, table.person, table.sealed))
        return [StoredAlias(*line) for line in found]


def unstated_in(registry: Registry) -> list[str]:
    """Return the kinds of the entries that the ledger must still get."""
    with registry._context.store.read() as connection:
        return [*connection.scalars(text("SELECT kind FROM unstated ORDER BY id"))]


def count_callbacks(registry: Registry) -> int:
    """Return how many callbacks are kept."""
    with registry._context.store.read() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM callbacks")) or 0)


def is_sound(registry: Registry) -> bool:
    """Return whether SQLite finds no fault with its file."""
    with registry._context.store.read() as connection:
        check = connection.exec_driver_sql("PRAGMA integrity_check")
        return check.scalar() == "ok"


def database_like_a_registrys(path: Path) -> sqlite3.Connection:
    """Return an empty SQLite database that is as careful as that of a registry."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


# What the database is asked.


@contextmanager
def asked_of_database(registry: Registry) -> Iterator[list[tuple[str, int]]]:
    """Give a list of what the database is asked meanwhile, and with how many values."""
    seen: list[tuple[str, int]] = []

    def note(conn: Any, cursor: Any, statement: str, given: Any, *_: Any) -> None:
        seen.append((statement, len(given)))

    engine = registry._context.store.engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


@contextmanager
def searches_of_database(registry: Registry) -> Iterator[list[str]]:
    """Give a list of how SQLite finds what it is asked for meanwhile."""
    plans: list[str] = []

    def explain(connection: Any, _: object, statement: str, *rest: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            raw = connection.connection.cursor()
            lines = raw.execute(f"EXPLAIN QUERY PLAN {statement}", rest[0])
            plans.extend(str(line[3]) for line in lines)

    engine = registry._context.store.engine
    event.listen(engine, "before_cursor_execute", explain)
    yield plans
    event.remove(engine, "before_cursor_execute", explain)
