# SPDX-License-Identifier: Apache-2.0
"""Rebuilding: a damaged journal is written again from the database in use.

The database has everything that a journal says, but for the tags of people who were
forgotten: those are erased with the people. Lines that are whole still have them, so
what is lost is known: the people of so many requests cannot be named any more. A backup
from before these requests is then refused, and a fit warns that it cannot tell them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..certificate import Certificate
from ..exceptions import JournalDamaged, NeedsRestore
from ..ledger import Head, RequestCompleted, read_entry
from ..ledger.pages import midnight
from ..stores import chain, publications, requests
from ..stores.journal import STATEMENT
from ..stores.notes import MARK, mark_in, write_note
from .accepting import line_of
from .catching_up import catch_up, require_known
from .news import AGREED
from .replay import WRITERS, unnamed
from .site import WAIT, Site
from .statement import MADE

Content: TypeAlias = dict[str, Any]


def rebuild_journal(site: Site) -> int:
    """Write the journal again; return how many requests cannot be named any more."""
    with site.working(WAIT):
        with site.store.reading() as connection:
            mark = mark_in(connection)
            if site.journal.is_whole(mark):
                return 0
            for name in publications.checkpoints(connection).values():
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
    pending = [line.id for line in requests.at_stage(connection, requests.ACCEPTED)]
    new = [id_ for id_ in pending if id_ not in accepted]
    if new:
        found = requests.look_up(connection, new)
        tags = requests.tags_of(connection, new)
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
    for text in chain.heads_in(connection):
        head = Head.from_json(text)
        entries = chain.entries_from(connection, start, head.size - start)
        start = head.size
        done = [one.request for one in entries if isinstance(one, RequestCompleted)]
        made = [one for one in entries if isinstance(one, MADE)]
        papers = {
            one.certificate: publications.certificate(connection, one) for one in made
        }
        completed = requests.look_up(connection, done)
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
    receipt: Mapping[str, str] = json.loads(requests.receipt(connection, request) or "")
    return receipt["signature"]


def _is_fit(certificate: str) -> bool:
    """Whether a release is the first one of a fit."""
    return not Certificate.from_json(certificate).n_subjects_removed


def _left(connection: Connection) -> Iterator[Content]:
    """Yield what the store says of releases that left."""
    for line in publications.shipped(connection):
        which = {"model": line.model, "number": line.number}
        yield {"shipped": which | {"time": line.time, "name": line.name}}
        if line.withdrawn is not None:
            yield {"withdrawn": which | {"time": line.withdrawn}}
