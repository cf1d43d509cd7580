# SPDX-License-Identifier: Apache-2.0
"""Transformers from which rows can be removed exactly, and steps of any kind.

A transformer of this package keeps exact sums of the rows it was fitted on, never the
rows. What it learned is a function of those sums alone, so after ``forget`` it is, bit
for bit, what ``fit`` on the remaining rows gives.

In a pipeline such a step is "exact". A step that learns nothing is "stateless" and has
nothing to forget. Any other is "foreign": nothing here can vouch for how it learned, so
it is fitted again, named as not covered, and the release loses its certificate. The
kind depends on the step alone, never on a request.
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
"""Attributes that are not pickled or copied with a transformer."""

Steps: TypeAlias = tuple[tuple[str, Any], ...]
StepKind: TypeAlias = Literal["exact", "stateless", "foreign"]

KIND_SENTENCES: Mapping[StepKind, str] = MappingProxyType(
    {
        "exact": "is fitted on the rows of the model and, after every removal, is bit "
        "for bit what fitting it on the remaining rows gives",
        "stateless": "is stateless: it learned nothing from the data",
        "foreign": "is fitted again on the remaining rows, by its own fit, after every "
        "removal",
    }
)
NO_NOISE = (
    "what preprocessing statistics from before a removal reveal beside those from "
    "after it: they are exact and carry no noise"
)


class Tally(Protocol):
    """Exact sums of rows, from which rows can be subtracted."""

    @property
    def total(self) -> int:
        """The weight of all rows."""

    def subtract(self, gone: Any, /) -> Self:
        """Return the sums without these, or refuse."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Which output columns a removal took away, and which it added.

    By position, among the columns before and among those after it: the name of a lost
    column may be the very thing that had to be forgotten.
    """

    lost: tuple[int, ...] = ()
    gained: tuple[int, ...] = ()

    @classmethod
    def between(cls, before: ArrayLike, after: ArrayLike) -> "Changes":
        """Return how these lists of names differ."""
        old, new = np.asarray(before).tolist(), np.asarray(after).tolist()
        return cls(_not_in(new, old), _not_in(old, new))


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
        checked = self._validate(X, reset=True)
        tally = self._count(checked, _check_weights(sample_weight, checked))
        if tally.total == 0:
            raise InvalidInput(
                "all weights are zero; give at least one row a positive weight"
            )
        self._tally: Tally | None = tally
        self._learn(tally)
        self.changes_ = Changes()
        return self

    def forget(self, X: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Remove rows: the result is what fitting the other rows gives.

        Only sums are kept. Rows that were never fitted are therefore noticed only if no
        rows at all could give the sums that would be left; then nothing is removed.

        Parameters
        ----------
        X, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        self.__dict__.update(vars(self.without(X, sample_weight)))
        return self

    def without(self, X: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Return a copy without these rows; this one stays as it is."""
        tally = self._tally_without(X, sample_weight)
        fresh = copy(self)
        fresh._tally = tally
        fresh._learn(tally)
        names = self.get_feature_names_out(), fresh.get_feature_names_out()
        fresh.changes_ = Changes.between(*names)
        return fresh

    @abstractmethod
    def fingerprint(self) -> Hashable:
        """Return everything ``transform`` depends on; equal ones transform alike."""

    @abstractmethod
    def _validate(self, X: Any, *, reset: bool) -> Any:
        """Return the rows, checked as scikit-learn checks them."""

    @abstractmethod
    def _count(self, X: Any, weight: Vector | None) -> Tally:
        """Return the exact sums of these rows."""

    @abstractmethod
    def _learn(self, tally: Any) -> None:
        """Set the learned attributes; they depend on the sums alone."""

    def _tally_without(self, X: Any, sample_weight: ArrayLike | None) -> Tally:
        """Return the sums without these rows."""
        check_is_fitted(self)
        tally: Tally | None = getattr(self, "_tally", None)
        if tally is None:
            raise NoPrivateState(
                "this is a pickle or copy, which has what was learned but not the sums "
                "behind it; call forget on the fitted transformer itself"
            )
        checked = self._validate(X, reset=False)
        gone = self._count(checked, _check_weights(sample_weight, checked))
        return tally.subtract(gone)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle may hold: parameters and what was learned."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in PRIVATE}


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
        One number for each column. They carry no noise.
    changes_
        Output columns that the last removal changed; always none.
    """

    def __init__(self, *, with_mean: bool = True, with_std: bool = True) -> None:
        self.with_mean = with_mean
        self.with_std = with_std

    def transform(self, X: Any) -> Any:
        """Return the standardised rows, in new memory."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        if self.with_mean:
            X = X - self.mean_
        scale = self.scale_ if self.with_std else np.ones_like(self.scale_)
        return X / scale if isinstance(X, np.ndarray) else _divide(X, scale)

    def fingerprint(self) -> Hashable:
        """Return mean and scale, bit for bit."""
        return self.mean_.tobytes(), self.scale_.tobytes()

    def _validate(self, X: Any, *, reset: bool) -> Any:
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
                "centring would make sparse rows dense; pass with_mean=False, or dense "
                "rows"
            )
        return X

    def _count(self, X: Design, weight: Vector | None) -> ColumnSums:
        return ColumnSums.of(X, weight, highest=2)

    def _learn(self, tally: ColumnSums) -> None:
        deviation = tally.deviations()
        self.mean_ = tally.means()
        self.scale_ = np.where(deviation == 0.0, 1.0, deviation)

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = not self.with_mean
        return tags


