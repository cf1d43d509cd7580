# SPDX-License-Identifier: Apache-2.0
"""Cancelling: a request that waits is taken back, without waiting for a worker.

Like accepting it is one transaction that any process may make at any moment. The
request moves on only from "accepted", so of a worker that applies it and a process that
cancels it one comes first, and the other finds that it moved. A worker then starts its
batch again without the request; a process that comes too late says so.

The log has the line before the store has the commit. What a crash left in the log alone
is carried out by whoever writes next, unless the request was applied by then. Who asks
again is told that it is cancelled, as after any answer that was lost.

The tags and new rows that the request names are deleted with it. SQLite keeps their
bytes in its log until something is erased next, and the journal keeps the tags, as of
every request. The keys of new rows are destroyed, so no copy of them can be read.
"""

from sqlalchemy import Connection

from ...exceptions import RequestConflict
from ..context import Context
from ..storage import people_table, requests_table
from ..storage.tables import overtaken_error


def cancel_request(context: Context, request: str) -> None:
    """Take back a request that waits; refuse any other."""
    said = {"request": request}
    with context.log.record({"cancelled": said}) as connection:
        requests_table.require_request(connection, request)
        new_rows = people_table.read_waiting(connection, [request])
        if not requests_table.mark_cancelled(connection, said):
            require_untouched(connection, request)
            raise overtaken_error()
    if new_rows:
        note = context.shred([line.key for line in new_rows])
        with context.store.write() as connection:
            note(connection)


def require_waiting(connection: Connection, request: str) -> None:
    """Refuse a request that does not wait, or does not wait any more."""
    stage = requests_table.require_request(connection, request).stage
    if stage != requests_table.ACCEPTED:
        raise RequestConflict(
            f"request {request} is {stage}, and only one that waits can be changed; "
            "see its receipt"
        )


def require_untouched(connection: Connection, request: str) -> None:
    """Refuse a request that does not wait, or that some models have answered."""
    require_waiting(connection, request)
    if requests_table.require_request(connection, request).outcome:
        raise RequestConflict(
            f"request {request} is applied to some models and waits for others, so it "
            "can be neither cancelled nor refused; see why it waits (status)"
        )
