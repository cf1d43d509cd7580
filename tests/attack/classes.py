# SPDX-License-Identifier: Apache-2.0
"""Attack class sets: people who own a whole class leave.

Declared classes stay, in both worlds. Learnt ones must go with the last of their rows,
as they would from a fit to the rest; where that cannot be done, the request is refused
and nothing changes.
"""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from expunge.preprocessing import StandardScaler, forgettable_pipeline

from . import draws
from .adopted import READERS, Given, adopted
from .arithmetic import standardised
from .draws import CLASSIFIERS, Generator, Task, chance, pick
from .faces import WORDS, Asking, asked, estimator, hold, labels_of, on_the_rest
from .judge import Court, Refusal
from .losses import Array, Loss
from .oracle import Aim, Sample, minimise
from .peek import draft_of


def attack(rng: Generator, court: Court) -> None:
    """Fit a classifier, or adopt one; let the owners of classes leave; judge."""
    if chance(rng, 0.2):
        attack_adopted(rng, court)
    else:
        attack_fitted(rng, court)


def attack_adopted(rng: Generator, court: Court) -> None:
    """Adopt a classifier; what is left of its classes is scikit-learn's to say."""
    X = draws.design(rng, int(rng.integers(12, 60)), int(rng.integers(1, 5)))
    given = READERS[pick(rng, "logistic", "one-vs-rest", "descent")](rng, X)
    owners = owned(rng, given.labels, draws.owners(rng, len(X)))
    with court.refusals() as refusal:
        model = adopted(rng, given, owners)
    if refusal:
        return
    task = Task(given.aim, given.sample, owners)
    stay = np.ones(len(X), dtype=bool)
    for people in requests(rng, task):
        after = stay & ~task.rows_of(people)
        n_left = len(np.unique(given.labels[after]))
        with court.refusals() as refusal:
            model.forget(people)
        if n_left < 2:
            court.fact(bool(refusal), "one class is left, yet it answered")
        if not refusal:
            stay = after
            rest = scikit_learn_on_the_rest(given, stay)
            hold(court, model, rest, given.sample.total, "adopted: ")


def scikit_learn_on_the_rest(given: Given, stay: Array) -> tuple[Aim, Sample, Array]:
    """Return what scikit-learn would minimise: two classes share one predictor."""
    rest = given.sample.take(stay)
    classes, codes = np.unique(given.labels[stay], return_inverse=True)
    if len(classes) == 2:
        y = 2.0 * codes - 1.0
        return replace(given.aim, loss=Loss("logistic")), replace(rest, y=y), classes
    loss = Loss(given.aim.loss.name, len(classes))
    return replace(given.aim, loss=loss), replace(rest, y=codes.astype(float)), classes


def attack_fitted(rng: Generator, court: Court) -> None:
    """Fit a classifier, let the owners of classes leave, and judge every release."""
    task = drawn(rng)
    asking = Asking("person" if chance(rng, 0.7) else "content")
    declared = chance(rng, 0.5)
    scaled = asking.way == "person" and chance(rng, 0.25)
    model = modelled(rng, task, asking, declared=declared, scaled=scaled)
    sample, words = task.sample, labels_of(task)
    weight = None if (sample.weight == 1.0).all() else sample.weight
    with court.refusals() as refusal:
        model.fit(sample.X, words, task.owners.tolist(), weight)
    if refusal:
        return
    stay = np.ones(len(words), dtype=bool)
    hearing = Hearing(court, task, model, declared=declared, scaled=scaled)
    hearing.judge(stay)
    for people in requests(rng, task):
        if not (stay & ~task.rows_of(people)).any():
            continue
        there = stay & ~task.rows_of(people)
        stay, refusal = asked(court, model, asking, (task, people, stay))
        hearing.heard(there, refusal)
        if not refusal:
            hearing.judge(stay)


