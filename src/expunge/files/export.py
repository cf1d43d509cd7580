# SPDX-License-Identifier: Apache-2.0
"""Shipping: the release of a model as one file, for serving.

    model.safetensors   coefficients, intercepts and certificate; ``read_shipped``
    model.onnx          a graph of standard operators for any ONNX runtime

Either holds what ``release.json`` holds and nothing else. The same release gives the
same bytes, so the hash of a file says which release it is.
"""

import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Vector
from ..core.packing import LARGEST_INTEGER, dumps, pack, unpack
from ..disk import discard, draft_file, store_failure, sync_folder
from ..exceptions import InvalidInput, NothingSaved, Unsupported, needing
from ..private_model.snapshot import PublicModel, note_use
from ..promise.certificate import Certificate
from ..promise.verification import Release
from .folder import (
    METADATA,
    CorruptFiles,
    digest,
    encode_header,
    import_safetensors,
    tensor_header,
)

FORMAT, VERSION = "expunge shipped release", "1"
DRAFT = re.compile(r"\.\d+-\d+\.shipping")  # of a process and a thread
SHIP_AGAIN = "ship the release again, or fetch the file from where it was copied"
# Of 2020: Softmax along one axis, in every runtime since; and the file format with it.
OPSET, IR_VERSION = 13, 7
# Losses whose predictors are log-odds.
LOG_ODDS = frozenset({"Logistic", "OneVsRest"})
# An operator, what it takes, what it gives, and its attributes.
Step: TypeAlias = tuple[str, tuple[str, ...], str, dict[str, Any]]


def ship(public: PublicModel, path: str | PathLike[str]) -> None:
    """Write a release into one file, in the format of its suffix.

    An existing file is replaced at once or, if anything fails, stays as it was. A new
    file is readable by its owner alone; a replaced one keeps its mode.

    Parameters
    ----------
    public
        The public model.
    path
        Must end in .safetensors or .onnx; its folder must exist.
    """
    place = Path(path)
    put_in_place(place, render_file(public, place))


def render_file(public: PublicModel, place: Path) -> bytes:
    """Return what ``ship`` would write there; write nothing."""
    writer = WRITERS.get(place.suffix.lower())
    if writer is None:
        raise InvalidInput(
            f"{place.name} ends in {place.suffix!r}; name a file that ends in "
            ".safetensors or .onnx"
        )
    if place.is_dir() or not place.parent.is_dir():
        raise InvalidInput(
            f"{place} is a folder, or its folder does not exist; name a file in a "
            "folder that exists"
        )
    return writer(public)


def read_shipped(path: str | PathLike[str]) -> PublicModel:
    """Return the model in a shipped .safetensors file.

    Raises NothingSaved if there is no such file, and CorruptFiles if a byte was
    altered.

    Parameters
    ----------
    path
        The file. Files that end in .onnx are for an ONNX runtime.
    """
    place = Path(path)
    if place.suffix.lower() != ".safetensors":
        raise InvalidInput(
            f"{place.name} ends in {place.suffix!r}; pass a .safetensors file (.onnx "
            "is for an ONNX runtime)"
        )
    library = import_safetensors()
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        raise NothingSaved(
            f"{place}: no such file; check the path, {SHIP_AGAIN}"
        ) from None
    words = _read_metadata(place.name, data)
    try:
        return _read_public(words, library.load(data))
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        _safetensors_error(),
    ) as error:
        raise CorruptFiles(
            f"{place.name} does not contain a model; {SHIP_AGAIN}"
        ) from error


def put_in_place(place: Path, data: bytes) -> None:
    """Put a file in place at once, and see it on disk.

    The replaced one is public and not overwritten: a server may be reading it still.
    What a killed process left beside it is destroyed.
    """
    for path in place.parent.glob(".*.shipping"):
        if DRAFT.fullmatch(path.name):
            with suppress(OSError):  # it may be another user's
                discard(path)
    # One name a thread: two that ship at once do not meet.
    draft = place.with_name(f".{os.getpid()}-{threading.get_ident()}.shipping")
    try:
        with draft_file(draft, data):
            draft.replace(place)
        sync_folder(place.parent)
    except OSError as error:
        raise store_failure(error) from error


