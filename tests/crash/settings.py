# SPDX-License-Identifier: Apache-2.0
"""Settings: where a story is told, what strikes there, and what is left of it."""

import copy
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import Server

from .calls import read_calls, recorded
from .client import Job, Line, Memory
from .disk import REBUILT, Disk
from .phases import OF_STEPS
from .processes import Worker
from .story import COMMANDS
from .writer import ASK_AGAIN, ON_WAITING, RIGHTS, WITHOUT_ROWS, Theme

Before = Callable[[Line], object]
# What can come between two requests of one person.
_BETWEEN = (*(ASK_AGAIN,) * 4, *ON_WAITING, "readmit")
EVERYTHING = Theme((*COMMANDS, ASK_AGAIN, ASK_AGAIN), RIGHTS)
OF_PEOPLE = Theme((*_BETWEEN, "add", "refit", "refit"), RIGHTS)
OF_BACKUPS = Theme((*_BETWEEN, "back up", "restore", "restore"), WITHOUT_ROWS)


class Kills:
    """Processes of the client are killed.

    Parameters
    ----------
    server
        Whose databases to use; None stands for SQLite.
    before
        Called in each process of the client before it begins.
    phases
        In which of its phases to strike; if none are given, in those of the next step.
    themes
        Of stories, if they shall be others than usual.

    Attributes
    ----------
    themes
        Of stories: each has one of these.
    """

    themes: Sequence[Theme] = (EVERYTHING, OF_PEOPLE, OF_BACKUPS)

    def __init__(
        self,
        server: Server | None,
        before: Before,
        phases: Sequence[str] = (),
        themes: Sequence[Theme] = (),
    ) -> None:
        self._phases = phases
        self.themes = themes or self.themes
        self._server = server
        self._before = before

    @property
    def database_is_a_file(self) -> bool:
        """Whether the database lies in the registry's folder."""
        return self._server is None

    def database(self) -> str | None:
        """Return the address of an empty database."""
        return None if self._server is None else self._server.database()

    def phases_of(self, how: str) -> Sequence[str]:
        """Return the phases to strike in, where a step of this kind comes next."""
        # PostgreSQL cannot erase, and so that phase is over before it is seen.
        unseen = "" if self._server is None else "erasing"
        return self._phases or [one for one in OF_STEPS[how] if one != unseen]

    @contextmanager
    def started(self, folder: Path, memory: Memory, job: Job) -> Iterator[Worker]:
        """Give a process of the client."""
        del folder
        yield self.worker(memory, job)

    def worker(self, memory: Memory, job: Job) -> Worker:
        """Return a process of the client, prepared as all of them are."""

        def prepared(line: Line) -> None:
            self.prepare(line)
            job(line)

        return Worker(memory, prepared)

    def prepare(self, line: Line) -> None:
        """Do in a process what each one begins with."""
        self._before(line)

    def strike(self, worker: Worker) -> None:
        """Strike at a random moment."""
        worker.kill()

    def mend(self, folder: Path, memory: Memory, chance: random.Random) -> None:
        """Make the next process possible."""

    def look_over(self, folder: Path) -> None:
        """See that a process which ended by itself left what it should."""


class ServerKills(Kills):
    """The database's server is killed, and the client's processes have to notice."""

    def strike(self, worker: Worker) -> None:
        """End the server under the process."""
        assert self._server is not None
        self._server.kill()

    def mend(self, folder: Path, memory: Memory, chance: random.Random) -> None:
        """Start the server again."""
        assert self._server is not None
        self._server.restart()


class PowerLosses(Kills):
    """The client's machine loses its power, and what was not flushed may be lost.

    The database of a server is on another machine, which keeps its power.
    """

    themes = (Theme(_BETWEEN, RIGHTS),)

    @contextmanager
    def started(self, folder: Path, memory: Memory, job: Job) -> Iterator[Worker]:
        """Give a process whose calls are recorded."""
        self._disk, self._known = Disk(folder), copy.deepcopy(memory)
        waiting, go = os.pipe()

        def when_told(line: Line) -> None:
            os.read(waiting, 1)
            job(line)

        worker = self.worker(memory, when_told)
        with tempfile.NamedTemporaryFile("r", prefix="expunge-power-") as log:
            with recorded(worker.pid, Path(log.name)):
                os.write(go, b"\n")
                yield worker
            self._calls = list(read_calls(log))
        os.close(waiting)
        os.close(go)

    def mend(self, folder: Path, memory: Memory, chance: random.Random) -> None:
        """Put the folder as the power cut may have left it."""
        calls = self._calls[: self._cut(chance)]
        for call in calls:
            self._disk.see(call)
        share = chance.choice((0.0, 0.5, 1.0))
        names = chance.randint(0, self._disk.n_pending())
        left = self._disk.after(names, lambda: chance.random() < share)
        for path in folder.rglob("*"):
            if path.is_file():
                path.unlink()
        for path, content in left.items():
            (folder / path).write_bytes(content)
            (folder / path).chmod(0o600)
        # The client knows what it was told by then, and no more.
        self._known.complaints = memory.complaints
        memory.become(self._known)
        for call in calls:
            if call.is_word():
                memory.hear(*json.loads(call.data(1)))

    def _cut(self, chance: random.Random) -> int:
        """Return how many of the calls happened before the power was cut.

        Where the folder holds everything that may be any number, best one that leaves
        something in doubt, each file in its turn. But a server remembers what it was
        told last.
        """
        if self._server is not None or not self._calls:
            return len(self._calls)
        disk, doubts = copy.deepcopy(self._disk), defaultdict(list)
        for i, call in enumerate(self._calls, start=1):
            disk.see(call)
            doubts[disk.doubtful()].append(i)
        sure = doubts.pop(frozenset(), [])
        return chance.choice(chance.choice(sorted(doubts.values()) or [sure]))

    def look_over(self, folder: Path) -> None:
        """See that the recorded calls explain every byte of the folder."""
        for call in self._calls:
            self._disk.see(call)
        if self._disk.after(None, lambda: True) != contents(folder):
            raise RuntimeError("the calls do not explain what the folder holds")


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files of a folder and what is in them, shared memory left out."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(REBUILT)
    }
