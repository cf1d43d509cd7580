# SPDX-License-Identifier: Apache-2.0
"""Pending rows: the new rows of a rectification, sealed until it is applied.

They wait in the store under a key of their own in the vault, which is destroyed with
the request's last step: then no copy of the database opens them. They are not in the
journal. If the database is lost, or a crash left the request in the journal alone, the
request is known and waits, but its rows must be sent again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ..context import Context
from ..storage import requests_table
from ..storage.vault import seal, unseal

MARK = "?"  # no model has such a name


class NewRows(NamedTuple):
    """Rows of a person as they should be: features, targets and weights.

    If X is an array its columns are those of the fit, in their order, or ``columns``
    names them.
    """

    X: Any
    y: Any
    sample_weight: Any = None
    columns: tuple[str, ...] = ()


def seal_new_rows(
    context: Context, request: str, *, rows: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """Return new rows, by model, as the store keeps them; the key is on disk then."""
    key = context.checkpoints.vault.create_keys(_key_name(request)).present
    return [
        {
            "request": request,
            "model": model,
            "sealed": seal(data, key, place=_place(request, model)),
        }
        for model, data in rows.items()
    ]


def read_new_rows(
    context: Context, connection: Connection, *, lines: Iterable[Any]
) -> dict[str, dict[str, bytes]]:
    """Return the new rows of the rectifications among requests, by id and model.

    Rows without a key are lost, and left out.
    """
    wanted = [line.id for line in lines if line.right == "rectify"]
    found: dict[str, dict[str, bytes]] = {request: {} for request in wanted}
    # At once: a request may be cancelled at any moment, and its key destroyed.
    held = context.checkpoints.vault.read_all() if wanted else {}
    for line in requests_table.read_new_rows(connection, wanted):
        keys = held.get(_key_name(line.request))
        if keys is not None:
            place = _place(line.request, line.model)
            opened = unseal(line.sealed, keys.present, place=place)
            found[line.request][line.model] = opened
    return found


def destroy_pending_keys(context: Context, requests: Iterable[str]) -> None:
    """Destroy the keys of new rows that are no longer needed."""
    names = {_key_name(request): None for request in requests}
    if names:
        context.checkpoints.vault.destroy_old_keys(lambda: names)


def destroy_unneeded_keys(context: Context) -> None:
    """Destroy the keys of new rows that no waiting request brings; the lock is held.

    A process that was killed, or a backup, may have left some.
    """
    names = context.checkpoints.vault.read_all()
    kept = [name.removeprefix(MARK) for name in names if name.startswith(MARK)]
    if not kept:
        return
    with context.store.read(snapshot=False) as connection:
        waiting = requests_table.find_waiting(connection, kept)
    destroy_pending_keys(context, [one for one in kept if one not in waiting])


def _key_name(request: str) -> str:
    return MARK + request


def _place(request: str, model: str) -> str:
    return f"new rows for {model} of request {request}"
