# SPDX-License-Identifier: Apache-2.0
"""Book: the ledger as a value that only grows.

It holds what the next entry and the next head need (a frontier, the keys, a day), not
the entries: those belong to a store. Appending and signing cost O(log n).

Growth: whether one head's ledger goes on from another's, without seeing entries.

Two people who hold receipts of different days can so make sure that they were shown
the same ledger.
"""

from dataclasses import dataclass

from ..exceptions import InvalidInput
from ..promise.verification import Verdict
from .documents import FIRST_DAY
from .entries import Entry, Head, KeyRotated, sign
from .keys import KeyRing, PublicKey, SigningKey
from .merkle import Frontier, Proof, extends, leaf_hash


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where a ledger stands: its tree, its keys, the day of its last entry.

    Replaying the entries, ``reduce(Ledger.append, entries, Ledger.begin(key))``, gives
    the same value again.
    """

    frontier: Frontier
    keys: KeyRing
    day: str = FIRST_DAY

    @classmethod
    def begin(cls, key: PublicKey) -> "Ledger":
        """Return the empty ledger whose heads this key signs."""
        return cls(Frontier(), KeyRing(((0, key),)))

    @property
    def size(self) -> int:
        """Number of entries; the sequence of the next one."""
        return self.frontier.size

    def append(self, entry: Entry) -> "Ledger":
        """Return the ledger with this entry; refuse one that cannot come next."""
        return self.grown(entry, leaf(entry))

    def grown(self, entry: Entry, hashed: bytes) -> "Ledger":
        """Return the ledger with this entry, whose hash as a leaf is known."""
        complaint = self.objection(entry)
        if complaint:
            raise InvalidInput(f"{complaint}; append entries one by one, as they come")
        keys = self.keys
        if isinstance(entry, KeyRotated):
            keys = keys.rotated(self.size + 1, entry.introduced)
        return Ledger(self.frontier.append(hashed), keys, entry.day)

    def head(self, key: SigningKey, day: str) -> Head:
        """Return the signed head over all entries so far."""
        tree = self.frontier.tree()
        head = sign(Head(size=tree.size, root=tree.root.hex(), day=day), key)
        complaint = self.disagreement(head)
        if complaint:
            raise InvalidInput(f"{complaint}; sign with the current key, as of today")
        return head

    def objection(self, entry: Entry) -> str:
        """Return why this entry cannot come next; nothing if it can."""
        misplaced = misplacement(entry, self.size, self.day)
        if not misplaced and isinstance(entry, KeyRotated):
            return self._refusal(entry)
        return misplaced

    def disagreement(self, head: Head) -> str:
        """Return why this head is not of this ledger as it stands; nothing if it is."""
        contradicted = self.contradiction(head)
        if not contradicted and not head.signed_by(self.keys.at(head.size)):
            return unsigned(head)
        return contradicted

    def contradiction(self, head: Head) -> str:
        """Return what a head says that is not so here; its signature is not read."""
        named = f"the head over {head.size} entries"
        missing = head.size - self.size
        if missing > 0:
            return (
                f"{named} comes after {self.size}: {missing} before it were removed "
                "or moved"
            )
        if missing < 0:
            return (
                f"{named} comes after {self.size}: {-missing} before it were inserted "
                "or moved"
            )
        if head.tree != self.frontier.tree():
            return f"{named} has another root than they give"
        if head.day < self.day:
            return f"{named} is of {head.day}, before its last entry"
        key = self.keys.at(head.size)
        if head.key != key.id:
            return f"{named} names key {head.key}, and {key.id} is in force there"
        return ""

    def _refusal(self, entry: KeyRotated) -> str:
        """Return why a rotation does not hold; nothing if it does."""
        if not entry.signed_by(self.keys.current):
            return (
                f"entry {entry.sequence} rotates the key without the signature of "
                f"{self.keys.current.id}, which is in force"
            )
        if entry.introduced in [key for _, key in self.keys.keys]:
            return f"entry {entry.sequence} brings a retired key back"
        return ""


def misplacement(entry: Entry, due: int, day: str) -> str:
    """Return why an entry cannot be at a place, after an entry of this day."""
    place = entry.sequence
    if place > due:
        return (
            f"entry {due} is missing, entry {place} stands in its place: entries were "
            "removed or moved"
        )
    if place < due:
        return (
            f"entry {place} stands where entry {due} should: an entry was inserted or "
            "moved"
        )
    if entry.day < day:
        return f"entry {place} is of {entry.day}, before the entry before it, of {day}"
    return ""


def unsigned(head: Head) -> str:
    """Return that a head is not signed by the key that it names."""
    return (
        f"the head over {head.size} entries does not bear the signature of key "
        f"{head.key}"
    )


def leaf(entry: Entry) -> bytes:
    """Return the hash of an entry as a leaf of the tree."""
    return leaf_hash(entry.to_json().encode())


def check_growth(
    new: Head, old: Head, proof: Proof, public_pem: str | bytes
) -> Verdict:
    """Return whether a ledger only grew between two heads, without its entries.

    Parameters
    ----------
    new, old
        Two heads, the one over more entries first.
    proof
        From ``merkle.consistency_proof``.
    public_pem
        The public keys of the ledger, with the sizes that each signs.
    """
    ring = KeyRing.from_pem(public_pem)
    found = [
        (
            f"the head over {head.size} entries is signed by key {key.id}, which is in "
            "force there",
            head.signed_by(key),
        )
        for head, key in ((head, ring.at(head.size)) for head in (old, new))
    ]
    grown = extends(new.tree, old.tree, proof)
    found.append((f"the first {old.size} entries of both are the same", grown))
    found.append(("the larger head is not the earlier one", new.day >= old.day))
    findings = tuple(finding for finding, holds in found if holds)
    failures = tuple(f"not so: {finding}" for finding, holds in found if not holds)
    says = f"The ledger grew from {old.size} to {new.size} entries and changed none."
    if failures:
        says = "The heads do not fit together: " + "; ".join(failures) + "."
    return Verdict(findings, failures, says)
