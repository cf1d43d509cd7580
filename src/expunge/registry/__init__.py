# SPDX-License-Identifier: Apache-2.0
"""Registry: durable requests, releases, a ledger and receipts, on SQLite or PostgreSQL.

Needs ``expunge[registry,files]``, and ``secure`` for certified releases.
"""

from .registry import Registry
from .values import Asked, ModelStatus, ReleaseStatus, RequestStatus, Status

__all__ = [
    "Asked",
    "ModelStatus",
    "Registry",
    "ReleaseStatus",
    "RequestStatus",
    "Status",
]
