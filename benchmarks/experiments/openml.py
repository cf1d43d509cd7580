# SPDX-License-Identifier: Apache-2.0
"""Data from OpenML, through scikit-learn, where there are no files.

Each function takes the error about the missing file, and raises it again with the
error of the download if OpenML cannot be reached either.
"""

from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml

from ..data import DataNotFound, Dataset, encode_adult

MNIST_TRAIN = 60_000
# OpenML lists Adult's test people first.
ADULT_TEST = 16_281


def fetch(name: str, version: int, missing: DataNotFound) -> Any:
    """Return a table of OpenML as a frame, or raise naming both ways."""
    try:
        return fetch_openml(name, version=version, as_frame=True).frame
    except OSError as error:
        raise DataNotFound(
            f"{missing}; OpenML's {name} could not be fetched instead ({error})"
        ) from None


def mnist(missing: DataNotFound) -> tuple[Dataset, Dataset]:
    """Return digits 3 and 8 for training and test, of unit norm; 8 is +1."""
    frame = fetch("mnist_784", 1, missing)
    labels = frame["class"].astype(int).to_numpy()
    X = frame.drop(columns="class").to_numpy(dtype=np.float64)
    parts = []
    for part in (slice(None, MNIST_TRAIN), slice(MNIST_TRAIN, None)):
        chosen = np.isin(labels[part], (3, 8))
        rows = X[part][chosen]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        signs = np.where(labels[part][chosen] == 8, 1.0, -1.0)
        parts.append(Dataset(rows, signs))
    return parts[0], parts[1]


def adult(missing: DataNotFound) -> tuple[Dataset, Dataset]:
    """Return Adult's training and test people, encoded."""
    frame = fetch("adult", 2, missing)
    frame.columns = range(frame.shape[1])
    test, train = frame.iloc[:ADULT_TEST], frame.iloc[ADULT_TEST:]
    return encode_adult(train, test)
