# SPDX-License-Identifier: Apache-2.0
"""EASE with 5,000 items and 200,000 users: a request beside the fit and the inverse.

Generated interactions, 40 draws a user by popularity. Times are of the processor, one
thread. A request is what one leaver costs until the next recommendation is there.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from expunge import EASE
from expunge.core.decided_ratios import RATIO_BITS

from .report import Section, Table, Target
from .timing import progress, time_call

N_ITEMS, N_USERS, DRAWS, L2 = 5_000, 200_000, 40, 500.0


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what a request costs, beside the fit and the bare inverse."""
    del data_dir
    rng = np.random.default_rng(0)
    share = np.arange(1, N_ITEMS + 1) ** -0.8
    items = rng.choice(N_ITEMS, size=N_USERS * DRAWS, p=share / share.sum())
    users = np.repeat(np.arange(N_USERS), DRAWS)
    ones = np.ones(len(items), dtype=np.int64)
    X = sparse.csr_array((ones, (users, items)), shape=(N_USERS, N_ITEMS))
    X.data[:] = 1
    clock = time.process_time
    progress("EASE: fit")
    model = EASE(l2=L2)
    _, fit = time_call(lambda: model.fit(X, subjects=np.arange(N_USERS)), clock)
    first = model.items_[:1]
    _, answer = time_call(lambda: model.recommend(first), clock)
    progress("EASE: request")
    _, leave = time_call(lambda: model.forget(["5"]), clock)
    _, again = time_call(lambda: model.recommend(first), clock)
    _, warm = time_call(lambda: model.recommend(first), clock)
    progress("bare inverse")
    A = (X.T @ X).toarray().astype(np.float64)
    A[np.diag_indices(N_ITEMS)] += L2

    def invert() -> np.ndarray:
        factor, _ = lapack.dpotrf(A, lower=1)
        lower: np.ndarray = lapack.dpotri(factor, lower=1)[0]
        return lower

    _, inverse = time_call(invert, clock)
    rows = [
        ("fit: sums of all users", fit),
        ("the first recommendation: the matrix, each weight proved", answer),
        ("a request: sums", leave),
        ("the recommendation after it", again),
        ("one more recommendation", warm),
        ("a bare inverse", inverse),
    ]
    table = Table(("what", "seconds"), [(name, f"{s:.2f}") for name, s in rows])
    beside = (leave + again) / (fit + answer)
    yield Section(
        f"EASE, {N_ITEMS:,} items, {N_USERS:,} users",
        [table],
        [
            Target("request / fit", beside, high=1.0),
            Target("request / bare inverse", (leave + again) / inverse, high=6.0),
        ],
        [f"weights are the nearest multiples of 2^-{RATIO_BITS}"],
    )
