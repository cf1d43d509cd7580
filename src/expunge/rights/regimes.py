# SPDX-License-Identifier: Apache-2.0
"""Regimes: how long a law gives to answer, and what it calls each right.

    deadline = day asked + first period
    extended deadline = deadline + extension

Periods are counted from the day the person asked, which itself does not count. Weekends
and holidays never move a deadline to a later day, although some laws allow that: of two
ways to count, this is the earlier one. Whether a law applies, and whether a period may
be extended, is for the operator to say; nothing here is legal advice.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

from ..exceptions import InvalidInput
from .calendar import add_months, parse_day
from .standing import require_right

ERASE, RECTIFY, RESTRICT, OBJECT = "erase", "rectify", "restrict", "object"


@dataclass(frozen=True, slots=True)
class Period:
    """A length of time in calendar months or in days."""

    months: int = 0
    days: int = 0

    def add_to(self, day: date) -> date:
        """Return the day on which the period that begins on a day ends."""
        return add_months(day, self.months) + timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class Regime:
    """One law: its name here, its title, and the time that it gives.

    Parameters
    ----------
    name
        The word that requests and commands use.
    title
        What documents call it.
    first
        The time to answer, from the day the person asked.
    extension
        The further time that the law allows in stated cases, from the first deadline.
    references
        Pairs of a right and where the law grants it; others it does not know.
    """

    name: str
    title: str
    first: Period
    extension: Period
    references: tuple[tuple[str, str], ...]


def _gdpr_references(law: str) -> tuple[tuple[str, str], ...]:
    """Return where the GDPR, or its British twin, grants each right."""
    articles = {ERASE: 17, RECTIFY: 16, RESTRICT: 18, OBJECT: 21}
    return tuple((right, f"{law} Art. {number}") for right, number in articles.items())


_GDPR = Regime(
    "gdpr",
    "General Data Protection Regulation (EU) 2016/679",
    first=Period(months=1),
    # Two months after the first deadline: after 31 January that is 28 April, where
    # three months after the day asked would be 30 April. It is never later.
    extension=Period(months=2),
    references=_gdpr_references("GDPR"),
)
_UK_GDPR = Regime(
    "uk-gdpr",
    "General Data Protection Regulation as it applies in the United Kingdom",
    first=Period(months=1),
    extension=Period(months=2),
    references=_gdpr_references("UK GDPR"),
)
_CCPA = Regime(
    "ccpa",
    "California Consumer Privacy Act",
    first=Period(days=45),
    # Counted from the day asked it is 90 days, which is the same day.
    extension=Period(days=45),
    references=((ERASE, "CCPA 1798.105"), (RECTIFY, "CCPA 1798.106")),
)

REGIMES = MappingProxyType({regime.name: regime for regime in (_GDPR, _UK_GDPR, _CCPA)})
"""Every regime by its name."""


def regime_named(name: object) -> Regime:
    """Return a regime by its name, or raise InvalidInput."""
    found = REGIMES.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidInput(
            f"there is no regime {name!r}; choose one of {', '.join(REGIMES)}"
        )
    return found


def deadline(submitted: str | date, regime: Regime) -> date:
    """Return the last day to answer what a person asked on a day."""
    return regime.first.add_to(parse_day(submitted))


def extended_deadline(submitted: str | date, regime: Regime) -> date:
    """Return the last day to answer once the operator has extended the period."""
    return regime.extension.add_to(deadline(submitted, regime))


def legal_basis(right: str, regime: Regime) -> str | None:
    """Return where a law grants a right, or None if it does not know that right.

    To lift a restriction is part of the right to restrict; a hold is the operator's own
    decision.
    """
    of = RESTRICT if require_right(right) == "lift" else right
    return dict(regime.references).get(of)
