# SPDX-License-Identifier: Apache-2.0
"""What the demo compares the registry with: the patients, a replay, tampered files.

A registry never shows its noise-free model. But its answers follow from the rows and
the requests alone, so ``ReplayCheck`` computes them a second time and retrains with
scikit-learn on the people who remain. If the replay's radius equals the one in the
registry's private record, both computed the same model.

The other check is on files: ``PublicFiles`` changes one thing in a receipt or a ledger
export. Without the key the signatures cannot be changed to match.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from math import isclose, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..core.arrays import Matrix, Vector
from ..core.losses import Logistic
from ..core.objective import Objective
from ..core.penalties import L2
from ..core.rows import Rows
from ..core.values import Private
from ..ledger import check_export, check_receipt
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.verification import Record, Verdict
from .values import TamperedCopy

N_HELD_OUT = 169
# Every row has length one, and the intercept adds a column of ones. The declared bound
# is a little larger so that it also holds in floating point.
ROW_NORM = sqrt(2.0) + 1e-9

# scikit-learn's tolerance: far below any distance that is measured.
TOLERANCE = 1e-10
# The last bits of a sum depend on the order of its rows, and so do those of a radius.
SAME_RADIUS = 1e-6

RECEIPT, EXPORT, PUBLIC_KEYS = "receipt.json", "ledger.jsonl", "public.pem"
TAMPERED_RECEIPT = "forged-receipt.json"
SHORTENED_EXPORT, ALTERED_EXPORT = "shortened-ledger.jsonl", "altered-ledger.jsonl"
CHANGES: Mapping[str, str] = {
    TAMPERED_RECEIPT: "One digit of the receipt was changed: it now speaks of 9 people",
    SHORTENED_EXPORT: "One entry was removed from the export of the ledger",
    ALTERED_EXPORT: "One digit of an entry in the export was changed: 9 people",
}
# Entries of requests state a number of people, which is what gets changed.
N_PEOPLE_FIELD = b'"n_subjects":'


@dataclass(frozen=True, slots=True)
class Patients:
    """People in the model, X (n, d) with labels and ids, and people held out."""

    X: Matrix
    y: Any
    ids: tuple[str, ...]
    held_out: Matrix
    held_out_labels: Any

    def choose_requesters(self, seed: int, n: int) -> list[int]:
        """Return the positions of n people who ask to be forgotten, in order."""
        return shuffle(f"asks {seed}", len(self.ids))[:n]

    def select_remaining(self, gone: Sequence[int]) -> tuple[Matrix, Any]:
        """Return features and labels of everyone but the people at these positions."""
        stays = np.ones(len(self.ids), dtype=bool)
        stays[list(gone)] = False
        return self.X[stays], self.y[stays]


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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RetrainedModel(Private):
    """Scikit-learn's model of the remaining people, and how long the fit took."""

    theta: Vector
    accuracy: float
    seconds: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ReplayCheck(Private):
    """The registry's noise-free model, computed a second time from all rows.

    Attributes
    ----------
    patients, rows
        Everyone, and their rows as the model takes them.
    model
        The model after the requests replayed so far.
    gone
        Positions of the people forgotten.
    """

    patients: Patients
    rows: Rows
    model: PrivateModel
    gone: tuple[int, ...] = ()

    @classmethod
    def start(
        cls, patients: Patients, *, alpha: float, budget: Budget
    ) -> "ReplayCheck":
        """Return the replay of the fit."""
        objective = Objective(Logistic(), L2(), alpha, intercept=True)
        rows = objective.rows(patients.X, 2.0 * patients.y - 1.0)
        return cls(patients, rows, PrivateModel.fit(objective, rows, budget=budget))

    def replay_removal(self, *positions: int) -> "ReplayCheck":
        """Return the replay after one more answer, about these people."""
        gone = (*self.gone, *positions)
        removed = self.rows.take(np.array(sorted(positions)))
        remaining = partial(self.rows.without, np.array(gone))
        model = self.model.forget(
            removed, remaining=remaining, n_subjects=len(positions)
        )
        return replace(self, model=model, gone=gone)

    def retrain(self) -> RetrainedModel:
        """Fit scikit-learn's model to the remaining people."""
        from sklearn.linear_model import LogisticRegression

        X, y = self.patients.select_remaining(self.gone)
        strength = 1.0 / (self.model.objective.alpha * len(y))
        model = LogisticRegression(
            C=strength, solver="newton-cholesky", tol=TOLERANCE, max_iter=1000
        )
        clock = perf_counter()
        model.fit(X, y)
        seconds = perf_counter() - clock
        theta = np.append(model.coef_[0], model.intercept_)
        accuracy = model.score(self.patients.held_out, self.patients.held_out_labels)
        return RetrainedModel(theta, float(accuracy), seconds)

    def measure_distance(self, retrained: RetrainedModel) -> float:
        """Return the distance from the noise-free model to a retrained one."""
        return float(np.linalg.norm(self.model.answer.draft.theta - retrained.theta))

    def check_record(self, record: Record) -> float:
        """Return the record's radius; raise if the record is of another model."""
        found = self.model.answer.radius.value
        if record.radius is None or not isclose(
            record.radius, found, rel_tol=SAME_RADIUS
        ):
            raise RuntimeError(
                "the replay's radius is not the one in the private record, so they are "
                "of different models; this is a bug in expunge, please report it"
            )
        return record.radius


@dataclass(frozen=True, slots=True)
class PublicFiles:
    """What an operator hands out: a receipt, the whole ledger, the public keys."""

    receipt: bytes
    export: bytes
    public_pem: bytes

    def make_tampered(self) -> dict[str, bytes]:
        """Return each tampered copy by its file name."""
        lines = self.export.splitlines(keepends=True)
        requests = [i for i, line in enumerate(lines) if N_PEOPLE_FIELD in line]
        middle = requests[len(requests) // 2]
        before, line, after = lines[:middle], lines[middle], lines[middle + 1 :]
        return {
            TAMPERED_RECEIPT: change_count(self.receipt),
            SHORTENED_EXPORT: b"".join([*before, *after]),
            ALTERED_EXPORT: b"".join([*before, change_count(line), *after]),
        }

    def write(self, folder: Path) -> None:
        """Write the genuine and the tampered files, for anyone to check."""
        genuine = {
            RECEIPT: self.receipt,
            EXPORT: self.export,
            PUBLIC_KEYS: self.public_pem,
        }
        for name, content in {**genuine, **self.make_tampered()}.items():
            (folder / name).write_bytes(content)

    def check(self, name: str, content: bytes) -> Verdict:
        """Return what the check of a file with this name and content finds."""
        check = check_receipt if "receipt" in name else check_export
        return check(content, self.public_pem)

    def check_tampered(self) -> tuple[TamperedCopy, ...]:
        """Return what was changed in each copy, and what its check finds."""
        copies = []
        for name, content in self.make_tampered().items():
            verdict = self.check(name, content)
            copies.append(
                TamperedCopy(name, CHANGES[name], verdict.valid, verdict.says)
            )
        return tuple(copies)


def change_count(text: bytes) -> bytes:
    """Return an entry or a receipt that speaks of nine people instead of one."""
    return text.replace(N_PEOPLE_FIELD + b"1", N_PEOPLE_FIELD + b"9", 1)
