# SPDX-License-Identifier: Apache-2.0
r"""Group: what an encoder that was trained privately costs beside a certified head.

Compared are two worlds. In ours the m rows that left are forgotten by the head alone:
the encoder, trained on them too, is not retrained. In the other both are trained
without them. For any one encoder the head's certificate says how close its two releases
are. How close the two encoders are is group privacy of its training (Vadhan, "The
Complexity of Differential Privacy", 2017, lemma 2.2),

    (m epsilon, m e^((m-1) epsilon) delta),

and the pair of encoder and head costs the sum (basic composition, adaptive), by
docs/radii.md. An encoder that never saw the rows is the same in both worlds.
"""

from dataclasses import dataclass
from math import exp, isfinite, log


@dataclass(frozen=True, slots=True)
class Spent:
    """A pair (epsilon, delta), for one row or for a group."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Refuse a pair that is none."""
        if not (isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise ValueError(f"epsilon={self.epsilon}; it must be zero or positive")
        if not 0.0 <= self.delta <= 1.0:
            raise ValueError(f"delta={self.delta}; it must lie between 0 and 1")

    def of_group(self, n_rows: int) -> "Spent":
        """Return the pair for so many rows at once; delta is at most 1."""
        if n_rows < 0:
            raise ValueError(f"n_rows={n_rows}; it must be zero or positive")
        if n_rows == 1:
            return self
        if n_rows == 0 or self.delta == 0.0:
            return Spent(n_rows * self.epsilon, 0.0)
        # Through logarithms: the exponential overflows at a few thousand rows.
        exponent = log(n_rows) + (n_rows - 1) * self.epsilon + log(self.delta)
        return Spent(n_rows * self.epsilon, exp(min(0.0, exponent)))

    def and_then(self, other: "Spent") -> "Spent":
        """Return the pair of two steps, the second free to look at the first."""
        delta = min(1.0, self.delta + other.delta)
        return Spent(self.epsilon + other.epsilon, delta)
