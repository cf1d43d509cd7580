# SPDX-License-Identifier: Apache-2.0
"""Grey: what every map does to an image first, and to its row last.

Each step looks at one image alone. A mean or a scale taken over the data would be
one more thing to unlearn.
"""

import numpy as np
from numpy.typing import NDArray

# Luma of ITU-R BT.601.
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
# Deviations below this, in grey levels, are rounding: the image is flat.
FLAT = 1e-3


def standardise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return grey images, each of mean 0 and deviation 1; a flat one is all 0.

    Parameters
    ----------
    images
        (n, height, width, 3) bytes; the result is (n, height, width).
    """
    grey: NDArray[np.float32] = images.astype(np.float32) @ LUMA
    grey -= grey.mean(axis=(1, 2), keepdims=True)
    deviation = grey.std(axis=(1, 2), keepdims=True)
    grey /= np.where(deviation > FLAT, deviation, np.inf)
    return grey


def unit_rows(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return one row an image, divided by its own 2-norm; a row of 0 stays."""
    rows = features.reshape(len(features), -1).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0.0, norms, 1.0)
    return rows
