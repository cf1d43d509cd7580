# SPDX-License-Identifier: Apache-2.0
"""The demo run: what an operator does with a registry, step by step, and measured.

``run_demo`` comes first and calls the steps in order. Each step returns what it
measured as a value. Noise and keys are secret and differ in every run.
"""

import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from time import perf_counter, time_ns

from ..display.progress import OnProgress
from ..ledger import Receipt, check_receipt
from ..ledger.ledger import hash_entry
from ..linear_model import LogisticRegression
from ..promise.budget import Budget
from ..registry import Registry, Request
from . import values
from .checks import ROW_NORM, Patients, PublicFiles, ReplayCheck, load_patients
from .values import (
    CheckedReceipt,
    DemoResult,
    DemoSetup,
    Machine,
    ReleaseFile,
    Stage,
    Step,
    TreeNode,
)

MODEL = "cancer"
ALPHA = 0.01
# Fixed here, before any run, so that nothing is chosen from the data.
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, row_norm=ROW_NORM)
# A verdict ends with what is not covered, which the page lists separately.
NOT_COVERED = " It says nothing about "
LIBRARIES = ("expunge", "numpy", "scipy", "scikit-learn")
STAGES = (
    "accepted, on disk",
    "removed, noised",
    "committed, erased",
    "logged, signed",
    "receipt checked",
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The seed that decides who asks, and how many ask alone and in a batch."""

    seed: int = 0
    n_alone: int = 100
    n_batch: int = 50


@dataclass(frozen=True, slots=True)
class DemoOutput:
    """How to print a line under a heading, and how to show progress."""

    say: Callable[[str, str], None]
    progress: Callable[[str], AbstractContextManager[OnProgress]]


def run_demo(folder: Path, options: DemoOptions, *, output: DemoOutput) -> DemoResult:
    """Run the demo in a folder, and return what was measured.

    Parameters
    ----------
    folder
        An empty folder; the registry, the release and all files are left in it.
    options, output
        What to run, and where to report it.
    """
    clock = perf_counter()
    patients = load_patients()
    asking = patients.choose_requesters(options.seed, options.n_alone + options.n_batch)
    with Registry.create(folder / "registry") as registry:
        state = fit_model(registry, patients)
        setup = _make_setup(patients, options)
        output.say("People", values.describe_people(setup))
        (model,) = registry.status().models
        output.say("Budget", values.describe_budget(model.certificate))
        with output.progress("forgetting") as report:
            one_by_one = _forget_one_by_one(
                state, asking, n_alone=options.n_alone, report=report
            )
            state, batch = one_by_one.state.forget(*asking[options.n_alone :])
            report(len(asking), len(asking))
        public = collect_public_files(registry, batch)
        public.write(folder)
        (model,) = registry.status().models
        result = DemoResult(
            setup=setup,
            certificate=model.certificate,
            steps=one_by_one.steps,
            batch=state.measure(),
            n_batch=options.n_batch,
            timeline=one_by_one.timeline,
            release_file=write_release(registry, folder),
            receipt=read_receipt(public),
            tampered=public.check_tampered(),
            tree=build_receipt_tree(registry, public),
            n_entries=registry.status().ledger_size,
            n_receipts=count_receipts(
                registry, (*one_by_one.requests, *batch.requests)
            ),
            machine=describe_machine(),
            seconds=perf_counter() - clock,
        )
    for heading, line in values.summarise(result):
        output.say(heading, line)
    return result


@dataclass(frozen=True, slots=True)
class DemoState:
    """The registry, its replay, and how long the last answer took."""

    registry: Registry
    replay: ReplayCheck
    seconds: float

    def measure(self) -> Step:
        """Compare the model as it is now with retraining."""
        registry, replay = self.registry, self.replay
        record, patients = registry.models.record(MODEL), replay.patients
        retrained = replay.retrain()
        released = registry.model(MODEL)
        accuracy = released.score(patients.held_out, patients.held_out_labels)
        return Step(
            n_forgotten=len(replay.gone),
            distance=replay.measure_distance(retrained),
            radius=replay.check_record(record),
            accuracy=float(accuracy),
            retrained_accuracy=retrained.accuracy,
            seconds=self.seconds,
            removal_seconds=record.timings["request"],
            retraining_seconds=retrained.seconds,
            decision=", ".join(record.decisions),
        )

    def forget(self, *positions: int) -> tuple["DemoState", "AnsweredRequests"]:
        """Forget these people, with a request each, all answered at once."""
        ids = self.replay.patients.ids
        answered = apply_requests(self.registry, [ids[i] for i in positions])
        replay = self.replay.replay_removal(*positions)
        return replace(self, replay=replay, seconds=answered.applied), answered


def fit_model(registry: Registry, patients: Patients) -> DemoState:
    """Fit a model under the budget and put it into the registry."""
    model = LogisticRegression(alpha=ALPHA, budget=BUDGET)
    clock = perf_counter()
    registry.fit(MODEL, model, patients.X, patients.y, subjects=patients.ids)
    seconds = perf_counter() - clock
    replay = ReplayCheck.start(patients, alpha=ALPHA, budget=BUDGET)
    return DemoState(registry, replay, seconds)


@dataclass(frozen=True, slots=True)
class AnsweredRequests:
    """Requests, when they were made, and how many seconds later they were answered.

    ``made`` is in nanoseconds since 1970, comparable with the registry's own times;
    ``accepted`` and ``applied`` come from a clock that cannot be set back.
    """

    requests: tuple[str, ...]
    made: int
    accepted: float
    applied: float


def apply_requests(registry: Registry, ids: Sequence[str]) -> AnsweredRequests:
    """Make a request for each of these people, and apply them together."""
    asked = [Request((one,)) for one in ids]
    made, clock = time_ns(), perf_counter()
    registry.requests.accept(asked)
    accepted = perf_counter() - clock
    registry.requests.apply()
    applied = perf_counter() - clock
    return AnsweredRequests(
        tuple(one.request for one in asked), made, accepted, applied
    )


@dataclass(frozen=True, slots=True)
class _OneByOne:
    """The outcome of the requests that were answered one by one."""

    state: DemoState
    steps: tuple[Step, ...]
    requests: tuple[str, ...]
    timeline: tuple[Stage, ...]


def _forget_one_by_one(
    state: DemoState, asking: Sequence[int], *, n_alone: int, report: OnProgress
) -> _OneByOne:
    """Forget people one by one, and follow the last of them up to the receipt."""
    steps = [state.measure()]
    requests: list[str] = []
    timeline: tuple[Stage, ...] = ()
    for done, position in enumerate(asking[:n_alone], start=1):
        state, answered = state.forget(position)
        if done == n_alone:
            timeline = trace_request(state.registry, answered)
        steps.append(state.measure())
        requests += answered.requests
        report(done, len(asking))
    return _OneByOne(state, tuple(steps), tuple(requests), timeline)


def trace_request(registry: Registry, answered: AnsweredRequests) -> tuple[Stage, ...]:
    """Check the receipt of the newest request, and return the request's timeline.

    What happens inside the registry is dated by the registry, to the millisecond.
    """
    (request,) = answered.requests
    (model,) = registry.status().models
    completed = registry.requests.status(request).completed
    assert completed is not None  # otherwise apply would have raised
    clock = perf_counter()
    check_receipt(registry.requests.receipt(request) or "", registry.keys.public_pem())
    checked = answered.applied + perf_counter() - clock
    dated = [
        1e-9 * (1_000_000 * time - answered.made) for time in (model.made, completed)
    ]
    # Milliseconds are coarse: keep the registry's times between ours, and in order.
    inside = [min(max(time, answered.accepted), answered.applied) for time in dated]
    stops = [answered.accepted, *inside, answered.applied, checked]
    stops = list(accumulate(stops, max))
    return tuple(map(Stage, STAGES, [0.0, *stops[:-1]], stops))


def write_release(registry: Registry, folder: Path) -> ReleaseFile:
    """Write the newest release to a file."""
    path = folder / f"{MODEL}.safetensors"
    release = registry.models.ship(MODEL, path)
    return ReleaseFile(path.name, release.number, path.stat().st_size)


def count_receipts(registry: Registry, requests: Sequence[str]) -> int:
    """Return how many of these requests have a valid receipt."""
    pem = registry.keys.public_pem()
    receipts = (registry.requests.receipt(request) for request in requests)
    return sum(check_receipt(text or "", pem).valid for text in receipts)


def collect_public_files(registry: Registry, answered: AnsweredRequests) -> PublicFiles:
    """Return what the operator hands out, with one receipt of the batch.

    Not the receipt of the last entry: its proof would run along the tree's edge.
    """
    texts = [registry.requests.receipt(request) or "" for request in answered.requests]
    texts.sort(key=lambda text: Receipt.from_json(text).entry.sequence)
    chosen = texts[-2:][0]
    pem = registry.keys.public_pem()
    return PublicFiles(chosen.encode(), registry.ledger.export(), pem.encode("ascii"))


def read_receipt(public: PublicFiles) -> CheckedReceipt:
    """Check the receipt with only the public key."""
    verdict = check_receipt(public.receipt, public.public_pem)
    return CheckedReceipt(
        valid=verdict.valid,
        findings=verdict.findings,
        says=verdict.says.partition(NOT_COVERED)[0],
        not_covered=verdict.not_covered,
        n_bytes=len(public.receipt),
    )


def build_receipt_tree(registry: Registry, public: PublicFiles) -> TreeNode:
    """Return the ledger's tree with the proof that the receipt contains."""
    receipt = Receipt.from_json(public.receipt)
    leaves = [hash_entry(entry) for entry in registry.ledger.entries()][
        : receipt.head.size
    ]
    return values.build_tree(leaves, receipt.entry.sequence)


def _make_setup(patients: Patients, options: DemoOptions) -> DemoSetup:
    n_people, n_features = patients.X.shape
    return DemoSetup(n_people, len(patients.held_out), n_features, ALPHA, options.seed)


def describe_machine() -> Machine:
    """Return the processor, the system and the versions of libraries."""
    versions = [(name, version(name)) for name in LIBRARIES]
    python = ("Python", platform.python_version())
    return Machine(_read_processor_name(), platform.system(), (python, *versions))


def _read_processor_name() -> str:
    """Return the processor's name, from the Linux kernel where it states one."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
