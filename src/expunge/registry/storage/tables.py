# SPDX-License-Identifier: Apache-2.0
"""Tables: what a registry keeps, in one schema for SQLite and PostgreSQL.

No table holds a person's name, only a keyed tag. Rows and the ids that aliases lead to
are sealed before they come here, and the number of its key lies beside whatever may
have to be erased (``keystore``). The parameters of a
superseded release are erased and its certificate stays. Entries of the ledger are never
changed.

The table ``metadata`` holds single values by name. One of them is the version of the
tables: a store of another version is refused. Two tell how many keys were made, and how
often some were destroyed.
"""

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    inspect,
    select,
    text,
)

from ...exceptions import (
    Busy,
    NeedsRestore,
    OtherSchema,
)
from .engine import Store

VERSION = "5"
SCHEMA = "schema"
MADE, SHREDDED = "keys made", "keys shredded"
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
schema = MetaData(naming_convention=NAMING)

models = Table(
    "models",
    schema,
    Column("name", Text, primary_key=True),
    Column("created", BigInteger, nullable=False),
    # Of the newest release, and of the key of the checkpoint behind it; 0: none.
    Column("number", Integer, nullable=False),
    Column("key", Integer, nullable=False),
    # When it was removed, if it was.
    Column("removed", BigInteger),
    # How often it was fitted.
    Column("fits", Integer, nullable=False, server_default="0"),
    # The kind of identifier that the ids of its people are.
    Column("subject_kind", Text, nullable=False, server_default="id"),
    # What the columns of its table are, as JSON; empty if that was not said.
    Column("columns", Text, nullable=False, server_default=""),
)

subjects = Table(
    "subjects",
    schema,
    Column("id", Integer, primary_key=True),
    Column("tag", Text, nullable=False),
    # Of the loosest form of the id; rows without a person have none.
    Column("near", Text),
    UniqueConstraint("tag"),
    Index(None, "near"),
)

