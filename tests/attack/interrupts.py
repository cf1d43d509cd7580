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
from .estimators import (
    RequestMaker,
    check_release,
    empties_a_class,
    estimator,
    labels_of,
)
from .judge import Checker
from .losses import Array
from .peek import draft_of


def attack(rng: Generator, checker: Checker) -> None:
    """Interrupt requests, and fits in between; check the model after each."""
    task = draws.task(rng)
    # Asked twice for one of several equal rows, a model rightly removes two.
    distinct = len(np.unique(task.sample.X, axis=0)) == len(task.owners)
    maker = RequestMaker(pick(rng, "person", "content") if distinct else "person")
    stage = Stage(rng, checker, maker, *fit_pair(rng, task, maker))
    with checker.note_refusals() as refusal:
        stage.both(lambda model: fit(model, task, maker))
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


def fit_pair(rng: Generator, task: Task, maker: RequestMaker) -> tuple[Any, Any]:
    """Return two identical estimators."""
    keep = maker.way == "person" or chance(rng, 0.5)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if chance(rng, 0.5):
        model.set_params(budget=None)
    elif model.budget is not None:
        model.set_params(budget=replace(model.budget, releases=None))
    return model, type(model)(**model.get_params(deep=False))


def fit(model: Any, task: Task, maker: RequestMaker) -> None:
    """Fit a model to a problem."""
    sample = task.sample
    model.fit(sample.X, labels_of(task), maker.subjects(task), sample.weight)


class Stage:
    """A model, and a copy on which every action is tried first, to count its lines.

    Parameters
    ----------
    rng, court
        Chance, and where verdicts go.
    asking
        How requests are made.
    model, copy
        Estimators that are alike.
    """

    def __init__(
        self,
        rng: Generator,
        checker: Checker,
        maker: RequestMaker,
        model: Any,
        copy: Any,
    ) -> None:
        self.rng, self.checker, self.maker = rng, checker, maker
        self.model, self.copy = model, copy

    def both(self, act: Callable[[Any], object]) -> None:
        """Do something to the model and to its copy."""
        act(self.model)
        act(self.copy)

    def interrupt_at_random(self, act: Callable[[Any], object]) -> int | None:
        """Interrupt an action at a random line; return it, or None if impossible."""
        try:
            n_lines = count_lines(lambda: act(self.copy))
        except (ValueError, ArithmeticError, RuntimeError):
            return None
        line = int(self.rng.integers(1, n_lines + 1))
        interrupt(lambda: act(self.model), line)
        return line

    def forget(self, task: Task, people: list[str], stay: Array) -> bool:
        """Make a request that is interrupted, and make it again; check the model."""

        def act(model: Any) -> None:
            self.maker.forget(model, task, people, stay)

        line = self.interrupt_at_random(act)
        if line is None:
            return False
        try:
            act(self.model)
        except (UnknownSubject, UnknownRows):
            pass  # it was done before the interrupt
        left = stay & ~task.rows_of(people)
        check_release(self.checker, self.model, task, left, f"line {line}: ")
        return True

    def fit_again(self, task: Task, stay: Array) -> tuple[Task, Array]:
        """Interrupt a fit to some of the rows; return which rows the model then has."""
        some = self.rng.random(len(stay)) < 0.7
        if not task.sample.weight[some].any() or empties_a_class(task, some):
            return task, stay
        fewer = Task(task.aim, task.sample.take(some), task.owners[some])
        before = draft_of(self.model).copy()
        line = self.interrupt_at_random(lambda model: fit(model, fewer, self.maker))
        where = "a fit that is impossible: " if line is None else f"fit, line {line}: "
        if np.array_equal(draft_of(self.model), before):
            check_release(self.checker, self.model, task, stay, where)
            self.both(lambda model: fit(model, fewer, self.maker))
        check_release(
            self.checker, self.model, fewer, np.ones(some.sum(), dtype=bool), where
        )
        return fewer, np.ones(int(some.sum()), dtype=bool)
