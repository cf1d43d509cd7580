# SPDX-License-Identifier: Apache-2.0
"""Restores: from copies that were taken while a process worked, and killed on the way.

A copy whose parts do not belong together is refused, and nothing is changed; from any
other the registry comes back, and nobody with it. Then another copy is restored, older
or newer than the first, and the next request is answered all the same.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from expunge.exceptions import ExpungeError
from expunge.registry import Registry

from .backups import (
    back_up,
    back_up_live,
    hidden,
    put_back,
    put_database_back,
    state,
    write_dump,
)
from .client import Line, Memory
from .phases import dawdle
from .processes import Life, Moment, Worker, apart, judged, unheard
from .sending import Telling, send_all
from .trial import SHORT, ComparedTrial, begin_story
from .writer import ASK_AGAIN, ON_WAITING, WITHOUT_ROWS, Theme

# Of one story, copies that are taken at the most, and how often each is restored.
COPIES, TIMES = 5, 3
# In seconds: between copies, and how long a restore takes.
LONGEST_REST, LONGEST_RESTORE = 0.2, 0.3
# A restored model is as it was in the backup, so nothing is fitted.
WISHES = (
    *("ship", "rotate signing key", "rotate tag key", "look"),
    *(*ON_WAITING, ASK_AGAIN, ASK_AGAIN),
)
# A copy from before a fit is refused: few stories have one.
SHARE_OF_FITS = 0.25
RESTORED = "restored"


class LiveCopies(ComparedTrial):
    """A trial in which a registry is copied while it is in use, and restored later."""

    def _theme(self) -> Theme:
        fits = ("refit",) if self._chance.random() < SHARE_OF_FITS else ()
        return Theme((*WISHES, *fits), WITHOUT_ROWS)

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Restore so often at the most; yield how each attempt ended."""
        with begin_story(self._setting, self.story) as folder:
            copies = self._copies(folder)
            latest = folder.with_name("latest")
            apart(back_up, folder, latest)
            chosen = [copy for copy in copies for _ in range(TIMES)]
            self._chance.shuffle(chosen)
            for copy in chosen[:n_strikes]:
                if self.memory.complaints:
                    return
                for how in self._restored(folder, copy):
                    yield Life(True, how, 0.0)
                if how == RESTORED and not self.memory.complaints:
                    # The newest has all requests, and not what a restore released.
                    another = self._chance.choice([*copies, latest])
                    self._restore_another(folder, another)
                apart(put_back, folder, latest)

    def _copies(self, folder: Path) -> list[Path]:
        """Tell the story, and copy the registry meanwhile."""
        telling = Telling(self.story, folder)

        def work(line: Line) -> None:
            dawdle(line, self._seed)
            send_all(telling, self.memory, line)

        copies = [folder.with_name("copy-0")]
        apart(back_up, folder, copies[0])
        worker = self._setting.worker(self.memory, work)
        while len(copies) < COPIES:
            if worker.listen(self._chance.uniform(0.0, LONGEST_REST)):
                break
            copy = folder.with_name(f"copy-{len(copies)}")
            dump = partial(apart, write_dump, folder, copy)
            back_up_live(folder, copy, self._chance, dump)
            copies.append(copy)
        worker.live(None, Worker.kill)
        return copies

    def _restored(self, folder: Path, copy: Path) -> Iterator[str]:
        """Restore from a copy, perhaps killed on the way; yield how that ended."""
        memory = self.memory
        apart(put_database_back, folder, copy)
        before = apart(state, folder)
        was_killed = False
        while True:
            attempt = Memory()
            worker = self._setting.worker(attempt, partial(_restore, folder, copy))
            life = worker.live(None if was_killed else self._moment(), Worker.kill)
            memory.complaints += attempt.complaints
            if life.struck:
                was_killed = True
                yield f"killed while {life.phase}"
                memory.complaints += judged(self._left_after_opening, folder)
                # With PostgreSQL one begins at the beginning.
                apart(put_database_back, folder, copy)
                continue
            break
        if attempt.refused:
            yield "refused"
            if not was_killed and apart(state, folder) != before:
                memory.complaints.append("a restore was refused, and changed something")
            memory.complaints += [
                f"{name} was left behind by a restore that was refused"
                for name in hidden(folder)
            ]
        elif attempt.finished:
            yield RESTORED
            memory.complaints += judged(self._complaints, folder)
        else:
            memory.complaints.append(f"a restore failed: {attempt.store_failed}")

    def _restore_another(self, folder: Path, copy: Path) -> None:
        """Restore from another copy, unless that is refused, and forget one more."""
        apart(put_database_back, folder, copy)
        attempt = Memory()
        worker = self._setting.worker(attempt, partial(_restore, folder, copy))
        worker.live(None, Worker.kill)
        self.memory.complaints += attempt.complaints
        if attempt.refused or self.memory.complaints:
            return
        said = judged(self._complaints, folder)
        said += judged(self._forget_one_more, folder)
        self.memory.complaints += [f"after {copy.name}: {one}" for one in said]

    def _forget_one_more(self, folder: Path) -> list[str]:
        self._setting.prepare(unheard())
        try:
            with Registry.open(folder) as registry:
                registry.forget(["stays-0"])
        except ExpungeError as error:
            return [f"the next request failed: {error}"]
        return []

    def _left_after_opening(self, folder: Path) -> list[str]:
        """Open a registry whose restore was killed; return what is left of that."""
        self._setting.prepare(unheard())
        try:
            Registry.open(folder).close()
        except ExpungeError:
            return []  # it has to be restored
        return [
            f"{name} was left behind by a restore that was killed"
            for name in hidden(folder)
        ]

    def _moment(self) -> Moment | None:
        """Return when to kill: not at all, at any time, or within some phase."""
        which = self._chance.random()
        if which < 0.4:
            return None
        if which < 0.6:
            return Moment(self._chance.uniform(0.0, LONGEST_RESTORE))
        phase = self._chance.choice(self._setting.phases_of("restore"))
        return Moment(self._chance.uniform(0.0, SHORT), phase)


def _restore(folder: Path, copy: Path, line: Line) -> None:
    try:
        with line.at("restore"), Registry.restore(folder, copy):
            pass
    except ExpungeError as error:
        line.say("refused", f"{type(error).__name__}: {error}")
