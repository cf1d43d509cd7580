# SPDX-License-Identifier: Apache-2.0
"""Attack preprocessing: scales that move, extremes that leave, columns that empty."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
)

from expunge.core.values import stored
from expunge.linear_model.base import public_model
from expunge.preprocessing import learned

from . import draws
from .crowds import Crowd
from .draws import Generator, Task, chance, one_of, pick
from .estimators import (
    RequestMaker,
    balance,
    check_against_fit,
    estimator,
    labels_of,
    retraining_problem,
)
from .judge import Checker
from .losses import Array
from .oracle import Sample
from .raw_tables import (
    RawTable,
    apply_maps,
    awkward_rows,
    draw_averages,
    draw_table,
)
from .streams import reload_model

REQUESTS, FEWEST = 7, 4


@stored
@dataclass(frozen=True)
class Squash:
    """A map of rows that is not linear, for numbers of any size."""

    n_features: int

    def encode(self, X: Array) -> Array:
        """Return tanh of sums of columns with signs that alternate."""
        at = np.arange(X.shape[1])[:, None] * np.arange(1, self.n_features + 1)
        return np.asarray(np.tanh(X @ np.where(at % 3 == 0, 0.5, -1.0)))


@dataclass(frozen=True, eq=False)
class Piped:
    """A problem whose rows are raw, with the table that they come from."""

    task: Task
    table: RawTable
    balanced: bool = False
    squash: Squash | None = None
    last: tuple[Any, ...] = ()

    def sample(self, stay: Array) -> Sample:
        """Return the remaining rows as the whole pipeline, fitted to them, has them."""
        sample = self.task.sample
        Z = self._finish(self.table.taught(stay))
        return Sample(Z, sample.y[stay], sample.weight[stay])

    def shown(self, stay: Array) -> Array:
        """Return the same rows as the pipeline would have them if it saw them later."""
        return self._finish(self.table.made(stay))

    def _finish(self, Z: Array) -> Array:
        Z = Z if self.squash is None else self.squash.encode(Z)
        return apply_maps(self.last, Z)


def attack_mean(rng: Generator, checker: Checker) -> None:
    """Attack pipelines that keep alpha when rows are removed."""
    attack(rng, checker, "mean")


def attack_sum(rng: Generator, checker: Checker) -> None:
    """Attack pipelines that keep alpha times weight when rows are removed."""
    attack(rng, checker, "sum")


def attack_bins(rng: Generator, checker: Checker) -> None:
    """Attack learnt bins: edges that move, few rows or many that cross them."""
    share = 1.0 if chance(rng, 0.7) else 0.1
    with patch.object(learned, "MOST_CROSSING", share):
        attack(rng, checker, "sum" if chance(rng, 0.5) else "mean", binned=True)


def attack_curves(rng: Generator, checker: Checker) -> None:
    """Attack maps that are learnt from all rows, which every request looks at."""
    attack(rng, checker, "sum" if chance(rng, 0.5) else "mean", curved=True)


def attack_means(rng: Generator, checker: Checker) -> None:
    """Attack categories that are encoded by what other people answered."""
    attack(rng, checker, "sum" if chance(rng, 0.5) else "mean", answered=True)


def attack(
    rng: Generator,
    checker: Checker,
    scaling: Literal["mean", "sum"],
    *,
    binned: bool = False,
    curved: bool = False,
    answered: bool = False,
) -> None:
    """Fit a model with preprocessing; people leave and come; check every release."""
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    maker = RequestMaker("person") if answered else maker
    keep = binned or curved or answered or maker.way != "content" or chance(rng, 0.3)
    piped = draw_piped(rng, scaling, sums_only=not keep, binned=binned, curved=curved)
    if piped is not None and answered:
        piped = with_averages(rng, piped)
    if piped is None:
        return
    model, task = draw_model(rng, piped, keep=keep), piped.task
    everyone = np.ones(len(task.owners), dtype=bool)
    seen = replace(task, sample=piped.sample(everyone))
    crowd = Crowd(rng, checker, task, maker, seen)
    # A column in which everything is missing is a case of its own.
    if crowd.inside.sum() < FEWEST or not crowd.fit(model, task.sample.X):
        return
    check_release(checker, model, piped, crowd)
    for leaving, coming in requests(rng, piped, crowd):
        if not crowd.possible(leaving, coming):
            continue
        if chance(rng, 0.1):
            model = reload_model(model)
        if not crowd.ask(model, leaving, coming) and not crowd.behind:
            check_release(checker, model, piped, crowd)


def draw_piped(
    rng: Generator,
    scaling: Literal["mean", "sum"],
    *,
    sums_only: bool,
    binned: bool = False,
    curved: bool = False,
) -> Piped | None:
    """Return a random problem with raw rows; None if nothing can be fitted."""
    n = int(rng.integers(40, 300) if binned else rng.integers(12, 100))
    table = draw_table(rng, n, sums_only=sums_only, binned=binned, curved=curved)
    weight = draws.weights(rng, n)
    Z = table.made(np.ones(n, dtype=bool))
    if not Z.shape[1]:
        return None
    squash = None
    if not sums_only and chance(rng, 0.15):
        squash = Squash(int(rng.integers(1, 6)))
        Z = squash.encode(Z)
    last: tuple[Any, ...] = ()
    if not sums_only and chance(rng, 0.15):
        last = draw_last(rng)
        Z = apply_maps(last, Z)
    aim = draws.aim(rng, draws.LOSSES, Z.shape[1])
    aim = replace(aim, scaling=scaling)
    if aim.l1_ratio == 1.0 and not aim.ridge:  # flags of a column add up to one
        aim = replace(aim, l1_ratio=0.8)
    if aim.groups is not None and not aim.ridge:
        aim = replace(aim, ridge=1e-3)
    y = draws.labels(rng, aim.loss, Z)
    task = Task(aim, Sample(table.rows, y, weight), draws.owners(rng, n))
    balanced = bool(task.classes) and weight.min() > 0.0 and chance(rng, 0.25)
    return Piped(task, table, balanced, squash, last)


def with_averages(rng: Generator, piped: Piped) -> Piped | None:
    """Return the problem with columns that people's answers encode; None if it may not.

    Groups of columns would be others, and where a class comes or goes it has columns.
    """
    task = piped.task
    y, people = task.sample.y, task.owners
    if y.ndim > 1 or task.aim.groups is not None:
        return None
    if task.classes and not task.sample.weight.min() > 0.0:
        return None
    parts = [*piped.table.parts]
    for _ in range(int(rng.integers(1, 3))):
        drawn = draw_averages(rng, y, coded=bool(task.classes), people=people)
        parts.insert(int(rng.integers(0, len(parts) + 1)), drawn)
    table = RawTable(tuple(parts))
    task = replace(task, sample=replace(task.sample, X=table.rows))
    return replace(piped, task=task, table=table)


def draw_last(rng: Generator) -> tuple[Any, ...]:
    """Return maps of rows of any size and any number of columns, after the steps."""
    seed, few = int(rng.integers(0, 99)), int(rng.integers(1, 5))
    calm = FunctionTransformer(one_of(rng, np.tanh, np.arctan))
    then = one_of(
        rng,
        (),
        (PolynomialFeatures(2, include_bias=False),),
        (RBFSampler(gamma=0.4, n_components=few, random_state=seed),),
        (SkewedChi2Sampler(skewedness=3.0, n_components=few, random_state=seed),),
    )
    norm = Normalizer(norm=pick(rng, "l1", "l2"))
    drawn: tuple[Any, ...] = one_of(rng, (norm,), (calm, *then))
    return drawn


def draw_model(rng: Generator, piped: Piped, *, keep: bool) -> Any:
    """Return an estimator with the table's preprocessing."""
    steps = piped.table.preprocessing()
    if piped.squash is not None or piped.last:
        squash = [] if piped.squash is None else [piped.squash]
        steps = make_pipeline(steps, *squash, *piped.last)
    model = estimator(rng, piped.task, keep_data=keep, preprocessing=steps)
    if piped.balanced:
        model.set_params(class_weight="balanced")
    if not keep or chance(rng, 0.7):  # the mechanism that follows without rows
        model.set_params(mechanism="newton")
    return model


