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
before it, is refused.

A damaged journal can be rebuilt, and is another one then. Its first line gives its
epoch: how often it was rebuilt, with a random word. Marks have an epoch too, and only
marks of one epoch can be compared by length. The rebuilt file waits beside the old one
as a draft until the database has its mark, and takes its place then. If the process is
killed in between, the next one finishes that.

The journal also decides who may add to the ledger. A statement, a line with entries, is
written only if nobody else made one since the writer last looked: a sequence number is
used once, even if two processes both believe that they work alone.

The tags in it are personal data, kept for this purpose: they may be destroyed with the
last backup that still holds the people.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import IO, Any, TypeAlias

from ...core.values import Private
from ...disk import (
    destroy,
    erase_replaced,
    hidden_path,
    open_or_create,
    sync_folder,
    write_new_file,
)
from ...exceptions import Busy, JournalDamaged, NeedsRestore
from ...promise.noise import random_bytes
from .engine import translate_errors
from .lock import lock_file
from .marks import BEGINNING, Digest, Mark

STATEMENT, REBUILT = "entries", "rebuilt"
WORD_BYTES = 8  # of the random word that tells rebuilt journals apart
FIRST_BYTES = 256  # more than the first line of a rebuilt journal has

Stamp: TypeAlias = tuple[int, int, int]
NO_FILE: Stamp = (0, 0, 0)
Line: TypeAlias = tuple[int, dict[str, Any]]
"""Where a line ends, and its content."""
Written: TypeAlias = tuple[int, Mark]
"""Where a written line begins, and the mark after it."""


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

    __slots__ = ("_digest", "_end", "_epoch", "_lock", "_stamp", "mark_path", "path")

    def __init__(self, path: Path, mark_path: Path) -> None:
        self.path = path
        self.mark_path = mark_path
        self._lock = RLock()
        self._forget_file()

    def _forget_file(self) -> None:
        # Up to where this object compared or wrote the file, and which file it was.
        self._epoch, self._end, self._digest, self._stamp = 0, 0, Digest(), NO_FILE

    @property
    def seen(self) -> Mark:
        """The mark up to which this object compared or wrote the file."""
        return Mark(self._epoch, self._end, self._digest.hexdigest())

    @property
    def draft(self) -> Path:
        """Where a rebuilt journal waits for its place."""
        return hidden_path(self.path, "next")

    def require(self, *marks: Mark) -> None:
        """Refuse a journal that does not hold everything up to each of the marks.

        The mark in the mark file is always one of them. Marks of an earlier epoch say
        nothing of a journal that was rebuilt since.
        """
        with translate_errors(), self._lock:
            wanted = {*marks, self.read_mark_file()}
            try:
                with self.path.open("rb") as file:
                    self._compare(file, wanted)
            except FileNotFoundError:
                self._forget_file()
                self._require_none(max(wanted))

    def require_current(self, known: Mark) -> None:
        """Refuse a damaged journal, and a database from before it was rebuilt.

        ``known`` is the mark in the database.
        """
        with self._lock:
            self.require(known)
            self._require_epoch(known)

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
            self._require_none(Mark(0, start, ""))
            return
        with translate_errors(), self.path.open("rb") as file:
            for end, line in self._whole_lines(file, start):
                yield end, _decode(line)

    def read_whole_lines(self) -> list[Line]:
        """Return every intact line, whatever became of the others."""
        found, end = [], 0
        content = self.path.read_bytes() if self.path.exists() else b""
        for line in content.splitlines(keepends=True):
            end += len(line)
            if _is_intact(line):
                found.append((end, _decode(line)))
        return found

    def read_epoch(self) -> int:
        """Return how often the journal was rebuilt; 0 if there is none."""
        try:
            with translate_errors(), self.path.open("rb") as file:
                return _epoch_of(file.read(FIRST_BYTES))
        except FileNotFoundError:
            return 0

    @contextmanager
    def lock_to_rebuild(self) -> Iterator[None]:
        """Keep others from writing, whatever became of the file."""
        with translate_errors(), self._lock, lock_file(self.path):
            yield

    def write_draft(self, lines: Sequence[dict[str, Any]], *, epoch: int) -> Mark:
        """Write and flush these lines as the journal of an epoch; return its mark.

        It counts once the database has the mark. The lock to rebuild is held.
        """
        word = random_bytes(WORD_BYTES).hex()
        kept = [line for line in lines if REBUILT not in line]
        first = {REBUILT: epoch, "word": word}
        data = b"".join(_encode(line) for line in [first, *kept])
        destroy(self.draft)
        try:
            # A journal on another disk may lie in a folder that is not the owner's.
            write_new_file(self.draft, data, like=self.mark_path.parent)
            sync_folder(self.draft.parent)
        except BaseException:
            destroy(self.draft)
            raise
        return _mark_of(data)

    def place_draft(self, mark: Mark) -> None:
        """Replace the journal by its draft, and flush the mark of that.

        The lock to rebuild is held.
        """
        with erase_replaced(self.path):
            self.draft.replace(self.path)
        self._write_mark_file(mark, flush=True)
        self._forget_file()

    def settle_draft(self, read_known: ReadKnown) -> bool:
        """Finish what a killed process left of a rebuild, if the database knows of it.

        Otherwise the draft is destroyed: the journal in place still counts. Returns
        whether there was one.
        """
        if not self.draft.exists():
            return False
        with self.lock_to_rebuild():
            try:
                mark = _mark_of(self.draft.read_bytes())
            except FileNotFoundError:
                return True  # another process was rebuilding it, and is done
            if mark == read_known():
                self.place_draft(mark)
            else:
                destroy(self.draft)
        return True

    def _compare(self, file: IO[bytes], marks: Collection[Mark]) -> None:
        """Refuse a file of an earlier epoch than a mark, or changed before one.

        Bytes that were compared before are not compared again while the file only
        grows.
        """
        stamp = _stamp(file.fileno())
        epoch = _epoch_of(os.pread(file.fileno(), FIRST_BYTES, 0))
        if max(marks).epoch > epoch:
            raise self._altered_error(file)
        wanted = sorted(mark for mark in marks if mark.epoch == epoch)
        first, last = (wanted[0].end, wanted[-1].end) if wanted else (0, 0)
        if stamp[1] < last:
            raise self._damaged_error(f"ends at byte {stamp[1]}, and held {last}")
        place, digest = 0, Digest()
        if epoch == self._epoch and self._has_only_grown(stamp) and first >= self._end:
            place, digest = self._end, self._digest.copy()
        for mark in wanted:
            digest.read(file.fileno(), place, end=mark.end)
            place = mark.end
            if digest.hexdigest() != mark.digest:
                raise self._altered_error(file)
        self._epoch, self._end, self._digest = epoch, place, digest
        self._stamp = stamp

    def _has_only_grown(self, stamp: Stamp) -> bool:
        """Return whether a file is the compared one, perhaps with more in it."""
        (number, size, time), (known, known_size, known_time) = stamp, self._stamp
        if number != known or size < known_size:
            return False
        return size > known_size or time == known_time

    def _require_none(self, mark: Mark) -> None:
        """Refuse a missing file if one was known up to a mark."""
        if mark > BEGINNING:
            raise self._damaged_error(f"is missing, and held {mark.end} bytes")

    def _require_epoch(self, known: Mark) -> None:
        """Refuse a database that does not know that the journal was rebuilt."""
        if known.epoch < self._epoch:
            raise NeedsRestore(
                f"the journal {self.path} was rebuilt and the database does not know "
                "it: the database was put back from a backup; run expunge restore "
                "BACKUP, so that nobody comes back with it"
            )

    @contextmanager
    def _open_alone(self, read_known: ReadKnown) -> Iterator[int]:
        """Lock the file, compare it with every mark, and read what others wrote since.

        What this process saw itself is not enough: others may have written more, and an
        older copy put in place of that.
        """
        with translate_errors(), self._lock:
            self.settle_draft(read_known)
            own = self.seen
            if not self.path.exists():
                self._require_none(max(own, read_known(), self.read_mark_file()))
            with lock_file(self.path) as descriptor:
                known = read_known()
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    self._compare(file, {own, known, self.read_mark_file()})
                    self._require_epoch(known)
                    # Together, or an interrupt in between would look like damage.
                    end, digest = self._end, self._digest.copy()
                    for _, line in self._whole_lines(file, self._end):
                        digest.update(line)
                        end += len(line)
                    self._end, self._digest = end, digest
                yield descriptor

    def _write(self, descriptor: int, lines: Sequence[dict[str, Any]]) -> Written:
        """Write lines after the last intact one, and the new mark."""
        start, data = self._end, b"".join(_encode(line) for line in lines)
        digest = self._digest.copy()
        digest.update(data)
        mark = Mark(self._epoch, self._end + len(data), digest.hexdigest())
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

    def _write_mark_file(self, mark: Mark, *, flush: bool = False) -> None:
        """Write a mark to the mark file, in place: an older one does no harm."""
        descriptor = open_or_create(self.mark_path)
        try:
            _write(descriptor, _encode({"mark": str(mark)}), place=0)
            if flush:
                os.fsync(descriptor)
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
        return Mark.parse(_decode(line)["mark"])

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


def _epoch_of(data: bytes) -> int:
    """Return the epoch of a journal that begins with these bytes."""
    line, end, _ = data.partition(b"\n")
    content = _decode(line + end) if _is_intact(line + end) else {}
    return int(content.get(REBUILT, 0))


def _mark_of(data: bytes) -> Mark:
    """Return the mark after the whole of a journal."""
    digest = Digest()
    digest.update(data)
    return Mark(_epoch_of(data), len(data), digest.hexdigest())


def _decode(line: bytes) -> dict[str, Any]:
    """Return the content of an intact line."""
    content: dict[str, Any] = json.loads(line.partition(b" ")[2])
    return content


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
