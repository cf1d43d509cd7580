# SPDX-License-Identifier: Apache-2.0
r"""Balanced classes: weights that follow from how much weight each class has left.

scikit-learn's class_weight="balanced" weighs every row of class c by

    w_c = n / (k n_c),    n the weight of all rows, n_c that of the class, k classes.

All of them change when one row leaves or comes. The loss of the rows is sum_c w_c L_c
with L_c the sum over class c alone, so sums kept for each class give, by k numbers, the
gradient, the Hessian and the moment under the present weights (docs/radii.md,
"Balanced classes"). The total weight stays n. The class that shrinks gains weight, and
so does every other class when one grows: their sums are multiplied, with the sizes that
bound their rounding.

The n_c are exact sums, so that the weights are those that counting the remaining rows
gives, to the last bit.

``Balanced`` puts these weights around any other encoding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..core.arrays import Index, Vector
from ..core.exact_sums import STRANGERS, UNIT, exact_sums
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import Private, stored
from ..exceptions import UnknownRows
from ..private_model.answers import Answer, FitTerms
from ..private_model.composition import EncodedRequest, Encoding, PublicEncoding
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from ..removal import State
from ..removal.sums import Sums, sum_rows
from .learned import replace_rows, without_gaps


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


def sum_classes(
    loss: Loss, rows: Rows, *, theta: Vector, n_classes: int
) -> tuple[Sums, ...]:
    """Return the sums over each class, of rows without the weights of their classes."""
    codes = codes_of(rows.y)
    return tuple(
        sum_rows(loss, rows.take(codes == code), theta=theta).keeping(
            hessian=True, moment=True
        )
        for code in range(n_classes)
    )


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClassSums(Private):
    """The sums over each class, and the weights of the classes at the anchor."""

    parts: tuple[Sums, ...]
    then: Balance

    def follows(self, now: Balance) -> bool:
        """Whether every class that has weight now had some at the anchor."""
        pairs = zip(self.then.totals, now.totals, strict=True)
        return all(then or not own for then, own in pairs)

    def after(self, change: RowChange) -> "ClassSums":
        """Return the sums after a request, its rows with their own weights alone."""
        parts = list(self.parts)
        for rows, leaving in ((change.added, False), (change.removed, True)):
            if rows is None or not len(rows):
                continue
            codes = codes_of(rows.y)
            for code in np.unique(codes).tolist():
                own = parts[code].over(rows.take(codes == code), leaving=leaving)
                parts[code] = parts[code] - own if leaving else parts[code] + own
        return replace(self, parts=tuple(parts))

    def combine(self, now: Balance) -> Sums:
        """Return the sums over all rows, under the present weights of the classes."""
        weighed: list[Sums] = [
            factor * part
            for factor, part in zip(now.factors().tolist(), self.parts, strict=True)
            if factor
        ]
        total = weighed[0]
        for part in weighed[1:]:
            total = total + part
        # Rows of a class without weight are rows all the same.
        n_rows = sum(part.n_rows for part in self.parts)
        whole: Sums = total.replace(weight=now.total, n_rows=n_rows)
        return whole


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Balanced(Encoding):
    """Another encoding, its rows weighed so that classes are balanced. Private.

    Attributes
    ----------
    inner, balance
        The encoding, and the present weights of the classes.
    sums
        The sums over each class at the anchor; None before, and for a mechanism
        without matrices.
    """

    inner: Encoding
    balance: Balance
    sums: ClassSums | None = None

    @classmethod
    def of(cls, inner: Encoding, rows: RowSource, *, loss: Loss) -> Self:
        """Return these rows' encoding with the weights of their classes."""
        return cls(inner, Balance.of(_in_memory(rows), max(2, loss.outputs)))

    @property
    def raw(self) -> bool:
        """Whether rows are kept as something else than what the head sees."""
        return self.inner.raw

    @property
    def input_map(self) -> Any:
        """What makes rows of inputs that are no numbers, for the inner encoding."""
        return self.inner.input_map

    def with_input_map(self, made_by: Any) -> Self:
        """Return the same weights of classes for inputs that this map makes rows of."""
        return replace(self, inner=self.inner.with_input_map(made_by))

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return checked features and labels as the inner encoding keeps them."""
        return self.inner.keep(X, y, weight, objective=objective)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same encoding, fitted to these rows alone."""
        inner = self.inner.fit_again(rows, objective)
        return self.of(inner, rows, loss=objective.loss)

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the head sees them, with their present weights."""
        weighed = self.balance.weigh(_in_memory(rows))
        return self.inner.encode(weighed, objective)

    def summed(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the sums take them."""
        return self.inner.summed(self.balance.weigh(_in_memory(rows)), objective)

    def extend(self, theta: Vector, objective: Objective) -> Vector:
        """Return parameters of what the head sees as those of what is summed."""
        return self.inner.extend(theta, objective)

    def anchored(self, objective: Objective) -> Self:
        """Return the encoding with its present features as those at the anchor."""
        return replace(self, inner=self.inner.anchored(objective), sums=None)

    @property
    def plain(self) -> bool:
        """False: there are sums over each class besides."""
        return False

    def anchor(
        self, terms: FitTerms, answer: Answer, *, rows: RowSource
    ) -> tuple[Self, Answer]:
        """Return the encoding and an answer just solved, with sums over each class."""
        # Not by super(): a dataclass with slots is another class than this one.
        encoding, answer = Encoding.anchor(self, terms, answer, rows=rows)
        if not terms.mechanism.keeps_matrices:
            return encoding, answer
        parts = sum_classes(
            terms.objective.loss,
            in_memory(encoding.inner.summed(_in_memory(rows), terms.objective)),
            theta=answer.state.anchor,
            n_classes=len(self.balance.totals),
        )
        return replace(encoding, sums=ClassSums(parts, self.balance)), answer

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of kept rows leads to."""
        balance = self.balance.after(change)
        inner = self.inner.after(change, objective, rows=rows)
        after = replace(self, inner=inner.encoding, balance=balance)
        if self.sums is None or inner.change is None or not self.sums.follows(balance):
            return EncodedRequest(after, None)
        seen = replace_rows(inner.change, self.sums.then.weigh)
        sums = self.sums.after(inner.change)

        def lift(state: State) -> State | None:
            present = state.replace(sums=sums.combine(balance))
            return present if inner.lift is None else inner.lift(present)

        after = replace(after, sums=sums)
        return EncodedRequest(after, seen, lift, keeps_sums=False)

    def carry(self, theta: Vector, before: Encoding, *, outputs: int) -> Vector:
        """Return parameters under the encoding before as a start under this one."""
        inner = before.unweighted
        return self.inner.carry(theta, inner, outputs=outputs)

    @property
    def learned(self) -> Encoding | None:
        """The part of the inner encoding that learns from rows."""
        return self.inner.learned

    def with_learned(self, learned: Encoding) -> Self:
        """Return the same weights of classes after another inner encoding."""
        return replace(self, inner=self.inner.with_learned(learned))

    @property
    def unweighted(self) -> Encoding:
        """The encoding without weights of classes."""
        return self.inner.unweighted

    @property
    def public(self) -> PublicEncoding | None:
        """What predictions need: weights are for the fit alone."""
        return self.inner.public

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state of the inner encoding."""
        return self.inner.state_in(scope)


def _in_memory(rows: RowSource) -> Rows:
    """Return rows in memory with nothing absent, or refuse others."""
    return in_memory(without_gaps(rows), "class_weight='balanced'")
