# SPDX-License-Identifier: Apache-2.0
"""Log: every promise, on disk before it counts, and never taken back.

A private file beside the database with one JSON line after another. Each has a
checksum, and is on disk before what it records is promised to anybody: requests as they
are accepted, with the tags of the people; statements in the ledger, with the signatures
of receipts; releases that left. The database is brought up from it, so that nobody who
was forgotten comes back with a backup. The tags in it are personal data, kept for this
purpose: they may be destroyed with the last backup that still holds the people.

    with log.record(line) as tx:   lock -> catch up -> the block writes
                                   -> append and flush the line -> commit -> unlock

The lock is held until the commit, so the database lacks at most the last line. One row
of the database, in the table ``log``, says how far it is: the number of the log, the
position in it, the SHA-256 of all bytes before, and the turn. A writer moves that
row from where it was seen, or writes nothing at all:

- the *position* moves with every line: two processes never write after the same line;
- the *turn*, a random word, is replaced by each transaction of a worker: a worker that
  lost its lock while another took over finds it replaced.

What the block writes must follow from the line: if the process is killed between the
line and the commit, the next one writes it from the line (``apply``). A line of a
worker has the turn that it was written in, so it is taken in only by the database that
the worker saw. More than one line, or a line of another turn, means that the database
is older than the log: it was put back from a backup, and needs a restore.

A log that lost its end would bring people back unnoticed. Beside the row, a small mark
file in the folder says how long it was; a log that is shorter than either, or differs
before, is refused. Nothing is ever cut but a line at the end that a crash tore.

A damaged log, or a long one, can be replaced (``replace``). The new one is the next
by number, which its first line says; it waits beside the old one as a draft until the
database has its row, and takes its place then.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Self, TypeAlias

from sqlalchemy import Connection, bindparam, insert, select, update

from ..core.values import Private
from ..disk import (
    destroy,
    erase_replaced,
    hidden_path,
    open_or_create,
    sync_folder,
    write_new_file,
)
from ..exceptions import Busy, JournalDamaged, NeedsRestore, StoreFailed
from ..promise.noise import SECRET_BYTES, random_bytes
from .storage.engine import PATIENCE, Store, translate_errors
from .storage.lock import lock_file
from .storage.tables import log as log_table
from .storage.tables import overtaken_error

STATEMENT, BEGINS, SNAPSHOT, TURN = "entries", "begins", "snapshot", "turn"
WORD_BYTES = 8  # of the random word that tells two logs of one number apart
FIRST_BYTES = 256  # more than the first line of a log that replaced another has
PIECE = 1 << 20

Content: TypeAlias = dict[str, Any]
"""What a line says."""
Line: TypeAlias = tuple[int, Content]
"""Where a line ends, and its content."""
Stamp: TypeAlias = tuple[int, int, int]
Apply: TypeAlias = Callable[[Connection, Content], None]


class Mark(NamedTuple):
    """A position in a log, and the SHA-256 of all bytes before it.

    ``number`` says which log, of those that replaced others: only marks of one log can
    be compared by their positions.
    """

    number: int = 0
    end: int = 0
    digest: str = sha256().hexdigest()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a mark from its text."""
        number, end, digest = text.split()
        return cls(int(number), int(end), digest)

    def __str__(self) -> str:
        # Of one length, whatever the numbers: it is written in place.
        return f"{self.number:06d} {self.end:020d} {self.digest}"

    def to_row(self) -> dict[str, object]:
        """Return the mark as columns of the database."""
        return {"number": self.number, "position": self.end, "digest": self.digest}


BEGINNING = Mark()


class Position(NamedTuple):
    """How far a database is: its row of the table ``log``."""

    mark: Mark
    turn: str


class _Seen(NamedTuple):
    """What this process compared of a file, and which file it was then."""

    number: int = 0
    end: int = 0
    digest: Any = sha256()  # never updated, but copied
    stamp: Stamp = (0, 0, 0)

    @property
    def mark(self) -> Mark:
        return Mark(self.number, self.end, self.digest.hexdigest())

    def after(self, data: bytes) -> "_Seen":
        """Return where the file ends after more bytes."""
        digest = self.digest.copy()
        digest.update(data)
        return self._replace(end=self.end + len(data), digest=digest)


