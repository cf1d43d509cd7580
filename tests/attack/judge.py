# SPDX-License-Identifier: Apache-2.0
"""The judge: one claim held against one fact, and what became of all of them."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.linalg import LinAlgError

from expunge import ExpungeError

from .losses import Array
from .oracle import Optimum

# The radius is a float, computed from above; this is what its last bits may be worth.
SLACK = 1.0 + 1e-9
# Errors that scikit-learn and numpy raise on purpose, beside the package's own.
REFUSALS = (ExpungeError, ValueError)


@dataclass
class Tally:
    """What became of the checks of one kind.

    Attributes
    ----------
    checks, undecided
        Claims held against a fact, and claims on which the oracle could not decide.
    cases
        Problems drawn.
    worst
        The largest distance over its radius.
    refusals
        Errors by class.
    decisions
        How answers were reached, where a record tells.
    violations
        What does not hold, each with how to repeat it.
    """

    checks: int = 0
    undecided: int = 0
    cases: int = 0
    worst: float = 0.0
    refusals: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Take in what another process found."""
        self.checks += other.checks
        self.undecided += other.undecided
        self.cases += other.cases
        self.worst = max(self.worst, other.worst)
        self.refusals += other.refusals
        self.decisions += other.decisions
        self.violations += other.violations


class Court:
    """Hears one case: a random problem with its requests.

    Parameters
    ----------
    name
        How to repeat the case.
    tally
        Where the verdicts go.
    """

    def __init__(self, name: str, tally: Tally) -> None:
        self.name, self.tally = name, tally

    def radius(self, claimed: float, theta: Array, truth: Optimum, what: str) -> None:
        """Hold a radius against the distance to the oracle's minimiser.

        A claim of infinity says nothing and is no check.
        """
        if not isfinite(claimed):
            return
        distance, error = truth.distance(np.asarray(theta)), truth.error
        if not isfinite(error) and isfinite(distance):
            self.tally.undecided += 1
        elif distance - error > claimed * SLACK:
            self.tally.checks += 1
            self.violate(
                f"{what}: distance {distance:.3g} (up to {error:.1e}), "
                f"radius {claimed:.3g}"
            )
        elif distance + error <= claimed * SLACK or error <= 0.1 * claimed:
            self.tally.checks += 1
            self.tally.worst = max(self.tally.worst, _ratio(distance, claimed))
        else:
            self.tally.undecided += 1

    def fact(self, holds: bool, what: str) -> None:
        """Hold a claim that is either so or not."""
        self.tally.checks += 1
        if not holds:
            self.violate(what)

    def undecided(self) -> None:
        """Note a claim on which the oracle cannot decide."""
        self.tally.undecided += 1

    def violate(self, what: str) -> None:
        """Note that something does not hold."""
        self.tally.violations.append(f"{self.name}: {what}")

    def decided(self, decisions: tuple[str, ...]) -> None:
        """Note how an answer was reached."""
        for decision in decisions:
            self.tally.decisions[re.sub(r" \d.*", "", decision)] += 1

    @contextmanager
    def refusals(
        self, expected: tuple[type[Exception], ...] = REFUSALS
    ) -> Iterator["Refusal"]:
        """Note an error that a caller may expect; any other is a violation."""
        said = Refusal()
        try:
            yield said
        except Exception as error:
            said.error = error
            if isinstance(error, expected) and not isinstance(error, LinAlgError):
                self.tally.refusals[type(error).__name__] += 1
                return
            place = _place(error)
            self.violate(f"raw {type(error).__name__} at {place}: {error}")


@dataclass
class Refusal:
    """Whether a request was refused, and how."""

    error: Exception | None = None

    def __bool__(self) -> bool:
        return self.error is not None


def _place(error: Exception) -> str:
    """Return the function in which an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    code = trace.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}"


def _ratio(distance: float, radius: float) -> float:
    """Return distance / radius; nothing over nothing is nothing."""
    return distance / radius if radius > 0.0 else 0.0
