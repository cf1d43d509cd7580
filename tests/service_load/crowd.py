# SPDX-License-Identifier: Apache-2.0
"""A crowd: people whom a registry knows, and as many whom it does not.

Both are drawn from the same numbers, so that nothing about a name tells which is which.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from expunge import Budget, LogisticRegression
from expunge.linear_model.base import private_model
from expunge.registry import Registry
from expunge.rights import Identifier
from tests.postgres import Server

MODEL = "crowd"
SCOPES = ("request", "operate", "audit", "admin")
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=1.0)
ALPHA = 0.05


def name_person(number: int) -> str:
    """Return the id under which a model knows somebody."""
    return f"person {number:07}"


def address_of(number: int) -> str:
    """Return the e-mail address of somebody."""
    return f"person.{number:07}@example.org"


@dataclass(frozen=True)
class Crowd:
    """People by numbers, half of them in a model.

    Parameters
    ----------
    n_people
        In the model.
    n_features
        Of each of their rows; everybody has one.
    seed
        Who is known, and what their rows are.
    """

    n_people: int = 5000
    n_features: int = 20
    seed: int = 0

    @cached_property
    def _numbers(self) -> list[int]:
        numbers = list(range(2 * self.n_people))
        Random(self.seed).shuffle(numbers)
        return numbers

    @property
    def known(self) -> list[int]:
        """The people in the model."""
        return self._numbers[: self.n_people]

    @property
    def unknown(self) -> list[int]:
        """The others."""
        return self._numbers[self.n_people :]

    @cached_property
    def _rows(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(self.seed)
        X = rng.standard_normal((self.n_people, self.n_features))
        noise = rng.standard_normal(len(X))
        return X, (X[:, 0] + noise > 0).astype(int)

    def build(self, folder: Path, url: str | None = None) -> dict[str, str]:
        """Create a registry of the known people; return a token for each scope."""
        X, y = self._rows
        with Registry.create(folder, url=url) as registry:
            model = LogisticRegression(alpha=ALPHA, budget=BUDGET)
            owners = [name_person(one) for one in self.known]
            registry.fit(MODEL, model, X, y, subjects=owners)
            registry.aliases.add(
                (name_person(one), Identifier("email", address_of(one)))
                for one in self.known
            )
            return {
                scope: registry.access.create(f"{scope} desk", [scope])[1]
                for scope in SCOPES
            }

    def retrain_without(self, gone: Collection[int]) -> Any:
        """Return the noise-free parameters of a fit without some people."""
        X, y = self._rows
        left = set(gone)
        stay = [row for row, one in enumerate(self.known) if one not in left]
        model = LogisticRegression(alpha=ALPHA, budget=BUDGET)
        model.fit(X[stay], y[stay])
        return private_model(model).answer.draft.theta


@contextmanager
def lend_store(name: str) -> Iterator[str | None]:
    """Lend the address of an empty database; None for SQLite."""
    if name == "sqlite":
        yield None
        return
    with Server() as server:
        yield server.database()
