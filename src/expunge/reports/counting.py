# SPDX-License-Identifier: Apache-2.0
"""Counting: requests by kind, law, outcome and month, and how long answers took.

A request belongs to the period in which the person asked. Days are counted from that
day to the day of the answer. An answer after its deadline is late; one that is still
due after it is overdue.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from statistics import median
from typing import Any

from ..exceptions import InvalidInput
from ..registry import Registry
from ..registry.figures import RequestFigures
from ..registry.now import today
from ..rights.calendar import parse_day

CCPA = "ccpa"
CCPA_KINDS: Mapping[str, str] = {
    "erase": "requests to delete",
    "rectify": "requests to correct",
}
"""Kinds of requests of which 11 CCR 7102 wants yearly figures, in its words."""


@dataclass(frozen=True, slots=True)
class CcpaFigures:
    """What 11 CCR 7102 asks for of one kind of request.

    Parameters
    ----------
    received, complied, denied
        How many came in, were complied with in whole or in part, and were denied.
    median_days
        Within which half of them were answered; None if none was.
    """

    received: int
    complied: int
    denied: int
    median_days: float | None


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """What is left of a model's budget, and which copies are out there."""

    name: str
    status: str
    n_releases: int
    planned: int | None
    copies: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """How requests were answered.

    Parameters
    ----------
    since, until, day
        The period, and the day of the report.
    n_requests, n_open, n_cancelled, n_answered
        How many there were, wait, were taken back, and are answered.
    n_late, n_overdue, n_extended
        How many were answered late, are due, and were extended.
    median_days
        Within which half of the answers came; None if there are none.
    by_right, by_regime, by_outcome, by_month, refused
        Counts of requests; ``refused`` by the code of the reason.
    ccpa
        By the words of that law.
    models
        As they are on the day of the report.
    """

    since: str
    until: str
    day: str
    n_requests: int
    n_open: int
    n_cancelled: int
    n_answered: int
    n_late: int
    n_overdue: int
    n_extended: int
    median_days: float | None
    by_right: Mapping[str, int]
    by_regime: Mapping[str, int]
    by_outcome: Mapping[str, int]
    by_month: Mapping[str, int]
    refused: Mapping[str, int]
    ccpa: Mapping[str, CcpaFigures]
    models: Sequence[ModelFigures] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        slots = CcpaFigures.__slots__
        plain["ccpa"] = {
            words: {name: getattr(one, name) for name in slots}
            for words, one in self.ccpa.items()
        }
        plain["models"] = [
            {name: getattr(one, name) for name in ModelFigures.__slots__}
            for one in self.models
        ]
        return plain


def count_requests_between(registry: Registry, since: str, *, until: str) -> Report:
    """Return how the requests of a period were answered.

    Parameters
    ----------
    registry
        That answered them.
    since, until
        Its first and last day, as people asked.
    """
    first, last = parse_day(since).isoformat(), parse_day(until).isoformat()
    if first > last:
        raise InvalidInput(f"the period ends on {last}, before it begins on {first}")
    every = registry.figures.requests()
    found = [one for one in every if first <= one.submitted <= last]
    day = today().isoformat()
    answered = [one for one in found if one.stage == "completed"]
    is_open = [one for one in found if one.stage in ("accepted", "applied")]
    return Report(
        since=first,
        until=last,
        day=day,
        n_requests=len(found),
        n_open=len(is_open),
        n_cancelled=sum(one.stage == "cancelled" for one in found),
        n_answered=len(answered),
        n_late=sum(one.completed > one.deadline for one in answered),
        n_overdue=sum(one.deadline < day for one in is_open),
        n_extended=sum(bool(one.extended) for one in found),
        median_days=_median_days(answered),
        by_right=_count(one.right for one in found),
        by_regime=_count(one.regime for one in found),
        by_outcome=_count(one.outcome for one in answered),
        by_month=_count(one.submitted[:7] for one in found),
        refused=_count(one.reason for one in answered if one.outcome == "refused"),
        ccpa={
            words: _count_ccpa(
                [one for one in found if (one.regime, one.right) == (CCPA, right)]
            )
            for right, words in CCPA_KINDS.items()
        },
        models=_describe_models(registry),
    )


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _median_days(answered: Sequence[RequestFigures]) -> float | None:
    if not answered:
        return None
    numbers: dict[str, int] = {}

    def number(day: str) -> int:
        if day not in numbers:
            numbers[day] = date.fromisoformat(day).toordinal()
        return numbers[day]

    days = (number(one.completed) - number(one.submitted) for one in answered)
    return float(median(days))


def _count_ccpa(found: Sequence[RequestFigures]) -> CcpaFigures:
    answered = [one for one in found if one.stage == "completed"]
    return CcpaFigures(
        received=len(found),
        complied=sum(one.outcome in ("done", "partly") for one in answered),
        denied=sum(one.outcome in ("refused", "nothing found") for one in answered),
        median_days=_median_days(answered),
    )


def _describe_models(registry: Registry) -> tuple[ModelFigures, ...]:
    status = registry.status()
    copies: dict[str, list[str]] = {}
    for one in status.outstanding:
        copies.setdefault(one.model, []).extend(file for _, file in one.shipped)
    return tuple(
        ModelFigures(
            one.name,
            one.certificate.status,
            one.certificate.n_releases,
            one.certificate.releases,
            tuple(copies.get(one.name, ())),
        )
        for one in status.models
    )
