# SPDX-License-Identifier: Apache-2.0
"""Stores: where a registry keeps its records, so that nothing is lost or lingers.

Tables on SQLite or PostgreSQL, keys in a file outside the database, and a journal of
what a restored database would lack. Values come in as bytes, numbers and words; what
they mean is the registry's business.
"""

from .engine import Store, postgresql_engine, sqlite_engine
from .journal import Journal
from .lock import alone
from .tables import require_made, require_newest, upgrade
from .vault import Checkpoints, Vault

__all__ = [
    "Checkpoints",
    "Journal",
    "Store",
    "Vault",
    "alone",
    "postgresql_engine",
    "require_made",
    "require_newest",
    "sqlite_engine",
    "upgrade",
]
