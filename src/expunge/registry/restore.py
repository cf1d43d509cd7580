# SPDX-License-Identifier: Apache-2.0
"""Restoring: a store comes back from a backup, and nobody comes back with it.

The journal, which is newer than the backup, says what is missing. Its entries continue
the ledger as they were signed, its receipts are the receipts again, its releases count
against the contract, and whoever was forgotten since is forgotten once more, all in one
transaction. Until that is committed the store is refused, and the command can be given
again.

Staging: a backup's database waits beside the registry's own to take its place.

What does not fit is refused while everything is as it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, select

from ..core.arrays import Private
from ..disk import destroy, replace_file, scrubbed, write_new
from ..exceptions import InvalidInput, LedgerCorrupt, ScheduleExhausted, StoreFailed
from ..ledger import Ledger, ReleaseMade, Restored, check_export
from ..ledger.documents import day_of
from ..ledger.secrets import read_secret
from ..promise.accountant import release_event
from ..promise.certificate import Certificate
from ..selection.tuned_model import TunedHoldings
from .context import WAIT, Site, time_for
from .folder import Places, note_tag_keys, require_tag_keys
from .held import Held, take_up
from .recovery import tidy
from .requests import insert_accepted
from .statements import (
    MADE,
    News,
    Statement,
    read_news,
    read_statement,
    record_statement,
    unread_by_backup,
    write_left,
)
from .storage import (
    Checkpoints,
    Store,
    Vault,
    alone,
    ledger_table,
    people_table,
    releases_table,
    requests_table,
    require_made,
    sqlite_engine,
    upgrade,
)
from .storage.engine import translated
from .storage.journal import BEGINNING, Mark
from .storage.ledger_table import Appending
from .storage.tables import MARK, mark_in, metadata, overtaken, version, write_note
from .worker import Change, Tell, changed, charged, commit, complete


class Known(NamedTuple):
    """What the database in use knows: its marks of the journal, and its last head."""

    marks: tuple[Mark, ...] = ()
    head: str = ""


def databases(site: Site) -> list[str]:
    """Return the database's file in a backup; none if it is put back otherwise."""
    return ["expunge.db"] if site.settings.url is None else []


def last_known(site: Site) -> Known:
    """Return what the database in use knows; nothing if it is lost or damaged."""
    file = site.places.database
    if site.settings.url is None and not (file.exists() and file.stat().st_size):
        return Known()
    try:
        with site.store.reading() as connection:
            if version(connection) is None:
                return Known()
            return Known((mark_in(connection),), ledger_table.last_head(connection))
    except StoreFailed:
        return Known()


@contextmanager
def staged(site: Site, backup: Path) -> Iterator[Site]:
    """Give the site as it will be with the backup's database, its tables up to date.

    A SQLite file is copied beside the registry's own, whatever lies in its log
    included: the backup itself may be read-only.
    """
    if site.settings.url is not None:
        require_made(site.store)
        upgrade(site.store)
        yield site
        return
    copy = _copy(site.places)
    parts = [copy.with_name(copy.name + end) for end in ("", "-wal", "-shm")]
    for part in parts:
        destroy(part)
    try:
        for end in ("", "-wal"):
            original = backup / f"expunge.db{end}"
            if original.exists():
                write_new(copy.with_name(copy.name + end), original.read_bytes())
        with closing(Store(sqlite_engine(copy))) as store:
            upgrade(store)
            store.erase(WAIT)
            yield replace(site, store=store)
    except BaseException:
        for part in parts:
            destroy(part)
        raise


def require_sound(site: Site, sealed: Checkpoints) -> None:
    """Refuse a backup that is not of one moment, or damaged.

    Files of a registry in use that were copied one after the other may look whole. So
    everything is read: each line of each table, the ledger up to its last head, each
    certificate, and the rows of each person, under the keys in the checkpoint.
    """
    try:
        with site.store.reading() as connection:
            if site.store.dialect == "sqlite":
                check = connection.exec_driver_sql("PRAGMA integrity_check")
                if (said := check.scalar()) != "ok":
                    raise StoreFailed(str(said))
            for table in metadata.sorted_tables:
                for _ in connection.execute(select(table)):
                    pass
            _require_ledger(connection)
            for name in releases_table.names(connection):
                _require_rows(site, connection, name, sealed)
    except (StoreFailed, LedgerCorrupt, ValueError) as error:
        raise InvalidInput(
            f"the backup is damaged, or was copied while the registry was in use "
            f"({error}); take another one: nothing was restored"
        ) from error


