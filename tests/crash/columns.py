# SPDX-License-Identifier: Apache-2.0
"""Columns: kinds of strikes on kinds of stores, each told in a process of its own."""

import os
import pickle
import select
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, NoReturn

from tests.postgres import Server
from tests.stores import STORES

from .client import Line
from .damage import DamagedJournals
from .full_disks import FullDisks
from .locks import LostLocks
from .phases import announce
from .restores import LiveCopies
from .sabotage import Sabotage
from .settings import Kills, PowerLosses, ServerKills
from .trial import Course, OneByOne, Tally, Trial, trials
from .windows import ChangedWindows

LENGTH = 8  # bytes before each word of a column that say how long it is


@dataclass(frozen=True)
class Kind:
    """A kind of strike: on what, in which setting and trial, and on which stores."""

    what: str
    setting: type[Kills]
    trial: type[Trial]
    stores: Sequence[str] = STORES


KINDS: Mapping[str, Kind] = {
    "kills": Kind("of a client's processes", Kills, OneByOne),
    "server-kills": Kind(
        "of PostgreSQL, all of it", ServerKills, OneByOne, ("postgresql",)
    ),
    "power-losses": Kind("of the client", PowerLosses, OneByOne),
    "lost-locks": Kind("of two processes at work", Kills, LostLocks),
    "damaged-journals": Kind("after a story", Kills, DamagedJournals),
    "full-disks": Kind("of the client", Kills, FullDisks),
    "changed-windows": Kind(
        "of a service that starts with another window", Kills, ChangedWindows
    ),
    "restores": Kind("from copies of a registry in use", Kills, LiveCopies),
}


@dataclass(frozen=True)
class Column:
    """A kind of strike on one store, with what is broken on purpose, if anything."""

    store: str
    kind: str
    course: Course
    sabotage: Sabotage | None = None

    def __str__(self) -> str:
        return f"{self.store}, {self.kind}"

    @property
    def needs_own_server(self) -> bool:
        """Whether the server is struck, so that nobody else may use it."""
        return KINDS[self.kind].setting is ServerKills

    def tallies(self, server: Server | None) -> Iterator[Tally]:
        """Strike, with databases of this server; yield the tally from time to time."""
        kind, sabotage = KINDS[self.kind], self.sabotage

        def before(line: Line) -> None:
            announce(line)
            if sabotage is not None:
                sabotage.begin(line)

        told = () if sabotage is None else (sabotage.phases, sabotage.themes)
        with ExitStack() as stack:
            if self.needs_own_server:
                server = stack.enter_context(Server(fast=True))
            setting = kind.setting(server, before, *told)

            def begin(seed: int) -> Trial:
                return kind.trial(setting, seed, n_steps=self.course.n_steps)

            yield from trials(begin, self.course)


def tallies(columns: Sequence[Column], n_jobs: int) -> Iterator[tuple[Column, Tally]]:
    """Let some columns run at a time; yield the tally of each as it grows."""
    waiting, running = list(columns), dict[int, Running]()
    with ExitStack() as stack:
        server = None
        if any(
            one.store == "postgresql" for one in columns if not one.needs_own_server
        ):
            # What a killed process wrote is there, flushed or not.
            server = stack.enter_context(Server(fast=True))
        while waiting or running:
            while waiting and len(running) < n_jobs:
                started = Running(waiting.pop(0), server)
                stack.callback(started.end)
                running[started.descriptor] = started
            for descriptor in select.select(list(running), [], [])[0]:
                one = running[descriptor]
                tally = one.tally()
                if tally is None:
                    del running[descriptor]
                else:
                    yield one.column, tally


class Running:
    """A column in a process of its own, and the line from there.

    Parameters
    ----------
    column
        What it does.
    server
        Of PostgreSQL, if there is one.
    """

    def __init__(self, column: Column, server: Server | None) -> None:
        self.column = column
        self.descriptor, speaking = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self.descriptor)
            _report(column, server if column.store == "postgresql" else None, speaking)
        os.close(speaking)

    def tally(self) -> Tally | None:
        """Return the next tally; None when the column has come to its end."""
        length = self._read(LENGTH)
        if not length:
            return None
        said: Tally | str = pickle.loads(self._read(int.from_bytes(length)))
        if isinstance(said, str):
            raise RuntimeError(f"{self.column}:\n{said}")
        return said

    def end(self) -> None:
        """See the process end: its next word, if any, breaks it."""
        os.close(self.descriptor)
        os.waitpid(self._pid, 0)

    def _read(self, length: int) -> bytes:
        """Return so many bytes from the line; fewer if it ends before."""
        data = b""
        while len(data) < length and (
            more := os.read(self.descriptor, length - len(data))
        ):
            data += more
        return data


def _report(column: Column, server: Server | None, descriptor: int) -> NoReturn:
    """Be the process of a column."""
    with os.fdopen(descriptor, "wb") as line:
        said: Tally | str
        try:
            for said in column.tallies(server):
                _write(line, said)
        except BrokenPipeError:
            os._exit(1)
        except BaseException:
            said = traceback.format_exc()
            _write(line, said)
    os._exit(0)


def _write(line: IO[bytes], said: Tally | str) -> None:
    data = pickle.dumps(said)
    line.write(len(data).to_bytes(LENGTH) + data)
    line.flush()
