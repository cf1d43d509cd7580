# SPDX-License-Identifier: Apache-2.0
"""A model in a folder: its public part apart from its private part.

New files are written beside the old ones and flushed to disk; then one rename decides,
after which each takes its place. A crash before the rename leaves the old folder, a
crash after it the new one: readers prefer files that have not taken their place yet.
Private files are readable by their owner alone, and overwritten with zeros once they
are replaced. What a file system, a backup or a solid-state disk keeps beyond that is
out of reach.

A manifest in JSON holds the SHA-256 of its own content and of the safetensors file
beside it. That catches accidents, not forgery: anyone who can write the folder can
also write a new hash. Noise drawn ahead is never written; loading draws its own.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.packing import pack, unpack
from ..core.values import dumps, loads
from ..disk import (
    ANYONE,
    OWNER_ALONE,
    destroy,
    erase_replaced,
    sync_folder,
    write_new_file,
)
from ..exceptions import (
    ExpungeError,
    InvalidInput,
    MissingExtra,
    NothingSaved,
    needing,
)
from ..private_model.row_digests import RowDigests
from ..private_model.snapshot import PublicModel, Snapshot, note_use
from ..private_model.training_rows import TrainingRows, require_in_memory

Content: TypeAlias = dict[str, Any]
VERSION = 1
SAVING, SAVED = ".saving", ".saved"
RESTORE = "restore the folder from where it was copied, or save the model again"
METADATA = "__metadata__"  # where safetensors keeps strings
PRIVATE = "private."  # prefix of private file names
# A link is not followed, and a pipe that nobody writes to is not waited for.
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# The names safetensors uses.
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


class CorruptFiles(ExpungeError, ValueError):
    """A saved model is incomplete, altered, or of another version; nothing was read."""


def save(snapshot: Snapshot, path: str | PathLike[str]) -> None:
    """Write a model into a folder, replacing what was saved there before.

    All files are replaced together, and the private files of an earlier save are
    overwritten. Save again after every ``forget``: until then the folder still holds
    the removed rows.

    Parameters
    ----------
    snapshot
        The model; a copy without private state writes its release alone.
    path
        The folder; it is created if it does not exist.
    """
    folder = Path(path)
    _require_no_file(folder)
    arrays: dict[str, NDArray[Any]] = {}
    content = pack_public(snapshot.public, arrays)
    public = _seal_pair("release", content, arrays=arrays)
    private: dict[str, bytes] = {}
    if snapshot.private is not None:
        arrays = {}
        content = _private_content(snapshot, arrays)
        content["release"] = digest(public["release.json"])
        private = _seal_pair("private", content, arrays=arrays)
    elif read_file(folder, "private.json") is not None:
        raise InvalidInput(
            "this copy has only the release, and the folder holds private state that "
            "would no longer match; save it into another folder"
        )
    replace_files(folder, public | private)


def read_snapshot(path: str | PathLike[str]) -> Snapshot:
    """Return the model that was saved in a folder.

    With the private files it continues where it was. Raises NothingSaved if there is no
    such folder, and CorruptFiles if anything was altered.
    """
    folder = Path(path)
    _require_no_file(folder)
    if not folder.exists():
        raise NothingSaved(
            f"{folder}: no such folder; check the path, or save a model there first"
        )
    manifest = _require(
        read_file(folder, "release.json"), "release.json", folder=folder
    )
    content, arrays = _open_pair(folder, "release", manifest=manifest)
    with refuse_nonsense(f"release.json does not contain a model; {RESTORE}"):
        public = unpack_public(content, arrays)
        public.require_consistent()
        snapshot = Snapshot(public)
    private = read_file(folder, "private.json")
    if private is None:
        if read_file(folder, "private.safetensors") is not None:
            _require(None, "private.json", folder=folder)
        return snapshot
    content, arrays = _open_pair(folder, "private", manifest=private)
    if content.get("release") != digest(manifest):
        raise CorruptFiles(
            f"private.json and release.json were not saved together; {RESTORE}"
        )
    with refuse_nonsense(f"private.json does not contain private state; {RESTORE}"):
        return _load_private(snapshot, content, arrays=arrays)


@contextmanager
def refuse_nonsense(message: str) -> Iterator[None]:
    """Raise CorruptFiles with this message if what was read makes no sense.

    Nobody can list the errors of all that is called with values from a file, which
    may be of any type and size. The message quotes nothing, as the file may be private.
    """
    try:
        yield
    except (CorruptFiles, MissingExtra, MemoryError):
        raise
    except Exception as error:
        raise CorruptFiles(message) from error


def pack_public(public: PublicModel, arrays: dict[str, NDArray[Any]]) -> Content:
    """Return the public model as JSON data, with its arrays beside it."""
    return {"model": pack(public, "model", arrays=arrays)}


def unpack_public(content: Content, arrays: Mapping[str, NDArray[Any]]) -> PublicModel:
    """Return the public model that was packed."""
    public: PublicModel = unpack(content["model"], arrays)
    note_use(public.parameters.get("budget"))  # by the fit that was saved
    return public


def frame_public(public: PublicModel) -> bytes:
    """Return the public model as one piece of bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    return b"".join(frame(pack_public(public, arrays), arrays))


