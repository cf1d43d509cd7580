# SPDX-License-Identifier: Apache-2.0
"""Packing: values of this package as plain JSON data with arrays beside it.

A value is known by its exact class, from a table of the package's own: reading calls
no other, and a loss, penalty or mechanism that a user wrote is refused. Numbers keep
every bit, and symmetric matrices their order in memory, so that what follows is the
same to the last bit. Of such a matrix the lower triangle alone is written: the upper
one may be older, and their difference would be the outer products of removed rows.

A folder of files that is replaced as a whole, and trusted only if it is whole.

New files are written beside the old ones and flushed to disk; one rename then decides,
after which each takes its place. A crash before the rename leaves the old folder, a
crash after it the new one: readers prefer what has not taken its place yet. Private
files are readable by their owner alone, and overwritten with zeros once replaced.
What a file system, a backup or a solid-state disk keeps beyond that is out of reach.

Every file is sealed: a manifest holds the SHA-256 of its content and of the arrays
beside it. That catches accidents. Whoever can write the folder can also seal it anew.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import fields
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from .. import removal
from ..adopt import Adoption
from ..core import losses, penalties
from ..core.linalg import Symmetric
from ..core.objective import Objective
from ..core.rows import Rows
from ..disk import ANYONE, OWNER_ALONE, destroy, flush, scrubbed, write_new
from ..exceptions import ExpungeError, InvalidInput, Unsupported
from ..private_model.labels import Labels
from ..private_model.unlearn import Custody
from ..promise.accountant import Accountant
from ..promise.budget import Budget
from ..promise.canonical import LARGEST_INTEGER, Document, dumps, loads
from ..promise.certificate import Certificate, Scope
from ..promise.radius import Radius
from ..promise.record import Record
from ..removal.summary import Scales
from ..selection.choice import Choice, Interval, Rule
from ..selection.fold_models import Cell
from ..selection.hessian_norm import Yardstick
from ..selection.tune import LooTuning, Tuning

Arrays: TypeAlias = MutableMapping[str, NDArray[Any]]

CLASSES: tuple[type, ...] = (
    *losses.LOSSES,
    *penalties.PENALTIES,
    *removal.MECHANISMS,
    removal.State,
    removal.Draft,
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
    "int": lambda data, _: int(data["int"]),
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


VERSION = 1
# Being written, and decided upon but not yet in place.
SAVING, SAVED = ".saving", ".saved"
PRIVATE = "private."  # how names of private files begin


class CorruptFiles(ExpungeError, ValueError):
    """A saved model is incomplete, altered, or of another version; nothing was read."""


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write these files into the folder in place of those of the same names.

    All of them or, if anything fails, none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        if (folder / name).is_symlink():
            raise InvalidInput(
                f"{name} in {folder} is a link, behind which removed rows would stay; "
                "save into a folder of plain files"
            )
    _settle(folder)
    saving = folder / SAVING
    _discard(saving)
    saving.mkdir(mode=0o700)
    try:
        for name, data in files.items():
            private = name.startswith(PRIVATE)
            write_new(saving / name, data, OWNER_ALONE if private else ANYONE)
        flush(saving)
        saving.rename(folder / SAVED)
    except BaseException:
        _discard(saving)
        raise
    flush(folder)
    _settle(folder)


def read_file(folder: Path, name: str) -> bytes | None:
    """Return a file of the folder; None if it is not there."""
    for place in (folder / SAVED / name, folder / name):
        try:
            return place.read_bytes()
        except FileNotFoundError:
            continue
    return None


def sealed(kind: str, content: Mapping[str, Any]) -> bytes:
    """Return the manifest of this content, in its only spelling."""
    manifest = {
        "content": content,
        "format": f"expunge {kind}",
        "sha256": digest(dumps(content).encode()),
        "version": VERSION,
    }
    return dumps(manifest).encode()


def unsealed(kind: str, data: bytes) -> dict[str, Any]:
    """Return the content of a manifest, or raise CorruptFiles."""
    try:
        manifest = loads(data, f"{kind}.json")
    except InvalidInput as error:
        raise CorruptFiles(f"{error}; {RESTORE}") from None
    version = manifest.get("version")
    if version != VERSION and isinstance(version, int):
        raise CorruptFiles(
            f"{kind}.json is of version {version} and this expunge reads {VERSION}; "
            "load it with the expunge that wrote it, or a newer one"
        )
    content = manifest.get("content")
    # Equal bytes, not equal meaning: no byte can change unnoticed.
    if not isinstance(content, dict) or sealed(kind, content) != data:
        raise CorruptFiles(f"{kind}.json was altered since it was saved; {RESTORE}")
    return content


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return sha256(data).hexdigest()


RESTORE = "restore the folder from where it was copied, or save the model again"


def _settle(folder: Path) -> None:
    """Let files that were decided upon take their places."""
    saved = folder / SAVED
    if not saved.is_dir():
        return
    for file in sorted(saved.iterdir()):
        private = file.name.startswith(PRIVATE)
        with scrubbed(folder / file.name) if private else nullcontext():
            file.replace(folder / file.name)
    saved.rmdir()
    flush(folder)


def _discard(folder: Path) -> None:
    """Remove what an interrupted save left, its bytes first."""
    if not folder.is_dir():
        return
    for file in folder.iterdir():
        destroy(file)
    folder.rmdir()
