# SPDX-License-Identifier: Apache-2.0
"""Cache: features computed once, kept in a folder that the caller names.

A file's name is a hash of all that decides its content: the map and its parameters,
the versions of what it requires, the code of this package that computes it, and the
data. Change one of them and you get another file; no file is ever stale. Features are
as private as the images: the folder deserves the same care.
"""

import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from expunge.core.values import dumps
from expunge.promise.group import Spent

from ..data import Dataset
from . import grey, kinds, svhn
from .kinds import FeatureMap, Features


def load_features(
    folder: Path, feature_map: FeatureMap, data_dir: Path | None = None
) -> Features:
    """Return the features of SVHN's digits, from the folder if they are there.

    Parameters
    ----------
    folder
        Where files are kept; made if need be.
    feature_map
        A frozen dataclass of parameters, called if there is no file yet.
    data_dir
        Where to look for the data.
    """
    path = folder / f"{key(feature_map, svhn.paths(data_dir))}.npz"
    try:
        return _read(path)
    # Absent, or no longer a whole archive: computed afresh either way.
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        features = feature_map(svhn.svhn_3_vs_8(data_dir))
        _write(path, features)
        return features


def key(feature_map: FeatureMap, data: Iterable[Path]) -> str:
    """Return the map's name and the hash of all that decides its features."""
    assert is_dataclass(feature_map)
    kind = type(feature_map)
    code = [sys.modules[kind.__module__], grey, kinds, svhn]
    sources = [Path(module.__file__) for module in code if module.__file__]
    decides = {
        "map": kind.__qualname__,
        "parameters": asdict(feature_map),
        "versions": {name: _version(name) for name in feature_map.requires},
        "code": [_digest(path) for path in sources],
        "data": [_digest(path) for path in data],
    }
    return f"{kind.__name__.lower()}-{sha256(dumps(decides).encode()).hexdigest()[:32]}"


def _version(name: str) -> str:
    """Return the installed version, or that there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> Features:
    """Return the features in a file."""
    # Opened here: NumPy leaves a damaged archive open.
    with path.open("rb") as file, np.load(file) as arrays:
        train = Dataset(arrays["train_X"], arrays["train_y"])
        test = Dataset(arrays["test_X"], arrays["test_y"])
        spent = [float(figure) for figure in arrays["spent"]]
    return Features(train, test, Spent(*spent) if spent else None)


def _write(path: Path, features: Features) -> None:
    """Write a file whole or not at all, whatever interrupts."""
    spent = features.spent
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        np.savez(
            whole,
            train_X=features.train.X,
            train_y=features.train.y,
            test_X=features.test.X,
            test_y=features.test.y,
            spent=np.array([spent.epsilon, spent.delta] if spent else []),
        )
        os.replace(whole, path)