def drawn(rng: Generator) -> Task:
    """Return a classification problem in which some people own a class."""
    task = draws.task(rng, CLASSIFIERS)
    if task.aim.groups is not None:
        task = replace(task, aim=replace(task.aim, groups=None))
    owners = owned(rng, labels_of(task), task.owners)
    sample = replace(task.sample, weight=np.maximum(task.sample.weight, 1e-3))
    return replace(task, owners=owners, sample=sample)


def owned(rng: Generator, words: Array, owners: Array) -> Array:
    """Return owners of rows, with the rows of some classes given to one or two."""
    mine = owners.astype(object)
    for word in rng.permutation(np.unique(words))[: int(rng.integers(1, 4))]:
        rows = np.flatnonzero(words == word)
        mine[rows] = [f"{word}{i}" for i in rng.integers(0, 2, len(rows))]
    return np.asarray(mine.astype(str))


def modelled(
    rng: Generator, task: Task, asking: Asking, *, declared: bool, scaled: bool
) -> Any:
    """Return an estimator, with its classes declared or not, in a pipeline or not."""
    keep = asking.way == "person" or chance(rng, 0.3)
    model = estimator(rng, task, keep_data=keep)
    if not keep and model.mechanism.needs_rows:
        model.set_params(mechanism="newton")
    if declared:
        model.set_params(classes=WORDS[: task.classes].tolist())
    if scaled:
        return forgettable_pipeline(StandardScaler(), estimator=model)
    return model


def requests(rng: Generator, task: Task) -> list[list[str]]:
    """Return requests, some of which take the last of a class."""
    owners = [p for p in task.people if not p.startswith("p")]
    others = [p for p in task.people if p.startswith("p")]
    rng.shuffle(owners)
    rng.shuffle(others)
    found = [[owner] for owner in owners]
    found += [others[i : i + 2] for i in range(0, min(len(others), 6), 2)]
    order = rng.permutation(len(found))
    return [found[i] for i in order]


class Hearing:
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
        Whether a scaler comes first, and the model is a pipeline.
    """

    def __init__(
        self, court: Court, task: Task, model: Any, *, declared: bool, scaled: bool
    ) -> None:
        self.court, self.task, self.model = court, task, model
        self.declared, self.scaled = declared, scaled

    @property
    def inner(self) -> Any:
        """The estimator itself."""
        return self.model.model_ if self.scaled else self.model

    def heard(self, there: Array, refusal: Refusal) -> None:
        """Judge whether a request should have been refused, and how."""
        n_left = len(np.unique(labels_of(self.task)[there]))
        emptied = n_left < self.task.classes
        if self.declared:
            if emptied and self.task.aim.free:
                self.court.fact(bool(refusal), "no minimiser exists, yet it answered")
            return
        if n_left < 2:
            self.court.fact(bool(refusal), "one class is left, yet it answered")
        elif emptied and not self.inner.keep_data:
            self.court.fact(bool(refusal), "no rows are kept, yet a class is gone")

    def judge(self, stay: Array) -> None:
        """Hold the release against a fit to the remaining rows."""
        court, task, model = self.court, self.task, self.model
        aim, rest, classes = on_the_rest(task, stay)
        if self.declared:
            aim, rest = task.aim, task.sample.take(stay)
            classes = WORDS[: task.classes]
        said = model.certificate_.classes
        expected = "declared" if self.declared else "learnt"
        court.fact(said == expected, f"classes {said!r}, not {expected!r}")
        if not np.array_equal(model.classes_, classes):
            court.fact(False, f"classes {model.classes_}, a fit has {classes}")
            return
        if self.scaled:
            Z = standardised(rest.X, rest.weight)
            rest = Sample(Z, rest.y, rest.weight)
        theta, record = draft_of(self.inner), model.record_
        truth = minimise(aim, rest, task.sample.total, theta)
        court.decided(record.decisions)
        court.radius(inf if record.radius is None else record.radius, theta, truth, "")
        if model.certificate_.status == "certified":
            room = self.inner.budget.radius_budget(theta.size)
            court.radius(room, theta, truth, "certified")
