# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's transformers that learn nothing, as maps of rows.

Their ``fit`` looks at the number of columns alone, so a name and parameters say all
that there is of them. ``read_map`` reads one that a user gives, and refuses parameters
that make it learn; ``SklearnMap`` makes the transformer again and applies it.

Each number of a result is computed from its row by itself: by scikit-learn where it
works entry by entry, and row by row here where it would hand a block to BLAS, which
rounds a row among others otherwise than alone.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import comb, isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    PolynomialFeatures,
    SplineTransformer,
)
from sklearn.random_projection import GaussianRandomProjection

from ..core.arrays import Matrix, Vector
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .encoder import (
    Encoder,
    by_block,
    count_features,
    is_encoder,
    name_features,
    title_of,
)

# A model of so many features has a Hessian of 3 GB.
MOST_FEATURES = 20_000
SKIPPED = (None, "passthrough")  # steps that do nothing
# Functions of NumPy beside its ufuncs that take entries one by one, and their
# parameters, which are plain numbers.
ELEMENTWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "clip": ("a_min", "a_max", "min", "max"),
        "digitize": ("bins", "right"),
        "nan_to_num": ("nan", "posinf", "neginf"),
        "round": ("decimals",),
    }
)


@stored
@dataclass(frozen=True, eq=False)
class SklearnMap:
    """A transformer of scikit-learn that learns nothing.

    Attributes
    ----------
    name, parameters
        Its class, and what it is made with.
    """

    name: str
    parameters: Mapping[str, Any]
    by_block: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """Its name, with the function that it applies if it is for that."""
        function = self.parameters.get("func")
        return self.name if function is None else str(function).rpartition(".")[2]

    @property
    def keeps_gaps(self) -> bool:
        """Whether a value that is missing stays missing, and the others do not care."""
        return self.name == "FunctionTransformer" and self.title != "digitize"

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features that it makes of columns."""
        if self.name in ALIKE:
            return [f"{self.title.lower()}({column})" for column in columns]
        made = self.fitted(len(columns))
        return [str(name) for name in made.get_feature_names_out(list(columns))]

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows."""
        made = self.fitted(X.shape[1])
        try:
            with np.errstate(all="ignore"):
                return np.asarray(APPLY.get(self.name, _transform)(made, X))
        except ValueError as error:
            raise InvalidInput(f"{self.title}: {error}") from None

    def fitted(self, n_columns: int) -> Any:
        """Return the transformer for rows of so many columns."""
        if n_columns not in self._fitted:
            try:
                self._fitted[n_columns] = self._fit(n_columns)
            except (TypeError, ValueError, LookupError) as error:
                if isinstance(error, InvalidInput):
                    raise
                raise InvalidInput(f"{self.title}: {error}") from None
        return self._fitted[n_columns]

    def _fit(self, n_columns: int) -> Any:
        """Return the transformer, which looks at the number of columns alone."""
        given = dict(self.parameters)
        if self.name == "FunctionTransformer":
            given["func"] = find_function(given["func"])
            given["feature_names_out"] = "one-to-one"
        elif self.name == "SplineTransformer":
            given["knots"] = knots = np.array(given["knots"])
            if knots.shape[1:] != (n_columns,):
                raise InvalidInput(
                    f"SplineTransformer: knots have shape {knots.shape}, and there are "
                    f"{n_columns} columns; give one line for each knot, and one number "
                    "in it for each column"
                )
        elif "degree" in given:
            _require_width(given, n_columns)
        made: Any = MAPS[self.name][0](**given)
        # Two rows, because splines ask for so many.
        return made.set_output(transform="default").fit(np.zeros((2, n_columns)))

    def make_plain(self, columns: Sequence[str] | int) -> Any:
        """Return scikit-learn's transformer, for columns with names or so many."""
        if isinstance(columns, int):
            return deepcopy(self.fitted(columns))
        from pandas import DataFrame

        made = deepcopy(self.fitted(len(columns)))
        return made.fit(DataFrame(np.zeros((2, len(columns))), columns=list(columns)))

    @cached_property
    def _fitted(self) -> dict[int, Any]:
        return {}

    def __repr__(self) -> str:
        given = ", ".join(
            f"{name}={value!r}" for name, value in self.parameters.items()
        )
        return f"{self.name}({given})"


