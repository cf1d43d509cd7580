# SPDX-License-Identifier: Apache-2.0
"""Working: what the one process does that holds the lock.

First it finishes what another left behind, then it applies all that waits as one batch.
Whoever sends a request while it works waits for the lock and works next. A request that
cannot be applied does not hold up the others: the batch is halved until it stands
alone, and it stays accepted.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..exceptions import Busy, ExpungeError, NeedsRestore, StoreFailed
from ..ledger import UnusableKey
from ..stores import requests
from .applying import apply_batch
from .catching_up import catch_up
from .completing import complete
from .rotating import tidy
from .site import Site

Tell: TypeAlias = Callable[[int, int], None]

# Requests in a batch at the most: receipts are written together.
BATCH = 5000
# What concerns the store and not the request.
OF_THE_STORE = (Busy, StoreFailed, NeedsRestore, UnusableKey)


def work(site: Site, wait: float, tell: Tell) -> dict[str, ExpungeError]:
    """Apply all that waits; return the requests that could not be, and why."""
    begin(site, wait)
    with site.store.reading() as connection:
        waiting = requests.at_stage(connection, requests.ACCEPTED)
    if not waiting:
        site.require_turn()  # or another process may have applied them, no more
    failed: dict[str, ExpungeError] = {}
    for start in range(0, len(waiting), BATCH):
        tell(start, len(waiting))
        batch = [line.id for line in waiting[start : start + BATCH]]
        failed |= _applied(site, batch, wait)
        complete(site, wait)
    tell(len(waiting), len(waiting))
    known = {line.id: line.error for line in waiting}
    said = {request: str(error) for request, error in failed.items()}
    news = {request: why for request, why in said.items() if known[request] != why}
    if news:
        with site.changing() as connection:
            requests.note_errors(connection, news)
    return failed


def begin(site: Site, wait: float) -> None:
    """Finish what another left behind; whoever changes anything begins with this."""
    catch_up(site)
    complete(site, wait)
    tidy(site)


def _applied(site: Site, batch: Sequence[str], wait: float) -> dict[str, ExpungeError]:
    """Apply a batch, or its halves; return what could not be."""
    try:
        return apply_batch(site, batch)
    except OF_THE_STORE:
        raise
    except ExpungeError as error:
        if len(batch) == 1:
            return {batch[0]: error}
        middle = len(batch) // 2
        first = _applied(site, batch[:middle], wait)
        # A model has one release that the ledger does not know of, never two.
        complete(site, wait)
        return first | _applied(site, batch[middle:], wait)
