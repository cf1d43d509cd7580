# SPDX-License-Identifier: Apache-2.0
"""Restoring: a store comes back from a backup, and nobody comes back with it.

The journal, which is newer than the backup, says what is missing. Its entries continue
the ledger as they were signed, its receipts are the receipts again, its releases count
against the contract, and whoever was forgotten since is forgotten once more, all in one
transaction. Until that is committed the store is refused, and the command can be given
again.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..accountant import release_event
from ..certificate import Certificate
from ..durable import destroy, replace_file, scrubbed
from ..exceptions import InvalidInput, LedgerCorrupt
from ..ledger import (
    Entry,
    Head,
    Receipt,
    ReleaseMade,
    RequestCompleted,
    Restored,
    read_entry,
)
from ..ledger.keyfiles import read_secret
from ..private import Private
from ..stores import chain, people, publications, requests, upgrade
from ..stores.chain import Appending
from ..stores.engine import translated
from ..stores.notes import write_note
from .accepting import insert_accepted
from .applying import Change, changed, commit
from .catching_up import unread
from .completing import JOURNAL_END, Statement, complete
from .site import Site, now
from .working import Tell

STEPS = 4

Lost: TypeAlias = dict[str, list[ReleaseMade]]


@dataclass(slots=True, repr=False, eq=False)
class News(Private):
    """What a journal holds that a store lacks.

    Attributes
    ----------
    accepted
        Requests as they were accepted, by id.
    statements
        Entries with the head above them, in order, each sequence once.
    receipts
        Of completed requests.
    shipped, withdrawn
        Releases that left, and those taken back.
    fitted
        Models that were fitted.
    """

    accepted: dict[str, dict[str, Any]] = field(default_factory=dict)
    statements: list[tuple[list[Entry], Head]] = field(default_factory=list)
    receipts: dict[str, str] = field(default_factory=dict)
    shipped: list[dict[str, Any]] = field(default_factory=list)
    withdrawn: list[tuple[str, int, int]] = field(default_factory=list)
    fitted: set[str] = field(default_factory=set)

    @property
    def entries(self) -> list[Entry]:
        """All entries, in order."""
        return [entry for entries, _ in self.statements for entry in entries]

    @property
    def certificates(self) -> dict[str, str]:
        """Certificates that receipts hold, by digest."""
        pages = (Receipt.from_json(text) for text in self.receipts.values())
        papers: Iterable[Certificate] = (
            one for page in pages for one in page.certificates.values()
        )
        return {paper.digest(): paper.to_json() for paper in papers}


def restore(site: Site, backup: Path, tell: Tell) -> None:
    """Put the store back from a backup and bring it up to the journal."""
    keys = backup / "keys" / "vault.json"
    if not keys.is_file():
        raise InvalidInput(
            f"{backup} holds no keys/vault.json, without which nothing in the backup "
            "can be read; name the folder that the registry was copied to"
        )
    with site.working(30.0):
        tell(0, STEPS)
        if site.settings.url is None:
            site.store.close()
            _put_back(backup / "expunge.db", site.places.database)
        _put_back_checkpoints(backup / "checkpoints", site.places.checkpoints)
        replace_file(site.places.vault, read_secret(keys))
        upgrade(site.store)
        tell(1, STEPS)
        complete_backup(site)
        news = read_news(unread(site))
        tell(2, STEPS)
        _replay(site, news)
        tell(3, STEPS)
        complete(site, 30.0)
        tell(STEPS, STEPS)


def complete_backup(site: Site) -> None:
    """Settle the keys of a backup that was taken in the middle of a request."""
    with site.store.reading() as connection:
        generations = publications.generations(connection)
    site.checkpoints.settle(generations)


def read_news(lines: Iterable[dict[str, Any]]) -> News:
    """Return what the lines of a journal say."""
    news = News()
    statements: dict[int, dict[str, Any]] = {}
    for line in lines:
        for one in line.get("accepted", ()):
            news.accepted.setdefault(one["id"], one)
        if "entries" in line:
            # A statement that a crash kept from the store was made again.
            statements[read_entry(line["entries"][0]).sequence] = line
        if "shipped" in line:
            news.shipped.append(line["shipped"])
        if "withdrawn" in line:
            name, number, time = line["withdrawn"]
            news.withdrawn.append((name, number, time))
    for _, line in sorted(statements.items()):
        entries = [read_entry(text) for text in line["entries"]]
        news.statements.append((entries, Head.from_json(line["head"])))
        news.receipts |= line["receipts"]
        news.fitted |= set(line["fitted"])
    return news


def _replay(site: Site, news: News) -> None:
    """Bring a store up to the journal, in one transaction."""
    if news.fitted:
        raise InvalidInput(
            f"the backup is older than the fit of {', '.join(sorted(news.fitted))}; "
            "take a backup from after that: rows that were not in it cannot come back"
        )
    with site.store.reading() as connection:
        book = Appending(chain.ledger_in(connection))
        lost = _lost_releases(connection, news)
        again = _people_again(connection, news)
    n_replayed = len(news.receipts)
    taken = book.ledger.time
    for entries, head in news.statements:
        for entry in entries:
            book.append(entry)
        complaint = book.ledger.disagreement(head)
        if complaint:
            raise LedgerCorrupt(
                f"the journal does not continue the ledger of the backup: {complaint}; "
                "they are not of the same registry, or one was altered"
            )
    time = max(now(), book.ledger.time)
    book.append(
        Restored(
            sequence=book.ledger.size, time=time, taken=taken, n_replayed=n_replayed
        )
    )
    head = book.ledger.head(site.signing_key(book.ledger), time)
    changes = [
        _forgotten_again(site, name, tags, lost.get(name, []))
        for name, tags in sorted(again.items())
    ]
    line = Statement(book, head).line()
    line["entries"] = line["entries"][-1:]  # the others are in the journal already
    end = site.journal.append([line])

    def bring_up(connection: Connection) -> None:
        for _, earlier in news.statements:
            chain.write_head(connection, earlier)
        book.write(connection, head)
        _write_news(connection, news, lost)
        write_note(connection, JOURNAL_END, str(end))

    commit(site, changes, {}, bring_up)


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
    for request in done:
        if request in news.accepted:
            tags |= set(news.accepted[request]["tags"])
    again: dict[str, list[str]] = {}
    for tag, models in people.holders(connection, sorted(tags)).items():
        for name in models:
            again.setdefault(name, []).append(tag)
    return again


def _forgotten_again(
    site: Site, name: str, tags: Sequence[str], lost: Sequence[ReleaseMade]
) -> Change:
    """Return a model without people, its contract charged for what it released."""
    held = site.held(name)
    holdings = held.holdings
    custody, account = holdings.custody, holdings.custody.accountant
    source = None if holdings.noise is None else holdings.noise.source
    for _ in lost:
        account = account.compose(release_event(custody.budget, source))
    charged = replace(holdings, custody=replace(custody, accountant=account))
    held.model._show(charged, held.model._release, held.model.record_)
    site.cache[name] = replace(held, number=held.number + len(lost))
    return changed(site, name, tags)


def _write_news(connection: Connection, news: News, lost: Lost) -> None:
    """Write requests, releases and shipments that the store lacks."""
    there = requests.look_up(connection, sorted({*news.accepted, *news.receipts}))
    missing = [one for id_, one in news.accepted.items() if id_ not in there]
    insert_accepted(connection, missing)
    times = {
        entry.request: entry.time
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
    papers = news.certificates
    for entries in lost.values():
        publications.write_lost(connection, entries, papers)
    _enter_known(connection, news)
    for shipment in news.shipped:
        publications.record_shipment(connection, shipment)
    for name, number, time in news.withdrawn:
        publications.withdraw(connection, name, number, time)


def _enter_known(connection: Connection, news: News) -> None:
    """Note the place of a release that the backup has and its ledger had not yet."""
    places = {
        entry.certificate: entry.sequence
        for entry in news.entries
        if isinstance(entry, ReleaseMade)
    }
    for line in publications.unentered(connection):
        if line.digest in places:
            publications.mark_entered(
                connection, line.model, line.number, places[line.digest]
            )


def _put_back_checkpoints(source: Path, target: Path) -> None:
    """Copy sealed checkpoints; those of later generations are removed when settled."""
    if not source.is_dir():
        raise InvalidInput(
            f"{source.parent} holds no {source.name}; name the folder that the "
            "registry was copied to"
        )
    for file in source.iterdir():
        replace_file(target / file.name, file.read_bytes())


def _put_back(source: Path, target: Path) -> None:
    """Copy a SQLite database, whatever lies in its log included, into place."""
    if not source.is_file():
        raise InvalidInput(
            f"{source.parent} holds no {source.name}; name the folder that the "
            "registry was copied to"
        )
    draft = target.with_name(f".{target.name}.new")
    destroy(draft)
    with (
        translated(),
        closing(
            sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
        ) as old,
        closing(sqlite3.connect(draft)) as new,
    ):
        old.backup(new)
    for name in (f"{target.name}-wal", f"{target.name}-shm"):
        destroy(target.with_name(name))
    with scrubbed(target):
        draft.replace(target)