@stored
@dataclass(frozen=True, eq=False)
class Chain:
    """Maps of rows, one after the other."""

    maps: tuple[Any, ...]

    @property
    def title(self) -> str:
        """What the maps are called."""
        return " and ".join(title_of(one) for one in self.maps)

    @property
    def by_block(self) -> bool:
        """Whether all of them are."""
        return all(by_block(one) for one in self.maps)

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features that the last of them makes."""
        names = list(columns)
        for one in self.maps:
            width = self._width(one, len(names))
            names = name_features(one, names, n_features=width)
        return names

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows."""
        for one in self.maps:
            X = np.asarray(one.encode(X), dtype=np.float64)
        return X

    def make_plain(self, columns: Sequence[str] | int) -> Any:
        """Return scikit-learn's transformers in a Pipeline."""
        steps, given = [], columns
        for index, one in enumerate(self.maps):
            steps.append((f"map{index}", make_plain(one, given)))
            width = given if isinstance(given, int) else len(given)
            given = self._width(one, width)
        return Pipeline(steps)

    @staticmethod
    def _width(encoder: Encoder, n_columns: int) -> int:
        return count_features(encoder, np.empty((0, 0)), n_columns=n_columns)


def unfold(step: Any) -> list[Any]:
    """Return the steps of a Pipeline, or a step; a norm of terms is one by itself."""
    if type(step) is Pipeline:
        steps = [one for _, one in step.steps if one not in SKIPPED]
        return [own for one in steps for own in unfold(one)]
    given: Any = step
    if type(step) is TfidfTransformer and given.use_idf and given.norm is not None:
        norm = Normalizer(norm=given.norm)
        return [clone(given).set_params(norm=None), norm]
    return [step]


def learns(step: Any) -> bool:
    """Whether a step of scikit-learn learns from rows, or may do so."""
    if step in SKIPPED or step == "drop":
        return False
    if type(step) is Pipeline:
        return any(learns(one) for _, one in step.steps)
    if type(step) is ColumnTransformer:
        parts = [one for _, one, _ in step.transformers]
        return any(map(learns, [*parts, step.remainder]))
    return read_map(step) is None


def chain(maps: Sequence[Encoder]) -> Encoder:
    """Return these maps, of which there is at least one, as one."""
    return maps[0] if len(maps) == 1 else Chain(tuple(maps))


def read_map(step: Any) -> Encoder | None:
    """Return a step as a map of rows; None if it learns from rows, or may do so."""
    if is_encoder(step):
        return step
    if type(step) is TfidfTransformer and not step.use_idf and step.norm is not None:
        return read_map(Normalizer(norm=step.norm)) if not step.sublinear_tf else None
    if type(step) is KBinsDiscretizer:
        raise _refuse_bins(step)
    known = MAPS.get(type(step).__name__)
    if known is None or type(step) is not known[0]:
        return None
    if isinstance(step, SplineTransformer) and isinstance(step.knots, str):
        return None
    return SklearnMap(type(step).__name__, known[1](step))


def make_plain(encoder: Encoder, columns: Sequence[str] | int) -> Any:
    """Return a map as a transformer, for columns with these names, or for so many."""
    made = getattr(encoder, "make_plain", None)
    return FunctionTransformer(encoder.encode) if made is None else made(columns)


def find_function(name: str) -> Any:
    """Return a function of NumPy or SciPy by its name, if it takes entries one by one.

    Raises InvalidInput for any other name: a file may hold anything.
    """
    module, _, word = name.rpartition(".")
    found = getattr({"numpy": np, "scipy.special": special}.get(module), word, None)
    if not _is_elementwise(found, word):
        raise InvalidInput(
            f"{name!r} is no function of NumPy or scipy.special of one number; use one "
            "such as 'numpy.log1p'"
        )
    return found


def _is_elementwise(function: Any, word: str) -> bool:
    """Whether a function of this name makes one number of each."""
    if isinstance(function, np.ufunc):
        return function.nin == 1 and function.nout == 1
    return word in ELEMENTWISE and function is getattr(np, word)


def _name_function(function: Any) -> str | None:
    """Return the name by which a function is found again; None for any other."""
    word = getattr(function, "__name__", "")
    for name, module in (("numpy", np), ("scipy.special", special)):
        if getattr(module, word, None) is function and _is_elementwise(function, word):
            return f"{name}.{word}"
    return None


