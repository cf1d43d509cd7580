# SPDX-License-Identifier: Apache-2.0
"""Shipping: the release of a model as one file, for serving.

    model.safetensors   coefficients, preprocessing, certificate; ``read_shipped``
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Vector
from ..core.packing import pack, unpack
from ..core.values import LARGEST_INTEGER, dumps
from ..disk import discard, draft_file, store_failure, sync_folder
from ..exceptions import InvalidInput, NothingSaved, needing
from ..private_model.snapshot import PublicModel, note_use
from ..promise.certificate import Certificate
from ..promise.verification import release_of
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


def ship(
    public: PublicModel, path: str | PathLike[str], *, dtype: str = "float64"
) -> None:
    """Write a release into one file, in the format of its suffix.

    An existing file is replaced at once or, if anything fails, stays as it was. A new
    file is readable by its owner alone; a replaced one keeps its mode.

    Parameters
    ----------
    public
        The public model.
    path
        Must end in .safetensors or .onnx; its folder must exist.
    dtype
        Precision of an .onnx file: "float64" or "float32".
    """
    place = Path(path)
    put_in_place(place, render_file(public, place, dtype=dtype))


def render_file(public: PublicModel, place: Path, *, dtype: str = "float64") -> bytes:
    """Return what ``ship`` would write there; write nothing."""
    public.require_shippable()
    suffix = place.suffix.lower()
    if suffix not in (".safetensors", ".onnx"):
        raise InvalidInput(
            f"{place.name} ends in {place.suffix!r}; name a file that ends in "
            ".safetensors or .onnx"
        )
    if place.is_dir() or not place.parent.is_dir():
        raise InvalidInput(
            f"{place} is a folder, or its folder does not exist; name a file in a "
            "folder that exists"
        )
    if dtype not in ("float64", "float32"):
        raise InvalidInput(f"dtype={dtype!r}; use 'float64' or 'float32'")
    if suffix == ".onnx":
        from .onnx import make_onnx

        return make_onnx(public, _make_metadata(public), dtype=dtype)
    if dtype != "float64":
        raise InvalidInput(
            f"dtype={dtype!r} is for .onnx files; a .safetensors file holds the "
            "numbers that the certificate is about"
        )
    return _make_safetensors(public)


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
    words = _make_metadata(public) | {"parameters": dumps(parameters)}
    if public.preprocessing is not None:
        learned = pack(public.preprocessing, "preprocessing", arrays=tensors)
        words["preprocessing"] = dumps(learned)
        words["n_features"] = str(public.n_features)
    tensors = {name: np.array(array, order="C") for name, array in tensors.items()}
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
    if public.target_deviation is not None:
        words["target_deviation"] = dumps(list(public.target_deviation))
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
    units = json.loads(words.get("target_deviation", "null"))
    n_features, preprocessing = coef.shape[-1], None
    if "preprocessing" in words:
        n_features = int(words["n_features"])
        preprocessing = unpack(json.loads(words["preprocessing"]), tensors)
        if preprocessing.n_features != coef.shape[-1]:
            raise ValueError("number of features differs from the coefficients")
    note_use(parameters.get("budget"))  # by the fit that was shipped
    return PublicModel(
        release=release_of(theta, certificate),
        estimator=words["estimator"],
        parameters=parameters,
        n_features=n_features,
        feature_names=None if features is None else np.array(features, dtype=object),
        n_targets=len(coef) if classes is None and coef.ndim == 2 else None,
        classes=classes,
        weighted="weighted" in words,
        declared=tuple(json.loads(words.get("declared", "[]"))),
        preprocessing=preprocessing,
        target_deviation=None if units is None else tuple(units),
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
