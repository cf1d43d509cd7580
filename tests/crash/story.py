# SPDX-License-Identifier: Apache-2.0
"""A story: models, the people in them, how they ask to be forgotten, and commands.

Everything follows from a seed. The contract is so generous that no removal needs the
rows: then one batch equals the stream, whichever way crashes cut it.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expunge import Budget, LinearRegression, LogisticRegression
from expunge.core.arrays import Matrix, Vector
from expunge.registry import Registry, Request

N_FEATURES = 4
ROWS_EACH = 2
STAYING = 12
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=100.0)
FIRST, NEW = ("churn", "spend"), ("third", "fourth")

REQUESTS = ("forget", "accept", "accept and apply")
COMMANDS = (
    "fit",
    "refit",
    "remove",
    "reanchor",
    "ship",
    "withdraw",
    "rotate signing key",
    "rotate tag key",
    "readmit",
    "look",
    "back up",
    "restore",
)
FITS = ("fit", "refit")


@dataclass(frozen=True)
class Step:
    """One thing that a client does.

    Attributes
    ----------
    place
        Which step of the story it is.
    how
        By which of the registry's verbs: one of ``REQUESTS`` or ``COMMANDS``.
    asked
        Requests that are sent together.
    twice
        Whether they are sent again after the answer, as a client does that lost it.
    model, people
        Of a command, what it is about: whose rows are fitted, or who comes back.
    """

    place: int
    how: str
    asked: tuple[Request, ...] = ()
    twice: bool = False
    model: str = ""
    people: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """The rows of one model, with their owners."""

    X: Matrix
    y: Vector
    owners: tuple[str, ...]

    def of(self, people: Collection[str]) -> "Sample":
        """Return the rows of these people alone."""
        stay = np.array([owner in people for owner in self.owners])
        owners = tuple(owner for owner in self.owners if owner in people)
        return Sample(self.X[stay], self.y[stay], owners)


@dataclass(frozen=True)
class Story:
    """What happens, in order; ``FIRST`` of the samples are fitted at the beginning."""

    samples: Mapping[str, Sample]
    steps: tuple[Step, ...]

    def requests(self) -> dict[str, Request]:
        """Return every request by its id."""
        return {one.request: one for step in self.steps for one in step.asked}

    def leaving(self) -> frozenset[str]:
        """Return everybody who asks to be forgotten."""
        asked = self.requests().values()
        return frozenset(person for one in asked for person in one.subjects)

    def holding(self, person: str) -> tuple[str, ...]:
        """Return the models that a person is in at the beginning."""
        return tuple(name for name in FIRST if person in self.samples[name].owners)

    def until(self, place: int) -> "Story":
        """Return the story up to a step."""
        return Story(self.samples, self.steps[:place])

    def begin(self, folder: Path, url: str | None) -> None:
        """Make the registry and fit its models."""
        with Registry.create(folder, url=url) as registry:
            for name in FIRST:
                sample = self.samples[name]
                registry.fit(
                    name, unfitted(name), sample.X, sample.y, subjects=sample.owners
                )


def unfitted(name: str) -> Any:
    """Return the estimator of a model."""
    kind = LogisticRegression if name == "churn" else LinearRegression
    return kind(alpha=0.1, penalize_intercept=True, budget=BUDGET)


def tell(seed: int, n_steps: int, commands: Sequence[str] = ()) -> Story:
    """Return the story of a seed: requests, and some of these commands among them."""
    chance = random.Random(seed)
    asking = [_asking(chance, place) for place in range(n_steps)]
    others = [
        chance.choice(commands) if commands and chance.random() < 0.5 else ""
        for _ in range(n_steps)
    ]
    steps = [step for step, other in zip(asking, others, strict=True) if not other]
    leaving = [p for step in steps for one in step.asked for p in one.subjects]
    people = leaving + [f"stays-{i}" for i in range(STAYING)]
    both, first = people[::2], people[1::4]
    samples = {
        "churn": _sample(seed, [*both, *first]),
        "spend": _sample(seed + 1, [p for p in people if p not in set(first)]),
        **{
            name: _sample(seed + 2 + place, people[place::3])
            for place, name in enumerate(NEW)
        },
    }
    writer = _Writer(chance, samples)
    written = (
        writer.command(other, step.place) if other else writer.noted(step)
        for step, other in zip(asking, others, strict=True)
    )
    return Story(samples, tuple(written))


def _asking(chance: random.Random, place: int) -> Step:
    """Return a step that sends requests."""
    (how,) = chance.choices(REQUESTS, weights=(6, 1, 3))
    n_requests = 1 if how == "forget" else chance.randint(1, 3)
    asked = tuple(
        Request(
            tuple(f"asks-{place}-{i}-{j}" for j in range(chance.randint(1, 3))),
            request=chance.randbytes(16).hex(),
        )
        for i in range(n_requests)
    )
    return Step(place, how, asked, twice=chance.random() < 0.25)


class _Writer:
    """Turns wishes into steps that are possible where they stand."""

    def __init__(self, chance: random.Random, samples: Mapping[str, Sample]) -> None:
        self._chance = chance
        self._samples = samples
        self._models = list(FIRST)
        self._new = list(NEW)
        self._waiting: list[str] = []
        self._gone: list[str] = []
        self._shipped: list[str] = []
        self._backed_up = False

    def noted(self, step: Step) -> Step:
        """Return a step that sends requests, once it is taken into account."""
        self._waiting += [person for one in step.asked for person in one.subjects]
        if step.how != "accept":
            self._gone += self._waiting
            self._waiting = []
        return step

    def command(self, how: str, place: int) -> Step:
        """Return a command, or what has to come before it."""
        # Those who ask are in one of the first models, so that these stay.
        later = [name for name in self._models if name in NEW]
        if how == "remove" and not later:
            how = "fit"
        if how == "fit" and not self._new:
            how = "refit"
        if how == "restore" and not self._backed_up:
            how = "back up"
        if how == "withdraw" and not self._shipped:
            how = "ship"
        if how == "readmit" and not self._gone:
            how = "look"
        model = self._chance.choice(later if how == "remove" else self._models)
        people: tuple[str, ...] = ()
        if how in FITS:
            model = self._new.pop(0) if how == "fit" else model
            people = self._fitted(model)
        elif how == "remove":
            self._models.remove(model)
        elif how == "readmit":
            people = (self._chance.choice(self._gone),)
            self._gone.remove(people[0])
        elif how == "ship":
            self._shipped.append(model)
        elif how == "withdraw":
            model = self._shipped[-1]
        elif how == "back up":
            self._backed_up = True
        return Step(place, how, model=model, people=people)

    def _fitted(self, model: str) -> tuple[str, ...]:
        """Return whose rows a model is fitted to; then no backup is new enough."""
        self._backed_up = False
        self._models = list(dict.fromkeys([*self._models, model]))
        out = {*self._waiting, *self._gone}
        owners = dict.fromkeys(self._samples[model].owners)
        return tuple(person for person in owners if person not in out)


class Expected:
    """What a registry must have come to after the steps of a story, in order.

    Attributes
    ----------
    people
        Who is in each model.
    changed
        For each request that was applied, the models that it changed.
    removed
        Models that were removed.
    forgotten
        Who was forgotten and did not come back.
    """

    def __init__(self, story: Story) -> None:
        self.people = {name: {*story.samples[name].owners} for name in FIRST}
        self.changed: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.forgotten: set[str] = set()
        self._waiting: list[Request] = []
        for step in story.steps:
            self._take(step)
        self._apply()

    def _take(self, step: Step) -> None:
        self._waiting += step.asked
        if step.how in ("forget", "accept and apply"):
            self._apply()
        elif step.how in FITS:
            self.people[step.model] = {*step.people}
        elif step.how == "remove":
            del self.people[step.model]
            self.removed.add(step.model)
        elif step.how == "readmit":
            self.forgotten -= {*step.people}

    def _apply(self) -> None:
        for one in self._waiting:
            self.changed[one.request] = {
                name for name, there in self.people.items() if there & {*one.subjects}
            }
        gone = {person for one in self._waiting for person in one.subjects}
        for there in self.people.values():
            there -= gone
        self.forgotten |= gone
        self._waiting = []


def _sample(seed: int, people: list[str]) -> Sample:
    rng = np.random.default_rng(seed)
    owners = tuple(person for person in people for _ in range(ROWS_EACH))
    X = rng.normal(size=(len(owners), N_FEATURES))
    y = np.where(X[:, 0] + rng.normal(size=len(owners)) > 0.0, 1.0, -1.0)
    return Sample(X, y, owners)