def unframe_public(data: bytes) -> PublicModel:
    """Return the public model that was framed."""
    return unpack_public(*unframe(data))


def frame(content: Content, arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """Return content and arrays as one piece: a line of JSON, then safetensors.

    It comes in parts, to avoid a copy: a state is megabytes, and this is done for every
    request. Nobody signs it, so that it takes the JSON that Python writes fastest.
    """
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    return [memoryview(line), *tensor_parts(arrays)]


def unframe(data: bytes) -> tuple[Content, dict[str, NDArray[Any]]]:
    """Return content and arrays of one piece."""
    line, _, rest = data.partition(b"\n")
    return loads(line, "a framed piece"), import_safetensors().load(rest)


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of these names in a folder: all of them or, on failure, none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        if (folder / name).is_symlink():
            raise InvalidInput(
                f"{name} in {folder} is a link, and removed rows would stay in the "
                "file it points to; save into a folder of plain files"
            )
    _finish_save(folder)
    saving = folder / SAVING
    _discard(saving)
    saving.mkdir(mode=0o700)
    try:
        for name, data in files.items():
            private = name.startswith(PRIVATE)
            write_new_file(saving / name, data, mode=OWNER_ALONE if private else ANYONE)
        sync_folder(saving)
        saving.rename(folder / SAVED)
    except BaseException:
        _discard(saving)
        raise
    sync_folder(folder)
    _finish_save(folder)


def read_file(folder: Path, name: str) -> bytes | None:
    """Return the content of a file in the folder; None if there is no such file.

    Raises CorruptFiles for a link, a pipe or anything else that is no plain file.
    """
    for place in (folder / SAVED / name, folder / name):
        if place.is_symlink() or (place.parent != folder and place.parent.is_symlink()):
            _refuse_special(place)
        try:
            opened = os.open(place, os.O_RDONLY | PLAIN)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.ENODEV):
                _refuse_special(place)
            raise
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            _refuse_special(place)
        with open(opened, "rb") as file:
            return file.read()
    return None


def _refuse_special(place: Path) -> NoReturn:
    raise CorruptFiles(
        f"{place} is a link, a pipe or something else that is no plain file; {RESTORE}"
    )


def seal_manifest(kind: str, content: Mapping[str, Any]) -> bytes:
    """Return the manifest of this content, in canonical JSON with its hash."""
    manifest = {
        "content": content,
        "format": f"expunge {kind}",
        "sha256": digest(dumps(content).encode()),
        "version": VERSION,
    }
    return dumps(manifest).encode()


def open_manifest(kind: str, data: bytes) -> dict[str, Any]:
    """Return the content of a manifest, or raise CorruptFiles."""
    try:
        manifest = loads(data, f"{kind}.json")
    except InvalidInput as error:
        raise CorruptFiles(f"{error}; {RESTORE}") from None
    version = manifest.get("version")
    if version != VERSION and isinstance(version, int):
        raise CorruptFiles(
            f"{kind}.json has version {version} and this expunge reads {VERSION}; load "
            "it with the expunge that wrote it, or a newer one"
        )
    content = manifest.get("content")
    altered = f"{kind}.json was altered since it was saved; {RESTORE}"
    with refuse_nonsense(altered):  # lone surrogates, say, have no spelling
        # Compare bytes, not meaning, so that no changed byte goes unnoticed.
        if not isinstance(content, dict) or seal_manifest(kind, content) != data:
            raise CorruptFiles(altered)
    return content


