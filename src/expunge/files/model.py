# SPDX-License-Identifier: Apache-2.0
"""Estimators to folders and back.

Contents: what is written of an estimator, its release apart from what is private.

The release holds what predictions and a certificate need; the seed of the noise, which
would undo it, is private. Noise drawn ahead is never written: whoever reads draws anew.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Index, Private
from ..exceptions import InvalidInput, MissingExtra, Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from ..linear_model.base import Forgetful
from ..private_model.holdings import Fetch, Holdings
from ..private_model.snapshot import Shown, Snapshot, used_before
from ..private_model.training_rows import DIGEST_BYTES, Kept, Roster
from ..private_model.unlearn import Release
from ..promise.canonical import dumps, loads
from ..promise.noise import SecureNoise, make_noise
from ..promise.record import Record
from ..selection.tuned_model import TunedHoldings, bounds_among
from ..tuning import TunedClassifier, TunedRegressor
from ..tuning.estimators import Tuned, choice_noise
from .format import (
    RESTORE,
    Arrays,
    CorruptFiles,
    digest,
    packed,
    read_file,
    replace_files,
    sealed,
    unpacked,
    unsealed,
)

Loaded: TypeAlias = LogisticRegression | LinearRegression | SoftmaxRegression | Tuned
Content: TypeAlias = dict[str, Any]

ESTIMATORS: Mapping[str, type[Loaded]] = {
    "LinearRegression": LinearRegression,
    "LogisticRegression": LogisticRegression,
    "SoftmaxRegression": SoftmaxRegression,
    "TunedClassifier": TunedClassifier,
    "TunedRegressor": TunedRegressor,
}
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
# What a fit learned of features and targets beside the parameters, where it is set.
LEARNED = ("n_features_in_", "feature_names_in_", "_n_targets")


def require_known(model: object) -> None:
    """Refuse an estimator that reading could not make again."""
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise Unsupported(
            f"{type(model).__name__} is not an estimator of expunge and cannot be "
            f"saved; {', '.join(ESTIMATORS)} can"
        )


def release_content(model: Any, shown: Shown, arrays: Arrays) -> Content:
    """Return what may be shipped of a release of this estimator."""
    learned = {name: getattr(model, name) for name in LEARNED if hasattr(model, name)}
    parts = {
        "parameters": dict(shown.parameters) | {"random_state": None},
        "learned": learned,
        "classes": shown.classes,
        "pair": shown.pair,
        "weighted": shown.weighted,
        "declared": shown.declared,
        "theta": shown.release.theta,
        "certificate": shown.release.certificate,
    }
    content = {name: packed(part, name, arrays) for name, part in parts.items()}
    return content | {"estimator": type(model).__name__}


def read_release(content: Content, arrays: Mapping[str, NDArray[Any]]) -> Loaded:
    """Return the estimator with its release alone."""
    parameters = unpacked(content["parameters"], arrays)
    model = ESTIMATORS[content["estimator"]](**parameters)
    for name, value in unpacked(content["learned"], arrays).items():
        if name not in LEARNED:
            raise LookupError(name)
        setattr(model, name, value)
    theta = unpacked(content["theta"], arrays)
    theta.setflags(write=False)
    shown = Shown(
        Release(theta, unpacked(content["certificate"], arrays)),
        parameters,
        classes=unpacked(content["classes"], arrays),
        pair=unpacked(content["pair"], arrays),
        weighted=unpacked(content["weighted"], arrays),
        declared=unpacked(content["declared"], arrays),
    )
    model._snapshot = Snapshot(shown)
    used_before(parameters["budget"])  # by the fit that was saved
    return model


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Beside(Private):
    """What lies beside the custody: the roster, and the rows or a way to them."""

    roster: Roster
    kept: Kept | None
    fetch: Fetch | None = None


def custody_content(
    model: Any, holdings: Holdings, record: Record, bounds: Index | None, arrays: Arrays
) -> Content:
    """Return what removal needs beside rows and roster.

    Parameters
    ----------
    model
        The estimator.
    holdings, record
        What it holds, and the record behind its last release.
    bounds
        Of a tuned model, where each fold begins among the rows as they are written.
    arrays
        Gets the arrays.
    """
    tuned = None
    if isinstance(holdings, TunedHoldings):
        tuned = holdings.rule, bounds, holdings.models, holdings.chosen
    parts = {
        "custody": replace(holdings.custody, released=None),
        "released": holdings.custody.released is not None,
        "record": record,
        "labels": holdings.labels,
        "tuned": tuned,
        "random_state": model._shown.parameters["random_state"],
        "adoption": getattr(model, "adoption_", None),
    }
    return {name: packed(part, name, arrays) for name, part in parts.items()}


def give_custody(model: Any, parts: Mapping[str, Any], beside: Beside) -> None:
    """Give the estimator its holdings, with noise that nobody has seen.

    Parameters
    ----------
    model
        As ``read_release`` returns it.
    parts
        What ``custody_content`` wrote, unpacked.
    beside
        What was written apart.
    """
    shown: Shown = model._shown
    record: Record = parts["record"]
    custody, seed = parts["custody"], parts["random_state"]
    if parts["released"]:
        custody = replace(custody, released=(shown.release, record))
    model.random_state = seed
    shown = replace(shown, parameters=dict(shown.parameters) | {"random_state": seed})
    held = (custody, None, beside.roster, beside.kept, parts["labels"])
    holdings = Holdings(*held, beside.fetch)
    if parts["tuned"] is not None:
        rule, bounds, models, chosen = parts["tuned"]
        holdings = TunedHoldings(
            *held,
            beside.fetch,
            rule=rule,
            bounds=bounds,
            models=models,
            choice_noise=None,
            chosen=chosen,
        )
    model._snapshot = Snapshot(shown, with_fresh_noise(holdings, seed), record)
    if parts["adoption"] is not None:
        model.adoption_ = parts["adoption"]


def with_fresh_noise(holdings: Holdings, seed: int | None) -> Holdings:
    """Return the holdings with noise that no release of their account has had."""
    custody = holdings.custody
    noise = None
    if custody.budget is not None:
        noise = make_noise(custody.budget, seed)
        if isinstance(noise, SecureNoise):
            noise.prepare(custody.accountant.n_parameters)
    if not isinstance(holdings, TunedHoldings) or holdings.rule.method != "noised":
        return replace(holdings, noise=noise)
    rule = holdings.rule
    assert rule.budget is not None
    choices = choice_noise(rule.budget, seed)
    return replace(holdings, noise=noise, choice_noise=choices)


def framed(content: Content, arrays: Arrays) -> list[memoryview]:
    """Return content and arrays as one piece: a line of JSON, then safetensors.

    The piece comes in parts, which are not copied: a state is megabytes, and this is
    done for every request.
    """
    line = dumps(content).encode() + b"\n"
    return [memoryview(line), *_safetensors_parts(arrays)]


def _safetensors_parts(arrays: Arrays) -> list[memoryview]:
    """Return arrays in the format of safetensors: a header, then each array's bytes."""
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # so that arrays are aligned
    bodies = [_bytes_of(array) for array in arrays.values()]
    return [memoryview(len(text).to_bytes(8, "little") + text), *bodies]


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array where they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def unframed(data: bytes) -> tuple[Content, dict[str, NDArray[Any]]]:
    """Return content and arrays of one piece."""
    line, _, rest = data.partition(b"\n")
    return loads(line, "a framed piece"), safetensors().load(rest)


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
