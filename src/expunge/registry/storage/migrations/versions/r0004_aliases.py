# SPDX-License-Identifier: Apache-2.0
"""People are known by aliases: addresses, numbers, ids of other systems."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table of aliases."""
    op.create_table(
        "aliases",
        sa.Column("tag", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("near", sa.Text),
        sa.PrimaryKeyConstraint("tag", name="pk_aliases"),
    )
    op.create_index("ix_aliases_person", "aliases", ["person"])
    op.create_index("ix_aliases_near", "aliases", ["near"])
