# SPDX-License-Identifier: Apache-2.0
"""Databases as older versions of expunge left them, made by their own migrations."""

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, insert

from expunge.registry.storage import Store
from expunge.registry.storage.tables import MIGRATIONS, schema
from tests.registries import dump_of


def make_older(store: Store, version: str) -> None:
    """Give a database the tables of an older version, with what fits into them."""
    script = ScriptDirectory(str(MIGRATIONS))
    dump = dump_of(store)
    with store.write() as connection:
        schema.drop_all(connection)
        migration = MigrationContext.configure(connection)
        with Operations.context(migration):
            for revision in reversed(list(script.iterate_revisions(version, "base"))):
                revision.module.upgrade()
        migration.stamp(script, version)
        older = MetaData()
        older.reflect(connection)
        for table in older.sorted_tables:
            lines = [
                {column.name: line[column.name] for column in table.columns}
                for line in dump.get(table.name, ())
            ]
            if lines:
                connection.execute(insert(table), lines)
