# SPDX-License-Identifier: Apache-2.0
"""A release as an ONNX graph: from rows to predictions, in standard operators.

Without preprocessing the graph takes rows X, (n, d). With it, the graph takes each raw
column by its name, (n, 1), and encodes the rows itself: see ``onnx_features``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.losses import Loss
from ..exceptions import InvalidInput, Unsupported, needing
from ..preprocessing.features import FittedPreprocessing
from ..private_model.snapshot import PublicModel
from .onnx_features import Constants, Step, encode_steps, round_numbers

DType: TypeAlias = Literal["float64", "float32"]
# Of 2020: Softmax along one axis, in every runtime since; and the file format with it.
OPSET, IR_VERSION = 13, 7
# Of 2018: LabelEncoder from strings to integers.
ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 2
# Losses whose predictors are log-odds.
LOG_ODDS = frozenset({"Logistic", "OneVsRest"})


@dataclass(frozen=True, slots=True)
class Outline:
    """A graph before names are settled.

    Attributes
    ----------
    inputs
        What users call each input, whether it is text, and its width.
    steps, constants
        What is computed, and from which constants.
    shapes
        Of each output, by its name.
    """

    inputs: Mapping[str, tuple[str, bool, int]]
    steps: list[Step]
    constants: Constants
    shapes: Mapping[str, list[int | None]]


def make_onnx(public: PublicModel, words: Mapping[str, str], *, dtype: DType) -> bytes:
    """Return a release as the bytes of an ONNX file.

    Parameters
    ----------
    public
        The release.
    words
        Metadata of the file.
    dtype
        Precision of the numbers in the graph and of its inputs.
    """
    onnx, kind = _import_onnx(), np.dtype(dtype)
    outline = _outline(public, onnx, kind=kind)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    if any("domain" in attributes for *_, attributes in outline.steps):
        opsets.append(onnx.helper.make_opsetid(ML_DOMAIN, ML_OPSET))
    graph = onnx.helper.make_model(
        _assemble_graph(onnx, outline, kind=kind),
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="expunge",
    )
    onnx.helper.set_model_props(graph, dict(words))
    data: bytes = graph.SerializeToString(deterministic=True)
    return data


def check_dtype(dtype: str) -> DType:
    """Return a precision that a graph can have, or raise InvalidInput."""
    known: dict[str, DType] = {"float64": "float64", "float32": "float32"}
    if dtype not in known:
        raise InvalidInput(f"dtype={dtype!r}; use 'float64' or 'float32'")
    return known[dtype]


def _outline(public: PublicModel, onnx: Any, *, kind: np.dtype[Any]) -> Outline:
    """Return the graph of eta = X coef' + intercept and of predictions from it."""
    coef, intercept = public.coefficients
    inputs = {"X": ("X", False, coef.shape[1])}
    steps: list[Step] = []
    constants: Constants = {}
    if public.preprocessing is not None:
        fitted = public.preprocessing
        if not isinstance(fitted, FittedPreprocessing):
            raise Unsupported(
                "ONNX knows no map of rows of one's own; ship the model as "
                ".safetensors, or encode the rows before they reach the graph"
            )
        encoded = encode_steps(fitted, onnx, kind=kind)
        inputs = {place: (*user, 1) for place, user in encoded.inputs.items()}
        steps, constants = [*encoded.steps], {**encoded.constants}
    constants |= {
        "coef": round_numbers(
            np.ascontiguousarray(coef.T), kind, what="the coefficients"
        ),
        "intercept": round_numbers(intercept, kind, what="the intercept"),
        "axis": np.array([1]),
        "zero": np.array(0.0, dtype=kind),
        "one": np.array(1.0, dtype=kind),
    }
    steps += [
        ("MatMul", ("X", "coef"), "products", {}),
        ("Add", ("products", "intercept"), "eta", {}),
    ]
    shapes: dict[str, list[int | None]] = {}
    if public.classes is None:
        loss = public.parameters["loss"]
        if isinstance(loss, Loss) and not loss.has_identity_link:
            raise Unsupported(
                f"predictions of {type(loss).__name__} are not the predictors, and "
                "ONNX has no operator for them; ship the model as .safetensors"
            )
        one = public.n_targets is None
        steps.append(_squeeze_eta("predictions") if one else _copy_eta("predictions"))
        shapes["predictions"] = [None] if one else [None, len(coef)]
    else:
        constants["classes"] = _convert_classes(public.classes)
        steps += _label_steps(len(coef), onnx) + _score_steps(public.loss, len(coef))
        last = steps[-1][2]
        shapes = {"label": [None], last: [None]}
        if last == "probabilities" or len(coef) > 1:
            shapes[last].append(len(public.classes))
    return Outline(inputs, steps, constants, shapes)


