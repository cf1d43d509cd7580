# SPDX-License-Identifier: Apache-2.0
"""Contents: what is written of an estimator, its release apart from what is private.

The release holds what predictions and a certificate need; the seed of the noise, which
would undo it, is private. Noise drawn ahead is never written: whoever reads draws anew.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._typing import Index
from ..canonical import dumps, loads
from ..exceptions import MissingExtra, Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from ..linear_model.holdings import Fetch, Holdings
from ..linear_model.kept import Kept
from ..linear_model.snapshot import Shown, Snapshot, used_before
from ..noise import SecureNoise, release_noise
from ..private import Private
from ..record import Record
from ..roster import Roster
from ..tuning import TunedClassifier, TunedRegressor
from ..tuning.estimators import Tuned, choice_noise
from ..tuning.holdings import TunedHoldings
from ..unlearn import Release
from .packing import Arrays, packed, unpacked

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
        noise = release_noise(custody.budget, seed)
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
    line = dumps(content).encode("ascii") + b"\n"
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
