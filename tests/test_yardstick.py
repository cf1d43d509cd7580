# SPDX-License-Identifier: Apache-2.0
"""The yardstick: gradient boosting on the same held-out rows, for operators alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from expunge import LogisticRegression, advise
from expunge.linear_model.yardstick import boosted_score

N = 300
TRAIN, TEST = np.arange(200), np.arange(200, N)


def make_table() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "word": rng.choice(["a", "b", "c"], N),
            "number": rng.normal(size=N),
            "day": pd.date_range("2020-01-01", periods=N),
        }
    )
    table.loc[::9, "word"] = None
    table.loc[::7, "number"] = np.nan
    y = (table["word"] == "a") ^ (table["number"] > 0.3)  # no sum of both
    return table, y.to_numpy()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrays"])
def test_it_bends_and_lets_columns_interact(kind: str) -> None:
    table, y = make_table()
    rows: Any = table
    if kind == "polars":
        rows = pytest.importorskip("polars").from_pandas(table.astype(object).head(N))
    elif kind == "arrays":
        rows = np.column_stack([table["word"] == "a", table["number"]])
    found = boosted_score(rows, y, train=TRAIN, test=TEST, classify=True)
    assert found is not None and found > 0.9
    amounts = np.where(y, 1.0, -1.0) + table["number"].fillna(0.0).to_numpy()
    found = boosted_score(rows, amounts, train=TRAIN, test=TEST, classify=False)
    assert found is not None and 0.5 < found < 1.0


def test_what_it_does_not_take() -> None:
    table, y = make_table()
    both = np.column_stack([y, y])
    options: dict[str, Any] = {"train": TRAIN, "test": TEST, "classify": True}
    assert boosted_score(sparse.csr_array(np.eye(N)), y, **options) is None
    assert boosted_score(table, both, **options) is None
    assert boosted_score(["a text"] * N, y, **options) is None


def test_advice_says_how_far_the_model_is_from_it() -> None:
    table, y = make_table()
    model = LogisticRegression(preprocessing="auto")
    advice = advise(table, y, model, requests=5)
    assert advice.boosted is not None and advice.boosted > advice.noise_free + 0.1
    assert any("Gradient boosting" in text for text in advice.sentences)