def seal(header: Mapping[str, Any], body: bytes) -> bytes:
    """Return a safetensors file whose header holds the hash of all the rest."""
    words = {"sha256": digest(encode_header(header) + body)}
    return encode_header({**header, METADATA: header[METADATA] | words}) + body


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and tensors of a safetensors file."""
    end = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:end])
    return header, data[end:]


def _make_safetensors(public: PublicModel) -> bytes:
    """Return the release as a safetensors file with its hash."""
    coef, intercept = public.coefficients
    if public.classes is None and public.n_targets is None:
        coef, intercept = coef[0], intercept[0]
    tensors: dict[str, NDArray[Any]] = {"coef": coef, "intercept": intercept}
    # Parameters may be arrays themselves: candidates of a grid, say.
    parameters = pack(dict(public.parameters), "parameters", arrays=tensors)
    tensors = {name: np.array(array, order="C") for name, array in tensors.items()}
    words = _make_metadata(public) | {"parameters": dumps(parameters)}
    body = b"".join(array.tobytes() for array in tensors.values())
    return seal(tensor_header(tensors) | {METADATA: words}, body)


def _make_metadata(public: PublicModel) -> dict[str, str]:
    """Return what both formats say besides the numbers."""
    words = {
        "certificate": public.release.certificate.to_json(),
        "estimator": public.estimator,
        "format": FORMAT,
        "version": VERSION,
    }
    if public.weighted:
        words["weighted"] = "true"
    if public.declared:
        words["declared"] = dumps(list(public.declared))
    if public.classes is not None:
        words["classes"] = dumps([_spell_class(one) for one in public.classes.tolist()])
        words["classes_type"] = public.classes.dtype.str
    if public.feature_names is not None:
        words["features"] = dumps(public.feature_names.tolist())
    return words


def _spell_class(label: Any) -> Any:
    """Return a class as JSON holds it; a string of digits for a long integer."""
    beyond = isinstance(label, int) and abs(label) > LARGEST_INTEGER
    return str(label) if beyond else label


def _read_metadata(name: str, data: bytes) -> dict[str, str]:
    """Return the metadata of a file, or raise CorruptFiles if a byte was altered."""
    try:
        header, body = split(data)
        words = dict(header[METADATA])
    except (LookupError, TypeError, ValueError):
        words = {}
    version = str(words.get("version"))
    if words.get("format") != FORMAT or not version.isdigit():
        raise CorruptFiles(f"{name} is not a shipped release; {SHIP_AGAIN}")
    if version != VERSION:
        raise CorruptFiles(
            f"{name} has version {version} and this expunge reads {VERSION}; read it "
            "with the expunge that wrote it, or a newer one"
        )
    words.pop("sha256", None)
    if seal(header | {METADATA: words}, body) != data:
        raise CorruptFiles(f"{name} was altered since it was shipped; {SHIP_AGAIN}")
    return words


def _read_public(
    words: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]
) -> PublicModel:
    """Return the public model that a file holds."""
    coef, certificate = tensors["coef"], Certificate.from_json(words["certificate"])
    parameters = unpack(json.loads(words["parameters"]), tensors)
    classes = None
    features = json.loads(words.get("features", "null"))
    if "classes" in words:
        kind = np.dtype(words["classes_type"])
        classes = np.array(json.loads(words["classes"]), dtype=kind)
    theta = _stack(coef, tensors["intercept"], certificate=certificate)
    note_use(parameters["budget"])  # by the fit that was shipped
    return PublicModel(
        release=Release(theta, certificate),
        estimator=words["estimator"],
        parameters=parameters,
        n_features=coef.shape[-1],
        feature_names=None if features is None else np.array(features, dtype=object),
        n_targets=len(coef) if classes is None and coef.ndim == 2 else None,
        classes=classes,
        weighted="weighted" in words,
        declared=tuple(json.loads(words.get("declared", "[]"))),
    )


def _stack(
    coef: NDArray[Any], intercept: NDArray[Any], *, certificate: Certificate
) -> Vector:
    """Return coefficients and intercepts as the one vector that was released."""
    columns = np.atleast_2d(coef).T
    if certificate.objective["intercept"]:
        columns = np.vstack([columns, np.atleast_1d(intercept)])
    theta = np.array(columns, dtype=np.float64).ravel()
    if theta.size != certificate.n_parameters:
        raise ValueError("number of parameters differs from the certificate")
    return theta


def _safetensors_error() -> type[Exception]:
    """Return the error class for a file that is not in the safetensors format."""
    with needing("files", "reading .safetensors"):
        error: type[Exception] = import_module("safetensors").SafetensorError
    return error


def _make_onnx(public: PublicModel) -> bytes:
    """Return the release as a graph, with the same metadata as safetensors."""
    onnx = _import_onnx()
    graph = onnx.helper.make_model(
        _make_graph(public, onnx),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="expunge",
    )
    onnx.helper.set_model_props(graph, _make_metadata(public))
    data: bytes = graph.SerializeToString(deterministic=True)
    return data


def _make_graph(public: PublicModel, onnx: Any) -> Any:
    """Return the graph of eta = X coef' + intercept and of predictions from it."""
    coef, intercept = public.coefficients
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
    if public.classes is None:
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
    return _assemble_graph(onnx, steps, constants=constants, shapes=shapes)


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


def _assemble_graph(
    onnx: Any,
    steps: list[Step],
    *,
    constants: Mapping[str, NDArray[Any]],
    shapes: Mapping[str, list[int | None]],
) -> Any:
    """Return the steps as a graph, with the constants that they use."""
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


WRITERS = {".safetensors": _make_safetensors, ".onnx": _make_onnx}
