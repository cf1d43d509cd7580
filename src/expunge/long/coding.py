# SPDX-License-Identifier: Apache-2.0
"""TargetCoding: from the targets in a table to the labels that rows keep of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Vector
from ..core.losses import Loss
from ..private_model.labels import ClassCoding


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TargetCoding:
    """Makes the labels that rows keep of a table's targets; it can be pickled."""

    loss: Loss
    classes: ClassCoding | None

    def __call__(self, y: Any) -> Vector:
        """Return the labels."""
        if self.classes is not None:
            words = np.asarray(y, dtype=str) if y.dtype == object else y
            return self.classes(words)
        return self.loss.labels(np.asarray(y, dtype=np.float64))
