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
    crowd.start(np.ones(len(task.owners), dtype=bool))
    crowd.declared, long = declared, []
    if model.budget is not None and not scaled and chance(rng, 0.5):
        long = declare_lengths(rng, crowd, model)
    if not crowd.fit(model, task.sample.X):
        return
    case_ = ModelCase(checker, crowd, model, scaled=scaled)
    case_.check_release(crowd.inside)
    away: list[str] = []
    for people in requests(rng, task):
        people = [person for person in people if person not in long]
        # Somebody whose rows are longer than was declared may not come in, however the
        # request is answered.
        coming = [long[int(rng.integers(0, len(long)))]] if long else []
        coming = coming if chance(rng, 0.5) else []
        there = crowd.after(people, coming)
        # A request for nobody changes no release, also where one is behind.
        if not (people or coming) or not crowd.after(people, []).any():
            continue
        refusal = crowd.ask(model, people, coming)
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


def declare_lengths(rng: Generator, crowd: Crowd, model: Any) -> list[str]:
    """Declare a bound on rows; return people beyond it, who are not in the model."""
    task, words = crowd.task, labels_of(crowd.task)
    norms = lengths(task)
    longest = {p: norms[task.rows_of([p])].max() for p in task.people}
    order = sorted((p for p in longest if p.startswith("p")), key=longest.__getitem__)
    long = order[len(order) - int(rng.integers(1, 4)) :]
    inside = ~task.rows_of(long)
    if not long or set(words[inside]) != set(words):
        return []
    least, most = float(norms[inside].max()), float(min(longest[p] for p in long))
    bound = least + float(rng.uniform(0.0, 0.9)) * (most - least)
    if not 1e-40 < bound < most or not bound < 1e40:
        return []
    crowd.start(inside)
    model.set_params(budget=replace(model.budget, row_norm=bound))
    return long


def lengths(task: Task) -> Array:
    """Return the norm of each row, intercept included."""
    ones = np.full((len(task.sample.y), int(task.aim.intercept)), 1.0)
    return np.asarray(np.linalg.norm(np.hstack([task.sample.X, ones]), axis=1))


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
    checker
        Where verdicts go.
    crowd, model
        The problem and who is in it, and who answers it.
    scaled
        Whether a scaler comes first.
    """

    def __init__(
        self, checker: Checker, crowd: Crowd, model: Any, *, scaled: bool
    ) -> None:
        self.checker, self.task, self.model = checker, crowd.task, model
        self.declared, self.scaled = crowd.declared, scaled
        self.first_weight = crowd.first_weight

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
        if model.budget is not None and model.budget.row_norm is not None:
            longest = float(lengths(task)[stay].max(initial=0.0))
            within = longest <= model.budget.row_norm * (1.0 + 1e-12)
            checker.check(within, "a row is longer than declared, yet it answered")
        if self.scaled:
            Z = standardise(rest.X)
            rest = Sample(Z, rest.y, rest.weight)
        theta, record = draft_of(model), model.record_
        truth = minimise(aim, rest, self.first_weight, theta)
        checker.note_decisions(record.decisions)
        checker.check_radius(
            inf if record.radius is None else record.radius, theta, truth, ""
        )
        if model.certificate_.status == "certified":
            room = model.budget.radius_budget(theta.size)
            checker.check_radius(room, theta, truth, "certified")