def tensor_parts(arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """Return arrays in the safetensors format: a header, then the bytes of each array.

    Written here because the library copies arrays and does not fix the order of keys.
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
    """Return the header that begins a safetensors file, in one spelling."""
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode("ascii")
    text += b" " * (-len(text) % 8)  # so that arrays are aligned
    return len(text).to_bytes(8, "little") + text


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return sha256(data).hexdigest()


def import_safetensors() -> Any:
    """Return the safetensors library, or raise MissingExtra."""
    with needing("files", "saving and loading"):
        from safetensors import numpy
    return numpy


def _private_content(snapshot: Snapshot, arrays: dict[str, NDArray[Any]]) -> Content:
    """Return what removal needs: the private model, its digests, its rows if kept."""
    assert snapshot.private is not None
    private = snapshot.private.compact()
    kept, table = private.training_rows, private.digests
    rows = None if kept is None else require_in_memory(kept).dump("rows", arrays)
    return {
        **replace(snapshot, private=private).dump(arrays),
        "digests": None if table is None else table.dump("digests", arrays),
        "rows": rows,
    }


def _load_private(
    snapshot: Snapshot, content: Content, *, arrays: Mapping[str, NDArray[Any]]
) -> Snapshot:
    """Return the snapshot with its private model."""
    rows, digests = (unpack(content[name], arrays) for name in ("rows", "digests"))
    loaded = snapshot.load(
        content,
        arrays,
        training_rows=None if rows is None else TrainingRows(*rows),
        digests=None if digests is None else RowDigests.load(digests),
    )
    assert loaded.private is not None
    loaded.require_consistent()
    # The folder can be loaded more than once, and each copy counts its own releases.
    scope = replace(loaded.private.scope, counted_apart=True)
    return loaded.keep(replace(loaded.private, scope=scope))


def _seal_pair(
    kind: str, content: Content, *, arrays: dict[str, NDArray[Any]]
) -> dict[str, bytes]:
    """Return manifest and arrays as two files; the manifest has the arrays' hash."""
    data = import_safetensors().save(arrays)
    content["arrays"] = digest(data)
    return {f"{kind}.safetensors": data, f"{kind}.json": seal_manifest(kind, content)}


def _open_pair(
    folder: Path, kind: str, *, manifest: bytes
) -> tuple[Content, Mapping[str, NDArray[Any]]]:
    """Return content and arrays of a manifest, after checking both hashes."""
    content = open_manifest(kind, manifest)
    name = f"{kind}.safetensors"
    data = _require(read_file(folder, name), name, folder=folder)
    if digest(data) != content.pop("arrays", None):
        raise CorruptFiles(f"{name} was altered since it was saved; {RESTORE}")
    with refuse_nonsense(f"{name} does not contain arrays; {RESTORE}"):
        arrays: Mapping[str, NDArray[Any]] = import_safetensors().load(data)
    return content, arrays


def _require(data: bytes | None, name: str, *, folder: Path) -> bytes:
    """Return the content of a file that must exist."""
    if data is None:
        raise CorruptFiles(
            f"{name} is missing from {folder}; check the path, {RESTORE}"
        )
    return data


def _require_no_file(folder: Path) -> None:
    """Raise InvalidInput where a file has the name of the folder, or of one above."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InvalidInput(
                f"{place} is a file, and a model is saved in a folder; name a folder "
                "(read_shipped reads files that ship wrote)"
            )


def _finish_save(folder: Path) -> None:
    """Move the files of a completed save into place."""
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
    """Overwrite and remove the files of an interrupted save."""
    if not folder.is_dir():
        return
    for file in folder.iterdir():
        destroy(file)
    folder.rmdir()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
