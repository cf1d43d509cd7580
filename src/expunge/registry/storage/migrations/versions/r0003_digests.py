# SPDX-License-Identifier: Apache-2.0
"""Releases are found by the digest of their certificate, however many there are."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make an index of digests."""
    op.create_index("ix_releases_digest", "releases", ["digest"])
