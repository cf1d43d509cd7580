# SPDX-License-Identifier: Apache-2.0
"""Attack counts, amounts and quantiles, with exposures or offsets, by estimators."""

from dataclasses import replace
from typing import Any

import numpy as np

from expunge import (
    GammaRegressor,
    NegativeBinomialRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)
from expunge.linear_model.generalised import GeneralisedRegression

from . import draws
from .core import MECHANISMS
from .draws import Generator, Task, chance, pick
from .estimators import budget_of, check_against_fit
from .judge import Checker
from .losses import Array
from .oracle import Aim, Sample

ESTIMATORS: dict[str, type[GeneralisedRegression]] = {
    "poisson": PoissonRegressor,
    "gamma": GammaRegressor,
    "tweedie": TweedieRegressor,
    "binomial": NegativeBinomialRegressor,
    "pinball": QuantileRegressor,
}
REQUESTS = 4


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a random problem with what is beside its responses; let people go and come.

    By person or by content, and each answer is compared with what a fit to the same
    rows minimises: weights and labels of the oracle are its own.
    """
    task = draws.task(rng, draws.RESPONSES)
    aim, sample = task.aim, task.sample
    if aim.groups is not None:
        aim = replace(aim, groups=None)
    name, n = aim.loss.name, len(sample.y)
    y = sample.y[:, 0] if sample.y.ndim == 2 else sample.y
    beside = pick(rng, "", "exposure", "offset", p=[0.1, 0.45, 0.45])
    if beside == "exposure" and name in ("binomial", "pinball"):
        beside = "offset"
    exposure = 10.0 ** rng.uniform(-1.0, 1.0, size=n)
    if beside:
        y = draws.respond(rng, aim.loss, y, exposure)
    given = {"exposure": exposure, "offset": np.log(exposure)}
    rows: dict[str, Array] = {"X": sample.X, "y": y, "sample_weight": sample.weight}
    if beside:
        rows[beside] = given[beside]
    loss = replace(aim.loss, offset=beside == "offset")
    if loss.largest is not None:
        loss = replace(loss, largest=float(max(y.max(), 1.0)))
    sample = _expected(aim, rows, beside)
    task = replace(task, aim=replace(aim, loss=loss), sample=sample)
    model = _estimator(rng, task)
    owners, by_person = task.owners, chance(rng, 0.5)
    inside = task.rows_of(draws.first_people(rng, task))
    with checker.note_refusals() as refusal:
        model.fit(**_take(rows, inside), subjects=owners[inside].tolist())
    if refusal:
        return
    first = task.sample.take(inside).total
    for _ in range(REQUESTS):
        leaving, coming = draws.change(rng, task, np.unique(owners[inside]).tolist())
        if not by_person or not model.keep_data:
            coming = []
        gone, come = task.rows_of(leaving) & inside, task.rows_of(coming)
        with checker.note_refusals() as refusal:
            if leaving and by_person and model.keep_data:
                model.forget(leaving)
            elif gone.any():
                model.forget(**_take(rows, gone))
            else:
                gone = np.zeros_like(gone)
        if not refusal:
            inside = inside & ~gone
            if come.any():
                with checker.note_refusals() as refusal:
                    model.add(**_take(rows, come), subjects=owners[come].tolist())
                if not refusal:
                    inside = inside | come
        if refusal:
            return
        rest = task.sample.take(inside)
        check_against_fit(checker, model, (task.aim, rest, np.array([])), first)


def _take(rows: dict[str, Array], mask: Array) -> dict[str, Any]:
    return {name: part[mask] for name, part in rows.items()}


def _expected(aim: Aim, rows: dict[str, Array], beside: str) -> Sample:
    """Return rows as the oracle has them: a weight for an exposure, or an offset."""
    X, y, weight = rows["X"], rows["y"], rows["sample_weight"]
    if beside == "exposure":
        v = rows["exposure"]
        powers = {"poisson": 1.0, "gamma": 2.0, "tweedie": aim.loss.shape}
        return Sample(X, y / v, weight * v ** (2.0 - powers[aim.loss.name]))
    if beside == "offset":
        return Sample(X, np.column_stack([y, np.exp(rows["offset"])]), weight)
    return Sample(X, y, weight)


def _estimator(rng: Generator, task: Task) -> Any:
    """Return an estimator for a problem, under a random budget."""
    aim, own = task.aim, dict[str, Any]()
    if aim.loss.name == "tweedie":
        own = {"power": aim.loss.shape}
    elif aim.loss.name == "binomial":
        own = {"dispersion": aim.loss.shape, "largest": aim.loss.largest}
    elif aim.loss.name == "pinball":
        own = {"quantile": aim.loss.shape, "width": aim.loss.width}
    kept = chance(rng, 0.7)
    mechanism = pick(rng, *(MECHANISMS if kept else ("newton", "jackknife")))
    settings: dict[str, Any] = {
        "alpha": aim.alpha,
        "l1_ratio": aim.l1_ratio,
        "ridge": aim.ridge,
        "scaling": aim.scaling,
        "fit_intercept": aim.intercept,
        "penalize_intercept": aim.intercept and not aim.free,
        "mechanism": MECHANISMS[mechanism],
        "budget": budget_of(rng),
        "random_state": int(rng.integers(0, 1000)),
        "keep_data": kept,
    }
    return ESTIMATORS[aim.loss.name](**settings | own)
