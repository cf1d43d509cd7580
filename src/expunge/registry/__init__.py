# SPDX-License-Identifier: Apache-2.0
"""Registry: durable requests, releases, a ledger and receipts, on SQLite or PostgreSQL.

Needs ``expunge[registry,files]`` and a POSIX system for its file locks.
"""

from typing import TYPE_CHECKING, Any

from ..exceptions import needing

with needing("registry,files", "a registry"):
    from .access import Token
    from .aliases import AliasesAdded, AmbiguousAlias
    from .clock import ClockStatus
    from .deciding import Decider
    from .decisions import Decision, RequestRule
    from .deliveries import Callback, Delivery, DeliveryPage, Endpoint, Outcome
    from .fits import ForgottenInData, LeftOut, NewRows
    from .known import HeldRows, KnownPerson, Look
    from .models import ModelStatus
    from .opening import rebuild_journal
    from .registry import Registry, RegistryStatus
    from .remarks import Remark
    from .request import RequestStatus
    from .requests import (
        MeantPeople,
        PageWanted,
        Request,
        RequestPage,
        SortedPeople,
        SubmittedRequests,
    )
    from .storage.releases_table import ReleaseStatus
    from .trail import TrailLine, TrailWanted

if TYPE_CHECKING:
    from .lake import Lake, SourceStatus

__all__ = [
    "AliasesAdded",
    "AmbiguousAlias",
    "Callback",
    "ClockStatus",
    "Decider",
    "Decision",
    "Delivery",
    "DeliveryPage",
    "Endpoint",
    "ForgottenInData",
    "HeldRows",
    "KnownPerson",
    "Lake",
    "LeftOut",
    "Look",
    "MeantPeople",
    "ModelStatus",
    "NewRows",
    "Outcome",
    "PageWanted",
    "Registry",
    "RegistryStatus",
    "ReleaseStatus",
    "Remark",
    "Request",
    "RequestPage",
    "RequestRule",
    "RequestStatus",
    "SortedPeople",
    "SourceStatus",
    "SubmittedRequests",
    "Token",
    "TrailLine",
    "TrailWanted",
    "rebuild_journal",
]


def __getattr__(name: str) -> Any:
    """Return what has to do with rows that stay in files, loaded when asked for."""
    if name not in ("Lake", "SourceStatus"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import lake

    return getattr(lake, name)
