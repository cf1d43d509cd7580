# SPDX-License-Identifier: Apache-2.0
"""Applying: requests that wait together change each model once.

Everything is computed first, and the new checkpoint is on disk before anything refers
to it. One transaction then lets it count, writes the release, supersedes those before
it, and deletes the rows and the tags: whoever looks finds all of it or nothing, so that
a crash neither loses a request nor applies one twice, and rows go with the checkpoint
that no longer needs them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection

from .._typing import Index
from ..accountant import Accountant
from ..exceptions import ExpungeError, ScheduleExhausted
from ..files.contents import with_fresh_noise
from ..linear_model.holdings import Holdings
from ..linear_model.snapshot import Shown, Snapshot
from ..private import Private
from ..rows import Rows
from ..stores import people, publications, requests
from ..stores.people import Struck
from ..unlearn import REFUSALS
from .held import Held, checkpoint, fetching, rows_of, shippable
from .site import Site, now


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Change(Private):
    """A model before and after, with what a transaction must write."""

    held: Held
    struck: Struck
    snapshot: Snapshot
    checkpoint: str

    def write(self, connection: Connection) -> None:
        """Write the model as it is after."""
        held, shown = self.held, self.snapshot.shown
        people.strike(connection, held.name, self.struck)
        write_release(connection, held.name, held.number + 1, (held.model, shown))
        after = {"checkpoint": self.checkpoint, "number": held.number + 1}
        publications.move_on(connection, held.name, held.generation, after)

    def after(self) -> Held:
        """Return the model as it is after, once that is committed."""
        held = self.held
        held.model._snapshot = self.snapshot
        return Held(
            held.name,
            held.generation + 1,
            self.checkpoint,
            held.number + 1,
            self.snapshot.shown.release.certificate.digest(),
            held.model,
            self.struck.page_keys,
        )


def apply_batch(site: Site, waiting: Sequence[str]) -> dict[str, ExpungeError]:
    """Apply requests as one batch, all of them or none.

    Returns those that were left out, since a model that they concern may not be
    released any more: that is known before anything is computed.
    """
    with site.store.reading() as connection:
        tags = requests.tags_of(connection, waiting)
        every = sorted({tag for theirs in tags.values() for tag in theirs})
        holders = people.holders(connection, every)
        concerned = {
            request: {name for tag in theirs for name in holders.get(tag, ())}
            for request, theirs in tags.items()
        }
        named = sorted(set().union(*holders.values()))
        papers = publications.certificates(connection, named)
    spent = {name for name, paper in papers.items() if _is_spent(paper)}
    stuck: dict[str, ExpungeError] = {
        request: _schedule_exhausted(min(models & spent))
        for request, models in concerned.items()
        if models & spent
    }
    members: dict[str, set[str]] = {}
    for request in concerned.keys() - stuck.keys():
        for tag in tags[request]:
            for name in holders.get(tag, ()):
                members.setdefault(name, set()).add(tag)
    changes = [changed(site, name, sorted(members[name])) for name in sorted(members)]
    numbers = {change.held.name: change.held.number + 1 for change in changes}
    made = {
        request: {name: numbers[name] for name in sorted(models)}
        for request, models in concerned.items()
        if request not in stuck
    }
    commit(site, changes, made)
    return stuck


def _is_spent(certificate: str) -> bool:
    """Whether all releases that a contract planned are made."""
    contract = json.loads(certificate)
    planned = contract["releases"]
    return planned is not None and contract["n_releases"] >= planned


def _schedule_exhausted(name: str) -> ScheduleExhausted:
    return ScheduleExhausted(
        f"all planned releases of model {name!r} are made; fit it anew under a new "
        "contract, and the requests that wait will be applied to it"
    )


def changed(site: Site, name: str, tags: Sequence[str]) -> Change:
    """Return a model without some people; its checkpoint is written, to no effect."""
    with site.store.reading() as connection:
        held = site.held(name)
        if held.holdings.custody.accountant.remaining() == 0:
            raise _schedule_exhausted(name)
        found = people.find(connection, name, tags)
        pages = people.pages_of(connection, name, found, held.page_keys)
    if not found:
        raise publications.overtaken(name)
    struck = people.without(name, found, pages, held.page_keys)
    removed, gone = rows_of(people.opened(name, found, pages))
    answered = _answered(site, held, removed, gone, len(found))
    if answered.kept is not None:
        answered.kept.strike(gone)
    fetch = fetching(partial(site.everybody, name), struck.page_keys)
    snapshot = held.model._snapshot.released(replace(answered, fetch=fetch))
    data = checkpoint(held.model, snapshot, struck.page_keys)
    written = site.checkpoints.write(name, held.generation + 1, data)
    return Change(held, struck, snapshot, written)


def _answered(
    site: Site, held: Held, removed: Rows, gone: Index, n_people: int
) -> Holdings:
    """Return what a model holds without some rows; the state in memory is given up.

    It need not be copied: should anything fail, there is the one on disk.
    """
    site.cache.pop(held.name, None)
    try:
        return held.holdings.answered(removed, gone, n_people, spend=True)
    except REFUSALS:
        account = held.holdings.custody.accountant  # which may have been charged since
        fresh = charged(site.held(held.name), account)
        return fresh.answered(removed, gone, n_people)


def charged(held: Held, account: Accountant) -> Holdings:
    """Return what a model holds under this account, with noise that it did not have."""
    custody = replace(held.holdings.custody, accountant=account)
    holdings = replace(held.holdings, custody=custody)
    return with_fresh_noise(holdings, held.model.random_state)


def commit(
    site: Site,
    changes: Sequence[Change],
    made: Mapping[str, Mapping[str, int]],
    before: Callable[[Connection], None] = lambda connection: None,
    after: Callable[[Connection], None] = lambda connection: None,
) -> None:
    """Write changed models and move requests on, in one transaction.

    Parameters
    ----------
    site
        The registry.
    changes
        What happens to models.
    made
        For each request the number of the release that each model gets by it.
    before, after
        Whatever else is to be written, before these and after.
    """
    try:
        with site.changing() as connection:
            before(connection)
            for change in changes:
                change.write(connection)
            requests.mark_applied(connection, made)
            after(connection)
    except BaseException:
        # Whether it was committed only the store knows now.
        for change in changes:
            site.cache.pop(change.held.name, None)
        raise
    for change in changes:
        site.remember(change.after())


def write_release(
    connection: Connection, name: str, number: int, made: tuple[Any, Shown]
) -> None:
    """Write a release of an estimator, in place of the one before."""
    model, shown = made
    certificate = shown.release.certificate
    publications.publish(
        connection,
        {
            "model": name,
            "number": number,
            "made": now(),
            "certificate": certificate.to_json(),
            "digest": certificate.digest(),
            "content": shippable(model, shown),
        },
    )
