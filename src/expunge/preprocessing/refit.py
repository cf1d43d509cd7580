# SPDX-License-Identifier: Apache-2.0
"""Refit: the same model under the same contract, on rows that all have changed.

When preprocessing changes, so does every row, and no update of the old sums can follow.
The objective is minimised anew on the remaining rows, from the current model on; the
account goes on, so that the refit is one release like any other removal.
"""

import threading
from copy import copy
from dataclasses import replace
from typing import Any

from ..events import Fitted, Removed
from ..exceptions import ScheduleExhausted
from ..linear_model.base import Forgetful
from ..linear_model.holdings import Holdings
from ..linear_model.kept import Kept
from ..roster import Roster
from ..rows import Rows
from ..unlearn import Custody, begin
from .steps import Raw


def refitted(model: Forgetful, left: Raw, n_subjects: int) -> Any:
    """Return a copy of the model, fitted to what is left, and released.

    Its target is that of every removal: the same alpha under "mean" scaling, the same
    alpha W under "sum". The model itself stays as it is.

    Parameters
    ----------
    model
        A fitted estimator.
    left
        The remaining rows, transformed.
    n_subjects
        How many people were removed.
    """
    holdings = model._private_state()
    fresh = copy(model)
    X, y = fresh._validated(left.X, left.y)
    rows = holdings.custody.objective.rows(X, fresh._coded(y), left.weight)
    custody = _begun_again(holdings.custody, rows, n_subjects)
    roster = Roster.of(rows, holdings.roster.key)
    fresh._lock = threading.Lock()
    fresh._publish(Holdings(custody, holdings.noise, roster, Kept(rows, left.owners)))
    return fresh


def _begun_again(old: Custody, rows: Rows, n_subjects: int) -> Custody:
    """Return the custody of a fit to these rows, in the place of the old one."""
    if old.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases are made; fit anew under a new contract"
        )
    objective = old.state.objective.after(rows.total_weight / old.state.anchor_weight)
    size = rows.X.shape[1] * objective.loss.outputs
    start = old.draft.theta if old.draft.theta.size == size else None
    new = begin(objective, rows, old.mechanism, old.budget, start)
    n_removed = old.accountant.n_subjects_removed + n_subjects
    account = old.accountant.compose(Fitted(size)).compose(Removed(n_removed))
    return replace(
        new,
        objective=old.objective,
        decisions=("retrained",),
        n_samples=old.n_samples,
        n_removed=old.n_samples - len(rows),
        accountant=account,
    )
