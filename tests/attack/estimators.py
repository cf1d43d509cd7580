# SPDX-License-Identifier: Apache-2.0
"""Estimators for random problems, and checks of their releases."""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isqrt
from typing import Any

import numpy as np

from expunge import Budget, LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.exceptions import CannotRemove, CapacityExceeded, UnknownRows
from expunge.promise.scope import TARGETS_SCALED

from .core import MECHANISMS, penalty_of
from .draws import Generator, Task, chance, pick
from .judge import Checker, Refusal
from .losses import Array, Loss
from .oracle import LONG, Aim, Sample, minimise
from .peek import draft_of, units_of

WORDS = np.array(["ash", "birch", "cedar", "elm"])


def labels_of(task: Task) -> Array:
    """Return the labels as a user would pass them: strings, or targets."""
    y = task.sample.y
    if not task.classes:
        return y
    codes = y if task.aim.loss.name in ("softmax", "one-vs-rest") else (y + 1.0) / 2.0
    return np.asarray(WORDS[codes.astype(int)])


def budget_of(rng: Generator) -> Budget | None:
    """Return a random budget, or None."""
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
    """Return an estimator for a problem, under a random budget."""
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


def balance(words: Array, weight: Array) -> Array:
    """Return weights under which every class weighs the same, and all as before."""
    factors, found = np.empty(len(weight)), np.unique(words)
    total = weight.astype(LONG).sum()
    for word in found:
        own = words == word
        factors[own] = float(total / weight[own].astype(LONG).sum() / len(found))
    return np.asarray(weight * factors)


def retraining_problem(task: Task, stay: Array) -> tuple[Aim, Sample, Array]:
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


def check_release(
    checker: Checker, model: Any, task: Task, stay: Array, what: str = ""
) -> None:
    """Compare a model's release with a fit to the remaining rows."""
    check_against_fit(
        checker, model, retraining_problem(task, stay), task.sample.total, what
    )


def unit_of(release: Any, sample: Sample) -> tuple[Array, Array]:
    """Return mean and deviation of the targets if the certificate counts in them.

    Else, as for classes coded as -1 and 1, zero and one: a claim is judged in the unit
    in which it says it is made.
    """
    if TARGETS_SCALED not in release.certificate_.assumptions:
        return np.zeros(1), np.ones(1)
    columns = sample.y.reshape(len(sample.y), -1).T
    pairs = [_exact_unit(y, sample.weight) for y in columns]
    mean, deviation = np.array(pairs).T
    return mean, deviation


def _exact_unit(targets: Array, weights: Array) -> tuple[float, float]:
    """Return mean and deviation of one target by fractions, each rounded once."""
    weight, y = (
        [Fraction(*one.as_integer_ratio()) for one in part.tolist()]
        for part in (weights, targets)
    )
    pairs = list(zip(weight, y, strict=True))
    total, zero = sum(weight, Fraction()), Fraction()
    mean = sum((w * y for w, y in pairs), zero) / total
    square = sum((w * (y - mean) ** 2 for w, y in pairs), zero) / total
    if not square:
        return float(mean), 1.0
    bits = max(0, 300 + square.denominator.bit_length() - square.numerator.bit_length())
    root = isqrt((square.numerator << 2 * bits) // square.denominator)
    return float(mean), float(Fraction(root, 1 << bits))


def check_against_fit(
    checker: Checker,
    model: Any,
    rest: tuple[Aim, Sample, Array],
    first_weight: Any,
    what: str = "",
) -> None:
    """Compare a model's classes and parameters with a fit to these rows."""
    aim, sample, classes = rest
    if len(classes) and not np.array_equal(model.classes_, classes):
        checker.check(False, f"{what}classes {model.classes_}, a fit has {classes}")
        return
    theta, record = draft_of(model), model.record_
    truth = minimise(aim, sample, first_weight, theta)
    checker.note_decisions(record.decisions)
    said = TARGETS_SCALED in model.certificate_.assumptions
    does = units_of(model) is not None
    checker.check(said == does, f"{what}counted in another unit than it says")
    unit = float(unit_of(model, sample)[1].min())
    radius = inf if record.radius is None else unit * record.radius
    checker.check_radius(radius, theta, truth, what)
    if model.budget is None:
        checker.check_radius(
            radius, public_parameters(model, aim), truth, f"{what}public"
        )
    elif model.certificate_.status == "certified":
        budget = model.budget.at_fit(rows_kept=bool(getattr(model, "keep_data", 1)))
        room = unit * budget.radius_budget(theta.size)
        checker.check_radius(room, theta, truth, f"{what}certified")


def public_parameters(model: Any, aim: Aim) -> Array:
    """Return the public parameters in the oracle's order."""
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    rows = [coef.T, intercept[None, :]] if aim.intercept else [coef.T]
    return np.vstack(rows).ravel()


@dataclass(frozen=True)
class RequestMaker:
    """How a request is made: by person, by position or by content."""

    way: str

    def forget(self, model: Any, task: Task, people: list[str], stay: Array) -> None:
        """Ask a model to forget the remaining rows of these people."""
        mask = task.rows_of(people) & stay
        if self.way == "person":
            # All spellings of an id mean the same person.
            model.forget([f" {p}\t" if i % 3 else p for i, p in enumerate(people)])
        elif self.way == "position":
            model.forget(rows=np.flatnonzero(mask))
        else:
            sample, y = task.sample, labels_of(task)
            model.forget(X=sample.X[mask], y=y[mask], sample_weight=sample.weight[mask])

    def subjects(self, task: Task) -> list[str] | None:
        """Return the owners to fit with, if this way of asking uses any."""
        return None if self.way == "position" else task.owners.tolist()


def make_request(
    checker: Checker,
    model: Any,
    maker: RequestMaker,
    request: tuple[Task, list[str], Array],
) -> tuple[Array, Refusal]:
    """Make a request; return which rows are left, and whether it was refused.

    A refusal must leave the release and the model as they were, unless the budget is
    exhausted: then the rows are removed and no release follows.
    """
    task, people, stay = request
    before = np.array(model.coef_)
    with checker.note_refusals() as refusal:
        maker.forget(model, task, people, stay)
    if not refusal:
        return stay & ~task.rows_of(people), refusal
    checker.check(bool(people), "an empty request was refused")
    found = not isinstance(refusal.error, UnknownRows)
    checker.check(found, "rows that are in the model were not found by their content")
    if isinstance(refusal.error, CannotRemove) and model.keep_data:
        left = task.sample.weight[stay & ~task.rows_of(people)]
        said = "CannotRemove though rows are kept and weight is left"
        checker.check(not left.any(), said)
    same = np.array_equal(model.coef_, before)
    checker.check(same, "a refused request moved the release")
    if isinstance(refusal.error, CapacityExceeded):
        return stay & ~task.rows_of(people), refusal
    return stay, refusal


def empties_a_class(task: Task, stay: Array) -> bool:
    """Whether a class of the fit has no row left."""
    if not task.classes:
        return False
    words = labels_of(task)
    return len(np.unique(words[stay])) < len(np.unique(words))
