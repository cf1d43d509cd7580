# SPDX-License-Identifier: Apache-2.0
"""Attack the estimators: remove people and rows, save and load in between."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from expunge import load
from expunge.exceptions import CapacityExceeded

from . import draws
from .draws import Generator, Task, chance, pick
from .estimators import (
    RequestMaker,
    check_release,
    empties_a_class,
    estimator,
    labels_of,
    make_request,
)
from .judge import Checker


def attack(rng: Generator, checker: Checker) -> None:
    """Fit an estimator, remove people, and check every release."""
    task = draws.task(rng)
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    keep = maker.way != "content" or chance(rng, 0.5)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if not fit_model(rng, checker, model, task, maker):
        return
    stay = np.ones(len(task.owners), dtype=bool)
    check_release(checker, model, task, stay, "fit ")
    everybody = len(task.people)
    behind = False  # whether the release is older than the state
    for people in draws.requests(rng, task, 6):
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any() or empties_a_class(task, after):
            continue
        if chance(rng, 0.15):
            model = reload_model(model)
        stay, refusal = make_request(checker, model, maker, (task, people, stay))
        if isinstance(refusal.error, CapacityExceeded):
            behind = True
        elif people and not refusal:  # an empty request makes no new release
            behind = False
        if refusal or behind:
            continue
        check_release(checker, model, task, stay)
        if maker.way == "person":
            n_gone = everybody - len(np.unique(task.owners[stay]))
            counted = model.certificate_.n_subjects_removed
            checker.check(counted == n_gone, f"{n_gone} people left, {counted} counted")


def fit_model(
    rng: Generator, checker: Checker, model: Any, task: Task, maker: RequestMaker
) -> bool:
    """Fit a model, sometimes to sparse rows; return whether it was possible."""
    sample = task.sample
    X: Any = sample.X
    if chance(rng, 0.15):
        X = sparse.csr_array(np.where(np.abs(X) < 0.05 * np.abs(X).max(), 0.0, X))
        sample.X[:] = X.toarray()
    weight = None if (sample.weight == 1.0).all() else sample.weight
    with checker.note_refusals() as refusal:
        model.fit(X, labels_of(task), maker.subjects(task), weight)
    return not refusal


def reload_model(model: Any) -> Any:
    """Return the model after saving and loading it."""
    with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
        model.save(Path(folder) / "model")
        return load(Path(folder) / "model")