class MeanImputer(OneToOneFeatureMixin, Removable):
    """Replace NaN with the mean of the observed entries of its column.

    The mean is computed from exact sums and rounded once. Columns never disappear:
    where nothing is observed, from the start or since a removal, ``empty_value``
    replaces the mean, as it would after a fit on the remaining rows.

    Parameters
    ----------
    empty_value
        What fills a column in which nothing is observed; fixed in advance.

    Attributes
    ----------
    statistics_
        What fills each column. It carries no noise.
    empty_
        Whether nothing is observed in a column.
    changes_
        Output columns that the last removal changed; always none.
    """

    def __init__(self, *, empty_value: float = 0.0) -> None:
        self.empty_value = empty_value

    def transform(self, X: Any) -> Any:
        """Return the rows with missing values filled in, in new memory."""
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        return self._fill_sparse(X) if sparse.issparse(X) else self._fill_dense(X)

    def _fill_dense(self, X: Matrix) -> Matrix:
        return np.where(np.isnan(X), self.statistics_, X)

    def _fill_sparse(self, X: Any) -> Any:
        """Return a sparse X filled in; zeros that are not stored count as observed."""
        filled = X.copy()
        filled.sum_duplicates()
        missing = np.isnan(filled.data)
        filled.data[missing] = self.statistics_[filled.indices[missing]]
        return filled

    def fingerprint(self) -> Hashable:
        """Return what fills the columns, bit for bit."""
        return self.statistics_.tobytes()

    def _validate(self, X: Any, *, reset: bool) -> Any:
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
        """Return scikit-learn's tags: missing values and sparse input are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RawRows(Private):
    """Rows as they were passed to ``fit``, before any step, with their owners."""

    X: Any
    y: Any
    weight: Vector | None
    owners: tuple[str, ...]

    def take(self, index: Index) -> "RawRows":
        """Return the rows at these positions, in new memory."""
        weight = None if self.weight is None else self.weight[index]
        owners = tuple(self.owners[place] for place in index)
        X, y = _safe_indexing(self.X, index), _safe_indexing(self.y, index)
        return RawRows(X, y, weight, owners)


def fit_steps(steps: Iterable[tuple[str, Any]], raw: RawRows) -> tuple[Steps, Any]:
    """Return clones of the steps, each fitted on the output of the one before."""
    done, X = [], raw.X
    for name, step in steps:
        done.append((name, _fit_clone(step, X, raw)))
        X = done[-1][1].transform(X)
    return tuple(done), X


def apply_steps(steps: Iterable[tuple[str, Any]], X: Any) -> Any:
    """Return the rows after all of these steps."""
    for _, step in steps:
        X = step.transform(X)
    return X


def remove_from_steps(
    steps: Steps, gone: RawRows, *, left: RawRows
) -> tuple[Steps, Any]:
    """Return the steps as if fitted on the rows left, and those rows transformed.

    In place of the transformed rows it returns None if no step changed: then they are
    what they were. After the first step that changed, every step sees different rows
    and is fitted again.
    """
    done: list[tuple[str, Any]] = []
    X = gone.X
    for place, (name, step) in enumerate(steps):
        kind = classify_step(step)
        fresh = step if kind == "stateless" else None
        if isinstance(step, Removable):
            fresh = step.without(X, gone.weight)
        if fresh is None or not _learned_same(step, fresh):
            rest = apply_steps(done, left.X)
            fresh = _fit_clone(step, rest, left) if fresh is None else fresh
            rows = replace(left, X=fresh.transform(rest))
            more, rest = fit_steps(steps[place + 1 :], rows)
            return (*done, (name, fresh), *more), rest
        done.append((name, fresh))
        X = step.transform(X)
    return tuple(done), None


def drop_sums(before: Steps, after: Steps) -> None:
    """Delete the sums of steps that were replaced: someone may still hold the steps."""
    staying = {id(part) for _, step in after for part in _leaf_steps(step, fitted=True)}
    for part in (part for _, step in before for part in _leaf_steps(step, fitted=True)):
        if isinstance(part, Removable) and id(part) not in staying:
            part._tally = None


def classify_step(step: Any) -> StepKind:
    """Return the kind of a step; a composed one is of the kind of its worst part."""
    kinds = {_classify_part(part) for part in _leaf_steps(step)}
    if "foreign" in kinds:
        return "foreign"
    return "exact" if "exact" in kinds else "stateless"


def list_assumptions(steps: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Return a sentence on each step, to follow "This holds provided that ..."."""
    return tuple(
        f"{_describe_step(*step)} {KIND_SENTENCES[classify_step(step[1])]}"
        for step in steps
    )


