# SPDX-License-Identifier: Apache-2.0
"""Witness: whoever is shown all data, replays each request and retrains without them.

A registry shows no noise-free model to anybody. But its answers follow from the rows
and the requests alone, so the witness computes them again; that the radius comes out as
the registry's private record has it shows that it is the same model. Retraining is
scikit-learn's, on nothing but the people who are left.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import isclose
from time import perf_counter

import numpy as np

from ..._typing import Vector
from ...budget import Budget
from ...losses import Logistic
from ...objective import Objective
from ...penalties import L2
from ...private import Private
from ...record import Record
from ...rows import Rows
from ...unlearn import Custody, begin, forget
from ..exits import UNEXPECTED, Failed
from .people import People

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
    custody
        The answer, computed again.
    gone
        Places of those who left.
    """

    people: People
    rows: Rows
    custody: Custody
    gone: tuple[int, ...] = ()

    @classmethod
    def of(cls, people: People, alpha: float, budget: Budget) -> "Witness":
        """Return the witness of the fit."""
        objective = Objective(Logistic(), L2(), alpha, intercept=True)
        rows = objective.rows(people.X, 2.0 * people.y - 1.0)
        return cls(people, rows, begin(objective, rows, budget=budget))

    def after(self, *places: int) -> "Witness":
        """Return the witness of one answer more."""
        gone = (*self.gone, *places)
        removed = self.rows.take(np.array(sorted(places)))
        remaining = partial(self.rows.without, np.array(gone))
        custody = forget(self.custody, removed, remaining, n_subjects=len(places))
        return replace(self, custody=custody, gone=gone)

    def retrained(self) -> Retrained:
        """Return what scikit-learn fits to the people who are left."""
        from sklearn.linear_model import LogisticRegression

        X, y = self.people.without(self.gone)
        strength = 1.0 / (self.custody.objective.alpha * len(y))
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
        return float(np.linalg.norm(self.custody.draft.theta - retrained.theta))

    def require_same(self, record: Record) -> float:
        """Return the record's radius; refuse a record that is of another model."""
        found = self.custody.radius.value
        if record.radius is None or not isclose(record.radius, found, rel_tol=SAME):
            raise Failed(
                f"a replay finds a radius of {found:.3g} and the record holds "
                f"{record.radius}; one of them computed something else, which is a "
                "defect of expunge",
                UNEXPECTED,
            )
        return record.radius