def _require_ledger(connection: Connection) -> None:
    """Refuse a ledger that does not stand, and certificates that are not in it."""
    ledger = ledger_table.ledger_in(connection)
    if ledger.size:
        verdict = check_export(ledger_table.lines(connection), ledger.keys.to_pem())
        if not verdict.stands:
            raise LedgerCorrupt(verdict.says)
    for text, digest in releases_table.all_certificates(connection):
        if Certificate.from_json(text).digest() != digest:
            raise LedgerCorrupt("a certificate was altered")


def _require_rows(
    site: Site, connection: Connection, name: str, sealed: Checkpoints
) -> None:
    """Refuse a model whose checkpoint does not open the rows of its people."""
    line = releases_table.newest(connection, name)
    data = sealed.read(line.checkpoint)
    if line.content is None:
        return  # its contract is spent, and nothing is kept of it
    held = take_up(line, data, partial(site.everybody, name))
    for _ in site.everybody(name, held.page_keys):
        pass


def put_in_place(site: Site) -> None:
    """Let the copy of a SQLite database take the place of the registry's own."""
    if site.settings.url is not None:
        return
    copy, target = _copy(site.places), site.places.database
    if not copy.exists():
        raise overtaken()  # somebody took it for what a killed process left
    site.store.close()
    for end in ("-wal", "-shm"):
        destroy(target.with_name(target.name + end))
    with scrubbed(target):
        copy.replace(target)


def _copy(places: Places) -> Path:
    """Return where a database waits until it takes its place."""
    return places.database.with_name(f".{places.database.name}.new")


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
    ledger
        Where the ledger stands with the journal's entries.
    news, statements
        What the journal says, and what it adds to the ledger.
    lost, again
        Releases that the store lacks, and people who are in it again, by model.
    """

    taken: str
    ledger: Ledger
    news: News
    statements: Sequence[Statement]
    lost: Lost
    again: dict[str, list[str]]

    @property
    def times(self) -> dict[int, int]:
        """When each entry of the statements was written, by sequence."""
        return {
            entry.sequence: one.time for one in self.statements for entry in one.entries
        }


def restore(site: Site, backup: Path, tell: Tell) -> None:
    """Put the store back from a backup and bring it up to the journal.

    A backup that does not fit the journal is refused before anything is replaced.
    """
    keys = backup / "keys" / "vault.json"
    _require_parts(site, backup)
    vault = read_secret(keys)
    with alone(site.store, site.places.lock, WAIT), translated():
        tell(0, STEPS)
        known = last_known(site)
        site.journal.require(*known.marks)
        with staged(site, backup) as copy:
            require_sound(copy, Checkpoints(backup / "checkpoints", Vault(keys)))
            ahead = _continuation(copy)
            _require_holds(copy, ahead, known.head)
            _require_keys(site, copy, ahead.ledger)
        site.stated = copy.stated
        tell(1, STEPS)
        put_in_place(site)
        for file in (backup / "checkpoints").iterdir():
            replace_file(site.places.checkpoints / file.name, file.read_bytes())
        site.checkpoints.vault.replace(vault)
        tell(2, STEPS)
        with site.taking_turns():
            site.settle()  # a backup from the middle of a request
            _bring_up(site, ahead)
            tell(3, STEPS)
            site.store.erase(WAIT)
            site.settle()
            complete(site, WAIT)
            tidy(site)
        tell(STEPS, STEPS)


def _require_parts(site: Site, backup: Path) -> None:
    """Refuse a backup that lacks something, and a folder that cannot take it in."""
    for part in ("keys/vault.json", "checkpoints", *databases(site)):
        if not (backup / part).exists():
            raise InvalidInput(
                f"{backup} holds no {part}; name the folder that the registry was "
                "copied to"
            )
    for folder in (site.places.keys, site.places.checkpoints):
        if not folder.is_dir():
            raise StoreFailed(
                f"{folder} is missing, so nothing was restored; mount it, or put it "
                f"back from its newest copy (mkdir -m 700 {folder} if it held nothing)"
            )


def _require_keys(site: Site, copy: Site, ledger: Ledger) -> None:
    """Refuse a store whose keys are not here: it may be another registry's."""
    site.signing_key(ledger)
    with copy.store.reading() as connection:
        require_tag_keys(connection, site.places.keys)


def _continuation(site: Site) -> Continuation:
    """Return how the journal continues a store; refuse it if it does not."""
    lines = unread_by_backup(site)
    with site.store.reading() as connection:
        ledger = ledger_table.ledger_in(connection)
        taken = ledger.day
        news = read_news(lines, ledger.size)
        statements = []
        for line in news.statements:
            statements.append(read_statement(line, ledger))
            ledger = statements[-1].book.ledger
        _require_fits(connection, statements)
        lost = _lost_releases(connection, statements)
        again = _people_again(connection, news)
    return Continuation(taken, ledger, news, statements, lost, again)


