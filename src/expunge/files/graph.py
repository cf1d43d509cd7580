# SPDX-License-Identifier: Apache-2.0
"""Graph: a release as ONNX, from rows to predictions by standard operators alone."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..exceptions import MissingExtra, Unsupported
from ..linear_model import LinearRegression
from ..linear_model.estimators import LOGISTIC

# An operator, what it takes, what it gives, and its attributes.
Step: TypeAlias = tuple[str, tuple[str, ...], str, dict[str, Any]]

# Of 2020: Softmax along one axis, in every runtime since; and the file format with it.
OPSET, IR_VERSION = 13, 7


def graph_file(model: Any, words: Mapping[str, str]) -> bytes:
    """Return the release of an estimator as a file of ONNX, with words about it."""
    onnx = _onnx()
    graph = onnx.helper.make_model(
        _graph(model, onnx),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="expunge",
    )
    onnx.helper.set_model_props(graph, words)
    data: bytes = graph.SerializeToString(deterministic=True)
    return data


def _graph(model: Any, onnx: Any) -> Any:
    """Return eta = X coef' + intercept, and what the model makes of it."""
    coef, intercept = model._shaped(model._release)
    constants = {
        "coef": np.ascontiguousarray(coef.T),
        "intercept": intercept,
        "axis": np.array([1]),
        "zero": np.array(0.0),
        "one": np.array(1.0),
    }
    steps: list[Step] = [
        ("MatMul", ("X", "coef"), "products", {}),
        ("Add", ("products", "intercept"), "eta", {}),
    ]
    shapes: dict[str, list[int | None]] = {}
    if isinstance(model, LinearRegression):
        one = model._n_targets is None
        steps.append(_column("predictions") if one else _same("predictions"))
        shapes["predictions"] = [None] if one else [None, len(coef)]
    else:
        constants["classes"] = _portable(model.classes_)
        steps += _label(len(coef), onnx) + _scores(model, len(coef))
        last = steps[-1][2]
        shapes = {"label": [None], last: [None]}
        if last == "probabilities":
            shapes[last].append(len(model.classes_))
    return _assembled(onnx, steps, constants, shapes)


def _label(n_outputs: int, onnx: Any) -> list[Step]:
    """Return the class of the positive side, or of the largest predictor."""
    if n_outputs == 1:
        places: list[Step] = [
            _column("column"),
            ("Greater", ("column", "zero"), "positive", {}),
            ("Cast", ("positive",), "place", {"to": onnx.TensorProto.INT64}),
        ]
    else:
        places = [("ArgMax", ("eta",), "place", {"axis": 1, "keepdims": 0})]
    return [*places, ("Gather", ("classes", "place"), "label", {})]


def _scores(model: Any, n_outputs: int) -> list[Step]:
    """Return probabilities; where the loss has none, what the sign decides."""
    loss = model._release.certificate.objective["loss"]["name"]
    if loss == "Multinomial":
        return [("Softmax", ("eta",), "probabilities", {"axis": 1})]
    if loss not in LOGISTIC:
        return [_column("scores")]
    sigmoid: Step = ("Sigmoid", ("eta",), "second", {})
    if n_outputs == 1:
        return [
            sigmoid,
            ("Sub", ("one", "second"), "first", {}),
            ("Concat", ("first", "second"), "probabilities", {"axis": 1}),
        ]
    return [
        sigmoid,
        ("ReduceSum", ("second", "axis"), "total", {"keepdims": 1}),
        ("Div", ("second", "total"), "probabilities", {}),
    ]


def _column(output: str) -> Step:
    """Return eta of shape (n, 1) as (n,)."""
    return "Squeeze", ("eta", "axis"), output, {}


def _same(output: str) -> Step:
    """Return eta under the name of an output."""
    return "Identity", ("eta",), output, {}


def _assembled(
    onnx: Any,
    steps: list[Step],
    constants: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, list[int | None]],
) -> Any:
    """Return the steps as a graph, with the constants that they take."""
    double, described = onnx.TensorProto.DOUBLE, onnx.helper.make_tensor_value_info
    taken = {name for _, inputs, _, _ in steps for name in inputs}
    tensors = {
        name: onnx.numpy_helper.from_array(array, name)
        for name, array in constants.items()
        if name in taken
    }
    kinds = {name: double for name in shapes}
    if "classes" in tensors:
        kinds["label"] = tensors["classes"].data_type
    return onnx.helper.make_graph(
        [
            onnx.helper.make_node(operator, inputs, [output], name=output, **attributes)
            for operator, inputs, output, attributes in steps
        ],
        "release",
        [described("X", double, [None, len(constants["coef"])])],
        [described(name, kinds[name], shapes[name]) for name in shapes],
        list(tensors.values()),
    )


def _portable(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes as words, 64-bit integers, truth values or doubles."""
    kind = classes.dtype.kind
    if kind == "U" or all(isinstance(word, str) for word in classes):
        return classes.astype(object)
    if kind in "iu" and classes.max() <= np.iinfo(np.int64).max:
        return classes.astype(np.int64)
    if kind == "f":
        return classes.astype(np.float64)
    if kind == "b":
        return classes
    raise Unsupported(
        f"classes of {classes.dtype} have no counterpart in ONNX; use words, or "
        "integers below 2^63, or ship as .safetensors"
    )


def _onnx() -> Any:
    """Return the library that writes graphs."""
    try:
        return import_module("onnx")
    except ImportError as error:
        raise MissingExtra(
            "shipping as .onnx needs onnx, which is not installed; run "
            "pip install expunge[onnx]"
        ) from error
