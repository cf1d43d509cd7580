# SPDX-License-Identifier: Apache-2.0
"""Telling: the acts in their order, with a line for each as it happens.

Acts: what an operator does with a registry, measured while it is done.

Each act returns what it saw as values. The noise, like the keys, is secret and another
in every run.
"""

import platform
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from time import perf_counter, time_ns
from typing import TypeAlias

from ..ledger import Receipt, check_receipt
from ..ledger.ledger import hash_entry
from ..linear_model import LogisticRegression
from ..plan import PlanningLooksAtData
from ..plan.report import WORDS
from ..promise.budget import Budget
from ..registry import ErasureRequest, Registry
from . import values
from .checks import ROW_NORM, Papers, People, Witness, patients
from .values import (
    Foreseen,
    Machine,
    Node,
    Opened,
    Outlook,
    Setting,
    Shipped,
    Stage,
    Step,
    Story,
    sketch,
)

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
        record, people = registry.models.record(MODEL), witness.people
        retrained = witness.retrained()
        accuracy = registry.model(MODEL).score(people.others, people.other_labels)
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
        report = registry.models.plan(MODEL)
    noised = {scored.sigma: scored.score for scored in report.noised}
    return Outlook(
        foreseen=tuple(
            Foreseen(
                f"{one.kind}: {WORDS[one.order]}",
                one.without_rows,
                one.with_rows,
                one.then,
            )
            for one in report.limits
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
    asked = [ErasureRequest((one,)) for one in ids]
    wall, clock = time_ns(), perf_counter()
    registry.requests.accept(asked)
    accepted = perf_counter() - clock
    registry.requests.apply()
    applied = perf_counter() - clock
    return Answer(tuple(one.request for one in asked), wall, accepted, applied)


def lived(registry: Registry, answer: Answer) -> tuple[Stage, ...]:
    """Return the life of the newest request, its receipt's check included.

    What happens inside the registry is dated by it, to the millisecond.
    """
    (request,) = answer.requests
    (model,) = registry.status().models
    completed = registry.requests.status(request).completed
    assert completed is not None  # or apply had raised
    clock = perf_counter()
    check_receipt(registry.requests.receipt(request) or "", registry.keys.public_pem())
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
    status = registry.models.ship(MODEL, path)
    return Shipped(path.name, status.number, path.stat().st_size)


def standing(registry: Registry, requests: Sequence[str]) -> int:
    """Return how many of these requests have a receipt that stands."""
    pem = registry.keys.public_pem()
    receipts = (registry.requests.receipt(request) for request in requests)
    return sum(check_receipt(text or "", pem).stands for text in receipts)


def papers(registry: Registry, answer: Answer) -> Papers:
    """Return what the operator hands out: one receipt of the batch among it.

    Not that of the last entry, whose way through the tree would be along its edge.
    """
    texts = [registry.requests.receipt(request) or "" for request in answer.requests]
    texts.sort(key=lambda text: Receipt.from_json(text).entry.sequence)
    chosen = texts[-2:][0]
    pem = registry.keys.public_pem()
    return Papers(chosen.encode(), registry.ledger.export(), pem.encode("ascii"))


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
    leaves = [hash_entry(entry) for entry in registry.ledger.entries()][
        : receipt.head.size
    ]
    return sketch(leaves, receipt.entry.sequence)


LIBRARIES = ("expunge", "numpy", "scipy", "scikit-learn")

Watch: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Script:
    """Which seed decides who asks, how many of them alone, how many together."""

    seed: int = 0
    n_alone: int = 100
    n_batch: int = 50


@dataclass(frozen=True, slots=True)
class Voice:
    """How to say something under a heading, and how to show progress."""

    say: Callable[[str, str], None]
    progress: Callable[[str], AbstractContextManager[Watch]]


def told(folder: Path, script: Script, voice: Voice) -> Story:
    """Play the demonstration in a folder, and return what was measured.

    Parameters
    ----------
    folder
        An empty one; registry, release, papers and forgeries are left in it.
    script, voice
        What to play, and how to speak of it.
    """
    clock = perf_counter()
    people = patients()
    asking = people.asking(script.seed, script.n_alone + script.n_batch)
    with Registry.create(folder / "registry") as registry:
        scene = fitted(registry, people)
        setting = _set(people, script)
        voice.say("People", values.people(setting))
        (model,) = registry.status().models
        voice.say("Contract", values.promise(model.certificate))
        outlook = foreseen(registry)
        voice.say("Plan", values.plan(outlook))
        with voice.progress("forgetting") as watch:
            one_by_one = _alone(scene, asking, script.n_alone, watch)
            scene, answer = one_by_one.scene.after(*asking[script.n_alone :])
            watch(len(asking), len(asking))
        given = papers(registry, answer)
        given.written(folder)
        (model,) = registry.status().models
        story = Story(
            setting=setting,
            outlook=outlook,
            certificate=model.certificate,
            steps=one_by_one.steps,
            batch=scene.measured(),
            n_batch=script.n_batch,
            life=one_by_one.life,
            shipped=shipped(registry, folder),
            opened=opened(given),
            forgeries=given.forgeries(),
            tree=proved(registry, given),
            n_entries=registry.status().ledger_size,
            n_receipts=standing(registry, (*one_by_one.requests, *answer.requests)),
            machine=machine(),
            seconds=perf_counter() - clock,
        )
    for heading, line in values.outcome(story):
        voice.say(heading, line)
    return story


@dataclass(frozen=True, slots=True)
class _Alone:
    """What came of the requests that were answered one by one."""

    scene: Scene
    steps: tuple[Step, ...]
    requests: tuple[str, ...]
    life: tuple[Stage, ...]


def _alone(scene: Scene, asking: list[int], n_alone: int, watch: Watch) -> _Alone:
    """Forget people one by one; follow the last of them from asking to the receipt."""
    steps = [scene.measured()]
    requests: list[str] = []
    life: tuple[Stage, ...] = ()
    for done, place in enumerate(asking[:n_alone], start=1):
        scene, answer = scene.after(place)
        if done == n_alone:
            life = lived(scene.registry, answer)
        steps.append(scene.measured())
        requests += answer.requests
        watch(done, len(asking))
    return _Alone(scene, tuple(steps), tuple(requests), life)


def _set(people: People, script: Script) -> Setting:
    """Return the setting in figures."""
    n_people, n_features = people.X.shape
    return Setting(n_people, len(people.others), n_features, ALPHA, script.seed)


def machine() -> Machine:
    """Return where this runs."""
    versions = [(name, version(name)) for name in LIBRARIES]
    python = ("Python", platform.python_version())
    return Machine(_processor(), platform.system(), (python, *versions))


def _processor() -> str:
    """Return the processor's name, from the kernel where it tells."""
    told_by = Path("/proc/cpuinfo")
    if told_by.is_file():
        for line in told_by.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
