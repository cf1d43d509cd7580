# SPDX-License-Identifier: Apache-2.0
"""People: the patients of the demonstration, who is in the model, and who asks.

Nothing is fitted on the people in the model but the model: features take their scale
from people in no model, and each row is then divided by its own length, which bounds
the influence of everybody alike. Order comes from hashes, not from chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import sqrt
from typing import Any

import numpy as np

from ..._typing import Matrix

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
