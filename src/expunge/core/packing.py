# SPDX-License-Identifier: Apache-2.0
"""Values of this package as plain JSON data, with their arrays beside them.

A class is written and read once it is marked ``@stored``; reading calls no other, so a
file cannot make anything else run. Numbers keep every bit, and symmetric matrices their
order in memory, so that a model that was read goes on to the last bit. Only the lower
triangle of such a matrix is written: the upper one may be older, and their difference
would be the outer products of removed rows.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import fields
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from ..exceptions import Unsupported
from .linalg import Symmetric
from .values import LARGEST_INTEGER, stored_kind, stored_kinds

Arrays: TypeAlias = MutableMapping[str, NDArray[Any]]

NUMBERS = {
    np.dtype(name)
    for name in "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 "
    "uint64 bool".split()
}


def pack(value: Any, path: str, *, arrays: Arrays) -> Any:
    """Return a value as JSON data; its arrays go under names that begin with path.

    Raises Unsupported for a class that is not marked ``@stored``.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_INTEGER else {"int": str(value)}
    if isinstance(value, float):
        # JSON spells 1.0 as 1, and would return an integer.
        plain = isfinite(value) and not value.is_integer()
        return value if plain else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {
            kind: [pack(v, f"{path}.{i}", arrays=arrays) for i, v in enumerate(value)]
        }
    if isinstance(value, np.ndarray | Symmetric) or sparse.issparse(value):
        return _pack_array(value, path, arrays=arrays)
    if isinstance(value, Mapping):
        if all(isinstance(name, str) for name in value):
            return {"mapping": _pack_items(value, path, arrays=arrays)}
        # Names of JSON are words, and the labels of classes may be numbers.
        return {"pairs": pack(list(value.items()), path, arrays=arrays)}
    return _pack_object(value, path, arrays=arrays)


def unpack(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that JSON data stand for."""
    if not isinstance(data, dict):
        return data
    kind = next((kind for kind in _READERS if kind in data), "")
    return _READERS[kind](data, arrays)


def _pack_items(items: Mapping[str, Any], path: str, *, arrays: Arrays) -> Any:
    return {name: pack(items[name], f"{path}.{name}", arrays=arrays) for name in items}


def _pack_object(value: Any, path: str, *, arrays: Arrays) -> Any:
    """Return one of the package's values by its class and fields."""
    kind = type(value)
    if stored_kinds().get(kind.__name__) is not kind:
        raise Unsupported(
            f"{kind.__name__} is not part of expunge and cannot be saved; mark the "
            "class with @expunge.stored, or keep the model in memory"
        )
    if hasattr(value, "to_json"):
        return {"document": kind.__name__, "text": value.to_json()}
    written = [field.name for field in fields(value) if field.metadata.get("stored", 1)]
    items = {name: getattr(value, name) for name in written}
    return {"class": kind.__name__, "fields": _pack_items(items, path, arrays=arrays)}


def _pack_array(value: Any, path: str, *, arrays: Arrays) -> Any:
    """Return an array by its name; words go into the JSON itself."""
    if isinstance(value, Symmetric):
        triangles = [lapack.dtrttp(block, uplo="L")[0] for block in value.lower]
        arrays[path] = np.array(triangles)
        return {"triangles": path, "size": value.width, "outputs": value.outputs}
    shape = [int(length) for length in value.shape]
    if sparse.issparse(value):
        for part in ("data", "indices", "indptr"):
            arrays[f"{path}.{part}"] = getattr(value, part)
        return {"csr": path, "shape": shape}
    if value.dtype in NUMBERS:
        arrays[path] = np.ascontiguousarray(value)
        return {"array": path}
    if value.ndim == 1 and value.dtype.kind in "UO":
        words = pack(value.tolist(), path, arrays=arrays)
        return {"words": words, "objects": value.dtype == object}
    raise Unsupported(
        f"an array of {value.dtype} cannot be saved; use numbers or strings as classes "
        "and names"
    )


def _read_object(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    items = {name: unpack(part, arrays) for name, part in data["fields"].items()}
    return stored_kind(data["class"])(**items)


def _read_document(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    return stored_kind(data["document"]).from_json(data["text"])


def _read_triangles(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Symmetric:
    size, triangles = data["size"], arrays[data["triangles"]]
    upper = np.empty((len(triangles), size, size))
    for block, packed in zip(upper, triangles, strict=True):
        block[:] = lapack.dtpttr(size, packed, uplo="L")[0].T
    return Symmetric.from_upper(upper, data["outputs"])


def _read_csr(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    names = (f"{data['csr']}.{part}" for part in ("data", "indices", "indptr"))
    parts = tuple(arrays[name].copy() for name in names)
    return sparse.csr_array(parts, shape=tuple(data["shape"]))


def _read_array(data: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return arrays[data["array"]].copy()  # memory of its own, to be overwritten


def _read_words(data: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    words = unpack(data["words"], arrays)
    return np.array(words, dtype=object if data["objects"] else np.str_)


_READERS: Mapping[str, Any] = {
    "int": lambda data, _: int(data["int"]),
    "float": lambda data, _: float(data["float"]),
    "bytes": lambda data, _: bytes.fromhex(data["bytes"]),
    "tuple": lambda data, arrays: tuple(unpack(v, arrays) for v in data["tuple"]),
    "list": lambda data, arrays: [unpack(v, arrays) for v in data["list"]],
    "mapping": lambda data, arrays: {
        name: unpack(part, arrays) for name, part in data["mapping"].items()
    },
    "pairs": lambda data, arrays: dict(unpack(data["pairs"], arrays)),
    "document": _read_document,
    "class": _read_object,
    "triangles": _read_triangles,
    "csr": _read_csr,
    "array": _read_array,
    "words": _read_words,
}
