# SPDX-License-Identifier: Apache-2.0
"""Ledger: a record of what was done that cannot be changed unnoticed.

Entries are leaves of a Merkle tree whose head the operator signs. A receipt proves that
a request stands in it; an export lets anybody check the whole. All are values and pure
functions, with key files beside them; where entries are kept is up to a store.
"""

from .documents import CanonicalDocument
from .entries import (
    Entry,
    Head,
    HoldEnded,
    KeyRotated,
    ModelRegistered,
    ModelRemoved,
    RecordsExpired,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    RequestExtended,
    Restored,
    TrailSealed,
    read_entry,
    sign,
)
from .export import ExportVerdict, check_export, export
from .keys import (
    PublicKey,
    SigningKey,
    TagKey,
    UnusableKey,
    open_signing_key,
    open_tag_key,
    subject_tag,
    subject_tags,
)
from .ledger import KeyHistory, Ledger, check_consistency
from .receipts import (
    EntryProof,
    Handling,
    Receipt,
    ReceiptVerdict,
    check_receipt,
    describe_guarantee,
    issue_receipt,
    state_exclusion,
    state_method,
)

__all__ = [
    "CanonicalDocument",
    "Entry",
    "EntryProof",
    "ExportVerdict",
    "Handling",
    "Head",
    "HoldEnded",
    "KeyHistory",
    "KeyRotated",
    "Ledger",
    "ModelRegistered",
    "ModelRemoved",
    "PublicKey",
    "Receipt",
    "ReceiptVerdict",
    "RecordsExpired",
    "ReleaseMade",
    "ReleaseWithdrawn",
    "ReleasesSuperseded",
    "RequestCompleted",
    "RequestExtended",
    "Restored",
    "SigningKey",
    "TagKey",
    "TrailSealed",
    "UnusableKey",
    "check_consistency",
    "check_export",
    "check_receipt",
    "describe_guarantee",
    "export",
    "issue_receipt",
    "open_signing_key",
    "open_tag_key",
    "read_entry",
    "sign",
    "state_exclusion",
    "state_method",
    "subject_tag",
    "subject_tags",
]
