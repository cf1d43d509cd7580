# SPDX-License-Identifier: Apache-2.0
"""Requests table: requests in a store, from accepted through applied to completed.

Each moves on from the stage before and from no other: a process that was overtaken by
another is refused, and no request is applied or completed twice.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Update,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    select,
    tuple_,
    union_all,
    update,
)

from ...exceptions import Busy, InvalidInput, UnknownRequest
from ...ledger import RequestExtended
from ...ledger.documents import midnight
from ...rights.standing import Outcome
from . import deliveries_table
from .engine import analyse, write_exactly
from .keystore import count_made
from .people_table import (
    CHUNK,
    chunks,
    delete_waiting,
    insert_waiting,
    read_waiting,
)
from .tables import (
    aliases,
    request_near,
    request_tags,
    requests,
    subjects,
)

# Milliseconds by which a clock may fall behind requests that are there already.
CLOCK_DRIFT = 60_000
ACCEPTED, APPLIED, COMPLETED = "accepted", "applied", "completed"
CANCELLED = "cancelled"
PARTLY = "partly"
STAGES = (ACCEPTED, APPLIED, COMPLETED, CANCELLED)
_REQUEST = re.compile(r"[0-9a-f]{32}")


class MovedMeanwhile(Busy):
    """A request is no longer at the stage where it was read; nothing was written."""


# All but the receipt, which may be long.
SHOWN = (
    requests.c.id,
    requests.c.stage,
    requests.c.accepted,
    requests.c.opens,
    requests.c.closes,
    requests.c.deadline,
    requests.c.completed,
    requests.c.n_subjects,
    requests.c.error,
    requests.c.right,
    requests.c.regime,
    requests.c.submitted,
    requests.c.outcome,
    requests.c.reason,
    requests.c.details,
    requests.c.retained,
    requests.c.retained_until,
    requests.c.extended,
    requests.c.notified,
    requests.c.sender,
)


_LOOK_UP = select(*SHOWN, requests.c.fingerprint).where(
    requests.c.id.in_(bindparam("ids", expanding=True))
)
_TAGS = (
    select(request_tags)
    .where(request_tags.c.request.in_(bindparam("ids", expanding=True)))
    .order_by(request_tags.c.tag)
)
_ANSWERED = delete(request_tags).where(
    request_tags.c.request.in_(bindparam("ids", expanding=True))
)
_CLEARED = delete(request_near).where(
    request_near.c.request.in_(bindparam("ids", expanding=True))
)
_NEAR_TAGS = (
    select(request_near)
    .where(request_near.c.request.in_(bindparam("ids", expanding=True)))
    .order_by(request_near.c.tag)
)
_NOT_NAMED = subjects.c.tag.not_in(
    select(request_tags.c.tag).where(request_tags.c.request == requests.c.id)
)
# Somebody is held whose id, or an alias, has the same loosest form, and the request
# names another.
_IS_NEAR_MISS = exists().where(
    request_near.c.request == requests.c.id,
    exists().where(subjects.c.near == request_near.c.tag, _NOT_NAMED)
    | exists().where(
        aliases.c.near == request_near.c.tag,
        subjects.c.tag == aliases.c.person,
        _NOT_NAMED,
    ),
)
_NEAR_MISSES = select(requests.c.id).where(
    requests.c.id.in_(bindparam("ids", expanding=True)),
    (requests.c.near == 1) | _IS_NEAR_MISS,
)
# On PostgreSQL nobody can cancel them until the transaction ends, on SQLite anyway.
_KEEP_WAITING = (
    select(requests.c.id)
    .where(
        requests.c.id.in_(bindparam("ids", expanding=True)),
        requests.c.stage == ACCEPTED,
    )
    .with_for_update()
)
_ONE = update(requests).where(requests.c.id == bindparam("request"))
_APPLY = _ONE.where(requests.c.stage == ACCEPTED).values(
    stage=APPLIED,
    outcome=bindparam("found"),
    reason=bindparam("why"),
    retained=bindparam("kept"),
    retained_until=bindparam("until"),
    near=case((_IS_NEAR_MISS, 1), else_=0),
    error="",
)
# One that some models have answered already cannot be taken back.
_CANCEL = _ONE.where(requests.c.stage == ACCEPTED, requests.c.outcome == "").values(
    stage=CANCELLED, error=""
)
_COMPLETE = _ONE.where(requests.c.stage == APPLIED).values(
    stage=COMPLETED, completed=bindparam("time"), receipt=bindparam("text")
)


def find_requests(connection: Connection, ids: Sequence[str]) -> dict[str, Row[Any]]:
    """Return the requests that exist, by id, with their fingerprints."""
    found: dict[str, Row[Any]] = {}
    for chunk in chunks(ids):
        lines = connection.execute(_LOOK_UP, {"ids": chunk})
        found |= {line.id: line for line in lines}
    return found


def require_request_id(request: object, *, new: bool = False) -> None:
    """Refuse what cannot be the id of a request, be it a new one or one to look up."""
    if isinstance(request, str) and _REQUEST.fullmatch(request):
        return
    advice = (
        "the id of a request is 32 hexadecimal digits in lower case, as given or "
        "printed when it was accepted"
    )
    if new:
        advice = (
            "give 32 random hexadecimal digits in lower case: a ticket number or an "
            "address would stay in the ledger for ever"
        )
    raise InvalidInput(f"request {repr(request)[:60]}; {advice}")


def require_request(connection: Connection, request: str) -> Row[Any]:
    """Return a request; refuse an id that was never accepted."""
    found = find_requests(connection, [request])
    if request not in found:
        raise UnknownRequest(
            f"request {request} was never accepted by this registry; check its id, or "
            "send it"
        )
    return found[request]


def find_waiting(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of the requests that are not applied, and not cancelled."""
    found = find_requests(connection, ids)
    return {id_ for id_, line in found.items() if line.stage == ACCEPTED}


