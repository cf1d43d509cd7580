# SPDX-License-Identifier: Apache-2.0
"""Restoring: a store comes back from a backup, and nobody comes back with it.

The journal, which is newer than the backup, says what is missing. Its entries continue
the ledger as they were signed, its receipts are the receipts again, its releases count
against the contract, and whoever was forgotten since is forgotten once more, all in one
transaction. Until that is committed the store is refused, and the command can be given
again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..accountant import release_event
from ..durable import replace_file
from ..exceptions import InvalidInput, LedgerCorrupt, ScheduleExhausted
from ..ledger import ReleaseMade, RequestCompleted, Restored
from ..ledger.keyfiles import read_secret
from ..ledger.pages import day_of
from ..private import Private
from ..stores import (
    Checkpoints,
    Vault,
    chain,
    people,
    publications,
    requests,
)
from ..stores.chain import Appending
from ..stores.engine import translated
from ..stores.notes import write_note
from ..tuning.holdings import TunedHoldings
from . import shipping
from .accepting import insert_accepted
from .applying import Change, changed, charged, commit
from .completing import Statement, complete
from .held import Held
from .keys import note_tag_keys, require_tag_keys
from .news import AGREED, unread
from .replay import MADE, News, read_news
from .rotating import tidy
from .site import WAIT, Site, time_for
from .staging import databases, put_in_place, staged
from .working import Tell

STEPS = 4

Lost: TypeAlias = dict[str, list[ReleaseMade]]
"""For each model, releases that were made and that the store does not have."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Continuation(Private):
    """How a store goes on from where its backup was taken.

    Attributes
    ----------
    taken
        The day of the last entry in the backup.
    book
        The ledger with the journal's entries.
    lost, again
        Releases that the store lacks, and people who are in it again, by model.
    """

    taken: str
    book: Appending
    lost: Lost
    again: dict[str, list[str]]


def restore(site: Site, backup: Path, tell: Tell) -> None:
    """Put the store back from a backup and bring it up to the journal.

    A backup that does not fit the journal is refused before anything is replaced.
    """
    keys = backup / "keys" / "vault.json"
    for part in (keys, backup / "checkpoints", *databases(site, backup)):
        if not part.exists():
            raise InvalidInput(
                f"{backup} holds no {part.relative_to(backup)}; name the folder that "
                "the registry was copied to"
            )
    vault = read_secret(keys)
    with site.working(WAIT), translated():
        tell(0, STEPS)
        with staged(site, backup) as copy:
            with copy.store.reading() as connection:
                size = chain.ledger_in(connection).size
                news = read_news(unread(connection, site.journal), size)
                current = publications.checkpoints(connection)
            sealed = Checkpoints(backup / "checkpoints", Vault(keys))
            for name in current.values():
                sealed.read(name)  # or refuse, while the registry is as it was
            ahead = _continuation(copy, news)
            _require_keys(site, copy, ahead.book)
        tell(1, STEPS)
        put_in_place(site)
        for file in (backup / "checkpoints").iterdir():
            replace_file(site.places.checkpoints / file.name, file.read_bytes())
        replace_file(site.places.vault, vault)
        tell(2, STEPS)
        site.checkpoints.settle(current)  # a backup from the middle of a request
        _bring_up(site, news, ahead)
        tell(3, STEPS)
        with site.store.reading() as connection:
            current = publications.checkpoints(connection)
        site.store.erase(WAIT)
        site.checkpoints.settle(current)
        complete(site, WAIT)
        tidy(site)
        tell(STEPS, STEPS)


def _require_keys(site: Site, copy: Site, book: Appending) -> None:
    """Refuse a store whose keys are not here: it may be another registry's."""
    site.signing_key(book.ledger)
    with copy.store.reading() as connection:
        require_tag_keys(connection, site.places.keys)


def _continuation(site: Site, news: News) -> Continuation:
    """Return how the journal continues a store; refuse it if it does not."""
    with site.store.reading() as connection:
        _require_fits(connection, news)
        book = Appending(chain.ledger_in(connection))
        lost = _lost_releases(connection, news)
        again = _people_again(connection, news)
    taken = book.ledger.day
    for entries, head in news.statements:
        try:
            for entry in entries:
                book.append(entry)
            complaint = book.ledger.disagreement(head)
        except InvalidInput as error:
            complaint = str(error)
        if complaint:
            raise LedgerCorrupt(
                f"the journal does not continue the ledger of the backup: {complaint}; "
                "they are not of the same registry, or one was altered"
            )
    return Continuation(taken, book, lost, again)


