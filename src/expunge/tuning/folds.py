# SPDX-License-Identifier: Apache-2.0
"""Folds: a keyed hash of the person, so that nobody's fold depends on anybody else.

A fold drawn by shuffling the rows would be dealt anew when a row goes, and "tune
again without this person" would not be well defined. The hash is: whoever remains,
remains where they were. The rows lie sorted by fold, one copy for all of them; what a
fold trains on are the rows before and after its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from .._typing import Index
from ..exceptions import InvalidInput
from ..private import Private
from ..rows import Rows

HASH_BYTES = 8


def fold_of(subject: str, key: bytes, n_folds: int) -> int:
    """Return the fold of a person: a keyed hash of the id, and of nothing else."""
    digest = blake2b(subject.encode(), key=key, digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest, "big") % n_folds


def folds_of(owners: Sequence[str], key: bytes, n_folds: int) -> Index:
    """Return the fold of each row, by its owner."""
    known = {owner: fold_of(owner, key, n_folds) for owner in set(owners)}
    return np.array([known[owner] for owner in owners], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Split(Private):
    """Rows sorted by fold; those that are gone have no weight.

    Attributes
    ----------
    rows
        All rows, fold after fold.
    bounds
        Where each fold begins, and where the last one ends.
    """

    rows: Rows
    bounds: Index

    @classmethod
    def of(cls, rows: Rows, folds: Index, n_folds: int) -> "Split":
        """Return the split of rows that are sorted by their folds."""
        if (np.diff(folds) < 0).any():
            raise InvalidInput("rows must be sorted by fold: take them by argsort")
        return cls(rows, np.searchsorted(folds, np.arange(n_folds + 1)))

    @property
    def n_folds(self) -> int:
        """How many folds there are, empty ones included."""
        return len(self.bounds) - 1

    def of_rows(self, places: Index) -> Index:
        """Return the fold of the rows at these places."""
        return np.searchsorted(self.bounds, places, side="right") - 1

    def without(self, gone: Index) -> "Split":
        """Return the split with no weight on these rows; they stay where they are."""
        weight = self.rows.weight.copy()
        weight[gone] = 0.0
        return replace(self, rows=replace(self.rows, weight=weight))

    def validation(self, fold: int) -> Rows:
        """Return the rows of a fold, a view."""
        return self.rows.take(slice(*self.bounds[fold : fold + 2]))

    def training(self, fold: int) -> list[Rows]:
        """Return the rows before and after those of a fold, as views."""
        begin, end = self.bounds[fold : fold + 2]
        parts = (self.rows.take(slice(0, begin)), self.rows.take(slice(end, None)))
        return [part for part in parts if part.total_weight > 0.0]

    def gathered(self, fold: int | None) -> Rows:
        """Return what a fold trains on as a copy of its own; None takes all rows."""
        keep = self.rows.weight > 0.0
        if fold is not None:
            keep[slice(*self.bounds[fold : fold + 2])] = False
        return self.rows.take(keep)

    def blocks(self) -> list[Rows]:
        """Return the rows that are left in each fold, as copies."""
        folds = map(self.validation, range(self.n_folds))
        return [rows.take(rows.weight > 0.0) for rows in folds]
