# SPDX-License-Identifier: Apache-2.0
"""Callbacks and webhooks go out from tables that survive a crash."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables of addresses, of deliveries, and of what is still to be told."""
    op.create_table(
        "callbacks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
        sa.Column("look", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_callbacks"),
    )
    op.create_index("ix_callbacks_request", "callbacks", ["request"])
    op.create_index("ix_callbacks_look", "callbacks", ["look"])
    op.create_table(
        "endpoints",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_endpoints"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("due", sa.BigInteger, nullable=False),
        sa.Column("last", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_address", "deliveries", ["address"])
    op.create_index("ix_deliveries_due", "deliveries", ["state", "host", "due"])
    op.create_index("ix_deliveries_page", "deliveries", ["state", "since", "id"])
    op.create_index("ix_deliveries_since", "deliveries", ["since", "id"])
    op.create_table(
        "untold",
        sa.Column("request", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("request", name="pk_untold"),
    )
