# SPDX-License-Identifier: Apache-2.0
"""Attack with Ctrl-C: a request or a fit stops at a random line of the package.

Afterwards the model must be as it was, or as if nothing had happened to the request;
asked again it must say which, and the next request must be answered rightly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from expunge.exceptions import UnknownRows, UnknownSubject
from tests.interrupts import count_lines, interrupt

from . import draws
from .draws import Generator, Task, chance, pick
from .faces import Asking, empties_a_class, estimator, judge, labels_of
from .judge import Court
from .losses import Array
from .peek import draft_of


def attack(rng: Generator, court: Court) -> None:
    """Interrupt requests, and fits in between; judge the model after each."""
    task = draws.task(rng)
    # Asked twice for one of several equal rows, a model rightly gives two.
    distinct = len(np.unique(task.sample.X, axis=0)) == len(task.owners)
    asking = Asking(pick(rng, "person", "content") if distinct else "person")
    stage = Stage(rng, court, asking, *twins(rng, task, asking))
    with court.refusals() as refusal:
        stage.both(lambda model: fit(model, task, asking))
    if refusal:
        return
    stay = np.ones(len(task.owners), dtype=bool)
    for named in draws.requests(rng, task, 5):
        there = set(task.owners[stay].tolist())  # a fit in between may lack some
        people = [person for person in named if person in there]
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any() or empties_a_class(task, after):
            continue
        if not stage.forget(task, people, stay):
            return
        stay = after
        if chance(rng, 0.3):
            task, stay = stage.fit_again(task, stay)


def twins(rng: Generator, task: Task, asking: Asking) -> tuple[Any, Any]:
    """Return two estimators that are alike."""
    keep = asking.way == "person" or chance(rng, 0.5)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if chance(rng, 0.5):
        model.set_params(budget=None)
    elif model.budget is not None:
        model.set_params(budget=replace(model.budget, releases=None))
    return model, type(model)(**model.get_params(deep=False))


def fit(model: Any, task: Task, asking: Asking) -> None:
    """Fit a model to a problem."""
    sample = task.sample
    model.fit(sample.X, labels_of(task), asking.subjects(task), sample.weight)


class Stage:
    """A model, and a twin on which every act is rehearsed to count its lines.

    Parameters
    ----------
    rng, court
        Chance, and where verdicts go.
    asking
        How requests are made.
    model, twin
        Estimators that are alike.
    """

    def __init__(
        self, rng: Generator, court: Court, asking: Asking, model: Any, twin: Any
    ) -> None:
        self.rng, self.court, self.asking = rng, court, asking
        self.model, self.twin = model, twin

    def both(self, act: Callable[[Any], object]) -> None:
        """Do something to the model and to its twin."""
        act(self.model)
        act(self.twin)

    def strike(self, act: Callable[[Any], object]) -> int | None:
        """Interrupt an act on the model at a random line; None if it is impossible."""
        try:
            n_lines = count_lines(lambda: act(self.twin))
        except (ValueError, ArithmeticError, RuntimeError):
            return None
        line = int(self.rng.integers(1, n_lines + 1))
        interrupt(lambda: act(self.model), line)
        return line

    def forget(self, task: Task, people: list[str], stay: Array) -> bool:
        """Make a request that is interrupted, and make it again; judge the model."""

        def act(model: Any) -> None:
            self.asking.forget(model, task, people, stay)

        line = self.strike(act)
        if line is None:
            return False
        try:
            act(self.model)
        except (UnknownSubject, UnknownRows):
            pass  # it was done before the interrupt
        left = stay & ~task.rows_of(people)
        judge(self.court, self.model, task, left, f"line {line}: ")
        return True

    def fit_again(self, task: Task, stay: Array) -> tuple[Task, Array]:
        """Interrupt a fit to some of the rows; return what the model holds then."""
        some = self.rng.random(len(stay)) < 0.7
        if not task.sample.weight[some].any() or empties_a_class(task, some):
            return task, stay
        fewer = Task(task.aim, task.sample.take(some), task.owners[some])
        before = draft_of(self.model).copy()
        line = self.strike(lambda model: fit(model, fewer, self.asking))
        where = "a fit that is impossible: " if line is None else f"fit, line {line}: "
        if np.array_equal(draft_of(self.model), before):
            judge(self.court, self.model, task, stay, where)
            self.both(lambda model: fit(model, fewer, self.asking))
        judge(self.court, self.model, fewer, np.ones(some.sum(), dtype=bool), where)
        return fewer, np.ones(int(some.sum()), dtype=bool)
