# SPDX-License-Identifier: Apache-2.0
"""A story: models, the people in them, what they ask for, and commands.

The budget is so generous that no change needs the rows: then one batch equals the
stream, whichever way crashes cut it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expunge import Budget, LinearRegression, LogisticRegression
from expunge.core.arrays import Matrix, Vector
from expunge.registry import Registry, Request, RequestRule
from expunge.rights.standing import RIGHTS

N_FEATURES = 4
ROWS_EACH = 2
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=100.0)
FIRST, NEW = ("churn", "spend"), ("third", "fourth")

REQUESTS = ("forget", "accept", "accept and apply")
APPLYING = ("forget", "accept and apply")
COMMANDS = (
    "fit",
    "refit",
    "add",
    "remove",
    "reanchor",
    "ship",
    "withdraw",
    "cancel",
    "refuse",
    "extend",
    "rotate signing key",
    "rotate tag key",
    "readmit",
    "look",
    "back up",
    "restore",
)
FITS = ("fit", "refit")


@dataclass(frozen=True)
class Sample:
    """Rows of one model, with their owners."""

    X: Matrix
    y: Vector
    owners: tuple[str, ...]

    def of(self, people: Collection[str]) -> "Sample":
        """Return the rows of these people alone."""
        stay = np.array([owner in people for owner in self.owners])
        owners = tuple(owner for owner in self.owners if owner in people)
        return Sample(self.X[stay], self.y[stay], owners)

    def by_owner(self) -> "dict[str, Sample]":
        """Return the rows of each person."""
        return {owner: self.of((owner,)) for owner in dict.fromkeys(self.owners)}


NO_ROWS = Sample(np.zeros((0, N_FEATURES)), np.zeros(0), ())


def join_samples(samples: Iterable[Sample]) -> Sample:
    """Return all rows of some samples."""
    found = list(samples) or [NO_ROWS]
    return Sample(
        np.concatenate([one.X for one in found]),
        np.concatenate([one.y for one in found]),
        tuple(owner for one in found for owner in one.owners),
    )


def draw_sample(seed: int, people: Iterable[str]) -> Sample:
    """Return rows for people, a few for each."""
    rng = np.random.default_rng(seed)
    owners = tuple(person for person in people for _ in range(ROWS_EACH))
    X = rng.normal(size=(len(owners), N_FEATURES))
    y = np.where(X[:, 0] + rng.normal(size=len(owners)) > 0.0, 1.0, -1.0)
    return Sample(X, y, owners)


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
    strangers
        Whether they may be about people of whom nothing is held.
    model, people
        Of a command, what it is about: whose rows are fitted, or who comes back.
    request, reason
        Of a command about a request that waits: which one, and why.
    rows
        Rows that are added.
    """

    place: int
    how: str
    asked: tuple[Request, ...] = ()
    twice: bool = False
    strangers: bool = False
    model: str = ""
    people: tuple[str, ...] = ()
    request: str = ""
    reason: str = ""
    rows: Sample = NO_ROWS


@dataclass(frozen=True)
class Story:
    """What happens, in order; ``FIRST`` of the samples are fitted at the beginning.

    With ``four_eyes`` two people must approve every request, and somebody must have
    checked who asks.
    """

    samples: Mapping[str, Sample]
    steps: tuple[Step, ...]
    four_eyes: bool = False

    def requests(self) -> dict[str, Request]:
        """Return every request by its id."""
        return {one.request: one for step in self.steps for one in step.asked}

    def leaving(self) -> frozenset[str]:
        """Return everybody who asks for something."""
        asked = self.requests().values()
        return frozenset(person for one in asked for person in one.subjects)

    def everybody(self) -> frozenset[str]:
        """Return everybody who has rows anywhere, or asks for something."""
        added = {owner for step in self.steps for owner in step.rows.owners}
        samples = self.samples.values()
        return self.leaving() | added | {one for some in samples for one in some.owners}

    def all_rows(self) -> Iterable[Sample]:
        """Yield all rows that a registry may ever have been given, some twice."""
        yield from self.samples.values()
        yield from (step.rows for step in self.steps)
        for one in self.requests().values():
            yield from (as_sample(new, one.subjects[0]) for new in one.rows.values())

    def cancelled(self) -> frozenset[str]:
        """Return the requests that are taken back."""
        return frozenset(step.request for step in self.steps if step.how == "cancel")

    def holding(self, person: str) -> tuple[str, ...]:
        """Return the models that a person is in at the beginning."""
        return tuple(name for name in FIRST if person in self.samples[name].owners)

    def until(self, place: int) -> "Story":
        """Return the story up to a step, at which all that waits can be applied.

        That is an earlier one where a request waits that is cancelled, refused or
        extended later.
        """
        changed = {step.request for step in self.steps[place:] if step.request}
        asked = (
            i
            for i, step in enumerate(self.steps[:place])
            if any(one.request in changed for one in step.asked)
        )
        first = next(asked, None)
        if first is not None:
            return self.until(first)
        return Story(self.samples, self.steps[:place], self.four_eyes)

    def begin(self, folder: Path, url: str | None) -> None:
        """Make the registry and fit its models."""
        with Registry.create(folder, url=url) as registry:
            for name in FIRST:
                sample = self.samples[name]
                registry.fit(
                    name, unfitted(name), sample.X, sample.y, subjects=sample.owners
                )
            if self.four_eyes:
                made = [
                    registry.access.create(who, ["operate"], owner=who)[1]
                    for who in ("ada", "bob")
                ]
                tokens_beside(folder).write_text("\n".join(made))
                rule = RequestRule(identity=True, four_eyes=True)
                for right in RIGHTS:
                    registry.rules.set(right, rule)


def tokens_beside(folder: Path) -> Path:
    """Return the file of the tokens of the people who approve."""
    return folder.with_name("tokens")


def as_sample(new: Any, person: str) -> Sample:
    """Return the new rows of a rectification as a sample."""
    return Sample(new.X, new.y, (person,) * len(new.y))


def unfitted(name: str) -> Any:
    """Return the estimator of a model."""
    kind = LogisticRegression if name == "churn" else LinearRegression
    return kind(alpha=0.1, penalize_intercept=True, budget=BUDGET)
