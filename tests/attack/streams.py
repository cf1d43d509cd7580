# SPDX-License-Identifier: Apache-2.0
"""Attack the estimators: people and rows leave, files are written in between."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from expunge import load
from expunge.exceptions import CapacityExceeded

from . import draws
from .draws import Generator, Task, chance, pick
from .faces import Asking, asked, empties_a_class, estimator, judge, labels_of
from .judge import Court


def attack(rng: Generator, court: Court) -> None:
    """Fit an estimator, let people leave, and judge every release."""
    task = draws.task(rng)
    asking = Asking(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    keep = asking.way != "content" or chance(rng, 0.5)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if not fitted(rng, court, model, task, asking):
        return
    stay = np.ones(len(task.owners), dtype=bool)
    judge(court, model, task, stay, "fit ")
    everybody = len(task.people)
    behind = False  # whether the release shown is older than the state
    for people in draws.requests(rng, task, 6):
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any() or empties_a_class(task, after):
            continue
        if chance(rng, 0.15):
            model = reloaded(model)
        behind = behind and not people  # nobody's request brings no new release
        stay, refusal = asked(court, model, asking, (task, people, stay))
        behind = behind or isinstance(refusal.error, CapacityExceeded)
        if refusal or behind:
            continue
        judge(court, model, task, stay)
        if asking.way == "person":
            n_gone = everybody - len(np.unique(task.owners[stay]))
            counted = model.certificate_.n_subjects_removed
            court.fact(counted == n_gone, f"{n_gone} people left, {counted} counted")


def fitted(
    rng: Generator, court: Court, model: Any, task: Task, asking: Asking
) -> bool:
    """Fit a model, to sparse rows at times; return whether it was possible."""
    sample = task.sample
    X: Any = sample.X
    if chance(rng, 0.15):
        X = sparse.csr_array(np.where(np.abs(X) < 0.05 * np.abs(X).max(), 0.0, X))
        sample.X[:] = X.toarray()
    weight = None if (sample.weight == 1.0).all() else sample.weight
    with court.refusals() as refusal:
        model.fit(X, labels_of(task), asking.subjects(task), weight)
    return not refusal


def reloaded(model: Any) -> Any:
    """Return the model as a file brings it back."""
    with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
        model.save(Path(folder) / "model")
        return load(Path(folder) / "model")
