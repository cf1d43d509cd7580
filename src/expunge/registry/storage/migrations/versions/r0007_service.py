# SPDX-License-Identifier: Apache-2.0
"""A registry is served: requests have senders, callers tokens, and acts a trail."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add senders and the order of requests, and the tables of tokens and trail."""
    op.add_column(
        "requests", sa.Column("sender", sa.Text, nullable=False, server_default="")
    )
    op.create_index(
        "ix_requests_sender",
        "requests",
        ["sender", "stage", "right", "deadline", "id"],
    )
    op.create_index("ix_requests_accepted", "requests", ["accepted"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_table(
        "trail",
        sa.Column("sequence", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_trail"),
    )
