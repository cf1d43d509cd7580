# SPDX-License-Identifier: Apache-2.0
"""Request: one that was accepted, from accepted through applied to completed.

It is declared here and nowhere else. The fields of ``RequestStatus`` are the columns of
the table, and those without a default are what the journal says of an accepted one.

Each request moves on from the stage before and from no other: a process that was
overtaken by another is refused, and no request is applied or completed twice.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    Index,
    Integer,
    Table,
    Text,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from ..exceptions import Busy, InvalidInput, UnknownRequest
from ..ledger.documents import DAY, day_of, midnight
from ..ledger.entries import RequestExtended
from ..rights.standing import Outcome, Right, forgets
from .now import today
from .storage.engine import CHUNK, analyse, chunks, write_exactly
from .storage.keystore import count_made
from .storage.people_table import (
    delete_waiting,
    insert_waiting,
    read_waiting,
)
from .storage.tables import (
    aliases,
    columns_of,
    request_tags,
    schema,
    subjects,
)
from .window import Window

Stage: TypeAlias = Literal["accepted", "applied", "completed", "cancelled"]
ACCEPTED: Stage = "accepted"
APPLIED: Stage = "applied"
COMPLETED: Stage = "completed"
CANCELLED: Stage = "cancelled"
STAGES = (ACCEPTED, APPLIED, COMPLETED, CANCELLED)
PARTLY = "partly"
NEAR = 7  # days before a deadline, when nobody lets a request wait any longer
_REQUEST = re.compile(r"[0-9a-f]{32}")


class MovedMeanwhile(Busy):
    """A request is no longer at the stage where it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """A request that was accepted, and how far it is.

    Times are private, in milliseconds since 1970: they tell how long an answer took,
    and so how it was reached. What is shown to others carries days.

    Parameters
    ----------
    request, right, regime
        Its id, what it asks for, and the law that gives the deadline.
    accepted, deadline, completed
        When it came in, when it is due, and when it was done.
    opens, closes
        Its window: it is applied once that has closed, whatever the settings are then.
    n_subjects
        How many people it is about.
    submitted
        The day on which the person asked.
    sender
        Who sent it; empty if that was not said.
    details
        What only some requests have, as JSON: reason and end of a hold, and the fits
        of the models that a rectification has rows for.
    fingerprint
        A keyed hash of what was asked: the same id must not ask for something else.
    wants, grace_days
        What operators must decide before it is applied, and by how many days its window
        was put off: by the rule that held when it came, see ``decisions``.
    stage
        "accepted": on disk, and will be applied. "applied": the models are changed and
        the rows deleted, and what is left on disk is being erased. "completed": done,
        with a receipt. "cancelled": it will not be applied.
    outcome, reason
        What became of it, and the code of a reason; empty before it is applied.
    error
        Why it could not be applied at the last attempt; empty if there was none.
    retained, retained_until
        Why rows are kept sealed after it, and until which day.
    extended, notified
        Why its deadline was extended, and when the person was told.
    missing
        What operators must still decide of what it wants.
    identity
        How it was checked who asks, as a code.
    waits
        Until which day its operator lets it wait; empty if not.
    """

    request: str
    accepted: int
    opens: int
    closes: int
    deadline: int
    n_subjects: int
    right: Right
    regime: str
    submitted: str
    sender: str
    details: str
    fingerprint: str = field(repr=False)
    wants: str
    grace_days: int
    stage: Stage = ACCEPTED
    completed: int | None = None
    outcome: Outcome | Literal[""] = ""
    reason: str = ""
    error: str = ""
    retained: str = ""
    retained_until: str = ""
    extended: str = ""
    notified: str = ""
    missing: str = ""
    identity: str = ""
    waits: str = ""

    @property
    def window(self) -> Window:
        """The window in which it is applied: that in which it came, or a later one."""
        return Window(self.opens, self.closes, self.grace_days)

    def is_held_up(self, day: str) -> bool:
        """Whether it waits for an operator on a day, whatever its window is."""
        return bool(self.missing) or self.waits > day

    @property
    def waits_for(self) -> str:
        """What it waits for but its window, in words; empty if for nothing."""
        what = self.missing.replace("identity", "a check of who asks")
        until = self.waits if self.is_open and self.waits > today().isoformat() else ""
        operator = f"its operator, until {until}" if until else ""
        return " and ".join(filter(None, (what, operator)))

    @property
    def asked(self) -> Mapping[str, Any]:
        """What only some requests have."""
        found: dict[str, Any] = json.loads(self.details)
        return found

    @property
    def is_open(self) -> bool:
        """Whether an answer is still due."""
        return self.stage in (ACCEPTED, APPLIED)

    def is_due(self, day: date) -> bool:
        """Whether an answer is still due, and by this day at the latest."""
        return self.is_open and day_of(self.deadline) <= day.isoformat()

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline is past and an answer is still due."""
        return self.is_open and day_of(self.deadline) < today().isoformat()

    def to_json(self) -> dict[str, Any]:
        """Return it as an operator sees it, as JSON data; times as days."""
        done = self.completed
        return {
            "request": self.request,
            "right": self.right,
            "regime": self.regime,
            "stage": self.stage,
            "submitted": self.submitted,
            "accepted": day_of(self.accepted),
            "deadline": day_of(self.deadline),
            "completed": None if done is None else day_of(done),
            "overdue": self.is_overdue,
            "outcome": self.outcome,
            "reason": self.reason,
            "n_subjects": self.n_subjects,
            "error": self.error,
            "missing": self.missing,
            "waits": self.waits,
        }

    @property
    def forgets(self) -> bool:
        """Whether nothing of its people is kept, now that it is answered."""
        return bool(self.outcome) and forgets(self.right, self.outcome)


FIELDS = tuple(one.name for one in fields(RequestStatus))
ASKED = tuple(one.name for one in fields(RequestStatus) if one.default is MISSING)
NEW: dict[str, Any] = {
    one.name: one.default for one in fields(RequestStatus) if one.name not in ASKED
}

requests = Table(
    "requests",
    schema,
    *columns_of(RequestStatus, key="request"),
    Column("receipt", Text),
    # 1 if somebody else was held, when it was answered, whose id is spelled almost so.
    Column("near", Integer, nullable=False, default=0),
    # In the order of deadlines, for pages of each stage and right.
    Index(None, "stage", "right", "deadline", "request"),
    Index(None, "sender", "stage", "right", "deadline", "request"),
    # Which one came last: the next one comes later.
    Index(None, "accepted"),
)
SHOWN = tuple(requests.c[name] for name in FIELDS)  # the receipt may be long

# Lines of the journal.


def to_line(
    one: RequestStatus, tags: Sequence[str], *, near: Sequence[str]
) -> dict[str, Any]:
    """Return an accepted request as the journal holds it.

    With the tags that its people may have, and those of the loosest forms of what it
    was sent with.
    """
    asked = {name: getattr(one, name) for name in ASKED}
    return asked | {"tags": [*tags], "near": [*near]}


def from_line(line: Mapping[str, Any]) -> RequestStatus:
    """Return the request that a line of the journal holds."""
    return RequestStatus(**{name: line[name] for name in ASKED})


def insert_requests(connection: Connection, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write requests to the store as the journal holds them."""
    named = [
        {"request": line["request"], "tag": tag, "near": near}
        for line in lines
        for near, key in enumerate(("tags", "near"))
        for tag in line[key]
    ]
    for some in chunks(lines):
        rows = [
            NEW | {"missing": line["wants"]} | {name: line[name] for name in ASKED}
            for line in some
        ]
        connection.execute(insert(requests), rows)
    for pairs in chunks(named):
        connection.execute(insert(request_tags), pairs)
    if len(named) > CHUNK:
        analyse(connection, "request_tags (request)")


