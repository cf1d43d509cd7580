# SPDX-License-Identifier: Apache-2.0
"""Shipping: the release of a model as one file, for whoever serves it.

    model.safetensors   coefficients, intercepts and certificate; ``read_shipped``
    model.onnx          a graph of standard operators for any ONNX runtime

Either holds what ``release.json`` holds and nothing else. The same release gives the
same bytes, so that the hash of a file says which release it is.
"""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._typing import Vector
from ..canonical import dumps, loads
from ..certificate import Certificate
from ..durable import flush, write_new
from ..exceptions import InvalidInput
from ..linear_model import LinearRegression
from ..linear_model.base import Forgetful
from ..linear_model.snapshot import Shown, Snapshot, used_before
from ..rights import failed
from ..unlearn import Release
from .contents import (
    ESTIMATORS,
    Content,
    Loaded,
    release_content,
    require_known,
    safetensors,
)
from .folder import CorruptFiles, digest
from .graph import graph_file
from .packing import unpacked

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
        words["classes"] = dumps(classes.tolist())
        words["classes_type"] = classes.dtype.str
    if hasattr(model, "feature_names_in_"):
        words["features"] = dumps(model.feature_names_in_.tolist())
    return words


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
    seal = {"sha256": digest(dumps(header).encode("ascii") + body)}
    text = dumps({**header, METADATA: header[METADATA] | seal}).encode("ascii")
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
