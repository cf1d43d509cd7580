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

from ..disk import destroy, leftovers, may, replace_file, sweep, write_new
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
from .context import WAIT, Site, time_for
from .folder import (
    Places,
    Settings,
    first_keys,
    next_signing_path,
    next_tag_path,
    note_tag_keys,
    read_settings,
    require_safe,
    require_tag_keys,
    signing_path_of,
    signing_paths,
    write_settings,
)
from .requests import insert_accepted, line_of
from .statements import (
    AGREED,
    MADE,
    WRITERS,
    Statement,
    accepted_ids,
    completed_ids,
    conclude,
    read_statement,
    unnamed,
    unread,
    write_left,
)
from .storage import (
    alone,
    ledger_table,
    releases_table,
    requests_table,
    require_made,
    require_newest,
    upgrade,
)
from .storage.engine import Collision, translated
from .storage.journal import STATEMENT, Line
from .storage.ledger_table import Appending
from .storage.tables import MARK, mark_in, note, write_note


def catch_up(site: Site) -> None:
    """Take in what the journal has; raise NeedsRestore if the store is too old."""
    with site.store.reading() as connection:
        lines = unread(site)
        if not lines:
            return
        require_known(connection, lines)
        there = requests_table.look_up(connection, accepted_ids(lines))
    accepted = [one for _, line in lines for one in line.get("accepted", ())]
    missing = {one["id"]: one for one in accepted if one["id"] not in there}
    _take_in(site, missing.values())
    others = [line for _, line in lines if "accepted" not in line]
    if others and not _are_in(site, others):
        _write(site, others)


def require_current(site: Site) -> None:
    """Refuse a store that is older than journal or keys, and a damaged journal.

    Nothing is changed. A process that works meanwhile may move on between two looks;
    then both are taken again.
    """
    while True:
        turn = site.turn_now()
        try:
            _require_current(site)
        except NeedsRestore:
            if site.turn_now() == turn:
                raise
        else:
            return


def _require_current(site: Site) -> None:
    with site.store.reading() as connection:
        require_tag_keys(connection, site.places.keys)
    lines = unread(site)
    # Only now: what the journal tells of is in the store by the time it is told.
    with site.store.reading() as connection:
        for name in releases_table.checkpoints(connection).values():
            site.checkpoints.require_key(name)
        require_known(connection, lines)


def require_known(connection: Connection, lines: Sequence[Line]) -> None:
    """Refuse a store that does not know what came of a request or of a fit."""
    completed = completed_ids(lines)
    there = requests_table.look_up(connection, completed)
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
        if not releases_table.has_digest(connection, entry.model, entry.certificate)
    ]
    if lost or gone:
        raise NeedsRestore(
            f"the journal knows of {len(lost)} completed request(s) and {len(gone)} "
            "release(s) that the database does not: it was put back from a backup; run "
            "expunge restore BACKUP, so that nobody comes back with it"
        )


def _take_in(site: Site, missing: Iterable[dict[str, Any]]) -> None:
    """Accept requests from the journal, unless their sender does so at this moment."""
    for line in missing:
        try:
            with site.store.writing() as connection:
                insert_accepted(connection, [line])
        except Collision:
            continue


def _are_in(site: Site, lines: Iterable[dict[str, Any]]) -> bool:
    """Whether lines are statements, and the store holds all of them."""
    with site.store.reading() as connection:
        size = ledger_table.size(connection)
    return all(
        STATEMENT in line and read_entry(line[STATEMENT][0]).sequence < size
        for line in lines
    )


def _write(site: Site, lines: Iterable[dict[str, Any]]) -> None:
    """Write what the store lacks: statements as they were made, releases that left."""
    with site.changing() as connection:
        ledger = ledger_table.ledger_in(connection)
        for line in lines:
            if STATEMENT not in line:
                write_left(connection, line)
            elif read_entry(line[STATEMENT][0]).sequence >= ledger.size:
                statement = read_statement(line, ledger)
                statement.write(connection)
                ledger = statement.book.ledger
        write_note(connection, AGREED, str(site.stated))


