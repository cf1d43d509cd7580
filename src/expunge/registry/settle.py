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
from typing import TypeAlias

from ..core.values import Private
from ..ledger.receipts import RESTRICTION
from ..rights.standing import (
    NOTHING_FOUND,
    Judgement,
    join_judgements,
    judge,
    move_rows,
    must_follow,
)
from .request import RequestStatus
from .storage.people_table import APART, HELD, IN_USE, RESTRICTED, PersonRows

EARLIER = ""
"""In place of a model, where a request waits for an earlier one."""
FAILED = "!"
"""In place of a model, where a request waits because it failed before."""
LOST = "?"
"""In place of a model, where a request waits for its new rows to be sent again."""

Rows: TypeAlias = Sequence[PersonRows]
"""What the store holds of one person."""
NewRows: TypeAlias = Mapping[str, bytes]
"""What one request brings, by model."""


@dataclass(slots=True, repr=False, eq=False)
class Settlement(Private):
    """The outcome of a batch of requests.

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
    requests: Sequence[RequestStatus],
    held: Mapping[int, Rows],
    *,
    people: Mapping[str, Sequence[int]],
    new_rows: Mapping[str, NewRows],
    fits: Mapping[str, int],
    spent: Iterable[str],
    behind: Mapping[int, Set[str]] = MappingProxyType({}),
    apart: Collection[str] = (),
) -> Settlement:
    """Return the outcome of requests, in their order.

    Parameters
    ----------
    requests
        In the order in which they were accepted.
    held
        What the store holds of each of their people.
    people
        The numbers of each request's people, as far as the store knows them.
    new_rows
        New rows of each rectification, by model; none if they are lost.
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
        subjects, new = people[one.request], new_rows.get(one.request, {})
        moved = {
            who: move_person(found.after[who], one, new_rows=new, fits=fits)
            for who in subjects
        }
        needed = {
            model
            for who, (after, _) in moved.items()
            for model, _ in _in_use(found.after[who]) ^ _in_use(after)
        }
        waits = [
            blocked[who][0]
            for who in subjects
            if who in blocked and must_follow(one.right, blocked[who][1])
        ]
        waits += sorted(needed.intersection(spent))
        is_lost = not new.keys() >= {*one.asked.get("models", ())}
        waits += [LOST] * (is_lost and bool(subjects))
        waits += [FAILED] * (one.request in apart)
        if waits:
            found.stuck[one.request] = waits[0]
            then = EARLIER if waits[0] in (LOST, FAILED) else waits[0]
            for who in subjects:
                _, rights = blocked.get(who, (then, frozenset()))
                blocked[who] = (then, rights | {one.right})
            continue
        found.after |= {who: after for who, (after, _) in moved.items()}
        found.models[one.request] = needed
        judged = [judgement for _, judgement in moved.values()]
        found.judgements[one.request] = join_judgements(judged or [NOTHING_FOUND])
        found.retained[one.request] = _find_retained(
            found.after[who] for who in subjects
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
    held: Rows, asked: RequestStatus, *, new_rows: NewRows, fits: Mapping[str, int]
) -> tuple[Rows, Judgement]:
    """Return what is held of a person after a request, and what became of it."""
    concerned = [
        row.place for row in held if asked.right != "rectify" or row.model in new_rows
    ]
    judgement = judge(asked.right, concerned)
    if judgement.outcome == "refused":
        return held, judgement
    if asked.right == "rectify":
        return _rectify(held, new_rows), judgement
    moved = [_move(row, asked, fits=fits) for row in held]
    after = _keep_held([row for row in moved if row is not None])
    if asked.right == "lift":
        apart = [row for row in held if row.place == RESTRICTED]
        back = {row.model for row in apart if row.fit == fits.get(row.model)}
        if {row.model for row in apart} - back:
            judgement = Judgement("partly", "fitted-again")
    return after, judgement


def _move(
    row: PersonRows, asked: RequestStatus, *, fits: Mapping[str, int]
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
    reason, until = (asked.asked.get(key, "") for key in ("reason", "until"))
    return replace(row, place=place, request=asked.request, reason=reason, until=until)


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


def _rectify(held: Rows, new_rows: NewRows) -> Rows:
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
