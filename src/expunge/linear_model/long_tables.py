# SPDX-License-Identifier: Apache-2.0
"""Fits of estimators to long tables: what differs from rows in memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.losses import Loss
from ..exceptions import InvalidInput, Unsupported
from ..long.raw_columns import RawColumns
from ..long.stored_rows import TargetCoding
from ..long.table import LongTable
from ..preprocessing.columns import Recipe
from ..preprocessing.description import read_automatic
from ..preprocessing.hashed import read_input_map
from ..preprocessing.mapped import split_encoder
from ..preprocessing.sklearn_steps import describe
from ..private_model.labels import Labels
from .parameters import require_parameters
from .rows import Prepared

# What an estimator fitted to a long table cannot have, and why not.
REFUSED: Mapping[str, str] = {
    "class_weight": "give a column of weights: weight=... when you open the table",
}

MAPS_REFUSED = (
    "a map of rows is not for long tables: fit it to rows in memory, or encode the "
    "columns of the table before it is opened"
)


def prepare_table(
    estimator: Any, table: LongTable, *, given: Mapping[str, Any]
) -> Prepared:
    """Learn features and labels of a table; return its rows with their objective.

    ``given`` is what else ``fit`` was called with: a table brings all of it.
    """
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"a long table has its own labels, owners and weights; leave {name} "
                "out, and name their columns when you open the table"
            )
    require_parameters(estimator.get_params(deep=False))
    for name, advice in REFUSED.items():
        if getattr(estimator, name) is not None:
            raise Unsupported(f"{name} is not for long tables: {advice}")
    if not getattr(estimator, "keep_data", True):
        raise InvalidInput(
            "keep_data=False; a model of a long table holds no rows in memory anyway, "
            "and reads those of a person to forget them: leave keep_data out"
        )
    estimator.n_features_in_ = len(table.names)
    estimator.feature_names_in_ = np.array(table.names, dtype=object)
    loss, labels = _learn_labels(estimator, table)
    objective = estimator._objective(loss, table.total_weight)
    if labels is not None:
        labels.require_minimiser(objective)
    code = TargetCoding(loss, None if labels is None else labels.coding)
    recipe, encode = _learn_recipe(estimator, table)
    return Prepared(
        objective,
        table.rows(objective, code=code, encode=encode),
        labels,
        weighted=table.weighted,
        recipe=recipe,
        table=(table, code),
        encode=encode,
    )


def _learn_recipe(
    estimator: Any, table: LongTable
) -> tuple[Recipe | None, RawColumns | None]:
    """Return what preprocessing does with raw columns, and what reads them for it."""
    if estimator.preprocessing is None:
        return None, None
    if (
        read_input_map(estimator.preprocessing) is not None
        or split_encoder(estimator.preprocessing)[1] is not None
    ):
        raise Unsupported(MAPS_REFUSED)
    if read_automatic(estimator.preprocessing) is not None:
        raise Unsupported(
            "preprocessing='auto' is not for long tables: it looks at all values of a "
            "column; say what to do with the columns by a ColumnTransformer"
        )
    if table.header is None:
        raise InvalidInput(
            "preprocessing takes raw columns; open the table with raw=True"
        )
    described = describe(estimator.preprocessing, table.header)
    if described.made or described.looks:
        raise Unsupported(MAPS_REFUSED)
    return table.learn_recipe(described)


def _learn_labels(estimator: Any, table: LongTable) -> tuple[Loss, Labels | None]:
    """Return the loss for a table's targets, and the classes of a classifier."""
    counted = table.count_targets()
    if counted is None:  # numbers, more of them than classes could be
        loss, labels = estimator._learn_labels(np.array([0.5, 1.5]), None)
        return loss, labels
    targets = np.array(list(counted))
    loss, labels = estimator._learn_labels(targets, None)
    if labels is None:
        return loss, None
    places = labels.positions(targets)
    n_rows, n_weighted = np.zeros((2, len(labels.classes)), dtype=np.intp)
    n_rows[places] = [n for n, _ in counted.values()]
    n_weighted[places] = [n for _, n in counted.values()]
    return loss, replace(labels, n_rows=n_rows, n_weighted=n_weighted)
