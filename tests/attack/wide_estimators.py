# SPDX-License-Identifier: Apache-2.0
"""Attack estimators and registries that go without matrices."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from expunge.exceptions import CapacityExceeded
from expunge.linear_model.snapshots import private_model
from expunge.removal.matrix_free import is_matrix_free

from . import draws, wide_draws
from .draws import Generator, Task, chance, pick
from .estimators import (
    RequestMaker,
    check_release,
    empties_a_class,
    estimator,
    make_request,
    retraining_problem,
)
from .judge import Checker
from .losses import Array
from .registries import MEMORY, Site
from .streams import fit_model, reload_model
from .wide_state import check_state

FACES = ("logistic", "softmax", "one-vs-rest", "squared", "huber", "hinge")


def draw_task(rng: Generator) -> Task:
    """Return a problem that an estimator has a name for."""
    while True:
        task = wide_draws.task(rng)
        small = task.aim.loss.name == "one-vs-rest" and task.aim.loss.outputs < 3
        if task.aim.loss.name in FACES and not small:
            return task


def wide_estimator(rng: Generator, task: Task) -> Any:
    """Return an estimator that goes without matrices."""
    return estimator(rng, task, mechanism=pick(rng, "matrix-free", "auto"))


def attack_estimator(rng: Generator, checker: Checker) -> None:
    """Fit an estimator, remove people by name or by rows, save and load in between."""
    task = draw_task(rng)
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    model = wide_estimator(rng, task)
    if not fit_model(rng, checker, model, task, maker):
        return
    stay, behind = np.ones(len(task.owners), dtype=bool), False
    check(checker, model, task, stay, "fit ")
    for people in draws.requests(rng, task, 8):
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any():
            continue
        if empties_a_class(task, after) and not chance(rng, 0.1):
            continue
        if chance(rng, 0.2):
            model = reload_model(model)
        stay, refusal = make_request(checker, model, maker, (task, people, stay))
        if people:
            behind = isinstance(refusal.error, CapacityExceeded)
        if not (refusal or behind):
            check(checker, model, task, stay)


def check(
    checker: Checker, model: Any, task: Task, stay: Array, what: str = ""
) -> None:
    """Check a release, and the state behind it."""
    check_release(checker, model, task, stay, f"wide {what}")
    private = private_model(model)
    if not is_matrix_free(private.agreement.mechanism):
        return
    aim, left, _ = retraining_problem(task, stay)
    check_state(checker, private.answer.state, aim, left)


class WideSite(Site):
    """A registry of models without matrices."""

    def make_model(self, task: Task) -> Any:
        """Return an estimator that goes without matrices."""
        return wide_estimator(self.rng, task)


def attack_registry(rng: Generator, checker: Checker) -> None:
    """Fill a registry with models without matrices, and disturb it."""
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="expunge-attack-", dir=place) as folder:
        site = WideSite(rng, checker, Path(folder))
        try:
            site.run()
        finally:
            site.registry.close()
