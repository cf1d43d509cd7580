# SPDX-License-Identifier: Apache-2.0
"""Heads: the operator's signature under the whole ledger so far.

Whoever holds a head can hold the operator to every entry below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..canonical import Check, count, exactly, one_of
from .merkle import Tree
from .pages import digest, utc_day
from .signatures import NO_KEY, NO_SIGNATURE, SIGNED_CHECKS, Signed

FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head(Signed):
    """How many entries, the root over them, when, by which key, and its signature.

    Parameters
    ----------
    size, root
        Number of entries, and the Merkle tree hash over their canonical JSON.
    day
        When it was signed: a day in UTC, as YYYY-MM-DD.
    key, signature
        Name of the key in force at this size, and its signature of all the rest.
    """

    size: int
    root: str
    day: str
    key: str = NO_KEY
    signature: str = NO_SIGNATURE
    kind: str = "head"
    version: int = FORMAT

    checks: ClassVar[Mapping[str, Check]] = {
        **SIGNED_CHECKS,
        "size": count(0),
        "root": digest,
        "day": utc_day,
        "kind": one_of("head"),
        "version": exactly(FORMAT),
    }

    @property
    def tree(self) -> Tree:
        """Size and root, as proofs take them."""
        return Tree(self.size, bytes.fromhex(self.root))
