# SPDX-License-Identifier: Apache-2.0
"""Raw tables and preprocessing of every kind, for tests of files and of copies.

``TABLE`` has numbers, gaps, text, whole numbers and booleans as categories, and a
declared order. ``NEW`` has the same columns with values that nobody was fitted with.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

N_ROWS = 160
CITIES = ["Rome", "Oslo", "Bonn", "Kiel", "Lund", None]
GRADES = ["low", "mid", "top"]
NUMBERS = ["age", "pay"]
CATEGORIES = ["city", "ward", "smokes"]


def make_table(seed: int) -> pd.DataFrame:
    """Return a table; columns that nothing uses are between the others."""
    rng = np.random.default_rng(seed)
    cities = np.array(CITIES, dtype=object)
    table = pd.DataFrame(
        {
            "note": "unused",
            "age": np.round(rng.normal(45.0, 15.0, N_ROWS)),
            "pay": rng.lognormal(10.0, 1.0, N_ROWS),
            "city": cities[np.minimum(rng.geometric(0.4, N_ROWS) - 1, 5)],
            "spare": rng.normal(size=N_ROWS),
            "ward": rng.choice([1, 2, 30], N_ROWS, p=[0.6, 0.3, 0.1]),
            "smokes": rng.random(N_ROWS) < 0.3,
            "grade": rng.choice(GRADES, N_ROWS),
            "heat": rng.normal(37.0, 1.0, N_ROWS),
        }
    )
    table.loc[rng.random(N_ROWS) < 0.2, "pay"] = np.nan
    table.loc[rng.random(N_ROWS) < 0.1, "grade"] = None
    return table


def make_labels(table: pd.DataFrame, n_classes: int = 2) -> np.ndarray:
    """Return labels 0, 1, ... that depend on the table."""
    rng = np.random.default_rng(7)
    score = table["age"] / 15.0 + (table["city"] == "Rome") - table["smokes"]
    noisy = score + rng.normal(size=len(table))
    places: np.ndarray = pd.qcut(noisy, n_classes, labels=False).to_numpy(dtype=int)
    return places


def make_strange(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with unknown and missing values in it."""
    strange = table.astype({"ward": float, "smokes": object})
    strange.loc[:9, "city"] = "Atlantis"
    strange.loc[5:14, "ward"] = 77.0
    strange.loc[10:19, "ward"] = np.nan
    strange.loc[15:24, "age"] = np.nan
    strange.loc[20:29, "grade"] = "best"
    strange.loc[25:34, "smokes"] = None
    strange.loc[30:39, "city"] = None
    return strange


def fill(strategy: str = "mean", **options: Any) -> SimpleImputer:
    return SimpleImputer(strategy=strategy, **options)


def one_hot(unknown: str = "ignore", **options: Any) -> OneHotEncoder:
    return OneHotEncoder(handle_unknown=unknown, **options)


def ordinal(unknown: Any = -1) -> OrdinalEncoder:
    return OrdinalEncoder(
        categories=[[*GRADES, np.nan]],
        handle_unknown="use_encoded_value",
        unknown_value=unknown,
    )


def numbers_as(*steps: Any) -> ColumnTransformer:
    """Return preprocessing in which the numbers go through these steps."""
    return ColumnTransformer(
        [
            ("text", one_hot(), ["city"]),
            ("numbers", make_pipeline(*steps), NUMBERS),
            ("rest", "passthrough", ["heat"]),
        ]
    )


def categories_as(*steps: Any) -> ColumnTransformer:
    """Return preprocessing in which the categories go through these steps."""
    return ColumnTransformer(
        [
            ("categories", make_pipeline(*steps), CATEGORIES),
            ("number", StandardScaler(), ["heat"]),
        ]
    )


def grades_as(*steps: Any) -> ColumnTransformer:
    """Return preprocessing in which the grades go through these steps."""
    return ColumnTransformer(
        [
            ("number", StandardScaler(), ["heat"]),
            ("grades", make_pipeline(*steps), ["grade"]),
        ]
    )


TABLE, NEW = make_table(1), make_strange(make_table(2))
LABELS = make_labels(TABLE)
EVERYTHING = ColumnTransformer(
    [
        (
            "numbers",
            make_pipeline(fill("median", add_indicator=True), StandardScaler()),
            NUMBERS,
        ),
        ("text", one_hot("infrequent_if_exist", min_frequency=12), CATEGORIES),
        ("grades", make_pipeline(ordinal(), fill(), MinMaxScaler()), ["grade"]),
        ("rest", "passthrough", ["heat"]),
    ]
)
# Preprocessing that takes whatever NEW holds.
LENIENT: dict[str, Any] = {
    "everything": EVERYTHING,
    "standard": numbers_as(fill(), StandardScaler()),
    "no mean": numbers_as(fill("median"), StandardScaler(with_mean=False)),
    "no deviation": numbers_as(fill(), StandardScaler(with_std=False)),
    "range": numbers_as(
        fill("constant", fill_value=5.0), MinMaxScaler(feature_range=(-1.0, 3.0))
    ),
    "size": numbers_as(fill("most_frequent", add_indicator=True), MaxAbsScaler()),
    "filled last": numbers_as(StandardScaler(), fill(add_indicator=True)),
    "constant last": numbers_as(MinMaxScaler(), fill("constant", fill_value=0.5)),
    "quantiles": numbers_as(fill(), RobustScaler(quantile_range=(10.0, 80.0))),
    "unit variance": numbers_as(RobustScaler(unit_variance=True), fill("median")),
    "ignored": categories_as(one_hot()),
    "first dropped": categories_as(one_hot(drop="first")),
    "binary dropped": categories_as(one_hot(drop="if_binary")),
    "rare": categories_as(one_hot("infrequent_if_exist", min_frequency=0.12)),
    "few": categories_as(one_hot("infrequent_if_exist", max_categories=2)),
    "rare and dropped": categories_as(
        one_hot("infrequent_if_exist", min_frequency=20, drop="first")
    ),
    "all rare": categories_as(one_hot("infrequent_if_exist", min_frequency=10**6)),
    "scaled flags": categories_as(one_hot(sparse_output=False), StandardScaler()),
    "flags by quantiles": categories_as(one_hot(sparse_output=False), RobustScaler()),
    "frequent": categories_as(fill("most_frequent"), one_hot()),
    "declared": categories_as(
        one_hot(categories=[[*CITIES[:5], "Wien", np.nan], [1, 2, 3, 30], [0, 1]])
    ),
    "grades": grades_as(ordinal(), fill(add_indicator=True), StandardScaler()),
    "unknown is missing": grades_as(ordinal(np.nan), fill("median")),
}
# Preprocessing that refuses what it does not know.
STRICT: dict[str, Any] = {
    "refused": categories_as(one_hot("error")),
    "refused and rare": categories_as(one_hot("error", min_frequency=12)),
    "terms": ColumnTransformer(
        [
            ("terms", TfidfTransformer(norm=None), ["age", "smokes"]),
            ("number", StandardScaler(), ["heat"]),
        ]
    ),
    "refused grade": grades_as(OrdinalEncoder(categories=[[*GRADES, np.nan]]), fill()),
}


def rows_for(name: str) -> pd.DataFrame:
    """Return rows that the preprocessing of this name takes."""
    return make_table(2) if name in STRICT else NEW
