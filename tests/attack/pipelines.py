# SPDX-License-Identifier: Apache-2.0
"""Attack pipelines: steps that change, columns that become empty, polishing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.compose import ColumnTransformer

from expunge.preprocessing import (
    MeanImputer,
    OneHotEncoder,
    StandardScaler,
    forgettable_pipeline,
)

from . import draws
from .arithmetic import fill_missing, indicators, standardise
from .draws import Generator, Task, chance, pick
from .estimators import empties_a_class, estimator, labels_of, retraining_problem
from .judge import Checker
from .losses import Array
from .oracle import Sample, minimise
from .peek import draft_of


@dataclass(frozen=True, eq=False)
class Line:
    """Steps, and how they transform raw rows with weights."""

    steps: tuple[Any, ...]
    made: Callable[[Array, Array], Array]


def attack_mean(rng: Generator, checker: Checker) -> None:
    """Attack pipelines that keep alpha when rows are removed."""
    attack(rng, checker, "mean")


def attack_sum(rng: Generator, checker: Checker) -> None:
    """Attack pipelines that keep alpha times weight when rows are removed."""
    attack(rng, checker, "sum")


def attack(rng: Generator, checker: Checker, scaling: Literal["mean", "sum"]) -> None:
    """Fit a pipeline, remove people, and check every release."""
    task, line = draw_pipeline(rng)
    task = replace(task, aim=replace(task.aim, scaling=scaling))
    pipeline = forgettable_pipeline(*line.steps, estimator=estimator(rng, task))
    weight = None if (task.sample.weight == 1.0).all() else task.sample.weight
    with checker.note_refusals() as refusal:
        pipeline.fit(task.sample.X, labels_of(task), task.owners.tolist(), weight)
    if refusal:
        return
    stay = np.ones(len(task.owners), dtype=bool)
    check_release(checker, pipeline, (task, line), stay, "fit ")
    for people in draws.requests(rng, task, 6):
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any() or empties_a_class(task, after):
            continue
        with checker.note_refusals() as refusal:
            pipeline.forget(people)
        if not refusal:
            stay = after
        check_release(checker, pipeline, (task, line), stay)


def check_release(
    checker: Checker,
    pipeline: Any,
    drawn_as: tuple[Task, Line],
    stay: Array,
    what: str = "",
) -> None:
    """Compare a release with the whole pipeline fitted to the remaining rows."""
    task, line = drawn_as
    aim, rest, classes = retraining_problem(task, stay)
    if len(classes) and not np.array_equal(pipeline.classes_, classes):
        checker.check(False, f"{what}classes {pipeline.classes_}, a fit has {classes}")
        return
    Z = line.made(rest.X, rest.weight)
    model, record = pipeline.model_, pipeline.record_
    theta = draft_of(model)
    truth = minimise(aim, Sample(Z, rest.y, rest.weight), task.sample.total, theta)
    checker.note_decisions(record.decisions)
    if record.radius is None:
        return
    checker.check_radius(record.radius, theta, truth, f"{what}{Z.shape[1]} columns")
    if pipeline.certificate_.status == "certified":
        room = model.budget.radius_budget(theta.size)
        checker.check_radius(room, theta, truth, f"{what}certified")


def draw_pipeline(rng: Generator) -> tuple[Task, Line]:
    """Return a problem with raw rows, and the steps for them."""
    task = draws.task(rng)
    if task.aim.groups is not None:  # columns change, and groups cannot follow
        task = replace(task, aim=replace(task.aim, groups=None))
    if task.aim.l1_ratio == 1.0:  # indicators of a feature add up to one
        task = replace(task, aim=replace(task.aim, l1_ratio=0.8))
    n = len(task.owners)
    kind = pick(rng, "scaler", "encoder", "both", "imputer", p=[0.25, 0.4, 0.2, 0.15])
    if kind == "scaler":
        return task, Line((StandardScaler(),), standardise)
    if kind == "imputer":
        X = np.where(rng.random(task.sample.X.shape) < 0.2, np.nan, task.sample.X)
        line = Line((MeanImputer(), StandardScaler()), _fill_and_scale)
        return replace(task, sample=replace(task.sample, X=X)), line
    least = float(rng.integers(1, 4)) if chance(rng, 0.4) else 1.0
    words = categories(rng, task)
    if kind == "encoder":
        line = Line(
            (OneHotEncoder(min_count=least, sparse_output=chance(rng, 0.5)),),
            lambda X, weight: indicators(X, weight, least),
        )
        return replace(task, sample=replace(task.sample, X=words)), line
    X = np.hstack([task.sample.X, words])
    sample = Sample(X, task.sample.y, np.ones(n))  # no weight reaches the inner steps
    width = task.sample.X.shape[1]
    return replace(task, sample=sample), _both(width, words.shape[1], least)


def _both(width: int, n_words: int, least: float) -> Line:
    """Return a scaler for some columns and an encoder for the others."""
    encoder = OneHotEncoder(min_count=least, sparse_output=False)
    numbers, words = list(range(width)), list(range(width, width + n_words))
    step = ColumnTransformer(
        [("numbers", StandardScaler(), numbers), ("words", encoder, words)]
    )

    def made(X: Array, weight: Array) -> Array:
        left = standardise(X[:, :width], weight)
        return np.hstack([left, indicators(X[:, width:], weight, least)])

    return Line((step,), made)


def _fill_and_scale(X: Array, weight: Array) -> Array:
    return standardise(fill_missing(X, weight), weight)


def categories(rng: Generator, task: Task) -> Array:
    """Return features with few values each, some of which one person alone has."""
    n = len(task.owners)
    columns = []
    for _ in range(int(rng.integers(1, 3))):
        column = rng.integers(0, 3, n).astype(float)
        for code, person in enumerate(rng.choice(task.people, 2, replace=False)):
            column[task.owners == person] = 10.0 + code
        columns.append(column)
    return np.column_stack(columns)
