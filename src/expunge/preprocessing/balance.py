# SPDX-License-Identifier: Apache-2.0
r"""Balanced classes: weights that follow from how much weight each class has left.

scikit-learn's class_weight="balanced" weighs every row of class c by

    w_c = n / (k n_c),    n the weight of all rows, n_c that of the class, k classes.

All of them change when one row leaves or comes. The loss of the rows is sum_c w_c L_c
with L_c the sum over class c alone, so sums kept for each class give, by k numbers, the
gradient, the Hessian and the moment under the present weights (docs/paper.md,
"Preprocessing"). The total weight stays n. The class that shrinks gains weight, and so
does every other class when one grows: what bounds rounding grows by the largest of
these gains.

The n_c are exact sums, so that the weights are those that counting the remaining rows
gives, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.arrays import Index, Vector
from ..core.blocks import weighted_sum
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import Private, stored
from ..exceptions import UnknownRows
from ..private_model.training_rows import RowChange
from ..removal import State
from ..removal.changes import SignedRows, change_gradient, change_matrices
from ..removal.state import initial_state, keep_sums
from ..removal.summary import Scales, summarise
from .exact_sums import STRANGERS, UNIT, exact_sums


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Balance(Private):
    """The exact weight of each class, in units of 2^-UNIT."""

    totals: tuple[int, ...]

    @classmethod
    def of(cls, rows: Rows, n_classes: int) -> "Balance":
        """Return the weights of these rows by class."""
        codes = codes_of(rows.y)
        return cls(tuple(exact_sums([rows.weight], codes, n_bins=n_classes)))

    def after(self, change: RowChange) -> "Balance":
        """Return the weights after a request."""
        totals = np.array(self.totals, dtype=object)
        for rows, sign in ((change.added, 1), (change.removed, -1)):
            if rows is not None and len(rows):
                own = Balance.of(rows, len(totals)).totals
                totals = totals + sign * np.array(own, dtype=object)
        if min(totals) < 0:
            raise UnknownRows(STRANGERS)
        return Balance(tuple(totals.tolist()))

    @property
    def total(self) -> float:
        """n: the weight of all rows."""
        return sum(self.totals) / (1 << UNIT)

    def factors(self) -> Vector:
        """Return w_c of each class; zero for one without weight."""
        n, k = sum(self.totals), sum(1 for own in self.totals if own)
        return np.array([n / (k * own) if own else 0.0 for own in self.totals])

    def weigh(self, rows: Rows) -> Rows:
        """Return the rows with their present weights."""
        weight = rows.weight * self.factors()[codes_of(rows.y)]
        return replace(rows, weight=weight)


def codes_of(y: Vector) -> Index:
    """Return the class of each row, from codes or from signs."""
    return np.maximum(y, 0.0).astype(np.intp)


def summarise_classes(
    objective: Objective, rows: Rows, *, theta: Vector, weight: float, n_classes: int
) -> tuple[State, ...]:
    """Return the sums over the rows of each class, in units of one common weight.

    Parameters
    ----------
    objective, rows, theta
        As ``summarise`` takes them, the rows without the weights of their classes.
    weight
        Of the anchor.
    n_classes
        How many parts to return: a class may have no weight, or no rows.
    """
    codes = codes_of(rows.y)
    parts: list[State] = []
    absent: list[int] = []
    for code in range(n_classes):
        own = rows.take(codes == code)
        if not own.total_weight > 0.0:
            absent.append(code)
            continue
        summary = summarise(objective, own, theta=theta)
        part = keep_sums(initial_state(summary), summary, moment=True)
        share = own.total_weight / weight
        assert part.hessian is not None and part.moment is not None
        parts.append(
            part.replace(
                gradient=share * part.gradient,
                hessian=weighted_sum([(share, part.hessian)]),
                moment=weighted_sum([(share, part.moment)]),
                kinks=None if part.kinks is None else share * part.kinks,
                anchor_weight=weight,
            )
        )
    # Nothing of such a class counts: its factor is zero, and any part takes its place.
    for code in absent:
        parts.insert(code, parts[0])
    return tuple(parts)


def change_classes(parts: Sequence[State], change: SignedRows) -> tuple[State, ...]:
    """Return the sums of each class after rows leave or come."""
    codes = codes_of(change.rows.y)
    after = list(parts)
    for code in np.unique(codes).tolist():
        own = replace(change, rows=change.rows.take(codes == code))
        part = change_gradient(_with_room(after[code], own), own)
        after[code] = change_matrices(part, own, spend=False)
    return tuple(after)


def _with_room(part: State, change: SignedRows) -> State:
    """Return a class with a row to spare: whether one is left is decided elsewhere."""
    removed = change.rows
    enough = part.n_rows > len(removed) and part.weight > removed.total_weight
    if change.sign > 0 or enough:
        return part
    return part.replace(
        n_rows=part.n_rows + len(removed) + 1,
        weight=part.weight + removed.total_weight + part.anchor_weight,
    )


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClassSums(Private):
    """The sums over each class, and the weights of the classes at the anchor."""

    parts: tuple[State, ...]
    then: Balance

    def follows(self, now: Balance) -> bool:
        """Whether every class that has weight now had some at the anchor."""
        pairs = zip(self.then.totals, now.totals, strict=True)
        return all(then or not own for then, own in pairs)

    def after(self, change: RowChange) -> "ClassSums":
        """Return the sums after a request, its rows with their own weights alone."""
        parts = self.parts
        if change.added is not None and len(change.added):
            parts = change_classes(parts, SignedRows(change.added, 1))
        if change.removed is not None and len(change.removed):
            parts = change_classes(parts, SignedRows(change.removed, -1))
        return replace(self, parts=parts)

    def combine(self, state: State, now: Balance) -> State:
        """Return a state under the present weights of the classes.

        Parameters
        ----------
        state
            Of all rows, as updated with the weights at the anchor; its preconditioner,
            anchor and counts stay.
        now
            The present weights.
        """
        pairs = [
            (factor, part)
            for factor, part in zip(now.factors().tolist(), self.parts, strict=True)
            if factor
        ]
        kinks = None
        if state.kinks is not None:
            kinks = np.asarray(
                sum(f * p.kinks for f, p in pairs if p.kinks is not None)
            )
        return state.replace(
            gradient=np.asarray(sum(f * p.gradient for f, p in pairs)),
            hessian=weighted_sum([(f, p.loss_hessian) for f, p in pairs]),
            moment=weighted_sum(
                [(f, p.moment) for f, p in pairs if p.moment is not None]
            ),
            kinks=kinks,
            weight=now.total,
            scales=_stretch(state.scales, _largest_gain(self.then, now)),
            n_updates=state.n_updates + len(pairs),
            unsolved=None,
        )


def _largest_gain(then: Balance, now: Balance) -> float:
    """Return by how much a row can have gained in weight since the anchor."""
    old, new = then.factors(), now.factors()
    present = (new > 0.0) & (old > 0.0)
    return max(1.0, float((new[present] / old[present]).max(initial=1.0)))


def _stretch(scales: Scales, gain: float) -> Scales:
    """Return the sizes of what is summed, after this gain in weight."""
    return replace(
        scales,
        slope=gain * scales.slope,
        square_norm=gain * scales.square_norm,
        hessian=gain * scales.hessian,
        moment=gain * scales.moment,
        weight=gain * scales.weight,
    )
