# SPDX-License-Identifier: Apache-2.0
"""Digest: of a long file that only grows, made on all cores and continued at its end.

The file is taken in pieces of 4 MiB. The digest is the SHA-256 of theirs, one after the
other, the last of them as far as it goes. Whole pieces do not depend on one another, so
that threads share them: the library hashes without holding up the others.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Self

PIECE = 1 << 22


class Digest:
    """The digest of all bytes so far."""

    __slots__ = ("_last", "_room", "_whole")

    def __init__(self) -> None:
        self._whole = sha256()  # of the digests of whole pieces
        self._last = sha256()  # of the piece that is not whole yet
        self._room = PIECE  # bytes that it lacks

    def copy(self) -> Self:
        """Return another one that goes on from here by itself."""
        other = type(self)()
        other._whole, other._last = self._whole.copy(), self._last.copy()
        other._room = self._room
        return other

    def hexdigest(self) -> str:
        """Return the digest in hexadecimal."""
        whole = self._whole.copy()
        whole.update(self._last.digest())
        return whole.hexdigest()

    def update(self, data: bytes) -> None:
        """Add bytes."""
        left = memoryview(data)
        while left:
            part = left[: self._room]
            self._last.update(part)
            self._room -= len(part)
            if not self._room:
                self._whole.update(self._last.digest())
                self._last, self._room = sha256(), PIECE
            left = left[len(part) :]

    def read(self, descriptor: int, start: int, end: int) -> None:
        """Add the bytes of a file from one place to another, which it must have."""
        if self._room < PIECE:
            first = min(end, start + self._room)
            self.update(os.pread(descriptor, first - start, start))
            start = first
        starts = range(start, end - PIECE + 1, PIECE)
        if len(starts) > 1:
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                for digest in threads.map(lambda at: _piece(descriptor, at), starts):
                    self._whole.update(digest)
            start = starts[-1] + PIECE
        while start < end:
            data = os.pread(descriptor, min(PIECE, end - start), start)
            if not data:
                return  # it was cut meanwhile, and no digest is that of the whole
            self.update(data)
            start += len(data)


def _piece(descriptor: int, start: int) -> bytes:
    """Return the digest of one piece of a file."""
    return sha256(os.pread(descriptor, PIECE, start)).digest()
