# SPDX-License-Identifier: Apache-2.0
r"""Units of targets: noise and radii are counted in standard deviations of the targets.

Half the squared error with a quadratic penalty does not care in which unit targets are
given: with m the means and s the standard deviations of the targets, theta minimises
for y exactly if (theta - m e) / s does for (y - m) / s, e the intercept's place. So one
sigma serves prices and percentages alike if it is a share of s: rounding and noise are
those of (theta - m e) / s, and what is published is s times that plus m e. Retraining
has the same minimiser whatever s is, and sums and answers stay in the units given
(docs/radii.md, "Units of targets").

m and s are exact functions of the targets of the rows that are in the model: a fit
to these rows finds the same, to the last bit. They are public. Targets that are all
equal count as if they had a deviation of one.
"""

from dataclasses import dataclass

import numpy as np

from ..core.arrays import UNIT_ROUNDOFF, Vector, norm
from ..core.exact_sums import ColumnSums, find_deviation, find_mean
from ..core.losses import HalfSquared
from ..core.objective import Objective
from ..core.penalties import L2
from ..core.rows import Rows, RowSource
from ..core.values import Private, stored
from .training_rows import RowChange


def has_free_units(objective: Objective) -> bool:
    """Return whether the minimiser follows targets into any other unit."""
    loss, penalty = type(objective.loss), type(objective.penalty)
    return loss is HalfSquared and penalty is L2


def sum_targets(rows: Rows) -> ColumnSums:
    """Return the exact sums of the targets of some rows, and of their squares."""
    weight = None if (rows.weight == 1.0).all() else rows.weight
    return ColumnSums.of(rows.y.reshape(len(rows.y), -1), weight, highest=2)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TargetUnits(Private):
    """Means and standard deviations of the targets of the rows in a model.

    Attributes
    ----------
    sums
        What they follow from.
    mean, deviation
        Of each target, rounded once.
    """

    sums: ColumnSums
    mean: Vector
    deviation: Vector

    @classmethod
    def of(cls, rows: RowSource) -> "TargetUnits":
        """Return the units of the targets of these rows."""
        first, *others = rows.map_present(sum_targets)
        for other in others:
            first = first.add(other)
        return cls.from_sums(first)

    @classmethod
    def from_sums(cls, sums: ColumnSums) -> "TargetUnits":
        """Return the units of targets with these sums."""
        columns = list(zip(*sums.powers, strict=True))
        mean = [find_mean(*column[:2]) for column in columns]
        # An exact test: what varies at all has a deviation of its own.
        deviation = [find_deviation(column) or 1.0 for column in columns]
        return cls(sums, np.array(mean), np.array(deviation))

    def after(self, change: RowChange) -> "TargetUnits":
        """Return the units after a request."""
        sums = self.sums
        if change.added is not None and len(change.added):
            sums = sums.add(sum_targets(change.added))
        if change.removed is not None and len(change.removed):
            gone = sum_targets(change.removed)
            if gone.total >= sums.total:
                return self  # nobody is left, and the request is refused for that
            sums = sums.subtract(gone)
        return TargetUnits.from_sums(sums)

    @property
    def unit(self) -> float:
        """A length of parameters that is at most one when they are scaled.

        The smallest deviation, less a little: for what rounding does to parameters of
        a model that is not farther away than the budget allows.
        """
        return float(self.deviation.min()) * (1.0 - 2.0**-50)

    def scale(self, theta: Vector, *, intercept: bool) -> Vector:
        """Return parameters of targets of mean zero and deviation one."""
        columns = theta.reshape(-1, len(self.deviation)).copy()
        if intercept:
            columns[-1] -= self.mean
        return (columns / self.deviation).ravel()

    def restore(self, theta: Vector, *, intercept: bool) -> Vector:
        """Return such parameters as those of targets as they were given."""
        columns = theta.reshape(-1, len(self.deviation)) * self.deviation
        if intercept:
            columns[-1] += self.mean
        return columns.ravel()

    def scale_targets(self, rows: Rows) -> Rows:
        """Return rows with targets in these units, rounded."""
        return rows.recode(lambda y: (y - self.mean) / self.deviation)

    def rounding(self, theta: Vector, *, within: float = 0.0) -> float:
        """Return by how much ``scale`` may move two models apart, in given units.

        A difference and a quotient of each parameter are rounded, in both worlds. For
        any model that is so near.
        """
        size = norm(theta) + within + norm(self.mean)
        return 4.1 * UNIT_ROUNDOFF * size
