# SPDX-License-Identifier: Apache-2.0
"""Attack class sets: people who own a whole class are removed.

Declared classes stay, in both worlds. Learnt ones must go with the last of their rows,
as they would from a fit to the rest; where that cannot be done, the request is refused
and nothing changes.
"""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from . import draws
from .adopted import READERS, Given, adopt_model
from .crowds import Crowd
from .draws import CLASSIFIERS, Generator, Task, chance, pick
from .estimators import (
    WORDS,
    RequestMaker,
    check_against_fit,
    estimator,
    labels_of,
    retraining_problem,
)
from .judge import Checker, Refusal
from .losses import Array, Loss
from .oracle import Aim, Sample, minimise
from .peek import draft_of
from .raw_tables import standardise


def attack(rng: Generator, checker: Checker) -> None:
    """Fit or adopt a classifier, remove owners of classes, and check every release."""
    if chance(rng, 0.2):
        attack_adopted(rng, checker)
    else:
        attack_fitted(rng, checker)


def attack_adopted(rng: Generator, checker: Checker) -> None:
    """Adopt a classifier; scikit-learn decides which classes are left."""
    X = draws.design(rng, int(rng.integers(12, 60)), int(rng.integers(1, 5)))
    given = READERS[pick(rng, "logistic", "one-vs-rest", "descent")](rng, X)
    owners = assign_owners(rng, given.labels, draws.owners(rng, len(X)))
    with checker.note_refusals() as refusal:
        model = adopt_model(rng, given, owners)
    if refusal:
        return
    task = Task(given.aim, given.sample, owners)
    stay = np.ones(len(X), dtype=bool)
    for people in requests(rng, task):
        after = stay & ~task.rows_of(people)
        n_left = len(np.unique(given.labels[after]))
        with checker.note_refusals() as refusal:
            model.forget(people)
        if n_left < 2:
            checker.check(bool(refusal), "one class is left, yet it answered")
        if not refusal:
            stay = after
            rest = scikit_learn_on_the_rest(given, stay)
            check_against_fit(checker, model, rest, given.sample.total, "adopted: ")


def scikit_learn_on_the_rest(given: Given, stay: Array) -> tuple[Aim, Sample, Array]:
    """Return what scikit-learn would minimise: two classes share one predictor."""
    rest = given.remaining(stay)
    classes, codes = np.unique(given.labels[stay], return_inverse=True)
    if len(classes) == 2:
        y = 2.0 * codes - 1.0
        return replace(given.aim, loss=Loss("logistic")), replace(rest, y=y), classes
    loss = Loss(given.aim.loss.name, len(classes))
    return replace(given.aim, loss=loss), replace(rest, y=codes.astype(float)), classes


def attack_fitted(rng: Generator, checker: Checker) -> None:
    """Fit a classifier; owners of classes leave and come back; check every release."""
    task = draw_task(rng)
    maker = RequestMaker("person" if chance(rng, 0.7) else "content")
    declared = chance(rng, 0.5)
    scaled = maker.way == "person" and chance(rng, 0.25)
    model = make_model(rng, task, maker, declared=declared, scaled=scaled)
    crowd = Crowd(rng, checker, task, maker)
    crowd.inside[:], crowd.declared = True, declared
    if not crowd.fit(model, task.sample.X):
        return
    case_ = ModelCase(checker, task, model, declared=declared, scaled=scaled)
    case_.check_release(crowd.inside)
    away: list[str] = []
    for people in requests(rng, task):
        there = crowd.inside & ~task.rows_of(people)
        if not there.any():
            continue
        refusal = crowd.ask(model, people, [])
        case_.request_removal(there, refusal)
        if not refusal:
            away += people
            case_.check_release(crowd.inside)
        if away and not crowd.behind and chance(rng, 0.4):
            coming = [away.pop(int(rng.integers(0, len(away))))]
            if crowd.add(model, coming):
                away += coming
            else:
                case_.check_release(crowd.inside)


