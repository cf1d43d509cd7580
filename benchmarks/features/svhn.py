# SPDX-License-Identifier: Apache-2.0
"""SVHN's digits 3 and 8: colour images of 32 x 32, and labels of -1 and +1.

Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning",
NIPS workshop, 2011. Found as the other data are, never fetched.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data import find

FILES = ("svhn/svhn_3v8_train.npz", "svhn/svhn_3v8_test.npz")
PIXELS = (32, 32, 3)
THREE, EIGHT = 3, 8


class Digits(NamedTuple):
    """Images (n, 32, 32, 3) of bytes and labels (n,), for training and for test."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.float64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.float64]


def paths(data_dir: Path | None = None) -> tuple[Path, Path]:
    """Return the training file and the test file, or raise DataNotFound."""
    train, test = (find(name, data_dir) for name in FILES)
    return train, test


def svhn_3_vs_8(data_dir: Path | None = None) -> Digits:
    """Return the digits 3 and 8 for training and for test; 8 is +1."""
    train, test = paths(data_dir)
    return Digits(*_read(train), *_read(test))


def _read(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return one file's images and signs, or refuse what they are not."""
    with np.load(path) as arrays:
        images, labels = arrays["X"], arrays["y"]
    if images.dtype != np.uint8 or images.shape != (len(labels), *PIXELS):
        raise ValueError(
            f"{path.name}: X is {images.dtype} of shape {images.shape}; it must be "
            f"uint8 of shape {(len(labels), *PIXELS)}, one image a label"
        )
    if not np.isin(labels, (THREE, EIGHT)).all():
        raise ValueError(
            f"{path.name}: y holds {np.unique(labels).tolist()}; keep the digits "
            f"{THREE} and {EIGHT} alone"
        )
    return images, np.where(labels == EIGHT, 1.0, -1.0)
