# SPDX-License-Identifier: Apache-2.0
"""Labels: which classes a classifier has, and what a request may do to them.

A class set learnt from rows tells who was among them: a label that one person alone had
must go with that person. One policy holds for every classifier:

declared   the classes are part of the contract and stay, rows or no rows. Where a class
           empties and there is no minimiser without it, a request is refused, as a fit
           to the remaining rows would be.
learnt     a class without rows goes. The model is fitted to the remaining rows with
           fewer classes, as retraining would; without rows at hand, or with one class
           left, the request is refused.

Rows keep the codes that their labels had at the fit; ``current`` translates them once
classes have gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Private, Vector
from ..core.losses import Logistic, Loss, Multinomial, OneVsRest
from ..core.objective import Objective, Rows
from ..core.packing import stored
from ..exceptions import EmptyClass, InvalidInput, Unsupported
from ..promise.certificate import Classes


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Labels(Private):
    """The classes of a classifier, with how many rows each has left.

    Attributes
    ----------
    classes
        The labels, sorted.
    declared
        Whether they were declared, or learnt from the rows.
    signed
        Whether rows keep -1 and +1 for the two classes of the fit, or codes 0, 1, ...
    codes
        Under which code rows keep each class.
    n_rows, n_weighted
        Rows left of each class, and how many of them have weight.
    pair
        The loss that serves when there are two classes.
    """

    classes: NDArray[Any]
    declared: bool
    signed: bool
    codes: Index
    n_rows: Index
    n_weighted: Index
    pair: Loss

    @property
    def stated(self) -> Classes:
        """How certificates call them."""
        return "declared" if self.declared else "learnt"

    def positions(self, y: Any) -> Index:
        """Return the position of each label among the classes."""
        return _positions(self.classes, y)

    def stored(self, y: Any) -> Vector:
        """Return labels as rows keep them."""
        codes = self.codes[self.positions(y)].astype(np.float64)
        return 2.0 * codes - 1.0 if self.signed else codes

    def current(self, y: Vector, loss: Loss) -> Vector:
        """Return labels that rows keep as the loss for the present classes wants."""
        signed, n_classes = loss.outputs == 1, len(self.codes)
        if signed == self.signed and self.codes[-1] == n_classes - 1:
            return y
        codes = _codes(y)
        lookup = np.zeros(max(int(codes.max(initial=0)), int(self.codes[-1])) + 1)
        lookup[self.codes] = np.arange(n_classes)
        positions = lookup[codes]
        return 2.0 * positions - 1.0 if signed else positions

    def after(self, removed: Rows, objective: Objective, *, kept: bool) -> "Labels":
        """Return the labels without these rows, or refuse the request.

        Parameters
        ----------
        removed
            Rows to remove, as they are kept.
        objective
            What the model minimises.
        kept
            Whether the remaining rows are at hand.
        """
        left = self._minus(removed)
        if not self.declared and not left.n_rows.all():
            left = left._trimmed()
            if len(left.classes) > 1 and not kept:
                raise EmptyClass(
                    "a class would have no rows left, and the model would need fewer "
                    "parameters, which takes the remaining rows; keep them "
                    "(keep_data=True), or declare the classes in advance (classes=...)"
                )
        left.require_minimiser(objective)
        return left

    def learn_again(
        self, y: Any, weight: Vector | None, loss: Loss
    ) -> tuple["Labels", Loss]:
        """Return the labels of a fit to other rows, and the loss for them."""
        declared = list(self.classes) if self.declared else None
        labels = learn_labels(y, weight, declared, pair=self.pair)
        loss = labels.loss_like(loss)
        return replace(labels, signed=loss.outputs == 1), loss

    def loss_like(self, loss: Loss) -> Loss:
        """Return the loss for the present classes, of the kind of this one."""
        n_classes = len(self.classes)
        if n_classes <= 2:  # one class is refused elsewhere
            return self.pair
        if isinstance(loss, Multinomial):
            return Multinomial(n_classes)
        if isinstance(loss, Logistic | OneVsRest):
            return OneVsRest(n_classes)
        raise Unsupported(
            f"loss={loss!r} serves two classes and there are {n_classes}; use "
            "loss='logistic' or SoftmaxRegression"
        )

    def require_minimiser(self, objective: Objective) -> None:
        """Refuse classes without rows where no model could be fitted to the rest."""
        n_present = int((self.n_weighted > 0).sum())
        if n_present < 2 and not self.declared:
            raise EmptyClass(
                "rows of only one class have weight, and a classifier needs two; "
                "declare the classes in advance (classes=...), with "
                "penalize_intercept=True"
            )
        if n_present < len(self.classes) and objective.needs_every_class:
            raise EmptyClass(
                "a class has no rows with weight, and then a free intercept has no "
                "minimiser; set penalize_intercept=True"
            )

    def _minus(self, removed: Rows) -> "Labels":
        """Return the labels with the rows of each class counted down."""
        codes, size = _codes(removed.y), int(self.codes[-1]) + 1
        gone = np.bincount(codes, minlength=size)
        weighted = np.bincount(codes[removed.weight > 0.0], minlength=size)
        return replace(
            self,
            n_rows=self.n_rows - gone[self.codes],
            n_weighted=self.n_weighted - weighted[self.codes],
        )

    def _trimmed(self) -> "Labels":
        """Return the labels without classes that have no rows."""
        left = self.n_rows > 0
        return replace(
            self,
            classes=_tight(self.classes[left]),
            codes=self.codes[left],
            n_rows=self.n_rows[left],
            n_weighted=self.n_weighted[left],
        )


def learn_labels(
    y: Any, weight: Vector | None, declared: Sequence[Any] | None, *, pair: Loss
) -> Labels:
    """Return the labels of a fit: those declared, or those that the rows have.

    Parameters
    ----------
    y
        A label for each row.
    weight
        Weights of the rows; None counts each once.
    declared
        The classes, or None to learn them.
    pair
        The loss for two classes.
    """
    classes = _tight(np.unique(y) if declared is None else _declared(declared, y))
    positions = _positions(classes, y)
    weighted = positions if weight is None else positions[weight > 0.0]
    k = len(classes)
    return Labels(
        classes=classes,
        declared=declared is not None,
        signed=False,
        codes=np.arange(k),
        n_rows=np.bincount(positions, minlength=k),
        n_weighted=np.bincount(weighted, minlength=k),
        pair=pair,
    )


def fewer(labels: Labels | None, before: Labels | None) -> bool:
    """Whether there are fewer classes than before."""
    if labels is None or before is None:
        return False
    return len(labels.classes) < len(before.classes)


def _declared(declared: Sequence[Any], y: Any) -> NDArray[Any]:
    """Return declared classes, sorted; refuse fewer than two."""
    if isinstance(declared, str | bytes) or np.ndim(declared) != 1:
        raise InvalidInput(f"classes={declared!r}; give a list of labels")
    objects = np.asarray(y).dtype == object
    try:
        classes = np.unique(np.asarray(declared, dtype=object if objects else None))
    except TypeError:
        raise InvalidInput(f"classes={declared!r}; all must be of one type") from None
    if classes.dtype.kind == "f" and np.isnan(classes).any():
        raise InvalidInput(f"classes={declared!r}; a label must be a number")
    if len(classes) < 2 or len(classes) < len(declared):
        raise InvalidInput(
            f"classes={declared!r}; declare at least two labels, each once"
        )
    return classes


def _tight(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes in a type as wide as they need: a wider one tells of others."""
    return np.array(classes.tolist()) if classes.dtype.kind in "US" else classes


def _positions(classes: NDArray[Any], y: Any) -> Index:
    """Return the position of each label among sorted classes."""
    try:
        positions = np.searchsorted(classes, y)
        known = classes[np.minimum(positions, len(classes) - 1)] == y
    except TypeError:  # words beside numbers
        known, positions = np.zeros(len(y), dtype=bool), np.zeros(len(y), np.intp)
    if not np.all(known):
        stranger = np.asarray(y)[~np.asarray(known)].tolist()[0]
        raise InvalidInput(f"label {stranger!r} is not one of the model's classes")
    return np.asarray(positions, dtype=np.intp)


def _codes(y: Vector) -> Index:
    """Return codes 0, 1, ... of labels that are kept as codes or as signs."""
    return np.maximum(y, 0.0).astype(np.intp)
