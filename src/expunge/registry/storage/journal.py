# SPDX-License-Identifier: Apache-2.0
"""Journal: what a database that was put back from a backup would lack.

A private file beside the database with one JSON line after another. Each has a
checksum, and is on disk before what it records is promised to anybody: requests as they
are accepted, with the tags of the people; what was added to the ledger, with the
signatures of receipts; releases that left. Replaying it on a restored database makes
sure that nobody who was forgotten since comes back, that the ledger continues from
where it was, and that no accepted request is lost.

A journal that lost its end would bring people back unnoticed. So marks of it are kept
elsewhere, each a length and the digest of all bytes before: in the database, with every
request, and in a small mark file. A journal that is shorter than a mark, or differs
before it, is refused. The digest is the SHA-256 of the SHA-256 digests of pieces of
4 MiB, so that threads can share a long file and the end can be continued.

The journal also decides who may add to the ledger. A statement, a line with entries, is
written only if nobody else made one since the writer last looked: a sequence number is
used once, even if two processes both believe that they work alone.

The tags in it are personal data, kept for this purpose: they may be destroyed with the
last backup that still holds the people.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import IO, Any, NamedTuple, Self, TypeAlias

from ...core.arrays import Private
from ...disk import open_or_create, replace_file, sync_folder
from ...exceptions import Busy, JournalDamaged
from .engine import translate_errors
from .lock import lock_file

PIECE = 1 << 22  # bytes of the journal that are hashed at a time
STATEMENT, REBUILT = "entries", "rebuilt"

Stamp: TypeAlias = tuple[int, int, int]
NO_FILE: Stamp = (0, 0, 0)
Line: TypeAlias = tuple[int, dict[str, Any]]
"""Where a line ends, and its content."""
Written: TypeAlias = "tuple[int, Mark]"
"""Where a written line begins, and the mark after it."""


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

    Positions are written with a fixed number of digits, so that the later of two marks
    of one journal also sorts later as text.
    """

    end: int
    digest: str

    def __str__(self) -> str:
        return f"{self.end:020d} {self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a mark from its text; the beginning for an empty text."""
        end, _, digest = (text or str(BEGINNING)).partition(" ")
        return cls(int(end), digest)


BEGINNING = Mark(0, Digest().hexdigest())

ReadKnown: TypeAlias = Callable[[], Mark]
"""Returns the newest mark that the database knows."""


def _know_nothing() -> Mark:
    return BEGINNING


