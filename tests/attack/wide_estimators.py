# SPDX-License-Identifier: Apache-2.0
"""Attack estimators and registries that go without matrices."""

import tempfile
from pathlib import Path
from typing import Any

from expunge.linear_model.base import private_model

from . import wide_draws
from .crowds import Crowd
from .draws import Generator, Task, chance, pick
from .estimators import RequestMaker, estimator, retraining_problem
from .judge import Checker
from .registries import MEMORY, Site
from .streams import draw_design, reload_model
from .wide_state import check_state

REQUESTS = 9
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
    """Fit an estimator; people leave and come; save and load in between."""
    task = draw_task(rng)
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    model = wide_estimator(rng, task)
    crowd = Crowd(rng, checker, task, maker)
    if not crowd.fit(model, draw_design(rng, task)):
        return
    check(checker, model, crowd, "fit ")
    for _ in range(REQUESTS):
        leaving, coming = crowd.draw()
        after = crowd.after(leaving, coming)
        if not task.sample.weight[after].any():
            continue
        if not crowd.possible(leaving, coming) and (coming or not chance(rng, 0.1)):
            continue
        if chance(rng, 0.2):
            model = reload_model(model)
        if not crowd.ask(model, leaving, coming) and not crowd.behind:
            check(checker, model, crowd)


def check(checker: Checker, model: Any, crowd: Crowd, what: str = "") -> None:
    """Check a release, and the state behind it."""
    crowd.check(model, f"wide {what}")
    private = private_model(model)
    if private.terms.mechanism.keeps_matrices:
        return
    aim, left, _ = retraining_problem(crowd.task, crowd.inside)
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
