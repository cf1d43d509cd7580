# SPDX-License-Identifier: Apache-2.0
"""Attack the registry with every right: rows leave, come back, and are replaced.

Where everybody's rows must be is told by the oracle of the crash runs, which follows
docs/rights.md alone; here the rows are known by their numbers in a table of each model.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from expunge.registry import NewRows, Request
from expunge.rights.standing import RIGHTS
from tests.crash.expected import Expected
from tests.crash.story import Sample as Known
from tests.crash.story import Step, Story

from . import draws
from .draws import Generator, Task, chance, pick
from .estimators import empties_a_class, estimator, labels_of
from .judge import Checker
from .losses import Array
from .oracle import LONG, Sample
from .registries import Entry, Site

LAST_DAY = "2099-12-31"
SPARE = 24  # rows of each model that may come later


@dataclass(eq=False)
class Table:
    """All rows that a model may ever have, the first of which it is fitted to.

    Attributes
    ----------
    task
        The problem, with all rows.
    n_first
        How many rows are there for fits.
    spare
        The numbers of rows that did not come yet.
    first_weight
        The weight of all rows at the last fit.
    """

    task: Task
    n_first: int
    spare: list[int]
    first_weight: LONG = field(default=LONG(0.0))

    def take(self, numbers: Sequence[int]) -> NewRows:
        """Return rows as a client sends them."""
        sample, rows = self.task.sample, np.asarray(numbers, dtype=int)
        weight = None if (sample.weight == 1.0).all() else sample.weight[rows]
        return NewRows(sample.X[rows], labels_of(self.task)[rows], weight)


class RightsSite(Site):
    """A registry whose people use every right.

    The parameters are those of ``Site``.
    """

    def __init__(self, rng: Generator, checker: Checker, folder: Any) -> None:
        super().__init__(rng, checker, folder)
        self.tables: dict[str, Table] = {}
        self.samples: dict[str, Known] = {}
        self.expected = Expected(Story(self.samples, ()))

    def run(self) -> None:
        """Fit some models, then make requests of every kind."""
        for number in range(int(self.rng.integers(2, 5))):
            self.enter(f"model-{number}")
        if not self.entries:
            return
        self.check_releases()
        for _ in range(8):
            if not self._go_on():
                return
            self.check_releases()

    def enter(self, name: str) -> None:
        """Fit a model into the registry; some of its rows may come later."""
        rng, n = self.rng, len(self.owners)
        d = int(rng.integers(1, 5))
        aim, X = draws.aim(rng, draws.LOSSES, d), draws.design(rng, n + SPARE, d)
        y = draws.labels(rng, aim.loss, X[:n])
        table = Task(aim, Sample(X[:n], y, np.ones(n)), self.owners)
        more = rng.choice(y, SPARE) if table.classes else rng.permutation(y)[:SPARE]
        whole = Sample(
            X, np.resize(np.concatenate([y, more]), n + SPARE), _weights(rng, n + SPARE)
        )
        owners = np.concatenate([self.owners, ["nobody"] * SPARE])
        task = Task(aim, whole, owners)
        self.tables[name] = Table(task, n, list(range(n, n + SPARE)))
        rows = np.arange(n, dtype=float)
        self.samples[name] = Known(rows[:, None], rows, tuple(self.owners.tolist()))
        model = estimator(rng, table)
        self._fit_first(name, model)

    def _fit_first(self, name: str, model: Any) -> bool:
        """Fit a model to its first rows, without those of people who are kept out."""
        again = name in self.entries
        table, out = self.tables[name], self.expected.kept_out
        people = [one for one in dict.fromkeys(self.owners.tolist()) if one not in out]
        rows = [row for row, one in enumerate(self.owners) if one not in out]
        inside = np.isin(np.arange(len(table.task.sample.y)), rows)
        if not self._is_possible(table, inside):
            return True
        new = table.take(rows)
        fit = self.registry.models.refit if again else self.registry.fit
        with self.checker.note_refusals() as refusal:
            fit(
                name,
                model,
                new.X,
                new.y,
                subjects=[self.owners[row] for row in rows],
                sample_weight=new.sample_weight,
            )
        if refusal:
            return not again
        step = Step(0, "refit" if again else "fit", model=name, people=tuple(people))
        self.expected.take(step)
        table.first_weight = table.task.sample.take(inside).total
        self.entries[name] = Entry(table.task, model.budget)
        return True

    def _is_possible(self, table: Table, inside: Array) -> bool:
        """Whether a model has weight left, and every class that it was fitted to."""
        first = np.arange(len(inside)) < table.n_first
        sample, task = table.task.sample, table.task
        if not sample.weight[inside].any() or inside.sum() < 2:
            return False
        kept = replace(task, sample=sample.take(first), owners=task.owners[first])
        if not task.classes:
            return True
        there = np.unique(labels_of(task)[inside & (sample.weight > 0.0)])
        return len(there) == len(np.unique(labels_of(kept))) and not empties_a_class(
            kept, inside[first] if inside[first].any() else first
        )

    def inside(self, name: str, expected: Expected) -> Array:
        """Return which rows of a model's table are in use, as a mask."""
        kept = expected.rows[name].values()
        rows = [int(row) for one in kept for row in one.y]
        return np.isin(np.arange(len(self.tables[name].task.sample.y)), rows)

    def _go_on(self) -> bool:
        """Do one more thing; return whether the next can be told."""
        kind = pick(self.rng, "ask", "add", "refit", "reopen", p=[0.7, 0.12, 0.1, 0.08])
        name = pick(self.rng, *self.entries)
        if kind == "add":
            return self._add(name)
        if kind == "refit":
            model = estimator(self.rng, self.tables[name].task)
            return self._fit_first(name, model)
        if kind == "reopen":
            self.registry.close()
            self.registry = type(self.registry).open(self.folder / "registry")
            return True
        return self._ask()

    def _add(self, name: str) -> bool:
        table, expected = self.tables[name], self.expected
        who = pick(self.rng, *self.owners.tolist(), "new 1", "new 2")
        if who in expected.kept_out or not table.spare:
            return True
        rows = [table.spare.pop()]
        new, known = table.take(rows), np.asarray(rows, dtype=float)
        with self.checker.note_refusals() as refusal:
            self.registry.add(
                name, new.X, new.y, subjects=[who], sample_weight=new.sample_weight
            )
        if refusal:
            return False
        rows_added = Known(known[:, None], known, (who,))
        expected.take(Step(0, "add", model=name, rows=rows_added))
        return True

    def _ask(self) -> bool:
        """Have some requests answered together, one of them perhaps cancelled."""
        asked = list(self._requests())
        cancelled = asked[0] if len(asked) > 1 and chance(self.rng, 0.2) else None
        waiting = tuple(one for _, one in asked if (_, one) != cancelled)
        after = deepcopy(self.expected)
        after.take(Step(0, "accept and apply", waiting))
        if not all(
            self._is_possible(table, self.inside(name, after))
            for name, table in self.tables.items()
            if name in self.entries
        ):
            return True
        requests = self.registry.requests
        with self.checker.note_refusals() as refusal:
            for sent, _ in asked:
                requests.accept([sent], strangers=True)
            if cancelled is not None:
                requests.cancel(cancelled[0].request)
            requests.apply()
        if refusal:
            return False
        self.expected.take(Step(0, "accept and apply", waiting))
        for one in waiting:
            self._check_outcome(one)
        everybody = dict.fromkeys(self.owners.tolist())
        out, wanted = {*requests.find_forgotten(everybody)}, self.expected.kept_out
        self.checker.check(
            out == wanted, f"{len(out ^ wanted)} people are kept out of fits, or not"
        )
        return True

    def _requests(self) -> Iterator[tuple[Request, Request]]:
        """Yield requests as they are sent, and with rows by their numbers."""
        apart = [who for there in self.expected.apart.values() for who in there]
        for _ in range(int(self.rng.integers(1, 4))):
            comes_back = apart and chance(self.rng, 0.6)
            who = pick(self.rng, *(apart if comes_back else self.owners.tolist()))
            right = pick(self.rng, *RIGHTS)
            if comes_back and chance(self.rng, 0.5):
                right = "lift"
            one = Request((who,), right=right)  # type: ignore[arg-type]
            if right == "hold":
                one = replace(one, reason="legal-claims", until=LAST_DAY)
            if right != "rectify":
                yield one, one
                continue
            name = pick(self.rng, *self.entries)
            table = self.tables[name]
            if not table.spare:
                continue
            rows = [table.spare.pop() for _ in range(min(2, len(table.spare)))]
            known = np.asarray(rows, dtype=float)
            yield (
                replace(one, rows={name: table.take(rows)}),
                replace(one, rows={name: NewRows(known[:, None], known)}),
            )

    def _check_outcome(self, one: Request) -> None:
        wanted = self.expected.answers[one.request]
        found = self.registry.requests.status(one.request)
        said = f"{one.right}: {found.outcome} ({found.reason}), not {wanted}"
        same = (found.outcome, found.reason) == (wanted.outcome, wanted.reason)
        self.checker.check(same, said)

    def rows_of(self, name: str) -> tuple[Array, LONG]:
        """Return which rows of a model's table it has, and their weight at its fit."""
        return self.inside(name, self.expected), self.tables[name].first_weight


def _weights(rng: Generator, n: int) -> Array:
    """Return weights: mostly ones, or of any size."""
    if chance(rng, 0.5):
        return np.ones(n)
    return np.asarray(10.0 ** rng.uniform(-1.0, 1.0, n))
