# SPDX-License-Identifier: Apache-2.0
"""The demo, from top to bottom: what an operator does with a registry, and measures.

A registry never shows its noise-free model. But its answers follow from the rows and
the requests alone, so the demo computes them a second time, and scikit-learn fits a
model to the people who remain. If the second model has the radius that stands in the
registry's private record, both are the same model.

The result names nobody, but distances, radii and times depend on the people who were
forgotten, so it belongs to the operator. Noise and keys are secret and differ in every
run.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from math import isclose, sqrt
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.rows import Rows
from ..core.split import SplitMatrix
from ..display.progress import OnProgress
from ..ledger import check_export, check_receipt
from ..linear_model import LogisticRegression
from ..linear_model.base import snapshot_of
from ..private_model.model import PrivateModel, require_optimised
from ..promise.budget import Budget
from ..promise.certificate import Certificate
from ..promise.verification import Record
from ..registry import Registry, Request
from ..tables import Roles, Schema, TrainingTable, describe_preprocessing, read_table
from ..tables.schema import TEXT
from .customers import SUBJECT, TARGET, write_customers

MODEL = "churn"
N_PEOPLE, N_OTHERS = 50_000, 10_000
# Fixed here, before any run, so that nothing is chosen from the data.
ALPHA = 1e-4
BUDGET = Budget()
# A quarter of what texts beside other columns are given; a fit is five times as fast.
WORDS = 64

# scikit-learn's tolerance: far below any distance that is measured.
TOLERANCE = 1e-12
# Radii hold bounds on rounding, which depend on where rows lie; those of two people's
# requests differ by far more.
SAME_RADIUS = 1e-2

TABLE, OTHERS = "customers.csv", "others.csv"
RECEIPT, EXPORT, PUBLIC_KEYS = "receipt.json", "ledger.jsonl", "public.pem"
TAMPERED_RECEIPT = "forged-receipt.json"
SHORTENED_EXPORT, ALTERED_EXPORT = "shortened-ledger.jsonl", "altered-ledger.jsonl"
# Entries of requests state a number of people, which is what gets changed.
N_GONE = b'"n_subjects":'


def shuffle(word: str, n: int) -> list[int]:
    """Return 0 to n - 1 in an order that depends on the word alone."""
    return sorted(range(n), key=lambda i: blake2b(f"{word} {i}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Step:
    """The model after one answer of the registry.

    Parameters
    ----------
    n_forgotten
        People forgotten so far; 0 is the fit itself.
    radius
        The bound on the distance to retraining, in the private record.
    distance
        From the noise-free model to scikit-learn's of the people who remain, where it
        was measured.
    accuracy, changed
        On people in no model: how many decisions of the release are right, and how many
        differ from those of the release before, as shares.
    seconds
        Time for the whole answer: accepted, applied, erased, logged and signed.
    decision
        What the registry did to stay within the budget.
    """

    n_forgotten: int
    radius: float
    distance: float | None
    accuracy: float
    changed: float
    seconds: float
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
    seed, n_people, n_others
        Who asks to be forgotten, how many people are in the table, and how many others
        there are to try the model on.
    columns
        What each column is, and what was done with it.
    n_parameters, noise
        Of the model; and how long the noise of a release is, typically.
    certificate
        Of the last release; it states the budget.
    steps
        The fit, then every request answered on its own.
    retrained_distance, retrained_accuracy, retraining_seconds
        At the end everything is fitted again to the people who remain, preprocessing
        too: how far that is from the model, how good, and how long it takes.
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
    n_others: int
    columns: tuple[tuple[str, str], ...]
    n_parameters: int
    noise: float
    certificate: Certificate
    steps: tuple[Step, ...]
    retrained_distance: float
    retrained_accuracy: float
    retraining_seconds: float
    release: int
    receipt: CheckedFile
    tampered: tuple[CheckedFile, ...]
    n_entries: int
    n_receipts: int
    seconds: float

    @property
    def requests(self) -> tuple[Step, ...]:
        """The requests, each answered on its own."""
        return self.steps[1:]

    @property
    def last(self) -> Step:
        """The model at the end."""
        return self.steps[-1]

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        """After how many people a distance was measured, and the distance."""
        return tuple(
            (step.n_forgotten, step.distance)
            for step in self.steps
            if step.distance is not None
        )

    @property
    def radius_budget(self) -> float:
        """How far from retraining the budget lets a model be."""
        budget = self.certificate.radius_budget
        assert budget is not None  # the demo always has a budget
        return budget

    @property
    def request_seconds(self) -> float:
        """Seconds of a request, the median."""
        return median(step.seconds for step in self.requests)

    def find_failures(self) -> tuple[str, ...]:
        """Return what did not come out as promised; empty if everything did."""
        tau, steps = self.certificate.tau or 0.0, self.steps
        far = [
            step
            for step in steps
            if step.distance is not None and step.distance > step.radius
        ]
        checks = {
            "a model is farther from retraining than its certified radius": bool(far)
            or self.retrained_distance > self.last.radius,
            "a radius exceeds the budget": any(
                step.radius + tau > self.radius_budget for step in steps
            ),
            "a request has no valid receipt": not self.receipt.valid
            or self.n_receipts < self.last.n_forgotten,
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
    n_people: int = N_PEOPLE,
    n_requests: int = 20,
    every: int = 4,
) -> DemoResult:
    """Run the demo in a folder, and return what was measured.

    Parameters
    ----------
    folder
        An empty folder; the table, the registry, the release and all files are left
        in it.
    progress
        Shows a bar under a label.
    seed
        Decides who asks.
    n_people, n_requests
        How many people there are, and how many of them ask, one by one.
    every
        After how many requests scikit-learn fits a model to compare with.
    """
    clock = perf_counter()
    write_customers(folder / TABLE, n_people, word="in the table")
    write_customers(folder / OTHERS, N_OTHERS, word="in no table")
    table = read_customers(folder / TABLE)
    others = read_customers(folder / OTHERS, table.schema)
    asking = shuffle(f"asks {seed}", n_people)[:n_requests]
    requests: list[str] = []

    with Registry.create(folder / "registry") as registry:
        # 1. Fit a model to the table as it is, under the default budget.
        with progress("fitting") as report:
            fitting = perf_counter()
            registry.fit(
                MODEL, _model(table), table.X, table.y, subjects=table.subjects
            )
            fit_seconds = perf_counter() - fitting
            report(1, 2)
            replay = _fit(_model(table), table)
            report(2, 2)
        decided: NDArray[Any] | None = None

        def look(seconds: float, n_forgotten: int) -> Step:
            """Return the model as it is now, beside retraining from time to time."""
            nonlocal decided
            record = registry.models.record(MODEL)
            private = _private(replay)
            require_same_answer(record, replay.record_)
            distance = None
            if n_forgotten % every == 0:
                rows = private.remaining_rows()
                assert isinstance(rows, Rows)
                distance = _distance(private, rows)
            before = decided
            decided = np.asarray(registry.model(MODEL).predict(others.X))
            return Step(
                n_forgotten=n_forgotten,
                radius=private.answer.radius.value,
                distance=distance,
                accuracy=float(np.mean(decided == others.y)),
                changed=0.0 if before is None else float(np.mean(decided != before)),
                seconds=seconds,
                decision=", ".join(record.decisions),
            )

        # 2. People leave, one by one.
        steps = [look(fit_seconds, 0)]
        with progress("forgetting") as report:
            for n_gone, place in enumerate(asking, start=1):
                person = f"{SUBJECT} {place}"
                asked = Request((person,))
                begin = perf_counter()
                registry.requests.accept([asked])
                registry.requests.apply()
                seconds = perf_counter() - begin
                requests.append(asked.request)
                replay.forget([person])
                steps.append(look(seconds, n_gone))
                report(n_gone, n_requests)

        # 3. Fit everything again without them, preprocessing too.
        with progress("retraining") as report:
            stays = np.ones(n_people, dtype=bool)
            stays[asking] = False
            retraining = perf_counter()
            again = _fit(_model(table), table.take(np.flatnonzero(stays)))
            retraining_seconds = perf_counter() - retraining
            rows = _private(again).remaining_rows()
            assert isinstance(rows, Rows)
            retrained_distance = _distance(_private(replay), rows)
            report(1, 1)

        # 4. Hand out a release, receipts and the ledger; check them with the key alone.
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
        certificate = status.models[0].certificate
        assert certificate.sigma is not None
        n_parameters = len(_private(replay).answer.draft.theta)
        return DemoResult(
            seed=seed,
            n_people=n_people,
            n_others=N_OTHERS,
            columns=tuple((one.name, one.describe()) for one in table.schema.columns),
            n_parameters=n_parameters,
            noise=certificate.sigma * sqrt(n_parameters),
            certificate=certificate,
            steps=tuple(steps),
            retrained_distance=retrained_distance,
            retrained_accuracy=float(np.mean(again.predict(others.X) == others.y)),
            retraining_seconds=retraining_seconds,
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


def read_customers(path: Path, schema: Schema | None = None) -> TrainingTable:
    """Return a table as ``expunge fit`` reads it, with fewer columns for the words."""
    roles = Roles(target=TARGET, subject=SUBJECT)
    if schema is None:
        guessed = read_table(path, roles).schema
        columns = (
            replace(one, width=WORDS) if one.kind == TEXT else one
            for one in guessed.columns
        )
        schema = replace(guessed, columns=tuple(columns))
    return read_table(path, roles, schema=schema)


def _model(table: TrainingTable) -> LogisticRegression:
    """Return what ``expunge fit`` makes of such a table."""
    preprocessing = describe_preprocessing(table)
    return LogisticRegression(alpha=ALPHA, preprocessing=preprocessing, budget=BUDGET)


def _fit(model: LogisticRegression, table: TrainingTable) -> LogisticRegression:
    return model.fit(table.X, table.y, subjects=table.subjects)


def _private(model: LogisticRegression) -> PrivateModel:
    """Return the noise-free model, which the demo may see: it has all rows."""
    return require_optimised(snapshot_of(model).private)


def _distance(private: PrivateModel, rows: Rows) -> float:
    """Return how far a noise-free model is from scikit-learn's of these rows."""
    from sklearn.linear_model import LogisticRegression as Retrained

    retrained = Retrained(
        C=1.0 / (ALPHA * float(rows.weight.sum())),
        solver="newton-cholesky",
        tol=TOLERANCE,
        max_iter=1000,
    )
    X = to_sparse(rows.X)[:, :-1]  # without the column of ones
    retrained.fit(X, rows.y > 0.0, sample_weight=rows.weight)
    theta = np.append(retrained.coef_[0], retrained.intercept_)
    return float(np.linalg.norm(private.answer.draft.theta - theta))


