# SPDX-License-Identifier: Apache-2.0
"""What a registry keeps: whose rows where, under which keys, and what else is there."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import event, func, select, text

from expunge.exceptions import ExpungeError, StoreFailed
from expunge.ledger import TagKey, subject_tags
from expunge.private_model.model import PrivateModel
from expunge.registry import Registry
from expunge.registry.answering.pending_rows import MARK, seal_new_rows
from expunge.registry.context import Context, Paths
from expunge.registry.keys import read_tag_keys
from expunge.registry.loaded_model import load_rows, split_parts
from expunge.registry.log import read_position
from expunge.registry.recovery.new_log import find_unnamed
from expunge.registry.storage import (
    Checkpoints,
    Vault,
    aside_table,
    people_table,
    releases_table,
    requests_table,
    tables,
)
from expunge.registry.storage.aside_table import aside_name, is_aside, model_of
from expunge.registry.storage.engine import PRAGMAS
from expunge.registry.storage.people_table import PageKeys, SealedRows
from expunge.registry.storage.vault import KEY_BYTES, OWNER, unseal

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
        return registry._context.load_model(name).private


def private_models_in(folder: Path) -> dict[str, PrivateModel]:
    """Return the private state of every model of a registry in which nobody works."""
    with inside(folder) as found:
        with found.store.read() as connection:
            names = releases_table.model_names(connection)
        return {name: found.load_model(name).private for name in names}


# The journal.


def journal_of(registry: Registry) -> list[dict[str, Any]]:
    """Return the lines of the journal."""
    return [line for _, line in registry._context.log.read()]


def accepted_in_journal(registry: Registry) -> set[str]:
    """Return the requests that the journal says were accepted."""
    lines = journal_of(registry)
    return {one["id"] for line in lines for one in line.get("accepted", ())}


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
        said = aside_table.read_asides(connection, [one.subject for _, one in every])
    places: dict[str, str] = {}
    for name, one in every:
        aside = said.get((name, one.subject))
        place: str = "in use" if aside is None else aside.place
        if is_aside(name) == (aside is None):
            place = f"{place}, as {name}"
        model = model_of(name)
        places[model] = f"{places[model]} and {place}" if model in places else place
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
    table = tables.set_aside.c
    with inside(at) as found, found.store.read() as connection:
        asked = select(
            table.model, table.place, table.reason, table.until, table.request
        )
        return [
            Apart(model_of(name), *rest) for name, *rest in connection.execute(asked)
        ]


def count_rows(registry: Registry, model: str, *, apart: bool = False) -> int:
    """Return how many people a model has rows of, or those that it may not use."""
    table = tables.rows.c
    name = aside_name(model) if apart else model
    with registry._context.store.read() as connection:
        asked = select(func.count()).where(table.model == name)
        return connection.scalar(asked) or 0


def has_keys(registry: Registry, model: str) -> bool:
    """Return whether anything is left that opens rows or the state of a model."""
    table = tables.pages.c
    with inside(registry) as found, found.store.read() as connection:
        asked = select(func.count()).where(table.model == model)
        return bool(connection.scalar(asked)) or model in found.paths.vault.read_text()


# Rows: as they are sealed, and what opens them.


def sealed_rows(
    registry: Registry, person: str, model: str, *, apart: bool = False
) -> list[bytes]:
    """Return the rows of a person as they are sealed."""
    return [one.sealed for one in _sealed(registry, person, model, apart)]


def keys_in_use(registry: Registry, model: str) -> set[bytes]:
    """Return the keys to the rows that a model uses."""
    with registry._context.hold_lock(30.0):
        page_keys = registry._context.load_model(model).page_keys
    return {key.tobytes() for key in page_keys}


def keys_apart(registry: Registry, model: str) -> set[bytes]:
    """Return the keys to the rows of a model's people that it may not use."""
    with inside(registry) as found:
        return {key.tobytes() for key in _aside_keys(found, model)}


def open_apart(registry: Registry, person: str, model: str = "all") -> Any:
    """Return the newest features of a person that a model may not use."""
    with inside(registry) as found:
        return _open_apart(registry, person, model, _aside_keys(found, model))


def opens_apart(registry: Registry, person: str, model: str, *, key: bytes) -> bool:
    """Return whether a key opens the rows of a person that a model may not use."""
    (one,) = _sealed(registry, person, model, True)
    keys = np.tile(np.frombuffer(key, np.uint8), (one.page + 1, 1))
    try:
        _open_apart(registry, person, model, keys)
    except StoreFailed:
        return False
    return True


def keys_to_rows(registry: Registry, person: str, model: str) -> list[bytes]:
    """Return the keys that open the rows of a person alone, in use by a model."""
    with inside(registry) as found:
        keys = found.load_model(model).page_keys
        (one,) = _sealed(registry, person, model, False)
        with found.store.read() as connection:
            pages = people_table.read_pages(
                connection, model, found=[one], page_keys=keys
            )
    start = one.slot * KEY_BYTES
    return [pages[one.page][start : start + KEY_BYTES]]


def keys_around_rows(registry: Registry, person: str, model: str) -> list[bytes]:
    """Return the keys that those keys and a model's whole state are sealed under."""
    with inside(registry) as found:
        keys = found.load_model(model).page_keys
        (one,) = _sealed(registry, person, model, False)
    return [keys[one.page].tobytes(), state_key(registry, model)]


class Opened(NamedTuple):
    """The rows of a person that a kept key opens."""

    model: str
    is_apart: bool
    tag: str
    content: bytes