_POSITION = select(
    log_table.c.number, log_table.c.position, log_table.c.digest, log_table.c.turn
)
_LOCKED = _POSITION.with_for_update()
_IN_TURN = log_table.c.turn == bindparam("was_turn")
_MOVE = update(log_table).where(log_table.c.position == bindparam("was_at"))
_MOVE_IN_TURN = _MOVE.where(_IN_TURN)
_TAKE_TURN = update(log_table).where(_IN_TURN).values(turn=bindparam("next_turn"))


def write_beginning(connection: Connection) -> None:
    """Write the row of a database that is new; keep one that is there."""
    if connection.execute(_POSITION).first() is None:
        row = BEGINNING.to_row() | {"turn": _new_turn()}
        connection.execute(insert(log_table), row)


def read_position(connection: Connection, *, lock: bool = False) -> Position:
    """Return how far a database is; ``lock`` keeps others from moving it."""
    row = connection.execute(_LOCKED if lock else _POSITION).first()
    if row is None:
        raise StoreFailed(
            "the database does not say how far in the journal it is; put it back from "
            "a backup and run expunge restore"
        )
    return Position(Mark(row.number, row.position, row.digest), row.turn)


class Log(Private):
    """The log of a registry: write lines, and read them from a position on.

    Parameters
    ----------
    path
        Of the file.
    mark_path
        Of the file that says how long it was.
    store
        The database.
    apply
        Writes to the database what a line says.

    Attributes
    ----------
    turn
        Of this process, while it works.
    """

    __slots__ = (
        "_apply",
        "_begun",
        "_seen",
        "_store",
        "_threads",
        "mark_path",
        "path",
        "turn",
    )

    def __init__(
        self, path: Path, mark_path: Path, store: Store, *, apply: Apply
    ) -> None:
        self.path, self.mark_path = path, mark_path
        self._store, self._apply = store, apply
        self._threads = RLock()
        self._seen = _Seen()
        self._begun = Position(BEGINNING, "")
        self.turn = ""

    # Writing.

    @contextmanager
    def record(
        self,
        line: Content,
        *,
        in_turn: bool = False,
        by: Apply | None = None,
        ahead: Callable[[Iterable[Content]], None] | None = None,
    ) -> Iterator[Connection]:
        """Write a line and what the block writes, both or neither.

        Parameters
        ----------
        line
            The block may fill it in. If it stays empty none is written.
        in_turn
            Whether this is the worker: it is refused if another process took over.
        by
            Writes what the line says, where this is known better than from the line.
        ahead
            Given if the line counts by itself while a backup is being restored, which
            takes it in. It is called with the lines that the database lacks, and may
            refuse. The block must not write then.
        """
        turn = _new_turn() if in_turn else ""
        with self._open_alone() as descriptor:
            while True:
                with self._store.write() as connection:
                    # In turn nobody takes over until the commit.
                    before = read_position(connection, lock=in_turn)
                    if in_turn:
                        self._require_own(before)
                    try:
                        missing, seen = self._missing(descriptor, before)
                    except NeedsRestore:
                        if ahead is None:
                            raise
                        seen = self._end_ahead(descriptor, before, check=ahead)
                        yield connection
                        data = encode_line(line)
                        self._append(descriptor, data, last=seen.after(data))
                        return
                    if missing:
                        # Alone: whatever fails afterwards does not take it back.
                        self._take_in(connection, before, missing=missing, seen=seen)
                        continue
                    yield connection
                    if line and in_turn:
                        line[TURN] = before.turn
                    if line:
                        (by or self._apply)(connection, line)
                    if line or in_turn:
                        data = encode_line(line) if line else b""
                        last = seen.after(data)
                        self._move(connection, before, after=last.mark, turn=turn)
                        if line:
                            self._append(descriptor, data, last=last)
                break
        if in_turn:
            self.turn = turn

    @contextmanager
    def batch(self) -> Iterator[Connection]:
        """Give the worker a transaction without a line; refuse it if overtaken.

        Others may write lines meanwhile.
        """
        turn = _new_turn()
        with self._store.write() as connection:
            yield connection
            self._take_turn(connection, turn)
        self.turn = turn

    def begin_turn(self) -> None:
        """Read how far the database is, and its turn, with the worker's lock held."""
        with self._store.read(snapshot=False) as connection:
            self._begun = read_position(connection)
        self.turn = self._begun.turn

    def catch_up(self) -> None:
        """Give the database what it lacks, as the worker: at most one line."""
        self.require(self._begun.mark)
        # Lines that others wrote since are in the database, too.
        size = self.path.stat().st_size if self.path.exists() else 0
        if self._begun.mark.end == size:
            return
        with self._open_alone() as descriptor, self._store.write() as connection:
            before = read_position(connection, lock=True)
            self._require_own(before)
            missing, seen = self._missing(descriptor, before)
            turn = self._take_in(connection, before, missing=missing, seen=seen)
        self.turn = turn

    @contextmanager
    def restore(
        self, line: Content, *, apply: Apply, by: Apply
    ) -> Iterator[Connection]:
        """Write all lines that a database put back from a backup lacks, and one more.

        The one loop of catching up, without its limit. ``apply`` leaves out what the
        database has: one that knows an earlier log does not say how far it is in this.
        The block is run after it. The line is of a turn that no database has: if the
        process is killed before the commit, the restore must be run again.
        """
        with self._open_alone() as descriptor, self._store.write() as connection:
            before = read_position(connection, lock=True)
            self._require_own(before)
            missing, seen = self._missing(descriptor, before, restoring=True)
            for one in missing:
                apply(connection, one)
            yield connection
            line[TURN] = turn = _new_turn()
            by(connection, line)
            data = encode_line(line)
            last = seen.after(data)
            self._move(connection, before, after=last.mark, turn=turn)
            self._append(descriptor, data, last=last)
        self.turn = turn

    def _take_in(
        self,
        connection: Connection,
        before: Position,
        *,
        missing: Sequence[Content],
        seen: _Seen,
    ) -> str:
        """Give the database what it lacks; return the turn that it has then."""
        if not missing:
            return before.turn
        # The worker whose line it is must not go on: it believes that it failed.
        turn = _new_turn() if any(TURN in one for one in missing) else ""
        for one in missing:
            self._apply(connection, one)
        self._move(connection, before, after=seen.mark, turn=turn)
        return turn or before.turn

    def require_turn(self) -> None:
        """Refuse to go on if another process took over."""
        if self.current_turn() != self.turn:
            raise overtaken_error()

    def current_turn(self) -> str:
        """Return the turn in the database; a worker changes it whenever it writes."""
        with self._store.read(snapshot=False) as connection:
            return read_position(connection).turn

    def _require_own(self, known: Position) -> None:
        """Refuse to write if another process took over."""
        if known.turn != self.turn:
            raise overtaken_error()

    def _take_turn(self, connection: Connection, turn: str) -> None:
        turns = {"was_turn": self.turn, "next_turn": turn}
        if connection.execute(_TAKE_TURN, turns).rowcount != 1:
            raise overtaken_error()

    def _move(
        self, connection: Connection, before: Position, *, after: Mark, turn: str
    ) -> None:
        """Move the row from where it was seen, last in a transaction.

        With a new ``turn`` only if it has the one that was seen. Before a line is
        appended: who must not write leaves nothing in the file.
        """
        row: dict[str, object] = {"was_at": before.mark.end, **after.to_row()}
        if turn:
            row |= {"was_turn": before.turn, "turn": turn}
        move = _MOVE_IN_TURN if turn else _MOVE
        if connection.execute(move, row).rowcount != 1:
            raise overtaken_error()

    def _end_ahead(
        self,
        descriptor: int,
        before: Position,
        *,
        check: Callable[[Iterable[Content]], None],
    ) -> _Seen:
        """Return where the log ends, of which the database lacks more than a line.

        Refuses a log that was replaced.
        """
        lines, seen = self._missing(descriptor, before, restoring=True)
        self._require_number(before.mark, seen.number)
        check(lines)
        return seen

    def _append(self, descriptor: int, data: bytes, *, last: _Seen) -> None:
        """Append a line, and flush it."""
        start = last.end - len(data)
        os.ftruncate(descriptor, start)  # what a crash left half written
        try:
            _write(descriptor, data, place=start)
            os.fsync(descriptor)
            if not start:
                sync_folder(self.path.parent)  # the name of a new file, too
        except BaseException:
            os.ftruncate(descriptor, start)
            raise
        self._seen = last._replace(stamp=_stamp(descriptor))
        self._write_mark_file(self._seen.mark)

    @contextmanager
    def _open_alone(self) -> Iterator[int]:
        """Open the file while nobody else writes."""
        with translate_errors():
            self.settle_draft()
            if not self.path.exists():
                with self._store.read(snapshot=False) as connection:
                    self._require_none(read_position(connection).mark)
            if not self._threads.acquire(timeout=PATIENCE):
                raise Busy(
                    "another thread is writing to the journal; wait for it, and run "
                    "the command again"
                )
            try:
                with lock_file(self.path) as descriptor:
                    yield descriptor
            finally:
                self._threads.release()

    # Reading and comparing.

    def require(self, *marks: Mark) -> None:
        """Refuse a log that does not hold everything up to each of the marks.

        The mark in the mark file is always one of them. Marks of an earlier log say
        nothing of a later one.
        """
        with self._open_to_read() as descriptor:
            if descriptor is None:
                self._require_none(*marks)
            else:
                self._compare(descriptor, {*marks, self.read_mark_file()})

    def require_newest(self, known: Position) -> None:
        """Refuse a damaged log, and a database that is older than a crash leaves it."""
        with self._open_to_read() as descriptor:
            if descriptor is None:
                self._require_none(known.mark)
                return
            seen = self._compare(descriptor, {known.mark, self.read_mark_file()})
            self._require_number(known.mark, seen.number)
            _require_newest(known, self._read(descriptor, known.mark.end))

    def lines_after_backup(self, known: Position) -> list[Content]:
        """Return the lines that a database lacks that was put back from a backup.

        A position in an earlier log is none in this one: then all lines.
        """
        same = known.mark.number == self.read_number()
        return [line for _, line in self.read(known.mark.end if same else 0)]

    def read(self, start: int = 0) -> Iterator[Line]:
        """Yield the lines from a position on, each with its end; skip a torn end."""
        with self._open_to_read() as descriptor:
            if descriptor is None:
                self._require_none(Mark(0, start, ""))
            else:
                yield from self._read(descriptor, start)

    @contextmanager
    def _open_to_read(self) -> Iterator[int | None]:
        """Open the file, if there is one."""
        with translate_errors():
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                yield None
                return
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def read_intact(self) -> list[Content]:
        """Return every intact line, whatever became of the others."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.splitlines(keepends=True)
        return [_decode(line) for line in lines if _is_intact(line)]

    def read_number(self) -> int:
        """Return the number of the log; 0 if there is none."""
        try:
            with translate_errors(), self.path.open("rb") as file:
                return _number_of(file.read(FIRST_BYTES))
        except FileNotFoundError:
            return 0

    def read_mark_file(self) -> Mark:
        """Return the mark in the mark file; the beginning if a crash tore it."""
        try:
            line = self.mark_path.read_bytes()
        except FileNotFoundError:
            return BEGINNING
        return Mark.parse(_decode(line)["mark"]) if _is_intact(line) else BEGINNING

    def _missing(
        self, descriptor: int, before: Position, *, restoring: bool = False
    ) -> tuple[list[Content], _Seen]:
        """Return the lines that the database lacks, and where the last one ends.

        What this process saw itself is not enough: others may have written more, and an
        older copy put in place of that.
        """
        marks = {self._seen.mark, before.mark, self.read_mark_file()}
        seen = self._compare(descriptor, marks)
        start = before.mark.end
        if before.mark.number < seen.number and restoring:
            start = 0  # in an earlier log it does not say how far it is in this one
        else:
            self._require_number(before.mark, seen.number)
        lines = list(self._read(descriptor, start))
        if not restoring:
            _require_newest(before, lines)
        end = lines[-1][0] if lines else start
        begin = seen if seen.end <= end else _Seen(seen.number)
        digest = begin.digest.copy()
        _read_into(digest, descriptor, start=begin.end, end=end)
        self._seen = _Seen(seen.number, end, digest, seen.stamp)
        return [line for _, line in lines], self._seen

    def _compare(self, descriptor: int, marks: Collection[Mark]) -> _Seen:
        """Refuse a file of an earlier number than a mark, or changed before one.

        Bytes that were compared before are not compared again while the file only
        grows.
        """
        stamp = _stamp(descriptor)
        number = _number_of(os.pread(descriptor, FIRST_BYTES, 0))
        if max(marks).number > number:
            raise self._altered_error(descriptor)
        wanted = sorted(mark for mark in marks if mark.number == number)
        if wanted and stamp[1] < wanted[-1].end:
            raise self._damaged_error(
                f"ends at byte {stamp[1]}, and held {wanted[-1].end}"
            )
        seen = self._seen
        known = seen.number == number and _has_only_grown(stamp, seen.stamp)
        if not known or (wanted and wanted[0].end < seen.end):
            seen = _Seen()
        end, digest = seen.end, seen.digest.copy()
        for mark in wanted:
            _read_into(digest, descriptor, start=end, end=mark.end)
            end = mark.end
            if digest.hexdigest() != mark.digest:
                raise self._altered_error(descriptor)
        self._seen = _Seen(number, end, digest, stamp)
        return self._seen

    def _read(self, descriptor: int, start: int) -> Iterator[Line]:
        """Yield the lines of an open file, except one that a crash tore at its end."""
        size = os.fstat(descriptor).st_size
        if start == size:
            return
        if start > size:
            raise self._damaged_error(f"ends at byte {size}, and held {start}")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            file.seek(start)
            for line in file:
                if not _is_intact(line):
                    if start + len(line) < size:
                        raise self._damaged_error(f"is damaged at byte {start}")
                    return
                start += len(line)
                yield start, _decode(line)

    def _require_none(self, *marks: Mark) -> None:
        """Refuse a missing file if one was known up to a mark."""
        last = max(self._seen.mark, self.read_mark_file(), *marks)
        if last > BEGINNING:
            raise self._damaged_error(f"is missing, and held {last.end} bytes")

    def _require_number(self, known: Mark, number: int) -> None:
        """Refuse a database that does not know that the log was replaced."""
        if known.number < number:
            raise NeedsRestore(
                f"the journal {self.path} was rebuilt and the database does not know "
                "it: the database was put back from a backup; run expunge restore "
                "BACKUP, so that nobody comes back with it"
            )

    def _altered_error(self, descriptor: int) -> JournalDamaged:
        """Return the error for a file that was altered, with the position if known."""
        place = 0
        with os.fdopen(os.dup(descriptor), "rb") as file:
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

    # Replacing.

    @property
    def draft(self) -> Path:
        """Where a new log waits for its place."""
        return hidden_path(self.path, "next")

    @contextmanager
    def replace(self) -> Iterator[tuple[Connection, Position, list[Content]]]:
        """Begin a new log: give the transaction, how far it was, and a list to fill.

        The lines of the list are those of the new log. It takes its place after the
        commit: until then the old one counts. Nobody can write meanwhile.
        """
        lines: list[Content] = []
        with self._threads, lock_file(self.path):
            with self._store.write() as connection:
                before = read_position(connection, lock=True)
                self._require_own(before)
                yield connection, before, lines
                mark = self._write_draft(lines, number=before.mark.number + 1)
                turn = _new_turn()
                self._move(connection, before, after=mark, turn=turn)
            self._place_draft(mark)
        self.turn = turn

    def _write_draft(self, lines: Sequence[Content], *, number: int) -> Mark:
        """Write and flush the lines of the next log; return its mark."""
        kept = [line for line in lines if BEGINS not in line]
        first = {BEGINS: number, "word": random_bytes(WORD_BYTES).hex()}
        data = b"".join(encode_line(line) for line in [first, *kept])
        destroy(self.draft)
        try:
            # A log on another disk may lie in a folder that is not the owner's.
            write_new_file(self.draft, data, like=self.mark_path.parent)
            sync_folder(self.draft.parent)
        except BaseException:
            destroy(self.draft)
            raise
        return _mark_of(data)

    def _place_draft(self, mark: Mark) -> None:
        """Replace the log by its draft, and flush the mark of that."""
        with erase_replaced(self.path):
            self.draft.replace(self.path)
        self._write_mark_file(mark, flush=True)
        self._seen = _Seen()

    def settle_draft(self) -> bool:
        """Finish what a killed process left of a new log, if the database knows of it.

        Otherwise the draft is destroyed: the log in place still counts. Returns whether
        there was one.
        """
        if not self.draft.exists():
            return False
        with translate_errors(), self._threads, lock_file(self.path):
            try:
                mark = _mark_of(self.draft.read_bytes())
            except FileNotFoundError:
                return True  # another process was at it, and is done
            with self._store.read(snapshot=False) as connection:
                known = read_position(connection).mark
            if mark == known:
                self._place_draft(mark)
            else:
                destroy(self.draft)
        return True

    def _write_mark_file(self, mark: Mark, *, flush: bool = False) -> None:
        """Write a mark to the mark file, in place: an older one does no harm."""
        descriptor = open_or_create(self.mark_path)
        try:
            _write(descriptor, encode_line({"mark": str(mark)}), place=0)
            if flush:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _require_newest(known: Position, lines: Iterable[Line]) -> None:
    """Refuse a database that is older than a crash could leave it."""
    there = [line.get(TURN, known.turn) for _, line in lines]
    if len(there) > 1 or there not in ([], [known.turn]):
        raise NeedsRestore(
            f"the database lacks what the journal has ({len(there)} lines): it was put "
            "back from a backup; run expunge restore BACKUP, so that nobody comes back "
            "with it"
        )


def _new_turn() -> str:
    return random_bytes(SECRET_BYTES).hex()


def _stamp(descriptor: int) -> Stamp:
    """Return which file this is, its length, and when it was last written."""
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _has_only_grown(stamp: Stamp, known: Stamp) -> bool:
    """Return whether a file is the one that was compared, perhaps with more in it."""
    if stamp[0] != known[0] or stamp[1] < known[1]:
        return False
    return stamp[1] > known[1] or stamp[2] == known[2]


def _read_into(digest: Any, descriptor: int, *, start: int, end: int) -> None:
    """Add the bytes of a file from start to end."""
    while start < end:
        data = os.pread(descriptor, min(PIECE, end - start), start)
        if not data:
            return  # it was truncated meanwhile; no digest will match
        digest.update(data)
        start += len(data)


def _number_of(data: bytes) -> int:
    """Return the number of a log that begins with these bytes."""
    line, end, _ = data.partition(b"\n")
    content = _decode(line + end) if _is_intact(line + end) else {}
    return int(content.get(BEGINS, 0))


def _mark_of(data: bytes) -> Mark:
    """Return the mark after the whole of a log."""
    return Mark(_number_of(data), len(data), sha256(data).hexdigest())


def encode_line(content: Content) -> bytes:
    """Return a line: a checksum, and JSON."""
    text = json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"
    return _checksum(text) + b" " + text


def _decode(line: bytes) -> Content:
    """Return the content of an intact line."""
    content: Content = json.loads(line.partition(b" ")[2])
    return content


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
