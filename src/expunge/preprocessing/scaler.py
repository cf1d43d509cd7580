# SPDX-License-Identifier: Apache-2.0
"""StandardScaler: zero mean and unit variance, exactly removable."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import Design, Vector
from ..exceptions import Unsupported
from .exact import ColumnSums
from .removable import Removable


class StandardScaler(OneToOneFeatureMixin, Removable):
    """Standardise columns: z = (x - mean) / scale; missing values stay missing.

    Mean and variance (with weights, divided by their sum) are those of the observed
    entries, computed from exact sums and rounded once. Only a column whose entries are
    all equal counts as constant, and its scale is 1. A column in which nothing is
    observed becomes NaN.

    Parameters
    ----------
    with_mean
        Whether to subtract the mean; sparse input cannot be centred.
    with_std
        Whether to divide by the standard deviation.

    Attributes
    ----------
    mean_, scale_
        One number a column. They carry no noise.
    changes_
        Output columns that the last removal changed: none, ever.
    """

    def __init__(self, *, with_mean: bool = True, with_std: bool = True) -> None:
        self.with_mean = with_mean
        self.with_std = with_std

    def transform(self, X: Any) -> Any:
        """Return the rows, standardised, in memory of their own."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        if self.with_mean:
            X = X - self.mean_
        scale = self.scale_ if self.with_std else np.ones_like(self.scale_)
        return X / scale if isinstance(X, np.ndarray) else _divided(X, scale)

    def learned(self) -> Hashable:
        """Return mean and scale, bit for bit."""
        return self.mean_.tobytes(), self.scale_.tobytes()

    def _checked(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=reset,
        )
        if sparse.issparse(X) and self.with_mean:
            raise Unsupported(
                "sparse rows would become dense by centring; pass with_mean=False, or "
                "make them dense"
            )
        return X

    def _count(self, X: Design, weight: Vector | None) -> ColumnSums:
        return ColumnSums.of(X, weight, highest=2)

    def _learn(self, tally: ColumnSums) -> None:
        deviation = tally.deviations()
        self.mean_ = tally.means()
        self.scale_ = np.where(deviation == 0.0, 1.0, deviation)

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: missing values are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = not self.with_mean
        return tags


def _divided(X: Any, scale: Vector) -> Any:
    """Return the columns of a sparse X divided, each stored entry by its scale."""
    divided = X.copy()
    divided.data /= scale[divided.indices]
    return divided
