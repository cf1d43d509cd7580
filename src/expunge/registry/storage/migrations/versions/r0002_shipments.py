# SPDX-License-Identifier: Apache-2.0
"""Where releases went, and whether they were taken back."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make room for what left the registry."""
    op.add_column("releases", sa.Column("withdrawn", sa.BigInteger))
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
