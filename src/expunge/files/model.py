# SPDX-License-Identifier: Apache-2.0
"""Snapshots to folders and back: the release apart from what is private.

Noise that was drawn ahead is never written: reading draws its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..core.packing import pack, unpack
from ..exceptions import InvalidInput
from ..private_model.snapshot import PublicModel, Snapshot, note_use
from ..private_model.training_rows import RowDigests, TrainingRows
from .format import (
    RESTORE,
    Content,
    CorruptFiles,
    digest,
    frame,
    read_file,
    replace_files,
    safetensors,
    sealed,
    unframe,
    unsealed,
)

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)


def save(snapshot: Snapshot, path: str | PathLike[str]) -> None:
    """Write a model into a folder, in place of what was saved there before.

    The folder is replaced as a whole, and the private files of an earlier save are
    overwritten. Save again after every ``forget``: until then the folder remembers.

    Parameters
    ----------
    snapshot
        The model; of a copy that carries the release alone, the release.
    path
        The folder; it is made if need be.
    """
    folder = Path(path)
    arrays: dict[str, NDArray[Any]] = {}
    content = pack_public(snapshot.public, arrays)
    public = _sealed_pair("release", content, arrays)
    private: dict[str, bytes] = {}
    if snapshot.private is not None:
        arrays = {}
        content = _private_content(snapshot, arrays)
        content["release"] = digest(public["release.json"])
        private = _sealed_pair("private", content, arrays)
    elif read_file(folder, "private.json") is not None:
        raise InvalidInput(
            "this copy carries the release alone and the folder holds private "
            "state, which it would orphan; save it into a folder of its own"
        )
    replace_files(folder, public | private)


def read_snapshot(path: str | PathLike[str]) -> Snapshot:
    """Return the model that was saved in a folder.

    With the private files it goes on where it was. Raises CorruptFiles if anything was
    altered.
    """
    folder = Path(path)
    manifest = _require(read_file(folder, "release.json"), "release.json", folder)
    content, arrays = _open_pair(folder, "release", manifest)
    try:
        snapshot = Snapshot(unpack_public(content, arrays))
    except UNREADABLE as error:
        raise CorruptFiles(f"release.json holds no model; {RESTORE}") from error
    private = read_file(folder, "private.json")
    if private is None:
        if read_file(folder, "private.safetensors") is not None:
            _require(None, "private.json", folder)
        return snapshot
    content, arrays = _open_pair(folder, "private", private)
    if content.get("release") != digest(manifest):
        raise CorruptFiles(
            "private.json belongs to another release than release.json: they were not "
            f"saved together; {RESTORE}"
        )
    try:
        return _load_private(snapshot, content, arrays)
    except UNREADABLE as error:
        raise CorruptFiles(f"private.json holds no private state; {RESTORE}") from error


def pack_public(public: PublicModel, arrays: dict[str, NDArray[Any]]) -> Content:
    """Return what may be shipped of a model as JSON data, with its arrays beside it."""
    return {"model": pack(public, "model", arrays)}


def unpack_public(content: Content, arrays: Mapping[str, NDArray[Any]]) -> PublicModel:
    """Return the public model that was packed."""
    public: PublicModel = unpack(content["model"], arrays)
    note_use(public.parameters["budget"])  # by the fit that was saved
    return public


def frame_public(public: PublicModel) -> bytes:
    """Return what may be shipped of a model as one piece."""
    arrays: dict[str, NDArray[Any]] = {}
    return b"".join(frame(pack_public(public, arrays), arrays))


def unframe_public(data: bytes) -> PublicModel:
    """Return the public model that was framed."""
    return unpack_public(*unframe(data))


def _private_content(snapshot: Snapshot, arrays: dict[str, NDArray[Any]]) -> Content:
    """Return what removal needs: the private model, its digests, its rows if kept."""
    assert snapshot.private is not None
    private = snapshot.private.compact()
    assert private.digests is not None
    rows = private.training_rows
    return {
        **replace(snapshot, private=private).dump(arrays),
        "digests": private.digests.dump("digests", arrays),
        "rows": None if rows is None else rows.dump("rows", arrays),
    }


def _load_private(
    snapshot: Snapshot, content: Content, arrays: Mapping[str, NDArray[Any]]
) -> Snapshot:
    """Return the snapshot with what was private."""
    rows = unpack(content["rows"], arrays)
    loaded = snapshot.load(
        content,
        arrays,
        training_rows=None if rows is None else TrainingRows(*rows),
        digests=RowDigests.load(unpack(content["digests"], arrays)),
    )
    assert loaded.private is not None
    # The folder can be loaded again, and every copy counts for itself.
    scope = replace(loaded.private.scope, counted_apart=True)
    return loaded.keep(replace(loaded.private, scope=scope))


def _sealed_pair(
    kind: str, content: Content, arrays: dict[str, NDArray[Any]]
) -> dict[str, bytes]:
    """Return manifest and arrays as files, the one holding the hash of the other."""
    data = safetensors().save(arrays)
    content["arrays"] = digest(data)
    return {f"{kind}.safetensors": data, f"{kind}.json": sealed(kind, content)}


def _open_pair(
    folder: Path, kind: str, manifest: bytes
) -> tuple[Content, Mapping[str, NDArray[Any]]]:
    """Return content and arrays of a manifest, both checked against their hashes."""
    content = unsealed(kind, manifest)
    name = f"{kind}.safetensors"
    data = _require(read_file(folder, name), name, folder)
    if digest(data) != content.pop("arrays", None):
        raise CorruptFiles(f"{name} was altered since it was saved; {RESTORE}")
    arrays: Mapping[str, NDArray[Any]] = safetensors().load(data)
    return content, arrays


def _require(data: bytes | None, name: str, folder: Path) -> bytes:
    """Return a file that must be there."""
    if data is None:
        raise CorruptFiles(f"{name} is missing in {folder}; {RESTORE}")
    return data