# Looking up.

_IDS: Any = bindparam("ids", expanding=True)
_LOOK_UP = select(*SHOWN).where(requests.c.request.in_(_IDS))
_BY_TIME = select(*SHOWN).order_by(requests.c.accepted, requests.c.request)
_PENDING = _BY_TIME.where(requests.c.stage.in_((ACCEPTED, APPLIED)))
_AT_STAGE = _BY_TIME.where(requests.c.stage == bindparam("at"))


def find_requests(
    connection: Connection, ids: Sequence[str]
) -> dict[str, RequestStatus]:
    """Return the requests that exist, by id."""
    return {
        row.request: RequestStatus(**row._mapping)
        for chunk in chunks(ids)
        for row in connection.execute(_LOOK_UP, {"ids": chunk})
    }


def read_pending(connection: Connection) -> list[RequestStatus]:
    """Return all requests that are not completed, oldest first."""
    return [RequestStatus(**row._mapping) for row in connection.execute(_PENDING)]


def read_stage(connection: Connection, stage: Stage) -> list[RequestStatus]:
    """Return the requests at a stage, oldest first."""
    rows = connection.execute(_AT_STAGE, {"at": stage})
    return [RequestStatus(**row._mapping) for row in rows]


def read_overdue(connection: Connection, before: int) -> list[RequestStatus]:
    """Return the requests that are not completed and were due before a moment."""
    late = connection.execute(_PENDING.where(requests.c.deadline < before))
    return [RequestStatus(**row._mapping) for row in late]


