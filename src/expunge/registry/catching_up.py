# SPDX-License-Identifier: Apache-2.0
"""Catching up: the store takes in what the journal has and it lacks.

After a crash that is at most a request nobody was told of, and a statement that will be
made again. Anything else means that the database is older than the journal: it was put
back from a backup, and people would come back with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from ..exceptions import NeedsRestore
from ..stores import publications, requests
from ..stores.engine import Collision
from ..stores.notes import note
from .accepting import insert_accepted
from .completing import JOURNAL_END
from .site import Site


def catch_up(site: Site) -> None:
    """Take in accepted requests; raise NeedsRestore if completed ones are missing."""
    news = list(unread(site))
    there = _known(site, news)
    _require_completed(news, there)
    accepted = [one for line in news for one in line.get("accepted", ())]
    missing = {one["id"]: one for one in accepted if one["id"] not in there}
    _take_in(site, missing.values())


def require_current(site: Site) -> None:
    """Raise NeedsRestore if the store is older than journal or keys; change nothing."""
    with site.store.reading() as connection:
        generations = publications.generations(connection)
    for name, generation in generations.items():
        site.checkpoints.vault.keys(name).of(generation, name)
    news = list(unread(site))
    _require_completed(news, _known(site, news))


def unread(site: Site) -> Iterable[dict[str, Any]]:
    """Return the lines of the journal since the store last agreed with it."""
    with site.store.reading() as connection:
        start = int(note(connection, JOURNAL_END, "0"))
    return site.journal.read(start)


def _known(site: Site, news: Sequence[dict[str, Any]]) -> dict[str, Row[Any]]:
    """Return those requests that the journal names and the store has."""
    named = {request for line in news for request in line.get("receipts", ())}
    named |= {one["id"] for line in news for one in line.get("accepted", ())}
    if not named:
        return {}
    with site.store.reading() as connection:
        return requests.look_up(connection, sorted(named))


def _require_completed(
    news: Sequence[dict[str, Any]], there: Mapping[str, Row[Any]]
) -> None:
    """Refuse a store that does not know what became of a completed request."""
    completed = {request for line in news for request in line.get("receipts", ())}
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == requests.ACCEPTED
    ]
    if lost:
        raise NeedsRestore(
            f"the journal knows of {len(lost)} completed request(s) that the database "
            "does not: it was put back from a backup; run expunge restore BACKUP, so "
            "that nobody comes back with it"
        )


def _take_in(site: Site, missing: Iterable[dict[str, Any]]) -> None:
    """Accept requests from the journal, unless their sender does so at this moment."""
    for line in missing:
        try:
            with site.store.writing() as connection:
                insert_accepted(connection, [line])
        except Collision:
            continue
