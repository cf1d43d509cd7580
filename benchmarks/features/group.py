# SPDX-License-Identifier: Apache-2.0
r"""Group: what a certified head promises on top of an extractor that stays.

Compared are two worlds. In ours the m rows are forgotten by the head alone: the
extractor, trained on all rows, is not retrained. In the other both are trained
without them. For any one extractor the head's certificate says how close its two
releases are; how close the two extractors are is group privacy of the extractor
(Vadhan, "The Complexity of Differential Privacy", 2017, lemma 2.2),

    (m epsilon, m e^((m-1) epsilon) delta),

and the pair of extractor and head costs the sum (basic composition, adaptive). An
extractor that never saw the data is the same in both worlds and costs nothing.
"""

from dataclasses import dataclass
from math import exp, isfinite, log

from scipy.special import expit

# At better than 99 right guesses in 100, a promise is one in name alone.
NOMINAL = 0.99


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
        if n_rows == 0 or self.delta == 0.0:
            return Spent(n_rows * self.epsilon, 0.0)
        # Through logarithms: the exponential overflows at a few thousand rows.
        exponent = log(n_rows) + (n_rows - 1) * self.epsilon + log(self.delta)
        return Spent(n_rows * self.epsilon, exp(min(0.0, exponent)))

    def and_then(self, other: "Spent") -> "Spent":
        """Return the pair of two steps, the second free to look at the first."""
        delta = min(1.0, self.delta + other.delta)
        return Spent(self.epsilon + other.epsilon, delta)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What holds for extractor and head together after a removal.

    Attributes
    ----------
    n_removed
        Rows removed, not persons: one with five rows counts five times.
    head
        What the head's certificate promises, for any fixed extractor.
    extractor
        What the extractor promises one row; None if it never saw the data.
    """

    n_removed: int
    head: Spent
    extractor: Spent | None

    @property
    def total(self) -> Spent:
        """The sum: the head's pair and the extractor's for the group."""
        if self.extractor is None:
            return self.head
        return self.head.and_then(self.extractor.of_group(self.n_removed))

    @property
    def right_guesses(self) -> float:
        """Largest share of right guesses at which of the two worlds is ours.

        (e^epsilon + delta)/(1 + e^epsilon), for anyone who sees extractor and release
        and holds both worlds for equally likely (Kairouz et al., ICML 2015).
        """
        total = self.total
        return float(expit(total.epsilon) + total.delta * expit(-total.epsilon))

    @property
    def vacuous(self) -> bool:
        """Whether the pair promises next to nothing."""
        return self.right_guesses > NOMINAL

    @property
    def sentence(self) -> str:
        """What is covered and what is not, in plain words."""
        return " ".join((self._promise(), self._strength(), self._limits()))

    def _promise(self) -> str:
        """Return whom the comparison is with, and its price."""
        rows = "1 row" if self.n_removed == 1 else f"{self.n_removed} rows"
        price = f"epsilon {self.total.epsilon:.3g}, delta {self.total.delta:.2g}"
        if self.extractor is None:
            return (
                f"The head forgot {rows} and the extractor never saw the data, so the "
                f"head's certificate covers the whole model: {price}."
            )
        share = self.extractor.of_group(self.n_removed)
        return (
            f"The head forgot {rows}, the extractor was not retrained; compared with "
            f"retraining both without them the pair costs {price}, of which the "
            f"extractor takes epsilon {share.epsilon:.3g}, delta {share.delta:.2g}."
        )

    def _strength(self) -> str:
        """Return how much the price leaves of the promise."""
        share = f"{100.0 * self.right_guesses:.4g} %"
        if not self.vacuous:
            return f"Telling the two worlds apart succeeds at most {share} of the time."
        cure = "give the head a smaller epsilon"
        if self.extractor is not None:
            cure = "retrain the extractor, or use one that never saw the data"
        return (
            "This promises next to nothing: telling the two worlds apart may succeed "
            f"{share} of the time; {cure}."
        )

    def _limits(self) -> str:
        """Return what no epsilon here speaks of."""
        if self.extractor is None:
            return "Not covered: stored images and features, and the choice of the map."
        return (
            "Not covered: stored images and features, and the extractor's settings if "
            "they were chosen by looking at the data; its epsilon supposes ideal noise "
            "from a secret source, and a sampling rate and number of steps that do not "
            "change with the rows."
        )


def coverage(head: Spent, extractor: Spent | None, n_removed: int) -> Coverage:
    """Return what a head's certificate covers on top of this extractor.

    Parameters
    ----------
    head
        Epsilon and delta of a certified release.
    extractor
        What training it cost one row; None if it never saw the data.
    n_removed
        Rows removed, zero or more.
    """
    if n_removed < 0:
        raise ValueError(f"n_removed={n_removed}; it must be zero or positive")
    return Coverage(n_removed, head, extractor)


def largest_group(extractor: Spent, *, right_guesses: float = NOMINAL) -> int:
    """Return how many rows may leave before the extractor alone is that revealing."""
    nothing, n_removed = Spent(0.0, 0.0), 0
    if extractor == nothing:
        raise ValueError("the extractor spends nothing; a group of any size may leave")
    while Coverage(n_removed + 1, nothing, extractor).right_guesses <= right_guesses:
        n_removed += 1
    return n_removed
