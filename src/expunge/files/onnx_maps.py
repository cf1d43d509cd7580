# SPDX-License-Identifier: Apache-2.0
"""Maps of rows as steps of an ONNX graph, where its operators can say them.

A runtime rounds as it likes, and has for doubles fewer functions than the standard
lists: those that are common are used here, and a map without them is refused.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..exceptions import Unsupported
from ..preprocessing.encoder import Encoder, count_features, title_of
from ..preprocessing.learnt_maps import Beside
from ..preprocessing.sklearn_maps import SklearnMap
from ..preprocessing.target_means import CodeMeans

INT64 = 7  # the number that ONNX has for the type
SMALLEST_NORM = 10.0 * float(np.finfo(np.float64).eps)


class Graph(Protocol):
    """What collects steps and constants."""

    real: int
    """The number of the type of its numbers."""

    def add(
        self, operator: str, inputs: list[str], *, gives: str, **attributes: Any
    ) -> str:
        """Add a step; return what it gives."""

    def add_constant(self, name: str, numbers: NDArray[Any], *, what: str) -> str:
        """Add numbers in the precision of the graph; return their name."""

    def add_indices(self, name: str, indices: NDArray[np.intp]) -> str:
        """Add whole numbers; return their name."""


def add_map(
    graph: Graph, encoder: Encoder, *, taking: str, gives: str, n_columns: int
) -> str:
    """Add the steps of a map of rows; return what they give.

    Parameters
    ----------
    graph
        Where to add them.
    encoder
        The map.
    taking, gives
        The names of the rows before and after it.
    n_columns
        How many columns it takes.
    """
    maps = getattr(encoder, "maps", (encoder,))
    for index, one in enumerate(maps):
        last = index == len(maps) - 1
        made = gives if last else f"{gives}.{index}"
        if isinstance(one, Beside):
            _add_beside(graph, one, taking=taking, gives=made)
        elif isinstance(one, CodeMeans):
            _add_means(graph, one, taking=taking, gives=made)
        else:
            write = WRITERS.get(getattr(one, "name", ""))
            if write is None or not isinstance(one, SklearnMap):
                raise _refuse(one)
            write(graph, one.fitted(n_columns), taking=taking, gives=made)
        taking = made
        if not last:
            n_columns = count_features(one, np.empty((0, 0)), n_columns=n_columns)
    return gives


def _add_beside(graph: Graph, beside: Beside, *, taking: str, gives: str) -> None:
    """Add maps of some columns each, and put their features side by side."""
    made = []
    for index, (places, one) in enumerate(
        zip(beside.places, beside.parts, strict=True)
    ):
        name = f"{gives}.part{index}"
        at = graph.add_indices(f"{name}.at", np.array(places))
        graph.add("Gather", [taking, at], gives=f"{name}.columns", axis=1)
        own = f"{name}.columns"
        if one is not None:
            own = add_map(graph, one, taking=own, gives=name, n_columns=len(places))
        made.append(own)
    graph.add("Concat", made, gives=gives, axis=1)


def _add_means(graph: Graph, means: CodeMeans, *, taking: str, gives: str) -> None:
    """Add the line of a table that a code has; that of -1 is the first."""
    lines = np.roll(means.values, 1, axis=0)
    table = graph.add_constant(f"{gives}.means", lines, what="means of categories")
    one = _add_number(graph, 1.0, gives=f"{gives}.one")
    graph.add("Add", [taking, one], gives=f"{gives}.place")
    graph.add("Cast", [f"{gives}.place"], gives=f"{gives}.line", to=INT64)
    last = graph.add_indices(f"{gives}.last", np.array([1]))
    graph.add("Squeeze", [f"{gives}.line", last], gives=f"{gives}.lines")
    graph.add("Gather", [table, f"{gives}.lines"], gives=gives, axis=0)


def _refuse(encoder: Encoder) -> Unsupported:
    return Unsupported(
        f"{title_of(encoder)}: ONNX has no operators for this map of rows; ship the "
        "model as .safetensors, or encode the rows before they reach the graph"
    )


def _write_function(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    name = made.func.__name__
    if name in OPERATORS:
        graph.add(OPERATORS[name], [taking], gives=gives)
        return
    write = FUNCTIONS.get(name)
    if write is None:
        raise Unsupported(
            f"{name}: ONNX has no operator for this function that runtimes have for "
            "all numbers; ship the model as .safetensors, or compute the column before "
            "it reaches the graph"
        )
    write(graph, made, taking=taking, gives=gives)


def _add_number(graph: Graph, value: float, *, gives: str) -> str:
    return graph.add_constant(gives, np.array(value), what="a parameter of a map")


def _add_row(graph: Graph, value: float, *, gives: str, width: int) -> str:
    """Add a number as a row: onnxruntime folds one into products, in 32 bits."""
    row = np.full((1, width), value)
    return graph.add_constant(gives, row, what="a parameter of a map")


def _write_logarithm(base: float) -> Callable[..., None]:
    def write(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
        graph.add("Log", [taking], gives=f"{gives}.log")
        width, log = made.n_features_in_, float(np.log(base))
        size = _add_row(graph, log, gives=f"{gives}.size", width=width)
        graph.add("Div", [f"{gives}.log", size], gives=gives)

    return write


def _write_log1p(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    del made
    graph.add(
        "Add",
        [taking, _add_number(graph, 1.0, gives=f"{gives}.one")],
        gives=f"{gives}.sum",
    )
    graph.add("Log", [f"{gives}.sum"], gives=gives)


def _write_expm1(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    del made
    graph.add("Exp", [taking], gives=f"{gives}.exp")
    one = _add_number(graph, 1.0, gives=f"{gives}.one")
    graph.add("Sub", [f"{gives}.exp", one], gives=gives)


def _write_square(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    del made
    graph.add("Mul", [taking, taking], gives=gives)


def _write_clip(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    given = made.kw_args or {}
    ends = [("Max", given.get("a_min", given.get("min")))]
    ends.append(("Min", given.get("a_max", given.get("max"))))
    for operator, end in ends:
        if end is not None:
            name = _add_number(graph, float(end), gives=f"{gives}.{operator}.end")
            taking = graph.add(operator, [taking, name], gives=f"{gives}.{operator}")
    graph.add("Identity", [taking], gives=gives)


def _write_round(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    given = made.kw_args or {}
    if given.get("decimals", 0) != 0:
        raise Unsupported(
            "np.round with decimals: ONNX rounds to whole numbers alone; ship the "
            "model as .safetensors"
        )
    graph.add("Round", [taking], gives=gives)


def _write_gaps(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    given = made.kw_args or {}
    value = _add_number(graph, float(given.get("nan") or 0.0), gives=f"{gives}.value")
    graph.add("IsNaN", [taking], gives=f"{gives}.missing")
    graph.add("Where", [f"{gives}.missing", value, taking], gives=gives)


def _write_bins(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    given = made.kw_args or {}
    bins = np.array(given["bins"], dtype=np.float64)
    if (np.diff(bins) < 0.0).any():
        raise Unsupported(
            "np.digitize with bins from the largest to the smallest has no counterpart "
            "in ONNX; turn them round, or ship the model as .safetensors"
        )
    ends = graph.add_constant(f"{gives}.bins", bins, what="bins")
    last = graph.add_indices(f"{gives}.last", np.array([2]))
    graph.add("Unsqueeze", [taking, last], gives=f"{gives}.each")
    above = "Greater" if given.get("right") else "GreaterOrEqual"
    graph.add(above, [f"{gives}.each", ends], gives=f"{gives}.above")
    graph.add("Cast", [f"{gives}.above"], gives=f"{gives}.counted", to=graph.real)
    graph.add("ReduceSum", [f"{gives}.counted", last], gives=gives, keepdims=0)


def _write_threshold(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    end = _add_number(graph, made.threshold, gives=f"{gives}.threshold")
    graph.add("Greater", [taking, end], gives=f"{gives}.above")
    graph.add("Cast", [f"{gives}.above"], gives=gives, to=graph.real)


def _write_norm(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    norm = f"{gives}.norm"
    if made.norm == "max":
        graph.add("Abs", [taking], gives=f"{gives}.sizes")
        graph.add("ReduceMax", [f"{gives}.sizes"], gives=norm, axes=[1], keepdims=1)
    else:
        operator = f"Reduce{made.norm.upper()}"
        graph.add(operator, [taking], gives=norm, axes=[1], keepdims=1)
    least = _add_number(graph, SMALLEST_NORM, gives=f"{gives}.least")
    one = _add_number(graph, 1.0, gives=f"{gives}.one")
    graph.add("Less", [norm, least], gives=f"{gives}.short")
    graph.add("Where", [f"{gives}.short", one, norm], gives=f"{gives}.length")
    graph.add("Div", [taking, f"{gives}.length"], gives=gives)


def _write_powers(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    """Multiply columns, and a column of ones, as often as the degree says."""
    powers = made.powers_
    n_columns = powers.shape[1]
    factors = [np.repeat(np.arange(n_columns), own) for own in powers]
    degree = max(1, *map(len, factors))
    padded = np.full((len(powers), degree), n_columns)
    for line, own in zip(padded, factors, strict=True):
        line[: len(own)] = own
    first = graph.add_indices(f"{gives}.first", np.array([0]))
    graph.add("Gather", [taking, first], gives=f"{gives}.column", axis=1)
    graph.add("Sub", [f"{gives}.column"] * 2, gives=f"{gives}.zeros")
    one = _add_number(graph, 1.0, gives=f"{gives}.one")
    graph.add("Add", [f"{gives}.zeros", one], gives=f"{gives}.ones")
    graph.add("Concat", [taking, f"{gives}.ones"], gives=f"{gives}.all", axis=1)
    found = ""
    for k in range(degree):
        at = graph.add_indices(f"{gives}.at{k}", padded[:, k])
        name = gives if degree == 1 else f"{gives}.factor{k}"
        graph.add("Gather", [f"{gives}.all", at], gives=name, axis=1)
        if k:
            name = gives if k == degree - 1 else f"{gives}.product{k}"
            graph.add("Mul", [found, f"{gives}.factor{k}"], gives=name)
        found = name


def _write_product(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    W = np.ascontiguousarray(made.components_.T)
    weights = graph.add_constant(f"{gives}.weights", W, what="a random projection")
    graph.add("MatMul", [taking, weights], gives=gives)


def _write_cosines(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    size = float(np.sqrt(2.0 / made.n_components))
    _add_row(graph, size, gives=f"{gives}.size", width=made.n_components)
    for name, numbers in (
        ("weights", made.random_weights_),
        ("offset", made.random_offset_),
    ):
        graph.add_constant(f"{gives}.{name}", numbers, what="random features")
    graph.add("MatMul", [taking, f"{gives}.weights"], gives=f"{gives}.products")
    graph.add("Add", [f"{gives}.products", f"{gives}.offset"], gives=f"{gives}.angles")
    graph.add("Cos", [f"{gives}.angles"], gives=f"{gives}.cosines")
    graph.add("Mul", [f"{gives}.cosines", f"{gives}.size"], gives=gives)


def _write_skewed(graph: Graph, made: Any, *, taking: str, gives: str) -> None:
    skew = _add_number(graph, made.skewedness, gives=f"{gives}.skewedness")
    graph.add("Add", [taking, skew], gives=f"{gives}.shifted")
    graph.add("Log", [f"{gives}.shifted"], gives=f"{gives}.logarithms")
    _write_cosines(graph, made, taking=f"{gives}.logarithms", gives=gives)


# Functions of one operator, which runtimes have for doubles too.
OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "absolute": "Abs",
        "ceil": "Ceil",
        "cos": "Cos",
        "exp": "Exp",
        "expit": "Sigmoid",
        "fabs": "Abs",
        "floor": "Floor",
        "log": "Log",
        "negative": "Neg",
        "positive": "Identity",
        "reciprocal": "Reciprocal",
        "rint": "Round",
        "sign": "Sign",
        "sin": "Sin",
        "sqrt": "Sqrt",
        "tanh": "Tanh",
    }
)
FUNCTIONS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "clip": _write_clip,
        "digitize": _write_bins,
        "expm1": _write_expm1,
        "log10": _write_logarithm(10.0),
        "log1p": _write_log1p,
        "log2": _write_logarithm(2.0),
        "nan_to_num": _write_gaps,
        "round": _write_round,
        "square": _write_square,
    }
)
WRITERS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "Binarizer": _write_threshold,
        "FunctionTransformer": _write_function,
        "GaussianRandomProjection": _write_product,
        "Normalizer": _write_norm,
        "PolynomialFeatures": _write_powers,
        "RBFSampler": _write_cosines,
        "SkewedChi2Sampler": _write_skewed,
    }
)
