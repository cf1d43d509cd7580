# SPDX-License-Identifier: Apache-2.0
"""The demo, from top to bottom: what an operator does with a registry, and measures.

A registry never shows its noise-free model. But its answers follow from the rows and
the requests alone, so the demo computes them a second time and retrains with
scikit-learn on the people who remain. If the second model has the radius that stands in
the registry's private record, both are the same model.

The result names nobody, but distances, radii and times depend on the people who were
forgotten, so it belongs to the operator. Noise and keys are secret and differ in every
run.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from functools import partial
from hashlib import blake2b
from math import isclose, sqrt
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ..core.arrays import Matrix
from ..core.losses import Logistic
from ..core.objective import Objective
from ..core.penalties import L2
from ..display.progress import OnProgress
from ..ledger import check_export, check_receipt
from ..linear_model import LogisticRegression
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.certificate import Certificate
from ..registry import Registry, Request

MODEL = "cancer"
N_HELD_OUT = 169
ALPHA = 0.01
# Every row has length one, and the intercept adds a column of ones. The declared bound
# is a little larger so that it also holds in floating point.
ROW_NORM = sqrt(2.0) + 1e-9
# Fixed here, before any run, so that nothing is chosen from the data.
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, row_norm=ROW_NORM)

# scikit-learn's tolerance: far below any distance that is measured.
TOLERANCE = 1e-10
# The last bits of a sum depend on the order of its rows, and so do those of a radius.
SAME_RADIUS = 1e-6

RECEIPT, EXPORT, PUBLIC_KEYS = "receipt.json", "ledger.jsonl", "public.pem"
TAMPERED_RECEIPT = "forged-receipt.json"
SHORTENED_EXPORT, ALTERED_EXPORT = "shortened-ledger.jsonl", "altered-ledger.jsonl"
# Entries of requests state a number of people, which is what gets changed.
N_PEOPLE = b'"n_subjects":'


@dataclass(frozen=True, slots=True)
class Patients:
    """People in the model, X (n, d) with labels and ids, and people held out."""

    X: Matrix
    y: Any
    ids: tuple[str, ...]
    held_out: Matrix
    held_out_labels: Any


def load_patients() -> Patients:
    """Return the people in scikit-learn's breast cancer data, one row each.

    Features take their scale from the people held out, and each row is then divided by
    its own length, which bounds everyone's influence alike. So nothing but the model
    is fitted on the people in it.
    """
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = shuffle("split", len(X))
    outside, inside = order[:N_HELD_OUT], sorted(order[N_HELD_OUT:])
    X = (X - X[outside].mean(axis=0)) / X[outside].std(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ids = tuple(f"patient-{position:04d}" for position in inside)
    return Patients(X[inside], y[inside], ids, X[outside], y[outside])


def shuffle(word: str, n: int) -> list[int]:
    """Return 0 to n - 1 in an order that depends on the word alone."""
    return sorted(range(n), key=lambda i: blake2b(f"{word} {i}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Step:
    """The model after one answer of the registry, compared with retraining.

    Parameters
    ----------
    n_forgotten
        People forgotten so far; 0 is the fit itself.
    distance, radius
        Distance from the noise-free model to scikit-learn's model of the remaining
        people, and the bound on it in the private record.
    accuracy, retrained_accuracy
        On people in no model: of the release, and of scikit-learn's model.
    seconds
        Time for the whole answer: accepted, applied, erased, logged and signed.
    removal_seconds, retraining_seconds
        Time for the removal alone, from the private record, and for scikit-learn's fit.
    decision
        What the registry did to stay within the budget.
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
class CheckedFile:
    """A file as someone with only the public key reads it."""

    name: str
    change: str  # what was tampered with, if anything
    valid: bool
    says: str
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything that one run measured.

    Parameters
    ----------
    seed, n_people, n_features
        Who asks to be forgotten, and how many people and measurements there are.
    certificate
        Of the last release; it states the budget.
    steps
        The fit, then every request answered on its own.
    batch, n_batch
        The answer to ``n_batch`` requests at once.
    release
        The number of the release that was written to a file.
    receipt, tampered
        One receipt, and copies that were tampered with.
    n_entries, n_receipts
        Entries in the ledger, and how many requests have a valid receipt.
    seconds
        How long the run took.
    """

    seed: int
    n_people: int
    n_features: int
    certificate: Certificate
    steps: tuple[Step, ...]
    batch: Step
    n_batch: int
    release: int
    receipt: CheckedFile
    tampered: tuple[CheckedFile, ...]
    n_entries: int
    n_receipts: int
    seconds: float

    @property
    def requests(self) -> tuple[Step, ...]:
        """The requests answered on their own."""
        return self.steps[1:]

    @property
    def answers(self) -> tuple[Step, ...]:
        """All steps, the batch last."""
        return (*self.steps, self.batch)

    @property
    def radius_budget(self) -> float:
        """How far from retraining the budget lets a model be."""
        budget = self.certificate.radius_budget
        assert budget is not None  # the demo always has a budget
        return budget

    @property
    def times(self) -> dict[str, float]:
        """Median seconds for one person: whole answers, then the arithmetic alone."""
        return {
            "whole request, on its own": median(one.seconds for one in self.requests),
            f"whole request, in a batch of {self.n_batch}": self.batch.seconds
            / self.n_batch,
            "removal alone": median(one.removal_seconds for one in self.requests),
            "scikit-learn's fit alone": median(
                one.retraining_seconds for one in self.requests
            ),
        }

    def find_failures(self) -> tuple[str, ...]:
        """Return what did not come out as promised; empty if everything did."""
        answers, tau = self.answers, self.certificate.tau or 0.0
        checks = {
            "a model is farther from retraining than its certified radius": any(
                step.distance > step.radius for step in answers
            ),
            "a radius exceeds the budget": any(
                step.radius + tau > self.radius_budget for step in answers
            ),
            "a request has no valid receipt": not self.receipt.valid
            or self.n_receipts < self.batch.n_forgotten,
            "a tampered file was accepted as genuine": any(
                copy.valid for copy in self.tampered
            ),
        }
        return tuple(failure for failure, failed in checks.items() if failed)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dumps``."""

        def plain(value: Any) -> Any:
            if isinstance(value, Certificate):
                return json.loads(value.to_json())
            if isinstance(value, tuple):
                return [plain(part) for part in value]
            return asdict(value) if isinstance(value, Step | CheckedFile) else value

        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}


