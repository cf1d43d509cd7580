# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's transformers as descriptions, and back as fitted transformers.

``describe`` reads an unfitted transformer: a single one, a Pipeline, or a
ColumnTransformer of them. Transformers are recognised by their exact class, because a
subclass may do something else; a setting without a counterpart is refused, never
approximated.

``make_transformer`` goes the other way: a fitted ColumnTransformer that gives the same
features in the same order, with nothing in it but what transforming needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from numbers import Integral
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.utils._indexing import _get_column_indices

from ..exceptions import InvalidInput, Unsupported
from .automatic import guess_preprocessing
from .bins import MOST_BINS, guess_quantum
from .columns import (
    as_frame,
    extend_table,
    require_dense,
    take_column,
    take_rows,
    to_numbers,
)
from .description import (
    Bins,
    DatePart,
    FillGaps,
    FitQuantiles,
    FitRange,
    FitSize,
    Group,
    MadeColumns,
    OneHot,
    Ordinal,
    Preprocessing,
    Scale,
    Source,
    Standardise,
    TargetMeans,
    WeighTerms,
    read_automatic,
)
from .encoder import (
    CHECKED,
    Encoder,
    check_encoder,
    count_features,
    find_bits,
    name_features,
    takes_values,
    title_of,
)
from .hashed import read_text_column
from .learnt_maps import FitColumns, read_learnt_splines, read_quantiles
from .sklearn_maps import read_map, unfold

Described = (
    FillGaps | Scale | OneHot | Ordinal | Bins | DatePart | TargetMeans | FitColumns
)
MISSING = "missing_value"  # what scikit-learn fills text with, unless told otherwise
WORKING = (
    "leave it out, or make it a map of rows of your own (expunge.Encoder) if it learns "
    "nothing; what can be used are StandardScaler, MinMaxScaler, MaxAbsScaler, "
    "RobustScaler, TfidfTransformer, OneHotEncoder, OrdinalEncoder with declared "
    "categories, SimpleImputer, expunge.Bins, and PolynomialFeatures and others that "
    "learn nothing"
)
_PROJECT = (
    "leave it out, because the penalty bounds what many columns do, or project with "
    "GaussianRandomProjection(n_components=..., random_state=0)"
)
_CHOOSE = "leave it out, and give the estimator l1_ratio=0.5, which chooses and forgets"
_IMPUTE = "use SimpleImputer(add_indicator=True)"
# What does nearly the same and forgets.
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "PowerTransformer": "use FunctionTransformer(np.arcsinh), or expunge.Bins()",
        "TargetEncoder": "use expunge.TargetMeans(), whose folds go by person",
        "LabelBinarizer": "use OneHotEncoder()",
        "LabelEncoder": "use OneHotEncoder(); the classes of y need no encoder",
        "KNNImputer": _IMPUTE,
        "IterativeImputer": _IMPUTE,
        "MissingIndicator": _IMPUTE,
        "PCA": _PROJECT,
        "IncrementalPCA": _PROJECT,
        "TruncatedSVD": _PROJECT,
        "FastICA": _PROJECT,
        "FactorAnalysis": _PROJECT,
        "SparseRandomProjection": "use GaussianRandomProjection",
        "Nystroem": "use RBFSampler(gamma=1.0, random_state=0)",
        "KernelPCA": "use RBFSampler(gamma=1.0, random_state=0)",
        "PolynomialCountSketch": "use PolynomialFeatures(2)",
        "AdditiveChi2Sampler": "use SkewedChi2Sampler(random_state=0)",
        "SelectKBest": _CHOOSE,
        "SelectPercentile": _CHOOSE,
        "SelectFromModel": _CHOOSE,
        "RFE": _CHOOSE,
        "VarianceThreshold": "leave it out: constant columns do no harm",
        "FeatureUnion": "use a ColumnTransformer that names the columns in each part",
    }
)


