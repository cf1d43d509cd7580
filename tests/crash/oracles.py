# SPDX-License-Identifier: Apache-2.0
"""Oracles: what models must be at the end, by a run in peace and by retraining."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expunge.core.linalg import Symmetric
from expunge.linear_model.base import private_model
from expunge.private_model.model import PrivateModel
from expunge.registry import Registry
from expunge.removal.state import Draft, State
from tests.registries import private_models_in

from .expected import Expected
from .story import Story, join_samples, unfitted

AGREEMENT = 1e-10
# How often sums were updated depends on which requests came together.
COUNTED = "n_updates"

Arrays = Mapping[str, NDArray[np.float64]]


def parameters_of(registry: Registry) -> dict[str, str]:
    """Return the first parameter of the newest release of each model, as its bytes."""
    return {
        name: registry.model(name).coef_.ravel()[:1].tobytes().hex()
        for name in registry.models.names()
    }


def parameters_in(folder: Path) -> set[str]:
    """Return those of the releases that are the newest now."""
    with Registry.open(folder) as registry:
        return set(parameters_of(registry).values())


def private_arrays(folder: Path) -> Arrays:
    """Return every figure of every model's private state and answer, by name."""
    return {
        f"{model} {name}": figures
        for model, private in private_models_in(folder).items()
        for value in solve_fully(private)
        for name, figures in _figures(value)
    }


def solve_fully(model: PrivateModel) -> tuple[State, Draft]:
    """Return state and answer with nothing left unsolved.

    How much a request leaves, as its budget allows, depends on those before it.
    """
    return model.terms.mechanism.step(model.answer.state)


def differences(wanted: Arrays, found: Arrays) -> Iterator[str]:
    """Yield where figures are not those of a run in peace."""
    for name in wanted.keys() | found.keys():
        if name not in wanted or name not in found:
            yield f"{name}: on one side alone"
            continue
        one, other = wanted[name], found[name]
        if one.shape != other.shape:
            yield f"{name}: of shape {other.shape}, and {one.shape} in peace"
            continue
        scale = max(1.0, float(np.abs(one[np.isfinite(one)]).max(initial=0.0)))
        differ = one != other  # of equal infinities the difference is no number
        distance = float(np.abs(one[differ] - other[differ]).max(initial=0.0))
        if not distance <= AGREEMENT * scale:
            yield f"{name}: {distance:.1e} from what it is in peace"


def unlike_retraining(story: Story, folder: Path) -> Iterator[str]:
    """Yield models farther from retraining than their certificates allow."""
    rows = Expected(story).rows
    for name, model in private_models_in(folder).items():
        stayed = join_samples(rows[name].values())
        retrained = private_model(unfitted(name).fit(stayed.X, stayed.y))
        distance = np.linalg.norm(
            model.answer.draft.theta - retrained.answer.draft.theta
        )
        if not distance <= model.answer.radius.value + retrained.answer.radius.value:
            yield f"{name}: {distance:.1e} from retraining, beyond its radius"
        if model.answer.decisions not in (
            ("fitted",),
            ("accepted",),
            ("re-anchored",),
        ):
            yield f"{name}: {model.answer.decisions}, so a batch is not a stream"


def _figures(value: State | Draft) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for name in type(value).__slots__:
        part = getattr(value, name)
        figures = part.dense() if isinstance(part, Symmetric) else part
        if name != COUNTED and isinstance(figures, np.ndarray | float | int):
            yield f"{type(value).__name__}.{name}", np.asarray(figures, np.float64)
