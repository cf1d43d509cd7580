# SPDX-License-Identifier: Apache-2.0
"""Fixed points of a non-expansive map, by Anderson's extrapolation.

Each step combines the last few images so that the combined change is smallest
(Walker and Ni, SIAM J. Numer. Anal. 49, 2011). An extrapolation that makes the
change larger is dropped for the plain step, which cannot.
"""

from collections.abc import Callable

import numpy as np

from .._typing import Vector
from ..magnitude import decomposition, norm

MEMORY = 20
MAX_STEPS = 5000
CHECK_EVERY = 5
PATIENCE = 300


def anderson(
    advance: Callable[[Vector], Vector],
    start: Vector,
    stop: Callable[[Vector], bool],
) -> Vector:
    """Return a point that ``advance`` leaves (nearly) where it is.

    ``stop`` is asked every few steps; without its consent the iteration ends when
    the change has not shrunk for a while, with the best point seen.
    """
    here = start
    points: list[Vector] = []
    images: list[Vector] = []
    best, safe, least, since = start, start, np.inf, 0
    for n_steps in range(MAX_STEPS):
        if n_steps % CHECK_EVERY == 0 and stop(here):
            return here
        image = advance(here)
        change = norm(image - here)
        since = 0 if change < 0.99 * least else since + 1
        if change < least:
            best, safe, least = here, image, change
        if since >= PATIENCE:
            break
        if change > 2.0 * least:
            # The extrapolation went astray. One plain step from the best point
            # cannot, since the map brings no two points further apart.
            points, images = [], []
            here = safe
            continue
        points, images = [*points, here][-MEMORY:], [*images, image][-MEMORY:]
        here = _extrapolate(points, images)
    return best


def _extrapolate(points: list[Vector], images: list[Vector]) -> Vector:
    """Return the affine combination of images whose change is smallest."""
    if len(images) == 1:
        return images[0]
    image = np.array(images)
    change = image - np.array(points)
    changes = np.diff(change, axis=0)
    with decomposition():
        combination = np.linalg.lstsq(changes.T, change[-1], rcond=1e-12)
    extrapolated: Vector = image[-1] - combination[0] @ np.diff(image, axis=0)
    return extrapolated