def draw_task(rng: Generator) -> Task:
    """Return a classification problem in which some people own a class."""
    task = draws.task(rng, CLASSIFIERS)
    if task.aim.groups is not None:
        task = replace(task, aim=replace(task.aim, groups=None))
    owners = assign_owners(rng, labels_of(task), task.owners)
    sample = replace(task.sample, weight=np.maximum(task.sample.weight, 1e-3))
    return replace(task, owners=owners, sample=sample)


def assign_owners(rng: Generator, words: Array, owners: Array) -> Array:
    """Return owners of rows; one or two people own all rows of some classes."""
    mine = owners.astype(object)
    for word in rng.permutation(np.unique(words))[: int(rng.integers(1, 4))]:
        rows = np.flatnonzero(words == word)
        mine[rows] = [f"{word}{i}" for i in rng.integers(0, 2, len(rows))]
    return np.asarray(mine.astype(str))


def make_model(
    rng: Generator, task: Task, maker: RequestMaker, *, declared: bool, scaled: bool
) -> Any:
    """Return an estimator, with its classes declared or not, with a scaler or not."""
    keep = maker.way == "person" or chance(rng, 0.3)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if declared:
        model.set_params(classes=WORDS[: task.classes].tolist())
    if scaled:
        model.set_params(preprocessing=StandardScaler())
    return model


def requests(rng: Generator, task: Task) -> list[list[str]]:
    """Return requests, some of which remove the last row of a class."""
    owners = [p for p in task.people if not p.startswith("p")]
    others = [p for p in task.people if p.startswith("p")]
    rng.shuffle(owners)
    rng.shuffle(others)
    found = [[owner] for owner in owners]
    found += [others[i : i + 2] for i in range(0, min(len(others), 6), 2)]
    order = rng.permutation(len(found))
    return [found[i] for i in order]


class ModelCase:
    """What must hold of one classifier's releases and refusals.

    Parameters
    ----------
    court
        Where verdicts go.
    task, model
        The problem and who answers it.
    declared
        Whether the classes are stated in advance.
    scaled
        Whether a scaler comes first.
    """

    def __init__(
        self, checker: Checker, task: Task, model: Any, *, declared: bool, scaled: bool
    ) -> None:
        self.checker, self.task, self.model = checker, task, model
        self.declared, self.scaled = declared, scaled

    def request_removal(self, there: Array, refusal: Refusal) -> None:
        """Make a request; check whether it should have been refused, and how."""
        n_left = len(np.unique(labels_of(self.task)[there]))
        emptied = n_left < self.task.classes
        if self.declared:
            if emptied and self.task.aim.free:
                self.checker.check(
                    bool(refusal), "no minimiser exists, yet it answered"
                )
            return
        if n_left < 2:
            self.checker.check(bool(refusal), "one class is left, yet it answered")
        elif emptied and not self.model.keep_data:
            self.checker.check(bool(refusal), "no rows are kept, yet a class is gone")

    def check_release(self, stay: Array) -> None:
        """Compare the release with a fit to the remaining rows."""
        checker, task, model = self.checker, self.task, self.model
        aim, rest, classes = retraining_problem(task, stay)
        if self.declared:
            aim, rest = task.aim, task.sample.take(stay)
            classes = WORDS[: task.classes]
        said = model.certificate_.classes
        expected = "declared" if self.declared else "learnt"
        checker.check(said == expected, f"classes {said!r}, not {expected!r}")
        if not np.array_equal(model.classes_, classes):
            checker.check(False, f"classes {model.classes_}, a fit has {classes}")
            return
        if self.scaled:
            Z = standardise(rest.X)
            rest = Sample(Z, rest.y, rest.weight)
        theta, record = draft_of(model), model.record_
        truth = minimise(aim, rest, task.sample.total, theta)
        checker.note_decisions(record.decisions)
        checker.check_radius(
            inf if record.radius is None else record.radius, theta, truth, ""
        )
        if model.certificate_.status == "certified":
            room = model.budget.radius_budget(theta.size)
            checker.check_radius(room, theta, truth, "certified")
