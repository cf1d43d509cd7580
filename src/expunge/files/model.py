# SPDX-License-Identifier: Apache-2.0
"""Estimators to folders and back.

The release holds what predictions and a certificate need; the seed of the noise, which
would undo it, is private. Noise drawn ahead is never written: whoever loads draws anew.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..budget import Budget
from ..exceptions import InvalidInput, MissingExtra, Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from ..linear_model.base import Forgetful
from ..linear_model.holdings import Holdings
from ..linear_model.kept import Kept
from ..noise import Noise, SecureNoise, release_noise
from ..record import Record
from ..roster import DIGEST_BYTES, Roster
from ..tuning import TunedClassifier, TunedRegressor
from ..tuning.estimators import Tuned, choice_noise
from ..tuning.holdings import TunedHoldings, bounds_among
from ..unlearn import Release
from .folder import (
    RESTORE,
    CorruptFiles,
    digest,
    read_file,
    replace_files,
    sealed,
    unsealed,
)
from .packing import packed, unpacked

Loaded: TypeAlias = LogisticRegression | LinearRegression | SoftmaxRegression | Tuned
Content: TypeAlias = dict[str, Any]

ESTIMATORS: Mapping[str, type[Loaded]] = {
    "LinearRegression": LinearRegression,
    "LogisticRegression": LogisticRegression,
    "SoftmaxRegression": SoftmaxRegression,
    "TunedClassifier": TunedClassifier,
    "TunedRegressor": TunedRegressor,
}
# What a fit learned of labels and features beside the parameters, where it is set.
LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "_n_targets")


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
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise Unsupported(
            f"{type(model).__name__} is not an estimator of expunge and cannot be "
            f"saved; {', '.join(ESTIMATORS)} can"
        )
    check_is_fitted(model, "_published")
    folder = Path(path)
    with getattr(model, "_lock", nullcontext()):
        public = _sealed_pair("release", *_release_content(model))
        private: dict[str, bytes] = {}
        if getattr(model, "_holdings", None) is not None:
            content, arrays = _private_content(model, model._private_state())
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
        model, public = _model(content, arrays)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFiles(f"release.json holds no model; {RESTORE}") from error
    private = read_file(folder, "private.json")
    if private is None:
        if read_file(folder, "private.safetensors") is not None:
            _require(None, "private.json", folder)
        model._published = public
        return model
    content, arrays = _opened(folder, "private", private)
    if content.get("release") != digest(manifest):
        raise CorruptFiles(
            "private.json belongs to another release than release.json: they were not "
            f"saved together; {RESTORE}"
        )
    try:
        _restore(model, public, content, arrays)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFiles(f"private.json holds no private state; {RESTORE}") from error
    return model


def _release_content(model: Any) -> tuple[Content, dict[str, NDArray[Any]]]:
    """Return what may be shipped."""
    arrays: dict[str, NDArray[Any]] = {}
    parameters = model.get_params(deep=False) | {"random_state": None}
    learned = {name: getattr(model, name) for name in LEARNED if hasattr(model, name)}
    parts = {
        "parameters": parameters,
        "learned": learned,
        "theta": model._release.theta,
        "certificate": model.certificate_,
    }
    content = {name: packed(part, name, arrays) for name, part in parts.items()}
    return content | {"estimator": type(model).__name__}, arrays


def _private_content(
    model: Any, holdings: Holdings
) -> tuple[Content, dict[str, NDArray[Any]]]:
    """Return what removal needs: custody, record, roster, and rows where kept."""
    arrays: dict[str, NDArray[Any]] = {}
    entries = sorted(holdings.roster.counts.items())
    digests = b"".join(entry for entry, _ in entries)
    kept = None
    if holdings.kept is not None:
        alive = holdings.kept.alive
        owners = [o for o, a in zip(holdings.kept.owners, alive, strict=True) if a]
        kept = (holdings.kept.rows.take(alive), owners)
    parts = {
        "custody": replace(holdings.custody, released=None),
        "released": holdings.custody.released is not None,
        "record": model._record,
        "key": holdings.roster.key,
        "digests": np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES),
        "counts": np.array([count for _, count in entries], dtype=np.int64),
        "kept": kept,
        "notes": holdings.notes,
        "tuned": _tuned_content(holdings),
        "random_state": model.random_state,
        "adoption": getattr(model, "adoption_", None),
    }
    return {name: packed(part, name, arrays) for name, part in parts.items()}, arrays


def _tuned_content(holdings: Holdings) -> tuple[Any, ...] | None:
    """Return what a tuned model keeps beside; its folds among the rows written."""
    if not isinstance(holdings, TunedHoldings) or holdings.kept is None:
        return None
    bounds = bounds_among(holdings.kept.alive, holdings.bounds)
    return holdings.rule, bounds, holdings.models, holdings.chosen


def _model(content: Content, arrays: Any) -> tuple[Loaded, Release]:
    """Return the estimator without its holdings, and its release."""
    model = ESTIMATORS[content["estimator"]](**unpacked(content["parameters"], arrays))
    for name, value in unpacked(content["learned"], arrays).items():
        if name not in LEARNED:
            raise LookupError(name)
        setattr(model, name, value)
    theta = unpacked(content["theta"], arrays)
    theta.setflags(write=False)
    return model, Release(theta, unpacked(content["certificate"], arrays))


def _restore(model: Any, public: Release, content: Content, arrays: Any) -> None:
    """Give the estimator its holdings, with noise that nobody has seen."""
    parts = {name: unpacked(content[name], arrays) for name in content}
    record: Record = parts["record"]
    custody = parts["custody"]
    if parts["released"]:
        custody = replace(custody, released=(public, record))
    entries = (bytes(entry) for entry in parts["digests"])
    counts = Counter(dict(zip(entries, parts["counts"].tolist(), strict=True)))
    kept = None if parts["kept"] is None else Kept(*parts["kept"])
    model.random_state = parts["random_state"]
    account = custody.accountant
    noise = _noise(custody.budget, model.random_state, account)
    roster, notes = Roster(counts, parts["key"]), tuple(parts["notes"])
    holdings = Holdings(custody, noise, roster, kept, notes)
    if parts["tuned"] is not None:
        holdings = _tuned(holdings, parts["tuned"], model.random_state)
    model._show(holdings, public, record)
    if parts["adoption"] is not None:
        model.adoption_ = parts["adoption"]


def _tuned(
    holdings: Holdings, tuned: tuple[Any, ...], seed: int | None
) -> TunedHoldings:
    """Return the holdings of a tuned model, with fresh noise for its choices."""
    rule, bounds, models, chosen = tuned
    noise = None
    if rule.method == "noised":
        noise = choice_noise(rule.budget, seed)
        if not isinstance(noise, SecureNoise):
            for _ in range(holdings.custody.accountant.n_releases):
                noise.draw(len(rule.objectives))
    return TunedHoldings(
        holdings.custody,
        holdings.noise,
        holdings.roster,
        holdings.kept,
        holdings.notes,
        rule=rule,
        bounds=bounds,
        models=models,
        choice_noise=noise,
        chosen=chosen,
    )


def _noise(budget: Budget | None, seed: int | None, account: Any) -> Noise | None:
    """Return fresh noise; a seeded sequence goes on behind the releases made."""
    if budget is None:
        return None
    noise = release_noise(budget, seed)
    if isinstance(noise, SecureNoise):
        noise.prepare(account.n_parameters)
        return noise
    for _ in range(account.n_releases):
        noise.draw(account.n_parameters)
    return noise


def _sealed_pair(
    kind: str, content: Content, arrays: dict[str, NDArray[Any]]
) -> dict[str, bytes]:
    """Return manifest and arrays as files, the one holding the hash of the other."""
    data = _safetensors().save(arrays)
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
    arrays: Mapping[str, NDArray[Any]] = _safetensors().load(data)
    return content, arrays


def _require(data: bytes | None, name: str, folder: Path) -> bytes:
    """Return a file that must be there."""
    if data is None:
        raise CorruptFiles(f"{name} is missing in {folder}; {RESTORE}")
    return data


def _safetensors() -> Any:
    """Return the library that reads and writes arrays."""
    try:
        from safetensors import numpy
    except ImportError as error:
        raise MissingExtra(
            "saving and loading needs safetensors, which is not installed; run "
            "pip install expunge[files]"
        ) from error
    return numpy
