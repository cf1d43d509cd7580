# SPDX-License-Identifier: Apache-2.0
"""The log by itself: lines, torn ends, what a database knows of it, and who may write.

Its database has a table ``notes`` here, into which ``apply`` writes what lines say.
"""

import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from expunge.exceptions import Busy, JournalDamaged, NeedsRestore, StoreFailed
from expunge.registry.log import (
    BEGINNING,
    Content,
    Log,
    Mark,
    Position,
    encode_line,
    read_position,
    write_beginning,
)
from expunge.registry.storage import Store, create_tables, sqlite_engine

PROGRAM = """
import sys
from pathlib import Path
from tests.test_log import log_in
log = log_in(Path(sys.argv[1]))
for n in range(40):
    with log.record({"note": [sys.argv[2], n], "pad": "x" * 997 * (n % 7)}):
        pass
"""


class Killed(BaseException):
    """The process is gone."""


def apply(connection: Connection, line: Content) -> None:
    if "note" in line:
        who, n = line["note"]
        connection.execute(
            text("INSERT INTO notes VALUES (:who, :n)"), {"who": who, "n": n}
        )


def log_in(folder: Path) -> Log:
    """Return the log in a folder, as a process has it that begins."""
    store = Store(sqlite_engine(folder / "db"))
    return Log(folder / "log", folder / "log.mark", store, apply=apply)


def note(log: Log, n: int, who: str = "", **options: Any) -> Mark:
    """Write a line; return the mark after it."""
    with log.record({"note": [who, n]}, **options):
        pass
    return known(log).mark


def known(log: Log) -> Position:
    with log._store.read() as connection:
        return read_position(connection)


def lines_of(log: Log, start: int = 0) -> list[int]:
    return [line["note"][1] for _, line in log.read(start)]


def notes_of(log: Log) -> list[int]:
    """Return what the database has taken in."""
    with log._store.read() as connection:
        return [*connection.scalars(text("SELECT n FROM notes ORDER BY n"))]


def kill_after_append(log: Log, n: int, *, in_turn: bool = False) -> None:
    """Write a line of which the transaction is never committed."""

    def die(connection: Connection, line: Content) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "_write_mark_file", lambda *_: die(*_))
        with pytest.raises(Killed):
            note(log, n, in_turn=in_turn)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = log_in(tmp_path)
    create_tables(log._store)
    with log._store.write() as connection:
        write_beginning(connection)
        connection.execute(text("CREATE TABLE notes (who TEXT, n INTEGER)"))
    yield log
    log._store.close()