# Rows of people, and where they are.
rows = Table(
    "rows",
    schema,
    # The number of the key that seals them: what has one key is one line.
    Column("key", Integer, primary_key=True, autoincrement=False),
    Column("model", Text, nullable=False),
    # Whose they are; nobody's yet if they wait for their request.
    Column("subject", Integer),
    # "in use", "restricted" or "held"; or "waiting", if a request brings them.
    Column("place", Text, nullable=False),
    # Which fit of the model they belong to: later fits have other rows.
    Column("fit", Integer, nullable=False),
    # The request that set them aside, or brings them, why, and until which day; empty
    # without an end.
    Column("request", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("until", Text, nullable=False, server_default=""),
    Column("sealed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
    ForeignKeyConstraint(["subject"], ["subjects.id"]),
    Index(None, "subject"),
    Index(None, "model", "place"),
    Index(None, "place", "until"),
)

# Keys to destroy: what they sealed is deleted.
shred = Table(
    "shred",
    schema,
    Column("number", Integer, primary_key=True, autoincrement=False),
)

aliases = Table(
    "aliases",
    schema,
    Column("tag", Text, primary_key=True),
    # The tag of the person, and the person's id, sealed.
    Column("person", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    # Of the loosest form of kind and value; those that came hashed have none.
    Column("near", Text),
    Index(None, "person"),
    Index(None, "near"),
)

# Hashed identifiers that lists of others keep out of fits; see ``exclusions_table``.
excluded = Table(
    "exclusions",
    schema,
    Column("item", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("tag", Text, nullable=False),
    Column("also", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("day", Text, nullable=False),
    Index(None, "tag"),
    Index(None, "also"),
)

# Whom a waiting request is about.
request_tags = Table(
    "request_tags",
    schema,
    Column("request", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    # 0: the tag of a person; 1: of the loosest form of what the request was sent with.
    Column("near", Integer, nullable=False),
    ForeignKeyConstraint(["request"], ["requests.request"]),
)

# What operators wrote down beside requests, sealed; it goes with their records. The tag
# is of the reference.
remarks = Table(
    "remarks",
    schema,
    Column("request", Text, primary_key=True),
    Column("tag", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["request"], ["requests.request"], ondelete="CASCADE"),
    Index(None, "tag"),
)

# Who may call a service: sessions in a browser are tokens too.
tokens = Table(
    "tokens",
    schema,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    # Of the secret, which is kept nowhere.
    Column("hash", Text, nullable=False),
    # Which person it belongs to; empty if that was not said. 1 if it counts where two
    # people must act.
    Column("owner", Text, nullable=False, server_default=""),
    Column("decides", Integer, nullable=False, server_default="1"),
    UniqueConstraint("hash"),
)

# What operators decided about a request, or about an act that needs two of them.
decisions = Table(
    "decisions",
    schema,
    Column("id", Integer, primary_key=True),
    Column("about", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("actor", Text, nullable=False),
    # Who vouches for it: the person whom a token belongs to; empty if nobody does.
    Column("person", Text, nullable=False),
    # How the identity was checked, or until which day the request waits.
    Column("detail", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    # 1 once the act is done: it counts for no other.
    Column("used", Integer, nullable=False, server_default="0"),
    UniqueConstraint("about", "step", "actor", "time"),
)

# Who did what to what, by which way in, and why. Each hash covers its line and the one
# before.
trail = Table(
    "trail",
    schema,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

releases = Table(
    "releases",
    schema,
    Column("model", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("made", BigInteger, nullable=False),
    Column("certificate", Text, nullable=False),
    Column("digest", Text, nullable=False),
    # What may be shipped; erased once superseded.
    Column("content", LargeBinary),
    Column("superseded", BigInteger),
    Column("withdrawn", BigInteger),
    ForeignKeyConstraint(["model"], ["models.name"]),
    # One release of a model is not superseded, among any number that are.
    Index(None, "model", "superseded"),
    # Both: of indexes with one column each SQLite takes any, one of all releases too.
    Index(None, "digest", "model"),
)

shipments = Table(
    "shipments",
    schema,
    Column("id", Integer, primary_key=True),
    Column("model", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["releases.model", "releases.number"]),
)

# Entries that the ledger must get, written by the transaction that they tell of.
unstated = Table(
    "unstated",
    schema,
    Column("id", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    # The request or the certificate that it is about: with the kind it occurs once.
    Column("about", Text, nullable=False),
    # The entry as it will be, but for its number and day; it is no earlier than this.
    Column("text", Text, nullable=False),
    Column("earliest", BigInteger, nullable=False),
    UniqueConstraint("about", "kind"),
)

entries = Table(
    "entries",
    schema,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("day", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "kind"),
)

# Roots of complete subtrees: a proof is a few of them.
nodes = Table(
    "nodes",
    schema,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

heads = Table(
    "heads",
    schema,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
)

# One row: how far in the log this database is, and the worker's turn; see ``log``.
log = Table(
    "log",
    schema,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("turn", Text, nullable=False),
)

metadata = Table(
    "metadata",
    schema,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)


def columns_of(
    kind: type, *, key: str, without: Collection[str] = ()
) -> list[Column[Any]]:
    """Return a column for each field of a dataclass: a text, or a whole number."""
    return [
        Column(
            one.name,
            BigInteger if one.type in (int, int | None) else Text,
            primary_key=one.name == key,
            nullable=one.type == int | None,
        )
        for one in fields(kind)
        if one.name not in without
    ]


def create_tables(store: Store) -> None:
    """Make the tables in a store that has none; refuse those of another version."""
    store.require_writable()
    with store.write() as connection:
        if not has_tables(connection):
            schema.create_all(connection)
            write_metadata(connection, SCHEMA, value=VERSION)
            write_metadata(connection, MADE, value=f"{1:020d}")
    require_tables(store)


def require_tables(store: Store) -> None:
    """Refuse a store without tables, or with those of another version."""
    with store.read() as connection:
        found = has_tables(connection) and read_metadata(connection, SCHEMA)
    if found is False:
        raise NeedsRestore(_empty_message(store))
    if found != VERSION:
        raise OtherSchema(
            f"the store has tables of version {found or 0} and this expunge needs "
            f"{VERSION}: use the expunge that made it, or make a new registry"
        )


def has_tables(connection: Connection) -> bool:
    """Return whether a store has tables of any version."""
    return inspect(connection).has_table(metadata.name)


def _empty_message(store: Store) -> str:
    """Return the message for a database without tables."""
    if store.dialect == "sqlite":
        return (
            "the database is empty, though the registry was in use: it was lost; put "
            "it back from a backup with expunge restore BACKUP"
        )
    url = store.engine.url
    return (
        f"the PostgreSQL database {url.database} on {url.host or 'this machine'} is "
        "empty, though the registry was in use; check that the URL in registry.json is "
        "right, or put the database back from its dump and run expunge restore BACKUP"
    )


_VALUE = select(metadata.c.value).where(metadata.c.name == bindparam("name"))
# In words that SQLite and PostgreSQL share.
_PUT = text(
    "INSERT INTO metadata (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_PUT_LATER = text(f"{_PUT} WHERE metadata.value < excluded.value")


def read_metadata(connection: Connection, name: str, *, default: str = "") -> str:
    """Return the value under a name."""
    value = connection.scalar(_VALUE, {"name": name})
    return default if value is None else str(value)


def write_metadata(connection: Connection, name: str, *, value: str) -> None:
    """Put a value under a name."""
    connection.execute(_PUT, {"name": name, "value": value})


def overtaken_error() -> Busy:
    """Return the error that another process took over."""
    return Busy(
        "another process took over the work meanwhile; what was accepted is safe, run "
        "the command again"
    )


def write_later(connection: Connection, name: str, *, value: str) -> None:
    """Put a value under a name, unless one that sorts after it is there."""
    connection.execute(_PUT_LATER, {"name": name, "value": value})
