# SPDX-License-Identifier: Apache-2.0
"""Checks of one case, and the tally of all of them."""

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

# The radius is a float, rounded up; this allows for its last bits.
SLACK = 1.0 + 1e-9
# Errors that callers may expect; scikit-learn and NumPy raise ValueError.
REFUSALS = (ExpungeError, ValueError)


@dataclass
class Tally:
    """The outcome of the checks of one kind.

    Attributes
    ----------
    checks, undecided
        Claims that were checked, and claims the oracle could not decide.
    cases
        Problems drawn.
    worst
        The largest distance over its radius.
    refusals
        Errors by class.
    decisions
        How answers were reached, from the records.
    violations
        Failed checks, each with how to repeat it.
    """

    checks: int = 0
    undecided: int = 0
    cases: int = 0
    worst: float = 0.0
    refusals: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add what another process found."""
        self.checks += other.checks
        self.undecided += other.undecided
        self.cases += other.cases
        self.worst = max(self.worst, other.worst)
        self.refusals += other.refusals
        self.decisions += other.decisions
        self.violations += other.violations


class Checker:
    """Checks one case: a random problem with its requests.

    Parameters
    ----------
    name
        How to repeat the case.
    tally
        Where the outcomes go.
    """

    def __init__(self, name: str, tally: Tally) -> None:
        self.name, self.tally = name, tally

    def check_radius(
        self, claimed: float, theta: Array, truth: Optimum, what: str
    ) -> None:
        """Compare a radius with the distance to the oracle's minimiser.

        An infinite radius claims nothing and is not counted.
        """
        if not isfinite(claimed):
            return
        distance, error = truth.distance(np.asarray(theta)), truth.error
        if not isfinite(error) and isfinite(distance):
            self.tally.undecided += 1
        elif distance - error > claimed * SLACK:
            self.tally.checks += 1
            self.note_violation(
                f"{what}: distance {distance:.3g} (up to {error:.1e}), "
                f"radius {claimed:.3g}"
            )
        elif distance + error <= claimed * SLACK or error <= 0.1 * claimed:
            self.tally.checks += 1
            self.tally.worst = max(self.tally.worst, _ratio(distance, claimed))
        else:
            self.tally.undecided += 1

    def check(self, holds: bool, what: str) -> None:
        """Check a claim that is true or false."""
        self.tally.checks += 1
        if not holds:
            self.note_violation(what)

    def note_undecided(self) -> None:
        """Note a claim that the oracle cannot decide."""
        self.tally.undecided += 1

    def note_violation(self, what: str) -> None:
        """Note a failed check."""
        self.tally.violations.append(f"{self.name}: {what}")

    def note_decisions(self, decisions: tuple[str, ...]) -> None:
        """Note how an answer was reached."""
        for decision in decisions:
            self.tally.decisions[re.sub(r" \d.*", "", decision)] += 1

    @contextmanager
    def note_refusals(
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
            self.note_violation(f"raw {type(error).__name__} at {place}: {error}")


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
    """Return distance / radius, with 0 / 0 = 0."""
    return distance / radius if radius > 0.0 else 0.0