def rows_that_open(folder: Path) -> Iterator[Opened]:
    """Yield all rows that the keys of a registry open."""
    with inside(folder) as opened, opened.store.read() as connection:
        files = releases_table.read_all_checkpoints(connection)
        for name in (name for name, file in files.items() if file):  # not removed
            page_keys: PageKeys
            if is_aside(name):
                page_keys = _aside_keys(opened, model_of(name))
            else:
                page_keys = opened.load_model(name).page_keys
            there = people_table.read_all_rows(connection, name)
            pages = people_table.read_pages(
                connection, name, found=there, page_keys=page_keys
            )
            blobs = people_table.unseal_rows(name, there, pages=pages)
            for one, blob in zip(there, blobs, strict=True):
                content = b"".join(split_parts(blob)) if is_aside(name) else blob
                yield Opened(model_of(name), is_aside(name), one.tag, content)


def states_that_open(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield model, file and content of the states that the keys of a registry open."""
    for path in Paths(folder).checkpoints.iterdir():
        with suppress(ExpungeError):
            name = path.name.rsplit(".", 2)[0]
            yield name, path.name, open_state(folder, path.name)


def _sealed(
    registry: Registry, person: str, model: str, apart: bool
) -> list[SealedRows]:
    name = aside_name(model) if apart else model
    with registry._context.store.read() as connection:
        found = people_table.find_tagged_rows(connection, tags_of(registry, person))
    return people_table.sort_rows(one for under, one in found if under == name)


def _aside_keys(found: Context, model: str) -> PageKeys:
    with found.store.read() as connection:
        file = aside_table.read_file(connection, found.checkpoints, model=model)
    return file.page_keys


def _open_apart(registry: Registry, person: str, model: str, keys: PageKeys) -> Any:
    name, there = aside_name(model), _sealed(registry, person, model, True)
    with registry._context.store.read() as connection:
        pages = people_table.read_pages(connection, name, found=there, page_keys=keys)
    (content,) = people_table.unseal_rows(name, there, pages=pages)
    rows, _ = load_rows(split_parts(content)[-1:])
    return np.asarray(rows.X)[:, :-1]  # the last column is the intercept's


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
        found = requests_table.read_tags(connection, requests)
    return {request: len(tags) for request, tags in found.items()}


def state_key(registry: Registry, model: str, *, apart: bool = False) -> bytes:
    """Return the key to a model's state, or to that of its rows apart."""
    name = aside_name(model) if apart else model
    return registry._context.checkpoints.vault.read_keys(name).present


def state_keys(registry: Registry, model: str) -> tuple[bytes, bytes]:
    """Return the key to a model's state, and that to the next one."""
    keys = registry._context.checkpoints.vault.read_keys(model)
    return keys.present, keys.next


def open_state(folder: Path, name: str) -> bytes:
    """Return the content of a file of a model's state, or raise what refuses it."""
    paths = Paths(folder)
    return Checkpoints(paths.checkpoints, Vault(paths.vault)).read(name)


def keys_of_new_rows(at: Place) -> list[str]:
    """Return the requests whose new rows have a key."""
    with inside(at) as found:
        kept = json.loads(found.paths.vault.read_text())["keys"]
    return [name.removeprefix(MARK) for name in kept if name.startswith(MARK)]


def make_key_of_new_rows(registry: Registry, request: str) -> None:
    """Leave a key of new rows, as a process does that is killed before it accepts."""
    seal_new_rows(registry._context, request, rows={"all": b"rows"})


def checkpoints_in(folder: Path) -> list[str]:
    """Return the names of the files of models' states."""
    names = sorted(path.name for path in Paths(folder).checkpoints.iterdir())
    return [name for name in names if not name.startswith(("spare~", OWNER))]


def leftovers_of(folder: Path) -> Iterator[str]:
    """Yield what should have been deleted with what it belongs to."""
    paths = Paths(folder)
    table = tables.models.c
    with inside(folder) as found, found.store.read() as connection:
        asked = select(table.name, table.checkpoint, table.generation, table.removed)
        models = {line.name: line for line in connection.execute(asked)}
    kept = json.loads(paths.vault.read_text())["keys"]
    for request in keys_of_new_rows(folder):
        yield f"{request} is answered, and the key of its new rows is kept"
    for file in checkpoints_in(folder):
        name, generation, _ = file.rsplit(".", 2)
        current = models.get(name)
        if current is None:
            if name in kept:
                yield f"{file} was left behind, with a key"
            continue
        if current.removed is not None:
            yield f"{file} was left behind, and its model was removed"
            continue
        # A later one was never committed, and goes when its generation is.
        if file == current.checkpoint or int(generation) > current.generation:
            continue
        with suppress(ExpungeError):
            open_state(folder, file)
            yield f"{file} was left behind, and its key is not destroyed"


# Requests, releases, aliases, callbacks.


class Waiting(NamedTuple):
    """How much a registry keeps of what a request was sent with, until it is done."""

    n_tags: int
    n_near: int
    n_rows: int


NOTHING = Waiting(0, 0, 0)


def kept_of_request(registry: Registry, request: str) -> Waiting:
    """Return how many tags, tags of looser forms and new rows a request has."""
    kept = (tables.request_tags, tables.request_near, tables.request_rows)
    with registry._context.store.read() as connection:
        return Waiting(
            *(
                connection.scalar(
                    select(func.count()).where(table.c.request == request)
                )
                or 0
                for table in kept
            )
        )


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
