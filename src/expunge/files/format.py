# SPDX-License-Identifier: Apache-2.0
"""The format of saved models: JSON manifests, safetensors, a folder replaced at once.

New files are written beside the old ones and flushed to disk; one rename then decides,
after which each takes its place. A crash before the rename leaves the old folder, a
crash after it the new one: readers prefer what has not taken its place yet. Private
files are readable by their owner alone, and overwritten with zeros once replaced.
What a file system, a backup or a solid-state disk keeps beyond that is out of reach.

Every file is sealed: a manifest holds the SHA-256 of its content and of the arrays
beside it. That catches accidents. Anyone who can write the folder can also seal it.
"""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..disk import (
    ANYONE,
    OWNER_ALONE,
    destroy,
    erase_replaced,
    sync_folder,
    write_new_file,
)
from ..exceptions import ExpungeError, InvalidInput, MissingExtra
from ..promise.canonical import dumps, loads

Content: TypeAlias = dict[str, Any]

VERSION = 1
SAVING, SAVED = ".saving", ".saved"
RESTORE = "restore the folder from where it was copied, or save the model again"
METADATA = "__metadata__"  # where safetensors keeps words
# As safetensors spells them.
DTYPES = {
    "bool": "BOOL",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
}
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
            write_new_file(saving / name, data, OWNER_ALONE if private else ANYONE)
        sync_folder(saving)
        saving.rename(folder / SAVED)
    except BaseException:
        _discard(saving)
        raise
    sync_folder(folder)
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


def _settle(folder: Path) -> None:
    """Let files that were decided upon take their places."""
    saved = folder / SAVED
    if not saved.is_dir():
        return
    for file in sorted(saved.iterdir()):
        private = file.name.startswith(PRIVATE)
        with erase_replaced(folder / file.name) if private else nullcontext():
            file.replace(folder / file.name)
    saved.rmdir()
    sync_folder(folder)


def _discard(folder: Path) -> None:
    """Remove what an interrupted save left, its bytes first."""
    if not folder.is_dir():
        return
    for file in folder.iterdir():
        destroy(file)
    folder.rmdir()


def frame(content: Content, arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """Return content and arrays as one piece: a line of JSON, then safetensors.

    The piece comes in parts, which are not copied: a state is megabytes, and this is
    done for every request.
    """
    line = dumps(content).encode() + b"\n"
    return [memoryview(line), *tensor_parts(arrays)]


def unframe(data: bytes) -> tuple[Content, dict[str, NDArray[Any]]]:
    """Return content and arrays of one piece."""
    line, _, rest = data.partition(b"\n")
    return loads(line, "a framed piece"), safetensors().load(rest)


def tensor_parts(arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """Return arrays in the format of safetensors: a header, then each array's bytes.

    Written here because the library copies, and puts words into an order of the day.
    """
    header = encode_header(tensor_header(arrays))
    return [memoryview(header), *(_bytes_of(array) for array in arrays.values())]


def tensor_header(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the header of a safetensors file with these arrays."""
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    return header


def encode_header(header: Mapping[str, Any]) -> bytes:
    """Return a header as safetensors begins a file, in one spelling."""
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode("ascii")
    text += b" " * (-len(text) % 8)  # so that arrays are aligned
    return len(text).to_bytes(8, "little") + text


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array where they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def safetensors() -> Any:
    """Return the library that reads and writes arrays."""
    try:
        from safetensors import numpy
    except ImportError as error:
        raise MissingExtra(
            "saving and loading needs safetensors, which is not installed; run "
            "pip install expunge[files]"
        ) from error
    return numpy