def requests(
    rng: Generator, piped: Piped, crowd: Crowd
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield who leaves and who comes: few, many, or who changes what is learned."""
    task = piped.task
    for _ in range(REQUESTS):
        (leaving, coming), there = crowd.draw(), crowd.inside
        if leaving and chance(rng, 0.4) and there.sum() > 4:
            mask = next(awkward_rows(rng, piped.table, there))
            named = sorted(set(task.owners[mask].tolist()))
            if len(named) <= 0.6 * len(np.unique(task.owners[there])):
                leaving = named
        yield leaving, coming


def check_release(checker: Checker, model: Any, piped: Piped, crowd: Crowd) -> None:
    """Compare features and release with the whole pipeline fitted to the same rows."""
    stay = crowd.inside
    aim, rest, classes = retraining_problem(piped.task, stay)
    sample = replace(piped.sample(stay), y=rest.y)
    if piped.balanced:
        sample = replace(
            sample, weight=balance(labels_of(piped.task)[stay], sample.weight)
        )
    public = public_model(model)
    assert public is not None and public.preprocessing is not None
    encoded = public.preprocessing.encode(piped.task.sample.X[stay])
    shown = piped.shown(stay)
    same = encoded.shape == shown.shape and is_near(encoded, shown)
    checker.check(same, f"other features than those of a fit to the rest {stay.sum()}")
    if same:
        check_against_fit(checker, model, (aim, sample, classes), crowd.first_weight)


def is_near(found: Array, expected: Array, doubt: float = 1e-11) -> bool:
    """Whether features agree but for rounding."""
    size = np.maximum(1.0, np.abs(expected).max(axis=0, initial=0.0))
    return bool((np.abs(found - expected) <= doubt * size).all())
