# SPDX-License-Identifier: Apache-2.0
"""Advice: how long it takes on Adult, and whether its figures are those of requests.

With rows kept and without. Shares of decisions that one request changes, as advised on
the training people, stand beside those of real requests on the test people.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from expunge import Budget, advise
from expunge.linear_model import LogisticRegression

from .data import adult
from .report import Section, Table, Target
from .timing import progress, time_call

C = 1.0
REQUESTS = 50
LONGEST = 20.0  # seconds


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield advice for a model that keeps its rows, and for one that does not."""
    train, test = adult(data_dir)
    for kept in (True, False):
        progress(f"advice on {len(train)} people, rows {'kept' if kept else 'gone'}")
        model = LogisticRegression(C=C, keep_data=kept)
        ask = partial(advise, train.X, train.y, model)
        advice, seconds = time_call(ask, clock=process_time)
        lines = [
            (
                f"{one.sigma:g}",
                f"{one.score:.4f}",
                f"{100.0 * one.changed:.3f}",
                f"{1e3 * one.seconds:.1f}",
                "-" if one.looks is None else str(one.looks),
                f"{100.0 * one.label_guess:.1f}",
            )
            for one in advice.trials
        ]
        targets = [Target("processor time of advice [s]", seconds, high=LONGEST)]
        if kept:
            told = {one.sigma: one.changed for one in advice.trials}
            for sigma in (1e-3, 1e-2, 0.1):
                share = measure_changes(train.X, train.y, test.X, sigma=sigma)
                name = f"changed, advised / measured, sigma {sigma:g}"
                targets.append(Target(name, told[sigma] / share, low=0.7, high=1.4))
        names = ("sigma", "accuracy", "changed [%]", "request [ms]", "looks of 1000")
        yield Section(
            f"Adult ({len(train)} x {train.X.shape[1]}), C=1, rows "
            f"{'kept' if kept else 'not kept'}: recommended {advice.line}",
            [Table((*names, "label guessed [%]"), lines)],
            targets,
        )


def measure_changes(
    X: np.ndarray, y: np.ndarray, others: np.ndarray, *, sigma: float
) -> float:
    """Return how many decisions real requests change, one with the next."""
    progress(f"{REQUESTS} requests, sigma {sigma:g}")
    budget = Budget(sigma=sigma, allow_seeded=True)
    model = LogisticRegression(C=C, budget=budget, random_state=0).fit(X, y)
    said, shares = model.predict(others), []
    for row in range(REQUESTS):
        before, said = said, model.forget(rows=[row]).predict(others)
        shares.append(float(np.mean(said != before)))
    return float(np.mean(shares))
