# SPDX-License-Identifier: Apache-2.0
"""Roster: who was in the training data, by keyed digest, so that nobody else leaves.

Removing a row that was never there would steer the model, so every row that is handed
over for removal must be on the roster. An entry is 16 bytes of keyed BLAKE2b over the
row's numbers, label and weight; without the key it tells nothing, and it is deleted
when the row goes. Equal rows are counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ._typing import Matrix
from .exceptions import UnknownRows
from .private import Private
from .rows import Rows

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Roster(Private):
    """Digests of the rows that are in the model, each as often as it is there."""

    key: bytes
    digests: Counter[bytes]

    @classmethod
    def of(cls, rows: Rows, key: bytes) -> "Roster":
        """Return the roster of these rows under a secret key."""
        return cls(key, Counter(digests(rows, key)))

    def without(self, rows: Rows) -> "Roster":
        """Return the roster without these rows, or raise UnknownRows.

        All or nothing: one row that is not there refuses the whole request.
        """
        gone = Counter(digests(rows, self.key))
        missing = sum((gone - self.digests).values())
        if missing:
            raise UnknownRows(
                f"{missing} of {len(rows)} row(s) are not in the training data, or no "
                "longer: hand over rows exactly as they were fitted, values, labels "
                "and weights; nothing was removed"
            )
        return Roster(self.key, self.digests - gone)


def digests(rows: Rows, key: bytes) -> Iterable[bytes]:
    """Yield the keyed digest of each row: numbers, label and weight."""
    for block in rows.blocks(1024):
        X = block.dense() + 0.0  # -0.0 and 0.0 are the same number
        for x, y, weight in zip(X, _labels(block), block.weight, strict=True):
            parts = (x.tobytes(), y.tobytes(), np.float64(weight).tobytes())
            yield blake2b(b"".join(parts), key=key, digest_size=DIGEST_BYTES).digest()


def _labels(rows: Rows) -> Matrix:
    """Return labels as one row of numbers for each row."""
    return np.ascontiguousarray(rows.y.reshape(len(rows), -1) + 0.0)