READABLE = 0o644  # whatever the umask: others check by it, and must not change it


def rotate_signing_key(site: Site) -> None:
    """Let a new key sign from the next head on."""
    with site.store.reading() as connection:
        book = Appending(ledger_table.ledger_in(connection))
    old = site.signing_key(book.ledger)
    new = signing_key(next_signing_path(site.places.keys))
    time = time_for(book.ledger)
    day = day_of(time)
    rotation = KeyRotated(
        sequence=book.ledger.size, day=day, public=new.public.raw.hex()
    )
    book.append(sign(rotation, old))
    conclude(site, Statement(book, book.ledger.head(new, day), time))
    tidy(site)


def rotate_tag_key(site: Site) -> None:
    """Tag new people under a new key."""
    tag_key(next_tag_path(site.places.keys))
    with site.changing() as connection:
        note_tag_keys(connection, site.places.keys)


@translated()
def tidy(site: Site) -> None:
    """List all public keys, and destroy secret ones that are not in force."""
    if len(signing_paths(site.places.keys)) < 2 and site.places.public.exists():
        return
    # While nobody can state a rotation: the key of one that is about to come must stay.
    with site.changing() as connection, site.journal.stating(site.stated):
        keys = ledger_table.ledger_in(connection).keys
        replace_file(site.places.public, keys.to_pem().encode("ascii"), READABLE)
        current = signing_path_of(site.places.keys, keys.current)
        for path in signing_paths(site.places.keys):
            if path != current:
                destroy(path)


Content: TypeAlias = dict[str, Any]


def rebuild_journal(site: Site) -> int:
    """Write the journal again; return how many requests cannot be named any more."""
    with site.working(WAIT):
        with site.store.reading() as connection:
            mark = mark_in(connection)
            if site.journal.is_whole(mark):
                return 0
            for name in releases_table.checkpoints(connection).values():
                site.checkpoints.require_key(name)
            _require_newest(site, mark.end)
            whole = site.journal.whole_lines()
            require_known(connection, whole)
            lines = [line for _, line in whole]
            lines += _missing(connection, lines)
        with site.changing() as connection:
            write_note(connection, MARK, str(site.journal.rewrite(lines)))
            write_note(connection, AGREED, "0")
        catch_up(site)
        with site.changing() as connection:
            write_note(connection, AGREED, str(site.stated))
    return len(unnamed(lines))


def _require_newest(site: Site, known: int) -> None:
    """Refuse a database that may be older than the journal was.

    The mark beside the journal tells how long that was. What the database did not know
    of must be whole.
    """
    end = site.journal.noted().end
    try:
        ends = [place for place, _ in site.journal.read(known)] if end > known else []
    except JournalDamaged:
        ends = []
    if end > known and end not in ends:
        raise NeedsRestore(
            f"the journal held {end} bytes and the database knows of {known}: it was "
            "put back from a backup, and nobody can tell who was forgotten since; put "
            "back the newest copy of the journal"
        )


def _missing(connection: Connection, lines: Sequence[Content]) -> Iterator[Content]:
    """Yield as lines what the database has and the journal lacks."""
    accepted = {one["id"] for line in lines for one in line.get("accepted", ())}
    pending = [
        line.id for line in requests_table.at_stage(connection, requests_table.ACCEPTED)
    ]
    new = [id_ for id_ in pending if id_ not in accepted]
    if new:
        found = requests_table.look_up(connection, new)
        tags = requests_table.tags_of(connection, new)
        yield {"accepted": [line_of(found[id_], tags[id_]) for id_ in new]}
    stated = {
        read_entry(line[STATEMENT][0]).sequence for line in lines if STATEMENT in line
    }
    for statement in _statements(connection):
        if read_entry(statement[STATEMENT][0]).sequence not in stated:
            yield statement
    known = [line for line in lines if not line.keys().isdisjoint(WRITERS)]
    yield from (line for line in _left(connection) if line not in known)