def describe(preprocessing: Any, X: Any, *, rows_kept: bool = True) -> Preprocessing:
    """Return what a transformer does with the columns of X.

    Parameters
    ----------
    preprocessing
        A transformer, which is not fitted here, "auto", or a description, which is
        returned.
    X
        The table, for its columns, and for its rows where something is guessed.
    rows_kept
        Whether the model keeps its rows.
    """
    if isinstance(preprocessing, Preprocessing):
        return preprocessing
    maps = _Maps()
    if not hasattr(X, "shape"):
        X = np.asarray(X, dtype=object)
    names = _column_names(X)
    automatic = read_automatic(preprocessing)
    if automatic is not None:
        require_dense(X)
        described = guess_preprocessing(
            X, names, maps.add, rows_kept=rows_kept, pairs=automatic.pairs
        )
        return replace(described, made=tuple(maps.made))
    groups = [
        group
        for group in _describe_groups(preprocessing, X, columns=tuple(names), maps=maps)
        if group.columns
    ]
    if not groups:
        raise InvalidInput("preprocessing uses no column; name some, or leave it out")
    made = tuple(maps.made)
    settled = tuple(_settle_quanta(group, X, made) for group in groups)
    guessed = settled != tuple(groups)
    return Preprocessing(settled, quanta_guessed=guessed, made=made)


class _Maps:
    """The columns that maps make, as they are found."""

    def __init__(self) -> None:
        self.made: list[MadeColumns] = []

    def add(self, encoder: Encoder, columns: tuple[Source, ...], X: Any) -> Group:
        """Return what a map makes of these columns, one that learns refused."""
        rows = np.empty((0, len(columns)))
        if not takes_values(encoder):
            some = take_rows(X, np.arange(min(CHECKED, X.shape[0])))
            table = extend_table(some, self.made)
            given = [to_numbers(take_column(table, one), one) for one in columns]
            rows = np.column_stack(given)
            rows = rows[~np.isnan(rows).any(axis=1)]
        if len(rows) > 1:
            check_encoder(encoder, rows)
        known = {str(name) for name in _column_names(X)}
        known |= {name for one in self.made for name in one.names}
        names = []
        width = count_features(encoder, rows, n_columns=len(columns))
        for name in name_features(encoder, list(map(str, columns)), n_features=width):
            while name in known:
                name += "_"
            known.add(name)
            names.append(name)
        bits = find_bits(encoder, len(columns))
        self.made.append(MadeColumns(encoder, columns, tuple(names), bits))
        return Group(tuple(names))


def _settle_quanta(group: Group, X: Any, made: Sequence[MadeColumns]) -> Group:
    """Return the group with the quanta of its bins guessed, if nobody gave them."""
    encode = group.encode
    if not isinstance(encode, Bins) or encode.quantum is not None:
        return group
    table = extend_table(X, made)
    columns = [to_numbers(take_column(table, one), one) for one in group.columns]
    quanta = tuple(guess_quantum(one[~np.isnan(one)], encode.n_bins) for one in columns)
    return replace(group, encode=replace(encode, quantum=quanta))


def _column_names(X: Any) -> list[Source]:
    """Return how the columns of a table are found: by name if they have names."""
    frame = as_frame(X)
    if frame is not None:
        names: list[Source] = list(frame.columns)
        named = all(isinstance(name, str) for name in names)
        return names if named else list(range(len(names)))
    if np.ndim(X) != 2:
        raise InvalidInput(
            f"X has shape {np.shape(X)}; it must be (rows, columns), even for one row"
        )
    return list(range(np.shape(X)[1]))


def _describe_groups(
    step: Any, X: Any, *, columns: tuple[Source, ...], maps: _Maps
) -> list[Group]:
    """Return the groups of a transformer of these columns."""
    if isinstance(step, str):
        return [] if step == "drop" else [Group(columns)]
    if type(step) is Pipeline or len(unfold(step)) > 1:
        return _describe_pipeline(unfold(step), X, columns=columns, maps=maps)
    if type(step) is ColumnTransformer:
        return _describe_column_transformer(step, X, columns=columns, maps=maps)
    encoder = read_text_column(step, len(columns)) or read_map(step)
    if encoder is not None:
        return [maps.add(encoder, columns, X)] if columns else []
    return [_add_step(Group(columns), _describe_step(step, len(columns)), given=step)]


def _describe_pipeline(
    steps: Sequence[Any], X: Any, *, columns: tuple[Source, ...], maps: _Maps
) -> list[Group]:
    """Return the groups of the first step, with the later ones added to each."""
    if not steps:
        return [Group(columns)]
    groups = _describe_groups(steps[0], X, columns=columns, maps=maps)
    for step in steps[1:]:
        encoder = read_map(step)
        if encoder is not None:
            if any(group != Group(group.columns) for group in groups):
                means = isinstance(groups[0].encode, TargetMeans)
                if means or len(groups) > 1:
                    raise Unsupported(
                        f"{title_of(encoder)} after a step that learns, and before "
                        "another step; put it before the steps that learn, or last of "
                        "all, after the ColumnTransformer"
                    )
                then = (*groups[0].then, encoder)
                groups = [replace(groups[0], then=then)]
                continue
            given = tuple(source for group in groups for source in group.columns)
            groups = [maps.add(encoder, given, X)]
            continue
        if type(step) in (Pipeline, ColumnTransformer):
            raise Unsupported(
                f"{type(step).__name__} after another step; put the ColumnTransformer "
                "first, with what its columns go through inside it"
            )
        groups = [
            _add_step(group, _describe_step(step, len(group.columns)), given=step)
            for group in groups
        ]
    return groups


