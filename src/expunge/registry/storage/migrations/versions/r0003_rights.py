# SPDX-License-Identifier: Apache-2.0
"""Requests have a right, a law and an outcome; rows can be set aside."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what a request asks for and what became of it, and where rows wait."""
    op.add_column(
        "requests",
        sa.Column("right", sa.Text, nullable=False, server_default="erase"),
    )
    texts = "regime submitted outcome reason retained retained_until extended notified"
    for name in texts.split():
        op.add_column(
            "requests", sa.Column(name, sa.Text, nullable=False, server_default="")
        )
    op.add_column(
        "requests", sa.Column("details", sa.Text, nullable=False, server_default="{}")
    )
    op.add_column(
        "models", sa.Column("fits", sa.Integer, nullable=False, server_default="0")
    )
    op.create_table(
        "request_rows",
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("request", "model", name="pk_request_rows"),
        sa.ForeignKeyConstraint(
            ["request"], ["requests.id"], name="fk_request_rows_request"
        ),
    )
    op.create_table(
        "set_aside",
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("subject", sa.Integer, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("until", sa.Text, nullable=False),
        sa.Column("fit", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("model", "subject", name="pk_set_aside"),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_set_aside_model"),
        sa.ForeignKeyConstraint(
            ["subject"], ["subjects.id"], name="fk_set_aside_subject"
        ),
    )
