# SPDX-License-Identifier: Apache-2.0
"""Estimators from and to files: load a saved model, ship a release, read one back."""

from os import PathLike
from typing import Any

from . import linear_model, tuning
from .core.arrays import write_lock
from .files import CorruptFiles, export, read_snapshot
from .files.export import SHIP_AGAIN
from .linear_model.base import Forgetful, require_known, snapshot_of
from .linear_model.fitting import estimator_of
from .private_model.snapshot import PublicModel, Snapshot

# Imported for their names, by which files know the estimators.
ESTIMATORS = (*linear_model.__all__, *tuning.__all__)


def load(path: str | PathLike[str]) -> Any:
    """Return the model that was saved in a folder.

    With the private files it goes on where it was: the same predictions, the same
    removals, the same account of releases. With the release alone it predicts, and
    ``forget`` raises NoPrivateState. Raises CorruptFiles if anything was altered.

    Parameters
    ----------
    path
        The folder.
    """
    return _make(read_snapshot(path))


def make_estimator(public: PublicModel) -> Any:
    """Return an estimator that carries a release alone."""
    return _make(Snapshot(public))


def _make(snapshot: Snapshot) -> Any:
    """Return the estimator of a snapshot that was read."""
    try:
        return estimator_of(snapshot)
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptFiles(f"the file holds no model; {SHIP_AGAIN}") from error


def ship(model: Forgetful, path: str | PathLike[str]) -> None:
    """Write the release of a fitted model into one file, by its suffix.

    What is there already is replaced as a whole or, if anything fails, stays as it was.
    A new file is for its owner alone; one that is replaced keeps its mode.

    Parameters
    ----------
    model
        A fitted estimator; a copy that carries the release alone will do.
    path
        Ends in .safetensors or .onnx; its folder must be there.
    """
    require_known(model)
    with write_lock(model):
        export.ship(snapshot_of(model).public, path)


def read_shipped(path: str | PathLike[str]) -> Any:
    """Return the model in a shipped .safetensors file, with its release alone.

    It predicts, has its certificate, and ``forget`` raises NoPrivateState. Raises
    CorruptFiles if a byte was altered.

    Parameters
    ----------
    path
        The file. One that ends in .onnx is for an ONNX runtime.
    """
    return make_estimator(export.read_shipped(path))
