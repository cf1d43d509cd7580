# SPDX-License-Identifier: Apache-2.0
"""The model behind a pipeline, after a request: updated, or fitted to other rows.

When preprocessing changes, so does every row, and no update of the old sums can follow.
The same objective is then minimised on the remaining rows; the account goes on, so that
the refit is one release like any other removal. Neither function changes the model that
it is given: the copy that it returns counts once the pipeline takes it over.
"""

from copy import copy
from dataclasses import replace
from typing import Any

from ..linear_model.base import Forgetful
from ..linear_model.holdings import Holdings, require_release, without_owners
from ..linear_model.kept import Kept
from ..roster import Roster
from ..unlearn import refit
from .steps import Raw


def updated(model: Forgetful, owners: set[str]) -> Any:
    """Return a copy of the model without the rows of these owners, and released."""
    after = without_owners(model._private_state(), owners)
    return _released(model, copy(model), after)


def refitted(model: Forgetful, left: Raw, n_subjects: int) -> Any:
    """Return a copy of the model, fitted to what is left, and released.

    Its target is that of every removal: the same alpha under "mean" scaling, the same
    alpha W as at the first fit under "sum", and the classes that are left.

    Parameters
    ----------
    model
        A fitted estimator.
    left
        The remaining rows, transformed.
    n_subjects
        How many people were removed.
    """
    holdings, fresh = model._private_state(), copy(model)
    require_release(holdings)
    custody = holdings.custody
    X, y = fresh._validated(left.X, left.y)
    labels, objective = holdings.labels, custody.objective
    if labels is not None:
        labels, loss = labels.learnt_again(y, left.weight, objective.loss)
        objective = replace(objective, loss=loss)
        labels.require_minimiser(objective)
    rows = objective.rows(X, fresh._coded(y, labels), left.weight)
    start = custody.draft.theta
    size = rows.X.shape[1] * objective.loss.outputs
    after = replace(
        holdings,
        custody=refit(
            custody,
            objective,
            rows,
            n_subjects=n_subjects,
            start=start if start.size == size else None,
        ),
        roster=Roster.of(rows, holdings.roster.key),
        kept=Kept(rows, left.owners),
        labels=labels,
    )
    return _released(model, fresh, after)


def _released(model: Forgetful, fresh: Forgetful, after: Holdings) -> Forgetful:
    """Give a copy of the model the release of these holdings."""
    fresh._snapshot = model._snapshot.released(after)
    return fresh