def _read_function(step: FunctionTransformer) -> dict[str, Any]:
    name = _name_function(np.positive if step.func is None else step.func)
    if name is None:
        called = getattr(step.func, "__name__", repr(step.func))
        why = "no file and no certificate can hold its code"
        if getattr(np, called, None) is step.func:
            why = "it does not make one number of each"
        own = called if called.isidentifier() else "function"
        raise Unsupported(
            f"FunctionTransformer({called}): {why}; use a function of NumPy such as "
            "np.log1p, or make it a map of rows, a frozen dataclass that whoever loads "
            "the model imports: @expunge.stored @dataclass(frozen=True) class "
            f"{own.title().replace('_', '')}: encode = staticmethod({own})"
        )
    word, given = name.rpartition(".")[2], dict(step.kw_args or {})
    allowed = ELEMENTWISE.get(word, ())
    for key, value in given.items():
        if key not in allowed:
            raise Unsupported(
                f"FunctionTransformer({word}, kw_args={{{key!r}: ...}}); "
                + (f"give {', '.join(allowed)}" if allowed else "leave kw_args out")
            )
        given[key] = _read_numbers(value) if key == "bins" else _read_number(key, value)
    if word == "digitize" and "bins" not in given:
        raise InvalidInput(
            "FunctionTransformer(np.digitize) without bins; give them: "
            "kw_args={'bins': [18, 65]}"
        )
    return {"func": name, "kw_args": given}


def _read_number(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | np.bool):
        return value if value is None else bool(value)
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real) or not isfinite(value):
        raise InvalidInput(f"{name}={value!r}; give a number")
    return float(value)


def _read_numbers(values: Any) -> list[Any]:
    """Return a list of numbers, or of such lists, as plain values."""
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        raise InvalidInput(f"{values!r}; give a list of numbers")
    plain: list[Any] = array.tolist()
    return plain


def _read_norm(step: Normalizer) -> dict[str, Any]:
    if step.norm not in ("l1", "l2", "max"):
        raise InvalidInput(f"Normalizer(norm={step.norm!r}); use 'l1', 'l2' or 'max'")
    return {"norm": step.norm}


def _read_threshold(step: Binarizer) -> dict[str, Any]:
    return {"threshold": float(step.threshold)}


def _read_polynomial(step: PolynomialFeatures) -> dict[str, Any]:
    degree = step.degree
    ends = (0, degree) if isinstance(degree, Integral) else tuple(degree)
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1] or not ends[1]:
        raise InvalidInput(
            f"PolynomialFeatures(degree={degree!r}); give a whole number such as 2"
        )
    return {
        "degree": [int(one) for one in ends],
        "interaction_only": bool(step.interaction_only),
        "include_bias": bool(step.include_bias),
    }


def count_polynomials(parameters: Mapping[str, Any], n_columns: int) -> int:
    """Return how many features PolynomialFeatures makes of columns."""
    low, high = parameters["degree"]
    single = parameters["interaction_only"]
    counts = (
        comb(n_columns, degree) if single else comb(n_columns + degree - 1, degree)
        for degree in range(max(low, 1), high + 1)
    )
    return sum(counts) + bool(parameters["include_bias"])


def _require_width(parameters: dict[str, Any], n_columns: int) -> None:
    """Raise InvalidInput for more features than a model may have."""
    low, high = parameters["degree"]
    width = count_polynomials(parameters, n_columns)
    if width > MOST_FEATURES:
        raise InvalidInput(
            f"PolynomialFeatures of degree {high} makes {width:,} features of "
            f"{n_columns} columns, and {MOST_FEATURES:,} is the most; take a lower "
            "degree, interaction_only=True, or fewer columns in a ColumnTransformer"
        )
    parameters["degree"] = (low, high)


def _read_splines(step: SplineTransformer) -> dict[str, Any]:
    if step.extrapolation == "error":
        raise Unsupported(
            "SplineTransformer(extrapolation='error') would refuse rows that come "
            "later; use 'constant', 'linear', 'continue' or 'periodic'"
        )
    for name, wanted in (("sparse_output", False), ("handle_missing", "error")):
        if getattr(step, name, wanted) != wanted:
            raise Unsupported(
                f"SplineTransformer({name}={getattr(step, name)!r}); leave {name} at "
                "its default"
            )
    return {
        "knots": _read_numbers(step.knots),
        "degree": int(step.degree),
        "extrapolation": str(step.extrapolation),
        "include_bias": bool(step.include_bias),
    }


def _read_fourier(step: RBFSampler) -> dict[str, Any]:
    if isinstance(step.gamma, str):
        raise Unsupported(
            f"RBFSampler(gamma={step.gamma!r}) learns from the variance of the rows; "
            "give a number: gamma=1.0"
        )
    return {"gamma": float(step.gamma)} | _read_random(step)


def _read_skewed(step: SkewedChi2Sampler) -> dict[str, Any]:
    return {"skewedness": float(step.skewedness)} | _read_random(step)


