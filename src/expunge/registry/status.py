# SPDX-License-Identifier: Apache-2.0
"""Looking: what a registry shows of itself, in transactions that change nothing."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from ..exceptions import UnknownRequest
from ..promise.certificate import Certificate
from .context import Site
from .held import released
from .requests import require_request
from .requests import status as request_status
from .storage import ledger_table, people_table, releases_table, requests_table
from .storage.tables import mark_in
from .values import ModelStatus, ReleaseStatus, RequestStatus, Status


def look(site: Site) -> Status:
    """Return the registry at one moment."""
    with site.store.reading() as connection:
        site.journal.require(mark_in(connection))
        ledger = ledger_table.ledger_in(connection)
        n_requests, n_completed = requests_table.counts(connection)
        left = releases(releases_table.shipped(connection))
        return Status(
            models=tuple(
                _model(connection, name) for name in releases_table.names(connection)
            ),
            pending=tuple(map(request_status, requests_table.pending(connection))),
            outstanding=tuple(filter(_is_outstanding, left)),
            n_requests=n_requests,
            n_completed=n_completed,
            ledger_size=ledger.size,
            key=ledger.keys.current.id,
            store=site.store.dialect,
        )


def request(site: Site, request_id: str) -> RequestStatus:
    """Return how far a request is."""
    require_request(request_id)
    with site.store.reading() as connection:
        found = requests_table.look_up(connection, [request_id])
    if request_id not in found:
        raise UnknownRequest(
            f"request {request_id} was never accepted here; send it, or look at "
            "another registry"
        )
    return request_status(found[request_id])


def releases(lines: Iterable[Any]) -> list[ReleaseStatus]:
    """Return releases that left, each once, from one line for each time it did."""
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


def _is_outstanding(release: ReleaseStatus) -> bool:
    """Whether copies are out there that must not be used any more."""
    last, _ = release.shipped[-1]
    taken_back = release.withdrawn is not None and last <= release.withdrawn
    return release.superseded is not None and not taken_back


def _model(connection: Connection, name: str) -> ModelStatus:
    """Return a model as it is released now."""
    number = releases_table.number(connection, name)
    line = releases_table.release(connection, name, number)
    # Without content: a model whose contract is spent, and which must be fitted anew.
    spent = line.content is None
    return ModelStatus(
        name=name,
        estimator="" if spent else type(released(line)).__name__,
        certificate=Certificate.from_json(line.certificate),
        number=number,
        made=line.made,
        n_people=people_table.count(connection, name),
    )
