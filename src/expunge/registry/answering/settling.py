# SPDX-License-Identifier: Apache-2.0
"""Settling: what requests that wait together change, worked out before anything is.

Each request moves the rows of its people by the rules of ``rights.standing``, in the
order in which requests were accepted. Only the difference between the first and the
last place of each row has to be carried out: a restriction that is lifted in the same
batch changes nothing. A request that needs a release of a model that may not be
released any more waits, and so does every later request about the same people whose
answer could depend on it.

The rows themselves are not looked at: they are lines of the store, or new ones.
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
    Right,
    join_judgements,
    judge,
    move_rows,
    must_follow,
)
from ..storage.people_table import APART, HELD, IN_USE, RESTRICTED, PersonRows

EARLIER = ""
"""In place of a model, where a request waits for an earlier one."""
FAILED = "!"
"""In place of a model, where a request waits because it failed before."""
LOST = "?"
"""In place of a model, where a request waits for its new rows to be sent again."""

Rows: TypeAlias = Sequence[PersonRows]
"""What the store holds of one person."""


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

    before: Mapping[int, Rows]
    after: dict[int, Rows]
    judgements: dict[str, Judgement] = field(default_factory=dict)
    retained: dict[str, tuple[str, str]] = field(default_factory=dict)
    models: dict[str, set[str]] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)


def settle(
    requests: Sequence[Asked],
    held: Mapping[int, Rows],
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
    held
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
    found = Settlement(held, {**held})
    blocked = {who: (EARLIER, frozenset(rights)) for who, rights in behind.items()}
    for one in requests:
        moved = {
            who: move_person(found.after[who], one, fits=fits) for who in one.subjects
        }
        needed = {
            model
            for who, (after, _) in moved.items()
            for model, _ in _in_use(found.after[who]) ^ _in_use(after)
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


def _find_retained(people: Iterable[Rows]) -> tuple[str, str]:
    """Return why rows of these people are kept sealed, and until which day.

    A hold counts before a restriction, and a later end before an earlier one.
    """
    apart = [row for rows in people for row in rows if row.place in APART]
    holds = [(row.until, row.reason) for row in apart if row.place == HELD]
    if holds:
        until, reason = max(holds)
        return reason, until
    return (RESTRICTION if apart else ""), ""


def _in_use(held: Rows) -> set[tuple[str, int]]:
    """Return which rows are in use, with their models; new ones have no number yet."""
    return {(row.model, row.key or -id(row)) for row in held if row.place == IN_USE}


def move_person(
    held: Rows, asked: Asked, *, fits: Mapping[str, int]
) -> tuple[Rows, Judgement]:
    """Return what is held of a person after a request, and what became of it."""
    concerned = [
        row.place
        for row in held
        if asked.right != "rectify" or row.model in asked.new_rows
    ]
    judgement = judge(asked.right, concerned)
    if judgement.outcome == "refused":
        return held, judgement
    if asked.right == "rectify":
        return _rectify(held, asked.new_rows), judgement
    moved = [_move(row, asked, fits=fits) for row in held]
    after = _keep_held([row for row in moved if row is not None])
    if asked.right == "lift":
        apart = [row for row in held if row.place == RESTRICTED]
        back = {row.model for row in apart if row.fit == fits.get(row.model)}
        if {row.model for row in apart} - back:
            judgement = Judgement("partly", "fitted-again")
    return after, judgement


def _move(
    row: PersonRows, asked: Asked, *, fits: Mapping[str, int]
) -> PersonRows | None:
    """Return rows as they are after a request; None if they are erased."""
    place = move_rows(asked.right, row.place)
    if place == "gone":
        return None
    if place == row.place and (place, asked.right) != (HELD, "hold"):
        return row
    if place == IN_USE:
        if fits.get(row.model) != row.fit:
            return None
        return replace(row, place=place, request="", reason="", until="")
    reason, until = (asked.details.get(key, "") for key in ("reason", "until"))
    return replace(row, place=place, request=asked.id, reason=reason, until=until)


def _keep_held(rows: Rows) -> Rows:
    """Return rows with those that come beside held ones held with them."""
    held = {row.model: row for row in rows if row.place == HELD}

    def place(row: PersonRows) -> PersonRows:
        other = held.get(row.model)
        if other is None or row.place != RESTRICTED:
            return row
        return replace(
            row,
            place=HELD,
            request=other.request,
            reason=other.reason,
            until=other.until,
        )

    return [place(row) for row in rows]


def _rectify(held: Rows, new_rows: Mapping[str, bytes]) -> Rows:
    """Return rows with new ones in their place; nothing replaces those without."""
    after: list[PersonRows] = []
    newest: dict[tuple[str, str], PersonRows] = {}
    for row in held:
        if row.model not in new_rows or row.place == HELD:
            after.append(row)
            continue
        there = newest.setdefault((row.model, row.place), row)
        newest[row.model, row.place] = max(there, row, key=lambda one: one.fit)
    after += [
        replace(row, key=0, sealed=b"", new=new_rows[model])
        for (model, _), row in newest.items()
        if new_rows[model]
    ]
    return after