def _read_random(step: Any) -> dict[str, Any]:
    """Return how many random features there are, and their seed."""
    name = type(step).__name__
    if not isinstance(step.n_components, Integral):
        raise Unsupported(
            f"{name}(n_components={step.n_components!r}) goes by how many rows there "
            "are; give a whole number: n_components=100"
        )
    if not isinstance(step.random_state, Integral):
        raise Unsupported(
            f"{name} without a seed draws other features each time; give a whole "
            "number: random_state=0"
        )
    return {
        "n_components": int(step.n_components),
        "random_state": int(step.random_state),
    }


def _refuse_bins(step: KBinsDiscretizer) -> Unsupported:
    return Unsupported(
        f"KBinsDiscretizer(strategy={step.strategy!r}) learns its edges from the rows; "
        "give them: FunctionTransformer(np.digitize, kw_args={'bins': [18, 65]}), and "
        "OneHotEncoder() after it for one feature each; or let expunge.Bins() learn "
        "them, and forget"
    )


def _transform(made: Any, X: Matrix) -> Matrix:
    """Return what scikit-learn makes of rows, entry by entry."""
    return np.asarray(made.transform(X))


def _apply_function(made: FunctionTransformer, X: Matrix) -> Matrix:
    return np.asarray(made.func(X, **(made.kw_args or {})), dtype=np.float64)


def _binarise(made: Binarizer, X: Matrix) -> Matrix:
    return np.asarray(made.threshold < X, dtype=np.float64)


def _normalise(made: Normalizer, X: Matrix) -> Matrix:
    """Return rows over their norms, each computed by itself."""
    length = NORMS[made.norm]
    norms = np.array([length(row) for row in X])
    # scikit-learn takes what is shorter for zero.
    norms[norms < 10.0 * np.finfo(np.float64).eps] = 1.0
    return np.asarray(X / norms[:, None])


def _project(X: Matrix, W: NDArray[np.float64]) -> Matrix:
    """Return X W, row by row: BLAS rounds a row in a block otherwise."""
    return np.array([row @ W for row in X]).reshape(len(X), W.shape[1])


def _sample_fourier(made: RBFSampler, X: Matrix) -> Matrix:
    found = np.cos(_project(X, made.random_weights_) + made.random_offset_)
    return np.asarray(found * (2.0 / made.n_components) ** 0.5)


def _sample_skewed(made: SkewedChi2Sampler, X: Matrix) -> Matrix:
    if (X <= -made.skewedness).any():
        raise InvalidInput(
            f"SkewedChi2Sampler(skewedness={made.skewedness:g}) takes numbers above "
            f"{-made.skewedness:g} alone; raise skewedness, or leave such rows out"
        )
    found = _project(np.log(X + made.skewedness), made.random_weights_)
    found = np.cos(found + made.random_offset_)
    return np.asarray(found * (np.sqrt(2.0) / np.sqrt(made.n_components)))


def _project_randomly(made: GaussianRandomProjection, X: Matrix) -> Matrix:
    return _project(X, made.components_.T)


NORMS: Mapping[str, Callable[[Vector], float]] = MappingProxyType(
    {
        "l1": lambda row: float(np.abs(row).sum()),
        "l2": lambda row: float(np.sqrt((row * row).sum())),
        "max": lambda row: float(np.abs(row).max()),
    }
)
# The class of each map, and what reads one that a user gives.
MAPS: Mapping[str, tuple[type, Callable[[Any], dict[str, Any]]]] = MappingProxyType(
    {
        kind.__name__: (kind, reader)
        for kind, reader in (
            (Normalizer, _read_norm),
            (Binarizer, _read_threshold),
            (FunctionTransformer, _read_function),
            (PolynomialFeatures, _read_polynomial),
            (SplineTransformer, _read_splines),
            (RBFSampler, _read_fourier),
            (SkewedChi2Sampler, _read_skewed),
            (GaussianRandomProjection, _read_random),
        )
    }
)
# What applies one, where that is not scikit-learn.
APPLY: Mapping[str, Callable[[Any, Matrix], Matrix]] = MappingProxyType(
    {
        "Normalizer": _normalise,
        "Binarizer": _binarise,
        "FunctionTransformer": _apply_function,
        "RBFSampler": _sample_fourier,
        "SkewedChi2Sampler": _sample_skewed,
        "GaussianRandomProjection": _project_randomly,
    }
)
# Those that make one feature of each column.
ALIKE = frozenset({"Normalizer", "Binarizer", "FunctionTransformer"})
