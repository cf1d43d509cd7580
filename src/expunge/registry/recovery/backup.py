# SPDX-License-Identifier: Apache-2.0
"""Backup: a copy of a registry's folder, read as a whole before it replaces anything.

The backup's database first waits beside the registry's own. One that is damaged, or
whose parts are of different moments, is refused before anything is replaced.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.exc import OperationalError

from ...disk import destroy, erase_replaced, write_new_file
from ...exceptions import (
    ExpungeError,
    InvalidInput,
    LedgerCorrupt,
    NeedsRestore,
    StoreFailed,
)
from ...ledger import check_export
from ...promise.certificate import Certificate
from ..context import WAIT, Context, Paths, require_keys
from ..loaded_model import load_checkpoint
from ..storage import (
    Checkpoints,
    Store,
    ledger_table,
    people_table,
    releases_table,
    require_tables,
    sqlite_engine,
)
from ..storage.engine import closed_to_others
from ..storage.tables import overtaken_error, schema


def require_parts(context: Context, backup: Path) -> None:
    """Refuse an incomplete backup, and a folder that cannot receive it."""
    paths = context.paths
    if backup.resolve() == paths.folder.resolve():
        raise InvalidInput(
            f"{backup} is the registry itself, and no backup of it; name the folder "
            "that the registry was copied to: nothing was restored"
        )
    if paths.keystore.is_dir():
        raise StoreFailed(
            f"{paths.keystore} is a folder, and the file of keys belongs there; move "
            "it away and run the command again: nothing was restored"
        )
    for part in ("keys/sealing", "checkpoints", *_database_files(context)):
        if not (backup / part).exists():
            raise InvalidInput(
                f"{backup} holds no {part}; name the folder that the registry was "
                "copied to"
            )
    for folder in (paths.keys, paths.checkpoints):
        if not folder.is_dir():
            raise StoreFailed(
                f"{folder} is missing, so nothing was restored; mount it, or put it "
                f"back from its newest copy (mkdir -m 700 {folder} if it held nothing)"
            )


def _database_files(context: Context) -> list[str]:
    """Return the database files that a backup must hold; none with PostgreSQL."""
    return ["expunge.db"] if context.settings.url is None else []


@contextmanager
def stage_backup(
    context: Context, backup: Path, *, sealed: Checkpoints
) -> Iterator[Context]:
    """Give the context as it will be with the backup's database.

    A SQLite file is copied beside the registry's own, with the content of its log: the
    backup itself may be read-only.
    """
    if context.settings.url is not None:
        require_tables(context.store)
        yield replace(context, checkpoints=sealed)
        return
    copy = _copy_path(context.paths)
    parts = [copy.with_name(copy.name + end) for end in ("", "-wal", "-shm")]
    for part in parts:
        destroy(part)
    try:
        for end in ("", "-wal"):
            original = backup / f"expunge.db{end}"
            if original.exists():
                write_new_file(copy.with_name(copy.name + end), original.read_bytes())
        with closing(Store(sqlite_engine(copy))) as store:
            require_tables(store)
            store.erase_deleted(WAIT)
            yield replace(context, store=store, checkpoints=sealed)
    except BaseException:
        for part in parts:
            destroy(part)
        raise


def require_sound_backup(context: Context) -> None:
    """Refuse a backup that is not of one moment, or damaged.

    Files of a registry in use that were copied one after the other may look intact. So
    everything is read: each line of each table, the ledger up to its last head, each
    certificate, and the rows of each person, under their keys.
    """
    try:
        with context.store.read() as connection:
            if context.store.dialect == "sqlite":
                check = connection.exec_driver_sql("PRAGMA integrity_check")
                if (said := check.scalar()) != "ok":
                    raise StoreFailed(str(said))
            for table in schema.sorted_tables:
                for _ in connection.execute(select(table)):
                    pass
            _require_ledger(connection)
            for name in releases_table.model_names(connection):
                _require_rows(context, connection, name=name)
            apart = people_table.read_rows_apart(connection)
            for _ in people_table.unseal_rows(context.keystore, apart):
                pass
            require_keys(context, connection)
    except (StoreFailed, NeedsRestore, LedgerCorrupt, ValueError) as error:
        server = context.store.dialect == "postgresql"
        if server and isinstance(error.__cause__, OperationalError):
            raise  # it says nothing of the backup
        raise InvalidInput(
            f"the backup is damaged, or was copied while the registry was in use "
            f"({error}); take another one: nothing was restored"
        ) from error


def _require_ledger(connection: Connection) -> None:
    """Refuse an invalid ledger, and altered certificates."""
    ledger = ledger_table.read_ledger(connection)
    if ledger.size:
        verdict = check_export(
            ledger_table.export_lines(connection), ledger.keys.to_pem()
        )
        if not verdict.valid:
            raise LedgerCorrupt(verdict.says)
    for text, digest in releases_table.read_all_certificates(connection):
        if Certificate.from_json(text).digest() != digest:
            raise LedgerCorrupt("a certificate was altered")


def _require_rows(context: Context, connection: Connection, *, name: str) -> None:
    """Refuse a model that cannot be read, or the rows of its people."""
    line = releases_table.read_newest(connection, name)
    if line.content is None:
        return  # its budget is spent, and nothing of it is kept
    data = context.checkpoints.read(name, line.key)
    load_checkpoint(line, data, read_rows=partial(context.read_rows, name))
    for _ in context.read_rows(name):
        pass


def replace_database(context: Context) -> None:
    """Replace the registry's SQLite database by the copy of the backup's.

    A process that opens the old one meanwhile makes a log, which SQLite would take for
    that of the new one. So nobody can open the new one until no log is there.
    """
    if context.settings.url is not None:
        return
    copy, target = _copy_path(context.paths), context.paths.database
    if target.exists():
        with suppress(ExpungeError):  # it may be damaged
            context.store.erase_deleted(0.0)  # so that nothing is lost with its log
    context.store.close()
    if not copy.exists():
        raise overtaken_error()  # another process took it for a leftover
    with closed_to_others(copy):
        _destroy_log(target)
        with erase_replaced(target):
            copy.replace(target)
        _destroy_log(target)


def _destroy_log(database: Path) -> None:
    """Destroy the log of a database, and its index."""
    for end in ("-wal", "-shm"):
        destroy(database.with_name(database.name + end))


def _copy_path(paths: Paths) -> Path:
    """Return where the copy waits until it takes its place."""
    return paths.database.with_name(f".{paths.database.name}.new")


def read_checkpoint_files(backup: Path) -> list[Path]:
    """Return the files among a backup's checkpoints, once each was read.

    A disk of its own may have folders there, lost+found for instance, and a killed
    process may have left drafts.
    """
    files = [
        path
        for path in sorted((backup / "checkpoints").iterdir())
        if path.is_file() and not path.name.startswith(".")
    ]
    for path in files:
        path.read_bytes()
    return files
