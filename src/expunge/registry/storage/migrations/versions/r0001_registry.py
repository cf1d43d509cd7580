# SPDX-License-Identifier: Apache-2.0
"""The first schema: models, people, requests, releases and the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    _models()
    _people()
    _requests()
    _ledger()


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("checkpoint", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False, server_default="id"),
        sa.Column("columns", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("name", name="pk_models"),
    )
    op.create_table(
        "releases",
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("made", sa.BigInteger, nullable=False),
        sa.Column("certificate", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("sequence", sa.BigInteger),
        sa.Column("superseded", sa.BigInteger),
        sa.Column("withdrawn", sa.BigInteger),
        sa.PrimaryKeyConstraint("model", "number", name="pk_releases"),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_releases_model"),
    )
    op.create_index("ix_releases_model", "releases", ["model", "superseded"])
    op.create_index("ix_releases_digest", "releases", ["digest"])
    op.create_table(
        "shipments",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_shipments"),
        sa.ForeignKeyConstraint(
            ["model", "number"],
            ["releases.model", "releases.number"],
            name="fk_shipments_model",
        ),
    )


def _people() -> None:
    op.create_table(
        "subjects",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("near", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_subjects"),
        sa.UniqueConstraint("tag", name="uq_subjects_tag"),
    )
    op.create_index("ix_subjects_near", "subjects", ["near"])
    op.create_table(
        "rows",
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("subject", sa.Integer, nullable=False),
        sa.Column("page", sa.Integer, nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("model", "subject", name="pk_rows"),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_rows_model"),
        sa.ForeignKeyConstraint(["subject"], ["subjects.id"], name="fk_rows_subject"),
    )
    op.create_index("ix_rows_subject", "rows", ["subject"])
    op.create_table(
        "pages",
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("page", sa.Integer, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("model", "page", name="pk_pages"),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_pages_model"),
    )


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("accepted", sa.BigInteger, nullable=False),
        sa.Column("opens", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("closes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("n_subjects", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("releases", sa.Text),
        sa.Column("completed", sa.BigInteger),
        sa.Column("receipt", sa.Text),
        sa.Column("error", sa.Text, nullable=False, server_default=""),
        sa.Column("near", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
    )
    op.create_index("ix_requests_stage", "requests", ["stage"])
    op.create_table(
        "request_tags",
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("request", "tag", name="pk_request_tags"),
        sa.ForeignKeyConstraint(
            ["request"], ["requests.id"], name="fk_request_tags_request"
        ),
    )
    op.create_table(
        "request_near",
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("request", "tag", name="pk_request_near"),
        sa.ForeignKeyConstraint(
            ["request"], ["requests.id"], name="fk_request_near_request"
        ),
    )


def _ledger() -> None:
    op.create_table(
        "entries",
        sa.Column("sequence", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_entries"),
    )
    op.create_index("ix_entries_kind", "entries", ["kind"])
    op.create_table(
        "nodes",
        sa.Column("level", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("place", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("level", "place", name="pk_nodes"),
    )
    op.create_table(
        "heads",
        sa.Column("size", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("size", name="pk_heads"),
    )
    op.create_table(
        "metadata",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_metadata"),
    )
