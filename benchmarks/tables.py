# SPDX-License-Identifier: Apache-2.0
"""A raw table to a certified model and back: Adult with its text and its gaps.

The same people leave three models in turn: one with preprocessing, fitted to the raw
table; a bare one, fitted to the encoded rows; and scikit-learn's own pipeline, which is
fitted again.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model, snapshot_of
from expunge.promise.budget import Budget

from .data import raw_adult
from .report import Section, Table, Target, number, timings_table
from .timing import Measurement, progress, time_call

ALPHA, SIGMA = 1e-3, 0.1
REQUESTS, RETRAININGS, DRAWS = 500, 5, 20


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what a request costs through preprocessing, and what accuracy is left."""
    (X, y), (X_test, y_test) = raw_adult(data_dir)
    steps = preprocessing(X)
    people = np.arange(len(X))
    progress(f"fitting {len(X)} raw rows")
    budget = Budget(epsilon=1, delta=1e-5, sigma=SIGMA)
    model = LogisticRegression(alpha=ALPHA, preprocessing=steps, budget=budget)
    _, fitted = time_call(lambda: model.fit(X, y, subjects=people))
    encoded = clone(steps).fit_transform(X)
    bare = LogisticRegression(
        alpha=ALPHA, budget=Budget(epsilon=1, delta=1e-5, sigma=SIGMA)
    )
    bare.fit(encoded, y, subjects=people)
    rival = make_pipeline(steps, rivals.LogisticRegression(C=1 / (ALPHA * len(X))))
    score = partial(mean_accuracy, X=X_test, y=y_test)
    before = rival.fit(X, y).score(X_test, y_test), score(model)
    leaving = np.random.default_rng(1).permutation(people)[:REQUESTS]
    times, decisions = serve(model, bare, leaving=leaving)
    left = np.setdiff1d(people, leaving)
    progress(f"{RETRAININGS} fits of scikit-learn's pipeline")
    refit = partial(rival.fit, X.iloc[left], y[left])
    again = [time_call(refit)[1] for _ in range(RETRAININGS)]
    times.append(Measurement.of("scikit-learn's pipeline, fitted again", again))
    after = rival.score(X_test, y_test), score(model)
    through, alone, refitted = times
    yield Section(
        f"Adult as a raw table ({len(X)} x {X.shape[1]}, {encoded.shape[1]} features)",
        [
            timings_table(times),
            Table(
                ("what", "measured"),
                [
                    ("fit [s]", number(fitted)),
                    *((f"decisions: {name}", str(n)) for name, n in decisions.items()),
                    ("accuracy, scikit-learn, before", f"{before[0]:.4f}"),
                    ("accuracy, expunge, before", f"{before[1]:.4f}"),
                    ("accuracy, scikit-learn, after", f"{after[0]:.4f}"),
                    ("accuracy, expunge, after", f"{after[1]:.4f}"),
                ],
            ),
        ],
        [
            Target("through preprocessing / bare", through.over(alone), high=3.0),
            Target("fitting again / request", refitted.over(through), low=100.0),
            Target("points lost before", 100 * (before[0] - before[1]), high=0.5),
            Target("points lost after", 100 * (after[0] - after[1]), high=0.5),
        ],
        [
            f"noise of sigma {SIGMA}; requests of one person each, in turns",
            f"accuracy: mean over {DRAWS} noise draws at the last model",
        ],
    )


def mean_accuracy(model: LogisticRegression, *, X: pd.DataFrame, y: Any) -> float:
    """Return the accuracy of the last model over draws of its noise."""
    encoder = snapshot_of(model).public.preprocessing
    assert encoder is not None
    rows = np.column_stack([encoder.encode(X), np.ones(len(X))])
    theta, rng = private_model(model).answer.draft.theta, np.random.default_rng(2)
    noise = SIGMA * rng.standard_normal((DRAWS, theta.size))
    return float(np.mean((rows @ (theta + noise).T > 0.0) == (y == 1)[:, None]))


def preprocessing(X: pd.DataFrame) -> Any:
    """Return what is usual: numbers filled and scaled, words as flags."""
    numbers = [name for name in X if X[name].dtype.kind in "if"]
    words = [name for name in X if name not in numbers]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )


def serve(
    model: LogisticRegression, bare: LogisticRegression, *, leaving: Any
) -> tuple[list[Measurement], Counter[str]]:
    """Let people leave both models in turns; return the times and the decisions."""
    progress(f"{len(leaving)} requests to both models")
    seconds: tuple[list[float], list[float]] = ([], [])
    decisions: Counter[str] = Counter()
    for person in leaving:
        for one, taken in zip((model, bare), seconds, strict=True):
            taken.append(time_call(partial(one.forget, [person]))[1])
        decisions[model.record_.decisions[0]] += 1
    names = ("request through preprocessing", "request to a bare model")
    pairs = zip(names, seconds, strict=True)
    return [Measurement.of(name, taken) for name, taken in pairs], decisions