class Journal(Private):
    """The journal's file: append lines, and read them from a position on.

    Parameters
    ----------
    path
        Of the file.
    mark_path
        Of the file that holds the newest mark.
    """

    __slots__ = ("_digest", "_end", "_lock", "_stamp", "mark_path", "path")

    def __init__(self, path: Path, mark_path: Path) -> None:
        self.path = path
        self.mark_path = mark_path
        self._lock = RLock()
        # Up to where this object compared or wrote the file, and which file it was.
        self._end, self._digest, self._stamp = 0, Digest(), NO_FILE

    def require(self, *marks: Mark) -> None:
        """Refuse a journal that does not hold everything up to each of the marks.

        The mark in the mark file is always one of them.
        """
        with translate_errors(), self._lock:
            wanted = sorted({*marks, self.read_mark_file()})
            if not self.path.exists():
                self._require_none(wanted[-1].end)
                return
            with self.path.open("rb") as file:
                self._compare(file, wanted)

    def is_whole(self, *marks: Mark) -> bool:
        """Return whether the journal holds everything up to each of the marks."""
        try:
            self.require(*marks)
        except JournalDamaged:
            return False
        return True

    def append(
        self, lines: Sequence[dict[str, Any]], read_known: ReadKnown = _know_nothing
    ) -> Mark:
        """Append lines, flush them, and return the mark after them.

        ``read_known`` returns the mark in the database. It is called when nobody else
        can write.
        """
        with self._open_alone(read_known) as descriptor:
            _, mark = self._write(descriptor, lines)
        return mark

    @contextmanager
    def lock_for_statement(
        self, since: int, read_known: ReadKnown = _know_nothing
    ) -> Iterator[Callable[[dict[str, Any]], Written]]:
        """Give a function that appends a statement, the first one since a position.

        Raises Busy if another process made one. Nobody else can write until this ends.
        ``read_known`` is as for ``append``.
        """
        with self._open_alone(read_known) as descriptor:
            if any(STATEMENT in line for _, line in self.read(since)):
                raise Busy(
                    "another process has written to the ledger meanwhile; run the "
                    "command again"
                )
            yield lambda line: self._write(descriptor, [line])

    def read(self, start: int) -> Iterator[Line]:
        """Yield the lines from a position on, each with its end; skip a torn end."""
        if not self.path.exists():
            self._require_none(start)
            return
        with translate_errors(), self.path.open("rb") as file:
            for end, line in self._whole_lines(file, start):
                yield end, json.loads(line.partition(b" ")[2])

    def read_whole_lines(self) -> list[Line]:
        """Return every intact line, whatever became of the others."""
        found, end = [], 0
        content = self.path.read_bytes() if self.path.exists() else b""
        for line in content.splitlines(keepends=True):
            end += len(line)
            if _is_intact(line):
                found.append((end, json.loads(line.partition(b" ")[2])))
        return found

    def is_rebuilt(self) -> bool:
        """Return whether it was rewritten, so that older marks are of another one."""
        first = _encode({REBUILT: True})
        with translate_errors(), self.path.open("rb") as file:
            return file.read(len(first)) == first

    def rewrite(self, lines: Sequence[dict[str, Any]]) -> Mark:
        """Replace all lines by these; return the mark after them."""
        kept = [line for line in lines if REBUILT not in line]
        data = b"".join(_encode(line) for line in [{REBUILT: True}, *kept])
        digest = Digest()
        digest.update(data)
        mark = Mark(len(data), digest.hexdigest())
        with translate_errors(), self._lock, lock_file(self.path):
            replace_file(self.path, data)
            self._write_mark_file(mark)
            self._end, self._digest, self._stamp = 0, Digest(), NO_FILE
        return mark

    def _compare(self, file: IO[bytes], marks: Sequence[Mark]) -> None:
        """Refuse a file that was changed before any of the marks, earliest first.

        Bytes that were compared before are not compared again while the file only
        grows.
        """
        stamp = _stamp(file.fileno())
        if stamp[1] < marks[-1].end:
            raise self._damaged_error(
                f"ends at byte {stamp[1]}, and held {marks[-1].end}"
            )
        place, digest = 0, Digest()
        if self._has_only_grown(stamp) and marks[0].end >= self._end:
            place, digest = self._end, self._digest.copy()
        for mark in marks:
            digest.read(file.fileno(), place, end=mark.end)
            place = mark.end
            if digest.hexdigest() != mark.digest:
                raise self._altered_error(file)
        self._end, self._digest, self._stamp = place, digest, stamp

    def _has_only_grown(self, stamp: Stamp) -> bool:
        """Return whether a file is the compared one, perhaps with more in it."""
        (number, size, time), (known, known_size, known_time) = stamp, self._stamp
        if number != known or size < known_size:
            return False
        return size > known_size or time == known_time

    def _require_none(self, end: int) -> None:
        """Refuse a missing file if one was known up to a position."""
        if end:
            raise self._damaged_error(f"is missing, and held {end} bytes")

    @contextmanager
    def _open_alone(self, read_known: ReadKnown) -> Iterator[int]:
        """Lock the file, compare it with every mark, and read what others wrote since.

        What this process saw itself is not enough: others may have written more, and an
        older copy put in place of that.
        """
        with translate_errors(), self._lock:
            own = Mark(self._end, self._digest.hexdigest())
            if not self.path.exists():
                self._require_none(max(own, read_known(), self.read_mark_file()).end)
            with lock_file(self.path) as descriptor:
                marks = sorted({own, read_known(), self.read_mark_file()})
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    self._compare(file, marks)
                    for end, line in self._whole_lines(file, self._end):
                        self._digest.update(line)
                        self._end = end
                yield descriptor

    def _write(self, descriptor: int, lines: Sequence[dict[str, Any]]) -> Written:
        """Write lines after the last intact one, and the new mark."""
        start, data = self._end, b"".join(_encode(line) for line in lines)
        digest = self._digest.copy()
        digest.update(data)
        mark = Mark(self._end + len(data), digest.hexdigest())
        os.ftruncate(descriptor, self._end)  # what a crash left half written
        try:
            _write(descriptor, data, place=self._end)
            os.fsync(descriptor)
            if not self._end:
                sync_folder(self.path.parent)  # the name of a new file, too
        except BaseException:
            os.ftruncate(descriptor, self._end)
            raise
        self._end, self._digest, self._stamp = mark.end, digest, _stamp(descriptor)
        self._write_mark_file(mark)
        return start, mark

    def _write_mark_file(self, mark: Mark) -> None:
        """Write a mark to the mark file, in place: an older one does no harm."""
        descriptor = open_or_create(self.mark_path)
        try:
            _write(descriptor, _encode({"mark": str(mark)}), place=0)
        finally:
            os.close(descriptor)

    def read_mark_file(self) -> Mark:
        """Return the mark in the mark file; the beginning if a crash tore it."""
        try:
            line = self.mark_path.read_bytes()
        except FileNotFoundError:
            return BEGINNING
        if not _is_intact(line):
            return BEGINNING
        return Mark.parse(json.loads(line.partition(b" ")[2])["mark"])

    def _whole_lines(self, file: IO[bytes], start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from a position on with their ends, except what a crash tore.

        Only the end of the file can be torn: a disk may write the end of a line without
        its beginning. A broken line before intact ones was damaged.
        """
        size = os.fstat(file.fileno()).st_size
        if start > size:
            raise self._damaged_error(f"ends at byte {size}, and held {start}")
        file.seek(start)
        for line in file:
            if not _is_intact(line):
                if any(_is_intact(later) for later in file):
                    raise self._damaged_error(f"is damaged at byte {start}")
                return
            start += len(line)
            yield start, line

    def _altered_error(self, file: IO[bytes]) -> JournalDamaged:
        """Return the error for a file that was altered, with the position if known."""
        place = 0
        file.seek(0)
        for line in file:
            if not _is_intact(line):
                return self._damaged_error(f"is damaged at byte {place}")
            place += len(line)
        return self._damaged_error("is not the journal that was written here")

    def _damaged_error(self, how: str) -> JournalDamaged:
        return JournalDamaged(
            f"the journal {self.path} {how}; without it people who were forgotten "
            "could come back, so nothing was done: put its newest copy in place, or "
            "run expunge restore --journal to write it from the database"
        )


def _stamp(descriptor: int) -> Stamp:
    """Return which file this is, its length, and when it was last written."""
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _encode(content: dict[str, Any]) -> bytes:
    """Return a line: a checksum, and JSON."""
    text = json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"
    return _checksum(text) + b" " + text


def _checksum(text: bytes) -> bytes:
    """Return the checksum that shows damage to a line."""
    return sha256(text).hexdigest()[:16].encode("ascii")


def _is_intact(line: bytes) -> bool:
    """Return whether a line is as it was written."""
    said, _, text = line.partition(b" ")
    return line.endswith(b"\n") and _checksum(text) == said


def _write(descriptor: int, data: bytes, *, place: int) -> None:
    """Write all of the data at a place."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], place + done)
