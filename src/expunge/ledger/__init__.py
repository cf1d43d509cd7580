# SPDX-License-Identifier: Apache-2.0
"""Ledger: a record of what was done that cannot be changed unnoticed.

Entries are leaves of a Merkle tree whose head the operator signs. A receipt proves that
a request stands in it; an export lets anybody check the whole. All are values and pure
functions, with key files beside them; where entries are kept is up to a store.
"""

from .book import Ledger
from .checking import ExportVerdict, check_export, export
from .entries import (
    Entry,
    KeyRotated,
    ModelRegistered,
    ReleaseMade,
    ReleasesSuperseded,
    RequestCompleted,
    Restored,
    read_entry,
)
from .growth import check_growth
from .heads import Head
from .keyfiles import UnusableKey
from .keys import PublicKey, SigningKey, signing_key
from .opening import ReceiptVerdict, check_receipt
from .receipt import Receipt, issue
from .ring import KeyRing
from .signatures import sign
from .tags import TagKey, is_tag_of, subject_tag, subject_tags, tag_key

__all__ = [
    "Entry",
    "ExportVerdict",
    "Head",
    "KeyRing",
    "KeyRotated",
    "Ledger",
    "ModelRegistered",
    "PublicKey",
    "Receipt",
    "ReceiptVerdict",
    "ReleaseMade",
    "ReleasesSuperseded",
    "RequestCompleted",
    "Restored",
    "SigningKey",
    "TagKey",
    "UnusableKey",
    "check_export",
    "check_growth",
    "check_receipt",
    "export",
    "is_tag_of",
    "issue",
    "read_entry",
    "sign",
    "signing_key",
    "subject_tag",
    "subject_tags",
    "tag_key",
]
