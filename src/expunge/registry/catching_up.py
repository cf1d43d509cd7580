# SPDX-License-Identifier: Apache-2.0
"""Catching up: the store takes in what the journal has and it lacks.

After a crash that is at most a request nobody was told of, a statement that was about
to be written to the store, and a release that was about to leave. Anything else means
that the database is older than the journal: it was put back from a backup, and people
would come back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from ..exceptions import NeedsRestore
from ..ledger import read_entry
from ..stores import chain, publications, requests
from ..stores.engine import Collision
from ..stores.journal import STATEMENT, Line
from ..stores.notes import write_note
from .accepting import insert_accepted
from .keys import require_tag_keys
from .news import AGREED, accepted_ids, completed_ids, unread
from .replay import write_left
from .site import Site
from .statement import MADE, read_statement


def catch_up(site: Site) -> None:
    """Take in what the journal has; raise NeedsRestore if the store is too old."""
    with site.store.reading() as connection:
        lines = unread(site)
        if not lines:
            return
        require_known(connection, lines)
        there = requests.look_up(connection, accepted_ids(lines))
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
        for name in publications.checkpoints(connection).values():
            site.checkpoints.require_key(name)
        require_known(connection, lines)


def require_known(connection: Connection, lines: Sequence[Line]) -> None:
    """Refuse a store that does not know what came of a request or of a fit."""
    completed = completed_ids(lines)
    there = requests.look_up(connection, completed)
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == requests.ACCEPTED
    ]
    texts = (text for _, line in lines for text in line.get(STATEMENT, ()))
    made = [entry for entry in map(read_entry, texts) if isinstance(entry, MADE)]
    gone = [
        entry
        for entry in made
        if not publications.has_digest(connection, entry.model, entry.certificate)
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
        size = chain.size(connection)
    return all(
        STATEMENT in line and read_entry(line[STATEMENT][0]).sequence < size
        for line in lines
    )


def _write(site: Site, lines: Iterable[dict[str, Any]]) -> None:
    """Write what the store lacks: statements as they were made, releases that left."""
    with site.changing() as connection:
        ledger = chain.ledger_in(connection)
        for line in lines:
            if STATEMENT not in line:
                write_left(connection, line)
            elif read_entry(line[STATEMENT][0]).sequence >= ledger.size:
                statement = read_statement(line, ledger)
                statement.write(connection)
                ledger = statement.book.ledger
        write_note(connection, AGREED, str(site.stated))