def _bring_up(site: Site, news: News, ahead: Continuation) -> None:
    """Bring a store up to the journal, in one transaction."""
    book, lost = ahead.book, ahead.lost
    time = time_for(book.ledger)
    restored = Restored(
        sequence=book.ledger.size,
        day=day_of(time),
        taken=ahead.taken,
        n_replayed=len(news.receipts),
    )
    book.append(restored)
    head = book.ledger.head(site.signing_key(book.ledger), restored.day)
    changes, spent = _forgotten_again(site, ahead.again, lost)
    line = Statement(book, head, time).line()
    line["entries"] = [restored.to_json()]  # the others are in the journal already
    end = site.journal.append([line])

    def bring_up(connection: Connection) -> None:
        for _, earlier in news.statements:
            chain.write_head(connection, earlier)
        book.write(connection, head)
        _write_news(connection, news, lost)
        for name, after in spent.items():
            people.clear(connection, name)
            publications.retire(connection, name, after, time)
        note_tag_keys(connection, site.places.keys)
        write_note(connection, AGREED, str(end))

    commit(site, changes, {}, bring_up)


def _require_fits(connection: Connection, news: News) -> None:
    """Refuse a backup without the rows of a model that was fitted after it."""
    missing = [
        name
        for name, digest in sorted(news.fitted.items())
        if not publications.has_digest(connection, digest)
    ]
    if missing:
        raise InvalidInput(
            f"the backup is older than the fit of {', '.join(missing)}; take a backup "
            "from after that: rows that were not in it cannot come back"
        )


def _lost_releases(connection: Connection, news: News) -> Lost:
    """Return for each model the entries of releases that the store does not have."""
    lost: Lost = {}
    for entry in news.entries:
        if isinstance(entry, ReleaseMade):
            if not publications.has_digest(connection, entry.certificate):
                lost.setdefault(entry.model, []).append(entry)
    return lost


def _people_again(connection: Connection, news: News) -> dict[str, list[str]]:
    """Return for each model those who were forgotten since and are in it again."""
    done = sorted(news.receipts)
    tags = {tag for some in requests.tags_of(connection, done).values() for tag in some}
    tags |= news.tags_of(done)
    again: dict[str, list[str]] = {}
    for tag, models in people.holders(connection, sorted(tags)).items():
        for name in models:
            again.setdefault(name, []).append(tag)
    return again


def _forgotten_again(
    site: Site, again: Mapping[str, Sequence[str]], lost: Lost
) -> tuple[list[Change], dict[str, dict[str, Any]]]:
    """Return models without people, and those whose contract allows no release more.

    Of the latter nothing is kept, not even a state that could be read: a model that may
    not be released cannot forget.
    """
    changes, spent = [], {}
    for name, tags in sorted(again.items()):
        held = _charged(site, name, len(lost.get(name, ())))
        try:
            changes.append(changed(site, name, tags))
        except ScheduleExhausted:
            empty = site.checkpoints.write(name, held.generation + 1, ())
            spent[name] = {"checkpoint": empty, "number": held.number}
            site.cache.pop(name, None)
    return changes, spent


def _charged(site: Site, name: str, n_releases: int) -> Held:
    """Charge the contract of a model for releases that the backup knows nothing of."""
    held = site.held(name)
    holdings = held.holdings
    budget, account = holdings.custody.budget, holdings.custody.accountant
    source = None if holdings.noise is None else holdings.noise.source
    for _ in range(n_releases):
        if isinstance(holdings, TunedHoldings):
            account = holdings.rule.account(account, holdings.models.choice)
        account = account.compose(release_event(budget, source))
    held.model._snapshot = held.model._snapshot.holding(charged(held, account))
    held = replace(held, number=held.number + n_releases)
    site.cache[name] = held
    return held


def _write_news(connection: Connection, news: News, lost: Lost) -> None:
    """Write requests, releases and shipments that the store lacks."""
    there = requests.look_up(connection, sorted({*news.accepted, *news.receipts}))
    missing = [some[-1] for id_, some in news.accepted.items() if id_ not in there]
    insert_accepted(connection, missing)
    times = {
        entry.request: news.times[entry.sequence]
        for entry in news.entries
        if isinstance(entry, RequestCompleted)
    }
    requests.mark_applied(connection, {request: {} for request in news.receipts})
    requests.mark_completed(
        connection,
        [
            {"request": request, "time": times[request], "text": text}
            for request, text in news.receipts.items()
        ],
    )
    for entries in lost.values():
        publications.write_lost(connection, entries, news.certificates, news.times)
    _enter_known(connection, news)
    for line in news.left:
        shipping.take_in(connection, line)


def _enter_known(connection: Connection, news: News) -> None:
    """Note the place of a release that the backup has and its ledger had not yet."""
    places = {
        entry.certificate: entry.sequence
        for entry in news.entries
        if isinstance(entry, MADE)
    }
    for line in publications.unentered(connection):
        if line.digest in places:
            publications.mark_entered(
                connection, line.model, line.number, places[line.digest]
            )
