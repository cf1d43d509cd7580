# SPDX-License-Identifier: Apache-2.0
"""Erasure requests to an estimator: Adult, 500 people, one request at a time.

The face most users meet, with everything on: subjects looked up, rows kept, releases
certified at epsilon 1, delta 1e-5 and sigma 0.1, against as many retrainings.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn import linear_model as rivals

from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model
from expunge.promise.budget import Budget
from expunge.promise.verification import verify

from .data import Dataset, adult
from .report import Section, Table, Target, number
from .timing import Measurement, progress, time_call

ALPHA = 1e-3
REQUESTS = 500
RETRAININGS = 5
DRAWS = 20


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the requests with secure and with seeded noise."""
    train, test = adult(data_dir)
    owners = people(len(train))
    leaving = requests(owners)
    rival, retrained = retraining(train, test, np.isin(owners, leaving))
    for seed, kind in ((None, "secure noise"), (0, "seeded noise")):
        progress(f"{REQUESTS} requests, {kind}")
        budget = Budget(sigma=0.1, allow_seeded=True)
        model = LogisticRegression(alpha=ALPHA, budget=budget, random_state=seed)
        fit = partial(model.fit, train.X, train.y, subjects=owners)
        _, fitted = time_call(fit)
        served = serve(model, leaving)
        lost = 100.0 * (retrained - mean_accuracy(model, test))
        lines = [
            ("fit [s]", number(fitted)),
            ("one request, median [ms]", number(1e3 * served.time.median)),
            (f"all {REQUESTS} requests [s]", number(served.total)),
            ("one retraining, newton-cholesky [s]", number(rival.median)),
            ("accuracy of retraining", f"{retrained:.4f}"),
            *((f"decisions: {name}", str(n)) for name, n in served.decisions.items()),
        ]
        ratio = REQUESTS * rival.median / served.total
        yield Section(
            f"Adult ({len(train)} x {train.X.shape[1]}), people forgotten, {kind}",
            [Table(("what", "measured"), lines)],
            [
                Target("valid releases", served.valid, low=REQUESTS),
                Target("points of accuracy lost", lost, high=0.3),
                Target(f"{REQUESTS} retrainings / all requests", ratio, low=50.0),
            ],
            [f"accuracy: mean over {DRAWS} noise draws at the last model"],
        )


@dataclass(frozen=True, slots=True)
class Served:
    """How a row of requests went: times, decisions, valid certificates."""

    time: Measurement
    total: float
    decisions: Counter[str]
    valid: int


def serve(model: LogisticRegression, leaving: list[str]) -> Served:
    """Answer the requests one by one, and verify every certificate."""
    seconds, decisions, valid = [], Counter[str](), 0
    for person in leaving:
        _, elapsed = time_call(partial(model.forget, [person]))
        seconds.append(elapsed)
        decisions[model.record_.decisions[0]] += 1
        paper = model.certificate_
        valid += paper.status == "certified" and verify(paper, model.record_).valid
    total = float(np.sum(seconds))
    return Served(Measurement.of("request", seconds), total, decisions, valid)


def people(n_rows: int) -> list[str]:
    """Return owners of one to five rows each."""
    rng = np.random.default_rng(0)
    owners: list[str] = []
    while len(owners) < n_rows:
        owners += [f"person {len(owners)}"] * int(rng.integers(1, 6))
    return owners[:n_rows]


def requests(owners: list[str]) -> list[str]:
    """Return who asks to be forgotten, in order."""
    names = list(dict.fromkeys(owners))
    order = np.random.default_rng(1).permutation(len(names))
    return [names[i] for i in order[:REQUESTS]]


def retraining(
    train: Dataset, test: Dataset, gone: "np.ndarray[tuple[int], np.dtype[np.bool]]"
) -> tuple[Measurement, float]:
    """Time scikit-learn on the remaining rows, and score it on the test rows."""
    progress(f"{RETRAININGS} retrainings by scikit-learn")
    X, y = train.X[~gone], train.y[~gone]
    model = rivals.LogisticRegression(
        C=1.0 / (ALPHA * len(X)), solver="newton-cholesky", tol=1e-10, max_iter=1000
    )
    seconds = [time_call(lambda: model.fit(X, y))[1] for _ in range(RETRAININGS)]
    score = float(model.score(test.X, test.y))
    return Measurement.of("newton-cholesky", seconds), score


def mean_accuracy(model: LogisticRegression, test: Dataset) -> float:
    """Return the accuracy of the last model over draws of its noise."""
    private = private_model(model)
    assert private.budget is not None
    rng, theta = np.random.default_rng(2), private.answer.draft.theta
    X = np.column_stack([test.X, np.ones(len(test))])
    noise = private.budget.deviation * rng.standard_normal((DRAWS, theta.size))
    signs = np.where(X @ (theta + noise).T > 0.0, 1.0, -1.0)
    return float(np.mean(signs == test.y[:, None]))
