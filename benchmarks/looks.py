# SPDX-License-Identifier: Apache-2.0
"""What a request costs beside a refit, and what it changes: Adult, with defaults.

The table is raw: both sides encode it. scikit-learn's solvers are run to the gradient
that our answers have, and the fastest counts. Times are those of the processor, one
thread; requests and refits take turns, and of refits the least counts.
"""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expunge import Budget
from expunge.exceptions import CapacityExceeded
from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model, snapshot_of
from expunge.private_model.answers import MEASURED

from .data import ADULT_NUMBERS, ADULT_WORDS, raw_adult
from .report import Section, Table, Target, number
from .timing import collection_off, progress, time_call

C = 1.0
REQUESTS, BLOCKS, AT_ONCE, DRAWS = 200, 5, 100, 100
SOLVERS = ("newton-cholesky", "newton-cg", "lbfgs")
TOLERANCES = tuple(10.0**-k for k in range(1, 12))


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what requests cost, and what they do to everybody else's decisions."""
    (X, y), (X_test, y_test) = raw_adult(data_dir)
    people = np.arange(len(X))
    model, blind = (
        LogisticRegression(
            C=C, preprocessing=steps(), budget=Budget(sigma=sigma), keep_data=keep
        )
        for sigma, keep in ((None, True), (0.1, False))
    )
    fit = partial(model.fit, X, y, subjects=people)
    _, first = timed(fit)
    order = np.random.default_rng(1).permutation(people)
    leaving, others = order[:REQUESTS], order[REQUESTS:]
    refits: dict[str, list[float]] = {"expunge": []}
    seconds: dict[str, list[list[float]]] = {"look": [], "none": []}
    shares, decisions, every = list[float](), Counter[str](), list[float]()
    before = model.predict(X_test)
    fits = pipelines(X, y, enough=1e-3)
    for block, who in enumerate(np.array_split(leaving, BLOCKS)):
        progress(f"{len(who)} requests and {len(fits) + 1} fits, {block + 1}/{BLOCKS}")
        with collection_off():
            looked = list[float]()
            for person in who:
                every.append(timed(partial(model.forget, [person]))[1])
                done = model.record_.decisions[0]
                decisions[done] += 1
                looked += [every[-1]] if done == MEASURED else []
                now = model.predict(X_test)
                shares.append(float(np.mean(now != before)))
                before = now
            seconds["look"].append(looked)
            seconds["none"].append(without_look(blind, X, y, who))
            for name, pipeline in fits.items():
                spent = timed(partial(pipeline.fit, X, y))[1]
                refits.setdefault(name, []).append(spent)
            fresh = clone(model)
            own = timed(partial(fresh.fit, X, y, subjects=people))[1]
            refits["expunge"].append(own)
    lost = 100.0 * lost_accuracy(model, X_test, y_test)
    many = [
        timed(partial(model.forget, some.tolist()))[1]
        for some in np.array_split(others[: BLOCKS * AT_ONCE], BLOCKS)
    ]
    rival = min((min(taken), name) for name, taken in refits.items() if name in fits)
    costs = {
        "no look (sigma 0.1, rows not kept)": (typical(seconds["none"]), 50.0),
        "a look": (typical(seconds["look"]), 20.0),
        "the mix at defaults (mean)": (float(np.mean(every)), 20.0),
        f"{AT_ONCE} people at once": (min(many), 10.0),
    }
    yield Section(
        f"Adult as a raw table ({len(X)} x {X.shape[1]}), C={C:g}, defaults",
        [
            Table(
                ("a request", "[ms]", f"{rival[1]} / it", "our refit / it"),
                [
                    (
                        name,
                        number(1e3 * spent),
                        number(rival[0] / spent),
                        number(min(refits["expunge"]) / spent),
                    )
                    for name, (spent, _) in costs.items()
                ],
            ),
            Table(
                ("a fit", "[ms]"),
                [
                    ("expunge, the first", number(1e3 * first)),
                    *((n, number(1e3 * min(taken))) for n, taken in refits.items()),
                ],
            ),
            Table(
                ("answers", "number"),
                [(name, str(n)) for name, n in decisions.most_common()],
            ),
        ],
        [
            *(
                Target(f"refit / {name}", rival[0] / spent, low=least)
                for name, (spent, least) in costs.items()
            ),
            Target(
                "% of test decisions that differ from the release before",
                100.0 * float(np.mean(shares)),
                high=0.1,
            ),
            Target("points of accuracy lost", lost, high=0.03),
        ],
        [
            f"{REQUESTS} single requests; accuracy: mean of {DRAWS} draws of the noise "
            "at the last model, beside none",
        ],
    )


def steps() -> Any:
    """Return what is usual: numbers scaled, words as flags."""
    return make_column_transformer(
        (StandardScaler(), [f"c{name}" for name in ADULT_NUMBERS]),
        (
            OneHotEncoder(handle_unknown="ignore"),
            [f"c{name}" for name in ADULT_WORDS],
        ),
    )


def timed(action: Any) -> tuple[Any, float]:
    """Return what a call returns, and its processor time."""
    return time_call(action, time.process_time)


def typical(blocks: list[list[float]]) -> float:
    """Return the least of the medians of blocks of requests."""
    return float(min(np.median(block) for block in blocks if block))


def without_look(model: Any, X: Any, y: Any, people: Any) -> list[float]:
    """Return the times of requests to a model that keeps no rows, until it is full."""
    model.fit(X, y)
    seconds = list[float]()
    for row in people:
        own = slice(row, row + 1)
        try:
            forget = partial(model.forget, X=X.iloc[own], y=y[own])
            seconds.append(timed(forget)[1])
        except CapacityExceeded:
            break
    return seconds


def pipelines(
    X: Any, y: Any, *, enough: float, C: float = C, transformer: Any = None
) -> dict[str, Any]:
    """Return scikit-learn's pipelines, each solving to a gradient of ``enough``.

    Of the sum of the losses and the penalty, as ours minimises it. ``transformer`` is
    what comes before the solver; by default ``steps``.
    """
    first = steps() if transformer is None else transformer
    encoded = clone(first).fit_transform(X)
    signs = np.where(np.asarray(y) == 1, 1.0, -1.0)
    found = {}
    for solver in SOLVERS:
        progress(f"how far {solver} must go")
        for tol in TOLERANCES:
            head = rivals.LogisticRegression(
                C=C, solver=solver, tol=tol, max_iter=5000
            ).fit(encoded, y)
            w, b = head.coef_[0], float(head.intercept_[0])
            slope = -signs * expit(-signs * (encoded @ w + b))
            gradient = np.append(encoded.T @ slope + w / C, slope.sum())
            if np.linalg.norm(gradient) <= enough:
                found[solver] = make_pipeline(clone(first), clone(head))
                break
    return found


def lost_accuracy(model: LogisticRegression, X: Any, y: Any) -> float:
    """Return how much accuracy the noise of a release costs on average."""
    private, public = private_model(model), snapshot_of(model).public
    assert private.budget is not None and public.preprocessing is not None
    rows = np.column_stack([public.preprocessing.encode(X), np.ones(len(X))])
    theta, rng = private.answer.draft.theta, np.random.default_rng(2)
    right = (rows @ theta > 0.0) == (y == 1)
    noise = private.budget.deviation * rng.standard_normal((DRAWS, theta.size))
    noisy = (rows @ (theta + noise).T > 0.0) == (y == 1)[:, None]
    return float(np.mean(right) - np.mean(noisy))
