# SPDX-License-Identifier: Apache-2.0
"""MeanImputer: the mean of a column for what is missing, exactly removable."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import Design, Matrix, Vector
from .exact import ColumnSums
from .removable import Removable


class MeanImputer(OneToOneFeatureMixin, Removable):
    """Replace NaN by the mean of the observed entries of its column.

    The mean is computed from exact sums and rounded once. Columns never disappear:
    where nothing is observed, from the start or since a removal, ``empty_value`` takes
    the place of the mean, as it would after a fit on the remaining rows.

    Parameters
    ----------
    empty_value
        What fills a column in which nothing is observed; fixed beforehand.

    Attributes
    ----------
    statistics_
        What fills each column. It carries no noise.
    empty_
        Whether nothing is observed in a column.
    changes_
        Output columns that the last removal changed: none, ever.
    """

    def __init__(self, *, empty_value: float = 0.0) -> None:
        self.empty_value = empty_value

    def transform(self, X: Any) -> Any:
        """Return the rows without gaps, in memory of their own."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        return self._sparse(X) if sparse.issparse(X) else self._dense(X)

    def _dense(self, X: Matrix) -> Matrix:
        return np.where(np.isnan(X), self.statistics_, X)

    def _sparse(self, X: Any) -> Any:
        """Return a sparse X without gaps: zeros that are not stored are observed."""
        filled = X.copy()
        filled.sum_duplicates()
        missing = np.isnan(filled.data)
        filled.data[missing] = self.statistics_[filled.indices[missing]]
        return filled

    def learned(self) -> Hashable:
        """Return what fills the columns, bit for bit."""
        return self.statistics_.tobytes()

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=reset,
        )

    def _count(self, X: Design, weight: Vector | None) -> ColumnSums:
        return ColumnSums.of(X, weight, highest=1)

    def _learn(self, tally: ColumnSums) -> None:
        means = tally.means()
        self.empty_ = np.isnan(means)
        self.statistics_ = np.where(self.empty_, self.empty_value, means)

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: missing values and sparse input are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
