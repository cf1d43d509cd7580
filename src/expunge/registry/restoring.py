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
from ..exceptions import (
    InvalidInput,
    LedgerCorrupt,
    ScheduleExhausted,
    StoreFailed,
)
from ..ledger import Ledger, ReleaseMade, Restored
from ..ledger.keyfiles import read_secret
from ..ledger.pages import day_of
from ..private import Private
from ..stores import (
    Checkpoints,
    Vault,
    alone,
    chain,
    people,
    publications,
    requests,
)
from ..stores.chain import Appending
from ..stores.engine import translated
from ..stores.journal import BEGINNING
from ..stores.notes import MARK, write_note
from ..tuning.holdings import TunedHoldings
from .accepting import insert_accepted
from .applying import Change, changed, charged, commit
from .completing import complete
from .held import Held
from .keys import note_tag_keys, require_tag_keys
from .news import record_statement, unread_by_backup
from .replay import News, read_news, write_left
from .rotating import tidy
from .site import WAIT, Site, time_for
from .staging import (
    databases,
    last_known,
    put_in_place,
    require_sound,
    staged,
)
from .statement import MADE, Statement, read_statement
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
        ledger = chain.ledger_in(connection)
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
        if chain.has_head(connection, head):
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
            people.clear(connection, name)
            publications.retire(connection, name, after, time)
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
        if not publications.has_digest(connection, entry.model, entry.certificate)
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
            if not publications.has_digest(connection, entry.model, entry.certificate):
                lost.setdefault(entry.model, []).append(entry)
    return lost


def _people_again(connection: Connection, news: News) -> dict[str, list[str]]:
    """Return for each model those who were forgotten since and are in it again."""
    done = news.completed
    there = requests.look_up(connection, done)
    tags = requests.tags_of(connection, done)
    unknown = [id_ for id_ in done if id_ not in there and id_ not in news.accepted]
    if unknown:
        raise StoreFailed(
            f"the journal does not say whom {len(unknown)} completed request(s) were "
            "about, and the backup holds these people; take a backup from after these "
            "requests: nothing was restored"
        )
    every = {tag for id_ in done for tag in (*tags[id_], *news.tags_of(id_))}
    again: dict[str, list[str]] = {}
    for tag, models in people.holders(connection, sorted(every)).items():
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
    there = requests.look_up(connection, sorted({*news.accepted, *completed}))
    missing = [some[-1] for id_, some in news.accepted.items() if id_ not in there]
    insert_accepted(connection, missing)
    applied: dict[str, dict[str, int]] = {
        id_: {}
        for id_ in completed
        if id_ not in there or there[id_].stage == requests.ACCEPTED
    }
    requests.mark_applied(connection, applied)
    papers = {
        digest: text for one in ahead.statements for digest, text in one.papers.items()
    }
    for entries in ahead.lost.values():
        publications.write_lost(connection, entries, papers, ahead.times)
    for statement in ahead.statements:
        statement.write(connection)
    for line in news.left:
        write_left(connection, line)
