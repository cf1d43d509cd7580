# SPDX-License-Identifier: Apache-2.0
"""Tables without a description: how good ``preprocessing="auto"`` is, and requests.

Adult with its own test rows, and Warfarin (the root of the dose, a fifth of the
patients held out), beside gradient boosting and numbers that are scaled alone. Then
requests to the model of Adult: single people, in turns with refits of scikit-learn's
pipeline with as many bins; those that move an edge of a bin are counted and timed
apart. Times are of the processor, one thread.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

from expunge import Budget
from expunge.linear_model import LinearRegression, LogisticRegression
from expunge.linear_model.base import snapshot_of
from expunge.linear_model.parameters import ALPHA
from expunge.plan.advice import UNNOTICED

from .data import DOSE, NOT_FEATURES, find, raw_adult
from .looks import pipelines, timed, typical
from .report import Section, Table, Target, number
from .timing import collection_off, progress

BINS, REQUESTS, BLOCKS, MORE = 32, 200, 5, 2800
HELD_OUT = 5  # one in so many


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield how good models of undescribed tables are, and what requests cost."""
    yield adult_scores(data_dir)
    yield warfarin_scores(data_dir)
    yield adult_requests(data_dir)


def adult_scores(data_dir: Path | None) -> Section:
    """Return accuracy and log-loss on the test rows of Adult."""
    (X, y), (X_test, y_test) = raw_adult(data_dir)
    progress("Adult: scaled, binned, boosted")
    models = {
        "scaled numbers": LogisticRegression(
            preprocessing=scaled(X), budget=Budget()
        ).fit(X, y),
        'preprocessing="auto"': LogisticRegression(
            preprocessing="auto", budget=Budget()
        ).fit(X, y),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0).fit(
            words_as_categories(X), y
        ),
    }
    scores = {}
    for name, model in models.items():
        rows = words_as_categories(X_test) if "boosting" in name else X_test
        shares = model.predict_proba(rows)[:, 1]
        scores[name] = (
            float(np.mean((shares > 0.5) == (y_test == 1))),
            float(log_loss(y_test, shares)),
        )
    ours = scores['preprocessing="auto"']
    return Section(
        f"Adult ({len(X)} x {X.shape[1]}), test rows, defaults",
        [
            Table(
                ("model", "accuracy", "log-loss"),
                [(name, f"{a:.4f}", f"{ll:.4f}") for name, (a, ll) in scores.items()],
            )
        ],
        [
            Target("accuracy", ours[0], low=0.867),
            Target("log-loss", ours[1], high=0.292),
        ],
        ["the rule for bins was chosen on training rows; noise of one release is in"],
    )


def warfarin_scores(data_dir: Path | None) -> Section:
    """Return R2 of the weekly dose, on a fifth of the patients."""
    path = find("warfarin/warfarin.csv", data_dir)
    frame = pd.read_csv(path, encoding="utf-8-sig").dropna(how="all")
    frame = frame.dropna(axis=1, how="all").dropna(subset=[DOSE])
    y = np.sqrt(frame[DOSE].to_numpy())
    kept = [c for c in frame if c not in NOT_FEATURES and "QC" not in str(c)]
    X = frame[kept].reset_index(drop=True)
    for name in X:
        if X[name].dtype.kind not in "if":
            X[name] = X[name].astype(object).where(X[name].notna(), None)
    held = np.random.default_rng(0).permutation(len(X)) < len(X) // HELD_OUT
    progress("Warfarin: scaled, binned, boosted")
    linear = partial(LinearRegression, budget=Budget())
    models = {
        "scaled numbers": linear(preprocessing=scaled(X)).fit(X[~held], y[~held]),
        'preprocessing="auto"': linear(preprocessing="auto").fit(X[~held], y[~held]),
        "gradient boosting": HistGradientBoostingRegressor(random_state=0).fit(
            words_as_categories(X)[~held], y[~held]
        ),
    }
    scores = {
        name: float(
            r2_score(
                y[held],
                model.predict(
                    (words_as_categories(X) if "boosting" in name else X)[held]
                ),
            )
        )
        for name, model in models.items()
    }
    ours, boosted = scores['preprocessing="auto"'], scores["gradient boosting"]
    progress(f"{REQUESTS} requests")
    model, moves = models['preprocessing="auto"'], list[float]()
    before = model.predict(X[held])
    for place in np.random.default_rng(1).permutation(int((~held).sum()))[:REQUESTS]:
        model.forget(rows=[int(place)])
        now = model.predict(X[held])
        moves.append(float(np.sqrt(np.mean((now - before) ** 2)) / y.std()))
        before = now
    return Section(
        f"Warfarin ({len(X)} x {X.shape[1]}), root of the weekly dose, defaults",
        [Table(("model", "R2"), [(name, f"{r:.4f}") for name, r in scores.items()])],
        [
            Target("R2 behind gradient boosting", boosted - ours, high=0.02),
            Target(
                "deviations of y that a prediction moves in one request",
                float(np.mean(moves)),
                high=UNNOTICED["R2"],
            ),
        ],
        [f"one patient in {HELD_OUT} held out; {REQUESTS} single requests"],
    )


