# SPDX-License-Identifier: Apache-2.0
"""A yardstick: what gradient boosting makes of the same rows.

scikit-learn's ``HistGradientBoosting`` bends, and lets columns interact, without being
told to. It cannot forget; it is fitted to some rows, scored on others and thrown away,
so that an operator knows what a linear model leaves.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from ..core.arrays import Index, Matrix, Vector
from ..core.losses import Gamma, HalfSquared, Loss, Pinball
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
# Of its losses the nearest to ours; Poisson's for all others with a log link.
BOOSTED: Mapping[type, str] = MappingProxyType(
    {HalfSquared: "squared_error", Gamma: "gamma", Pinball: "quantile"}
)


class Rate(NamedTuple):
    """How counts, amounts and quantiles are fitted, and rates scored.

    Attributes
    ----------
    loss
        That of the linear model.
    score
        Says D2 of predicted rates on the rows to score.
    """

    loss: Loss
    score: Callable[[Vector], float]


def boosted_score(
    X: Any,
    y: NDArray[Any],
    *,
    train: Index,
    test: Index,
    classify: bool,
    weight: Vector | None = None,
    rate: Rate | None = None,
) -> float | None:
    """Return accuracy, R2 or D2 of gradient boosting; None for what it does not take.

    Parameters
    ----------
    X, y
        All rows, as an estimator takes them.
    train, test
        The rows to fit, and those to score.
    classify
        Whether y holds classes.
    weight
        How often each row counts in a regression; None for once.
    rate
        For D2 in place of R2.
    """
    offsets = rate is not None and rate.loss.has_offsets
    if sparse.issparse(X) or not hasattr(X, "shape") or y.ndim != 1 + offsets:
        return None
    rows, words = _read_rows(X)
    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    settings: dict[str, Any] = {"categorical_features": words, "random_state": SEED}
    each = np.ones(len(y)) if weight is None else weight
    if rate is not None:
        if offsets:  # a rate, as often as its exposure
            each, y = each * y[:, 1], y[:, 0] / y[:, 1]
        settings["loss"] = BOOSTED.get(type(rate.loss), "poisson")
        if isinstance(rate.loss, Pinball):
            settings["quantile"] = rate.loss.quantile
    model = kind(**settings)
    train = train[:: -(-len(train) // MOST_ROWS)]
    model.fit(rows[train], y[train], each[train])
    if rate is not None:
        return rate.score(model.predict(rows[test]))
    return float(model.score(rows[test], y[test], None if classify else each[test]))


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
