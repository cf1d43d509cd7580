# SPDX-License-Identifier: Apache-2.0
"""Maps of some columns that are learnt from all rows, and looked at when people leave.

Knots at quantiles, or a map to ranks, are exact functions of the values that the rows
have, in whatever order: learnt from the rows that remain they are what a fit to these
learns, to the last bit. But sums over what they make of rows do not transform, as those
over scaled columns do. So every request learns them again from statistics, and encodes
and reads all remaining rows.

``Group.then`` says what comes after the steps of some columns. ``join_maps`` makes of
it one map that learns nothing any more, for all features that preprocessing has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import (
    FunctionTransformer,
    QuantileTransformer,
    SplineTransformer,
)

from ..core.arrays import Index, Matrix, Vector
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .columns import Column, Recipe
from .description import Group, TargetMeans
from .encoder import Encoder, check_encoder, encode_rows, name_features, title_of
from .features import Features, FittedPreprocessing
from .sklearn_maps import Chain, chain, make_plain
from .statistics import Statistics
from .target_means import Answers, CodeMeans, CrossMeans, learn_means, publish_means


class Taught(NamedTuple):
    """What maps are learnt from: what preprocessing does, and what it has learnt.

    ``answers`` are all rows, for what is learnt from labels.
    """

    recipe: Recipe
    statistics: Statistics
    features: Features
    answers: Answers | None = None


class LearntStep(ABC):
    """A map of some columns that is learnt from what all rows have in them."""

    # Whether it is learnt from the values of the columns, in order.
    needs_order: ClassVar[bool] = False

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called."""

    @abstractmethod
    def learn(self, taught: Taught, at: Index) -> Encoder:
        """Return the map of these features that fitting to the rows gives."""


@stored
@dataclass(frozen=True)
class FitColumns(LearntStep):
    """A transformer of scikit-learn that learns from the values of each column.

    It does not matter which row has which value. So it is fitted to sorted columns, and
    is what it is after a fit to the rows.

    Parameters
    ----------
    name, parameters
        Its class, and what it is made with.
    """

    name: str
    parameters: Mapping[str, Any]
    needs_order = True

    @property
    def title(self) -> str:
        """Its name."""
        return self.name

    def learn(self, taught: Taught, at: Index) -> Encoder:
        """Return the transformer with what it learns of these features."""
        values = np.column_stack([_find_values(taught, j) for j in at.tolist()])
        if len(values) == 1:  # two are asked for
            values = np.repeat(values, 2, axis=0)
        given = {**self.parameters}
        if "n_quantiles" in given:  # scikit-learn would warn of fewer rows
            given["n_quantiles"] = min(given["n_quantiles"], len(values))
        parts = KINDS[self.name]
        try:
            made = parts.kind(**given).fit(values)
        except ValueError as error:
            raise InvalidInput(f"{self.name}: {error}") from None
        return FittedColumns(self.name, given, parts.take(made))


def _find_values(taught: Taught, j: int) -> Vector:
    """Return what feature j is in all rows, in order.

    A scaler keeps the order of values; gaps are among them as what fills them.
    """
    features, statistics = taught.features, taught.statistics
    ordered = statistics.ordered[str(features.layout.columns[j])]
    values = (ordered - features.centre[j]) / features.scale[j] + features.offset[j]
    n_gaps = statistics.n_rows - len(ordered)
    filled = np.full(n_gaps, features.missing[j])
    return np.insert(values, np.searchsorted(values, filled), filled)


@stored
@dataclass(frozen=True, eq=False)
class FittedColumns:
    """A transformer of scikit-learn with what it has learnt, which learns no more.

    Attributes
    ----------
    name, parameters
        Its class, and what it was made with.
    learnt
        Numbers of each column: the knots of its splines, or its quantiles.
    """

    name: str
    parameters: Mapping[str, Any]
    learnt: Matrix
    by_block: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """Its name."""
        return self.name

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features that it makes of columns."""
        if self.name == "QuantileTransformer":
            return [f"quantile({column})" for column in columns]
        return [str(name) for name in self._made.get_feature_names_out(list(columns))]

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows."""
        return np.asarray(self._made.transform(X))

    def make_plain(self, columns: Sequence[str] | int) -> Any:
        """Return scikit-learn's transformer, for columns without names."""
        del columns
        return deepcopy(self._made)

    @cached_property
    def _made(self) -> Any:
        parts = KINDS[self.name]
        made = parts.kind(**self.parameters).set_output(transform="default")
        width = self.learnt.shape[1]
        made.fit(np.zeros((max(2, len(self.learnt)), width)))
        parts.put(made, self.learnt)
        return made