class Chosen(NamedTuple):
    """Which requests: at these stages, of these rights, due by ``until``.

    ``until`` is a moment, and ``sender`` who sent them; None leaves it open.
    """

    stages: Sequence[str]
    rights: Sequence[str]
    until: int | None = None
    sender: str | None = None


class PageEnd(NamedTuple):
    """Where a page may end: a request, in the order of deadlines."""

    deadline: int
    request: str


def find_places(
    connection: Connection, chosen: Chosen, *, after: PageEnd | None, most: int
) -> list[PageEnd]:
    """Return the first places of chosen requests after one.

    Each stage and right is a run of an index that is in the order of deadlines: of
    each, no more than ``most`` lines are read, however many there are.
    """
    columns = requests.c.deadline, requests.c.id
    wanted = [] if after is None else [tuple_(*columns) > tuple_(*after)]
    if chosen.until is not None:
        wanted.append(requests.c.deadline <= chosen.until)
    if chosen.sender is not None:
        wanted.append(requests.c.sender == chosen.sender)
    runs = [
        select(*columns)
        .where(requests.c.stage == stage, requests.c.right == right, *wanted)
        .order_by(*columns)
        .limit(most)
        .subquery()
        for stage in chosen.stages
        for right in chosen.rights
    ]
    every = union_all(*map(select, runs)).subquery()
    query = select(every).order_by(every.c.deadline, every.c.id).limit(most)
    return [PageEnd(*line) for line in connection.execute(query)]


_PENDING = (
    select(*SHOWN)
    .where(requests.c.stage.in_((ACCEPTED, APPLIED)))
    .order_by(requests.c.accepted, requests.c.id)
)


def read_pending(connection: Connection) -> list[Row[Any]]:
    """Return all requests that are not completed, oldest first; see ``read_stage``."""
    return list(connection.execute(_PENDING))


_AT_STAGE = (
    select(*SHOWN)
    .where(requests.c.stage == bindparam("stage"))
    .order_by(requests.c.accepted, requests.c.id)
)


def read_stage(connection: Connection, stage: str) -> list[Row[Any]]:
    """Return the requests at a stage, oldest first."""
    return list(connection.execute(_AT_STAGE, {"stage": stage}))


_NEXT_CLOSE = select(func.min(requests.c.closes)).where(
    requests.c.stage == ACCEPTED, requests.c.error == ""
)


def read_next_close(connection: Connection) -> int | None:
    """Return when the first window of requests closes that wait and never failed."""
    found = connection.scalar(_NEXT_CLOSE)
    return None if found is None else int(found)


def read_overdue(connection: Connection, before: int) -> list[Row[Any]]:
    """Return the requests that are not completed and were due before a moment."""
    late = _PENDING.where(requests.c.deadline < before)
    return list(connection.execute(late))


_LATEST = select(func.max(requests.c.accepted)).where(
    requests.c.accepted < bindparam("bound")
)