def _statements(connection: Connection) -> Iterator[Content]:
    """Yield all statements in the store as lines of a journal."""
    start = 0
    for text in ledger_table.heads_in(connection):
        head = Head.from_json(text)
        entries = ledger_table.entries_from(connection, start, head.size - start)
        start = head.size
        done = [one.request for one in entries if isinstance(one, RequestCompleted)]
        made = [one for one in entries if isinstance(one, MADE)]
        papers = {
            one.certificate: releases_table.certificate(connection, one) for one in made
        }
        completed = requests_table.look_up(connection, done)
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
        requests_table.receipt(connection, request) or ""
    )
    return receipt["signature"]


def _is_fit(certificate: str) -> bool:
    """Whether a release is the first one of a fit."""
    return not Certificate.from_json(certificate).n_subjects_removed


def _left(connection: Connection) -> Iterator[Content]:
    """Yield what the store says of releases that left."""
    for line in releases_table.shipped(connection):
        which = {"model": line.model, "number": line.number}
        yield {"shipped": which | {"time": line.time, "name": line.name}}
        if line.withdrawn is not None:
            yield {"withdrawn": which | {"time": line.withdrawn}}


def make(places: Places, settings: Settings) -> Site:
    """Return a new registry, or one that exists with its tables up to date."""
    require_safe(places)
    try:
        made = read_settings(places)
    except NoRegistry:
        return _made(places, settings)
    if settings.url is not None and settings.url != made.url:
        raise InvalidInput(
            f"{places.folder} holds a registry on another database; open it, or make "
            "this one elsewhere"
        )
    _require_database(places, made)
    site = Site.at(places, made)
    with site.unless_it_fails():
        require_made(site.store)
        upgrade(site.store)
        _require_one_registry(site)
        require_current(site)
    return site


def come_back(places: Places) -> Site:
    """Return the registry in a folder."""
    site = opened(places)
    with site.unless_it_fails():
        require_current(site)
        _tidy_up(site)
    return site


def opened(places: Places) -> Site:
    """Return the registry in a folder, not compared with its journal and keys."""
    settings = read_settings(places)
    require_safe(places)
    _require_database(places, settings)
    site = Site.at(places, settings)
    with site.unless_it_fails():
        require_newest(site.store)
        _require_one_registry(site)
    return site


def _made(places: Places, settings: Settings) -> Site:
    """Make a registry; one that a crash left half made is finished."""
    site = Site.at(places, settings)
    with site.unless_it_fails():
        with translated():
            places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = first_keys(places.keys)
            if settings.url is None and not places.database.exists():
                write_new(places.database, b"")  # for its owner alone
        site.checkpoints.begin()
        upgrade(site.store)
        with site.working(WAIT), translated():
            with site.changing() as connection:
                _begin_ledger(connection, key.public.raw.hex())
                note_tag_keys(connection, places.keys)
            site.checkpoints.belong_to(key.public.raw.hex())
            require_current(site)
            tidy(site)
            write_settings(places, settings)  # last: now it is one
    return site


def _tidy_up(site: Site) -> None:
    """Remove what killed processes left, unless somebody is at work."""
    folders = [folder for folder in site.places.folders if may(folder, os.W_OK)]
    if any(map(leftovers, folders)):
        with suppress(Busy), alone(site.store, site.places.lock, 0.0), translated():
            for folder in folders:
                sweep(folder)


def _begin_ledger(connection: Connection, first: str) -> None:
    """Note the first key of the ledger; refuse a database that has another one."""
    if note(connection, ledger_table.FIRST_KEY, first) != first:
        raise InvalidInput(
            "the database holds another registry; give each a database of its own"
        )
    write_note(connection, ledger_table.FIRST_KEY, first)


def _require_database(places: Places, settings: Settings) -> None:
    """Refuse to make a new database where one was lost."""
    if settings.url is None and not places.database.exists():
        raise NeedsRestore(
            f"{places.database} is missing: it was lost; put it back from a backup "
            "with expunge restore BACKUP"
        )


def _require_one_registry(site: Site) -> None:
    """Refuse a folder of checkpoints that is another registry's than the database."""
    with site.store.reading() as connection:
        site.checkpoints.belong_to(note(connection, ledger_table.FIRST_KEY))
