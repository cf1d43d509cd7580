# SPDX-License-Identifier: Apache-2.0
"""Sparse rows like text: fits, requests and memory, smooth and with a kink."""

import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression as SklearnLogistic

from expunge.core.losses import Logistic
from expunge.core.measurement import measure
from expunge.core.objective import Objective
from expunge.core.penalties import L1, L2, ElasticNet, Penalty
from expunge.core.solver import Solution, minimise_wide
from expunge.linear_model import LogisticRegression

from ..report import Section, Table, Target, number, timings_table
from ..timing import progress
from .contest import (
    Contest,
    Outcome,
    compete,
    facts_table,
    fit_model,
    forget_person,
    make_rows,
    parameters_of,
    residual,
    trace_memory,
)
from .data import Labelled, generate_text
from .settings import (
    ALPHA,
    L1_ALPHA,
    L1_RATIO,
    L1_RIDGE,
    SIGMA,
    WEAK_ALPHA,
    Sizes,
    make_budget,
)

NEWTON_CG = "scikit-learn, newton-cg"
LIBLINEAR = "scikit-learn, liblinear with L1"
SOLVER = "our solver alone, to the same gradient"
PEAKS = ("fit", "request")


class Task(NamedTuple):
    """A model of sparse rows: its words, parameters, and what a request should be.

    Attributes
    ----------
    name
        For people.
    parameters
        Of our estimator.
    penalty
        The same as an object, for the solver alone.
    rival, solver
        The name of scikit-learn's model, and its parameters.
    looks
        Whether a look should suffice for one person; otherwise passes are made.
    """

    name: str
    parameters: dict[str, Any]
    penalty: Penalty
    rival: str
    solver: dict[str, Any]
    looks: bool

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return Objective(
            Logistic(),
            self.penalty,
            alpha=self.parameters["alpha"],
            ridge=self.parameters.get("ridge", 0.0),
            intercept=self.parameters["fit_intercept"],
        )


def smooth_tasks() -> list[Task]:
    """Return ridge models: held strongly or weakly, with a free intercept or none."""
    solver = {"solver": "newton-cg"}
    return [
        Task(
            f"L2, alpha {alpha:g}, {'a free' if intercept else 'no'} intercept",
            {"alpha": alpha, "fit_intercept": intercept},
            L2(),
            NEWTON_CG,
            solver,
            alpha == ALPHA,
        )
        for alpha in (ALPHA, WEAK_ALPHA)
        for intercept in (False, True)
    ]


def kinked_tasks() -> list[Task]:
    """Return models with L1 in their penalty, held strongly or weakly by the rest."""
    solver = {"solver": "liblinear", "l1_ratio": 1.0}
    base = {"alpha": L1_ALPHA, "fit_intercept": False}
    return [
        Task(
            f"elastic net, alpha {L1_ALPHA:g}, l1_ratio {L1_RATIO}",
            base | {"l1_ratio": L1_RATIO},
            ElasticNet(L1_RATIO),
            LIBLINEAR,
            solver,
            False,
        ),
        Task(
            f"L1, alpha {L1_ALPHA:g}, with a ridge of {L1_RIDGE:g}",
            base | {"l1_ratio": 1.0, "ridge": L1_RIDGE},
            L1(),
            LIBLINEAR,
            solver,
            False,
        ),
        Task(
            f"L1, alpha {L1_ALPHA:g}, with a ridge of {ALPHA:g}",
            base | {"l1_ratio": 1.0, "ridge": ALPHA},
            L1(),
            LIBLINEAR,
            solver,
            True,
        ),
    ]


def run_text(sizes: Sizes) -> Iterator[Section]:
    """Yield models of sparse rows, smooth ones first, and their memory."""
    data = generate_text(sizes.text)
    for task in (*smooth_tasks(), *kinked_tasks()):
        progress(f"text, {sizes.text}, {task.name}")
        yield text_section(task, data, sizes=sizes)
    yield memory_section(data, sizes=sizes)


