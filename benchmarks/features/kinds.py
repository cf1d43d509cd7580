# SPDX-License-Identifier: Apache-2.0
"""Kinds: what a map of features is, and what it returns."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from expunge.promise.group import Spent

from ..data import Dataset
from .svhn import Digits


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Features:
    """Rows for training and test, and what making them cost a training row.

    Attributes
    ----------
    train, test
        Designs with one unit row an image, and labels of -1 and +1.
    spent
        Epsilon and delta that the map promises one training row; None if it never
        saw the data, and then it promises everything.
    """

    train: Dataset
    test: Dataset
    spent: Spent | None = None


class FeatureMap(Protocol):
    """A frozen dataclass of parameters that turns digits into features."""

    requires: ClassVar[tuple[str, ...]]
    """Distributions whose version decides the result."""

    def __call__(self, digits: Digits) -> Features:
        """Return the features of both parts."""
