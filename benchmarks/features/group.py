# SPDX-License-Identifier: Apache-2.0
"""Group: what a certified head promises on top of an extractor that stays.

The pair of both is that of ``expunge.promise.group``: the extractor's for the m rows
that left, and the head's. An extractor that never saw the data costs nothing.
"""

from dataclasses import dataclass

from scipy.special import expit

from expunge.promise.group import Spent

# At better than 99 right guesses in 100, a promise is one in name alone.
NOMINAL = 0.99


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
