# SPDX-License-Identifier: Apache-2.0
"""The ledger as a value that only grows, and the history of its keys.

A ``Ledger`` holds what the next entry and the next head need (a frontier, the keys, a
day), not the entries: those belong to a store. Appending and signing cost O(log n).

A rotation adds a key and takes none away, so that a head stays verifiable by the key
that was in force at its size. In PEM each key is preceded by the sizes that it signs:

    Signs-From: 0
    Signs-To: 41
    -----BEGIN PUBLIC KEY-----
    ...
    -----END PUBLIC KEY-----
    Signs-From: 42
    -----BEGIN PUBLIC KEY-----
    ...

The last key has no end yet. A single key needs no such lines, and signs from 0 on.

``check_consistency`` shows that one head's ledger continues another's without seeing
entries, so that two people with receipts of different days can make sure that they were
shown the same ledger.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ..exceptions import InvalidInput
from ..promise.verification import Verdict
from .documents import FIRST_DAY
from .entries import Entry, Head, KeyRotated, sign
from .keys import PublicKey, SigningKey, read_pem
from .merkle import Frontier, Proof, extends, leaf_hash

Range: TypeAlias = tuple[int, int | None]
"""The first and the last size of the heads that a key signs; None if it has no end."""

_FROM, _TO = "Signs-From", "Signs-To"
_LINE = re.compile(rf"({_FROM}|{_TO}): (0|[1-9][0-9]{{0,17}})")


@dataclass(frozen=True, slots=True)
class KeyHistory:
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

    @classmethod
    def from_pem(cls, pem: str | bytes) -> "KeyHistory":
        """Return the keys that an operator publishes; refuse a list with a gap."""
        keys, texts = read_pem(pem)
        *stated, after = map(_read_range_lines, texts)
        if stated == [{}]:
            stated = [{_FROM: 0}]
        if after or not all(_FROM in lines for lines in stated):
            raise _unusable_list(f"not every key is preceded by a line {_FROM}: SIZE")
        ranges: list[Range] = [(lines[_FROM], lines.get(_TO)) for lines in stated]
        try:
            history = cls(tuple(zip((first for first, _ in ranges), keys, strict=True)))
        except InvalidInput as error:
            raise _unusable_list(str(error)) from None
        if ranges != list(history.ranges()):
            raise _unusable_list(
                f"its keys sign sizes {_in_words(ranges)}; each must end with the size "
                "before the next one begins, and the last must have no end"
            )
        return history

    @property
    def current(self) -> PublicKey:
        """The key that signs now."""
        return self.keys[-1][1]

    def at(self, size: int) -> PublicKey:
        """Return the key that signs heads of this size."""
        return next(key for since, key in reversed(self.keys) if since <= size)

    def until(self, size: int) -> "KeyHistory":
        """Return the history as it was when the ledger had this size."""
        return KeyHistory(tuple(pair for pair in self.keys if pair[0] <= size))

    def range_at(self, size: int) -> Range:
        """Return the sizes of the heads that the key at this size signs."""
        return list(self.ranges())[len(self.until(size).keys) - 1]

    def with_key(self, since: int, key: PublicKey) -> "KeyHistory":
        """Return the history with a new key, in force from this size on."""
        return KeyHistory((*self.keys, (since, key)))

    def ranges(self) -> Iterator[Range]:
        """Yield for each key the sizes of the heads that it signs."""
        sizes = [since for since, _ in self.keys]
        yield from ((since, then - 1) for since, then in pairwise(sizes))
        yield sizes[-1], None

    def to_pem(self) -> str:
        """Return all keys with what they sign, oldest first, for publication."""
        lines = []
        for (first, last), (_, key) in zip(self.ranges(), self.keys, strict=True):
            end = "" if last is None else f"{_TO}: {last}\n"
            lines.append(f"{_FROM}: {first}\n{end}{key.to_pem()}")
        return "".join(lines)


def _read_range_lines(text: bytes) -> dict[str, int]:
    """Return the sizes that the text before a key states; other lines are remarks."""
    found: dict[str, int] = {}
    for line in text.decode("ascii", "replace").splitlines():
        if "signs-" not in line.lower():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None or match[1] in found:
            raise _unusable_list(f"it has a line {line[:80]!r}")
        found[match[1]] = int(match[2])
    return found


def _in_words(ranges: list[Range]) -> str:
    return ", ".join(
        f"{first} to {'-' if last is None else last}" for first, last in ranges
    )


def _unusable_list(why: str) -> InvalidInput:
    return InvalidInput(
        f"the list of keys cannot be used: {why}; get the operator's public.pem, "
        "complete and as it was published"
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where a ledger stands: its tree, its keys, the day of its last entry.

    Replaying the entries, ``reduce(Ledger.append, entries, Ledger.empty(key))``, gives
    the same value again.
    """

    frontier: Frontier
    keys: KeyHistory
    day: str = FIRST_DAY

    @classmethod
    def empty(cls, key: PublicKey) -> "Ledger":
        """Return the empty ledger whose heads this key signs."""
        return cls(Frontier(), KeyHistory(((0, key),)))

    @property
    def size(self) -> int:
        """Number of entries; the sequence of the next one."""
        return self.frontier.size

    def append(self, entry: Entry) -> "Ledger":
        """Return the ledger with this entry; refuse one that cannot come next."""
        return self.append_hashed(entry, hash_entry(entry))

    def append_hashed(self, entry: Entry, hashed: bytes) -> "Ledger":
        """Return the ledger with this entry, whose hash as a leaf is known."""
        fault = self.check_entry(entry)
        if fault:
            raise InvalidInput(f"{fault}; append entries one by one, as they come")
        keys = self.keys
        if isinstance(entry, KeyRotated):
            keys = keys.with_key(self.size + 1, entry.new_key)
        return Ledger(self.frontier.append(hashed), keys, entry.day)

    def head(self, key: SigningKey, day: str) -> Head:
        """Return the signed head over all entries so far."""
        tree = self.frontier.tree()
        head = sign(Head(size=tree.size, root=tree.root.hex(), day=day), key)
        fault = self.check_head(head)
        if fault:
            raise InvalidInput(f"{fault}; sign with the current key, as of today")
        return head

    def check_entry(self, entry: Entry) -> str:
        """Return why this entry cannot come next; nothing if it can."""
        fault = check_sequence(entry, self.size, day=self.day)
        if fault or not isinstance(entry, KeyRotated):
            return fault
        if not entry.signed_by(self.keys.current):
            return (
                f"entry {entry.sequence} rotates the key without the signature of "
                f"{self.keys.current.id}, which is in force"
            )
        if entry.new_key in [key for _, key in self.keys.keys]:
            return f"entry {entry.sequence} brings a retired key back"
        return ""

    def check_head(self, head: Head) -> str:
        """Return why this head is not of this ledger as it stands; nothing if it is."""
        fault = self.check_contents(head)
        if not fault and not head.signed_by(self.keys.at(head.size)):
            return unsigned_message(head)
        return fault

    def check_contents(self, head: Head) -> str:
        """Return what a head says that is not so here; its signature is not checked."""
        named = f"the head over {head.size} entries"
        missing = head.size - self.size
        if missing > 0:
            return (
                f"{named} comes after {self.size} entries: others before it were "
                f"removed or moved ({missing})"
            )
        if missing < 0:
            return (
                f"{named} comes after {self.size} entries: some before it were "
                f"inserted or moved ({-missing})"
            )
        if head.tree != self.frontier.tree():
            return f"{named} has a different root than these entries give"
        if head.day < self.day:
            return f"{named} is dated {head.day}, before its last entry"
        key = self.keys.at(head.size)
        if head.key != key.id:
            return f"{named} names key {head.key}, and {key.id} is in force there"
        return ""


