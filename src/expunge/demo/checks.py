# SPDX-License-Identifier: Apache-2.0
"""Witness: whoever is shown all data, replays each request and retrains without them.

A registry shows no noise-free model to anybody. But its answers follow from the rows
and the requests alone, so the witness computes them again; that the radius comes out as
the registry's private record has it shows that it is the same model. Retraining is
scikit-learn's, on nothing but the people who are left.

Forging: copies with one thing changed, to be held against the checks.

A forger has no key: he can change what is written, and must leave the signatures.

People: the patients of the demonstration, who is in the model, and who asks.

Nothing is fitted on the people in the model but the model: features take their scale
from people in no model, and each row is then divided by its own length, which bounds
the influence of everybody alike. Order comes from hashes, not from chance.
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

from ..core.arrays import Matrix, Private, Vector
from ..core.losses import Logistic
from ..core.objective import Objective
from ..core.penalties import L2
from ..core.rows import Rows
from ..ledger import check_export, check_receipt
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.record import Record
from ..promise.verification import Verdict
from .values import Forgery

# The genuine copies, and those that somebody tampered with.
RECEIPT, EXPORT = "receipt.json", "ledger.jsonl"
FORGED_RECEIPT = "forged-receipt.json"
SHORTENED_EXPORT, ALTERED_EXPORT = "shortened-ledger.jsonl", "altered-ledger.jsonl"

DONE: Mapping[str, str] = {
    FORGED_RECEIPT: "One digit of the receipt was changed: it now speaks of 9 people",
    SHORTENED_EXPORT: "An entry was taken out of the export of the ledger",
    ALTERED_EXPORT: "One digit of an entry in the export was changed: 9 people",
}
# Where a forger would begin: requests name a number of people.
PEOPLE = b'"n_subjects":'


@dataclass(frozen=True, slots=True)
class Papers:
    """What an operator hands out: a receipt, the whole ledger, the public keys."""

    receipt: bytes
    export: bytes
    public_pem: bytes

    def forged(self) -> dict[str, bytes]:
        """Return each forgery by the name of its file."""
        lines = self.export.splitlines(keepends=True)
        requests = [place for place, line in enumerate(lines) if PEOPLE in line]
        place = requests[len(requests) // 2]
        before, line, after = lines[:place], lines[place], lines[place + 1 :]
        return {
            FORGED_RECEIPT: with_nine(self.receipt),
            SHORTENED_EXPORT: b"".join([*before, *after]),
            ALTERED_EXPORT: b"".join([*before, with_nine(line), *after]),
        }

    def written(self, folder: Path) -> None:
        """Write all of them, genuine and forged, for anybody to check again."""
        genuine = {RECEIPT: self.receipt, EXPORT: self.export}
        files = {**genuine, "public.pem": self.public_pem, **self.forged()}
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def checked(self, name: str, content: bytes) -> Verdict:
        """Return what the check of such a paper says."""
        check = check_receipt if "receipt" in name else check_export
        return check(content, self.public_pem)

    def forgeries(self) -> tuple[Forgery, ...]:
        """Return what was done to each copy, and what the check says to it."""
        found = []
        for name, content in self.forged().items():
            verdict = self.checked(name, content)
            found.append(Forgery(name, DONE[name], verdict.stands, verdict.says))
        return tuple(found)


def with_nine(text: bytes) -> bytes:
    """Return a request's entry, or a receipt, about nine people instead of one."""
    return text.replace(PEOPLE + b"1", PEOPLE + b"9", 1)


N_HELD_OUT = 169
# Rows have length one, and the intercept's column of ones beside them; a promise to
# be kept in floating point is a little larger.
ROW_NORM = sqrt(2.0) + 1e-9


@dataclass(frozen=True, slots=True)
class People:
    """Those in the model, X (n, d) with labels and ids; those in none, to test on."""

    X: Matrix
    y: Any
    ids: tuple[str, ...]
    others: Matrix
    other_labels: Any

    def asking(self, seed: int, n: int) -> list[int]:
        """Return the places of people who ask to be forgotten, in their order."""
        return shuffled(f"asks {seed}", len(self.ids))[:n]

    def without(self, gone: Sequence[int]) -> tuple[Matrix, Any]:
        """Return features and labels of everybody else."""
        stay = np.ones(len(self.ids), dtype=bool)
        stay[list(gone)] = False
        return self.X[stay], self.y[stay]


def patients() -> People:
    """Return the people of scikit-learn's breast cancer data, one row each."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = shuffled("split", len(X))
    apart, inside = order[:N_HELD_OUT], sorted(order[N_HELD_OUT:])
    X = (X - X[apart].mean(axis=0)) / X[apart].std(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ids = tuple(f"patient-{place:04d}" for place in inside)
    return People(X[inside], y[inside], ids, X[apart], y[apart])


def shuffled(word: str, n: int) -> list[int]:
    """Return 0 to n - 1 in an order that the word alone decides."""
    return sorted(range(n), key=lambda i: blake2b(f"{word} {i}".encode()).digest())


# Far below any distance that is measured.
TOLERANCE = 1e-10
# Sums over rows depend on their order in the last bits, and so does a radius.
SAME = 1e-6


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Retrained(Private):
    """Scikit-learn's model of the people who are left, and what it took."""

    theta: Vector
    accuracy: float
    seconds: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Witness(Private):
    """What the witness holds after some requests.

    Attributes
    ----------
    people, rows
        Everybody, and their rows as the model takes them.
    model
        The answer, computed again.
    gone
        Places of those who left.
    """

    people: People
    rows: Rows
    model: PrivateModel
    gone: tuple[int, ...] = ()

    @classmethod
    def of(cls, people: People, alpha: float, budget: Budget) -> "Witness":
        """Return the witness of the fit."""
        objective = Objective(Logistic(), L2(), alpha, intercept=True)
        rows = objective.rows(people.X, 2.0 * people.y - 1.0)
        return cls(people, rows, PrivateModel.fit(objective, rows, budget=budget))

    def after(self, *places: int) -> "Witness":
        """Return the witness of one answer more."""
        gone = (*self.gone, *places)
        removed = self.rows.take(np.array(sorted(places)))
        remaining = partial(self.rows.without, np.array(gone))
        model = self.model.forget(removed, remaining=remaining, n_subjects=len(places))
        return replace(self, model=model, gone=gone)

    def retrained(self) -> Retrained:
        """Return what scikit-learn fits to the people who are left."""
        from sklearn.linear_model import LogisticRegression

        X, y = self.people.without(self.gone)
        strength = 1.0 / (self.model.objective.alpha * len(y))
        model = LogisticRegression(
            C=strength, solver="newton-cholesky", tol=TOLERANCE, max_iter=1000
        )
        clock = perf_counter()
        model.fit(X, y)
        seconds = perf_counter() - clock
        theta = np.append(model.coef_[0], model.intercept_)
        accuracy = model.score(self.people.others, self.people.other_labels)
        return Retrained(theta, float(accuracy), seconds)

    def distance(self, retrained: Retrained) -> float:
        """Return how far the noise-free model is from retraining."""
        return float(np.linalg.norm(self.model.answer.draft.theta - retrained.theta))

    def require_same(self, record: Record) -> float:
        """Return the record's radius; refuse a record that is of another model."""
        found = self.model.answer.radius.value
        if record.radius is None or not isclose(record.radius, found, rel_tol=SAME):
            raise RuntimeError(
                f"a replay finds a radius of {found:.3g} and the record holds "
                f"{record.radius}; one of them computed something else, which is a "
                "defect of expunge"
            )
        return record.radius
