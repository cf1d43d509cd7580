# SPDX-License-Identifier: Apache-2.0
"""How a pipeline handles each kind of step, in deeds and in words.

A step of ours forgets exactly. A step that learns nothing has nothing to forget. Any
other step learned from the data by means that nothing here can vouch for: it is fitted
again, named as not covered, and costs the release its certificate. Which is which
depends on the steps alone, never on a request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter

from ..core.arrays import Index, Private, Vector
from .transformers import Removable

Steps: TypeAlias = tuple[tuple[str, Any], ...]
Handling: TypeAlias = Literal["exact", "stateless", "foreign"]

DEEDS: Mapping[Handling, str] = MappingProxyType(
    {
        "exact": "is fitted on the rows of the model and, after every removal, is bit "
        "for bit what fitting it on the remaining rows gives",
        "stateless": "is stateless: it learned nothing from the data",
        "foreign": "is fitted again on the remaining rows, by its own fit, after every "
        "removal",
    }
)
UNNOISED = (
    "what preprocessing statistics from before a removal reveal beside those from "
    "after it: they are exact and carry no noise"
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Raw(Private):
    """Rows as they were handed over, before any step, with their owners."""

    X: Any
    y: Any
    weight: Vector | None
    owners: tuple[str, ...]

    def take(self, index: Index) -> "Raw":
        """Return the rows at these positions, in memory of their own."""
        weight = None if self.weight is None else self.weight[index]
        owners = tuple(self.owners[place] for place in index)
        X, y = _safe_indexing(self.X, index), _safe_indexing(self.y, index)
        return Raw(X, y, weight, owners)


def handling(step: Any) -> Handling:
    """Return how a step is handled; a composed one like the worst of its parts."""
    kinds = {_kind(part) for part in _parts(step)}
    if "foreign" in kinds:
        return "foreign"
    return "exact" if "exact" in kinds else "stateless"


def transformed(steps: Iterable[tuple[str, Any]], X: Any) -> Any:
    """Return the rows after all of these steps."""
    for _, step in steps:
        X = step.transform(X)
    return X


def fitted(steps: Iterable[tuple[str, Any]], raw: Raw) -> tuple[Steps, Any]:
    """Return clones of the steps, each fitted on what those before make of the rows."""
    done, X = [], raw.X
    for name, step in steps:
        done.append((name, _fit(step, X, raw)))
        X = done[-1][1].transform(X)
    return tuple(done), X


def without(steps: Steps, gone: Raw, left: Raw) -> tuple[Steps, Any]:
    """Return the steps as they would be, fitted on the rows that are left.

    With them the rows that are left, transformed; None if no step changed, for then
    these are what they were. After the first step that changed every step sees other
    rows and is fitted again.
    """
    done: list[tuple[str, Any]] = []
    X = gone.X
    for place, (name, step) in enumerate(steps):
        kind = handling(step)
        fresh = step if kind == "stateless" else None
        if isinstance(step, Removable):
            fresh = step.without(X, gone.weight)
        if fresh is None or not _same(step, fresh):
            rest = transformed(done, left.X)
            fresh = _fit(step, rest, left) if fresh is None else fresh
            rows = replace(left, X=fresh.transform(rest))
            more, rest = fitted(steps[place + 1 :], rows)
            return (*done, (name, fresh), *more), rest
        done.append((name, fresh))
        X = step.transform(X)
    return tuple(done), None


def retire(before: Steps, after: Steps) -> None:
    """Take the sums from steps that were replaced: someone may still hold them."""
    staying = {id(part) for _, step in after for part in _parts(step, fitted=True)}
    for part in (part for _, step in before for part in _parts(step, fitted=True)):
        if isinstance(part, Removable) and id(part) not in staying:
            part._tally = None


def assumptions(steps: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Return how each step is handled, to follow "This holds provided that ..."."""
    return tuple(f"{_called(*step)} {DEEDS[handling(step[1])]}" for step in steps)


def not_covered(steps: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """Return what the steps leave open, to follow "It says nothing about ..."."""
    kinds = [handling(step) for _, step in steps]
    foreign = [
        f"{_called(name, step)}, which learned from the data by means that cannot be "
        "certified to be undone"
        for (name, step), kind in zip(steps, kinds, strict=True)
        if kind == "foreign"
    ]
    learned = [kind for kind in kinds if kind != "stateless"]
    return (*foreign, *([UNNOISED] if learned else []))


def _called(name: str, step: Any) -> str:
    parts = [type(part).__name__ for part in _parts(step) if part is not step]
    made_of = f" of {', '.join(parts)}" if parts else ""
    return f"preprocessing step {name!r} ({type(step).__name__}{made_of})"


def _same(step: Any, fresh: Any) -> bool:
    """Whether a step transforms rows as before."""
    return fresh is step or step.learned() == fresh.learned()


def _fit(step: Any, X: Any, raw: Raw) -> Any:
    """Return a clone of the step fitted on X, with the weights if it takes any."""
    fresh, given = clone(step), {}
    if raw.weight is not None and has_fit_parameter(fresh, "sample_weight"):
        given["sample_weight"] = raw.weight
    return fresh.fit(X, raw.y, **given)


def _kind(part: Any) -> Handling:
    if isinstance(part, Removable):
        return "exact"
    return "foreign" if get_tags(part).requires_fit else "stateless"


def _parts(step: Any, *, fitted: bool = False) -> list[Any]:
    """Return the step, or what it is composed of; words stand for no step at all."""
    if isinstance(step, str):
        return []
    if isinstance(step, ColumnTransformer):
        inner = [part for _, part, _ in step.transformers]
        inner = [*inner, step.remainder]
        if fitted:
            inner = [part for _, part, _ in step.transformers_]
    elif isinstance(step, FeatureUnion):
        inner = [part for _, part in step.transformer_list]
    elif isinstance(step, Pipeline) and step.memory is None:  # a cache forgets nobody
        inner = [part for _, part in step.steps if part is not None]
    else:
        return [step]
    return [leaf for part in inner for leaf in _parts(part, fitted=fitted)]
