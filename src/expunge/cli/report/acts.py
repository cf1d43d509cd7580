# SPDX-License-Identifier: Apache-2.0
"""Acts: what an operator does with a registry, measured while it is done.

Each act returns what it saw as values. The noise, like the keys, is secret and another
in every run.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from time import perf_counter, time_ns

from ...budget import Budget
from ...ledger import Receipt, check_receipt
from ...ledger.book import leaf
from ...linear_model import LogisticRegression
from ...plan import PlanningLooksAtData
from ...plan.report import WORDS
from ...registry import Asked, Registry
from .forging import Papers
from .people import ROW_NORM, People
from .tree import Node, sketch
from .values import Foreseen, Opened, Outlook, Shipped, Stage, Step
from .witness import Witness

MODEL = "cancer"
ALPHA = 0.01
# Fixed here, before any run: the data choose nothing.
CONTRACT = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, row_norm=ROW_NORM)
# From here on a verdict lists what is not covered, which the page does elsewhere.
LIMITS = " It says nothing about "


@dataclass(frozen=True, slots=True)
class Scene:
    """Where things stand: the registry, the witness, and how long the last act took."""

    registry: Registry
    witness: Witness
    seconds: float

    def measured(self) -> Step:
        """Return the model as it is now, held against retraining."""
        registry, witness = self.registry, self.witness
        record, people = registry.record(MODEL), witness.people
        retrained = witness.retrained()
        accuracy = registry.release(MODEL).score(people.others, people.other_labels)
        return Step(
            n_forgotten=len(witness.gone),
            distance=witness.distance(retrained),
            radius=witness.require_same(record),
            accuracy=float(accuracy),
            retrained_accuracy=retrained.accuracy,
            seconds=self.seconds,
            removal_seconds=record.timings["request"],
            retraining_seconds=retrained.seconds,
            decision=", ".join(record.decisions),
        )

    def after(self, *places: int) -> tuple["Scene", "Answer"]:
        """Forget these people, a request each, all answered at once."""
        ids = self.witness.people.ids
        answer = answered(self.registry, [ids[place] for place in places])
        witness = self.witness.after(*places)
        return replace(self, witness=witness, seconds=answer.applied), answer


def fitted(registry: Registry, people: People) -> Scene:
    """Fit a model under the contract and take it into the registry."""
    model = LogisticRegression(alpha=ALPHA, budget=CONTRACT)
    clock = perf_counter()
    registry.fit(MODEL, model, people.X, people.y, subjects=people.ids)
    seconds = perf_counter() - clock
    return Scene(registry, Witness.of(people, ALPHA, CONTRACT), seconds)


def foreseen(registry: Registry) -> Outlook:
    """Plan on the rows kept, and return what matters of it."""
    with warnings.catch_warnings():
        # The page says so in a sentence; nothing is chosen from the plan.
        warnings.simplefilter("ignore", PlanningLooksAtData)
        report = registry.plan(MODEL)
    noised = {scored.sigma: scored.score for scored in report.noised}
    return Outlook(
        foreseen=tuple(
            Foreseen(
                f"{one.kind}: {WORDS[one.order]}",
                one.without_rows,
                one.with_rows,
                one.then,
            )
            for one in report.reaches
        ),
        allowed=report.allowed,
        noise_free=report.noise_free.score,
        released=noised[report.budget.sigma],
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """Requests, when they were asked, and how many seconds later they were answered.

    ``asked`` is in nanoseconds since 1970, as the registry's own times are to be held
    against it; ``accepted`` and ``applied`` are by the clock that cannot be set.
    """

    requests: tuple[str, ...]
    asked: int
    accepted: float
    applied: float


def answered(registry: Registry, ids: Sequence[str]) -> Answer:
    """Ask for each of these people and see it done."""
    asked = [Asked((one,)) for one in ids]
    wall, clock = time_ns(), perf_counter()
    registry.accept(asked)
    accepted = perf_counter() - clock
    registry.apply()
    applied = perf_counter() - clock
    return Answer(tuple(one.request for one in asked), wall, accepted, applied)


def lived(registry: Registry, answer: Answer) -> tuple[Stage, ...]:
    """Return the life of the newest request, its receipt's check included.

    What happens inside the registry is dated by it, to the millisecond.
    """
    (request,) = answer.requests
    (model,) = registry.status().models
    completed = registry.request(request).completed
    assert completed is not None  # or apply had raised
    clock = perf_counter()
    check_receipt(registry.receipt(request) or "", registry.public_pem())
    checked = answer.applied + perf_counter() - clock
    dated = [
        1e-9 * (1_000_000 * time - answer.asked) for time in (model.made, completed)
    ]
    inside = [min(max(time, answer.accepted), answer.applied) for time in dated]
    ends = list(accumulate([answer.accepted, *inside, answer.applied, checked], max))
    names = (
        "accepted, on disk",
        "removed, noised",
        "committed, erased",
        "entered, signed",
        "receipt checked",
    )
    begins = [0.0, *ends[:-1]]
    return tuple(map(Stage, names, begins, ends))


def shipped(registry: Registry, folder: Path) -> Shipped:
    """Let the newest release leave as a file."""
    path = folder / f"{MODEL}.safetensors"
    status = registry.ship(MODEL, path)
    return Shipped(path.name, status.number, path.stat().st_size)


def standing(registry: Registry, requests: Sequence[str]) -> int:
    """Return how many of these requests have a receipt that stands."""
    pem = registry.public_pem()
    receipts = (registry.receipt(request) for request in requests)
    return sum(check_receipt(text or "", pem).stands for text in receipts)


def papers(registry: Registry, answer: Answer) -> Papers:
    """Return what the operator hands out: one receipt of the batch among it.

    Not that of the last entry, whose way through the tree would be along its edge.
    """
    texts = [registry.receipt(request) or "" for request in answer.requests]
    texts.sort(key=lambda text: Receipt.from_json(text).entry.sequence)
    chosen = texts[-2:][0]
    pem = registry.public_pem()
    return Papers(chosen.encode("ascii"), registry.export(), pem.encode("ascii"))


def opened(given: Papers) -> Opened:
    """Check the receipt with the public key alone."""
    verdict = check_receipt(given.receipt, given.public_pem)
    return Opened(
        stands=verdict.stands,
        findings=verdict.findings,
        says=verdict.says.partition(LIMITS)[0],
        not_covered=verdict.not_covered,
        n_bytes=len(given.receipt),
    )


def proved(registry: Registry, given: Papers) -> Node:
    """Return the ledger's tree as the receipt's proof goes through it."""
    receipt = Receipt.from_json(given.receipt)
    leaves = [leaf(entry) for entry in registry.log()][: receipt.head.size]
    return sketch(leaves, receipt.entry.sequence)
