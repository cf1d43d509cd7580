# SPDX-License-Identifier: Apache-2.0
"""A trial: one story, told once in peace and once by processes that are struck."""

import random
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .client import Memory
from .oracles import Arrays, private_arrays
from .processes import Life, Moment, Worker, apart, judged
from .sending import Telling, send_all
from .settings import Kills
from .story import Story
from .verdict import complaints_about
from .writer import Theme, tell

N_STEPS = 10
# Strikes for each step of a story, at the most; then another one is told.
FURY = 2
# About as long as a phase takes, in seconds.
SHORT = 0.004


@dataclass
class Tally:
    """What happened in all trials so far.

    Attributes
    ----------
    strikes
        How many fell, by what the process was doing.
    found
        How far the request had come that was being sent, by what the next process
        found, if that lived long enough to say so.
    n_requests, n_stories
        What was told.
    complaints
        What does not hold.
    """

    strikes: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    n_requests: int = 0
    n_stories: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def n_strikes(self) -> int:
        """How many strikes fell."""
        return self.strikes.total()


@dataclass(frozen=True)
class Course:
    """How many strikes there shall be, on stories of what length, from which seed.

    A complaint ends everything, since what comes after it shows nothing, unless the
    next story shall be told all the same (``keep_going``).
    """

    n_strikes: int
    seed: int = 0
    n_steps: int = N_STEPS
    keep_going: bool = False


class Trial(ABC):
    """One story, and what became of it.

    Parameters
    ----------
    setting
        Where the story is told, and what strikes there.
    seed, n_steps
        Of the story, and of whatever else is drawn.
    """

    approves = False  # whether its processes approve what stories want approved

    def __init__(self, setting: Kills, seed: int, *, n_steps: int) -> None:
        self.memory = Memory()
        self._setting = setting
        self._seed = seed
        self._chance = random.Random(seed)
        story = tell(seed, n_steps, self._theme())
        self.story = replace(story, four_eyes=story.four_eyes and self.approves)

    @abstractmethod
    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Strike so often at the most; yield the life of each process, or strike."""

    def _theme(self) -> Theme:
        """Return what the story is about."""
        return self._chance.choice(self._setting.themes)


class ComparedTrial(Trial):
    """A trial whose outcome is compared with the story told in peace.

    The parameters are those of ``Trial``.
    """

    def __init__(self, setting: Kills, seed: int, *, n_steps: int) -> None:
        super().__init__(setting, seed, n_steps=n_steps)
        self._in_peace, self._longest = tell_in_peace(setting, self.story)

    def _complaints(self, folder: Path) -> list[str]:
        """Return what does not hold of the registry in a folder."""
        return complaints_about(self.story, folder, self.memory, self._in_peace)


Trials: TypeAlias = Callable[[int], Trial]
"""A seed, to its trial."""


class OneByOne(ComparedTrial):
    """A trial in which one process goes on where another was struck."""

    approves = True

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Tell the story, struck so often at the most; yield each process's life."""
        with begin_story(self._setting, self.story) as folder:
            n_left = min(n_strikes, FURY * len(self.story.steps))
            while not (self.memory.finished or self.memory.complaints):
                life = self._live(folder, self._moment() if n_left else None)
                n_left -= life.struck
                yield life
                if life.struck:
                    self._setting.mend(folder, self.memory, self._chance)
            if not self.memory.complaints:
                self.memory.complaints += judged(self._complaints, folder)

    def _live(self, folder: Path, moment: Moment | None) -> Life:
        memory = self.memory
        memory.found = memory.store_failed = ""
        job = partial(send_all, Telling(self.story, folder), memory)
        with self._setting.started(folder, memory, job) as worker:
            life = worker.live(moment, self._setting.strike)
        if not life.struck:
            self._setting.look_over(folder)
            if memory.store_failed:
                memory.hear("nothing had struck the store", memory.store_failed)
        return life

    def _moment(self) -> Moment:
        """Return when to strike: at any time, or at any time within some phase.

        Phases that are short on a fast disk are where a crash does most harm.
        """
        if self._chance.random() < 0.5:
            return Moment(self._chance.uniform(0.0, self._longest))
        due = (step.how for step in self.story.steps if self.memory.lacks(step))
        phase = self._chance.choice(self._setting.phases_of(next(due, "look")))
        return Moment(self._chance.uniform(0.0, SHORT), phase)


def trials(begin: Trials, course: Course) -> Iterator[Tally]:
    """Tell stories until so many strikes fell; yield the tally after each process."""
    tally = Tally()
    while tally.n_strikes < course.n_strikes:
        if tally.complaints and not course.keep_going:
            break
        trial = begin(course.seed + tally.n_stories)
        after_strike = False
        for life in trial.lives(course.n_strikes - tally.n_strikes):
            if after_strike and trial.memory.found:
                tally.found[trial.memory.found] += 1
                trial.memory.found = ""
            if life.struck:
                tally.strikes[life.phase] += 1
            after_strike = life.struck
            yield tally
        tally.complaints += trial.memory.complaints
        tally.n_requests += len(trial.story.requests())
        tally.n_stories += 1
    yield tally


def tell_in_peace(setting: Kills, story: Story) -> tuple[Arrays, float]:
    """Return the private state at the end of a story, and when to strike at last."""
    memory = Memory()
    with begin_story(setting, story) as folder:
        job = partial(send_all, Telling(story, folder), memory)
        life = Worker(memory, job).live(None, Worker.kill)
        if memory.complaints or not memory.finished:
            raise RuntimeError(f"even in peace: {memory.complaints}")
        # Enough for one step and the next, so that no moment of either is spared.
        return apart(private_arrays, folder), 3.0 * life.seconds / len(story.steps)


@contextmanager
def begin_story(setting: Kills, story: Story) -> Iterator[Path]:
    """Lend the folder of a registry in which the story has not begun yet."""
    with tempfile.TemporaryDirectory(prefix="expunge-crash-") as folder:
        registry = Path(folder) / "registry"
        registry.with_name("shipped").mkdir()
        apart(story.begin, registry, setting.database())
        yield registry
