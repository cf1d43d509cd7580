# SPDX-License-Identifier: Apache-2.0
"""Lost locks: two processes work at the same time, and each believes to be alone.

On PostgreSQL the session that holds the lock is ended while its process lives on, or
that of a transaction; beside SQLite the lock's file is deleted.
"""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from expunge.exceptions import Busy, StoreFailed
from expunge.registry import Registry
from tests.postgres import connect
from tests.registries import address_of_database, busy_sessions, delete_lock, wrap

from .backups import back_up, put_database_back
from .client import Line
from .phases import PAUSED, dawdle
from .processes import PATIENCE, Life, Worker, apart, judged
from .sending import Telling, send_all
from .trial import FURY, ComparedTrial, begin_story
from .writer import WITHOUT_ROWS, Theme

# In seconds: between looks at the processes, and between strikes at no occasion.
GLANCE, LONGEST_REST = 0.001, 0.3
# How often a process that waits for the lock looks: often, to get it in a pause.
IMPATIENCE = 0.002
COMMANDS = ("look", "rotate signing key", "rotate tag key")
# While these go on, nobody holds the lock, and a strike does not count.
IDLE = ("starting", "opening", "between requests", "look", "fetching a receipt")


class LostLocks(ComparedTrial):
    """A trial in which two processes tell a story, and lose the lock meanwhile."""

    def _theme(self) -> Theme:
        # A backup from before the story is restored.
        return Theme(COMMANDS, WITHOUT_ROWS)

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Take the lock away so often at the most; yield what was going on."""
        memory = self.memory
        with begin_story(self._setting, self.story) as folder:
            backup = folder.with_name("before")
            apart(back_up, folder, backup)
            with _session(folder) as session:
                workers = [self._worker(folder, number) for number in (0, 1)]
                n_left = min(n_strikes, FURY * len(self.story.steps))
                for phase in self._strikes(folder, session, workers):
                    yield Life(True, phase, 0.0)
                    n_left -= 1
                    if not n_left:
                        break
                for worker in workers:
                    worker.live(None, Worker.kill)
            if not memory.complaints:
                memory.complaints += judged(self._complaints, folder)
            if not memory.complaints:
                said = judged(self._after_a_restore, folder, backup)
                memory.complaints += [f"after a restore: {one}" for one in said]

    def _worker(self, folder: Path, number: int) -> Worker:
        """Return one of the processes; the second may begin at the end."""
        errors = (Busy,) if self._setting.database_is_a_file else (Busy, StoreFailed)
        places = range(len(self.story.steps))
        backwards = number and self._chance.random() < 0.5
        order = tuple(reversed(places) if backwards else places)
        telling = Telling(self.story, folder, order, errors)

        def work(line: Line) -> None:
            os.environ["PGAPPNAME"] = f"worker {number}"
            wrap("waiting for the lock", lambda real: _sleep_less)
            dawdle(line, 2 * self._seed + number)
            send_all(telling, self.memory, line)

        return self._setting.worker(self.memory, work)

    def _strikes(
        self, folder: Path, session: Any, workers: list[Worker]
    ) -> Iterator[str]:
        """Strike while both work; yield in which phase each strike fell."""
        seen = ["", ""]
        due = time.monotonic() + self._chance.uniform(0.0, LONGEST_REST)
        end = time.monotonic() + PATIENCE
        while not any(worker.listen(GLANCE) for worker in workers):
            if time.monotonic() > end:
                return  # a hang is noticed elsewhere
            phases = [worker.phase() for worker in workers]
            pauses = [
                now.startswith(PAUSED) and now != before
                for now, before in zip(phases, seen, strict=True)
            ]
            seen = phases
            if not any(pauses) and time.monotonic() < due:
                continue
            struck = (
                (0 if delete_lock(folder) else None)
                if session is None
                else self._end_session(session)
            )
            due = time.monotonic() + self._chance.uniform(0.0, LONGEST_REST)
            phase = phases[pauses.index(True) if any(pauses) else struck or 0]
            if struck is not None and phase not in IDLE:
                yield phase

    def _end_session(self, session: Any) -> int | None:
        """End the session that holds the lock, or one that is at work, or both."""
        found = busy_sessions(session, "worker %")
        holders = [one for one in found if one.holds_lock]
        others = [one for one in found if not one.holds_lock]
        which = self._chance.random()
        chosen = (holders if which < 0.8 else []) + (others if which > 0.6 else [])
        for one in chosen:
            session.execute("SELECT pg_terminate_backend(%s)", (one.id,))
        return int(chosen[0].name.split()[1]) if chosen else None

    def _after_a_restore(self, folder: Path, backup: Path) -> list[str]:
        """Restore from before the story; return what does not hold then."""
        put_database_back(folder, backup)
        Registry.restore(folder, backup).close()
        return self._complaints(folder)


def _sleep_less(seconds: float) -> None:
    time.sleep(min(seconds, IMPATIENCE))


def _session(folder: Path) -> AbstractContextManager[Any]:
    """Give a session of our own with PostgreSQL; None where there is none."""
    url = address_of_database(folder)
    return nullcontext() if url is None else connect(url)
