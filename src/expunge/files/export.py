# SPDX-License-Identifier: Apache-2.0
"""Shipping: the release of a model as one file, for whoever serves it.

    model.safetensors   coefficients, intercepts and certificate; ``read_shipped``
    model.onnx          a graph of standard operators for any ONNX runtime

Either holds what ``release.json`` holds and nothing else. The same release gives the
same bytes, so that the hash of a file says which release it is.

Graph: a release as ONNX, from rows to predictions by standard operators alone.
"""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Vector
from ..disk import failed, flush, write_new
from ..exceptions import InvalidInput, MissingExtra, Unsupported
from ..linear_model import LinearRegression
from ..linear_model.base import Forgetful
from ..linear_model.estimators import LOGISTIC
from ..private_model.snapshot import Shown, Snapshot, used_before
from ..private_model.unlearn import Release
from ..promise.canonical import LARGEST_INTEGER, dumps, loads
from ..promise.certificate import Certificate
from .format import CorruptFiles, digest, unpacked
from .model import (
    ESTIMATORS,
    Content,
    Loaded,
    release_content,
    require_known,
    safetensors,
)

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


FORMAT, VERSION = "expunge shipped release", "1"
METADATA = "__metadata__"  # where safetensors keeps words
SHIP_AGAIN = "ship the release again, or fetch the file from where it was copied"


def ship(model: Forgetful, path: str | PathLike[str]) -> None:
    """Write the release of a fitted model into one file, by its suffix.

    What is there already is replaced as a whole or, if anything fails, stays as it was.
    A new file is for its owner alone; one that is replaced keeps its mode.

    Parameters
    ----------
    model
        A fitted estimator; a copy that carries the release alone will do.
    path
        Ends in .safetensors or .onnx; its folder must be there.
    """
    place = Path(path)
    put_in_place(place, file_of(model, place))


def file_of(model: Forgetful, place: Path) -> bytes:
    """Return what ``ship`` would write there; write nothing."""
    writer = WRITERS.get(place.suffix.lower())
    if writer is None:
        raise InvalidInput(
            f"{place.name} ends in {place.suffix!r}; a release is shipped as "
            ".safetensors or .onnx"
        )
    require_known(model)
    check_is_fitted(model, "_snapshot")
    if place.is_dir() or not place.parent.is_dir():
        raise InvalidInput(
            f"{place} is a folder, or lies in none; name a file in a folder that exists"
        )
    with model._writing:
        return writer(model)


def read_shipped(path: str | PathLike[str]) -> Loaded:
    """Return the model in a shipped .safetensors file, with its release alone.

    It predicts, has its certificate, and ``forget`` raises NoPrivateState. Raises
    CorruptFiles if a byte was altered.

    Parameters
    ----------
    path
        The file. One that ends in .onnx is for an ONNX runtime.
    """
    place = Path(path)
    if place.suffix.lower() != ".safetensors":
        raise InvalidInput(
            f"{place.name} ends in {place.suffix!r}; expunge reads .safetensors back, "
            "and an ONNX runtime .onnx"
        )
    library = safetensors()
    damaged: type[Exception] = import_module("safetensors").SafetensorError
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise CorruptFiles(f"{place} is missing; {SHIP_AGAIN}") from None
    metadata = _unsealed(place.name, data)
    try:
        return _model(metadata, library.load(data))
    except (LookupError, TypeError, ValueError, AttributeError, damaged) as error:
        raise CorruptFiles(f"{place.name} holds no model; {SHIP_AGAIN}") from error


def _words(content: Content, model: Any) -> dict[str, str]:
    """Return what both kinds of file say beside the numbers."""
    words = {
        "certificate": content["certificate"]["text"],
        "estimator": content["estimator"],
        "format": FORMAT,
        "version": VERSION,
    }
    if model._shown.weighted:
        words["weighted"] = "true"
    if model._shown.declared:
        words["declared"] = dumps(list(model._shown.declared))
    classes = model._shown.classes
    if classes is not None:
        words["classes"] = dumps([_spell_class(label) for label in classes.tolist()])
        words["classes_type"] = classes.dtype.str
    if hasattr(model, "feature_names_in_"):
        words["features"] = dumps(model.feature_names_in_.tolist())
    return words


def _spell_class(label: Any) -> Any:
    """Return a class as JSON holds it; digits where an integer is too long."""
    beyond = isinstance(label, int) and abs(label) > LARGEST_INTEGER
    return str(label) if beyond else label


