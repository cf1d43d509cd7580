# SPDX-License-Identifier: Apache-2.0
"""Key rings: the keys of one ledger, one after another.

A rotation adds a key and takes none away, so that a head stays verifiable by the key
that was in force at its size. In PEM each key stands below the sizes that it signs:

    Signs-From: 0
    Signs-To: 41
    -----BEGIN PUBLIC KEY-----
    ...
    -----END PUBLIC KEY-----
    Signs-From: 42
    -----BEGIN PUBLIC KEY-----
    ...

The last key has no end yet. A key alone needs no lines, and signs from 0 on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ..exceptions import InvalidInput
from .keys import PublicKey, read_pem

Range: TypeAlias = tuple[int, int | None]
"""The first and the last size of the heads that a key signs; None if it has no end."""

_FROM, _TO = "Signs-From", "Signs-To"
_LINE = re.compile(rf"({_FROM}|{_TO}): (0|[1-9][0-9]{{0,17}})")


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

    @classmethod
    def from_pem(cls, pem: str | bytes) -> "KeyRing":
        """Return the keys that an operator publishes; refuse a list with a gap."""
        keys, texts = read_pem(pem)
        *stated, after = map(_stated, texts)
        if stated == [{}]:
            stated = [{_FROM: 0}]
        if after or not all(_FROM in lines for lines in stated):
            raise _unusable(f"not every key stands below a line {_FROM}: SIZE")
        ranges: list[Range] = [(lines[_FROM], lines.get(_TO)) for lines in stated]
        try:
            ring = cls(tuple(zip((first for first, _ in ranges), keys, strict=True)))
        except InvalidInput as error:
            raise _unusable(str(error)) from None
        if ranges != list(ring.ranges()):
            raise _unusable(
                f"its keys sign sizes {_in_words(ranges)}; each must end with the size "
                "before the next one begins, and the last must have no end"
            )
        return ring

    @property
    def current(self) -> PublicKey:
        """The key that signs now."""
        return self.keys[-1][1]

    def at(self, size: int) -> PublicKey:
        """Return the key that signs heads of this size."""
        return next(key for since, key in reversed(self.keys) if since <= size)

    def until(self, size: int) -> "KeyRing":
        """Return the ring as it was when the ledger had this size."""
        return KeyRing(tuple(pair for pair in self.keys if pair[0] <= size))

    def range_at(self, size: int) -> Range:
        """Return the sizes of the heads that the key at this size signs."""
        return list(self.ranges())[len(self.until(size).keys) - 1]

    def rotated(self, since: int, key: PublicKey) -> "KeyRing":
        """Return the ring with a new key, in force from this size on."""
        return KeyRing((*self.keys, (since, key)))

    def ranges(self) -> Iterator[Range]:
        """Yield for each key the sizes of the heads that it signs."""
        sizes = [since for since, _ in self.keys]
        yield from ((since, then - 1) for since, then in pairwise(sizes))
        yield sizes[-1], None

    def to_pem(self) -> str:
        """Return all keys with what they sign, oldest first, for all to check by."""
        lines = []
        for (first, last), (_, key) in zip(self.ranges(), self.keys, strict=True):
            end = "" if last is None else f"{_TO}: {last}\n"
            lines.append(f"{_FROM}: {first}\n{end}{key.to_pem()}")
        return "".join(lines)


def _stated(text: bytes) -> dict[str, int]:
    """Return the sizes that the text before a key states; other lines are remarks."""
    found: dict[str, int] = {}
    for line in text.decode("ascii", "replace").splitlines():
        if "signs-" not in line.lower():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None or match[1] in found:
            raise _unusable(f"it has a line {line[:80]!r}")
        found[match[1]] = int(match[2])
    return found


def _in_words(ranges: list[Range]) -> str:
    return ", ".join(
        f"{first} to {'-' if last is None else last}" for first, last in ranges
    )


def _unusable(why: str) -> InvalidInput:
    return InvalidInput(
        f"the list of keys cannot be used: {why}; get the operator's public.pem, whole "
        "and as it was published"
    )
