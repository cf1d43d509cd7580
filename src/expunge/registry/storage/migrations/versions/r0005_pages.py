# SPDX-License-Identifier: Apache-2.0
"""Requests are listed in the order of their deadlines, by stage and right."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Let the index of stages be in the order of deadlines, for each right."""
    op.drop_index("ix_requests_stage", "requests")
    op.create_index(
        "ix_requests_stage", "requests", ["stage", "right", "deadline", "id"]
    )
