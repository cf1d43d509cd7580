# SPDX-License-Identifier: Apache-2.0
"""Mistakes in exact models, each put in by a function."""

from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

BAYES = "linear_model.naive_bayes"


def sum_in_floats() -> None:
    """Add up and subtract the rows as they are, in floating point."""
    bayes: Any = import_module(f"expunge.{BAYES}")
    plain = bayes.MeansByClass.sums_of

    def sums_of(self: Any, rows: Any, labels: Any) -> Any:
        sums = plain(self, rows, labels)
        group, n_groups = bayes.groups_of(rows, labels)
        totals = np.zeros((1, n_groups, rows.X.shape[1]))
        np.add.at(totals[0], group, rows.X)
        return type(sums)({**sums.parts, "columns": totals})

    def publish(self: Any, sums: Any, labels: Any) -> Any:
        del self
        n_rows, totals = bayes.present(sums, labels)
        return np.ascontiguousarray((totals / n_rows[:, None]).T).ravel()

    put(f"{BAYES}:MeansByClass", "sums_of", sums_of)
    put(f"{BAYES}:MeansByClass", "publish", publish)


def round_without_a_bound() -> None:
    """Publish what NumPy solves, rounded, without a look at its error."""
    moments: Any = import_module("expunge.linear_model.moments")

    def rounded(solver: Any, right: Any, *, grid: Any) -> list[int]:
        exact = np.array(solver._integers(), dtype=np.float64)
        found = np.linalg.solve(exact, np.array(right, dtype=np.float64))
        return [round(one * 2.0**g) for one, g in zip(found, grid, strict=True)]

    put("linear_model.moments", "solve_rounded", rounded)
    del moments


def keep_items_of_nobody() -> None:
    """Keep the item that only a leaver had."""
    put("linear_model.recommenders:ItemPairs", "left_by", lambda self, sums: self)
    recommenders: Any = import_module("expunge.linear_model.recommenders")
    plain = recommenders.ItemPairs.present

    def present(self: Any, sums: Any) -> Any:
        kept = object.__new__(type(self))
        for name in ("items", "l2", "published"):
            object.__setattr__(kept, name, getattr(self, name))
        object.__setattr__(kept, "declared", True)
        return plain(kept, sums)

    put("linear_model.recommenders:ItemPairs", "present", present)