def _describe_column_transformer(
    table: ColumnTransformer, X: Any, *, columns: tuple[Source, ...], maps: _Maps
) -> list[Group]:
    """Return the groups of a ColumnTransformer of all columns."""
    if columns != tuple(_column_names(X)):
        raise Unsupported(
            "a ColumnTransformer inside another; name the columns in one of them"
        )
    _require_defaults(table, transformer_weights=None)
    groups: list[Group] = []
    used: set[int] = set()
    for _, step, key in table.transformers:
        indices = _get_column_indices(X, key(X) if callable(key) else key)
        used |= set(indices)
        chosen = tuple(columns[index] for index in indices)
        if chosen:
            groups += _describe_groups(step, X, columns=chosen, maps=maps)
    rest = tuple(c for index, c in enumerate(columns) if index not in used)
    if rest:
        groups += _describe_groups(table.remainder, X, columns=rest, maps=maps)
    return groups


def _describe_step(step: Any, n_columns: int) -> Described:
    reader = READERS.get(type(step))
    if reader is None:
        raise _refuse_step(step)
    described: Described = reader(step, n_columns)
    return described


def _refuse_step(step: Any) -> Unsupported:
    """Return the error about what is no step, with what to take instead."""
    name = type(step).__name__
    if isinstance(step, type):
        return Unsupported(
            f"{step.__name__} is a class; make one: {step.__name__}(...)"
        )
    if hasattr(step, "predict"):
        return Unsupported(
            f"{name} as preprocessing: it predicts; give the steps before it alone, or "
            "adopt the fitted pipeline with expunge.from_sklearn"
        )
    if callable(step) and not hasattr(step, "transform"):
        return Unsupported(
            f"a function ({getattr(step, '__name__', name)}) as preprocessing; give "
            "FunctionTransformer(np.log1p) or the like for a function of NumPy, and "
            "expunge.FixedMap(function) for an encoder of texts or images"
        )
    return Unsupported(
        f"{name} as preprocessing: how its features follow rows that leave is not "
        f"known here; {INSTEAD.get(name, WORKING)}"
    )


def _add_step(group: Group, step: Described, *, given: Any) -> Group:
    """Return the group with one more step, if the order is one we can follow."""
    name = type(given).__name__
    if group.then or isinstance(group.encode, TargetMeans):
        last = title_of(group.then[-1]) if group.then else "TargetMeans"
        raise Unsupported(
            f"{name} after {last}, whose result no sums tell of; put it before, or "
            "leave it out"
        )
    if isinstance(step, TargetMeans):
        if group != Group(group.columns):
            raise Unsupported(
                "TargetMeans after another step; give it the columns as they are: a "
                "missing value is a category of its own"
            )
        return replace(group, encode=step)
    if isinstance(step, FitColumns):
        return _add_learnt(group, step)
    if isinstance(step, Bins) and group == Group(group.columns):
        return replace(group, encode=step)
    if isinstance(step, Bins) or isinstance(group.encode, Bins):
        raise Unsupported(
            "Bins with another step for the same columns; give it the columns as "
            "they are, and list them once more to scale them too"
        )
    if isinstance(step, DatePart):
        if group != Group(group.columns):
            raise _wrong_order(name)
        one_hot = step.one_hot(len(group.columns))
        return replace(group, encode=one_hot, part=step.part)
    if isinstance(step, OneHot | Ordinal):
        first = group.encode is None and group.scale is None
        if not first or (group.fill is not None and isinstance(step, Ordinal)):
            raise _wrong_order(name)
        if group.fill is not None and group.fill.indicator:
            raise Unsupported(
                "SimpleImputer(add_indicator=True) before OneHotEncoder; leave "
                "add_indicator out: missing values are a category of their own"
            )
        fill = group.fill
        if fill is not None and fill.strategy == "constant" and fill.value is None:
            fill = replace(fill, value=MISSING)
        return replace(group, encode=step, fill=fill)
    if isinstance(step, FillGaps):
        if isinstance(group.scale, WeighTerms):
            raise Unsupported(f"{name} after TfidfTransformer: counts have no gaps")
        if group.fill is not None or isinstance(group.encode, OneHot):
            raise _wrong_order(name)
        return replace(group, fill=step, scale_first=group.scale is not None)
    counted = isinstance(step, WeighTerms)
    if counted and (group.fill is not None or group.encode is not None):
        raise Unsupported(f"{name} after another step; it takes columns of counts")
    if group.scale is not None or group.scale_first:
        raise _wrong_order(name)
    return replace(group, scale=step)


