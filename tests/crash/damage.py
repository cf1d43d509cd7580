# SPDX-License-Identifier: Apache-2.0
"""Damaged journals: whatever is done next is refused, and nobody comes back.

A story is told, with a backup on the way. Then, again and again, the journal is damaged
in some way, something is tried, and all is put as it was.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from expunge.exceptions import ExpungeError, InvalidInput
from expunge.registry import ErasureRequest, Registry
from expunge.registry.context import Paths

from .backups import back_up, put_back, put_database_back, state
from .oracles import Arrays, private_arrays
from .processes import Life, Worker, apart, judged, unheard
from .sending import Telling, send_all
from .story import Step, Story, unfitted
from .trial import Trial, begin_story
from .verdict import back_again, complaints_about, contradicted

# Of one story, before another is told.
DAMAGES_EACH = 25
# A restored model is as it was in the backup, so nothing is fitted or made anew.
COMMANDS = ("rotate signing key", "rotate tag key", "ship")

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
# Whoever has the registry open already sees these by the length alone.
SHORTER = ("cut", "cut between lines", "emptied", "removed", "as in the backup")


class Place(NamedTuple):
    """A registry at the end of its story, a copy from then, and a backup from before.

    ``next`` is who asks to be forgotten next.
    """

    story: Story
    folder: Path
    latest: Path
    backup: Path
    next: ErasureRequest


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


DATABASES: Mapping[str, Callable[[Place], object]] = {
    "restore": lambda place: None,
    "restore without a database": _lose_database,
    "restore over an older database": _take_older_database,
}


@dataclass(frozen=True)
class Attempt:
    """What is tried on which damage; ``already_open`` before the damage was done."""

    damage: str
    act: str
    already_open: bool
    seed: float

    @property
    def is_harmless(self) -> bool:
        """Whether the journal still holds everything that was promised."""
        return self.damage == HARMLESS

    def __str__(self) -> str:
        opened = " by a process that has it open" if self.already_open else ""
        return f"journal {self.damage}, {self.act}{opened}"


class DamagedJournals(Trial):
    """A trial in which journals are damaged."""

    def _commands(self) -> Sequence[str]:
        return COMMANDS

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Damage the journal so often at the most; yield what was tried each time."""
        with self._told() as (place, in_peace):
            for _ in range(min(n_strikes, DAMAGES_EACH)):
                attempt = self._attempt()
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
                ErasureRequest(("stays-0",)),
            )
            half = self._chance.randrange(len(self.story.steps) // 2 + 1)
            for story in (self.story.until(half), self.story):
                job = partial(send_all, Telling(story, folder), self.memory)
                self._setting.worker(self.memory, job).live(None, Worker.kill)
                copy = place.latest if story is self.story else place.backup
                apart(back_up, folder, copy)
            if self.memory.complaints or not self.memory.finished:
                raise RuntimeError(f"even in peace: {self.memory.complaints}")
            yield place, apart(private_arrays, folder)

    def _attempt(self) -> Attempt:
        damage = self._chance.choice(list(DAMAGES))
        # On PostgreSQL a restore begins with an older dump that was put back.
        databases = [*DATABASES][0 if self._setting.database_is_a_file else 2 :]
        act = self._chance.choice(("open", *IN_USE, *databases))
        may_be_open = act == "fit" or (act in IN_USE and damage in SHORTER)
        already_open = may_be_open and self._chance.random() < 0.5
        return Attempt(damage, act, already_open, self._chance.random())

    def _complaints_after(
        self, place: Place, attempt: Attempt, in_peace: Arrays
    ) -> list[str]:
        """Try something on a damaged journal; return what is wrong with the outcome."""
        journal = Paths(place.folder).journal
        whole = journal.read_bytes()
        older = Paths(place.backup).journal.read_bytes()
        chance = random.Random(attempt.seed)
        damaged = DAMAGES[attempt.damage](whole, older, chance)
        if damaged == whole:
            return []  # nothing was written since the backup
        if attempt.act in DATABASES:
            DATABASES[attempt.act](place)
        registry = Registry.open(place.folder) if attempt.already_open else None
        if damaged is None:
            journal.unlink()
        else:
            journal.write_bytes(damaged)
        before = state(place.folder)
        self._setting.prepare(unheard())
        try:
            self._act(place, attempt, registry)
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


def _refused(attempt: Attempt, error: ExpungeError) -> list[str]:
    """Return what is wrong with an error."""
    said = f"refused with {type(error).__name__} ({error})"
    if attempt.is_harmless:
        right = attempt.act == "fit" and isinstance(error, InvalidInput)
        return [] if right else [f"harmless, and {said}"]
    return [] if "journal" in str(error) else [f"{said}, which does not name it"]


def _one_further(place: Place) -> Place:
    """Return a place whose story ends with the next request."""
    story = place.story
    step = Step(len(story.steps), "forget", (place.next,))
    return place._replace(story=Story(story.samples, (*story.steps, step)))
