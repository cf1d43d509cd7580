# SPDX-License-Identifier: Apache-2.0
"""Registry: durable requests, releases, a ledger and receipts, on SQLite or PostgreSQL.

Needs ``expunge[registry,files]``, and ``secure`` for certified releases.
"""

from .registry import Registry
from .values import (
    ErasureRequest,
    ModelStatus,
    RegistryStatus,
    ReleaseStatus,
    RequestStatus,
)

__all__ = [
    "ErasureRequest",
    "ModelStatus",
    "Registry",
    "RegistryStatus",
    "ReleaseStatus",
    "RequestStatus",
]