def run_demo(
    folder: Path,
    progress: Callable[[str], AbstractContextManager[OnProgress]],
    *,
    seed: int = 0,
    n_alone: int = 100,
    n_batch: int = 50,
) -> DemoResult:
    """Run the demo in a folder, and return what was measured.

    Parameters
    ----------
    folder
        An empty folder; the registry, the release and all files are left in it.
    progress
        Shows a bar under a label.
    seed, n_alone, n_batch
        Decides who asks; and how many ask one by one, and then together.
    """
    from sklearn.linear_model import LogisticRegression as Retrained

    clock = perf_counter()
    patients = load_patients()
    asking = shuffle(f"asks {seed}", len(patients.ids))[: n_alone + n_batch]
    objective = Objective(Logistic(), L2(), ALPHA, intercept=True)
    rows = objective.rows(patients.X, 2.0 * patients.y - 1.0)
    gone: list[int] = []
    requests: list[str] = []

    with Registry.create(folder / "registry") as registry:
        # 1. Fit a model under the budget and put it into the registry.
        fitting = perf_counter()
        registry.fit(
            MODEL,
            LogisticRegression(alpha=ALPHA, budget=BUDGET),
            patients.X,
            patients.y,
            subjects=patients.ids,
        )
        fit_seconds = perf_counter() - fitting
        replay = PrivateModel.fit(objective, rows, budget=BUDGET)

        def measure(seconds: float) -> Step:
            """Compare the model as it is now with retraining."""
            record = registry.models.record(MODEL)
            radius = replay.answer.radius.value
            require_same_radius(record.radius, radius)
            stays = np.ones(len(patients.ids), dtype=bool)
            stays[gone] = False
            retrained = Retrained(
                C=1.0 / (ALPHA * stays.sum()),
                solver="newton-cholesky",
                tol=TOLERANCE,
                max_iter=1000,
            )
            retraining = perf_counter()
            retrained.fit(patients.X[stays], patients.y[stays])
            retraining_seconds = perf_counter() - retraining
            theta = np.append(retrained.coef_[0], retrained.intercept_)
            others = patients.held_out, patients.held_out_labels
            return Step(
                n_forgotten=len(gone),
                distance=float(np.linalg.norm(replay.answer.draft.theta - theta)),
                radius=radius,
                accuracy=float(registry.model(MODEL).score(*others)),
                retrained_accuracy=float(retrained.score(*others)),
                seconds=seconds,
                removal_seconds=record.timings["request"],
                retraining_seconds=retraining_seconds,
                decision=", ".join(record.decisions),
            )

        def forget(positions: Sequence[int]) -> float:
            """Forget people, with a request each; return the seconds it took."""
            nonlocal replay
            asked = [Request((patients.ids[i],)) for i in positions]
            begin = perf_counter()
            registry.requests.accept(asked)
            registry.requests.apply()
            seconds = perf_counter() - begin
            requests.extend(one.request for one in asked)
            gone.extend(positions)
            replay = replay.forget(
                rows.take(np.array(sorted(positions))),
                remaining=partial(rows.without, np.array(gone)),
                n_subjects=len(positions),
            )
            return seconds

        # 2. People leave, one by one and then in a batch.
        steps = [measure(fit_seconds)]
        with progress("forgetting") as report:
            for done, position in enumerate(asking[:n_alone], start=1):
                steps.append(measure(forget([position])))
                report(done, len(asking))
            batch = measure(forget(asking[n_alone:]))
            report(len(asking), len(asking))

        # 3. Hand out a release, receipts and the ledger; check them with the key alone.
        shipped = registry.models.ship(MODEL, folder / f"{MODEL}.safetensors")
        pem = registry.keys.public_pem()
        receipts = [registry.requests.receipt(request) or "" for request in requests]
        files = {
            RECEIPT: receipts[-1].encode(),
            EXPORT: registry.ledger.export(),
            PUBLIC_KEYS: pem.encode("ascii"),
        }
        copies = make_tampered(files[RECEIPT], files[EXPORT])
        for name, content in files.items():
            (folder / name).write_bytes(content)
        for name, (_, content) in copies.items():
            (folder / name).write_bytes(content)
        tampered = []
        for name, (change, content) in copies.items():
            check = check_receipt if "receipt" in name else check_export
            verdict = check(content, pem)
            tampered.append(CheckedFile(name, change, verdict.valid, verdict.says))
        genuine = check_receipt(files[RECEIPT], pem)
        status = registry.status()
        return DemoResult(
            seed=seed,
            n_people=len(patients.ids),
            n_features=patients.X.shape[1],
            certificate=status.models[0].certificate,
            steps=tuple(steps),
            batch=batch,
            n_batch=n_batch,
            release=shipped.number,
            receipt=CheckedFile(
                RECEIPT,
                "",
                genuine.valid,
                # A verdict ends with what is not covered, which is listed apart.
                genuine.says.partition(" It says nothing about ")[0],
                genuine.not_covered,
            ),
            tampered=tuple(tampered),
            n_entries=status.ledger_size,
            n_receipts=count_valid(receipts, pem),
            seconds=perf_counter() - clock,
        )


