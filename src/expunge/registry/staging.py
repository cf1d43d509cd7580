# SPDX-License-Identifier: Apache-2.0
"""Staging: a backup's database waits beside the registry's own to take its place.

What does not fit is refused while everything is as it was.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select

from ..certificate import Certificate
from ..durable import destroy, scrubbed, write_new
from ..exceptions import InvalidInput, LedgerCorrupt, StoreFailed
from ..ledger import check_export
from ..stores import (
    Checkpoints,
    Store,
    chain,
    publications,
    require_made,
    sqlite_engine,
    upgrade,
)
from ..stores.journal import Mark
from ..stores.notes import mark_in, overtaken
from ..stores.schema import version
from ..stores.tables import metadata
from .held import take_up
from .settings import Places
from .site import WAIT, Site


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
            return Known((mark_in(connection),), chain.last_head(connection))
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
            for name in publications.names(connection):
                _require_rows(site, connection, name, sealed)
    except (StoreFailed, LedgerCorrupt, ValueError) as error:
        raise InvalidInput(
            f"the backup is damaged, or was copied while the registry was in use "
            f"({error}); take another one: nothing was restored"
        ) from error


def _require_ledger(connection: Connection) -> None:
    """Refuse a ledger that does not stand, and certificates that are not in it."""
    ledger = chain.ledger_in(connection)
    if ledger.size:
        verdict = check_export(chain.lines(connection), ledger.keys.to_pem())
        if not verdict.stands:
            raise LedgerCorrupt(verdict.says)
    for text, digest in publications.all_certificates(connection):
        if Certificate.from_json(text).digest() != digest:
            raise LedgerCorrupt("a certificate was altered")


def _require_rows(
    site: Site, connection: Connection, name: str, sealed: Checkpoints
) -> None:
    """Refuse a model whose checkpoint does not open the rows of its people."""
    line = publications.newest(connection, name)
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
