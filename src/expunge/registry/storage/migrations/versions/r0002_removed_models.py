# SPDX-License-Identifier: Apache-2.0
"""Models can be removed; their certificates stay."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add when a model was removed, and where the ledger says so."""
    op.add_column("models", sa.Column("removed", sa.BigInteger))
    op.add_column("models", sa.Column("sequence", sa.BigInteger))
