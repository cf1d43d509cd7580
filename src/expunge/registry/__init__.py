# SPDX-License-Identifier: Apache-2.0
"""Registry: durable requests, releases, a ledger and receipts, on SQLite or PostgreSQL.

Needs ``expunge[registry,files]`` and a POSIX system for its file locks.
"""

from ..exceptions import needing

with needing("registry,files", "a registry"):
    from .aliases import AliasesAdded, AmbiguousAlias
    from .models import LeftOut, ModelStatus
    from .registry import Registry, RegistryStatus, rebuild_journal
    from .requests import ErasureRequest, ForgottenInData, RequestStatus
    from .storage.releases_table import ReleaseStatus

__all__ = [
    "AliasesAdded",
    "AmbiguousAlias",
    "ErasureRequest",
    "ForgottenInData",
    "LeftOut",
    "ModelStatus",
    "Registry",
    "RegistryStatus",
    "ReleaseStatus",
    "RequestStatus",
    "rebuild_journal",
]
