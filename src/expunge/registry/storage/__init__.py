# SPDX-License-Identifier: Apache-2.0
"""Storage: where a registry keeps its records, so that nothing is lost or lingers.

Tables on SQLite or PostgreSQL, keys in files outside the database, and a journal of
what a restored database would lack. File locks need a POSIX system. Values come in as
bytes, numbers and strings; their meaning is the registry's business.
"""

from .checkpoints import Checkpoints
from .engine import Store, postgresql_engine, sqlite_engine
from .keystore import Keystore
from .lock import hold_worker_lock
from .tables import create_tables, require_tables

__all__ = [
    "Checkpoints",
    "Keystore",
    "Store",
    "create_tables",
    "hold_worker_lock",
    "postgresql_engine",
    "require_tables",
    "sqlite_engine",
]
