# SPDX-License-Identifier: Apache-2.0
"""Labels: which classes a classifier has, and what a request may do to them.

Classes learnt from rows reveal something about people: a label that only one person had
must go with that person. One policy holds for every classifier:

declared   the classes are fixed in advance and stay, with or without rows. If a class
           has no rows left and there is no minimiser without them, the request is
           refused, as a fit to the remaining rows would be.
learnt     a class without rows is dropped. The model is fitted to the remaining rows
           with fewer classes, as retraining would. Without the remaining rows, or with
           one class left, the request is refused.

A row to be added may bring a class of its own where classes are learnt and the model
has its rows: it is fitted to all of them again, with one class more. Elsewhere such a
row is refused: a fit would have another number of parameters.

Rows keep the codes that their labels had at the fit; ``recode`` translates them once
classes have been dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import Private, replace_fields, stored
from ..exceptions import EmptyClass, InvalidInput
from ..promise.scope import Classes
from .training_rows import RowChange


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ClassCoding:
    """Makes the codes that rows keep of labels: it may run in another process."""

    classes: NDArray[Any]
    codes: Index
    signed: bool

    def __call__(self, y: Any) -> Vector:
        """Return the code of each label, or -1 and +1."""
        codes = self.codes[_positions(self.classes, y)].astype(np.float64)
        # Of a class that came after a fit to two, the code as it is.
        return np.where(codes > 0.0, codes, -1.0) if self.signed else codes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Recoding:
    """Makes labels of the present classes of kept codes: see ``Labels.recode``."""

    codes: Index
    kept_signed: bool
    signed: bool

    def __call__(self, y: Vector) -> Vector:
        """Return the labels, the same array if nothing changes."""
        n_classes = len(self.codes)
        coded = self.signed == self.kept_signed
        coded = coded and np.array_equal(self.codes, np.arange(n_classes))
        if coded and np.max(y, initial=0.0) < n_classes:
            return y
        codes = _codes(y)
        lookup = np.zeros(max(int(codes.max(initial=0)), int(self.codes.max())) + 1)
        lookup[self.codes] = np.arange(n_classes)
        positions = lookup[codes]
        return 2.0 * positions - 1.0 if self.signed else positions


@stored
@dataclass(frozen=True, repr=False, eq=False)
class Labels(Private):
    """The classes of a classifier, with how many rows each has left.

    Attributes
    ----------
    classes
        The labels, sorted.
    declared
        Whether they were declared in advance, or learnt from the rows.
    signed
        Whether rows keep -1 and +1 for the two classes of the fit, or codes 0, 1, ...
    codes
        The code of each class in the rows.
    n_rows, n_weighted
        Rows left of each class, and how many of them have weight.
    pair
        The loss for two classes; None where nothing is minimised.
    """

    classes: NDArray[Any]
    declared: bool
    signed: bool
    codes: Index
    n_rows: Index
    n_weighted: Index
    pair: Loss | None

    @property
    def stated(self) -> Classes:
        """The word that certificates use."""
        return "declared" if self.declared else "learnt"

    def positions(self, y: Any) -> Index:
        """Return the position of each label among the classes."""
        return _positions(self.classes, y)

    def require_known(self, y: Any) -> None:
        """Raise InvalidInput if a row to be added is of a class of its own."""
        try:
            self.positions(y)
        except InvalidInput as error:
            raise InvalidInput(
                f"{error}; a row to add must be of a class that the model has, unless "
                "the model learnt its classes and keeps its rows: fit again with the "
                "new class, or fit with all classes declared (classes=...); nothing "
                "was added"
            ) from None

    def with_classes_of(self, y: NDArray[Any]) -> "Labels":
        """Return the labels with a place for each new class among rows to be added.

        Declared classes stay as they are, and so do classes that have no order with new
        ones: numbers beside words.
        """
        if self.declared:
            return self
        try:
            known = np.union1d(self.classes.astype(object), y.astype(object))
        except TypeError:
            return self
        classes = known if self.classes.dtype == object else np.array(known.tolist())
        old = np.isin(classes, self.classes)
        if old.all():
            return self
        codes, n_rows, n_weighted = (np.zeros(len(classes), np.intp) for _ in range(3))
        codes[old], n_rows[old] = self.codes, self.n_rows
        n_weighted[old] = self.n_weighted
        codes[~old] = self.codes.max() + 1 + np.arange(np.count_nonzero(~old))
        return replace(
            self,
            classes=_narrow(classes),
            codes=codes,
            n_rows=n_rows,
            n_weighted=n_weighted,
        )

    def encode(self, y: Any) -> Vector:
        """Return labels as the codes that rows keep."""
        return self.coding(y)

    @property
    def coding(self) -> "ClassCoding":
        """What ``encode`` does, without the counts of rows."""
        return ClassCoding(self.classes, self.codes, self.signed)

    def recode(self, y: Vector, loss: Loss) -> Vector:
        """Return the labels of rows, coded for the present classes and their loss.

        Where a row is absent its class may be gone: it gets any code that there is.
        """
        return self.recoding(loss)(y)

    def recoding(self, loss: Loss) -> "Recoding":
        """Return what ``recode`` does for this loss, without the counts of rows."""
        return Recoding(self.codes, self.signed, loss.outputs == 1)

    def after(self, change: RowChange, objective: Objective, *, kept: bool) -> "Labels":
        """Return the labels after a request, or refuse it.

        Parameters
        ----------
        change
            Rows that leave and rows that come, as they are kept.
        objective
            What the model minimises.
        kept
            Whether the remaining rows are available.
        """
        left = self.left_by(change)
        if len(left.classes) < len(self.classes):
            if len(left.classes) > 1 and not kept:
                raise EmptyClass(
                    "a class would have no rows left, and fitting the model without it "
                    "takes the remaining rows; keep them (keep_data=True), or declare "
                    "the classes in advance (classes=...)"
                )
        left.require_minimiser(objective)
        return left

    def left_by(self, change: RowChange) -> "Labels":
        """Return the labels after a request; a learnt class goes with its last row."""
        left = self.count(change)
        return left if self.declared or left.n_rows.all() else left._drop_empty()

    def count(self, change: RowChange) -> "Labels":
        """Return the labels with the rows of a request counted in and off."""
        return self._count(change.added, 1)._count(change.removed, -1)

    def learn_again(
        self, y: Any, weight: Vector | None, loss: Loss
    ) -> tuple["Labels", Loss]:
        """Return the labels of a fit to other rows, and the loss for them."""
        declared = list(self.classes) if self.declared else None
        labels = learn_labels(y, weight, declared, pair=self.pair)
        loss = labels.loss_like(loss)
        return replace(labels, signed=loss.outputs == 1), loss

    def loss_like(self, loss: Loss) -> Loss:
        """Return the loss of the same kind for the present classes."""
        n_classes = len(self.classes)
        if n_classes <= 2:  # one class is refused elsewhere
            assert self.pair is not None
            return self.pair
        return loss.for_classes(n_classes)

    def require_minimiser(self, objective: Objective) -> None:
        """Raise EmptyClass if no model could be fitted because a class has no rows."""
        n_present = np.count_nonzero(self.n_weighted > 0)
        if n_present < 2 and not self.declared:
            raise EmptyClass(
                "only one class has rows with positive weight, and a classifier needs "
                "two; check the labels, or declare the classes in advance and penalise "
                "the intercept (classes=..., penalize_intercept=True, or --classes, "
                "--penalize-intercept)"
            )
        if n_present < len(self.classes) and objective.needs_every_class:
            raise EmptyClass(
                "a class has no rows with positive weight, and then an unpenalised "
                "intercept has no minimiser; set penalize_intercept=True (or "
                "--penalize-intercept)"
            )

    def _count(self, rows: Rows | None, sign: int) -> "Labels":
        """Return the labels with these rows counted in, or off."""
        if rows is None or not len(rows):
            return self
        codes, size = _codes(rows.y), int(self.codes.max()) + 1
        counts = np.bincount(codes, minlength=size)
        if sign > 0 and counts.sum() != counts[self.codes].sum():
            raise InvalidInput(
                "a row to add is of a class that the model has dropped, or never had; "
                "fit again; nothing was added"
            )
        weighted = counts
        if np.count_nonzero(rows.weight) < len(codes):
            weighted = np.bincount(codes[rows.weight > 0.0], minlength=size)
        return replace_fields(
            self,
            n_rows=self.n_rows + sign * counts[self.codes],
            n_weighted=self.n_weighted + sign * weighted[self.codes],
        )

    def _drop_empty(self) -> "Labels":
        """Return the labels without the classes that have no rows."""
        left = self.n_rows > 0
        return replace(
            self,
            classes=_narrow(self.classes[left]),
            codes=self.codes[left],
            n_rows=self.n_rows[left],
            n_weighted=self.n_weighted[left],
        )


def learn_labels(
    y: Any,
    weight: Vector | None,
    declared: Sequence[Any] | None,
    *,
    pair: Loss | None,
) -> Labels:
    """Return the labels of a fit: those declared, or those that the rows have.

    Parameters
    ----------
    y
        A label for each row.
    weight
        Weights of the rows; None counts each row once.
    declared
        The classes, or None to learn them.
    pair
        The loss for two classes; None where nothing is minimised.
    """
    classes = _narrow(
        np.unique(y) if declared is None else _check_declared(declared, y)
    )
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


def recode_change(change: RowChange, labels: Labels | None, *, loss: Loss) -> RowChange:
    """Return a request with its labels coded for the present classes and their loss."""
    if labels is None:
        return change
    code, removed, added = labels.recoding(loss), change.removed, change.added
    if removed is not None:
        removed = removed.recode(code)
    if added is not None:
        added = added.recode(code)
    if removed is change.removed and added is change.added:
        return change
    return replace(change, removed=removed, added=added)


def has_other_classes(labels: Labels | None, before: Labels | None) -> bool:
    """Whether a class has gone, or one has its first rows."""
    if labels is None or before is None:
        return False
    came = not before.declared and not before.n_rows.all()
    return came or len(labels.classes) < len(before.classes)


def _check_declared(declared: Sequence[Any], y: Any) -> NDArray[Any]:
    """Return declared classes, sorted; refuse fewer than two."""
    if isinstance(declared, str | bytes) or np.ndim(declared) != 1:
        raise InvalidInput(f"classes={declared!r}; give a list of labels")
    objects = np.asarray(y).dtype == object
    try:
        classes = np.unique(np.asarray(declared, dtype=object if objects else None))
    except TypeError:
        raise InvalidInput(f"classes={declared!r}; use labels of one type") from None
    if classes.dtype.kind == "f" and np.isnan(classes).any():
        raise InvalidInput(f"classes={declared!r}; remove NaN from the labels")
    if len(classes) < 2 or len(classes) < len(declared):
        raise InvalidInput(
            f"classes={declared!r}; declare at least two labels, each once"
        )
    return classes


def _narrow(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes in the narrowest dtype: a wider one would reveal dropped ones."""
    return np.array(classes.tolist()) if classes.dtype.kind in "US" else classes


def _positions(classes: NDArray[Any], y: Any) -> Index:
    """Return the position of each label among sorted classes."""
    try:
        positions = classes.searchsorted(y)
        is_class = classes[np.minimum(positions, len(classes) - 1)] == y
    except TypeError:  # strings compared with numbers
        is_class, positions = np.zeros(len(y), dtype=bool), np.zeros(len(y), np.intp)
    if np.count_nonzero(is_class) < len(y):
        stranger = np.asarray(y)[~np.asarray(is_class)].tolist()[0]
        raise InvalidInput(
            f"label {stranger!r} is not one of the model's classes; check y"
        )
    return np.asarray(positions, dtype=np.intp)


def _codes(y: Vector) -> Index:
    """Return codes 0, 1, ... of labels kept as codes or as signs."""
    return np.maximum(y, 0.0).astype(np.intp)
