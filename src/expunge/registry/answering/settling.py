# SPDX-License-Identifier: Apache-2.0
"""Settling: what requests that wait together change, worked out before anything is.

Each request moves the rows of its people by the rules of ``rights.standing``, in the
order in which requests were accepted. Only the difference between the first and the
last place of each row has to be carried out: a restriction that is lifted in the same
batch changes nothing. A request that needs a release of a model that may not be
released any more waits, and so does every later request about the same people whose
answer could depend on it.

The rows themselves are not looked at: they are ``Part`` values, which name where sealed
rows are, or hold new ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from ...core.values import Private
from ...ledger.receipts import RESTRICTION
from ...rights.standing import (
    NOTHING_FOUND,
    Judgement,
    Place,
    Right,
    join_judgements,
    judge,
    move_rows,
    must_follow,
)
from ..storage.aside_table import Aside, aside_name, is_aside, model_of
from ..storage.people_table import SealedRows

EARLIER = ""
"""In place of a model, where a request waits for an earlier one."""
FAILED = "!"
"""In place of a model, where a request waits because it failed before."""
LOST = "?"
"""In place of a model, where a request waits for its new rows to be sent again."""
NO_ASIDE = Aside("in use", "", "", "", 0)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Part(Private):
    """Rows of one person: sealed under the name of a model, or new ones as bytes."""

    name: str = ""
    found: SealedRows | None = None
    new: bytes = b""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Holding(Private):
    """What one name holds of one person.

    Attributes
    ----------
    place
        Where the rows are.
    parts
        The rows. Those set aside may be of several fits, the newest last.
    aside
        What is known of rows that were set aside.
    """

    place: Place
    parts: tuple[Part, ...]
    aside: Aside = NO_ASIDE


Holdings: TypeAlias = dict[str, Holding]
"""What the store holds of one person, by name."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Asked(Private):
    """A request that waits: what it asks for, of whom, and what it brings.

    Attributes
    ----------
    id, right, details
        Of the request.
    subjects
        The numbers of its people, as far as the store knows them.
    new_rows
        New rows of a rectification, by model; none if they are lost.
    """

    id: str
    right: Right
    details: Mapping[str, Any]
    subjects: Sequence[int]
    new_rows: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def lacks_rows(self) -> bool:
        """Whether new rows that it should bring are lost."""
        return not self.new_rows.keys() >= {*self.details.get("models", ())}


@dataclass(slots=True, repr=False, eq=False)
class Settlement(Private):
    """What a batch of requests comes to.

    Attributes
    ----------
    before, after
        What the store holds of each person, and what it shall hold.
    judgements, retained
        What becomes of each request; why rows of its people are kept sealed after it,
        and until which day.
    models
        For each request, the models of which it changes the rows in use.
    stuck
        Requests that must wait for a release of a model, with that model, for an
        earlier request, for rows that were lost, or because they failed before.
    """

    before: Mapping[int, Holdings]
    after: dict[int, Holdings]
    judgements: dict[str, Judgement] = field(default_factory=dict)
    retained: dict[str, tuple[str, str]] = field(default_factory=dict)
    models: dict[str, set[str]] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)

    def changed(self) -> Iterable[tuple[str, int, Holding | None, Holding | None]]:
        """Yield each name and person whose content differs, with both contents."""
        for subject, before in self.before.items():
            after = self.after[subject]
            for name in {**before, **after}:
                if before.get(name) is not after.get(name):
                    yield name, subject, before.get(name), after.get(name)


