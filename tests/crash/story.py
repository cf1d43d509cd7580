# SPDX-License-Identifier: Apache-2.0
"""A story: two models, the people in them, and how they ask to be forgotten.

Everything follows from a seed. The contract is so generous that no removal needs the
rows: then one batch equals the stream, whichever way crashes cut it.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expunge import Budget, LinearRegression, LogisticRegression
from expunge._typing import Matrix, Vector
from expunge.registry import Asked, Registry

N_FEATURES = 4
ROWS_EACH = 2
STAYING = 12
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=100.0)

How = Literal["forget", "accept", "accept and apply"]


@dataclass(frozen=True)
class Step:
    """Requests that are sent together, and by which of the registry's verbs.

    ``twice`` sends them again after the answer, as a client does that lost it.
    """

    how: How
    asked: tuple[Asked, ...]
    twice: bool


@dataclass(frozen=True)
class Sample:
    """The rows of one model, with their owners."""

    X: Matrix
    y: Vector
    owners: tuple[str, ...]

    def without(self, people: frozenset[str]) -> "Sample":
        """Return the rows of everybody else."""
        stay = np.array([owner not in people for owner in self.owners])
        owners = tuple(owner for owner in self.owners if owner not in people)
        return Sample(self.X[stay], self.y[stay], owners)


@dataclass(frozen=True)
class Story:
    """What happens, in order."""

    samples: Mapping[str, Sample]
    steps: tuple[Step, ...]

    def requests(self) -> dict[str, Asked]:
        """Return every request by its id."""
        return {one.request: one for step in self.steps for one in step.asked}

    def leaving(self) -> frozenset[str]:
        """Return everybody who asks to be forgotten."""
        asked = self.requests().values()
        return frozenset(person for one in asked for person in one.subjects)

    def holding(self, person: str) -> tuple[str, ...]:
        """Return the models that a person is in at the beginning."""
        return tuple(
            name for name, sample in self.samples.items() if person in sample.owners
        )

    def begin(self, folder: Path, url: str | None) -> None:
        """Make the registry and fit its models."""
        with Registry.create(folder, url=url) as registry:
            for name, sample in self.samples.items():
                registry.fit(
                    name, unfitted(name), sample.X, sample.y, subjects=sample.owners
                )


def unfitted(name: str) -> Any:
    """Return the estimator of a model."""
    kind = LogisticRegression if name == "churn" else LinearRegression
    return kind(alpha=0.1, penalize_intercept=True, budget=BUDGET)


def tell(seed: int, n_steps: int) -> Story:
    """Return the story of a seed."""
    chance = random.Random(seed)
    steps = tuple(_steps(chance, n_steps))
    leaving = [p for step in steps for one in step.asked for p in one.subjects]
    people = leaving + [f"stays-{i}" for i in range(STAYING)]
    both, first = people[::2], people[1::4]
    samples = {
        "churn": _sample(seed, [*both, *first]),
        "spend": _sample(seed + 1, [p for p in people if p not in set(first)]),
    }
    return Story(samples, steps)


def _steps(chance: random.Random, n_steps: int) -> Iterator[Step]:
    ways: tuple[How, ...] = ("forget", "accept", "accept and apply")
    for place in range(n_steps):
        (how,) = chance.choices(ways, weights=(6, 1, 3))
        n_requests = 1 if how == "forget" else chance.randint(1, 3)
        asked = tuple(
            Asked(
                tuple(f"asks-{place}-{i}-{j}" for j in range(chance.randint(1, 3))),
                request=chance.randbytes(16).hex(),
            )
            for i in range(n_requests)
        )
        yield Step(how, asked, twice=chance.random() < 0.25)


def _sample(seed: int, people: list[str]) -> Sample:
    rng = np.random.default_rng(seed)
    owners = tuple(person for person in people for _ in range(ROWS_EACH))
    X = rng.normal(size=(len(owners), N_FEATURES))
    y = np.where(X[:, 0] + rng.normal(size=len(owners)) > 0.0, 1.0, -1.0)
    return Sample(X, y, owners)
