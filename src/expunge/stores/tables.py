# SPDX-License-Identifier: Apache-2.0
"""Tables: what a registry keeps, in one schema for SQLite and PostgreSQL.

No table holds a person's name, only a keyed tag. Rows, the keys of rows and private
state are sealed before they come here. Of a release that is superseded the parameters
are erased and the certificate stays. Entries of the ledger are never changed.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)

models = Table(
    "models",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created", BigInteger, nullable=False),
    # Of the newest release, and of the checkpoint behind it, with the file it is in.
    Column("number", Integer, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("checkpoint", Text, nullable=False),
)

subjects = Table(
    "subjects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tag", Text, nullable=False),
    UniqueConstraint("tag"),
)

rows = Table(
    "rows",
    metadata,
    Column("model", Text, primary_key=True),
    Column("subject", Integer, primary_key=True),
    # Where the key of these rows lies.
    Column("page", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
    ForeignKeyConstraint(["subject"], ["subjects.id"]),
    Index(None, "subject"),
)

pages = Table(
    "pages",
    metadata,
    Column("model", Text, primary_key=True),
    Column("page", Integer, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model"], ["models.name"]),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Text, primary_key=True),
    Column("stage", Text, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    Column("deadline", BigInteger, nullable=False),
    Column("n_subjects", Integer, nullable=False),
    # A keyed hash of what was asked: the same id must not ask for something else.
    Column("fingerprint", Text, nullable=False),
    # The number of the release that each model got by it, as JSON.
    Column("releases", Text),
    Column("completed", BigInteger),
    Column("receipt", Text),
    Column("error", Text, nullable=False, server_default=""),
    Index(None, "stage"),
)

asked = Table(
    "asked",
    metadata,
    Column("request", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    ForeignKeyConstraint(["request"], ["requests.id"]),
)

releases = Table(
    "releases",
    metadata,
    Column("model", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("made", BigInteger, nullable=False),
    Column("certificate", Text, nullable=False),
    Column("digest", Text, nullable=False),
    # What may be shipped; erased once superseded.
    Column("content", LargeBinary),
    # Of its entry in the ledger, once it has one.
    Column("sequence", BigInteger),
    Column("superseded", BigInteger),
    Column("withdrawn", BigInteger),
    ForeignKeyConstraint(["model"], ["models.name"]),
    # One release of a model is not superseded, among any number that are.
    Index(None, "model", "superseded"),
    Index(None, "digest"),
)

shipments = Table(
    "shipments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("model", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["releases.model", "releases.number"]),
)

entries = Table(
    "entries",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("day", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "kind"),
)

# Roots of complete subtrees: a proof is a few of them.
nodes = Table(
    "nodes",
    metadata,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

heads = Table(
    "heads",
    metadata,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
)

notes = Table(
    "notes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