def adult_requests(data_dir: Path | None) -> Section:
    """Return what requests cost and change, and how often an edge moves."""
    (X, y), (X_test, _) = raw_adult(data_dir)
    people = np.arange(len(X))
    model = LogisticRegression(preprocessing="auto", budget=Budget())
    _, first = timed(partial(model.fit, X, y, subjects=people))
    order = np.random.default_rng(1).permutation(people)
    # KBinsDiscretizer says that values come again; that is what it is told to bin.
    warnings.filterwarnings("ignore", "Bins whose width")
    progress("how far scikit-learn must go")
    C = 1.0 / (ALPHA * len(X))
    fits = pipelines(X, y, enough=1e-3, C=C, transformer=rival_steps(X))
    refits: dict[str, list[float]] = {name: [] for name in fits}
    stayed: list[list[float]] = []
    moved, shares, before = list[float](), list[float](), model.predict(X_test)
    for block, who in enumerate(np.array_split(order[:REQUESTS], BLOCKS)):
        progress(f"{len(who)} requests and {len(fits)} fits, {block + 1}/{BLOCKS}")
        with collection_off():
            stayed.append([])
            for person in who:
                taken, moves = forget(model, int(person))
                (moved if moves else stayed[-1]).append(taken)
                now = model.predict(X_test)
                shares.append(float(np.mean(now != before)))
                before = now
            for name, pipeline in fits.items():
                refits[name].append(timed(partial(pipeline.fit, X, y))[1])
    progress(f"{MORE} more requests")
    every = [*moved, *(one for block in stayed for one in block)]
    for person in order[REQUESTS : REQUESTS + MORE]:
        taken, moves = forget(model, int(person))
        every.append(taken)
        if moves:
            moved.append(taken)
    rival, name = min((min(taken), name) for name, taken in refits.items())
    lines = [
        ("fit, the first [ms]", number(1e3 * first)),
        (f"refit, {name} [ms]", number(1e3 * rival)),
        ("request, median [ms]", number(1e3 * typical(stayed))),
        (
            f"of {len(every)} requests moved an edge",
            f"{len(moved)} ({100 * len(moved) / len(every):.1f} %)",
        ),
        ("such a request, median [ms]", number(1e3 * float(np.median(moved)))),
        ("every request, mean [ms]", number(1e3 * float(np.mean(every)))),
    ]
    return Section(
        f"Adult ({len(X)} x {X.shape[1]}), requests to 'auto', defaults",
        [Table(("what", "measured"), lines)],
        [
            Target(
                "% of test decisions that differ from the release before",
                100.0 * float(np.mean(shares)),
                high=0.1,
            ),
            Target("refit / request", rival / typical(stayed), low=20.0),
            Target("refit / every request", rival / float(np.mean(every)), low=10.0),
        ],
        [f"{REQUESTS} single requests in turns with refits, then {MORE} more"],
    )


def forget(model: Any, person: int) -> tuple[float, bool]:
    """Return how long a request took, and whether an edge of a bin moved."""
    before = names_of(model)
    taken = timed(partial(model.forget, [person]))[1]
    bins = {name for name in before ^ names_of(model) if "=" in name or ">" in name}
    return taken, bool(bins)


def names_of(model: Any) -> set[str]:
    """Return the names of the features, ends of bins among them."""
    encoding = snapshot_of(model).public.preprocessing
    assert encoding is not None
    return set(encoding.names)


def numbers_of(X: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the columns of numbers, and those of words that are not all different."""
    numbers = [str(name) for name in X if X[name].dtype.kind in "if"]
    words = [str(name) for name in X if name not in numbers]
    return numbers, [name for name in words if X[name].nunique() <= len(X) / HELD_OUT]


def scaled(X: pd.DataFrame) -> Any:
    """Return scaled numbers, and words as flags."""
    numbers, words = numbers_of(X)
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10), words),
    )


def rival_steps(X: pd.DataFrame) -> Any:
    """Return what scikit-learn has for the same: quantile bins beside the numbers."""
    numbers, words = numbers_of(X)
    bins = KBinsDiscretizer(
        BINS, strategy="quantile", quantile_method="averaged_inverted_cdf"
    )
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (make_pipeline(SimpleImputer(), bins), numbers),
        (OneHotEncoder(handle_unknown="ignore"), words),
    )


def words_as_categories(X: pd.DataFrame) -> Any:
    """Return the table as gradient boosting takes it: numbers, and codes of words."""
    numbers, words = numbers_of(X)
    columns: list[NDArray[Any]] = [X[name].to_numpy(float) for name in numbers]
    for name in words:
        codes = pd.Categorical(X[name], categories=sorted(X[name].dropna().unique()))
        columns.append(np.where(codes.codes < 0, np.nan, codes.codes))
    return np.column_stack(columns)