def _add_learnt(group: Group, step: FitColumns) -> Group:
    """Return the group with a map that is learnt from the values of its columns."""
    if group.encode is not None or isinstance(group.scale, WeighTerms):
        raise Unsupported(
            f"{step.name} after a step that makes categories, bins or weights of "
            "terms; it takes columns of numbers, filled or scaled"
        )
    if group.fill is not None and group.fill.indicator:
        raise Unsupported(
            f"SimpleImputer(add_indicator=True) before {step.name}; leave "
            "add_indicator out"
        )
    return replace(group, then=(step,))


def _wrong_order(name: str) -> Unsupported:
    return Unsupported(
        f"{name} at this place; columns may be filled (SimpleImputer), then encoded "
        "(OneHotEncoder, OrdinalEncoder first), then scaled, each once"
    )


def _require_defaults(step: Any, **wanted: Any) -> None:
    """Refuse settings that are not what is given here."""
    for name, value in wanted.items():
        given = getattr(step, name)
        same = given is value or given == value
        if not same and not (given != given and value != value):
            raise Unsupported(
                f"{type(step).__name__}({name}={given!r}) has no counterpart here; "
                f"leave {name} at its default"
            )


def _read_imputer(step: Any, n_columns: int) -> FillGaps:
    del n_columns
    _require_defaults(step, missing_values=np.nan, keep_empty_features=False)
    if step.strategy not in ("mean", "median", "most_frequent", "constant"):
        raise Unsupported(
            f"SimpleImputer(strategy={step.strategy!r}); use 'mean', 'median', "
            "'most_frequent' or 'constant'"
        )
    value = step.fill_value if step.strategy == "constant" else None
    return FillGaps(step.strategy, value, bool(step.add_indicator))


def _read_standard(step: Any, n_columns: int) -> Standardise:
    del n_columns
    return Standardise(bool(step.with_mean), bool(step.with_std))


def _read_min_max(step: Any, n_columns: int) -> FitRange:
    del n_columns
    _refuse_clip(step)
    low, high = map(float, step.feature_range)
    if not low < high:
        raise InvalidInput(
            f"MinMaxScaler(feature_range={step.feature_range}); the first must be "
            "below the second"
        )
    return FitRange(low, high)


def _refuse_clip(step: Any) -> None:
    """Refuse what is not linear in the rows, and say what does it last of all."""
    if getattr(step, "clip", False):
        raise Unsupported(
            f"{type(step).__name__}(clip=True) is not linear in the rows; leave clip "
            "out, and let the last step of all be FunctionTransformer(np.clip, "
            "kw_args={'a_min': 0, 'a_max': 1})"
        )


def _read_max_abs(step: Any, n_columns: int) -> FitSize:
    del n_columns
    _refuse_clip(step)
    return FitSize()


def _read_robust(step: Any, n_columns: int) -> FitQuantiles:
    del n_columns
    low, high = map(float, step.quantile_range)
    if not 0.0 <= low <= high <= 100.0:
        raise InvalidInput(
            f"RobustScaler(quantile_range={step.quantile_range}); give two numbers "
            "from 0 to 100, the smaller first"
        )
    unit = 1.0
    if step.unit_variance:
        unit = float(norm.ppf(high / 100.0) - norm.ppf(low / 100.0))
        if not 0.0 < unit < inf:
            raise InvalidInput(
                f"RobustScaler(quantile_range={step.quantile_range}, "
                "unit_variance=True); of a normal distribution these quantiles are "
                "equal or infinite; give others, or leave unit_variance out"
            )
    median, width = bool(step.with_centering), bool(step.with_scaling)
    return FitQuantiles(median, width, low, high, unit)


def _read_terms(step: Any, n_columns: int) -> WeighTerms:
    del n_columns
    if step.sublinear_tf:
        raise Unsupported(
            "TfidfTransformer(sublinear_tf=True); leave it out, and put "
            "FunctionTransformer(np.log1p) before"
        )
    _require_defaults(step, use_idf=True)
    if not step.smooth_idf:
        raise Unsupported(
            "TfidfTransformer(smooth_idf=False): a term that nobody has any more would "
            "have an infinite weight; leave smooth_idf at its default"
        )
    return WeighTerms()