class TestLines:
    def test_come_back_from_any_position(self, log: Log) -> None:
        ends = [0, *(note(log, n).end for n in range(4))]
        for first, end in enumerate(ends):
            assert lines_of(log, end) == [*range(first, 4)]
        assert [end for end, _ in log.read()] == ends[1:]
        assert notes_of(log) == [0, 1, 2, 3]
        for path in (log.path, log.mark_path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_that_were_never_written_are_none(self, log: Log) -> None:
        assert lines_of(log) == []
        log.require(BEGINNING)
        log.require_newest(known(log))

    def test_stay_empty_where_the_block_has_nothing_to_say(self, log: Log) -> None:
        with log.record({}) as connection:
            apply(connection, {"note": ["", 7]})
        assert lines_of(log) == [] and notes_of(log) == [7]

    @pytest.mark.parametrize("lost", [1, 2, 20, 5000])
    def test_torn_by_a_crash_are_left_out_and_overwritten(
        self, log: Log, lost: int
    ) -> None:
        note(log, 0)
        with log.path.open("ab") as file:
            file.write(encode_line({"note": ["x" * 9000, 5]})[:-lost])
        log.require_newest(known(log))
        assert lines_of(log) == [0]
        note(log, 1)
        assert lines_of(log) == notes_of(log) == [0, 1]

    @pytest.mark.parametrize("after", [b"x\n", b"\0" * 10])
    def test_damaged_before_the_last_are_never_cut(
        self, log: Log, after: bytes
    ) -> None:
        note(log, 0)
        whole = log.path.read_bytes() + b"no line of a log\n" + after
        log.path.write_bytes(whole)
        for write in (lambda: note(log, 1), lambda: log.require_newest(known(log))):
            with pytest.raises(JournalDamaged, match="is damaged"):
                write()
        assert log.path.read_bytes() == whole

    def test_flipped_anywhere_are_noticed(self, log: Log, tmp_path: Path) -> None:
        note(log, 0)
        note(log, 1)
        content = log.path.read_bytes()
        for place in range(len(content) - 1):
            flipped = bytes([content[place] ^ 1])
            log.path.write_bytes(content[:place] + flipped + content[place + 1 :])
            with pytest.raises(JournalDamaged, match="newest copy"):
                note(log_in(tmp_path), 2)
        log.path.write_bytes(content)
        note(log, 2)

    def test_of_processes_at_once_do_not_mix(self, log: Log, tmp_path: Path) -> None:
        started = [
            subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path, who])
            for who in "ab"
        ]
        assert [process.wait() for process in started] == [0, 0]
        lines = [line["note"] for _, line in log.read()]
        for who in "ab":
            assert [n for one, n in lines if one == who] == [*range(40)]
        assert len(notes_of(log)) == 80
        data = log.path.read_bytes()
        assert known(log).mark == Mark(0, len(data), sha256(data).hexdigest())

    def test_are_not_left_half_written_by_a_full_disk(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        note(log, 0)
        before = log.path.read_bytes()
        write, calls = os.pwrite, iter(range(9))

        def half(descriptor: int, data: bytes, place: int) -> int:
            if next(calls):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[: len(data) // 2], place)

        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(StoreFailed, match="make room"):
            note(log, 1)
        monkeypatch.undo()
        assert log.path.read_bytes() == before and notes_of(log) == [0]
        note(log, 2)
        assert lines_of(log) == notes_of(log) == [0, 2]


class TestKilledBetweenLineAndCommit:
    """The database lacks the last line; whoever writes next takes it in."""

    @pytest.mark.parametrize("in_turn", [True, False])
    def test_it_is_taken_in_once(self, log: Log, tmp_path: Path, in_turn: bool) -> None:
        log.begin_turn()
        note(log, 0)
        kill_after_append(log, 1, in_turn=in_turn)
        assert (lines_of(log), notes_of(log)) == ([0, 1], [0])
        other = log_in(tmp_path)
        other.require_newest(known(other))
        other.begin_turn()
        note(other, 2)
        other.begin_turn()
        other.catch_up()
        assert lines_of(other) == notes_of(other) == [0, 1, 2]

    def test_catching_up_is_enough(self, log: Log, tmp_path: Path) -> None:
        kill_after_append(log, 0)
        log.begin_turn()
        log.catch_up()
        assert notes_of(log) == [0]
        assert known(log).mark.end == log.path.stat().st_size

    def test_a_worker_never_goes_on_after_its_own(self, log: Log) -> None:
        """What it is about to say may follow from what it believes it said."""
        log.begin_turn()
        kill_after_append(log, 0, in_turn=True)
        with pytest.raises(Busy, match="another process took over"):
            note(log, 1, in_turn=True)
        log.begin_turn()
        log.catch_up()
        note(log, 1, in_turn=True)
        assert lines_of(log) == notes_of(log) == [0, 1]


class TestAnOlderDatabase:
    """It was put back from a backup, and lacks more than a crash can explain."""

    def older(self, log: Log, tmp_path: Path) -> Log:
        """Return the log over a database from now on, which others leave behind."""
        log._store.erase_deleted()
        (tmp_path / "older").write_bytes((tmp_path / "db").read_bytes())
        store = Store(sqlite_engine(tmp_path / "older"))
        return Log(log.path, log.mark_path, store, apply=apply)

    def test_that_lacks_two_lines_is_refused(self, log: Log, tmp_path: Path) -> None:
        note(log, 0)
        older = self.older(log, tmp_path)
        note(log, 1)
        older.require_newest(known(older))  # a crash looks the same
        note(log, 2)
        before = log.path.read_bytes()
        for act in (lambda: older.require_newest(known(older)), lambda: note(older, 9)):
            with pytest.raises(NeedsRestore, match="put back from a backup"):
                act()
        assert log.path.read_bytes() == before and notes_of(older) == [0]

    def test_of_another_turn_is_refused(self, log: Log, tmp_path: Path) -> None:
        """It lacks one line, and what a worker wrote before that without a line."""
        log.begin_turn()
        older = self.older(log, tmp_path)
        with log.batch():
            pass
        note(log, 0, in_turn=True)
        for act in (lambda: older.require_newest(known(older)), lambda: note(older, 9)):
            with pytest.raises(NeedsRestore, match="put back from a backup"):
                act()

    def test_is_restored_by_the_same_loop(self, log: Log, tmp_path: Path) -> None:
        note(log, 0)
        older = self.older(log, tmp_path)
        for n in (1, 2, 3):
            note(log, n)
        older.begin_turn()
        line: Content = {"note": ["", 4]}
        with older.restore(line, apply=apply, by=apply):
            pass
        assert notes_of(older) == lines_of(log) == [0, 1, 2, 3, 4]
        with pytest.raises(NeedsRestore):
            log.require_newest(known(log))


class TestTurns:
    def test_a_worker_that_was_overtaken_writes_nothing(
        self, log: Log, tmp_path: Path
    ) -> None:
        other = log_in(tmp_path)
        log.begin_turn()
        other.begin_turn()
        note(other, 0, in_turn=True)
        before = log.path.read_bytes()
        with pytest.raises(Busy, match="another process took over"):
            note(log, 1, in_turn=True)
        with pytest.raises(Busy, match="another process took over"), log.batch() as tx:
            apply(tx, {"note": ["", 1]})
        assert log.path.read_bytes() == before and notes_of(log) == [0]
        note(log, 2)  # any process may, at any moment
        note(other, 3, in_turn=True)
        assert lines_of(log) == notes_of(log) == [0, 2, 3]


class TestMarks:
    """A log that lost something is not taken for one that never had it."""

    @pytest.fixture
    def five(self, log: Log) -> Log:
        for n in range(5):
            note(log, n, who="x" * 200)
        return log

    def marks(self, log: Log) -> list[Mark]:
        content = log.path.read_bytes()
        ends = [end for end, _ in log.read()]
        return [Mark(0, end, sha256(content[:end]).hexdigest()) for end in ends]

    def test_hold_for_what_was_written(self, five: Log, tmp_path: Path) -> None:
        *earlier, last = self.marks(five)
        assert note(five, 5) > last > earlier[-1]
        assert Mark.parse(str(last)) == last
        for one in (five, log_in(tmp_path)):
            one.require(BEGINNING, *earlier, last)

    @pytest.mark.parametrize("kept", [True, False], ids=["beside it", "elsewhere"])
    def test_notice_every_cut_flip_and_loss(
        self, five: Log, tmp_path: Path, kept: bool
    ) -> None:
        content, mark = five.path.read_bytes(), self.marks(five)[-1]
        marks = () if kept else (mark,)
        if not kept:
            five.mark_path.unlink()
        chance = random.Random(0)
        places = [chance.randrange(len(content)) for _ in range(60)]
        damaged = [content[:place] for place in places]
        damaged += [content[:place] + bytes(len(content) - place) for place in places]
        damaged += [
            content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
            for place in places
        ]
        for one in [b"", *damaged]:
            five.path.write_bytes(one)
            for reader in (five, log_in(tmp_path)):
                with pytest.raises(JournalDamaged):
                    reader.require(*marks)
        five.path.unlink()
        with pytest.raises(JournalDamaged, match="is missing"):
            log_in(tmp_path).require(*marks)
        five.path.write_bytes(content)
        log_in(tmp_path).require(mark)

    def test_refuse_another_log_of_the_same_length(self, five: Log) -> None:
        mark, lines = self.marks(five)[-1], [line for _, line in five.read()]
        five.mark_path.unlink()
        five.path.write_bytes(b"".join(map(encode_line, reversed(lines))))
        assert five.path.stat().st_size == mark.end
        with pytest.raises(JournalDamaged, match="is not the"):
            five.require(mark)

    def test_an_open_one_that_is_cut_or_replaced_is_not_written_to(
        self, five: Log, tmp_path: Path
    ) -> None:
        content = five.path.read_bytes()
        os.truncate(five.path, len(content) - 1)
        with pytest.raises(JournalDamaged, match="ends at byte"):
            note(five, 5)
        other = tmp_path / "other"
        other.write_bytes(content[::-1] + b"more")
        other.replace(five.path)
        with pytest.raises(JournalDamaged, match="is damaged at byte 0"):
            note(five, 5)
        assert five.path.read_bytes() == content[::-1] + b"more"

    def test_a_torn_one_says_nothing(self, five: Log, tmp_path: Path) -> None:
        os.truncate(five.mark_path, 40)
        log_in(tmp_path).require(*self.marks(five))
