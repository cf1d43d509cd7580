# SPDX-License-Identifier: Apache-2.0
"""A yardstick: what gradient boosting makes of the same rows.

scikit-learn's ``HistGradientBoosting`` bends, and lets columns interact, without being
told to. It cannot forget; it is fitted to some rows, scored on others and thrown away,
so that an operator knows what a linear model leaves.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from ..core.arrays import Index, Matrix
from ..preprocessing.columns import (
    as_table,
    find_categories,
    take_column,
    take_part,
    to_numbers,
)

# More rows than this make it no better, and categories beyond this it does not take.
MOST_ROWS, MOST_CATEGORIES = 50_000, 255
SEED = 0


def boosted_score(
    X: Any, y: NDArray[Any], *, train: Index, test: Index, classify: bool
) -> float | None:
    """Return accuracy or R2 of gradient boosting; None for what it does not take.

    Parameters
    ----------
    X, y
        All rows, as an estimator takes them.
    train, test
        The rows to fit, and those to score.
    classify
        Whether y holds classes.
    """
    if sparse.issparse(X) or y.ndim != 1 or not hasattr(X, "shape"):
        return None
    rows, words = _read_rows(X)
    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    model = kind(categorical_features=words, random_state=SEED)
    train = train[:: -(-len(train) // MOST_ROWS)]
    model.fit(rows[train], y[train])
    return float(model.score(rows[test], y[test]))


def _read_rows(X: Any) -> tuple[Matrix, NDArray[np.bool]]:
    """Return a table as numbers, and which columns are codes of categories."""
    table = as_table(X)
    named = not isinstance(table, np.ndarray)
    sources = list(table.columns) if named else range(table.shape[1])
    columns, words = [], []
    for source in sources:
        values = take_column(table, source)
        if values.dtype.kind == "M":
            values = take_part(values, source, part="day")
        categories: list[Any] = []
        try:
            numbers = to_numbers(values, source)
        except ValueError:
            categories, codes = find_categories(values, source)
            missing = None in categories
            last = len(categories) - missing
            numbers = np.where(codes < last, codes, np.nan)
        columns.append(numbers)
        words.append(0 < len(categories) <= MOST_CATEGORIES)
    return np.column_stack(columns), np.array(words)
