# SPDX-License-Identifier: Apache-2.0
"""Schema: which version of the tables a store has, and how it gets the newest.

Versions are Alembic's. Whether a store has the newest is one look that needs no
Alembic; bringing it there runs each missing step in one transaction.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ..exceptions import MissingExtra, NeedsRestore, OlderSchema
from .engine import Store

NEWEST = "0003"
MIGRATIONS = Path(__file__).parent / "migrations"


def version(connection: Connection) -> str | None:
    """Return the version of the tables; None if there are none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if found is None else str(found)


def require_newest(store: Store) -> None:
    """Refuse a store whose tables are of another version."""
    found = require_made(store)
    if found != NEWEST:
        raise OlderSchema(
            f"the store has schema {found} and this expunge needs {NEWEST}; back it "
            "up, then run expunge init once to bring it up to date"
        )


def require_made(store: Store) -> str:
    """Return the version of the tables; refuse a store without any, or a newer one."""
    with store.reading() as connection:
        found = version(connection)
    if found is None:
        raise NeedsRestore(_emptiness(store))
    if found > NEWEST:
        raise OlderSchema(
            f"the store has schema {found} and this expunge knows {NEWEST}: a newer "
            "version made it; upgrade expunge"
        )
    return found


def _emptiness(store: Store) -> str:
    """Return what to tell whoever finds a database without tables."""
    if store.dialect == "sqlite":
        return (
            "the database is empty, though the registry was in use: it was lost; put "
            "it back from a backup with expunge restore BACKUP"
        )
    url = store.engine.url
    return (
        f"the PostgreSQL database {url.database} on {url.host or 'this machine'} is "
        "empty, though the registry was in use; see that the URL in registry.json is "
        "right, or put the database back from its dump and run expunge restore BACKUP"
    )


def upgrade(store: Store) -> None:
    """Bring the tables to the newest version; nothing if they have it."""
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError as error:
        raise MissingExtra(
            "a registry needs alembic, which is not installed; run "
            "pip install expunge[registry]"
        ) from error
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    with store.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
