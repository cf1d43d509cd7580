# SPDX-License-Identifier: Apache-2.0
"""Regimes: how long a law gives to answer, and what it calls each right.

    deadline = day asked + first period
    extended deadline = deadline + extension

Periods are counted from the day the person asked, which itself does not count. Weekends
and holidays never move a deadline to a later day, although some laws allow that: of two
ways to count, this is the earlier one. Whether a law applies, and whether a period may
be extended, is for the operator to say; nothing here is legal advice.

Of some laws no period is known here for these rights: they name none, or leave it to
rules of their own. Then the period is ours, 30 days, and ``is_known`` says so.
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
        The further time that the law allows in stated cases, from the first deadline;
        None if it is not known to allow any.
    references
        Pairs of a right and where the law grants it; others it does not know.
    is_known
        Whether the law itself gives the time to answer; if not, it is ours.
    """

    name: str
    title: str
    first: Period
    extension: Period | None
    references: tuple[tuple[str, str], ...]
    is_known: bool = True


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

# A duty of data brokers of its own: lists are downloaded at least every 45 days, and
# each is answered within 45 days of its download, which counts as the day asked.
_DROP = Regime(
    "drop",
    "California Delete Act, by the Delete Request and Opt-out Platform",
    first=Period(days=45),
    extension=None,
    references=((ERASE, "Cal. Civ. Code 1798.99.86"),),
)


OURS = Period(days=30)
"""The time to answer where a law is not known to give one."""


def _without_period(name: str, title: str, *, rights: dict[str, str]) -> Regime:
    """Return a law of which no time to answer these rights is known here."""
    found = tuple(rights.items())
    return Regime(name, title, OURS, None, found, is_known=False)


# The 30 days of FADP Art. 25(7), and the 15 of LGPD Art. 19, are for access.
_SWISS = _without_period(
    "swiss",
    "Swiss Federal Act on Data Protection",
    rights={
        ERASE: "FADP Art. 32(2)(c)",
        RECTIFY: "FADP Art. 32(1)",
        RESTRICT: "FADP Art. 32(2)(a)",
        OBJECT: "FADP Art. 30(2)(b)",
    },
)
_LGPD = _without_period(
    "lgpd",
    "Brazil, Lei Geral de Protecao de Dados 13.709/2018",
    rights={
        ERASE: "LGPD Art. 18",
        RECTIFY: "LGPD Art. 18(III)",
        RESTRICT: "LGPD Art. 18(IV)",
        OBJECT: "LGPD Art. 18(2)",
    },
)
_DPDP = _without_period(
    "dpdp",
    "India, Digital Personal Data Protection Act 2023",
    rights={ERASE: "DPDP s. 12", RECTIFY: "DPDP s. 12"},
)
_PDPA_SG = _without_period(
    "pdpa-sg",
    "Singapore, Personal Data Protection Act 2012",
    rights={RECTIFY: "PDPA (Singapore) s. 22"},
)
_PDPA_TH = _without_period(
    "pdpa-th",
    "Thailand, Personal Data Protection Act B.E. 2562",
    rights={
        ERASE: "PDPA (Thailand) s. 33",
        RECTIFY: "PDPA (Thailand) s. 36",
        RESTRICT: "PDPA (Thailand) s. 34",
        OBJECT: "PDPA (Thailand) s. 32",
    },
)

_ALL = _GDPR, _UK_GDPR, _CCPA, _DROP, _SWISS, _LGPD, _DPDP, _PDPA_SG, _PDPA_TH
REGIMES = MappingProxyType({regime.name: regime for regime in _ALL})
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
    if regime.extension is None:
        raise InvalidInput(
            f"no extension is known under {regime.name} ({regime.title}); answer by "
            "the deadline, or refuse"
        )
    return regime.extension.add_to(deadline(submitted, regime))


def legal_basis(right: str, regime: Regime) -> str | None:
    """Return where a law grants a right, or None if it does not know that right.

    To lift a restriction is part of the right to restrict; a hold is the operator's own
    decision.
    """
    of = RESTRICT if require_right(right) == "lift" else right
    return dict(regime.references).get(of)
