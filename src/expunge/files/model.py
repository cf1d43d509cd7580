# SPDX-License-Identifier: Apache-2.0
"""Estimators to folders and back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..exceptions import InvalidInput
from ..linear_model.base import Forgetful
from ..linear_model.holdings import Holdings
from ..linear_model.kept import Kept
from ..roster import DIGEST_BYTES, Roster
from ..tuning.holdings import TunedHoldings, bounds_among
from .contents import (
    Beside,
    Content,
    Loaded,
    custody_content,
    give_custody,
    read_release,
    release_content,
    require_known,
    safetensors,
)
from .folder import (
    RESTORE,
    CorruptFiles,
    digest,
    read_file,
    replace_files,
    sealed,
    unsealed,
)
from .packing import Arrays, packed, unpacked


def save(model: Forgetful, path: str | PathLike[str]) -> None:
    """Write a fitted model into a folder, in place of what was saved there before.

    The folder is replaced as a whole, and the private files of an earlier save are
    overwritten. Save again after every ``forget``: until then the folder remembers.

    Parameters
    ----------
    model
        A fitted estimator; of a copy that carries the release alone, the release.
    path
        The folder; it is made if need be.
    """
    require_known(model)
    check_is_fitted(model, "_snapshot")
    folder = Path(path)
    with model._writing:
        arrays: dict[str, NDArray[Any]] = {}
        content = release_content(model, model._shown, arrays)
        public = _sealed_pair("release", content, arrays)
        private: dict[str, bytes] = {}
        if model._snapshot.holdings is not None:
            arrays = {}
            content = _private_content(model, model._private_state(), arrays)
            content["release"] = digest(public["release.json"])
            private = _sealed_pair("private", content, arrays)
        elif read_file(folder, "private.json") is not None:
            raise InvalidInput(
                "this copy carries the release alone and the folder holds private "
                "state, which it would orphan; save it into a folder of its own"
            )
        replace_files(folder, public | private)


def load(path: str | PathLike[str]) -> Loaded:
    """Return the model that was saved in a folder.

    With the private files it goes on where it was: the same predictions, the same
    removals, the same account of releases. With the release alone it predicts, and
    ``forget`` raises NoPrivateState. Raises CorruptFiles if anything was altered.

    Parameters
    ----------
    path
        The folder.
    """
    folder = Path(path)
    manifest = _require(read_file(folder, "release.json"), "release.json", folder)
    content, arrays = _opened(folder, "release", manifest)
    try:
        model = read_release(content, arrays)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFiles(f"release.json holds no model; {RESTORE}") from error
    private = read_file(folder, "private.json")
    if private is None:
        if read_file(folder, "private.safetensors") is not None:
            _require(None, "private.json", folder)
        return model
    content, arrays = _opened(folder, "private", private)
    if content.get("release") != digest(manifest):
        raise CorruptFiles(
            "private.json belongs to another release than release.json: they were not "
            f"saved together; {RESTORE}"
        )
    try:
        _restore(model, content, arrays)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFiles(f"private.json holds no private state; {RESTORE}") from error
    return model


def _private_content(model: Any, holdings: Holdings, arrays: Arrays) -> Content:
    """Return what removal needs: custody, record, roster, and rows where kept."""
    roster = holdings.roster
    entries = sorted(roster.counts.items())
    digests = b"".join(entry for entry, _ in entries)
    owners = [person for entry, _ in entries for person in roster.owners.get(entry, ())]
    kept = bounds = None
    if holdings.kept is not None:
        alive = holdings.kept.alive
        names = [o for o, a in zip(holdings.kept.owners, alive, strict=True) if a]
        kept = (holdings.kept.rows.take(alive), names, sorted(holdings.kept.asked))
        if isinstance(holdings, TunedHoldings):
            bounds = bounds_among(alive, holdings.bounds)
    parts = {
        "key": roster.key,
        "owners": np.array(owners, dtype=np.int64),
        "asked": sorted(roster.asked),
        "digests": np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES),
        "counts": np.array([count for _, count in entries], dtype=np.int64),
        "kept": kept,
    }
    content = {name: packed(part, name, arrays) for name, part in parts.items()}
    return content | custody_content(model, holdings, model.record_, bounds, arrays)


def _restore(model: Any, content: Content, arrays: Any) -> None:
    """Give the estimator what was private."""
    parts = {name: unpacked(content[name], arrays) for name in content}
    kept = None if parts["kept"] is None else Kept(*parts["kept"])
    # The folder can be loaded again, and every copy counts for itself.
    scope = replace(parts["custody"].scope, counted_apart=True)
    parts["custody"] = replace(parts["custody"], scope=scope)
    give_custody(model, parts, Beside(_roster(parts), kept))


def _roster(parts: Content) -> Roster:
    """Return the roster, with the owners of its entries where it knows them."""
    entries = [bytes(entry) for entry in parts["digests"]]
    counts = parts["counts"].tolist()
    owners, people = {}, iter(parts["owners"].tolist())
    if len(parts["owners"]):
        owners = {
            entry: list(islice(people, count))
            for entry, count in zip(entries, counts, strict=True)
        }
    table = Counter(dict(zip(entries, counts, strict=True)))
    return Roster(table, parts["key"], owners, parts["asked"])


def _sealed_pair(
    kind: str, content: Content, arrays: dict[str, NDArray[Any]]
) -> dict[str, bytes]:
    """Return manifest and arrays as files, the one holding the hash of the other."""
    data = safetensors().save(arrays)
    content["arrays"] = digest(data)
    return {f"{kind}.safetensors": data, f"{kind}.json": sealed(kind, content)}


def _opened(
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
