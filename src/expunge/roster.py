# SPDX-License-Identifier: Apache-2.0
"""Roster: who is in the model, by keyed digest, so that nobody else leaves it.

Removing a row that was never there would steer the model, so every row that is handed
over for removal must be on the roster. An entry is 16 bytes of keyed BLAKE2b over the
row's numbers, label and weight; without the key it tells nothing, and it is struck
when the row goes. Equal rows are counted.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from .exceptions import UnknownRows
from .private import Private
from .rows import Rows

DIGEST_BYTES = 16


class Roster(Private):
    """Digests of the rows that are in the model, each as often as it is there.

    It changes in place, by ``strike`` alone: a copy for each request would cost more
    than the removal.
    """

    __slots__ = ("counts", "key")

    def __init__(self, counts: Counter[bytes], key: bytes) -> None:
        self.counts = counts
        self.key = key

    @classmethod
    def of(cls, rows: Rows, key: bytes) -> "Roster":
        """Return the roster of these rows under a secret key."""
        return cls(Counter(digests(rows, key)), key)

    def find(self, rows: Rows) -> Counter[bytes]:
        """Return the entries of these rows, or raise UnknownRows. Changes nothing."""
        found = Counter(digests(rows, self.key))
        missing = sum(
            max(0, count - self.counts[digest]) for digest, count in found.items()
        )
        if missing:
            raise UnknownRows(
                f"{missing} of {len(rows)} row(s) are not in the training data, or no "
                "longer: hand over rows exactly as they were fitted, values, labels "
                "and weights; nothing was removed"
            )
        return found

    def strike(self, entries: Counter[bytes]) -> None:
        """Delete entries that ``find`` returned."""
        for digest, count in entries.items():
            self.counts[digest] -= count
            if not self.counts[digest]:
                del self.counts[digest]


def digests(rows: Rows, key: bytes) -> Iterator[bytes]:
    """Yield the keyed digest of each row: numbers, label and weight."""
    for block in rows.blocks(1024):
        labels = block.y.reshape(len(block), -1)
        # Adding zero makes -0.0 and 0.0 the same number.
        table = np.column_stack([block.dense(), labels, block.weight]) + 0.0
        for line in table:
            yield blake2b(line.tobytes(), key=key, digest_size=DIGEST_BYTES).digest()