def follow_others(connection: Connection, time: int) -> int:
    """Return a time for new requests, later than that of every one before them.

    Requests are settled in the order of these times, and two calls may come within a
    millisecond. A time far ahead is that of a clock that was wrong: it counts for
    nothing, or all requests would wait until that day.
    """
    latest = connection.scalar(_LATEST, {"bound": time + CLOCK_DRIFT})
    return max(time, int(latest or 0) + 1)


def delete_nothing(connection: Connection) -> None:
    """Write to the table without changing it; fails if the database cannot."""
    connection.execute(delete(requests).where(false()))


def count_requests(connection: Connection) -> tuple[int, int]:
    """Return how many requests there are, and how many are completed."""
    whole = connection.scalar(select(func.count()).select_from(requests)) or 0
    others = (ACCEPTED, APPLIED, CANCELLED)  # few, and there is an index
    rest = select(func.count()).where(requests.c.stage.in_(others))
    return int(whole), int(whole) - int(connection.scalar(rest) or 0)


_OPEN = (
    select(
        requests.c.stage,
        func.count().label("n"),
        func.min(requests.c.accepted).label("oldest"),
        func.min(requests.c.deadline).label("first"),
    )
    .where(requests.c.stage.in_((ACCEPTED, APPLIED, CANCELLED)))
    .group_by(requests.c.stage)
)


def count_stages(connection: Connection) -> dict[str, Row[Any]]:
    """Return for each stage but the last: ``n``, and the ``oldest``, ``first`` due."""
    return {line.stage: line for line in connection.execute(_OPEN)}


_RECEIPT = select(requests.c.receipt).where(requests.c.id == bindparam("request"))


def read_receipt(connection: Connection, request: str) -> str | None:
    """Return the receipt of a request; None until it is completed."""
    text = connection.scalar(_RECEIPT, {"request": request})
    return None if text is None else str(text)


def insert_requests(
    connection: Connection,
    lines: Sequence[Mapping[str, Any]],
    *,
    tags: Sequence[Any],
    near: Sequence[Any] = (),
) -> None:
    """Insert accepted requests, and (request, tag) for the people they are about.

    ``near`` are such pairs too, with tags of the loosest forms of what was sent.
    """
    for chunk in chunks(lines):
        connection.execute(insert(requests), [{**line} for line in chunk])
    pairs = [{"request": request, "tag": tag} for request, tag in tags]
    for some in chunks(pairs):
        connection.execute(insert(request_tags), some)
    loose = [{"request": request, "tag": tag} for request, tag in near]
    for some in chunks(loose):
        connection.execute(insert(request_near), some)
    if len(pairs) > CHUNK:
        analyse(connection, "request_tags (request)")


def read_tags(
    connection: Connection, ids: Sequence[str], *, near: bool = False
) -> dict[str, list[str]]:
    """Return the tags that each request is about, or those of the loosest forms."""
    found: dict[str, list[str]] = {request: [] for request in ids}
    for chunk in chunks(ids):
        lines = connection.execute(_NEAR_TAGS if near else _TAGS, {"ids": chunk})
        for request, tag in lines:
            found[request].append(tag)
    return found