def _label_steps(n_outputs: int, onnx: Any) -> list[Step]:
    """Return the steps to the class of the positive side or of the largest eta."""
    if n_outputs == 1:
        places: list[Step] = [
            _squeeze_eta("column"),
            ("Greater", ("column", "zero"), "positive", {}),
            ("Cast", ("positive",), "place", {"to": onnx.TensorProto.INT64}),
        ]
    else:
        places = [("ArgMax", ("eta",), "place", {"axis": 1, "keepdims": 0})]
    return [*places, ("Gather", ("classes", "place"), "label", {})]


def _score_steps(loss: str, n_outputs: int) -> list[Step]:
    """Return the steps to probabilities or, if the loss has none, to scores."""
    if loss == "Multinomial":
        return [("Softmax", ("eta",), "probabilities", {"axis": 1})]
    if loss not in LOG_ODDS:
        return [_squeeze_eta("scores") if n_outputs == 1 else _copy_eta("scores")]
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


def _squeeze_eta(output: str) -> Step:
    """Return the step that turns eta of shape (n, 1) into (n,)."""
    return "Squeeze", ("eta", "axis"), output, {}


def _copy_eta(output: str) -> Step:
    """Return the step that copies eta to an output."""
    return "Identity", ("eta",), output, {}


def _assemble_graph(onnx: Any, outline: Outline, *, kind: np.dtype[Any]) -> Any:
    """Return the graph, with the constants that it uses and the names users see."""
    real = onnx.helper.np_dtype_to_tensor_dtype(kind)
    described, names = onnx.helper.make_tensor_value_info, _settle_names(outline)
    taken = {name for _, inputs, _, _ in outline.steps for name in inputs}
    tensors = {
        name: onnx.numpy_helper.from_array(array, names[name])
        for name, array in outline.constants.items()
        if name in taken
    }
    kinds = {name: real for name in outline.shapes}
    if "classes" in tensors:
        kinds["label"] = tensors["classes"].data_type
    return onnx.helper.make_graph(
        [
            onnx.helper.make_node(
                operator,
                [names[name] for name in inputs],
                [names[output]],
                name=names[output],
                **attributes,
            )
            for operator, inputs, output, attributes in outline.steps
        ],
        "release",
        [
            described(
                names[place], onnx.TensorProto.STRING if text else real, [None, width]
            )
            for place, (_, text, width) in outline.inputs.items()
        ],
        [described(name, kinds[name], outline.shapes[name]) for name in outline.shapes],
        list(tensors.values()),
    )


def _settle_names(outline: Outline) -> dict[str, str]:
    """Return the name of every value in the graph.

    Outputs keep theirs, inputs have those of the columns, and whatever would have a
    name for the second time gets an underscore.
    """
    names = {name: name for name in outline.shapes}
    wanted = {place: user for place, (user, _, _) in outline.inputs.items()}
    inner = [*outline.constants, *(output for _, _, output, _ in outline.steps)]
    wanted |= {name: name for name in inner if name not in names}
    used = {"", *names}
    for place, name in wanted.items():
        while name in used:
            name += "_"
        used.add(name)
        names[place] = name
    return names


def _convert_classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes as strings, 64-bit integers, booleans or doubles."""
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
        f"classes of {classes.dtype} have no counterpart in ONNX; use strings, or "
        "integers below 2^63, or ship as .safetensors"
    )


def _import_onnx() -> Any:
    """Return the onnx library, or raise MissingExtra."""
    with needing("onnx", "shipping as .onnx"):
        return import_module("onnx")
