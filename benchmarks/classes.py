# SPDX-License-Identifier: Apache-2.0
"""One-vs-rest with many classes: requests beside scikit-learn's fit.

20,000 rows of norm one, alpha 1e-3, no rows kept, free intercepts, epsilon 1 and delta
1e-5 at sigma 0.5: single requests through the estimator, each with its radius and its
release, beside a fit of scikit-learn's ``OneVsRestClassifier`` in the same run.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression as TheirLogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from expunge import Budget, LogisticRegression
from expunge.core.arrays import Matrix
from expunge.linear_model.snapshots import private_model
from expunge.removal import state_size

from .report import Section, Target, timings_table
from .timing import Measurement, collection_off, progress, time_call

SIZES = ((384, 10), (768, 20), (384, 100))
N_ROWS, ALPHA, SIGMA = 20_000, 1e-3, 0.5
REQUESTS, FITS = 40, 3
LEAST_RATIO = 50.0


def draw_classes(
    n_columns: int, n_classes: int, n_rows: int = N_ROWS
) -> tuple[Matrix, NDArray[np.intp]]:
    """Return rows of norm one, and classes that a linear model half explains."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    eta = 6.0 * X @ rng.normal(size=(n_columns, n_classes))
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the requests of each size."""
    del data_dir  # drawn, not read
    for n_columns, n_classes in SIZES:
        progress(f"{n_classes} classes, {n_columns} columns: a fit")
        yield requests_beside_fits(n_columns, n_classes)


def _forget(model: LogisticRegression, own: tuple[Matrix, NDArray[np.intp]]) -> None:
    model.forget(X=own[0], y=own[1])


def requests_beside_fits(
    n_columns: int, n_classes: int, n_rows: int = N_ROWS
) -> Section:
    """Time requests, with fits of scikit-learn before, between and after them."""
    X, y = draw_classes(n_columns, n_classes, n_rows)
    theirs = OneVsRestClassifier(TheirLogisticRegression(C=1.0 / (ALPHA * n_rows)))
    ours = LogisticRegression(alpha=ALPHA, budget=Budget(sigma=SIGMA), keep_data=False)
    _, fit = time_call(lambda: ours.fit(X, y))
    fits, requests = [], []
    with collection_off():
        for turn in range(FITS):
            fits.append(time_call(lambda: theirs.fit(X, y))[1])
            for row in range(turn, REQUESTS, FITS):
                own = X[row : row + 1], y[row : row + 1]
                requests.append(time_call(partial(_forget, ours, own))[1])
    rows = [
        Measurement.of("scikit-learn's fit", fits),
        Measurement.of("request, no rows kept", requests),
        Measurement.of("our fit", [fit]),
    ]
    answer = private_model(ours).answer
    size = 8 * state_size(answer.state) / 2**20
    return Section(
        f"One-vs-rest, {n_classes} classes of {n_columns} columns",
        [timings_table(rows)],
        [Target("fit / request", rows[0].over(rows[1]), low=LEAST_RATIO)],
        [
            f"the last answer was {', '.join(answer.decisions)} by a radius of kind "
            f"{answer.radius.kind}; the state holds {size:.0f} MiB"
        ],
    )
