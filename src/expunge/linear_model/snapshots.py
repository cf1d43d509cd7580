# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a fitted estimator, for the rest of the package.

Other packages never reach into an estimator: they ask for its public or its private
model here.
"""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..core.arrays import write_lock
from ..exceptions import NoPrivateState
from ..private_model.model import PrivateModel
from ..private_model.snapshot import PublicModel, Snapshot


def snapshot_of(estimator: Any) -> Snapshot:
    """Return a fitted estimator's snapshot, or raise NotFittedError."""
    if "_snapshot" not in vars(estimator):
        check_is_fitted(estimator, "_snapshot")
    snapshot: Snapshot = estimator._snapshot
    return snapshot


def finished_snapshot(estimator: Any) -> Snapshot:
    """Finish all requests, and return a fitted estimator's snapshot."""
    if snapshot_of(estimator).private is not None:
        private_model(estimator)
    return snapshot_of(estimator)


def set_snapshot(estimator: Any, snapshot: Snapshot) -> None:
    """Give an estimator another snapshot."""
    estimator._snapshot = snapshot


def public_model(estimator: Any) -> PublicModel | None:
    """Return the public part of an estimator's model; None if it is not fitted."""
    snapshot: Snapshot | None = getattr(estimator, "_snapshot", None)
    return None if snapshot is None else snapshot.public


def private_model(estimator: Any) -> PrivateModel:
    """Finish all requests and return the private model, or raise NoPrivateState."""
    snapshot = snapshot_of(estimator)
    if snapshot.private is None:
        raise NoPrivateState(
            "this is a pickle or copy, which has only the release; use the fitted "
            "model itself, or save it with save() and load it with expunge.load"
        )
    if snapshot.private.pending is None:
        return snapshot.private
    with write_lock(estimator):
        estimator._snapshot = estimator._snapshot.apply_pending()
    return private_model(estimator)
