# SPDX-License-Identifier: Apache-2.0
"""Attack the estimators: people leave and come; save and load in between."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from expunge import load

from . import draws
from .crowds import Crowd
from .draws import Generator, Task, chance, pick
from .estimators import RequestMaker, estimator
from .judge import Checker

REQUESTS = 7


def attack(rng: Generator, checker: Checker) -> None:
    """Fit an estimator, let people leave and come, and check every release."""
    task = draws.task(rng)
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    keep = maker.way != "content" or chance(rng, 0.5)
    stream(rng, checker, task, estimator(rng, task, keep_data=keep), maker)


def stream(
    rng: Generator,
    checker: Checker,
    task: Task,
    model: Any,
    maker: RequestMaker,
    also: Callable[[Checker, Any, Task, Any], None] = lambda *given: None,
) -> None:
    """Fit this estimator, let people leave and come, and check every release.

    ``also`` checks what else must hold of a release: it is told who is in the model.
    """
    if not model.keep_data and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    crowd = Crowd(rng, checker, task, maker)
    if not crowd.fit(model, draw_design(rng, task)):
        return
    crowd.check(model, "fit ")
    also(checker, model, task, crowd.inside)
    for _ in range(REQUESTS):
        leaving, coming = crowd.draw()
        if not crowd.possible(leaving, coming):
            continue
        if chance(rng, 0.15):
            model = reload_model(model)
        if not crowd.ask(model, leaving, coming) and not crowd.behind:
            crowd.check(model)
            also(checker, model, task, crowd.inside)


def draw_design(rng: Generator, task: Task) -> Any:
    """Return the rows of a problem, sometimes sparse."""
    X: Any = task.sample.X
    if chance(rng, 0.15):
        X = sparse.csr_array(np.where(np.abs(X) < 0.05 * np.abs(X).max(), 0.0, X))
        task.sample.X[:] = X.toarray()
    return X


def reload_model(model: Any) -> Any:
    """Return the model after saving and loading it."""
    with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
        model.save(Path(folder) / "model")
        return load(Path(folder) / "model")