@stored
@dataclass(frozen=True, eq=False)
class Beside:
    """Maps of some columns each, side by side.

    Attributes
    ----------
    places
        The columns that each takes.
    parts
        The maps; None leaves columns as they are.
    """

    places: tuple[tuple[int, ...], ...]
    parts: tuple[Any, ...]
    by_block: ClassVar[bool] = True  # those that are not are asked row by row

    @property
    def title(self) -> str:
        """What the maps are called."""
        return " beside ".join(title_of(one) for one in self.parts if one is not None)

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features."""
        named: list[str] = []
        for places, one in self._pairs:
            own = [columns[place] for place in places]
            if one is not None:
                width = encode_rows(one, np.full((1, len(own)), 0.5)).shape[1]
                own = name_features(one, own, n_features=width)
            named += own
        return named

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows."""
        made = []
        for places, one in self._pairs:
            own = np.ascontiguousarray(X[:, list(places)])
            made.append(own if one is None else encode_rows(one, own))
        return np.hstack(made)

    def make_plain(self, columns: Sequence[str] | int) -> Any:
        """Return scikit-learn's ColumnTransformer, for columns without names."""
        del columns
        steps = [
            (
                f"part{index}",
                FunctionTransformer(feature_names_out="one-to-one")
                if one is None
                else make_plain(one, len(places)),
                list(places),
            )
            for index, (places, one) in enumerate(self._pairs)
        ]
        table = ColumnTransformer(steps, sparse_threshold=0.0)
        width = sum(len(places) for places, _ in self._pairs)
        maps = [own for one in self.parts for own in getattr(one, "maps", (one,))]
        # scikit-learn would warn of fewer rows than quantiles.
        sizes = (len(own.learnt) for own in maps if isinstance(own, FittedColumns))
        with np.errstate(all="ignore"):
            table.fit(np.full((max([2, *sizes]), width), 0.5))
        # Fitting has made others of them, which know nothing.
        fitted = {name: step for name, step, _ in steps}
        table.transformers_ = [
            (name, was if isinstance(was, FunctionTransformer) else fitted[name], own)
            for name, was, own in table.transformers_
        ]
        return table

    @property
    def _pairs(self) -> list[tuple[tuple[int, ...], Any]]:
        return list(zip(self.places, self.parts, strict=True))


class Joined(NamedTuple):
    """One map of all features.

    ``crossed`` is that for the rows of the model, where it is another. It takes the
    number of the person after the features.
    """

    encoder: Encoder
    crossed: Encoder | None


def join_maps(taught: Taught) -> Joined:
    """Return one map of all features, as it is learnt, where there is one."""
    described, layout = taught.recipe.described, taught.features.layout
    maps: list[Any] = []
    crossed: list[Any] = []
    if described.looks:
        parts = [
            part
            for group, at in _places_by_group(taught)
            if at.size  # a column in which everything is missing has no feature
            for part in _learn_group(group, taught, at=at)
        ]
        places, own, cross = zip(*parts, strict=True)
        maps.append(Beside(places, own))
        if any(isinstance(one, CrossMeans) for one in cross):
            within = tuple(
                (*place, len(layout)) if isinstance(one, CrossMeans) else place
                for place, one in zip(places, cross, strict=True)
            )
            crossed.append(Beside(within, cross))
    last = [] if described.last is None else [described.last]
    return Joined(chain([*maps, *last]), chain([*crossed, *last]) if crossed else None)


def _places_by_group(taught: Taught) -> list[tuple[Group, Index]]:
    """Return each group with where its features are."""
    found, first = [], 0
    for group in taught.recipe.described.groups:
        own = np.arange(first, first + len(group.columns))
        first += len(group.columns)
        at = np.flatnonzero(np.isin(taught.features.layout.columns, own))
        found.append((group, at))
    return found


def publish(
    fitted: FittedPreprocessing, columns: Sequence[Column], *, encoder: Encoder
) -> tuple[FittedPreprocessing, Encoder]:
    """Return public preprocessing and a joined map, with codes that predictions need.

    ``columns`` are those of the rows that taught them.
    """
    maps = list(encoder.maps) if isinstance(encoder, Chain) else [encoder]
    beside = maps[0]
    assert isinstance(beside, Beside)
    means = {
        places[0]: one
        for places, one in zip(beside.places, beside.parts, strict=True)
        if isinstance(one, CodeMeans)
    }
    fitted, told = publish_means(fitted, columns, means=means)
    parts = tuple(
        told[places[0]] if isinstance(one, CodeMeans) else one
        for places, one in zip(beside.places, beside.parts, strict=True)
    )
    return fitted, chain([replace(beside, parts=parts), *maps[1:]])