def text_section(task: Task, data: Labelled, *, sizes: Sizes) -> Section:
    """Return how one model is fitted, and forgets, against scikit-learn."""
    rival = SklearnLogistic(
        C=1 / (task.parameters["alpha"] * len(data.y)),
        fit_intercept=task.parameters["fit_intercept"],
        **task.solver,
    )
    goal = rival_gradient(task, data, rival)
    contest = Contest(
        data=data,
        model=partial(make_model, task.parameters, sizes.mechanism),
        rivals={
            task.rival: partial(rival.fit, data.X, data.y),
            SOLVER: partial(solve_alone, task, data, goal),
        },
        turns=sizes.turns,
        requests=sizes.requests,
    )
    outcome = compete(contest)
    support = np.count_nonzero(outcome.fitted[SOLVER].at.theta)
    return Section(
        f"Sparse, {sizes.text}, {task.name}",
        [timings_table(outcome.times, "ms"), facts_table({"ours": outcome})],
        list(text_targets(task, outcome)),
        [
            f"{task.rival} stops after {rival.n_iter_[0]} iterations, at a gradient of "
            f"{number(goal)}; {support} of our coefficients are not zero",
            f"noise of sigma {SIGMA}; {contest.turns} turns of all fits and "
            f"{contest.requests} requests of one person each; processor seconds",
            *([LIBLINEAR_NOTE] if task.rival == LIBLINEAR else []),
        ],
    )


LIBLINEAR_NOTE = (
    "liblinear has no ridge beside L1, so that its problem is L1 alone, and the "
    "gradient it stops at is that of L1 alone"
)


def text_targets(task: Task, outcome: Outcome) -> Iterator[Target]:
    """Yield what fits and requests should be."""
    rival, alone = outcome.rivals[task.rival], outcome.rivals[SOLVER]
    name = task.name
    yield Target(f"solver / {task.rival}: {name}", alone.over(rival), high=2.0)
    yield Target(f"our fit / {task.rival}: {name}", outcome.fit.over(rival), high=2.0)
    if task.looks:
        gain = outcome.fit.over(outcome.looks)
        yield Target(f"our fit / look: {name}", gain, low=20.0)
    else:
        gain = outcome.fit.over(outcome.passes)
        yield Target(f"our fit / request with passes: {name}", gain, low=5.0)


def make_model(parameters: dict[str, Any], mechanism: str) -> LogisticRegression:
    """Return one of our models, not fitted."""
    return LogisticRegression(**parameters, mechanism=mechanism, budget=make_budget())


def rival_gradient(task: Task, data: Labelled, rival: SklearnLogistic) -> float:
    """Return the gradient at which scikit-learn stops, of its own objective."""
    rival.fit(data.X, data.y)
    objective = task.objective
    if task.rival == LIBLINEAR:
        objective = Objective(Logistic(), L1(), alpha=objective.alpha)
    theta = parameters_of(rival, intercept=objective.intercept)
    return residual(objective, make_rows(objective, data), theta)


def solve_alone(task: Task, data: Labelled, goal: float) -> Solution:
    """Return what our solver finds from zero, nothing certified."""
    objective = task.objective
    rows = make_rows(objective, data)
    start = measure(objective, rows, theta=np.zeros(rows.X.shape[1]))
    return minimise_wide(objective, rows, start=start, goal=goal)


def memory_section(data: Labelled, *, sizes: Sizes) -> Section:
    """Return the most memory that fits and requests take at once."""
    lines, targets = [], []
    for task in (smooth_tasks()[2], smooth_tasks()[3], kinked_tasks()[0]):
        progress(f"memory, {task.name}")
        model = make_model(task.parameters, sizes.mechanism)
        tracemalloc.start()
        try:
            fit = trace_memory(partial(fit_model, model, data)) / data.n_bytes
            request = max(
                trace_memory(partial(forget_person, model, data, person))
                for person in range(sizes.requests)
            )
        finally:
            tracemalloc.stop()
        peaks = (fit, request / data.n_bytes)
        lines.append((task.name, *(f"{peak:.2f}" for peak in peaks)))
        targets += [
            Target(f"peak of a {when}: {task.name}", 1 + peak, high=3.0)
            for when, peak in zip(PEAKS, peaks, strict=True)
        ]
    size = number(data.n_bytes / 2**20)
    return Section(
        f"Memory of sparse models, {sizes.text}",
        [
            Table(
                (
                    "allocated on top of the rows given, in units of them",
                    "fit",
                    "request",
                ),
                lines,
            )
        ],
        targets,
        [
            f"one unit is the CSR matrix as it was handed over: {size} MiB of values, "
            "columns and row starts; targets count that one too",
            "everything that numpy and Python hold at once since the fit began, the "
            "model and its rows included, by tracemalloc, in a run that is not timed",
            "buffers that compiled code takes from the system itself are not seen",
        ],
    )
