# SPDX-License-Identifier: Apache-2.0
"""Marks: positions in a journal, each with the digest of all bytes before it.

The digest is the SHA-256 of the SHA-256 digests of pieces of 4 MiB, so that threads can
share a long file and the end can be continued.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import NamedTuple, Self

PIECE = 1 << 22  # bytes of the journal that are hashed at a time


class Digest:
    """The digest of all bytes so far."""

    __slots__ = ("_last", "_room", "_whole")

    def __init__(self) -> None:
        self._whole = sha256()  # of the digests of whole pieces
        self._last = sha256()  # of the piece that is not whole yet
        self._room = PIECE  # bytes that it lacks

    def copy(self) -> Self:
        """Return an independent copy that continues from here."""
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

    def read(self, descriptor: int, start: int, *, end: int) -> None:
        """Add the bytes of a file from start to end."""
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
                return  # it was truncated meanwhile; no digest will match
            self.update(data)
            start += len(data)


def _piece(descriptor: int, start: int) -> bytes:
    """Return the digest of one piece of a file."""
    return sha256(os.pread(descriptor, PIECE, start)).digest()


class Mark(NamedTuple):
    """A position in a journal, and the digest of all bytes before it.

    The epoch says how often the journal was rebuilt before. Numbers are written with a
    fixed number of digits, so that the later of two marks also sorts later as text.
    """

    epoch: int
    end: int
    digest: str

    def __str__(self) -> str:
        return f"{self.epoch:06d} {self.end:020d} {self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a mark from its text; the beginning for an empty text."""
        epoch, end, digest = (text or str(BEGINNING)).split()
        return cls(int(epoch), int(end), digest)


BEGINNING = Mark(0, 0, Digest().hexdigest())
