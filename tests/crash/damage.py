# SPDX-License-Identifier: Apache-2.0
"""Damaged journals: whatever is done next is refused, and nobody comes back.

A story is told, with a backup on the way. Then, again and again, the journal is damaged
in some way, something is tried, and all is put as it was. Every other journal was
rebuilt on the way, after the backup, and is shorter than it was then.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from expunge.exceptions import ExpungeError, InvalidInput
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import journal_file

from .backups import back_up, put_back, put_database_back, state
from .oracles import Arrays, private_arrays
from .processes import Life, Worker, apart, judged, unheard
from .sending import Telling, send_all
from .story import Step, Story, unfitted
from .trial import Trial, begin_story
from .verdict import back_again, complaints_about, contradicted
from .writer import ASK_AGAIN, ON_WAITING, WITHOUT_ROWS, Theme

# Of one story, before another is told.
DAMAGES_EACH = 25
# A restored model is as it was in the backup, so nothing is fitted.
WISHES = ("rotate signing key", "rotate tag key", "ship", *ON_WAITING, ASK_AGAIN)

Damage: TypeAlias = Callable[[bytes, bytes, random.Random], bytes | None]
"""What a journal holds and what its backup held, to what it holds now, if anything."""


def _cut(data: bytes, older: bytes, chance: random.Random) -> bytes:
    del older
    return data[: chance.randrange(1, len(data))]


def _cut_between_lines(data: bytes, older: bytes, chance: random.Random) -> bytes:
    del older
    lines = data.splitlines(keepends=True)
    return b"".join(lines[: chance.randrange(1, len(lines))])


def _zeroed(data: bytes, older: bytes, chance: random.Random) -> bytes:
    del older
    place = chance.randrange(len(data))
    return data[:place] + bytes(len(data) - place)


def _flipped(data: bytes, older: bytes, chance: random.Random) -> bytes:
    del older
    place, bit = chance.randrange(len(data)), 1 << chance.randrange(8)
    return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


def _with_a_torn_line(data: bytes, older: bytes, chance: random.Random) -> bytes:
    """Add what a crash leaves of a line that was promised to nobody."""
    del older
    line = chance.choice(data.splitlines())
    part = line[: chance.randrange(1, len(line))]
    return data + chance.choice((part, bytes(len(part))))


HARMLESS = "a torn line after it"
DAMAGES: Mapping[str, Damage] = {
    "cut": _cut,
    "cut between lines": _cut_between_lines,
    "zeroed at its end": _zeroed,
    "one bit flipped": _flipped,
    "emptied": lambda data, older, chance: b"",
    "removed": lambda data, older, chance: None,
    "as in the backup": lambda data, older, chance: older,
    HARMLESS: _with_a_torn_line,
}
# A process that has the registry open sees these by the length alone.
SHORTER = ("cut", "cut between lines", "emptied", "removed", "as in the backup")


class Place(NamedTuple):
    """A registry at the end of its story, a copy from then, and a backup from before.

    ``next`` is who asks to be forgotten next, ``older`` an earlier copy of the journal,
    and ``rebuilt`` whether it was rebuilt after the backup.
    """

    story: Story
    folder: Path
    latest: Path
    backup: Path
    next: Request
    older: bytes = b""
    rebuilt: bool = False


def _fit_everybody(registry: Registry, place: Place) -> None:
    """Fit a model to a table that still has everybody in it."""
    name = "churn"
    sample = place.story.samples[name]
    registry.fit("again", unfitted(name), sample.X, sample.y, subjects=sample.owners)


def _forget(registry: Registry, place: Place) -> None:
    registry.forget(place.next.subjects, place.next.request)


IN_USE: Mapping[str, Callable[[Registry, Place], object]] = {
    "status": lambda registry, place: registry.status(),
    "forget": lambda registry, place: _forget(registry, place),
    "fit": _fit_everybody,
}


def _lose_database(place: Place) -> None:
    for path in place.folder.glob("expunge.db*"):
        path.unlink()


def _take_older_database(place: Place) -> None:
    _lose_database(place)
    for path in place.backup.glob("expunge.db*"):
        (place.folder / path.name).write_bytes(path.read_bytes())
    put_database_back(place.folder, place.backup)


def _take_all_but_the_journal(place: Place) -> None:
    """Put everything back by hand that a backup holds, except the journal."""
    _take_older_database(place)
    shutil.copy(place.backup / "keys" / "sealing", place.folder / "keys")
    shutil.rmtree(place.folder / "checkpoints")
    shutil.copytree(place.backup / "checkpoints", place.folder / "checkpoints")


DATABASES: Mapping[str, Callable[[Place], object]] = {
    "restore": lambda place: None,
    "restore without a database": _lose_database,
    "restore over an older database": _take_older_database,
}
REBUILD, REBUILD_OLDER = "rebuild", "rebuild over an older database"
REBUILDS = (REBUILD, REBUILD_OLDER)
# When a process opened the registry that does something with it later.
LATER, BEFORE, LONG_BEFORE = "", "before", "before the rest of the story"
N_STRANGERS = 600  # readmitted before a backup: so much longer is the journal then


@dataclass(frozen=True)
class Attempt:
    """What is tried on which damage, by a process that opened the registry then."""

    damage: str
    act: str
    opened: str
    seed: float

    @property
    def is_harmless(self) -> bool:
        """Whether the journal still holds everything that was promised."""
        return self.damage == HARMLESS

    def __str__(self) -> str:
        opened = f" by a process that opened it {self.opened}" if self.opened else ""
        return f"journal {self.damage}, {self.act}{opened}"


class DamagedJournals(Trial):
    """A trial in which journals are damaged."""

    def _theme(self) -> Theme:
        return Theme(WISHES, WITHOUT_ROWS)

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Damage the journal so often at the most; yield what was tried each time."""
        with self._told() as (place, in_peace):
            for _ in range(min(n_strikes, DAMAGES_EACH)):
                if self.memory.complaints:
                    return
                attempt = self._attempt(place.rebuilt)
                apart(put_back, place.folder, place.latest)
                said = judged(self._complaints_after, place, attempt, in_peace)
                self.memory.complaints += [f"{attempt}: {one}" for one in said]
                yield Life(True, attempt.damage, 0.0)

    @contextmanager
    def _told(self) -> Iterator[tuple[Place, Arrays]]:
        """Tell the story in peace, with a backup in the middle."""
        with begin_story(self._setting, self.story) as folder:
            place = Place(
                self.story,
                folder,
                folder.with_name("latest"),
                folder.with_name("middle"),
                Request(("stays-0",)),
            )
            half = self._chance.randrange(len(self.story.steps) // 2 + 1)
            rebuilt = self._seed % 2 == 0
            for story in (self.story.until(half), self.story):
                job = partial(send_all, Telling(story, folder), self.memory)
                self._setting.worker(self.memory, job).live(None, Worker.kill)
                if story is self.story:
                    apart(back_up, folder, place.latest)
                    continue
                if rebuilt:
                    apart(_readmit_strangers, folder)
                apart(back_up, folder, place.backup)
                if rebuilt:
                    apart(_rebuild_from_nothing, folder)
                older = journal_file(folder).read_bytes()
                place = place._replace(older=older, rebuilt=rebuilt)
            if self.memory.complaints or not self.memory.finished:
                raise RuntimeError(f"even in peace: {self.memory.complaints}")
            yield place, apart(private_arrays, folder)

    def _attempt(self, rebuilt: bool) -> Attempt:
        """Return what to try; who cannot be named any more is not found by a fit."""
        damage = self._chance.choice(list(DAMAGES))
        # On PostgreSQL a restore begins with an older dump that was put back.
        databases = [*DATABASES][0 if self._setting.database_is_a_file else 2 :]
        acts = ["open", *IN_USE, *databases, *REBUILDS]
        if rebuilt:
            acts[acts.index("fit")] = REBUILD_OLDER
        act = self._chance.choice(acts)
        may_be_open = act == "fit" or (act in IN_USE and damage in SHORTER)
        when = (LATER, LATER, BEFORE, LONG_BEFORE) if may_be_open else (LATER,)
        opened = self._chance.choice(when)
        return Attempt(damage, act, opened, self._chance.random())

    def _complaints_after(
        self, place: Place, attempt: Attempt, in_peace: Arrays
    ) -> list[str]:
        """Try something on a damaged journal; return what is wrong with the outcome."""
        journal = journal_file(place.folder)
        whole = journal.read_bytes()
        chance = random.Random(attempt.seed)
        damaged = DAMAGES[attempt.damage](whole, place.older, chance)
        if whole in (damaged, place.older):
            return []  # nothing was written since the backup
        if attempt.act in DATABASES:
            DATABASES[attempt.act](place)
        if attempt.act == REBUILD_OLDER:
            _take_all_but_the_journal(place)
        registry = _open(place, attempt.opened)
        if damaged is None:
            journal.unlink()
        else:
            journal.write_bytes(damaged)
        before = state(place.folder)
        self._setting.prepare(unheard())
        try:
            self._act(place, attempt, registry)
            if attempt.act in REBUILDS:  # where only intact lines were missing
                return complaints_about(place.story, place.folder, self.memory, {})
            said = self._accepted(place, attempt)
        except ExpungeError as error:
            said = _refused(attempt, error)
            if state(place.folder) != before:
                said.append("refused, and something was changed")
        if said:
            return said
        if not attempt.is_harmless:
            journal.write_bytes(whole)
            return [f"afterwards: {one}" for one in self._restored(place, in_peace)]
        if attempt.act == "forget":
            place, in_peace = _one_further(place), {}
        return [f"afterwards: {one}" for one in self._restored(place, in_peace)]

    def _act(self, place: Place, attempt: Attempt, registry: Registry | None) -> None:
        if attempt.act in DATABASES:
            with Registry.restore(place.folder, place.backup):
                return
        if attempt.act in REBUILDS:
            rebuild_journal(place.folder)
            return
        with registry or Registry.open(place.folder) as registry:
            if attempt.act in IN_USE:
                IN_USE[attempt.act](registry, place)

    def _accepted(self, place: Place, attempt: Attempt) -> list[str]:
        """Return what is wrong where nothing was refused."""
        with Registry.open(place.folder) as registry:
            back = back_again(place.story, registry)
            forked = list(contradicted(registry, self.memory))
        if back:
            return ["PEOPLE BACK without being told"]
        if forked:
            return ["a ledger that contradicts receipts"]
        return [] if attempt.is_harmless else ["not noticed"]

    def _restored(self, place: Place, in_peace: Arrays) -> list[str]:
        """Restore from the backup; return what does not hold then."""
        put_database_back(place.folder, place.backup)
        Registry.restore(place.folder, place.backup).close()
        return complaints_about(place.story, place.folder, self.memory, in_peace)


def _open(place: Place, when: str) -> Registry | None:
    """Open the registry as it is, or as it was before the rest of the story."""
    if when == LATER:
        return None
    if when == LONG_BEFORE:
        put_back(place.folder, place.backup)
    registry = Registry.open(place.folder)
    if when == LONG_BEFORE:
        put_back(place.folder, place.latest)
    return registry


def _readmit_strangers(folder: Path) -> None:
    with Registry.open(folder) as registry:
        registry.requests.readmit([f"stranger-{i}" for i in range(N_STRANGERS)])


def _rebuild_from_nothing(folder: Path) -> None:
    journal_file(folder).unlink()
    rebuild_journal(folder)


def _refused(attempt: Attempt, error: ExpungeError) -> list[str]:
    """Return what is wrong with an error."""
    said = f"refused with {type(error).__name__} ({error})"
    if attempt.act == REBUILD:
        return [said]
    if attempt.is_harmless and attempt.act != REBUILD_OLDER:
        right = attempt.act == "fit" and isinstance(error, InvalidInput)
        return [] if right else [f"harmless, and {said}"]
    return [] if "journal" in str(error) else [f"{said}, which does not name it"]


def _one_further(place: Place) -> Place:
    """Return a place whose story ends with the next request."""
    story = place.story
    step = Step(len(story.steps), "forget", (place.next,))
    return place._replace(story=replace(story, steps=(*story.steps, step)))