def require_same_radius(recorded: float | None, found: float) -> None:
    """Raise if the private record is of another model than the demo's own."""
    if recorded is None or not isclose(recorded, found, rel_tol=SAME_RADIUS):
        raise RuntimeError(
            "the replay's radius is not the one in the private record, so they are "
            "of different models; this is a bug in expunge, please report it"
        )


def count_valid(receipts: Sequence[str], pem: str) -> int:
    """Return how many receipts are valid under a key."""
    return sum(check_receipt(text, pem).valid for text in receipts)


def make_tampered(receipt: bytes, export: bytes) -> dict[str, tuple[str, bytes]]:
    """Return copies with one change each, by their file names.

    Without the key the signatures cannot be changed to match.
    """

    def change_count(text: bytes) -> bytes:
        return text.replace(N_PEOPLE + b"1", N_PEOPLE + b"9", 1)

    lines = export.splitlines(keepends=True)
    counted = [i for i, line in enumerate(lines) if N_PEOPLE in line]
    middle = counted[len(counted) // 2]
    before, line, after = lines[:middle], lines[middle], lines[middle + 1 :]
    return {
        TAMPERED_RECEIPT: (
            "One digit of the receipt was changed: it now speaks of 9 people",
            change_count(receipt),
        ),
        SHORTENED_EXPORT: (
            "One entry was removed from the export of the ledger",
            b"".join([*before, *after]),
        ),
        ALTERED_EXPORT: (
            "One digit of an entry in the export was changed: 9 people",
            b"".join([*before, change_count(line), *after]),
        ),
    }


def format_time(seconds: float) -> str:
    """Return a time in milliseconds, short ones with two digits."""
    value = 1e3 * seconds
    return f"{value:.0f} ms" if value >= 10.0 else f"{value:.2g} ms"


def format_ratio(numerator: float, denominator: float) -> str:
    """Return how many times larger one figure is than another."""
    value = numerator / denominator
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def summarise(result: DemoResult) -> list[tuple[str, str]]:
    """Return the outcome as headings and sentences, for the terminal and the page."""
    certificate, budget = result.certificate, result.radius_budget
    answers, first, last = result.answers, result.steps[0], result.batch
    inside = sum(step.distance <= step.radius <= budget for step in answers)
    looked = (i for i, one in enumerate(result.requests) if one.decision != "accepted")
    n_left = next(looked, None)
    n = len(result.requests)
    read = f"all {n} answers were found without reading the rows that stay"
    if n_left is not None:
        read = (
            f"{n_left} people left before an answer had to read the rows that stay, "
            "where a model that keeps none must refuse"
        )
    alone, in_batch, removal, retraining = result.times.values()
    receipt = result.receipt

    def first_sentence(text: str) -> str:
        return text.partition(". ")[0].rstrip(".")

    return [
        (
            "People",
            f"{result.n_people} patients with {result.n_features} measurements each, "
            f"from scikit-learn's breast cancer data. {N_HELD_OUT} other patients are "
            "in no model. They set the scale of the features, since preprocessing "
            "fitted on people in the model would not be unlearned, and accuracy is "
            "measured on them",
        ),
        (
            "Budget",
            f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g}, for each "
            f"release on its own; noise of standard deviation {certificate.sigma:g} "
            f"on every parameter. The model may be up to {budget:.2g} away from "
            "retraining",
        ),
        (
            "Forgotten",
            f"{len(result.requests)} people one by one and {result.n_batch} in a batch",
        ),
        (
            "Retraining",
            f"the model is at most {max(step.distance for step in answers):.2g} from "
            f"retraining. In {inside} of {len(answers)} releases the distance is "
            "within the certified radius of at most "
            f"{max(step.radius for step in answers):.2g}, and the radius is within the "
            f"budget of {budget:.2g}",
        ),
        ("Rows read", read),
        (
            "Accuracy",
            f"released model {first.accuracy:.1%} before and {last.accuracy:.1%} after "
            f"{last.n_forgotten} removals; retrained without noise "
            f"{last.retrained_accuracy:.1%}",
        ),
        (
            "Time",
            f"a whole request on its own: {format_time(alone)}; in a batch of "
            f"{result.n_batch}: {format_time(in_batch)} per person, a ratio of "
            f"{format_ratio(alone, in_batch)}",
        ),
        (
            "Time",
            f"the removal alone: {format_time(removal)}; scikit-learn's fit to the "
            f"remaining people: {format_time(retraining)}, a ratio of "
            f"{format_ratio(retraining, removal)}",
        ),
        (
            "Release",
            f"release {result.release} was written to {MODEL}.safetensors",
        ),
        (
            "Receipts",
            f"{result.n_receipts} of {last.n_forgotten} valid, checked with only the "
            f"public key. One of them: {first_sentence(receipt.says)}",
        ),
        *(
            ("Tampering", f"{copy.change}. {first_sentence(copy.says)}")
            for copy in result.tampered
        ),
        (
            "Limits",
            f"a receipt says nothing about {len(receipt.not_covered)} things, such as "
            f"{receipt.not_covered[0].partition(':')[0]}; the report lists them all",
        ),
        *(("FAILED", failure) for failure in result.find_failures()),
    ]
