# SPDX-License-Identifier: Apache-2.0
"""A proximal Jackknife removal beside a warm-started sparse retrain by glum.

Warfarin doses above 30 mg a week, 80 % of 5528 patients, logistic loss, L1 with a
small ridge that keeps the Hessian definite (flags of one column sum to one), and
an intercept that nothing penalises. The encoding is ``data.encode_warfarin``'s.

glum minimises the same objective: with a = alpha + ridge and r = alpha / a, its
penalty a (r |w|_1 + (1 - r) |w|^2 / 2) is ours. It starts at the old model and
gets the remaining rows in the order it likes best (Fortran's), ready made.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from glum import GeneralizedLinearRegressor
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from expunge import L1, Jackknife, Logistic, Newton, Objective, Rows, State, summarise
from expunge.core.solver import minimise
from expunge.removal import Mechanism

from .data import Dataset, warfarin
from .report import Section, Table, Target, number, timings_table
from .rivals import optimality
from .stream import Stream, request_order
from .timing import Measurement, progress, take_turns, time_call

ALPHA = 3e-3
RIDGE = 1e-4
SHARE = 0.8
REQUESTS = 300
RETRAININGS = 15
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)
JACKKNIFE = "Jackknife(certified=False)"


@dataclass(frozen=True, slots=True)
class Request:
    """A row to forget: what remains, and the minimiser there."""

    removed: Rows
    rest: Rows
    truth: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Attempt:
    """glum at one tolerance: its time, and how far it stayed from the minimiser."""

    tolerance: float
    time: Measurement
    residual: float
    error: float


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the comparison on the sparse model."""
    everyone = warfarin(data_dir)
    order = request_order(len(everyone))
    n_train = int(SHARE * len(everyone))
    train, test = order[:n_train], order[n_train:]
    dataset = Dataset(everyone.X[train], everyone.y[train])
    objective = Objective(Logistic(), L1(), alpha=ALPHA, ridge=RIDGE, intercept=True)
    rows = objective.rows(dataset.X, dataset.y)
    summary = summarise(objective, rows, theta=minimise(objective, rows).theta)
    removals = time_removals(summary, dataset)
    requests = list(retrain_each(summary, rows, request_order(n_train)[:RETRAININGS]))
    error = jackknife_error(summary, requests)
    attempts = [time_glum(summary, requests, tolerance) for tolerance in TOLERANCES]
    held_out = objective.rows(everyone.X[test], everyone.y[test])
    correct = np.sign(held_out.X @ summary.anchor) == held_out.y
    nonzero = np.count_nonzero(summary.anchor)
    about = (
        f"{nonzero} of {summary.anchor.size} coefficients are not zero; accuracy on "
        f"the other {len(test)} patients {float(np.mean(correct)):.3f}"
    )
    yield section(removals, error, attempts, about)


def time_removals(summary: State, dataset: Dataset) -> dict[str, Measurement]:
    """Time single removals by each mechanism."""
    progress(f"{REQUESTS} proximal removals of each kind")
    mechanisms: dict[str, Mechanism] = {
        JACKKNIFE: Jackknife(certified=False),
        "Jackknife(), with residual": Jackknife(),
        "Newton(), with residual": Newton(),
    }
    order = request_order(len(dataset))
    times: dict[str, Measurement] = {}
    for name, mechanism in mechanisms.items():
        measured = name != JACKKNIFE
        stream = Stream(mechanism, summary, dataset, order, measured=measured)
        times |= take_turns({name: stream}, REQUESTS)
    return times


def retrain_each(
    summary: State, rows: Rows, requests: NDArray[np.intp]
) -> Iterator[Request]:
    """Yield each request with the true minimiser, found by our own solver."""
    for row in requests.tolist():
        rest = rows.without(row)
        truth = minimise(summary.objective, rest, start=summary.anchor).theta
        yield Request(rows.take(slice(row, row + 1)), rest, truth)


def jackknife_error(summary: State, requests: list[Request]) -> float:
    """Return the median error of the Jackknife over single removals."""
    mechanism = Jackknife(certified=False)
    state = mechanism.init(summary)
    errors = []
    for request in requests:
        _, draft = mechanism.step(mechanism.update(state, request.removed))
        errors.append(np.linalg.norm(draft.theta - request.truth))
    return float(np.median(errors))


def time_glum(summary: State, requests: list[Request], tolerance: float) -> Attempt:
    """Time glum's warm-started retrain at one tolerance."""
    progress(f"glum, gradient tolerance {tolerance:g}")
    objective, theta = summary.objective, summary.anchor
    total = objective.alpha + objective.ridge
    model = GeneralizedLinearRegressor(
        family="binomial",
        alpha=total,
        l1_ratio=objective.alpha / total,
        solver="irls-cd",
        gradient_tol=tolerance,
        max_iter=1000,
        start_params=np.concatenate([theta[-1:], theta[:-1]]),
    )
    seconds, residuals, errors = [], [], []
    for request in requests:
        X = np.asfortranarray(request.rest.dense()[:, :-1])
        y = np.where(request.rest.y > 0.0, 1.0, 0.0)
        with warnings.catch_warnings():
            # A line search may fail at rounding level; the residual is measured below.
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, elapsed = time_call(partial(model.fit, X, y))
        answer = np.append(model.coef_, model.intercept_)
        seconds.append(elapsed)
        residuals.append(optimality(objective, request.rest, answer))
        errors.append(np.linalg.norm(answer - request.truth))
    time = Measurement.of(f"glum at {tolerance:g}", seconds)
    residual, error = float(np.median(residuals)), float(np.median(errors))
    return Attempt(tolerance, time, residual, error)


def comparable(attempts: list[Attempt], error: float) -> Attempt:
    """Return glum at the loosest tolerance that is as accurate as the removal."""
    able = [item for item in attempts if item.error <= error] or attempts[-1:]
    return able[0]


def section(
    removals: dict[str, Measurement], error: float, attempts: list[Attempt], about: str
) -> Section:
    """Return the comparison as a section."""
    jackknife = removals[JACKKNIFE]
    headers = ("glum, warm start", "ms", "residual", "error", "runs", "ratio")
    lines = [
        (
            f"gradient_tol {item.tolerance:g}",
            number(1e3 * item.time.median),
            f"{item.residual:.1e}",
            f"{item.error:.1e}",
            str(item.time.n),
            number(item.time.over(jackknife)),
        )
        for item in attempts
    ]
    rival = comparable(attempts, error)
    name = f"glum at {rival.tolerance:g} / proximal Jackknife removal"
    return Section(
        "Sparse model: Warfarin, L1 logistic",
        [timings_table(removals.values()), Table(headers, lines)],
        [Target(name, rival.time.over(jackknife), low=30.0)],
        [
            f"4422 patients, alpha {ALPHA:g}, ridge {RIDGE:g}: {about}",
            f"median error of one Jackknife removal {error:.1e}; the target takes glum "
            "at the loosest tolerance that is as accurate",
            "residual: |theta - prox(theta - gradient)|; error: distance to the truth",
        ],
    )
