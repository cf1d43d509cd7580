# SPDX-License-Identifier: Apache-2.0
"""The results of a run: spreads, looked up by what they are about."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..report import number
from .figures import Measured, Place, Spread, spreads

# Experiment, setting, alpha and stream.
Head: TypeAlias = tuple[str, str, float, str]


class Line(NamedTuple):
    """Everything a place says but the number of removals."""

    experiment: str
    setting: str
    alpha: float
    stream: str
    contender: str
    quantity: str


@dataclass(frozen=True, slots=True)
class Results:
    """Spreads over removals, by line."""

    lines: dict[Line, dict[int, Spread]]

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> "Results":
        """Return the results of these pieces."""
        lines: dict[Line, dict[int, Spread]] = {}
        for place, spread in spreads(measured).items():
            lines.setdefault(line_of(place), {})[place.removals] = spread
        return cls(lines)

    def having(self, **fixed: object) -> list[Line]:
        """Return the lines with these values, in the order of the run."""
        return [
            line
            for line in self.lines
            if all(getattr(line, name) == value for name, value in fixed.items())
        ]

    def models(self, experiment: str) -> list[tuple[str, float, str]]:
        """Return setting, alpha and stream of everything that was run."""
        found = self.having(experiment=experiment)
        return list(dict.fromkeys((x.setting, x.alpha, x.stream) for x in found))

    def last(self, line: Line) -> Spread | None:
        """Return the spread after the last removal of a line."""
        found = self.lines.get(line)
        return found[max(found)] if found else None

    def end(self, head: Head, contender: str, quantity: str) -> Spread | None:
        """Return the spread where retraining's line ends; None if one gave up."""
        oracle = self.lines.get(Line(*head, "RT", "distance"))
        found = self.lines.get(Line(*head, contender, quantity), {})
        return found.get(max(oracle)) if oracle else None

    def seconds(self, head: Head, contender: str) -> float:
        """Return the mean time of a request over a whole curve; NaN without one."""
        found = self.lines.get(Line(*head, contender, "cumulative seconds"))
        return found[max(found)].mean / max(found) if found else math.nan


def line_of(place: Place) -> Line:
    """Return the line that a place lies on."""
    return Line(*(getattr(place, name) for name in Line._fields))


def format_spread(spread: Spread | None, digits: int | None = None) -> str:
    """Return a spread for a table: mean, and standard error where there is one."""
    if spread is None or math.isnan(spread.mean):
        return "-"
    if math.isinf(spread.mean):
        return "none"
    if digits is not None:
        text, error = f"{spread.mean:.{digits}f}", f"{spread.error:.{digits}f}"
    else:
        text, error = number(spread.mean), number(spread.error)
    return text if math.isnan(spread.error) else f"{text} +- {error}"
