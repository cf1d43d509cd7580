# SPDX-License-Identifier: Apache-2.0
"""OneHotEncoder: a column for each frequent category, exactly removable."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_is_fitted,
    validate_data,
)

from ..core.arrays import Index, Private, Vector
from ..exceptions import CannotRemove, InvalidInput, UnknownRows
from .exact_sums import NOBODY_LEFT, STRANGERS, UNIT, exact_sums, total_weight
from .transformers import Removable

Category: TypeAlias = Hashable
Unknown: TypeAlias = Literal["ignore", "infrequent_if_exist", "error"]

UNKNOWN = ("ignore", "infrequent_if_exist", "error")
NO_COLUMN = -1


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Counts(Private):
    """The weight of each category of each column, in units of 2^-UNIT."""

    total: int
    columns: tuple[Mapping[Category, int], ...]

    def subtract(self, gone: "Counts") -> "Counts":
        """Return the counts without these; a category that nobody has left is dropped.

        Raises UnknownRows if more of a category would be removed than there is.
        """
        left = []
        for mine, theirs in zip(self.columns, gone.columns, strict=True):
            if any(mine.get(key, 0) < count for key, count in theirs.items()):
                raise UnknownRows(STRANGERS)
            counts = {key: mine[key] - theirs.get(key, 0) for key in mine}
            left.append({key: count for key, count in counts.items() if count})
        if self.total == gone.total:
            raise CannotRemove(NOBODY_LEFT)
        return Counts(self.total - gone.total, tuple(left))


class OneHotEncoder(Removable):
    """Turn each category into a column of zeros and ones.

    Categories whose weight is below ``min_count`` share one column, "infrequent". After
    a removal the categories, frequent and infrequent, are those that a fit on the
    remaining rows finds: columns may disappear, and ``changes_`` says which. Missing
    values are a category of their own, the last.

    Parameters
    ----------
    min_count
        Least weight, or number of rows, for a category to have its own column.
    handle_unknown
        What to do with a category that was not fitted: "ignore" gives zeros,
        "infrequent_if_exist" the infrequent column if there is one, "error" raises.
    sparse_output
        Whether to return CSR or a dense array.

    Attributes
    ----------
    categories_
        Sorted categories with a column of their own, for each input column.
    infrequent_categories_
        Those that share one, for each input column.
    changes_
        Positions of output columns that the last removal took away or added.
    """

    def __init__(
        self,
        *,
        min_count: float = 1,
        handle_unknown: Unknown = "ignore",
        sparse_output: bool = True,
    ) -> None:
        self.min_count = min_count
        self.handle_unknown = handle_unknown
        self.sparse_output = sparse_output

    def transform(self, X: Any) -> Any:
        """Return the rows as zeros and ones, CSR or dense."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        places = [self._places(X, j) for j in range(X.shape[1])]
        widths = [len(self._labels(j)) for j in range(X.shape[1])]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.intp)
        table = np.stack(places, axis=1)
        filled = table != NO_COLUMN
        indices = (table + starts[:-1])[filled]
        indptr = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
        shape = (len(table), int(starts[-1]))
        encoded = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape)
        return encoded if self.sparse_output else encoded.toarray()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the output columns: feature_category."""
        check_is_fitted(self)
        features = _check_feature_names_in(self, input_features)
        names = [
            f"{feature}_{label}"
            for j, feature in enumerate(features)
            for label in self._labels(j)
        ]
        return np.array(names, dtype=object)

    def fingerprint(self) -> Hashable:
        """Return the categories of each column."""
        return tuple(map(tuple, self.categories_ + self.infrequent_categories_))

    def _labels(self, j: int) -> list[Any]:
        """Return the categories that the columns of a feature stand for."""
        shared = ["infrequent"] if self.infrequent_categories_[j] else []
        return [*self.categories_[j], *shared]

    def _places(self, X: NDArray[Any], j: int) -> Index:
        """Return the output column, counted within the feature, of each row."""
        own = self.categories_[j]
        places = {key: place for place, key in enumerate(own)}
        places |= dict.fromkeys(self.infrequent_categories_[j], len(own))
        keys, codes = find_categories(X[:, j])
        strangers = [key for key in keys if key not in places]
        if strangers and self.handle_unknown == "error":
            raise InvalidInput(
                f"column {j} has unknown categories ({len(strangers)}), "
                f"for example {strangers[0]!r}; drop the rows, or pass "
                "handle_unknown='ignore'"
            )
        elsewhere = NO_COLUMN
        if self.handle_unknown == "infrequent_if_exist" and len(places) > len(own):
            elsewhere = len(own)
        table = np.array([places.get(key, elsewhere) for key in keys], dtype=np.intp)
        return table[codes]

    def _validate(self, X: Any, *, reset: bool) -> Any:
        if self.handle_unknown not in UNKNOWN:
            raise InvalidInput(
                f"handle_unknown={self.handle_unknown!r}; choose one of "
                f"{', '.join(map(repr, UNKNOWN))}"
            )
        if not 0 <= self.min_count < inf:
            raise InvalidInput(f"min_count={self.min_count}; it must be zero or more")
        return validate_data(
            self, X, dtype=None, ensure_all_finite="allow-nan", reset=reset
        )

    def _count(self, X: NDArray[Any], weight: Vector | None) -> Counts:
        columns = [_sum_weights(X[:, j], weight) for j in range(X.shape[1])]
        return Counts(total_weight(weight, len(X)), tuple(columns))

    def _learn(self, tally: Counts) -> None:
        numerator, denominator = float(self.min_count).as_integer_ratio()
        own, shared = [], []
        for counts in tally.columns:
            keys = _sort_categories(counts)
            often = {k for k in keys if counts[k] * denominator >= numerator << UNIT}
            own.append([key for key in keys if key in often])
            shared.append([key for key in keys if key not in often])
        self.categories_ = own
        self.infrequent_categories_ = shared

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: strings and missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def find_categories(column: NDArray[Any]) -> tuple[list[Any], Index]:
    """Return the categories of a column, and for each row which one it has.

    Any missing value becomes None. Equal numbers are one category, however they are
    written.
    """
    missing = _find_missing(column)
    try:
        found, codes = np.unique(_unify_numbers(column[~missing]), return_inverse=True)
    except TypeError as error:
        raise InvalidInput(
            f"a column mixes categories that cannot be sorted ({error}); make them all "
            "strings or all numbers"
        ) from error
    keys = found.tolist()
    if not missing.any():
        return keys, codes
    table = np.full(len(column), len(keys), dtype=np.intp)
    table[~missing] = codes
    return [*keys, None], table


def _find_missing(column: NDArray[Any]) -> NDArray[np.bool]:
    """Return where a value is missing: None, NaN, NaT or NA."""
    if column.dtype != object:
        return np.asarray(column != column)
    return np.array([_is_missing(value) for value in column], dtype=bool)


def _is_missing(value: Any) -> bool:
    # pandas' NA has no truth value, hence no comparison with itself.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _unify_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return equal numbers as the same object: -0.0 as 0.0, and 1.0 as 1 in a mix."""
    if values.dtype.kind == "f":
        return np.asarray(values + 0.0)
    if values.dtype != object:
        return values
    table = np.empty(len(values), dtype=object)
    table[:] = [_number(value) for value in values]
    return table


def _number(value: Any) -> Any:
    """Return a whole number as an int, and anything else as it is."""
    whole = isinstance(value, Real) and bool(value == value // 1)
    return int(value) if whole else value


def _sum_weights(column: NDArray[Any], weight: Vector | None) -> dict[Category, int]:
    """Return the weight of each category that has any."""
    keys, codes = find_categories(column)
    if weight is None:
        counts = np.bincount(codes, minlength=len(keys)).tolist()
        sums = [count << UNIT for count in counts]
    else:
        sums = exact_sums([weight], codes.astype(np.intp), n_bins=len(keys))
    return {key: total for key, total in zip(keys, sums, strict=True) if total}


def _sort_categories(counts: Mapping[Category, int]) -> Sequence[Any]:
    """Return the categories in order, the missing one last."""
    known: list[Any] = [key for key in counts if key is not None]
    return [*sorted(known), *([None] if None in counts else [])]
