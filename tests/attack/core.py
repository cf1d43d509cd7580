# SPDX-License-Identifier: Apache-2.0
"""Attack the core: objective, mechanisms and each kind of radius by itself."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.rescaled import Rescaled
from expunge import (
    L1,
    L2,
    ElasticNet,
    Gamma,
    GroupLasso,
    HalfSquared,
    Huber,
    Jackknife,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Newton,
    Objective,
    OneVsRest,
    Pinball,
    Poisson,
    Retrain,
    Rows,
    SquaredHinge,
    Tweedie,
    learn,
    summarise,
)
from expunge.promise.radius import Radii
from expunge.removal import Draft, State, measure_gradient
from tests.strangers.visits import Visits

from . import draws
from .draws import Generator, Task
from .judge import Checker
from .losses import Array
from .oracle import Aim, minimise

OURS: dict[str, Callable[[Any], Any]] = {
    "logistic": lambda loss: Logistic(),
    "softmax": lambda loss: Multinomial(loss.outputs),
    "one-vs-rest": lambda loss: OneVsRest(loss.outputs),
    "rest-squared": lambda loss: OneVsRest(loss.outputs, HalfSquared()),
    "squared": lambda loss: HalfSquared(outputs=loss.outputs),
    "huber": lambda loss: Huber(loss.threshold),
    "hinge": lambda loss: SquaredHinge(),
    "visits": lambda loss: Visits(),
    "poisson": lambda loss: Poisson(loss.offset),
    "gamma": lambda loss: Gamma(loss.offset),
    "tweedie": lambda loss: Tweedie(loss.shape, loss.offset),
    "binomial": lambda loss: NegativeBinomial(loss.shape, loss.offset, loss.largest),
    "pinball": lambda loss: Pinball(loss.shape, loss.width),
}
MECHANISMS: dict[str, Any] = {
    "newton": Newton(),
    "jackknife": Jackknife(),
    "rescaled": Rescaled(),
    "retrain": Retrain(),
}
REQUESTS = 5


def penalty_of(aim: Aim) -> Any:
    """Return the package's penalty for an aim."""
    if aim.groups is not None:
        return GroupLasso(aim.groups)
    if aim.l1_ratio in (0.0, 1.0):
        return L1() if aim.l1_ratio else L2()
    return ElasticNet(aim.l1_ratio)


def objective_of(aim: Aim) -> Objective:
    """Return the package's objective for an aim."""
    return Objective(
        OURS[aim.loss.name](aim.loss),
        penalty_of(aim),
        aim.alpha,
        ridge=aim.ridge,
        scaling=aim.scaling,
        intercept=aim.intercept,
        penalize_intercept=aim.intercept and not aim.free,
    )


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a random problem, let people leave and come, and check every radius."""
    task = draws.task(rng, draws.STRANGERS)
    mechanism = MECHANISMS[draws.pick(rng, *MECHANISMS)]
    enough = float(draws.pick(rng, "0", "1e-9", "1e-5", "1e-2", "10"))
    sample, people = task.sample, draws.first_people(rng, task)
    inside = task.rows_of(people)
    if not sample.weight[inside].any():
        return
    with checker.note_refusals() as refusal:
        objective = objective_of(task.aim)
        rows = objective.rows(sample.X, sample.y, sample.weight)
        state = mechanism.init(learn(objective, rows.take(inside)))
    if refusal:
        return
    case = Case(task, mechanism, enough, rows, sample.take(inside).total)
    for _ in range(REQUESTS):
        leaving, coming = draws.change(
            rng, task, np.unique(task.owners[inside]).tolist()
        )
        gone, come = task.rows_of(leaving), task.rows_of(coming)
        inside = (inside & ~gone) | come
        if not sample.weight[inside].any():
            return
        state = request(checker, case, state, (gone, come, inside))
        if state is None:
            return


class Case(NamedTuple):
    """A problem, how it is answered, and its rows with the weight of the first fit."""

    task: Task
    mechanism: Any
    enough: float
    rows: Rows
    first_weight: Any


def request(
    checker: Checker, case: Case, state: Any, masks: tuple[Array, Array, Array]
) -> Any:
    """Change rows and check the answer; return the new state, None if refused."""
    (gone, come, inside), rows, mechanism = masks, case.rows, case.mechanism
    with checker.note_refusals() as refusal:
        state = mechanism.update(state, rows.take(gone), added=rows.take(come))
        left = rows.take(inside)
        state, draft = mechanism.step(state, left, enough=case.enough)
        claims = list(radii(state, draft, left))
    if refusal:
        return None
    longest = float(np.max(left.norms() * (left.weight > 0.0)))
    known = state.magnitude.row_norm * (1.0 + 1e-12) >= longest
    checker.check(known, f"a row of {longest:.6g} is longer than the longest")
    sample, aim = case.task.sample.take(inside), case.task.aim
    truth = minimise(aim, sample, case.first_weight, draft.theta)
    for what, claimed in claims:
        checker.check_radius(claimed, draft.theta, truth, what)
    return state


def radii(state: State, draft: Draft, left: Rows) -> Iterator[tuple[str, float]]:
    """Yield every radius of an answer, and the best of them."""
    radii = Radii(state, draft)
    yield "best", radii.best().value
    if state.sums.moment is not None:
        yield "measured", radii.measured()
        yield "measured-local", radii.measured_local()
        yield "quick", radii.measured_local(quick=True)
        yield "near", radii.near()
    seen = measure_gradient(state, draft, remaining=left)
    on_rows = Radii(state, seen, remaining=left)
    yield "best on rows", on_rows.best().value
    yield "residual", on_rows.residual()
    if state.sums.moment is not None:
        yield "two-step", on_rows.two_step()
        yield "residual-local", on_rows.residual_local()
        yield "quick on rows", on_rows.residual_local(quick=True)
        yield "near on rows", on_rows.near(seen=True)
        after = state.objective.after(left.total_weight / state.anchor_weight)
        fitted = summarise(after, left, theta=draft.theta)
        yield "apart", Radii(fitted, seen, remaining=left).apart()
        yield "apart from the anchor", on_rows.apart()
        yield "by moves", on_rows.residual_local(by_move=True)
