# SPDX-License-Identifier: Apache-2.0
"""Catching up: the store takes in what the journal has and it lacks.

After a crash that is at most a request nobody was told of, a release that was about to
leave, and a statement that will be made again. Anything else means that the database is
older than the journal: it was put back from a backup, and people would come back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from ..exceptions import NeedsRestore
from ..ledger import read_entry
from ..stores import publications, requests
from ..stores.engine import Collision
from . import shipping
from .accepting import insert_accepted
from .keys import require_tag_keys
from .news import Line, accepted_ids, completed_ids, unread
from .replay import MADE
from .site import Site


def catch_up(site: Site) -> None:
    """Take in what the journal has; raise NeedsRestore if the store is too old."""
    with site.store.reading() as connection:
        lines = unread(connection, site.journal)
        if not lines:
            return
        _require_known(connection, lines)
        there = requests.look_up(connection, accepted_ids(lines))
    accepted = [one for _, line in lines for one in line.get("accepted", ())]
    missing = {one["id"]: one for one in accepted if one["id"] not in there}
    _take_in(site, missing.values())
    left = [line for _, line in lines if "shipped" in line or "withdrawn" in line]
    if left:
        with site.store.writing() as connection:
            for line in left:
                shipping.take_in(connection, line)


def require_current(site: Site) -> None:
    """Raise NeedsRestore if the store is older than journal or keys; change nothing."""
    with site.store.reading() as connection:
        require_tag_keys(connection, site.places.keys)
        for name in publications.checkpoints(connection).values():
            site.checkpoints.require_key(name)
        _require_known(connection, unread(connection, site.journal))


def _require_known(connection: Connection, lines: Sequence[Line]) -> None:
    """Refuse a store that does not know what came of a request or of a fit."""
    completed = completed_ids(lines)
    there = requests.look_up(connection, completed)
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == requests.ACCEPTED
    ]
    texts = (text for _, line in lines for text in line.get("entries", ()))
    made = [
        entry.certificate for entry in map(read_entry, texts) if isinstance(entry, MADE)
    ]
    gone = [one for one in made if not publications.has_digest(connection, one)]
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