def to_sparse(X: Any) -> Any:
    """Return rows whose categories are codes as scikit-learn takes them."""
    if not isinstance(X, SplitMatrix):
        return sparse.csr_array(X)
    blocks, order = [sparse.csr_array(X.numbers)], [X.at]
    for flags, codes in zip(X.flags, X.codes, strict=True):
        assert flags.other is None  # a level that is not there is zero
        there = np.flatnonzero(codes < flags.n_levels)
        levels = codes[there]
        shape = len(codes), flags.n_levels
        blocks.append(sparse.csr_array((flags.hit[levels], (there, levels)), shape))
        order.append(flags.at)
    joined = sparse.hstack(blocks, format="csc")
    return joined[:, np.argsort(np.concatenate(order))].tocsr()


def require_same_answer(recorded: Record, found: Record | None) -> None:
    """Raise if the registry's private answer is of another model than the demo's."""
    assert found is not None
    if recorded.decisions != found.decisions or not isclose(
        recorded.radius or 0.0, found.radius or 0.0, rel_tol=SAME_RADIUS
    ):
        raise RuntimeError(
            "the replay's answer is not the one in the private record, so they are "
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
        return text.replace(N_GONE + b"1", N_GONE + b"9", 1)

    lines = export.splitlines(keepends=True)
    counted = [i for i, line in enumerate(lines) if N_GONE in line]
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
    """Return a time in seconds or milliseconds, with two digits."""
    return f"{seconds:.2g} s" if seconds >= 1.0 else f"{1e3 * seconds:.0f} ms"


def format_share(share: float) -> str:
    """Return a share as people count it."""
    return "none" if share == 0.0 else f"{100.0 * share:.2g} %"


def summarise(result: DemoResult) -> list[tuple[str, str]]:
    """Return the outcome as headings and sentences, for the terminal and the page."""
    certificate, steps, last = result.certificate, result.steps, result.last
    n = len(result.requests)
    changed = float(np.mean([step.changed for step in result.requests]))
    farthest = max(distance for _, distance in result.measured[1:])
    refused = sum(not copy.valid for copy in result.tampered)
    return [
        (
            "Table",
            f"{result.n_people} customers who do not exist, with dates, categories, "
            f"notes and gaps; that makes {result.n_parameters} parameters, fitted and "
            f"sealed in {format_time(steps[0].seconds)}",
        ),
        (
            "Promise",
            f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g} for each "
            f"release, with noise of {certificate.sigma:g} on each parameter",
        ),
        (
            "Forgotten",
            f"{n} people, each in {format_time(result.request_seconds)}: model "
            "changed, rows and keys erased from disk, receipt signed",
        ),
        (
            "Retraining",
            f"at most {farthest:.1g} away, by scikit-learn; certified: at most "
            f"{max(step.radius for step in steps):.1g}; noise hides {result.noise:.1g}",
        ),
        (
            "From scratch",
            f"without these people, preprocessing too: {result.retrained_distance:.1g} "
            f"away, in {format_time(result.retraining_seconds)}",
        ),
        (
            "Others",
            f"decisions about {result.n_others} other people that one request changes: "
            f"{format_share(changed)}; right {last.accuracy:.1%}, retrained "
            f"{result.retrained_accuracy:.1%}",
        ),
        (
            "Auditor",
            f"{result.n_receipts} of {n} receipts valid, by the public key alone; "
            f"{refused} of {len(result.tampered)} forgeries refused",
        ),
        *(("FAILED", failure) for failure in result.find_failures()),
    ]
