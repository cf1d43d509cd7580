# SPDX-License-Identifier: Apache-2.0
"""Databases as older versions of expunge left them, made by their own migrations."""

from sqlalchemy import MetaData, insert, text

from expunge.registry import Registry
from expunge.registry.storage.tables import MIGRATIONS, NEWEST, schema, upgrade_tables

from .backups import dump_of

VERSIONS = [f"{number:04d}" for number in range(1, int(NEWEST))]


def make_older(registry: Registry, version: str) -> None:
    """Give a database the tables of an older version, with what fits into them."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(MIGRATIONS))
    dump = dump_of(registry)
    with registry._context.store.write() as connection:
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


def upgrade(registry: Registry) -> None:
    """Bring the tables of a database up to date."""
    upgrade_tables(registry._context.store)


def set_schema(registry: Registry, version: str) -> None:
    """Let a database say that its tables are of another version."""
    with registry._context.store.write() as connection:
        said = text("UPDATE alembic_version SET version_num = :version")
        connection.execute(said, {"version": version})