def settle(
    requests: Sequence[Asked],
    holdings: Mapping[int, Holdings],
    *,
    fits: Mapping[str, int],
    spent: Iterable[str],
    behind: Mapping[int, Set[str]] = MappingProxyType({}),
    apart: Collection[str] = (),
) -> Settlement:
    """Return what requests come to, in their order.

    Parameters
    ----------
    requests
        In the order in which they were accepted.
    holdings
        What the store holds of each of their people.
    fits
        How often each model was fitted.
    spent
        Models that may not be released any more.
    behind
        People about whom earlier requests could not be applied, and for which rights.
    apart
        Requests that are tried on their own later: they wait, and block later ones.
    """
    found = Settlement(holdings, {who: {**held} for who, held in holdings.items()})
    blocked = {who: (EARLIER, frozenset(rights)) for who, rights in behind.items()}
    for one in requests:
        moved = {
            who: move_person(found.after[who], one, fits=fits) for who in one.subjects
        }
        needed = {
            name
            for who, (after, _) in moved.items()
            for name in _names_changed(found.after[who], after)
            if not is_aside(name)
        }
        waits = [
            blocked[who][0]
            for who in one.subjects
            if who in blocked and must_follow(one.right, blocked[who][1])
        ]
        waits += sorted(needed.intersection(spent))
        waits += [LOST] * (one.lacks_rows and bool(one.subjects))
        waits += [FAILED] * (one.id in apart)
        if waits:
            found.stuck[one.id] = waits[0]
            then = EARLIER if waits[0] in (LOST, FAILED) else waits[0]
            for who in one.subjects:
                _, rights = blocked.get(who, (then, frozenset()))
                blocked[who] = (then, rights | {one.right})
            continue
        found.after |= {who: after for who, (after, _) in moved.items()}
        found.models[one.id] = needed
        judged = [judgement for _, judgement in moved.values()]
        found.judgements[one.id] = join_judgements(judged or [NOTHING_FOUND])
        found.retained[one.id] = _find_retained(
            found.after[who] for who in one.subjects
        )
    return found


def _find_retained(people: Iterable[Holdings]) -> tuple[str, str]:
    """Return why rows of these people are kept sealed, and until which day.

    A hold counts before a restriction, and a later end before an earlier one.
    """
    asides = [
        one.aside for held in people for one in held.values() if one.aside.request
    ]
    holds = [(one.until, one.reason) for one in asides if one.place == "held"]
    if holds:
        until, reason = max(holds)
        return reason, until
    return (RESTRICTION if asides else ""), ""


def _names_changed(before: Holdings, after: Holdings) -> Iterable[str]:
    return (name for name in {**before, **after} if before.get(name) != after.get(name))


def move_person(
    held: Holdings, asked: Asked, *, fits: Mapping[str, int]
) -> tuple[Holdings, Judgement]:
    """Return what is held of a person after a request, and what became of it."""
    concerned = [
        one.place
        for name, one in held.items()
        if asked.right != "rectify" or model_of(name) in asked.new_rows
    ]
    judgement = judge(asked.right, concerned)
    after: Holdings = {}
    for name, content in held.items():
        if judgement.outcome == "refused":
            return held, judgement
        moved = _move_content(name, content, asked=asked, fits=fits)
        if moved is None:
            if asked.right == "lift":
                judgement = Judgement("partly", "fitted-again")
            continue
        to, one = moved
        after[to] = _join(after[to], one) if to in after else one
    return after, judgement


def _move_content(
    name: str, content: Holding, *, asked: Asked, fits: Mapping[str, int]
) -> tuple[str, Holding] | None:
    """Return where a request moves rows, under which name; None if they are erased."""
    model, place = model_of(name), move_rows(asked.right, content.place)
    if place == "gone":
        return None
    if asked.right == "rectify":
        new = asked.new_rows.get(model)
        if new is None or place == "held":
            return name, content
        if not new:
            return None
        return name, replace(content, parts=(Part(new=new),))
    if place == content.place and (place, asked.right) != ("held", "hold"):
        return name, content
    if place == "in use":
        if fits.get(model) != content.aside.fit:
            return None
        return model, Holding(place, content.parts[-1:])
    reason, until = (asked.details.get(key, "") for key in ("reason", "until"))
    fit = content.aside.fit or fits.get(model, 0)
    aside = Aside(place, asked.id, reason, until, fit)
    return aside_name(model), Holding(place, content.parts, aside)


def _join(one: Holding, other: Holding) -> Holding:
    """Return rows that come under one name together; what is held stays held."""
    older, newer = sorted((one, other), key=lambda content: content.aside.fit)
    aside = newer.aside
    for content in (one, other):
        if content.place == "held":
            aside = replace(content.aside, fit=newer.aside.fit)
    place: Place = "held" if aside.place == "held" else newer.place
    return Holding(place, older.parts + newer.parts, aside)