def _require_holds(site: Site, ahead: Continuation, head: str) -> None:
    """Refuse to go on from a ledger that contradicts the head of the one in use."""
    if not head or head in (one.head.to_json() for one in ahead.statements):
        return
    with site.store.reading() as connection:
        if ledger_table.has_head(connection, head):
            return
    raise LedgerCorrupt(
        "the ledger in use has a signed head that backup and journal know nothing of, "
        "and receipts may show it; they are not of the same registry, or one was "
        "altered: nothing was restored"
    )


def _bring_up(site: Site, ahead: Continuation) -> None:
    """Bring a store up to the journal, in one transaction."""
    book = Appending(ahead.ledger)
    time = time_for(book.ledger)
    restored = Restored(
        sequence=book.ledger.size,
        day=day_of(time),
        taken=ahead.taken,
        n_replayed=len(ahead.news.completed),
    )
    book.append(restored)
    head = book.ledger.head(site.signing_key(book.ledger), restored.day)
    statement = Statement(book, head, time)
    changes, spent = _forgotten_again(site, ahead.again, ahead.lost)

    def bring_up(connection: Connection) -> None:
        _write_news(connection, ahead)
        statement.write(connection)
        for name, after in spent.items():
            people_table.clear(connection, name)
            releases_table.retire(connection, name, after, time)
        note_tag_keys(connection, site.places.keys)
        # The backup's may be of a journal that was rebuilt since.
        write_note(connection, MARK, str(BEGINNING))

    end = site.stated

    def state(connection: Connection) -> None:
        nonlocal end
        end = record_statement(site, connection, statement.line())

    commit(site, changes, {}, bring_up, state)
    site.stated = end


def _require_fits(connection: Connection, statements: Sequence[Statement]) -> None:
    """Refuse a backup without the rows of a model that was fitted after it."""
    missing = {
        entry.model
        for one in statements
        for entry in one.entries
        if isinstance(entry, MADE) and entry.model in one.fitted
        if not releases_table.has_digest(connection, entry.model, entry.certificate)
    }
    if missing:
        raise InvalidInput(
            f"the backup is older than the fit of {', '.join(sorted(missing))}; take a "
            "backup from after that: rows that were not in it cannot come back"
        )


def _lost_releases(connection: Connection, statements: Sequence[Statement]) -> Lost:
    """Return for each model the entries of releases that the store does not have."""
    lost: Lost = {}
    for entry in (entry for one in statements for entry in one.entries):
        if isinstance(entry, ReleaseMade):
            if not releases_table.has_digest(
                connection, entry.model, entry.certificate
            ):
                lost.setdefault(entry.model, []).append(entry)
    return lost


def _people_again(connection: Connection, news: News) -> dict[str, list[str]]:
    """Return for each model those who were forgotten since and are in it again."""
    done = news.completed
    there = requests_table.look_up(connection, done)
    tags = requests_table.tags_of(connection, done)
    unknown = [id_ for id_ in done if id_ not in there and id_ not in news.accepted]
    if unknown:
        raise StoreFailed(
            f"the journal does not say whom {len(unknown)} completed request(s) were "
            "about, and the backup holds these people; take a backup from after these "
            "requests: nothing was restored"
        )
    every = {tag for id_ in done for tag in (*tags[id_], *news.tags_of(id_))}
    again: dict[str, list[str]] = {}
    for tag, models in people_table.holders(connection, sorted(every)).items():
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


def _write_news(connection: Connection, ahead: Continuation) -> None:
    """Write requests, statements and shipments that the store lacks."""
    news, completed = ahead.news, ahead.news.completed
    there = requests_table.look_up(connection, sorted({*news.accepted, *completed}))
    missing = [some[-1] for id_, some in news.accepted.items() if id_ not in there]
    insert_accepted(connection, missing)
    applied: dict[str, dict[str, int]] = {
        id_: {}
        for id_ in completed
        if id_ not in there or there[id_].stage == requests_table.ACCEPTED
    }
    requests_table.mark_applied(connection, applied)
    papers = {
        digest: text for one in ahead.statements for digest, text in one.papers.items()
    }
    for entries in ahead.lost.values():
        releases_table.write_lost(connection, entries, papers, ahead.times)
    for statement in ahead.statements:
        statement.write(connection)
    for line in news.left:
        write_left(connection, line)
