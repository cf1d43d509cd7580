# SPDX-License-Identifier: Apache-2.0
"""Full disks: there is no room left at some moment, and room again later."""

import errno
import io
import os
import random
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from expunge.exceptions import StoreFailed
from tests.registries import limit_growth

from .client import Line
from .phases import put
from .processes import Life, Worker, judged
from .sending import Telling, send_all
from .trial import FURY, ComparedTrial, begin_story

# So many calls that need room, at the most, before there is none; bytes of a file.
MANY, SIZES = 25, (1, 1 << 10, 1 << 14, 1 << 18)
WAYS = ("calls", "calls", "sizes", "pages")
# How often a process ends when the disk is full; otherwise it goes on.
SHARE_OF_ENDS = 0.3
# Names are made by these, and these flush or replace: they fail at most once in a row.
NAMING, ONCE = ("link", "mkdir"), ("fsync", "replace", "rename")


class Disk:
    """A disk that fills up while a process works.

    Either every call that needs room fails from some moment on, or files may not grow
    beyond a length, or the database may not: SQLite writes by itself.

    Parameters
    ----------
    chance
        Of when, and of how.
    n_left
        How often it may fill up.
    ways
        Of ``WAYS``, how it may.
    """

    def __init__(self, chance: random.Random, n_left: int, ways: Sequence[str]) -> None:
        self._chance = chance
        self._n_left = n_left
        self._ways = ways
        self._is_full = self._is_spared = False
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._real: dict[str, Callable[..., Any]] = {}
        self._arm()

    def install(self) -> None:
        """Have the calls of this process counted, and refused while it is full."""
        for name in (*NAMING, *ONCE, "open", "write", "pwrite", "fdopen"):
            self._real[name] = getattr(os, name)
        for name in (*NAMING, *ONCE):
            put(os, name, partial(self._named, name))
        for name in ("open", "write", "pwrite", "fdopen"):
            put(os, name, getattr(self, f"_{name}"))
        limit_growth(self._may_grow)

    def make_room(self) -> None:
        """Let there be room, until it fills up another time; the process may end."""
        self._is_full = False
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        self._n_left -= 1
        self._arm()
        if self._chance.random() < SHARE_OF_ENDS:
            raise StoreFailed("the disk was full")

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Let there be room meanwhile."""
        self._is_spared = True
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        yield
        self._is_spared = False

    def _arm(self) -> None:
        self._calls_left = self._chance.randint(1, MANY)
        self._way = self._chance.choice(self._ways)

    def _need(self, once: bool = False) -> None:
        """Count a call that needs room; refuse it if there is none."""
        if self._is_spared or not self._n_left:
            return
        self._calls_left -= 1
        fills = self._calls_left == 0
        if fills:
            self._is_full = True
            if self._way == "sizes":
                size = self._chance.randrange(self._chance.choice(SIZES))
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._limits[1]))
        if self._is_full and self._way == "calls" and (fills or not once):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _grow(self, descriptor: int, end: int) -> None:
        """Count a write, if the file has to grow for it."""
        about = os.fstat(descriptor)
        if stat.S_ISREG(about.st_mode) and end > about.st_size:
            self._need()

    def _named(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._need(once=name in ONCE)
        return self._real[name](*arguments, **options)

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path):
            self._need()
        descriptor: int = self._real["open"](path, flags, *rest, **options)
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._grow(
                descriptor,
                os.lseek(descriptor, 0, os.SEEK_CUR) + memoryview(data).nbytes,
            )
        n_written: int = self._real["write"](descriptor, data)
        return n_written

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        self._grow(descriptor, offset + memoryview(data).nbytes)
        n_written: int = self._real["pwrite"](descriptor, data, offset)
        return n_written

    def _fdopen(
        self, descriptor: int, mode: str = "r", buffering: int = -1, **options: Any
    ) -> Any:
        if mode != "wb":
            return self._real["fdopen"](descriptor, mode, buffering, **options)
        raw = _File(descriptor, self._grow)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    def _may_grow(self) -> bool:
        """Return whether SQLite's file may grow in a transaction that begins."""
        if self._way == "pages":
            self._need()
        return not (self._is_full and self._way == "pages") or self._is_spared


class _File(io.FileIO):
    """A file that is written to by its descriptor, which is watched."""

    def __init__(self, descriptor: int, grow: Callable[[int, int], None]) -> None:
        super().__init__(descriptor, "wb")
        self._grow = grow

    def write(self, data: Any) -> int:
        self._grow(self.fileno(), self.tell() + memoryview(data).nbytes)
        return super().write(data)


class FullDisks(ComparedTrial):
    """A trial in which the client's disk fills up."""

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Fill the disk so often at the most; yield what was going on each time."""
        memory = self.memory
        most = min(n_strikes, FURY * len(self.story.steps))
        with begin_story(self._setting, self.story) as folder:
            while not (memory.finished or memory.complaints):
                known = len(memory.refused)
                memory.found = memory.store_failed = ""
                # The last one is a way of SQLite alone.
                ways = WAYS if self._setting.database_is_a_file else WAYS[:-1]
                disk = Disk(random.Random(self._chance.random()), most - known, ways)
                job = partial(self._work, folder, disk)
                self._setting.worker(memory, job).live(None, Worker.kill)
                for phase in memory.refused[known:]:
                    yield Life(True, phase, 0.0)
                if memory.store_failed and len(memory.refused) == known:
                    memory.hear("there was room", memory.store_failed)
            if not memory.complaints:
                memory.complaints += judged(self._complaints, folder)

    def _work(self, folder: Path, disk: Disk, line: Line) -> None:
        telling = Telling(
            self.story,
            folder,
            tolerated=(StoreFailed,),
            after_refusal=disk.make_room,
            spared=disk.spared,
        )
        disk.install()
        send_all(telling, self.memory, line)