def check_sequence(entry: Entry, due: int, *, day: str) -> str:
    """Return why an entry cannot be number ``due``, after an entry of this day."""
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
        return f"entry {place}, of {entry.day}, is older than the one before, of {day}"
    return ""


def unsigned_message(head: Head) -> str:
    """Return the message that a head is not signed by the key that it names."""
    return (
        f"the head over {head.size} entries is not signed by key {head.key}, which it "
        "names"
    )


def hash_entry(entry: Entry) -> bytes:
    """Return the hash of an entry as a leaf of the tree."""
    return leaf_hash(entry.to_json().encode())


def check_consistency(
    new: Head, old: Head, *, proof: Proof, public_pem: str | bytes
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
    history = KeyHistory.from_pem(public_pem)
    found = [
        (
            f"the head over {head.size} entries is signed by key {key.id}, which is in "
            "force there",
            head.signed_by(key),
        )
        for head, key in ((head, history.at(head.size)) for head in (old, new))
    ]
    grown = extends(new.tree, old.tree, proof=proof)
    found.append((f"the first {old.size} entries of both are the same", grown))
    found.append(("the larger head is not the earlier one", new.day >= old.day))
    findings = tuple(finding for finding, holds in found if holds)
    failures = tuple(f"not so: {finding}" for finding, holds in found if not holds)
    says = f"The ledger grew from {old.size} to {new.size} entries and changed none."
    if failures:
        says = "The heads do not fit together: " + "; ".join(failures) + "."
    return Verdict(findings, failures, says)
