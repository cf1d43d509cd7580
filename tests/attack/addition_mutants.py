# SPDX-License-Identifier: Apache-2.0
"""Mistakes that somebody could make where rows come into a model."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

SUMS = "removal.sums:Sums"
MAGNITUDE = "removal.sums:Magnitude"


def weigh_newcomers_alike() -> None:
    """Let every row that comes have the weight one."""
    real = import_module("expunge.removal.sums").Sums.over

    def over(self: Any, rows: Any, *, leaving: bool = False) -> Any:
        if not leaving:
            rows = replace(rows, weight=np.ones(len(rows.weight)))
        return real(self, rows, leaving=leaving)

    put(SUMS, "over", over)


def keep_the_moment() -> None:
    """Leave rows that come out of what bounds the third-order term."""
    real = import_module("expunge.removal.sums").Sums.plus

    def plus(self: Any, other: Any, **options: Any) -> Any:
        moment, kinks = self.moment, self.kinks
        kept = None if moment is None else moment.copy()
        return real(self, other, **options).replace(moment=kept, kinks=kinks)

    put(SUMS, "plus", plus)


def keep_the_longest_row() -> None:
    """Let the longest row be that of the anchor, however long those are that come."""
    _put_sizes(lambda before, after: replace(after, row_norm=before.row_norm))


def keep_the_sizes() -> None:
    """Let sizes be those of the anchor, but for the longest row."""
    _put_sizes(lambda before, after: replace(before, row_norm=after.row_norm))


def let_long_rows_in() -> None:
    """Measure rows that come only where the sums take them in, not where a fit does."""
    model = import_module("expunge.private_model.model")
    measure, follow = model.RowChange.require_lengths, model.PrivateModel._follow

    def checked(self: Any, change: Any, *given: Any, **options: Any) -> Any:
        measure(change, self.terms.row_norm)
        return follow(self, change, *given, **options)

    put("private_model.model:RowChange", "require_lengths", lambda *given: None)
    put("private_model.model:PrivateModel", "_follow", checked)


def number_classes_afresh() -> None:
    """Code classes in their order when one comes, though rows keep their codes."""
    real = import_module("expunge.private_model.labels").Labels.with_classes_of

    def with_classes_of(self: Any, y: Any) -> Any:
        grown = real(self, y)
        return replace(grown, codes=np.arange(len(grown.classes)))

    put("private_model.labels:Labels", "with_classes_of", with_classes_of)


def keep_the_trace() -> None:
    """Let the rows that come add nothing to the largest eigenvalue."""
    _put_sizes(lambda before, after: replace(after, gram=before.gram))


def _put_sizes(keep: Any) -> None:
    real = import_module("expunge.removal.sums").Magnitude.__add__

    def add(self: Any, other: Any) -> Any:
        return keep(self, real(self, other))

    put(MAGNITUDE, "__add__", add)


def shrink_the_magnitude() -> None:
    """Subtract the sizes of rows that leave: their rounding stays behind."""
    module = import_module("expunge.removal.sums")
    over, real = module.Sums.over, module.Sums.minus

    def measured(self: Any, rows: Any, *, leaving: bool = False) -> Any:
        del leaving
        return over(self, rows)

    def shrinking(self: Any, other: Any, **options: Any) -> Any:
        ours, theirs = self.magnitude, other.magnitude
        less = {
            name: max(getattr(ours, name) - getattr(theirs, name), 0.0)
            for name in (
                *("slope", "square_norm", "curvature"),
                *("hessian", "moment", "weight"),
            )
        }
        after = real(self, other, **options)
        return after.replace(magnitude=replace(ours, **less))

    put(SUMS, "over", measured)
    put(SUMS, "minus", shrinking)


def add_what_leaves() -> None:
    """Add the gradient of rows that leave, where it should be subtracted."""
    real = import_module("expunge.removal.sums").Sums.minus

    def minus(self: Any, other: Any, **options: Any) -> Any:
        gradient = self.gradient + other.gradient
        return real(self, other, **options).replace(gradient=gradient)

    put(SUMS, "minus", minus)


def ignore_new_gaps() -> None:
    """Take in values that are missing where none was missing at the anchor."""
    put("preprocessing.reference:Reference", "knows_gaps", lambda self, raw: True)
