# SPDX-License-Identifier: Apache-2.0
"""Tables of numbers and categories: fit, and requests that read all rows.

A table of 300,000 rows, six numbers and six categories of a hundred levels, drawn here,
and Adult. scikit-learn takes the same categories as a sparse matrix, glum as tabmat's
split matrix; both are solved to a gradient as small as ours, as far as they get there,
and what comes before the solver counts for everybody. Times are of the processor, the
least of alternating runs.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import glum
import numpy as np
import pandas as pd
import tabmat
from numpy.typing import NDArray
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model
from expunge.promise.budget import Budget

from .data import raw_adult
from .report import Section, Table, Target, number
from .timing import progress, time_call

ALPHA, SIGMA, TOLERANCE = 1e-4, 1e-3, 1e-9
ROWS, NUMBERS, CATEGORIES, LEVELS = 300_000, 6, 6, 100
TURNS, REQUESTS = 3, 20
SOLVERS = ("newton-cg", "newton-cholesky")  # others do not reach such a gradient


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what fits and requests with a look cost: a drawn table, and Adult."""
    progress(f"drawing {ROWS} rows")
    X, y = draw_table()
    yield measure(f"{ROWS} rows, {CATEGORIES} categories of {LEVELS} levels", X, y)
    (X, y), _ = raw_adult(data_dir)
    yield measure(f"Adult as a raw table ({len(X)} rows)", X, y)


def draw_table() -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return a table with levels as frequent as words are, and labels."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    eta = np.full(ROWS, -1.0)
    for j in range(NUMBERS):
        z = rng.standard_normal(ROWS)
        columns[f"number {j}"] = 10.0**j * (z + 5.0)
        eta += 0.3 * z
    share = 1.0 / np.arange(1, LEVELS + 1)
    words = np.array([f"level {k}" for k in range(LEVELS)])
    for j in range(CATEGORIES):
        codes = rng.choice(LEVELS, ROWS, p=share / share.sum())
        columns[f"word {j}"] = words[codes]
        eta += 0.5 * rng.standard_normal(LEVELS)[codes]
    y = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    return pd.DataFrame(columns), y


def measure(title: str, X: pd.DataFrame, y: NDArray[Any]) -> Section:
    """Return what fits and requests cost on a table."""
    names = [str(name) for name in X]
    numbers = [name for name in names if X[name].dtype.kind in "if"]
    words = [name for name in names if name not in numbers]
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), words),
        sparse_threshold=1.0,
    )
    people = np.arange(len(X))
    model = LogisticRegression(
        alpha=ALPHA, preprocessing=clone(steps), budget=Budget(sigma=SIGMA)
    )
    fits: dict[str, Callable[[], Any]] = {
        "expunge": lambda: model.fit(X, y, subjects=people)
    }
    for solver in SOLVERS:
        rival = rivals.LogisticRegression(
            C=1.0 / (ALPHA * len(X)), solver=solver, tol=TOLERANCE, max_iter=1000
        )
        fits[f"scikit-learn, {solver}"] = partial(make_pipeline(steps, rival).fit, X, y)
    fits["glum"] = partial(_fit_glum, X, y, numbers=numbers, words=words)
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    fitted: dict[str, Any] = {}
    for turn in range(TURNS):
        progress(f"fits of everybody, {turn + 1} of {TURNS}")
        for name, fit in fits.items():
            fitted[name], taken = time_call(fit, time.process_time)
            seconds[name].append(taken)
    fitted["expunge"] = private_model(model).answer.draft.theta
    design = clone(steps).fit_transform(X)
    least = {name: min(taken) for name, taken in seconds.items()}
    progress(f"{REQUESTS} requests")
    requests, looks = [], 0
    for person in np.random.default_rng(1).permutation(people)[:REQUESTS]:
        requests.append(
            time_call(partial(model.forget, [person]), time.process_time)[1]
        )
        looks += model.record_.decisions[0] != "accepted"
    request = float(np.median(requests))
    peaks = {name: _peak(fits[name]) for name in ("expunge", *list(fits)[1:2])}
    fastest = min(taken for name, taken in least.items() if "scikit" in name)
    lines = [
        (name, number(taken), f"{_gradient(fitted[name], design, y):.1e}")
        for name, taken in least.items()
    ]
    figures = [
        ("request, median [ms]", number(1e3 * request)),
        ("requests that looked at the rows", f"{looks} of {REQUESTS}"),
        *(
            (f"peak of a fit, {name} [MB]", number(peak))
            for name, peak in peaks.items()
        ),
    ]
    return Section(
        f"{title}, {design.shape[1]} features",
        [
            Table(("fit", "seconds of processor", "gradient"), lines),
            Table(("what", "measured"), figures),
        ],
        [
            Target("fit / scikit-learn", least["expunge"] / fastest, high=1.5),
            Target("refit / request", least["expunge"] / request, low=15.0),
            Target("scikit-learn / request", fastest / request, low=15.0),
        ],
        [
            f"alpha {ALPHA:g}, sigma {SIGMA:g}; the least of {TURNS} alternating fits",
            "peak: memory beside the table, by tracemalloc, in a fit of its own",
        ],
    )


def _fit_glum(
    X: pd.DataFrame, y: NDArray[Any], *, numbers: list[str], words: list[str]
) -> Any:
    frame = X.copy()
    for name in numbers:
        column = frame[name].fillna(frame[name].mean())
        frame[name] = (column - column.mean()) / column.std(ddof=0)
    for name in words:
        frame[name] = frame[name].astype("category")
    columns = frame[[*numbers, *words]]
    design = tabmat.from_df(columns, cat_missing_method="convert")
    model = glum.GeneralizedLinearRegressor(
        family="binomial", alpha=ALPHA, l1_ratio=0, gradient_tol=TOLERANCE
    )
    return model.fit(design, y.astype(float))


def _gradient(fitted: Any, design: Any, y: NDArray[Any]) -> float:
    """Return the length of the objective's gradient at what was fitted."""
    if isinstance(fitted, np.ndarray):
        coefficients, intercept = fitted[:-1], fitted[-1]
    else:
        last = fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted
        coefficients = np.ravel(last.coef_)
        intercept = float(np.ravel(last.intercept_)[0])
    if len(coefficients) != design.shape[1]:
        return float("nan")  # other features, of levels that are missing
    signs = np.where(y == 1, 1.0, -1.0)
    margins = signs * (design @ coefficients + intercept)
    slopes = -signs / (1.0 + np.exp(margins)) / len(y)
    gradient = design.T @ slopes + ALPHA * coefficients
    return float(np.linalg.norm([*gradient, slopes.sum()]))


def _peak(fit: Callable[[], Any]) -> float:
    """Return how many megabytes a fit takes at most."""
    tracemalloc.start()
    fit()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6
