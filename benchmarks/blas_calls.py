# SPDX-License-Identifier: Apache-2.0
"""The BLAS and LAPACK calls a removal makes, recorded and played back bare.

The limit of the machine: what remains when checks, Python and the O(d) work of a
removal are gone. Calls go through ``expunge.core.linalg`` alone, so that is
where the recorder listens. NumPy's own products of single rows are not recorded:
they are O(d).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest import mock

from scipy.linalg import blas, lapack

from expunge.core import linalg


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a BLAS or LAPACK routine with its arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> object:
        """Make the call once more."""
        return self.function(*self.args, **self.kwargs)

    def on_scratch(self) -> "Call":
        """Return the call with what it overwrites replaced by a copy of its own."""
        written = {"dsyr": "a", "dsyrk": "c"}.get(self.name)
        if written is None:
            return self
        scratch = {written: self.kwargs[written].copy(order="F")}
        return replace(self, kwargs=self.kwargs | scratch)


class Recorder:
    """A stand-in for a module that notes every call and passes it on."""

    def __init__(self, module: ModuleType, calls: list[Call]) -> None:
        self._module = module
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls.append(Call(name, function, args, kwargs))
            return function(*args, **kwargs)

        return call


@contextmanager
def record_calls() -> Iterator[list[Call]]:
    """Note the BLAS and LAPACK calls made inside, with their arguments."""
    calls: list[Call] = []
    with (
        mock.patch.object(linalg, "blas", Recorder(blas, calls)),
        mock.patch.object(linalg, "lapack", Recorder(lapack, calls)),
    ):
        yield calls


def play(calls: list[Call]) -> None:
    """Make the calls again, nothing between them."""
    for call in calls:
        call()


def on_scratch(calls: list[Call]) -> list[Call]:
    """Return calls that may be played without changing anybody's matrices."""
    return [call.on_scratch() for call in calls]


def tally(calls: list[Call]) -> Counter[str]:
    """Return how often each routine was called."""
    return Counter(call.name for call in calls)