def find_near_misses(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return the requests that may mean somebody else than those they name.

    Of a request that waits this is so while somebody is held whose id is spelled almost
    as what was sent. Of one that was answered, it was so at that time.
    """
    return {
        request
        for chunk in chunks(ids)
        for request in connection.scalars(_NEAR_MISSES, {"ids": chunk})
    }


def list_near_misses(connection: Connection) -> list[str]:
    """Return all requests that may mean somebody else, in the order of their ids."""
    missed = (requests.c.near == 1) | ((requests.c.stage == ACCEPTED) & _IS_NEAR_MISS)
    query = select(requests.c.id).where(missed).order_by(requests.c.id)
    return [*connection.scalars(query)]


def clear_near_miss(connection: Connection, request: str) -> None:
    """Record that a request means the people whom it names, and nobody else."""
    connection.execute(_CLEARED, {"ids": [request]})
    connection.execute(_ONE.values(near=0), {"request": request})


def find_waiting_tags(connection: Connection, tags: Sequence[str]) -> set[str]:
    """Return those of the tags that a waiting request names."""
    found: set[str] = set()
    for chunk in chunks(tags):
        found |= {
            *connection.scalars(
                select(request_tags.c.tag).where(request_tags.c.tag.in_(chunk))
            )
        }
    return found


class Answered(NamedTuple):
    """What became of a request.

    ``certificates`` has the digest of that of the release which each model got by it,
    ``retained`` why rows are kept sealed after it, and ``forgets`` whether nothing of
    its people is kept.
    """

    certificates: Mapping[str, str]
    outcome: Outcome = "done"
    reason: str = ""
    retained: str = ""
    retained_until: str = ""
    forgets: bool = False


def mark_applied(connection: Connection, answers: Mapping[str, Answered]) -> None:
    """Mark requests as applied, and delete the tags and new rows that they name."""
    moved = [
        {
            "request": request,
            "found": one.outcome,
            "why": one.reason,
            "kept": one.retained,
            "until": one.retained_until,
        }
        for request, one in answers.items()
    ]
    _move_on(connection, _APPLY, moved=moved)
    _delete_named(connection, list(answers))


def mark_cancelled(connection: Connection, said: Mapping[str, str]) -> bool:
    """Mark a request as cancelled, unless it moved on, and delete what it names.

    Returns whether it waited.
    """
    n_moved = connection.execute(_CANCEL, {**said}).rowcount
    if n_moved:
        _delete_named(connection, [said["request"]])
        deliveries_table.mark_untold(connection, said["request"])
    return n_moved == 1


def _delete_named(connection: Connection, ids: Sequence[str]) -> None:
    """Delete whom requests are about, and the new rows that they bring."""
    for chunk in chunks(ids):
        connection.execute(_ANSWERED, {"ids": chunk})
        connection.execute(_CLEARED, {"ids": chunk})
    delete_waiting(connection, ids)


def write_new_rows(connection: Connection, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write sealed new rows, in place of what their requests brought before.

    Each is as ``insert_waiting`` takes it. Those of a request that was cancelled
    meanwhile are left out, and those that are there, or were replaced since.
    """
    waiting: set[str] = set()
    for chunk in chunks(sorted({line["request"] for line in lines})):
        waiting |= {*connection.scalars(_KEEP_WAITING, {"ids": chunk})}
    there: dict[str, int] = {}
    for row in read_waiting(connection, sorted(waiting)):
        there[row.request] = max(row.key, there.get(row.request, 0))
    # Keys that are made later have higher numbers.
    new = [
        line
        for line in lines
        if line["request"] in waiting and line["key"] > there.get(line["request"], 0)
    ]
    delete_waiting(connection, sorted({line["request"] for line in new}))
    insert_waiting(connection, new)
    count_made(connection, [line["key"] for line in new])


_EXTEND = _ONE.values(
    deadline=bindparam("later"), extended=bindparam("why"), notified=bindparam("told")
)


def write_extension(connection: Connection, entry: RequestExtended) -> None:
    """Write the new deadline of a request, and why it was extended."""
    extension = {
        "request": entry.request,
        "later": midnight(entry.deadline),
        "why": entry.reason,
        "told": entry.notified,
    }
    connection.execute(_EXTEND, extension)


def mark_completed(connection: Connection, done: Sequence[Mapping[str, Any]]) -> None:
    """Mark requests as completed: each ``request``, ``time`` and ``text`` (receipt)."""
    _move_on(connection, _COMPLETE, moved=done)


def _move_on(
    connection: Connection, statement: Update, *, moved: Sequence[Mapping[str, Any]]
) -> None:
    """Move requests to the next stage; refuse if one was not at the stage before."""
    if not moved:
        return
    overtaken = MovedMeanwhile(
        "another process has moved these requests on meanwhile; run the command again"
    )
    rows = [{**one} for one in moved]
    write_exactly(connection, statement, rows=rows, n=len(rows), refusal=overtaken)


_PARTLY = _ONE.where(requests.c.stage == ACCEPTED).values(outcome=PARTLY)


def mark_partly(connection: Connection, ids: Sequence[str]) -> None:
    """Note that some models have answered requests, which wait for the others."""
    if ids:
        connection.execute(_PARTLY, [{"request": request} for request in ids])


def write_errors(connection: Connection, errors: Mapping[str, str]) -> None:
    """Record why requests could not be applied, of those that still wait."""
    connection.execute(
        _ONE.where(requests.c.stage == ACCEPTED).values(error=bindparam("why")),
        [{"request": request, "why": why} for request, why in errors.items()],
    )