def check_maps(encoder: Encoder | None, X: Matrix) -> None:
    """Raise InvalidInput if one of joined maps that should learn nothing does."""
    if isinstance(encoder, Chain):
        for one in encoder.maps:
            check_maps(one, X)
            X = np.asarray(one.encode(X), dtype=np.float64)
    elif isinstance(encoder, Beside):
        for places, one in zip(encoder.places, encoder.parts, strict=True):
            check_maps(one, X[:, list(places)])
    elif encoder is not None and not isinstance(encoder, FittedColumns | CodeMeans):
        check_encoder(encoder, X)


def _learn_group(
    group: Group, taught: Taught, *, at: Index
) -> list[tuple[tuple[int, ...], Encoder | None, Encoder | None]]:
    """Return the maps of a group's features, and the same for the model's own rows.

    Each with the features that it takes; None leaves them as they are.
    """
    if isinstance(group.encode, TargetMeans):
        assert taught.answers is not None
        means: list[tuple[tuple[int, ...], Encoder | None, Encoder | None]] = []
        for j in at.tolist():
            column = int(taught.features.layout.columns[j])
            learnt = learn_means(group.encode, taught.answers, column=column)
            means.append(((j,), *learnt))
        return means
    places = tuple(at.tolist())
    if not group.then:
        return [(places, None, None)]
    first, *rest = group.then
    if isinstance(first, LearntStep):
        first = first.learn(taught, at)
    found = chain([first, *rest])
    return [(places, found, found)]


def _take_knots(made: SplineTransformer) -> Matrix:
    return np.column_stack([one.t for one in made.bsplines_])


def _put_knots(made: SplineTransformer, knots: Matrix) -> None:
    """Put other knots into splines, which may meet where many values are equal."""
    made.bsplines_ = [
        BSpline.construct_fast(
            np.ascontiguousarray(t), one.c, one.k, extrapolate=one.extrapolate
        )
        for t, one in zip(knots.T, made.bsplines_, strict=True)
    ]


def _put_quantiles(made: QuantileTransformer, quantiles: Matrix) -> None:
    made.quantiles_, made.n_quantiles_ = quantiles.copy(), len(quantiles)
    made.references_ = np.linspace(0, 1, len(quantiles), endpoint=True)


class _Kind(NamedTuple):
    """A transformer, and how what it has learnt is taken from it and put back."""

    kind: type
    take: Callable[[Any], Matrix]
    put: Callable[[Any, Matrix], None]


KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "SplineTransformer": _Kind(SplineTransformer, _take_knots, _put_knots),
        "QuantileTransformer": _Kind(
            QuantileTransformer, lambda made: made.quantiles_.copy(), _put_quantiles
        ),
    }
)


def read_learnt_splines(step: SplineTransformer, n_columns: int) -> FitColumns:
    """Return splines whose knots are learnt."""
    del n_columns
    if step.extrapolation in ("error", "periodic"):
        raise Unsupported(
            f"SplineTransformer(extrapolation={step.extrapolation!r}) with knots that "
            "are learnt would refuse rows when people leave; use 'constant', 'linear' "
            "or 'continue', or give the knots: knots=[[0, 20], [50, 40], [100, 60]]"
        )
    for name, wanted in (("sparse_output", False), ("handle_missing", "error")):
        if getattr(step, name, wanted) != wanted:
            raise Unsupported(
                f"SplineTransformer({name}={getattr(step, name)!r}); leave {name} at "
                "its default"
            )
    if step.knots not in ("quantile", "uniform"):
        raise InvalidInput(
            f"SplineTransformer(knots={step.knots!r}); use 'quantile' or 'uniform', or "
            "give them"
        )
    return FitColumns(
        "SplineTransformer",
        {
            "n_knots": int(step.n_knots),
            "degree": int(step.degree),
            "knots": str(step.knots),
            "extrapolation": str(step.extrapolation),
            "include_bias": bool(step.include_bias),
        },
    )


def read_quantiles(step: QuantileTransformer, n_columns: int) -> FitColumns:
    """Return a map to ranks that is learnt from all rows."""
    del n_columns
    if step.subsample is not None:
        raise Unsupported(
            f"QuantileTransformer(subsample={step.subsample!r}) may learn from rows "
            "that it draws; set subsample=None, which learns from all of them"
        )
    if step.ignore_implicit_zeros:
        raise Unsupported(
            "QuantileTransformer(ignore_implicit_zeros=True); leave it at its default"
        )
    if step.output_distribution not in ("uniform", "normal"):
        raise InvalidInput(
            f"QuantileTransformer(output_distribution={step.output_distribution!r}); "
            "use 'uniform' or 'normal'"
        )
    return FitColumns(
        "QuantileTransformer",
        {
            "n_quantiles": int(step.n_quantiles),
            "output_distribution": str(step.output_distribution),
            "subsample": None,
        },
    )
