# SPDX-License-Identifier: Apache-2.0
"""Packing: values of this package as plain JSON data with arrays beside it.

A value is known by its exact class, from a table of the package's own: reading calls
no other, and a loss, penalty or mechanism that a user wrote is refused. Numbers keep
every bit, and symmetric matrices their order in memory, so that what follows is the
same to the last bit. Of such a matrix the lower triangle alone is written: the upper
one may be older, and their difference would be the outer products of removed rows.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import fields
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from .. import losses, mechanisms, penalties
from ..accountant import Accountant
from ..adopt import Adoption
from ..budget import Budget
from ..canonical import Document
from ..certificate import Certificate, Scope
from ..exceptions import Unsupported
from ..linalg import Symmetric
from ..linear_model.labels import Labels
from ..objective import Objective
from ..radius import Radius
from ..record import Record
from ..rows import Rows
from ..summary import Scales
from ..tuning.cells import Cell
from ..tuning.choice import Choice, Interval
from ..tuning.loo_tune import LooTuning
from ..tuning.rule import Rule
from ..tuning.tune import Tuning
from ..tuning.yardstick import Yardstick
from ..unlearn import Custody

Arrays: TypeAlias = MutableMapping[str, NDArray[Any]]

CLASSES: tuple[type, ...] = (
    losses.Logistic,
    losses.HalfSquared,
    losses.Huber,
    losses.SquaredHinge,
    losses.Multinomial,
    losses.OneVsRest,
    penalties.L1,
    penalties.L2,
    penalties.ElasticNet,
    penalties.GroupLasso,
    penalties.NuclearNorm,
    mechanisms.Jackknife,
    mechanisms.Newton,
    mechanisms.Polish,
    mechanisms.Rescaled,
    mechanisms.Retrain,
    mechanisms.State,
    mechanisms.Draft,
    Accountant,
    Adoption,
    Budget,
    Cell,
    Choice,
    Custody,
    Interval,
    Labels,
    LooTuning,
    Objective,
    Radius,
    Rows,
    Rule,
    Scales,
    Scope,
    Tuning,
    Yardstick,
)
KNOWN: Mapping[str, type] = {known.__name__: known for known in CLASSES}
DOCUMENTS: Mapping[str, type[Document]] = {
    "Certificate": Certificate,
    "Record": Record,
}
NUMBERS = {
    np.dtype(name)
    for name in "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 "
    "uint64 bool".split()
}


def packed(value: Any, place: str, arrays: Arrays) -> Any:
    """Return the value as JSON data; its arrays go under names that begin with place.

    Raises Unsupported for what is not of this package.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [packed(v, f"{place}.{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, Mapping):
        return {"mapping": _packed_items(dict(value), place, arrays)}
    if isinstance(value, Document):
        return {"document": type(value).__name__, "text": value.to_json()}
    if isinstance(value, np.ndarray | Symmetric) or sparse.issparse(value):
        return _packed_array(value, place, arrays)
    return _packed_object(value, place, arrays)


def unpacked(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the value that JSON data stand for."""
    if not isinstance(data, dict):
        return data
    kind = next((kind for kind in READERS if kind in data), "")
    return READERS[kind](data, arrays)


def _packed_items(items: Mapping[str, Any], place: str, arrays: Arrays) -> Any:
    """Return a mapping with its values packed."""
    return {name: packed(items[name], f"{place}.{name}", arrays) for name in items}


def _packed_object(value: Any, place: str, arrays: Arrays) -> Any:
    """Return one of the package's values by its class and fields."""
    kind = type(value)
    if KNOWN.get(kind.__name__) is not kind:
        raise Unsupported(
            f"{kind.__name__} is not a part of expunge and cannot be saved; save with "
            "the package's own losses, penalties and mechanisms, or keep the model in "
            "memory"
        )
    items = {field.name: getattr(value, field.name) for field in fields(value)}
    return {"class": kind.__name__, "fields": _packed_items(items, place, arrays)}


def _packed_array(value: Any, place: str, arrays: Arrays) -> Any:
    """Return an array by its name; words go into the JSON itself."""
    if isinstance(value, Symmetric):
        arrays[place], _ = lapack.dtrttp(value.lower, uplo="L")
        return {"triangle": place, "size": value.size}
    shape = [int(length) for length in value.shape]
    if sparse.issparse(value):
        for part in ("data", "indices", "indptr"):
            arrays[f"{place}.{part}"] = getattr(value, part)
        return {"csr": place, "shape": shape}
    if value.dtype in NUMBERS:
        arrays[place] = np.ascontiguousarray(value)
        return {"array": place}
    if value.ndim == 1 and value.dtype.kind in "UO":
        words = packed(value.tolist(), place, arrays)
        return {"words": words, "objects": value.dtype == object}
    raise Unsupported(
        f"an array of {value.dtype} cannot be saved; use numbers or words as classes "
        "and names"
    )


def _object(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    items = {name: unpacked(part, arrays) for name, part in data["fields"].items()}
    return KNOWN[data["class"]](**items)


def _triangle(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Symmetric:
    lower, _ = lapack.dtpttr(data["size"], arrays[data["triangle"]], uplo="L")
    return Symmetric(lower)


def _symmetric(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Symmetric:
    """Return a matrix as earlier versions wrote it: its triangle row by row."""
    lower = np.zeros((data["size"], data["size"]), order="F")
    lower[np.tri(data["size"], dtype=bool)] = arrays[data["symmetric"]]
    return Symmetric(lower)


def _csr(data: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    names = (f"{data['csr']}.{part}" for part in ("data", "indices", "indptr"))
    parts = tuple(arrays[name].copy() for name in names)
    return sparse.csr_array(parts, shape=tuple(data["shape"]))


def _array(data: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    return arrays[data["array"]].copy()  # memory of its own, to be overwritten


def _words(data: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    words = unpacked(data["words"], arrays)
    return np.array(words, dtype=object if data["objects"] else np.str_)


READERS: Mapping[str, Any] = {
    "float": lambda data, _: float(data["float"]),
    "bytes": lambda data, _: bytes.fromhex(data["bytes"]),
    "tuple": lambda data, arrays: tuple(unpacked(v, arrays) for v in data["tuple"]),
    "list": lambda data, arrays: [unpacked(v, arrays) for v in data["list"]],
    "mapping": lambda data, arrays: {
        name: unpacked(part, arrays) for name, part in data["mapping"].items()
    },
    "document": lambda data, _: DOCUMENTS[data["document"]].from_json(data["text"]),
    "class": _object,
    "triangle": _triangle,
    "symmetric": _symmetric,
    "csr": _csr,
    "array": _array,
    "words": _words,
}
