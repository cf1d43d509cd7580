# SPDX-License-Identifier: Apache-2.0
"""What removable transformers share: exact sums in private, and taking rows back.

A transformer keeps the sums of the rows it was fitted on, never the rows. What it
learned is a function of those sums alone, so that after ``forget`` it has learned, bit
for bit, what ``fit`` on the remaining rows would teach it.

StandardScaler: zero mean and unit variance, exactly removable.

MeanImputer: the mean of a column for what is missing, exactly removable.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ..core.arrays import Design, Matrix, Vector
from ..exceptions import InvalidInput, NoPrivateState, Unsupported
from .exact_sums import ColumnSums

PRIVATE = ("_tally",)
"""Attributes that stay behind when a transformer is pickled or copied."""


class Tally(Protocol):
    """Exact sums of rows, from which rows can be taken back."""

    @property
    def total(self) -> int:
        """The weight of all rows."""

    def subtract(self, gone: Any, /) -> Self:
        """Return the sums without these, or refuse."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Which output columns a removal took away, and which it brought.

    By position, among the columns before and among those now: the name of a column
    that is lost may be the very thing that had to be forgotten.
    """

    lost: tuple[int, ...] = ()
    gained: tuple[int, ...] = ()

    @classmethod
    def between(cls, before: ArrayLike, after: ArrayLike) -> "Changes":
        """Return how these lists of names differ."""
        old, new = np.asarray(before).tolist(), np.asarray(after).tolist()
        return cls(_not_in(new, old), _not_in(old, new))


def _not_in(others: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    known = set(others)
    return tuple(i for i, name in enumerate(names) if name not in known)


class Removable(TransformerMixin, BaseEstimator, ABC):
    """A transformer from which the rows it was fitted on can be removed exactly."""

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from these rows.

        Parameters
        ----------
        X
            Rows.
        y
            Ignored.
        sample_weight
            Weights; integer weights count rows.
        """
        del y
        checked = self._checked(X, reset=True)
        tally = self._count(checked, _weights(sample_weight, checked))
        if tally.total == 0:
            raise InvalidInput("all weights are zero; at least one row must count")
        self._tally: Tally | None = tally
        self._learn(tally)
        self.changes_ = Changes()
        return self

    def forget(self, X: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Take rows back: what is left is what fitting the other rows gives.

        Only sums are kept, so rows that were never fitted are noticed where no rows
        at all could give the sums that would be left; then nothing is removed.

        Parameters
        ----------
        X, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        self.__dict__.update(vars(self.without(X, sample_weight)))
        return self

    def without(self, X: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Return a copy that forgot these rows; this one stays as it is."""
        tally = self._left(X, sample_weight)
        fresh = copy(self)
        fresh._tally = tally
        fresh._learn(tally)
        names = self.get_feature_names_out(), fresh.get_feature_names_out()
        fresh.changes_ = Changes.between(*names)
        return fresh

    @abstractmethod
    def learned(self) -> Hashable:
        """Return all that ``transform`` depends on, to compare by equality."""

    @abstractmethod
    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Return the rows as scikit-learn wants them checked."""

    @abstractmethod
    def _count(self, X: Any, weight: Vector | None) -> Tally:
        """Return the exact sums of these rows."""

    @abstractmethod
    def _learn(self, tally: Any) -> None:
        """Set the learned attributes, which depend on the sums alone."""

    def _left(self, X: Any, sample_weight: ArrayLike | None) -> Tally:
        """Return the sums without these rows."""
        check_is_fitted(self)
        tally: Tally | None = getattr(self, "_tally", None)
        if tally is None:
            raise NoPrivateState(
                "this copy carries what was learned, not the sums behind it, as every "
                "pickle and copy does; forget with the fitted transformer itself"
            )
        checked = self._checked(X, reset=False)
        gone = self._count(checked, _weights(sample_weight, checked))
        return tally.subtract(gone)

    def __getstate__(self) -> dict[str, Any]:
        """Return what may travel: parameters and what was learned."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in PRIVATE}


def _weights(sample_weight: ArrayLike | None, X: Any) -> Vector | None:
    """Return one finite non-negative weight a row, or None if none are given."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (X.shape[0],):
        raise InvalidInput(
            f"sample_weight has shape {weight.shape}; X has {X.shape[0]} rows"
        )
    if not (np.isfinite(weight).all() and (weight >= 0.0).all()):
        raise InvalidInput("sample_weight must be finite and not negative")
    return weight


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
