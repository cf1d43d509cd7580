# SPDX-License-Identifier: Apache-2.0
"""Key rings: the keys of one ledger, one after another.

A rotation adds a key and takes none away, so that a head stays verifiable by the key
that was in force at its size.
"""

from dataclasses import dataclass

from ..exceptions import InvalidInput
from .keys import PublicKey


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one ledger, oldest first, each with the size it is in force from.

    A head of size s is signed by the last key whose ``since`` is at most s. The first
    has since=0; that of a rotation at sequence r has since=r + 1, so that the new key
    signs every head that covers its own introduction.
    """

    keys: tuple[tuple[int, PublicKey], ...]

    def __post_init__(self) -> None:
        """Refuse a history that no ledger has."""
        sizes = [since for since, _ in self.keys]
        ids = {key for _, key in self.keys}
        if not sizes or sizes[0] != 0 or sizes != sorted(set(sizes)):
            raise InvalidInput(
                f"keys in force from sizes {sizes}; the first must be in force from 0, "
                "and each later one from a larger size"
            )
        if len(ids) != len(self.keys):
            raise InvalidInput("a key comes back; a retired key is never used again")

    @property
    def current(self) -> PublicKey:
        """The key that signs now."""
        return self.keys[-1][1]

    def at(self, size: int) -> PublicKey:
        """Return the key that signs heads of this size."""
        return [key for since, key in self.keys if since <= size][-1]

    def rotated(self, since: int, key: PublicKey) -> "KeyRing":
        """Return the ring with a new key, in force from this size on."""
        return KeyRing((*self.keys, (since, key)))

    def to_pem(self) -> str:
        """Return all keys, oldest first, for whoever checks receipts."""
        return "".join(key.to_pem() for _, key in self.keys)