def find_waiting(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of the requests that are not applied, and not cancelled."""
    found = find_requests(connection, ids)
    return {id_ for id_, one in found.items() if one.stage == ACCEPTED}


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


def require_request(connection: Connection, request: str) -> RequestStatus:
    """Return a request; refuse an id that was never accepted."""
    found = find_requests(connection, [request])
    if request not in found:
        raise UnknownRequest(
            f"request {request} was never accepted by this registry; check its id, or "
            "send it"
        )
    return found[request]


_RECEIPTS = select(requests.c.request, requests.c.receipt).where(
    requests.c.request.in_(_IDS), requests.c.receipt.is_not(None)
)


def read_receipts(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the receipts of requests, by id; none of those that are not completed."""
    return {
        request: text
        for chunk in chunks(ids)
        for request, text in connection.execute(_RECEIPTS, {"ids": chunk})
    }


_TAGS = (
    select(request_tags.c.request, request_tags.c.tag)
    .where(request_tags.c.request.in_(_IDS), request_tags.c.near == bindparam("of"))
    .order_by(request_tags.c.tag)
)


def read_tags(
    connection: Connection, ids: Sequence[str], *, near: bool = False
) -> dict[str, list[str]]:
    """Return the tags that each request is about, or those of the loosest forms."""
    found: dict[str, list[str]] = {request: [] for request in ids}
    for chunk in chunks(ids):
        rows = connection.execute(_TAGS, {"ids": chunk, "of": int(near)})
        for request, tag in rows:
            found[request].append(tag)
    return found


def find_requests_about(
    connection: Connection, tags: Sequence[str], *, stage: Stage
) -> list[str]:
    """Return the requests at a stage that name somebody by one of these tags."""
    query = (
        select(request_tags.c.request)
        .join(requests, requests.c.request == request_tags.c.request)
        .where(request_tags.c.tag.in_(tags), request_tags.c.near == 0)
        .where(requests.c.stage == stage)
        .order_by(requests.c.deadline, requests.c.request)
    )
    return list(dict.fromkeys(connection.scalars(query)))


def find_waiting_tags(connection: Connection, tags: Sequence[str]) -> set[str]:
    """Return those of the tags that a waiting request names."""
    there = select(request_tags.c.tag)
    return {
        tag
        for chunk in chunks(tags)
        for tag in connection.scalars(there.where(request_tags.c.tag.in_(chunk)))
    }


_NOT_NAMED = subjects.c.tag.not_in(
    select(request_tags.c.tag)
    .where(request_tags.c.request == requests.c.request)
    .correlate(requests)
)
_SENT = request_tags.alias("sent")
_OTHERS = select(func.count()).select_from(subjects).where(_NOT_NAMED)
# Somebody is held whose id, or an alias, has the same loosest form, and the request
# names another. Counted, for PostgreSQL has no statistics of tags: where one match is
# enough, it expects one soon and reads the whole table.
IS_NEAR_MISS = exists().where(
    _SENT.c.request == requests.c.request,
    _SENT.c.near == 1,
    (_OTHERS.where(subjects.c.near == _SENT.c.tag).scalar_subquery() > 0)
    | (
        _OTHERS.join(aliases, subjects.c.tag == aliases.c.person)
        .where(aliases.c.near == _SENT.c.tag)
        .scalar_subquery()
        > 0
    ),
)

# Moving on.

_ONE = update(requests).where(requests.c.request == bindparam("of"))
_APPLY = _ONE.where(requests.c.stage == ACCEPTED).values(
    stage=APPLIED,
    outcome=bindparam("found"),
    reason=bindparam("why"),
    retained=bindparam("kept"),
    retained_until=bindparam("until"),
    near=case((IS_NEAR_MISS, 1), else_=0),
    error="",
    missing="",
    waits="",
)
# One that some models have answered already cannot be taken back.
_CANCEL = _ONE.where(requests.c.stage == ACCEPTED, requests.c.outcome == "").values(
    stage=CANCELLED, error="", missing="", waits=""
)
_COMPLETE = _ONE.where(requests.c.stage == APPLIED).values(
    stage=COMPLETED, completed=bindparam("time"), receipt=bindparam("text")
)
_PARTLY = _ONE.where(requests.c.stage == ACCEPTED).values(outcome=PARTLY)
_FAILED = _ONE.where(requests.c.stage == ACCEPTED).values(error=bindparam("why"))
_EXTEND = _ONE.values(
    deadline=bindparam("later"),
    extended=bindparam("why"),
    notified=bindparam("told"),
    waits=bindparam("until"),
)


def mark_applied(connection: Connection, answered: Sequence[RequestStatus]) -> None:
    """Mark requests as applied, with what became of them.

    The tags and new rows that they name are deleted, and all aliases of people of whom
    nothing is kept.
    """
    for chunk in chunks([one.request for one in answered if one.forgets]):
        people = select(request_tags.c.tag).where(request_tags.c.request.in_(chunk))
        connection.execute(delete(aliases).where(aliases.c.person.in_(people)))
    moved = [
        {
            "of": one.request,
            "found": one.outcome,
            "why": one.reason,
            "kept": one.retained,
            "until": one.retained_until,
        }
        for one in answered
    ]
    _move_on(connection, _APPLY, moved=moved)
    _delete_tags(connection, [one.request for one in answered])
    # No other right brings rows.
    rectified = [one.request for one in answered if one.right == "rectify"]
    delete_waiting(connection, rectified)


def mark_cancelled(connection: Connection, request: str) -> bool:
    """Mark a request as cancelled, unless it moved on, and delete what it names.

    Returns whether it waited.
    """
    if not connection.execute(_CANCEL, {"of": request}).rowcount:
        return False
    _delete_tags(connection, [request])
    delete_waiting(connection, [request])
    return True


def mark_completed(connection: Connection, done: Sequence[Mapping[str, Any]]) -> None:
    """Mark requests as completed: each ``of``, ``time`` and ``text`` (receipt)."""
    _move_on(connection, _COMPLETE, moved=done)


def _move_on(
    connection: Connection, statement: Any, *, moved: Sequence[Mapping[str, Any]]
) -> None:
    """Move requests to the next stage; refuse if one was not at the stage before."""
    if not moved:
        return
    overtaken = MovedMeanwhile(
        "another process has moved these requests on meanwhile; run the command again"
    )
    rows = [{**one} for one in moved]
    write_exactly(connection, statement, rows=rows, n=len(rows), refusal=overtaken)


def _delete_tags(connection: Connection, ids: Sequence[str]) -> None:
    """Delete whom requests are about."""
    for chunk in chunks(ids):
        connection.execute(
            delete(request_tags).where(request_tags.c.request.in_(chunk))
        )


def mark_partly(connection: Connection, ids: Sequence[str]) -> None:
    """Note that some models have answered requests, which wait for the others."""
    if ids:
        connection.execute(_PARTLY, [{"of": request} for request in ids])


def write_errors(connection: Connection, errors: Mapping[str, str]) -> None:
    """Record why requests could not be applied, of those that still wait."""
    rows = [{"of": request, "why": why} for request, why in errors.items()]
    connection.execute(_FAILED, rows)


def write_extension(connection: Connection, entry: RequestExtended) -> None:
    """Write the new deadline of a request, and why it was extended.

    Until that day is near, it waits for its operator.
    """
    extension = {
        "of": entry.request,
        "later": midnight(entry.deadline),
        "why": entry.reason,
        "told": entry.notified,
        "until": day_of(midnight(entry.deadline) - NEAR * DAY),
    }
    connection.execute(_EXTEND, extension)


# New rows of rectifications.

# On PostgreSQL nobody can cancel them until the transaction ends, on SQLite anyway.
_KEEP_WAITING = (
    select(requests.c.request)
    .where(requests.c.request.in_(_IDS), requests.c.stage == ACCEPTED)
    .with_for_update()
)


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
