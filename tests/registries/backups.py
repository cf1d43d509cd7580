# SPDX-License-Identifier: Apache-2.0
"""Backups of a registry, and databases that are put back."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import delete, insert, select

from expunge.registry import Registry
from expunge.registry.storage.tables import schema

from .inside import Place, inside
from .stored import folder_of, is_on_sqlite
from .working import erase_log, working

Dump: TypeAlias = dict[str, list[dict[str, Any]]]


def dump_of(at: Place) -> Dump:
    """Return what a database holds, in order, as its backup has it."""
    with inside(at) as found, found.store.read() as connection:
        return {
            table.name: [
                dict(line)
                for line in connection.execute(
                    select(table).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for table in schema.sorted_tables
        }


def put_back(at: Place, dump: Dump) -> None:
    """Put a database back as it was."""
    with inside(at) as found, found.store.write() as connection:
        for table in reversed(schema.sorted_tables):
            connection.execute(delete(table))
        for table in schema.sorted_tables:
            if dump[table.name]:
                connection.execute(insert(table), dump[table.name])


def lose_database(folder: Path) -> None:
    """Delete a SQLite file, and what belongs to it."""
    for path in folder.glob("expunge.db*"):
        path.unlink()


class Backup(NamedTuple):
    """A backup of a registry, on either store."""

    folder: Path
    copy: Path
    dump: Dump
    on_sqlite: bool

    def restore(self) -> Registry:
        """Put the registry back, as an operator does who lost the database."""
        if self.on_sqlite:
            lose_database(self.folder)
        else:
            put_back(self.folder, self.dump)
        return Registry.restore(self.folder, self.copy)


def back_up(registry: Registry, to: Path) -> Backup:
    """Take a backup of a registry that nobody is using."""
    folder = folder_of(registry)
    with working(registry, 30.0):
        erase_log(registry)
    copy = Path(shutil.copytree(folder, to))
    return Backup(folder, copy, dump_of(registry), is_on_sqlite(registry))
