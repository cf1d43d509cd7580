# SPDX-License-Identifier: Apache-2.0
"""Attack with threads: a failing fit, or another request, during a request."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from . import draws
from .draws import Generator, Task, chance
from .estimators import check_release, empties_a_class, estimator, labels_of
from .judge import Checker
from .losses import Array

PATIENCE = 0.02  # seconds that a fit waits for the other thread


class Slow:
    """Data that can be read only when another thread is done, or after a while."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Signal that reading has begun, and wait for the other thread."""
        self.begun.set()
        self.go_on.wait(PATIENCE)


class SlowTable(Slow):
    """A table that is slow to read.

    Parameters
    ----------
    X
        The table; None cannot be read at all.
    """

    def __init__(self, X: Array | None) -> None:
        super().__init__()
        self.X = X

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.wait()
        if self.X is None:
            raise ValueError("this table cannot be read")
        return np.array(self.X, dtype=dtype)


class SlowList(Slow):
    """A list of people that is slow to read.

    Parameters
    ----------
    people
        Who they are.
    """

    def __init__(self, people: list[str]) -> None:
        super().__init__()
        self.people = people

    def __iter__(self) -> Iterator[str]:
        self.wait()
        return iter(self.people)


def attack(rng: Generator, checker: Checker) -> None:
    """Remove people while a fit fails or others are removed; check every release."""
    task = draws.task(rng)
    model = estimator(rng, task)
    with checker.note_refusals() as refusal:
        fit(model, task, task.sample.X, task.owners.tolist())
    if refusal:
        return
    stay = np.ones(len(task.owners), dtype=bool)
    for people in draws.requests(rng, task, 4):
        after = stay & ~task.rows_of(people)
        if len(people) < 2 or not _possible(task, after):
            continue
        if chance(rng, 0.5):
            met = two_requests(checker, model, people)
        else:
            slow = SlowTable(None if chance(rng, 0.5) else task.sample.X)
            met = failing_fit(checker, model, (task, people), slow)
        if not met:
            return
        stay = after
        check_release(checker, model, task, stay, "threads: ")


def _possible(task: Task, after: Array) -> bool:
    return bool(task.sample.weight[after].any()) and not empties_a_class(task, after)


def fit(model: Any, task: Task, X: Any, subjects: list[str]) -> None:
    """Fit a model to some table of a problem's features."""
    model.fit(X, labels_of(task), subjects, task.sample.weight)


def failing_fit(
    checker: Checker, model: Any, request: tuple[Task, list[str]], slow: SlowTable
) -> bool:
    """Make a request while a fit fails in another thread; return if it succeeded."""
    task, people = request

    def failing() -> None:
        with suppress(ValueError):
            fit(model, task, slow, ["too few owners"])

    return _beside(checker, failing, slow, lambda: model.forget(people))


def two_requests(checker: Checker, model: Any, people: list[str]) -> bool:
    """Make two requests at once, one slow; return whether both succeeded."""
    slow, refused = SlowList(people[1:]), []

    def slowly() -> None:
        try:
            model.forget(slow)
        except Exception as error:
            refused.append(error)

    met = _beside(checker, slowly, slow, lambda: model.forget(people[:1]))
    return met and not refused


def _beside(
    checker: Checker, other: Callable[[], None], slow: Slow, act: Callable[[], object]
) -> bool:
    """Act while another thread is busy; return whether the action succeeded."""
    thread = threading.Thread(target=other)
    thread.start()
    slow.begun.wait(1.0)
    with checker.note_refusals() as refusal:
        act()
    slow.go_on.set()
    thread.join()
    return not refusal
