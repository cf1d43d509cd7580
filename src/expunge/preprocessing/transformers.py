# SPDX-License-Identifier: Apache-2.0
"""What removable transformers share: exact sums in private, and taking rows back.

A transformer keeps the sums of the rows it was fitted on, never the rows. What it
learned is a function of those sums alone, so that after ``forget`` it has learned, bit
for bit, what ``fit`` on the remaining rows would teach it.

StandardScaler: zero mean and unit variance, exactly removable.

MeanImputer: the mean of a column for what is missing, exactly removable.

How a pipeline handles each kind of step, in deeds and in words.

A step of ours forgets exactly. A step that learns nothing has nothing to forget. Any
other step learned from the data by means that nothing here can vouch for: it is fitted
again, named as not covered, and costs the release its certificate. Which is which
depends on the steps alone, never on a request.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from ..core.arrays import Design, Index, Matrix, Private, Vector
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


Steps: TypeAlias = tuple[tuple[str, Any], ...]
Handling: TypeAlias = Literal["exact", "stateless", "foreign"]

DEEDS: Mapping[Handling, str] = MappingProxyType(
    {
        "exact": "is fitted on the rows of the model and, after every removal, is bit "
        "for bit what fitting it on the remaining rows gives",
        "stateless": "is stateless: it learned nothing from the data",
        "foreign": "is fitted again on the remaining rows, by its own fit, after every "
        "removal",
    }
)
UNNOISED = (
    "what preprocessing statistics from before a removal reveal beside those from "
    "after it: they are exact and carry no noise"
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Raw(Private):
    """Rows as they were handed over, before any step, with their owners."""

    X: Any
    y: Any
    weight: Vector | None
    owners: tuple[str, ...]

    def take(self, index: Index) -> "Raw":
        """Return the rows at these positions, in memory of their own."""
        weight = None if self.weight is None else self.weight[index]
        owners = tuple(self.owners[place] for place in index)
        X, y = _safe_indexing(self.X, index), _safe_indexing(self.y, index)
        return Raw(X, y, weight, owners)


def handling(step: Any) -> Handling:
    """Return how a step is handled; a composed one like the worst of its parts."""
    kinds = {_kind(part) for part in _parts(step)}
    if "foreign" in kinds:
        return "foreign"
    return "exact" if "exact" in kinds else "stateless"


def transformed(steps: Iterable[tuple[str, Any]], X: Any) -> Any:
    """Return the rows after all of these steps."""
    for _, step in steps:
        X = step.transform(X)
    return X


def fitted(steps: Iterable[tuple[str, Any]], raw: Raw) -> tuple[Steps, Any]:
    """Return clones of the steps, each fitted on what those before make of the rows."""
    done, X = [], raw.X
    for name, step in steps:
        done.append((name, _fit(step, X, raw)))
        X = done[-1][1].transform(X)
    return tuple(done), X


def without(steps: Steps, gone: Raw, *, left: Raw) -> tuple[Steps, Any]:
    """Return the steps as they would be, fitted on the rows that are left.

    With them the rows that are left, transformed; None if no step changed, for then
    these are what they were. After the first step that changed every step sees other
    rows and is fitted again.
    """
    done: list[tuple[str, Any]] = []
    X = gone.X
    for place, (name, step) in enumerate(steps):
        kind = handling(step)
        fresh = step if kind == "stateless" else None
        if isinstance(step, Removable):
            fresh = step.without(X, gone.weight)
        if fresh is None or not _same(step, fresh):
            rest = transformed(done, left.X)
            fresh = _fit(step, rest, left) if fresh is None else fresh
            rows = replace(left, X=fresh.transform(rest))
            more, rest = fitted(steps[place + 1 :], rows)
            return (*done, (name, fresh), *more), rest
        done.append((name, fresh))
        X = step.transform(X)
    return tuple(done), None


def retire(before: Steps, after: Steps) -> None:
    """Take the sums from steps that were replaced: someone may still hold them."""
    staying = {id(part) for _, step in after for part in _parts(step, fitted=True)}
    for part in (part for _, step in before for part in _parts(step, fitted=True)):
        if isinstance(part, Removable) and id(part) not in staying:
            part._tally = None


def assumptions(steps: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Return how each step is handled, to follow "This holds provided that ..."."""
    return tuple(f"{_called(*step)} {DEEDS[handling(step[1])]}" for step in steps)


def not_covered(steps: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """Return what the steps leave open, to follow "It says nothing about ..."."""
    kinds = [handling(step) for _, step in steps]
    foreign = [
        f"{_called(name, step)}, which learned from the data by means that cannot be "
        "certified to be undone"
        for (name, step), kind in zip(steps, kinds, strict=True)
        if kind == "foreign"
    ]
    learned = [kind for kind in kinds if kind != "stateless"]
    return (*foreign, *([UNNOISED] if learned else []))


def _called(name: str, step: Any) -> str:
    parts = [type(part).__name__ for part in _parts(step) if part is not step]
    made_of = f" of {', '.join(parts)}" if parts else ""
    return f"preprocessing step {name!r} ({type(step).__name__}{made_of})"


def _same(step: Any, fresh: Any) -> bool:
    """Whether a step transforms rows as before."""
    return fresh is step or step.learned() == fresh.learned()


def _fit(step: Any, X: Any, raw: Raw) -> Any:
    """Return a clone of the step fitted on X, with the weights if it takes any."""
    fresh, given = clone(step), {}
    if raw.weight is not None and has_fit_parameter(fresh, "sample_weight"):
        given["sample_weight"] = raw.weight
    return fresh.fit(X, raw.y, **given)


def _kind(part: Any) -> Handling:
    if isinstance(part, Removable):
        return "exact"
    return "foreign" if get_tags(part).requires_fit else "stateless"


def _parts(step: Any, *, fitted: bool = False) -> list[Any]:
    """Return the step, or what it is composed of; words stand for no step at all."""
    if isinstance(step, str):
        return []
    if isinstance(step, ColumnTransformer):
        inner = [part for _, part, _ in step.transformers]
        inner = [*inner, step.remainder]
        if fitted:
            inner = [part for _, part, _ in step.transformers_]
    elif isinstance(step, FeatureUnion):
        inner = [part for _, part in step.transformer_list]
    elif isinstance(step, Pipeline) and step.memory is None:  # a cache forgets nobody
        inner = [part for _, part in step.steps if part is not None]
    else:
        return [step]
    return [leaf for part in inner for leaf in _parts(part, fitted=fitted)]
