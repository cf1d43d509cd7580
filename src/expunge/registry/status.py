# SPDX-License-Identifier: Apache-2.0
"""Looking: what a registry shows of itself, in transactions that change nothing."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from ..exceptions import UnknownRequest
from ..promise.certificate import Certificate
from .context import Context
from .loaded_model import load_public
from .requests import request_status, require_request_id
from .storage import ledger_table, people_table, releases_table, requests_table
from .storage.tables import read_mark
from .values import ModelStatus, RegistryStatus, ReleaseStatus, RequestStatus


def read_status(context: Context) -> RegistryStatus:
    """Return the registry at one moment."""
    with context.store.read() as connection:
        context.journal.require(read_mark(connection))
        ledger = ledger_table.read_ledger(connection)
        n_requests, n_completed = requests_table.count_requests(connection)
        left = shipped_releases(releases_table.read_shipments(connection))
        return RegistryStatus(
            models=tuple(
                _model_status(connection, name)
                for name in releases_table.model_names(connection)
            ),
            pending=tuple(map(request_status, requests_table.read_pending(connection))),
            outstanding=tuple(filter(_is_outstanding, left)),
            n_requests=n_requests,
            n_completed=n_completed,
            ledger_size=ledger.size,
            key=ledger.keys.current.id,
            store=context.store.dialect,
        )


def request(context: Context, request_id: str) -> RequestStatus:
    """Return how far a request is."""
    require_request_id(request_id)
    with context.store.read() as connection:
        found = requests_table.find_requests(connection, [request_id])
    if request_id not in found:
        raise UnknownRequest(
            f"request {request_id} was never accepted here; send it, or look at "
            "another registry"
        )
    return request_status(found[request_id])


def shipped_releases(lines: Iterable[Any]) -> list[ReleaseStatus]:
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


def _model_status(connection: Connection, name: str) -> ModelStatus:
    """Return a model as it is released now."""
    number = releases_table.newest_number(connection, name)
    line = releases_table.find_release(connection, name, number)
    # Without content: a model whose contract is spent, and which must be fitted anew.
    spent = line.content is None
    return ModelStatus(
        name=name,
        estimator="" if spent else load_public(name, line.content).estimator,
        certificate=Certificate.from_json(line.certificate),
        number=number,
        made=line.made,
        n_people=people_table.count_people(connection, name),
    )