def _safetensors_file(model: Any) -> bytes:
    """Return the release as tensors and words, sealed."""
    arrays: dict[str, NDArray[Any]] = {}
    content = release_content(model, model._shown, arrays)
    tensors = {"coef": model.coef_, "intercept": model.intercept_}
    # Parameters may be arrays themselves: candidates of a grid, say.
    tensors |= {k: v for k, v in arrays.items() if k.startswith("parameters.")}
    whole = safetensors().save({k: np.array(v, order="C") for k, v in tensors.items()})
    header, body = _split("", whole)
    words = _words(content, model) | {"parameters": dumps(content["parameters"])}
    return _sealed(header | {METADATA: words}, body)


def _sealed(header: Mapping[str, Any], body: bytes) -> bytes:
    """Return a safetensors file whose header holds the hash of all the rest.

    Written here because the library puts words into an order of the day.
    """
    seal = {"sha256": digest(dumps(header).encode() + body)}
    text = dumps({**header, METADATA: header[METADATA] | seal}).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors lie aligned
    return len(text).to_bytes(8, "little") + text + body


def _split(name: str, data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and tensors of a safetensors file."""
    end = 8 + int.from_bytes(data[:8], "little")
    return loads(data[8:end], name), data[end:]


def _unsealed(name: str, data: bytes) -> dict[str, str]:
    """Return the words of a file whose every byte is as it was written."""
    try:
        header, body = _split(name, data)
        words = dict(header[METADATA])
    except (LookupError, TypeError, ValueError):
        words = {}
    version = str(words.get("version"))
    if words.get("format") != FORMAT or not version.isdigit():
        raise CorruptFiles(f"{name} is no shipped release; {SHIP_AGAIN}")
    if version != VERSION:
        raise CorruptFiles(
            f"{name} is of version {version} and this expunge reads {VERSION}; read it "
            "with the expunge that wrote it, or a newer one"
        )
    words.pop("sha256", None)
    if _sealed(header | {METADATA: words}, body) != data:
        raise CorruptFiles(f"{name} was altered since it was shipped; {SHIP_AGAIN}")
    return words


def _model(words: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]) -> Loaded:
    """Return the estimator that carries the release alone."""
    parameters = unpacked(json.loads(words["parameters"]), tensors)
    model: Any = ESTIMATORS[words["estimator"]](**parameters)
    coef = tensors["coef"]
    model.n_features_in_ = coef.shape[-1]
    if "features" in words:
        model.feature_names_in_ = np.array(json.loads(words["features"]), dtype=object)
    classes = None
    if "classes" in words:
        kind = np.dtype(words["classes_type"])
        classes = np.array(json.loads(words["classes"]), dtype=kind)
    if isinstance(model, LinearRegression):
        model._n_targets = None if coef.ndim == 1 else len(coef)
    certificate = Certificate.from_json(words["certificate"])
    theta = _stacked(coef, tensors["intercept"], certificate)
    release = Release(theta, certificate)
    shown = Shown(
        release,
        parameters,
        classes,
        weighted="weighted" in words,
        declared=tuple(json.loads(words.get("declared", "[]"))),
    )
    model._snapshot = Snapshot(shown)
    used_before(parameters["budget"])  # by the fit that was shipped
    loaded: Loaded = model
    return loaded


def _stacked(
    coef: NDArray[Any], intercept: NDArray[Any], certificate: Certificate
) -> Vector:
    """Return coefficients and intercepts as the one vector that was released."""
    columns = np.atleast_2d(coef).T
    if certificate.objective["intercept"]:
        columns = np.vstack([columns, np.atleast_1d(intercept)])
    theta = np.array(columns, dtype=np.float64).ravel()
    if theta.size != certificate.n_parameters:
        raise ValueError("more or fewer parameters than the certificate speaks of")
    theta.setflags(write=False)
    return theta


def _onnx_file(model: Any) -> bytes:
    """Return the release as a graph, with the same words as safetensors have."""
    content = release_content(model, model._shown, {})
    return graph_file(model, _words(content, model))


def put_in_place(place: Path, data: bytes) -> None:
    """Put a file in place at once, and see it on disk.

    The replaced one is public and not overwritten: a server may be reading it still.
    """
    # One name a thread: two that ship at once do not meet, and a crash leaves one.
    draft = place.with_name(f".{os.getpid()}-{threading.get_ident()}.shipping")
    try:
        draft.unlink(missing_ok=True)
        write_new(draft, data)
        draft.replace(place)
        flush(place.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise failed(error) from error
        raise


WRITERS = {".safetensors": _safetensors_file, ".onnx": _onnx_file}