def list_not_covered(steps: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """Return what the steps do not cover, to follow "It says nothing about ..."."""
    kinds = [classify_step(step) for _, step in steps]
    foreign = [
        f"{_describe_step(name, step)}, which learned from the data by means that "
        "cannot be certified to be undone"
        for (name, step), kind in zip(steps, kinds, strict=True)
        if kind == "foreign"
    ]
    learned = [kind for kind in kinds if kind != "stateless"]
    return (*foreign, *([NO_NOISE] if learned else []))


def _not_in(others: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    known = set(others)
    return tuple(i for i, name in enumerate(names) if name not in known)


def _check_weights(sample_weight: ArrayLike | None, X: Any) -> Vector | None:
    """Return a finite, non-negative weight for each row, or None if none are given."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (X.shape[0],):
        raise InvalidInput(
            f"sample_weight has shape {weight.shape} and X has {X.shape[0]} rows; give "
            "one weight for each row"
        )
    if not (np.isfinite(weight).all() and (weight >= 0.0).all()):
        raise InvalidInput("sample_weight must be finite and not negative")
    return weight


def _divide(X: Any, scale: Vector) -> Any:
    """Return a sparse X with each stored entry divided by the scale of its column."""
    divided = X.copy()
    divided.data /= scale[divided.indices]
    return divided


def _fit_clone(step: Any, X: Any, raw: RawRows) -> Any:
    """Return a clone of the step fitted on X, with the weights if it takes any."""
    fresh, given = clone(step), {}
    if raw.weight is not None and has_fit_parameter(fresh, "sample_weight"):
        given["sample_weight"] = raw.weight
    return fresh.fit(X, raw.y, **given)


def _learned_same(step: Any, fresh: Any) -> bool:
    """Whether a step transforms rows as before."""
    return fresh is step or step.fingerprint() == fresh.fingerprint()


def _classify_part(part: Any) -> StepKind:
    if isinstance(part, Removable):
        return "exact"
    return "foreign" if get_tags(part).requires_fit else "stateless"


def _leaf_steps(step: Any, *, fitted: bool = False) -> list[Any]:
    """Return the step, or its parts if it is composed; words are not steps."""
    if isinstance(step, str):
        return []
    if isinstance(step, ColumnTransformer):
        inner = [part for _, part, _ in step.transformers]
        inner = [*inner, step.remainder]
        if fitted:
            inner = [part for _, part, _ in step.transformers_]
    elif isinstance(step, FeatureUnion):
        inner = [part for _, part in step.transformer_list]
    elif isinstance(step, Pipeline) and step.memory is None:
        # One with a cache would keep removed rows, so it counts as foreign.
        inner = [part for _, part in step.steps if part is not None]
    else:
        return [step]
    return [leaf for part in inner for leaf in _leaf_steps(part, fitted=fitted)]


def _describe_step(name: str, step: Any) -> str:
    parts = [type(part).__name__ for part in _leaf_steps(step) if part is not step]
    made_of = f" of {', '.join(parts)}" if parts else ""
    return f"preprocessing step {name!r} ({type(step).__name__}{made_of})"
