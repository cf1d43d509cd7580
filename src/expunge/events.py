# SPDX-License-Identifier: Apache-2.0
"""Events: what happened to a model, as frozen facts without judgement.

An accountant reads events and says what may be claimed; a ledger keeps them. Since
ledgers outlive code, this page is a constitution:

- an event is never removed and its meaning never changes;
- a field added later has a default under which old events mean what they meant;
- whoever meets an event it does not know refuses it; nothing is guessed;
- no field depends on a removed row: no radius, no number of rows, no timing.

Costs are those of Gaussian differential privacy: a mu of 0 costs nothing and composes
by sqrt(mu_1^2 + mu_2^2). They are planned figures, fixed before the data is seen.

For two events the *occurrence* says something about the removed rows: whether an
answer had to be polished or retrained depends on its radius. These are not
``public``: they may be kept beside the private record and shown nowhere else.
"""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, final

from .exceptions import InvalidInput


class Event:
    """Anything that happened to a model."""

    __slots__ = ()

    public: ClassVar[bool] = True
    """Whether strangers may learn that it happened."""


@final
@dataclass(frozen=True, slots=True)
class Fitted(Event):
    """A model of so many parameters was fitted; nobody is removed from it yet.

    Costs nothing: the fitted model is private until it is released.
    """

    n_parameters: int

    def __post_init__(self) -> None:
        """Refuse a model without parameters."""
        _require_count("n_parameters", self.n_parameters, 1)


@final
@dataclass(frozen=True, slots=True)
class Removed(Event):
    """So many people, who were in the model, asked to be removed and were.

    Costs nothing: requests are public, and an operator who retrains gets the same.
    """

    n_subjects: int

    def __post_init__(self) -> None:
        """Refuse a negative number of people."""
        _require_count("n_subjects", self.n_subjects, 0)


@final
@dataclass(frozen=True, slots=True)
class Polished(Event):
    """Passes over the remaining rows brought the answer closer to retraining.

    Costs nothing, because any answer within the radius budget will do.
    """

    public: ClassVar[bool] = False


@final
@dataclass(frozen=True, slots=True)
class Retrained(Event):
    """The answer was solved anew on the remaining rows. Costs nothing."""

    public: ClassVar[bool] = False


@final
@dataclass(frozen=True, slots=True)
class Released(Event):
    """A model was published with the noise of the contract.

    ``gdp`` is what the release may cost: the mu of Gaussian differential privacy up
    to which it was allowed to differ from the release of an operator who retrains.
    """

    gdp: float

    def __post_init__(self) -> None:
        """Refuse a cost that is not a number."""
        _require_cost(self.gdp)


@final
@dataclass(frozen=True, slots=True)
class Unprotected(Event):
    """A model was published that promises nothing. Costs infinity.

    There was no noise, or seeded noise that the contract does not allow.
    """


@final
@dataclass(frozen=True, slots=True)
class TunedOnData(Event):
    """Something was chosen by looking at the data, and removal does not undo it.

    Costs infinity: the choice may tell who was there (the paper's Proposition 1).
    ``how`` names the procedure, "grid search" say, never its outcome.
    """

    how: str


@final
@dataclass(frozen=True, slots=True)
class TunedRemovably(Event):
    """Something was chosen as it would be chosen on the remaining rows alone.

    Costs nothing. ``certified`` names the method, fixed beforehand: true when error
    bars prove the choice, false when the whole choice is computed again.
    """

    certified: bool


@final
@dataclass(frozen=True, slots=True)
class NoisyTuning(Event):
    """Something was chosen by scores with noise; it costs ``gdp``.

    It is paid for together with the release that follows.
    """

    gdp: float

    def __post_init__(self) -> None:
        """Refuse a cost that is not a number."""
        _require_cost(self.gdp)


@final
@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A release was refused for want of rows to retrain on.

    Costs nothing, because no claim is made about it: a refusal that anyone can see
    is a disclosure, and every certificate lists it as not covered.
    """


def _require_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not value >= least:
        raise InvalidInput(f"{name}={value}; it must be an integer, at least {least}")


def _require_cost(gdp: float) -> None:
    if not (isfinite(gdp) and gdp >= 0.0):
        raise InvalidInput(
            f"gdp={gdp}; it must be a finite mu, zero or positive; a release that "
            "promises nothing is Unprotected()"
        )
