# SPDX-License-Identifier: Apache-2.0
"""Estimators for random problems, and what must hold of their releases."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from expunge import Budget, LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.exceptions import CannotRemove, CapacityExceeded

from .core import MECHANISMS, penalty_of
from .draws import Generator, Task, chance, pick
from .judge import Court, Refusal
from .losses import Array, Loss
from .oracle import Aim, Sample, minimise
from .peek import draft_of

WORDS = np.array(["ash", "birch", "cedar", "elm"])


def labels_of(task: Task) -> Array:
    """Return the labels as a user has them: words, or targets."""
    y = task.sample.y
    if not task.classes:
        return y
    codes = y if task.aim.loss.name in ("softmax", "one-vs-rest") else (y + 1.0) / 2.0
    return np.asarray(WORDS[codes.astype(int)])


def budget_of(rng: Generator) -> Budget | None:
    """Return a contract whose noise may be anything, or none."""
    if chance(rng, 0.2):
        return None
    return Budget(
        epsilon=float(10.0 ** rng.uniform(-1.0, 1.0)),
        delta=float(10.0 ** rng.uniform(-9.0, -2.0)),
        sigma=float(10.0 ** rng.uniform(-9.0, 3.0)),
        releases=int(rng.integers(1, 12)) if chance(rng, 0.2) else None,
        allow_seeded=True,
    )


def estimator(rng: Generator, task: Task, **changes: Any) -> Any:
    """Return an estimator for a problem, under some contract."""
    aim = task.aim
    mechanism = pick(rng, *MECHANISMS)
    if mechanism == "rescaled" and aim.groups is not None:
        mechanism = "newton"
    settings: dict[str, Any] = {
        "alpha": aim.alpha,
        "ridge": aim.ridge,
        "scaling": aim.scaling,
        "fit_intercept": aim.intercept,
        "penalize_intercept": aim.intercept and not aim.free,
        "mechanism": MECHANISMS[mechanism],
        "budget": budget_of(rng),
        "random_state": int(rng.integers(0, 1000)),
    }
    if aim.groups is not None:
        settings["penalty"] = penalty_of(aim)
    else:
        settings["l1_ratio"] = aim.l1_ratio
    if aim.loss.name == "softmax":
        return SoftmaxRegression(**settings | changes)
    words = {"hinge": "squared_hinge", "huber": "huber"}
    settings["loss"] = words.get(aim.loss.name)
    face = LogisticRegression if task.classes else LinearRegression
    return face(**settings | changes)


def on_the_rest(task: Task, stay: Array) -> tuple[Aim, Sample, Array]:
    """Return what a fit to the remaining rows would minimise, and its classes."""
    rest = task.sample.take(stay)
    if not task.classes:
        return task.aim, rest, np.array([])
    words = labels_of(task)[stay]
    classes, codes = np.unique(words, return_inverse=True)
    name = task.aim.loss.name
    if name in ("one-vs-rest", "softmax"):
        if len(classes) == 2 and name == "one-vs-rest":
            loss, y = Loss("logistic"), 2.0 * codes - 1.0
        else:
            loss, y = Loss(name, len(classes)), codes.astype(float)
        return replace(task.aim, loss=loss), replace(rest, y=y), classes
    return task.aim, rest, classes


def judge(court: Court, model: Any, task: Task, stay: Array, what: str = "") -> None:
    """Hold a model's release against a fit to the remaining rows."""
    hold(court, model, on_the_rest(task, stay), task.sample.total, what)


def hold(
    court: Court,
    model: Any,
    rest: tuple[Aim, Sample, Array],
    first_weight: Any,
    what: str = "",
) -> None:
    """Hold a model's release against what these rows give: classes and parameters."""
    aim, sample, classes = rest
    if len(classes) and not np.array_equal(model.classes_, classes):
        court.fact(False, f"{what}classes {model.classes_}, a fit has {classes}")
        return
    theta, record = draft_of(model), model.record_
    truth = minimise(aim, sample, first_weight, theta)
    court.decided(record.decisions)
    radius = inf if record.radius is None else record.radius
    court.radius(radius, theta, truth, what)
    if model.budget is None:
        court.radius(radius, shown(model, aim), truth, f"{what}public")
    elif model.certificate_.status == "certified":
        room = model.budget.radius_budget(theta.size)
        court.radius(room, theta, truth, f"{what}certified")


def shown(model: Any, aim: Aim) -> Array:
    """Return the public parameters in the oracle's order."""
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    rows = [coef.T, intercept[None, :]] if aim.intercept else [coef.T]
    return np.vstack(rows).ravel()


@dataclass(frozen=True)
class Asking:
    """How a request is made: by person, by position or by content."""

    way: str

    def forget(self, model: Any, task: Task, people: list[str], stay: Array) -> None:
        """Ask a model to forget these people's rows that are still there."""
        mask = task.rows_of(people) & stay
        if self.way == "person":
            # However an id is spelt, it is the same person.
            model.forget([f" {p}\t" if i % 3 else p for i, p in enumerate(people)])
        elif self.way == "position":
            model.forget(rows=np.flatnonzero(mask))
        else:
            sample, y = task.sample, labels_of(task)
            model.forget(X=sample.X[mask], y=y[mask], sample_weight=sample.weight[mask])

    def subjects(self, task: Task) -> list[str] | None:
        """Return whose rows these are, where the model may know."""
        return None if self.way == "position" else task.owners.tolist()


def asked(
    court: Court, model: Any, asking: Asking, request: tuple[Task, list[str], Array]
) -> tuple[Array, Refusal]:
    """Make a request; return which rows are left then, and whether it was refused.

    A refusal must leave the release as it was, and the model as it was, but for a
    contract that is exhausted: then the rows are gone and no release follows.
    """
    task, people, stay = request
    shown = getattr(model, "model_", model)
    before = np.array(shown.coef_)
    with court.refusals() as refusal:
        asking.forget(model, task, people, stay)
    if not refusal:
        return stay & ~task.rows_of(people), refusal
    court.fact(bool(people), "a request of nobody was refused")
    if isinstance(refusal.error, CannotRemove) and getattr(shown, "keep_data", True):
        court.fact(False, "rows are kept and weight is left, yet it cannot remove")
    same = getattr(model, "model_", model) is shown
    same = same and np.array_equal(shown.coef_, before)
    court.fact(same, "a refused request moved the release")
    if isinstance(refusal.error, CapacityExceeded):
        return stay & ~task.rows_of(people), refusal
    return stay, refusal


def empties_a_class(task: Task, stay: Array) -> bool:
    """Whether a class of the fit has no row left."""
    if not task.classes:
        return False
    words = labels_of(task)
    return len(np.unique(words[stay])) < len(np.unique(words))
