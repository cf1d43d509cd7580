# SPDX-License-Identifier: Apache-2.0
"""Catching up: the store takes in what the journal has and it lacks.

After a crash that is at most a request nobody was told of, a statement that was about
to be written to the store, and a release that was about to leave. Anything else means
that the database is older than the journal: it was put back from a backup, and people
would come back.

Rebuilding: a damaged journal is written again from the database in use.

The database has everything that a journal says, but for the tags of people who were
forgotten: those are erased with the people. Lines that are whole still have them, so
what is lost is known: the people of so many requests cannot be named any more. A backup
from before these requests is then refused, and a fit warns that it cannot tell them.

Making a registry, and coming back to one.

Rotating keys: a new one from now on, and the old secret is destroyed.

The ledger's entry decides which key signs. Whatever a crash left undone around it, keys
that never came into force or are no longer in force, and public keys not yet listed, is
tidied up by whoever works next.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..disk import (
    delete_leftovers,
    destroy,
    find_leftovers,
    is_allowed,
    replace_file,
    write_new_file,
)
from ..exceptions import Busy, InvalidInput, JournalDamaged, NeedsRestore, NoRegistry
from ..ledger import (
    Head,
    KeyRotated,
    RequestCompleted,
    read_entry,
    sign,
    signing_key,
    tag_key,
)
from ..ledger.documents import day_of, midnight
from ..promise.certificate import Certificate
from .context import WAIT, Context, next_entry_time
from .folder import (
    Paths,
    Settings,
    create_first_keys,
    find_signing_path,
    next_signing_path,
    next_tag_path,
    read_settings,
    require_safe_folder,
    require_tag_keys,
    signing_paths,
    write_settings,
    write_tag_key_ids,
)
from .requests import insert_accepted, journal_line
from .statements import (
    MADE,
    POSITION,
    WRITERS,
    Statement,
    accepted_ids,
    completed_ids,
    find_unnamed,
    read_statement,
    unread_lines,
    write_shipment,
    write_statement,
)
from .storage import (
    hold_worker_lock,
    ledger_table,
    releases_table,
    requests_table,
    require_current_schema,
    require_tables,
    upgrade_tables,
)
from .storage.engine import Collision, translate_errors
from .storage.journal import STATEMENT, Line
from .storage.ledger_table import LedgerBatch
from .storage.tables import MARK, read_mark, read_metadata, write_metadata


def replay_journal(context: Context) -> None:
    """Take in what the journal has; raise NeedsRestore if the store is too old."""
    with context.store.read() as connection:
        lines = unread_lines(context)
        if not lines:
            return
        require_store_knows(connection, lines)
        there = requests_table.find_requests(connection, accepted_ids(lines))
    accepted = [one for _, line in lines for one in line.get("accepted", ())]
    missing = {one["id"]: one for one in accepted if one["id"] not in there}
    _insert_missing(context, missing.values())
    others = [line for _, line in lines if "accepted" not in line]
    if others and not _has_statements(context, others):
        _write_lines(context, others)


def require_current_store(context: Context) -> None:
    """Refuse a store that is older than journal or keys, and a damaged journal.

    Nothing is changed. A process that works meanwhile may move on between two looks;
    then both are taken again.
    """
    while True:
        turn = context.current_turn()
        try:
            _require_current_once(context)
        except NeedsRestore:
            if context.current_turn() == turn:
                raise
        else:
            return


def _require_current_once(context: Context) -> None:
    with context.store.read() as connection:
        require_tag_keys(connection, context.paths.keys)
    lines = unread_lines(context)
    # Only now: what the journal tells of is in the store by the time it is told.
    with context.store.read() as connection:
        for name in releases_table.read_checkpoints(connection).values():
            context.checkpoints.require_key(name)
        require_store_knows(connection, lines)


def require_store_knows(connection: Connection, lines: Sequence[Line]) -> None:
    """Refuse a store that does not know what came of a request or of a fit."""
    completed = completed_ids(lines)
    there = requests_table.find_requests(connection, completed)
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == requests_table.ACCEPTED
    ]
    texts = (text for _, line in lines for text in line.get(STATEMENT, ()))
    made = [entry for entry in map(read_entry, texts) if isinstance(entry, MADE)]
    gone = [
        entry
        for entry in made
        if not releases_table.has_certificate(
            connection, entry.model, entry.certificate
        )
    ]
    if lost or gone:
        raise NeedsRestore(
            f"the journal knows of {len(lost)} completed request(s) and {len(gone)} "
            "release(s) that the database does not: it was put back from a backup; run "
            "expunge restore BACKUP, so that nobody comes back with it"
        )


def _insert_missing(context: Context, missing: Iterable[dict[str, Any]]) -> None:
    """Accept requests from the journal, unless their sender does so at this moment."""
    for line in missing:
        try:
            with context.store.write() as connection:
                insert_accepted(connection, [line])
        except Collision:
            continue


def _has_statements(context: Context, lines: Iterable[dict[str, Any]]) -> bool:
    """Whether lines are statements, and the store holds all of them."""
    with context.store.read() as connection:
        size = ledger_table.count_entries(connection)
    return all(
        STATEMENT in line and read_entry(line[STATEMENT][0]).sequence < size
        for line in lines
    )


def _write_lines(context: Context, lines: Iterable[dict[str, Any]]) -> None:
    """Write what the store lacks: statements as they were made, releases that left."""
    with context.write_in_turn() as connection:
        ledger = ledger_table.read_ledger(connection)
        for line in lines:
            if STATEMENT not in line:
                write_shipment(connection, line)
            elif read_entry(line[STATEMENT][0]).sequence >= ledger.size:
                statement = read_statement(line, ledger)
                statement.write(connection)
                ledger = statement.batch.ledger
        write_metadata(connection, POSITION, str(context.journal_position))


READABLE = 0o644  # whatever the umask: others check by it, and must not change it


def rotate_signing_key(context: Context) -> None:
    """Let a new key sign from the next head on."""
    with context.store.read() as connection:
        batch = LedgerBatch(ledger_table.read_ledger(connection))
    old = context.signing_key(batch.ledger)
    new = signing_key(next_signing_path(context.paths.keys))
    time = next_entry_time(batch.ledger)
    day = day_of(time)
    rotation = KeyRotated(
        sequence=batch.ledger.size, day=day, public=new.public.raw.hex()
    )
    batch.append(sign(rotation, old))
    write_statement(context, Statement(batch, batch.ledger.head(new, day), time))
    tidy_keys(context)


def rotate_tag_key(context: Context) -> None:
    """Tag new people under a new key."""
    tag_key(next_tag_path(context.paths.keys))
    with context.write_in_turn() as connection:
        write_tag_key_ids(connection, context.paths.keys)


@translate_errors()
def tidy_keys(context: Context) -> None:
    """List all public keys, and destroy secret ones that are not in force."""
    if len(signing_paths(context.paths.keys)) < 2 and context.paths.public.exists():
        return
    # While nobody can state a rotation: the key of one that is about to come must stay.
    with (
        context.write_in_turn() as connection,
        context.journal.lock_for_statement(context.journal_position),
    ):
        keys = ledger_table.read_ledger(connection).keys
        replace_file(context.paths.public, keys.to_pem().encode("ascii"), READABLE)
        current = find_signing_path(context.paths.keys, keys.current)
        for path in signing_paths(context.paths.keys):
            if path != current:
                destroy(path)


Content: TypeAlias = dict[str, Any]


def rebuild_journal(context: Context) -> int:
    """Write the journal again; return how many requests cannot be named any more."""
    with context.hold_lock(WAIT):
        with context.store.read() as connection:
            mark = read_mark(connection)
            if context.journal.is_whole(mark):
                return 0
            for name in releases_table.read_checkpoints(connection).values():
                context.checkpoints.require_key(name)
            _require_newest(context, mark.end)
            whole = context.journal.read_whole_lines()
            require_store_knows(connection, whole)
            lines = [line for _, line in whole]
            lines += _missing_lines(connection, lines)
        with context.write_in_turn() as connection:
            write_metadata(connection, MARK, str(context.journal.rewrite(lines)))
            write_metadata(connection, POSITION, "0")
        replay_journal(context)
        with context.write_in_turn() as connection:
            write_metadata(connection, POSITION, str(context.journal_position))
    return len(find_unnamed(lines))


def _require_newest(context: Context, known: int) -> None:
    """Refuse a database that may be older than the journal was.

    The mark beside the journal tells how long that was. What the database did not know
    of must be whole.
    """
    end = context.journal.read_mark_file().end
    try:
        ends = (
            [place for place, _ in context.journal.read(known)] if end > known else []
        )
    except JournalDamaged:
        ends = []
    if end > known and end not in ends:
        raise NeedsRestore(
            f"the journal held {end} bytes and the database knows of {known}: it was "
            "put back from a backup, and nobody can tell who was forgotten since; put "
            "back the newest copy of the journal"
        )


def _missing_lines(
    connection: Connection, lines: Sequence[Content]
) -> Iterator[Content]:
    """Yield as lines what the database has and the journal lacks."""
    accepted = {one["id"] for line in lines for one in line.get("accepted", ())}
    pending = [
        line.id
        for line in requests_table.read_stage(connection, requests_table.ACCEPTED)
    ]
    new = [id_ for id_ in pending if id_ not in accepted]
    if new:
        found = requests_table.find_requests(connection, new)
        tags = requests_table.read_tags(connection, new)
        yield {"accepted": [journal_line(found[id_], tags[id_]) for id_ in new]}
    stated = {
        read_entry(line[STATEMENT][0]).sequence for line in lines if STATEMENT in line
    }
    for statement in _statement_lines(connection):
        if read_entry(statement[STATEMENT][0]).sequence not in stated:
            yield statement
    known = [line for line in lines if not line.keys().isdisjoint(WRITERS)]
    yield from (line for line in _shipment_lines(connection) if line not in known)


def _statement_lines(connection: Connection) -> Iterator[Content]:
    """Yield all statements in the store as lines of a journal."""
    start = 0
    for text in ledger_table.read_heads(connection):
        head = Head.from_json(text)
        entries = ledger_table.read_entries(connection, start, head.size - start)
        start = head.size
        done = [one.request for one in entries if isinstance(one, RequestCompleted)]
        made = [one for one in entries if isinstance(one, MADE)]
        papers = {
            one.certificate: releases_table.read_certificate(connection, one)
            for one in made
        }
        completed = requests_table.find_requests(connection, done)
        times = [line.completed for line in completed.values()]
        yield {
            STATEMENT: [one.to_json() for one in entries],
            "head": text,
            "time": max(times, default=midnight(head.day)),
            "receipts": {id_: _signature(connection, id_) for id_ in done},
            "fitted": [one.model for one in made if _is_fit(papers[one.certificate])],
            "certificates": papers,
        }


def _signature(connection: Connection, request: str) -> str:
    receipt: Mapping[str, str] = json.loads(
        requests_table.read_receipt(connection, request) or ""
    )
    return receipt["signature"]


def _is_fit(certificate: str) -> bool:
    """Whether a release is the first one of a fit."""
    return not Certificate.from_json(certificate).n_subjects_removed


def _shipment_lines(connection: Connection) -> Iterator[Content]:
    """Yield what the store says of releases that left."""
    for line in releases_table.read_shipments(connection):
        which = {"model": line.model, "number": line.number}
        yield {"shipped": which | {"time": line.time, "name": line.name}}
        if line.withdrawn is not None:
            yield {"withdrawn": which | {"time": line.withdrawn}}


def create_registry(paths: Paths, settings: Settings) -> Context:
    """Return a new registry, or one that exists with its tables up to date."""
    require_safe_folder(paths)
    try:
        made = read_settings(paths)
    except NoRegistry:
        return _create_new(paths, settings)
    if settings.url is not None and settings.url != made.url:
        raise InvalidInput(
            f"{paths.folder} holds a registry on another database; open it, or make "
            "this one elsewhere"
        )
    _require_database(paths, made)
    context = Context.in_folder(paths, made)
    with context.close_on_error():
        require_tables(context.store)
        upgrade_tables(context.store)
        _require_one_registry(context)
        require_current_store(context)
    return context


def open_registry(paths: Paths) -> Context:
    """Return the registry in a folder."""
    context = open_unchecked(paths)
    with context.close_on_error():
        require_current_store(context)
        _delete_leftovers(context)
    return context


def open_unchecked(paths: Paths) -> Context:
    """Return the registry in a folder, not compared with its journal and keys."""
    settings = read_settings(paths)
    require_safe_folder(paths)
    _require_database(paths, settings)
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        require_current_schema(context.store)
        _require_one_registry(context)
    return context


def _create_new(paths: Paths, settings: Settings) -> Context:
    """Make a registry; one that a crash left half made is finished."""
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        with translate_errors():
            paths.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = create_first_keys(paths.keys)
            if settings.url is None and not paths.database.exists():
                write_new_file(paths.database, b"")  # for its owner alone
        context.checkpoints.create()
        upgrade_tables(context.store)
        with context.hold_lock(WAIT), translate_errors():
            with context.write_in_turn() as connection:
                _write_first_key(connection, key.public.raw.hex())
                write_tag_key_ids(connection, paths.keys)
            context.checkpoints.require_owner(key.public.raw.hex())
            require_current_store(context)
            tidy_keys(context)
            write_settings(paths, settings)  # last: now it is one
    return context


def _delete_leftovers(context: Context) -> None:
    """Remove what killed processes left, unless somebody is at work."""
    folders = [
        folder for folder in context.paths.folders if is_allowed(folder, os.W_OK)
    ]
    if any(map(find_leftovers, folders)):
        with (
            suppress(Busy),
            hold_worker_lock(context.store, context.paths.lock, 0.0),
            translate_errors(),
        ):
            for folder in folders:
                delete_leftovers(folder)


def _write_first_key(connection: Connection, first: str) -> None:
    """Note the first key of the ledger; refuse a database that has another one."""
    if read_metadata(connection, ledger_table.FIRST_KEY, first) != first:
        raise InvalidInput(
            "the database holds another registry; give each a database of its own"
        )
    write_metadata(connection, ledger_table.FIRST_KEY, first)


def _require_database(paths: Paths, settings: Settings) -> None:
    """Refuse to make a new database where one was lost."""
    if settings.url is None and not paths.database.exists():
        raise NeedsRestore(
            f"{paths.database} is missing: it was lost; put it back from a backup "
            "with expunge restore BACKUP"
        )


def _require_one_registry(context: Context) -> None:
    """Refuse a folder of checkpoints that is another registry's than the database."""
    with context.store.read() as connection:
        context.checkpoints.require_owner(
            read_metadata(connection, ledger_table.FIRST_KEY)
        )