def _read_one_hot(step: Any, n_columns: int) -> OneHot:
    if not (step.drop is None or step.drop in ("first", "if_binary")):
        raise Unsupported(
            f"OneHotEncoder(drop={step.drop!r}); use None, 'first' or 'if_binary'"
        )
    least, most = step.min_frequency, step.max_categories
    return OneHot(
        _read_categories(step, n_columns),
        step.handle_unknown,
        int(least) if isinstance(least, Integral) else least,
        None if most is None else int(most),
        step.drop,
    )


def _read_ordinal(step: Any, n_columns: int) -> Ordinal:
    _require_defaults(step, min_frequency=None, max_categories=None)
    declared = _read_categories(step, n_columns)
    if declared is None:
        raise Unsupported(
            "OrdinalEncoder() without categories: an order learned from the rows would "
            "change when somebody leaves; declare it: OrdinalEncoder(categories=[...])"
        )
    _require_defaults(step, encoded_missing_value=np.nan)
    unknown = None
    if step.handle_unknown == "use_encoded_value":
        unknown = float(step.unknown_value)
    return Ordinal(declared, unknown)


def _read_bins(step: Bins, n_columns: int) -> Bins:
    if type(step.n_bins) is not int or not 2 <= step.n_bins <= MOST_BINS:
        raise InvalidInput(f"Bins(n_bins={step.n_bins!r}); give 2 to {MOST_BINS:,}")
    given = step.quantum
    if given is None:
        return step
    quanta = tuple(given) if isinstance(given, Sequence) else (given,) * n_columns
    if len(quanta) != n_columns:
        raise InvalidInput(
            f"Bins: quanta of {len(quanta)} columns for {n_columns} columns; give one "
            "number for each, or one for all"
        )
    if not all(0.0 < one < inf for one in quanta):
        raise InvalidInput(f"Bins(quantum={given!r}); give positive numbers")
    return Bins(step.n_bins, tuple(map(float, quanta)))


def _read_means(step: TargetMeans, n_columns: int) -> TargetMeans:
    del n_columns
    for name, least in (("least", 2), ("folds", 2)):
        given = getattr(step, name)
        if type(given) is not int or given < least:
            why = "a mean of one person is what they answered; " * (name == "least")
            raise InvalidInput(
                f"TargetMeans({name}={given!r}); {why}give a whole number, at least "
                f"{least}"
            )
    if type(step.key) is not int:
        raise InvalidInput(f"TargetMeans(key={step.key!r}); give a whole number")
    smooth = step.smooth
    known: Any = smooth  # whatever is given
    if smooth != "auto" and not (isinstance(known, int | float) and 0.0 <= known < inf):
        raise InvalidInput(
            f"TargetMeans(smooth={smooth!r}); give 'auto', or a number of rows"
        )
    return step if smooth == "auto" else replace(step, smooth=float(smooth))


def _read_date_part(step: DatePart, n_columns: int) -> DatePart:
    del n_columns
    if step.part not in ("month", "weekday", "hour"):
        raise InvalidInput(
            f"DatePart({step.part!r}); give 'month', 'weekday' or 'hour'"
        )
    return step


def _read_categories(step: Any, n_columns: int) -> tuple[tuple[Any, ...], ...] | None:
    """Return the declared categories of each column; None if they are learned."""
    if isinstance(step.categories, str):
        return None
    declared = tuple(
        tuple(None if value != value else _plain(value) for value in one)
        for one in step.categories
    )
    if len(declared) != n_columns:
        raise InvalidInput(
            f"{type(step).__name__}: categories of {len(declared)} columns for "
            f"{n_columns} columns; give one list for each"
        )
    return declared


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


READERS: Mapping[type, Callable[[Any, int], Described]] = MappingProxyType(
    {
        SimpleImputer: _read_imputer,
        StandardScaler: _read_standard,
        MinMaxScaler: _read_min_max,
        MaxAbsScaler: _read_max_abs,
        RobustScaler: _read_robust,
        TfidfTransformer: _read_terms,
        OneHotEncoder: _read_one_hot,
        OrdinalEncoder: _read_ordinal,
        Bins: _read_bins,
        DatePart: _read_date_part,
        TargetMeans: _read_means,
        SplineTransformer: read_learnt_splines,
        QuantileTransformer: read_quantiles,
    }
)
