# SPDX-License-Identifier: Apache-2.0
"""Values: everything that one run of the demonstration measured.

The page, the plots and the JSON are pure functions of a ``Story``. It names nobody, but
distances and radii depend on the people who left: it belongs to the operator.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from statistics import median
from typing import Any

from ...certificate import Certificate
from .tree import Node


@dataclass(frozen=True, slots=True)
class Setting:
    """Whose data, how many of them, and what is fitted.

    Parameters
    ----------
    n_people, n_held_out, n_features
        People in the model, people in no model, measurements of each.
    alpha
        Factor of the penalty.
    seed
        Decides who asks to be forgotten, and in which order.
    """

    n_people: int
    n_held_out: int
    n_features: int
    alpha: float
    seed: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the plan says of one kind of removal."""

    kind: str
    without_rows: int
    with_rows: int
    then: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan in short: how many may go, and what the noise costs."""

    foreseen: tuple[Foreseen, ...]
    allowed: float
    noise_free: float
    released: float


@dataclass(frozen=True, slots=True)
class Step:
    """The model after one answer of the registry, held against retraining.

    Parameters
    ----------
    n_forgotten
        People gone so far; 0 is the fit itself.
    distance, radius
        From the noise-free model to scikit-learn's on the remaining people, and the
        bound on it that stands in the private record.
    accuracy, retrained_accuracy
        On people in no model: of the release, and of scikit-learn's model.
    seconds
        The whole answer: accepted, applied, erased, entered and signed.
    removal_seconds, retraining_seconds
        The removal alone, from the private record, and scikit-learn's fit alone.
    decision
        What the registry did to keep the contract.
    """

    n_forgotten: int
    distance: float
    radius: float
    accuracy: float
    retrained_accuracy: float
    seconds: float
    removal_seconds: float
    retraining_seconds: float
    decision: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch in the life of a request, in seconds since it was asked."""

    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Opened:
    """A receipt as somebody with the public key alone reads it."""

    stands: bool
    findings: tuple[str, ...]
    says: str
    not_covered: tuple[str, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Forgery:
    """A copy that was tampered with: its file, what was done, what the check says."""

    name: str
    done: str
    stands: bool
    says: str


@dataclass(frozen=True, slots=True)
class Shipped:
    """A release that left as a file."""

    name: str
    number: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the times were measured."""

    processor: str
    system: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One run, in the order in which it happened.

    Parameters
    ----------
    setting, outlook
        Data and model, and the plan.
    certificate
        Of the last release: the contract, and what is promised.
    steps
        The fit, and every request that was answered alone.
    batch, n_batch
        The answer to so many requests at once.
    life
        One request from asking to checking the receipt.
    shipped, opened, forgeries
        What left, what stands, and what does not.
    tree
        The end of the ledger, with the proof in the receipt.
    n_entries, n_receipts
        Entries of the ledger, and how many requests have a receipt that stands.
    machine, seconds
        Where, and how long all of it took.
    """

    setting: Setting
    outlook: Outlook
    certificate: Certificate
    steps: tuple[Step, ...]
    batch: Step
    n_batch: int
    life: tuple[Stage, ...]
    shipped: Shipped
    opened: Opened
    forgeries: tuple[Forgery, ...]
    tree: Node
    n_entries: int
    n_receipts: int
    machine: Machine
    seconds: float

    @property
    def fit(self) -> Step:
        """The model before anybody left."""
        return self.steps[0]

    @property
    def requests(self) -> tuple[Step, ...]:
        """The requests answered alone."""
        return self.steps[1:]

    @property
    def answers(self) -> tuple[Step, ...]:
        """All steps, the batch at the end."""
        return (*self.steps, self.batch)

    @property
    def typical(self) -> "Timings":
        """What a person forgotten costs, by every way that was timed."""
        return Timings(
            alone=median(step.seconds for step in self.requests),
            in_batch=self.batch.seconds / self.n_batch,
            removal=median(step.removal_seconds for step in self.requests),
            retraining=median(step.retraining_seconds for step in self.requests),
        )

    @property
    def budget(self) -> float:
        """How far from retraining the contract lets a model be."""
        budget = self.certificate.radius_budget
        assert budget is not None  # the demonstration has a contract
        return budget

    def failures(self) -> tuple[str, ...]:
        """Return what did not come out as promised; nothing if all did."""
        answers, tau = self.answers, self.certificate.tau or 0.0
        found = {
            "a model is farther from retraining than its certified radius": any(
                step.distance > step.radius for step in answers
            ),
            "a radius does not fit the contract": any(
                step.radius + tau > self.budget for step in answers
            ),
            "a request has no receipt that stands": not self.opened.stands
            or self.n_receipts < self.batch.n_forgotten,
            "a forgery was taken for genuine": any(
                forgery.stands for forgery in self.forgeries
            ),
        }
        return tuple(failure for failure, is_so in found.items() if is_so)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dumps``."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Timings:
    """Median seconds for one person.

    ``alone`` and ``in_batch`` are whole answers of the registry; ``removal`` and
    ``retraining`` are the arithmetic without anything being written.
    """

    alone: float
    in_batch: float
    removal: float
    retraining: float


def _plain(value: Any) -> Any:
    """Return a part of the story as JSON data."""
    if isinstance(value, Certificate):
        return json.loads(value.to_json())
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    return value
