# SPDX-License-Identifier: Apache-2.0
"""Mistakes in rows that are split, each put in by a function."""

from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

LAYOUT = "preprocessing.features:Layout"
FEATURES = "preprocessing.features:Features"


def shift_a_level() -> None:
    """Take the features of a category for those of the level after."""
    real = import_module("expunge.preprocessing.features").Layout.levels.func

    def levels(self: Any) -> Any:
        return tuple(table._replace(at=np.roll(table.at, 1)) for table in real(self))

    put(LAYOUT, "levels", property(levels))


def leave_the_mean_in() -> None:
    """Overlook what a scaler subtracts from flags, but in rows that have the level."""
    real = import_module("expunge.preprocessing.features").Features.split

    def split(self: Any, *args: Any) -> Any:
        X = real(self, *args)
        flags = tuple(one._replace(other=None) for one in X.flags)
        return type(X)(X.numbers, X.at, X.codes, flags)

    put(FEATURES, "split", split)


def count_no_rows() -> None:
    """Pay for the additions of the tree, and for none within a block."""

    def count(n_rows: int, block: int) -> int:
        return (-(-n_rows // block)).bit_length()

    put("core.rows", "most_additions", count)
