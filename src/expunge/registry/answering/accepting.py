# SPDX-License-Identifier: Apache-2.0
"""Accepting: what people ask for is checked, and is on disk before it counts.

A request is on disk twice before it counts as accepted: in the journal first and then
in the store, within a transaction that the store has not refused by then. What a crash
left in the journal alone was promised to nobody; the next worker accepts it all the
same, since a person did ask.

Ids of requests are random, so that they reveal nothing in a public ledger. Times in a
status are private, in milliseconds since 1970: they tell how long an answer took, and
so how it was reached. What is shown to others carries days. A deadline is the first
moment of its day in UTC, counted as the law counts from the day the person asked.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from ...exceptions import InvalidInput, RequestConflict, UnknownSubject
from ...ledger import TagKey, subject_tags
from ...ledger.documents import day_of, midnight
from ...ledger.entries import REQUEST_BYTES
from ...ledger.keys import near_tags, request_tag
from ...private_model.subjects import people
from ...promise.noise import random_bytes
from ...rights.calendar import parse_day
from ...rights.identifiers import list_spellings
from ...rights.regimes import deadline, regime_named
from ...rights.standing import FOR_HOLDS, Right, require_right
from ..clock import require_clock
from ..context import WAIT, Context, now, today
from ..keys import read_tag_keys
from ..log import Content
from ..statements import accepted_line, insert_accepted
from ..storage import aliases_table, people_table, requests_table
from ..storage.engine import Collision, collision_error
from ..storage.keystore import place_of, seal
from ..window import NO_WINDOW, Window
from .returning import ERASED, NewRows

Stage: TypeAlias = Literal["accepted", "applied", "completed", "cancelled"]


def _new_id() -> str:
    return random_bytes(REQUEST_BYTES).hex()


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """What people ask for.

    Parameters
    ----------
    subjects
        Whom it is about.
    request
        The request's id, 32 hexadecimal digits; sending it again gives the same answer.
        Random by default: a ticket number could lead to a person.
    right
        "erase", "object" (erased under its own name), "restrict" and "lift", "hold" and
        "end-hold", or "rectify"; see ``rights.standing`` for what each does.
    regime
        The law that gives the deadline; by default that of the registry.
    submitted
        The day on which the person asked; by default today.
    reason, until
        Of a hold: the code of a reason, and the day on which it ends.
    rows
        Of a rectification, which is about one person: the new rows, by model.
    sender
        Who sent it, such as the name of a token; it says nothing about a person.
    envelope
        All that was sent, as a text or its hash, where people are named by aliases. It
        then stands for them: sending the same id with another envelope is refused.
        Only a keyed hash of it is kept.
    n_people
        How many people it asks for, where some are named by several ids.
    spellings
        What people were named by, if not by these ids: a near miss is noticed by them.
    window
        The length in seconds of the window in which a service gathers it; 0 if it may
        be applied at once. The window that it falls into is its own for good.
    """

    subjects: tuple[str, ...]
    request: str = field(default_factory=_new_id)
    right: Right = "erase"
    regime: str | None = None
    submitted: str | date | None = None
    reason: str = ""
    until: str | date = ""
    rows: Mapping[str, NewRows] = field(default_factory=dict)
    sender: str = ""
    envelope: str = ""
    n_people: int | None = None
    spellings: tuple[str, ...] = ()
    window: int = 0

    def __repr__(self) -> str:
        about = f"{self.right}, {len(self.subjects)} people"
        return f"Request({about}, request={self.request!r})"


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """How far a request is.

    Parameters
    ----------
    request, right, regime
        Its id, what it asks for, and the law that gives the deadline.
    sender
        Who sent it; empty if that was not said.
    stage
        "accepted": on disk, and will be applied. "applied": the models are changed and
        the rows deleted, and what is left on disk is being erased. "completed": done,
        with a receipt. "cancelled": it will not be applied.
    submitted
        The day on which the person asked.
    accepted, deadline, completed
        When it came in, when it is due, and when it was done.
    n_subjects
        How many people it is about.
    outcome, reason
        What became of it, and the code of a reason; empty before it is applied.
    error
        Why it could not be applied at the last attempt; empty if there was none.
    window
        In which it came.
    """

    request: str
    stage: Stage
    accepted: int
    deadline: int
    completed: int | None
    n_subjects: int
    right: str = "erase"
    regime: str = ""
    submitted: str = ""
    outcome: str = ""
    reason: str = ""
    error: str = ""
    sender: str = ""
    window: Window = NO_WINDOW

    @property
    def is_open(self) -> bool:
        """Whether an answer is still due."""
        return self.stage in ("accepted", "applied")

    def is_due(self, day: date) -> bool:
        """Whether an answer is still due, and by this day at the latest."""
        return self.is_open and day_of(self.deadline) <= day.isoformat()

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline is past and an answer is still due."""
        return self.is_open and day_of(self.deadline) < today().isoformat()


def request_status(line: Any) -> RequestStatus:
    """Return a request in the store as an operator may see it."""
    return RequestStatus(
        request=line.id,
        stage=line.stage,
        accepted=line.accepted,
        deadline=line.deadline,
        completed=line.completed,
        n_subjects=line.n_subjects,
        right=line.right,
        regime=line.regime,
        submitted=line.submitted,
        outcome=line.outcome,
        reason=line.reason,
        error=line.error,
        sender=line.sender,
        window=Window(line.opens, line.closes),
    )


@dataclass(frozen=True, slots=True, repr=False)
class CheckedRequest:
    """A request in its normal spelling.

    Attributes
    ----------
    request, right, regime, subjects
        As in ``Request``, with ids as they are tagged.
    submitted, deadline
        Days.
    details
        What only some requests have.
    sender, envelope, n_people, spellings, window
        As in ``Request``.
    rows
        New rows of a rectification as bytes, by model.
    """

    request: str
    right: Right
    regime: str
    subjects: tuple[str, ...]
    submitted: date
    deadline: date
    details: Mapping[str, Any]
    sender: str
    envelope: str
    n_people: int
    spellings: tuple[str, ...]
    window: int
    rows: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """What the request asks for, as one string."""
        details = json.dumps(self.details, sort_keys=True)
        rows = [sha256(self.rows[name]).hexdigest() for name in sorted(self.rows)]
        sent = json.dumps([self.sender, self.envelope])
        # An alias leads to nobody any more once its person is erased, and a request
        # that is sent again must still be the same.
        about = () if self.envelope else sorted(self.subjects)
        return "\x00".join((self.request, self.right, details, sent, *rows, *about))


def check_request(context: Context, given: Request) -> CheckedRequest:
    """Return a request in its normal spelling; refuse what cannot be asked."""
    requests_table.require_request_id(given.request, new=True)
    right = require_right(given.right)
    name = context.settings.regime if given.regime is None else given.regime
    regime = regime_named(name)
    submitted = today() if given.submitted is None else parse_day(given.submitted)
    if submitted > today():
        raise InvalidInput(
            f"submitted={submitted}, which is after today; give the day on which the "
            "person asked"
        )
    subjects = people(given.subjects)
    n_people = len(subjects) if given.n_people is None else given.n_people
    return CheckedRequest(
        given.request,
        right,
        regime.name,
        subjects,
        submitted,
        deadline(submitted, regime),
        _check_details(given, right),
        given.sender,
        given.envelope,
        n_people,
        given.spellings or subjects,
        given.window,
    )


def _check_details(given: Request, right: Right) -> dict[str, Any]:
    """Return what only some requests have; refuse it on others."""
    if (right == "rectify") != bool(given.rows):
        raise InvalidInput(
            f"right={right!r} with new rows of {len(given.rows)} models; a "
            "rectification needs new rows, and no other request has any"
        )
    if right != "hold":
        if given.reason or given.until:
            raise InvalidInput(
                f"right={right!r} with a reason or an end; only a hold has them"
            )
        return {}
    if given.reason not in FOR_HOLDS:
        raise InvalidInput(
            f"reason={given.reason!r}; to hold rows, give one of {', '.join(FOR_HOLDS)}"
        )
    until = parse_day(given.until)
    if until < today():
        raise InvalidInput(f"until={until}, which is past; give today or a later day")
    return {"reason": given.reason, "until": until.isoformat()}


def code_new_rows(
    context: Context, given: Request, *, checked: CheckedRequest
) -> CheckedRequest:
    """Return a request with its new rows as the models keep theirs."""
    if not given.rows:
        return checked
    if checked.n_people != 1:
        raise InvalidInput(
            f"a rectification of {checked.n_people} people; send one request for "
            "each person, with their rows"
        )
    from ..loaded_model import dump_rows
    from .adding import code_rows

    rows = {}
    for name, new in sorted(given.rows.items()):
        coded = code_rows(context, name, new=new)
        rows[name] = dump_rows(coded)
    with context.store.read() as connection:
        fits = people_table.count_fits(connection, list(rows))
    return replace(checked, details={"models": fits}, rows=rows)


def accept_requests(
    context: Context, requests: Sequence[Request], *, strangers: bool
) -> tuple[RequestStatus, ...]:
    """Accept requests, all of them or none."""
    with ExitStack() as locked:
        if any(one.rows for one in requests):
            # The model must not change between when its rows are coded and accepted.
            locked.enter_context(context.hold_lock(WAIT))
        return _accept_checked(context, requests, strangers=strangers)


def check_requests(context: Context, requests: Sequence[Request]) -> None:
    """Refuse requests of which one cannot be accepted; nothing is written.

    What they ask for is checked, and not about whom. Their envelopes stand for that.
    """
    wanted: dict[str, CheckedRequest] = {}
    for one in requests:
        checked = check_request(context, one)
        first = wanted.setdefault(one.request, checked)
        if first.content != checked.content:
            raise _changed_error(one.request)
    with context.store.read() as connection:
        there = requests_table.find_requests(connection, list(wanted))
        _require_same(there, wanted, keys=read_tag_keys(context.paths))


def _require_same(
    there: Mapping[str, Any],
    wanted: Mapping[str, CheckedRequest],
    *,
    keys: Sequence[TagKey],
) -> None:
    """Refuse requests that were sent before and asked for something else."""
    for request, line in there.items():
        content = wanted[request].content
        if line.fingerprint not in [request_tag(content, key) for key in keys]:
            raise _changed_error(request)


def _accept_checked(
    context: Context, requests: Sequence[Request], *, strangers: bool
) -> tuple[RequestStatus, ...]:
    """Accept requests; the lock is held if they bring rows."""
    wanted: dict[str, CheckedRequest] = {}
    for one in requests:
        checked = code_new_rows(context, one, checked=check_request(context, one))
        first = wanted.setdefault(one.request, checked)
        if first is not checked and first.content != checked.content:
            raise _changed_error(one.request)
    for left in reversed(range(len(wanted) + 1)):
        try:
            found = _accept_new(context, wanted, strangers=strangers)
            break
        except Collision:
            # Somebody sent one of them at the same time: now it is there.
            if not left:
                raise
    return tuple(found[one.request] for one in requests)


def _accept_new(
    context: Context, wanted: dict[str, CheckedRequest], *, strangers: bool
) -> dict[str, RequestStatus]:
    """Write the requests that are new, and return the status of all."""
    # At one moment: a request that is sent again is found, or else its people are.
    with context.store.read() as connection:
        require_clock(connection)  # deadlines count from today
        there = requests_table.find_requests(connection, list(wanted))
        # Only now: one of them may have been accepted under a new key.
        keys = read_tag_keys(context.paths)
        _require_same(there, wanted, keys=keys)
        new = [one for id_, one in sorted(wanted.items()) if id_ not in there]
        subjects = list(dict.fromkeys(name for one in new for name in one.subjects))
        # Strangers are not looked up: how long that takes depends on who is known.
        tags = {} if strangers else find_tags(connection, subjects, keys=keys)
    if not strangers:
        _require_known(tags)
        for one in new:
            _require_rows(context, one, tags={tags[name] for name in one.subjects})
    found = {request: request_status(line) for request, line in there.items()}
    # Rows of a request that waits may be lost: they are not in the journal.
    waiting = [id_ for id_, one in found.items() if one.stage == "accepted"]
    sealed = [
        line
        for one in (*new, *(wanted[id_] for id_ in waiting))
        if one.rows
        for line in seal_new_rows(context, one.request, rows=one.rows)
    ]
    if not new and not sealed:
        return found
    delays = _count_earlier(wanted.values())
    return found | _write_new(context, new, sealed=sealed, delays=delays)


def seal_new_rows(
    context: Context, request: str, *, rows: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """Return new rows, by model, as the store keeps them; their keys are on disk then.

    They wait in the store alone, and not in the journal. If the database is lost, or a
    crash left the request in the journal alone, the request is known and waits, but its
    rows must be sent again.
    """
    keys = context.keystore.add(len(rows))
    found = []
    for (model, data), (number, key) in zip(rows.items(), keys.items(), strict=True):
        place = place_of(number, people_table.what_waits(request, model))
        sealed = seal(data, key, place=place)
        line = {"request": request, "model": model, "key": number, "sealed": sealed}
        found.append(line)
    return found


def _write_new(
    context: Context,
    new: Sequence[CheckedRequest],
    *,
    sealed: Sequence[dict[str, Any]],
    delays: Mapping[str, int],
) -> dict[str, RequestStatus]:
    """Write requests that are new, and sealed rows; return the status of the new."""
    # The clock may have been set back since they were checked.
    time = max([now(), *(midnight(one.submitted.isoformat()) for one in new)])
    day_of(time)  # or refuse a clock that no public document can tell
    line: Content = {}
    ids = [one.request for one in new]
    with context.log.record(line, by=insert_accepted, ahead=ids) as connection:
        if requests_table.find_requests(connection, ids):
            raise collision_error()  # now that nobody else can write
        time = requests_table.follow_others(connection, time)
        times = [time + delays[one.request] for one in new]
        lines = _request_lines(context, new, times=times)
        line |= accepted_line(lines, sealed)
    return {line["id"]: _accepted_status(line) for line in lines}


def _request_lines(
    context: Context, new: Sequence[CheckedRequest], *, times: Sequence[int]
) -> list[dict[str, Any]]:
    """Return new requests as the journal holds them, in an order that all senders have.

    They name people by every tag that these may have: a fit may give them another one
    between when they were looked up and when the request is on disk.
    """
    keys = read_tag_keys(context.paths)
    windows = [
        Window.at(time, one.window) for one, time in zip(new, times, strict=True)
    ]
    return [
        {
            "id": one.request,
            "accepted": time,
            "opens": window.start,
            "closes": window.close,
            "deadline": midnight(one.deadline.isoformat()),
            "n_subjects": one.n_people,
            "fingerprint": request_tag(one.content, keys[0]),
            "tags": sorted(
                {tag for name in one.subjects for tag in subject_tags(name, keys)}
            ),
            "near": sorted(
                {tag for word in one.spellings for tag in near_tags(word, keys)}
            ),
            "right": one.right,
            "regime": one.regime,
            "submitted": one.submitted.isoformat(),
            "details": json.dumps(one.details),
            "sender": one.sender,
        }
        for one, time, window in zip(new, times, windows, strict=True)
    ]


def _count_earlier(requests: Iterable[CheckedRequest]) -> dict[str, int]:
    """Return by how much each request comes after others that are sent with it.

    They are settled in the order in which they are given; of those in a row that ask
    for the same, any may be the first. This follows from what they ask for, and not
    from whom: when a request came in decides on its window, which its sender sees, and
    must not tell that two addresses lead to one person.
    """
    delays: dict[str, int] = {}
    place, before = 0, None
    for one in requests:
        what = "erase" if one.right in ERASED else one.right
        asks = None if one.rows else (what, one.details)
        if delays and (asks is None or asks != before):
            place += 1
        delays[one.request] = place
        before = asks
    return delays


def _accepted_status(line: dict[str, Any]) -> RequestStatus:
    """Return the status of a request that was accepted just now."""
    return RequestStatus(
        request=line["id"],
        stage="accepted",
        accepted=line["accepted"],
        deadline=line["deadline"],
        completed=None,
        n_subjects=line["n_subjects"],
        right=line["right"],
        regime=line["regime"],
        submitted=line["submitted"],
        sender=line["sender"],
        window=Window(line["opens"], line["closes"]),
    )


def find_tags(
    connection: Connection, subjects: Sequence[str], *, keys: Sequence[TagKey]
) -> dict[str, str | None]:
    """Return the tag under which each person is known; None for strangers."""
    possible = {subject: subject_tags(subject, keys) for subject in subjects}
    every = [tag for tags in possible.values() for tag in tags]
    there = people_table.models_by_tag(connection, every)
    return {
        subject: next((tag for tag in tags if tag in there), None)
        for subject, tags in possible.items()
    }


def find_near_ids(
    connection: Connection,
    words: Sequence[str],
    *,
    named: Sequence[str],
    keys: Sequence[TagKey],
) -> dict[str, str]:
    """Return words that may mean others who are held, with an id of these if guessed.

    Others than ``named``, that is.
    """
    possible = {one: near_tags(one, keys) for one in words}
    meant = {tag for one in named for tag in subject_tags(one, keys)}
    every = [tag for tags in possible.values() for tag in tags]
    holders = people_table.find_near(connection, every)
    by_alias = aliases_table.find_near(connection, every)
    found = {}
    for one, tags in possible.items():
        some = (there.get(near, ()) for near in tags for there in (holders, by_alias))
        others = {tag for held in some for tag in held} - meant
        if others:
            guesses = (
                guess
                for guess in list_spellings(one)
                if not others.isdisjoint(subject_tags(guess, keys))
            )
            found[one] = next(guesses, "")
    return found


def _require_known(tags: dict[str, str | None]) -> None:
    """Refuse people whom no model holds."""
    missing = [subject for subject, tag in tags.items() if tag is None]
    if missing:
        some = ", ".join(repr(subject[:60]) for subject in sorted(missing)[:3])
        raise UnknownSubject(
            f"in no model, or no longer: {len(missing)} of {len(tags)} people, {some}"
            f"{', ...' if len(missing) > 3 else ''}; nothing was accepted; check the "
            "ids, or leave out unknown ones"
        )


def _require_rows(
    context: Context, one: CheckedRequest, *, tags: set[str | None]
) -> None:
    """Refuse new rows for a model that has no rows of the person."""
    if not one.rows:
        return
    with context.store.read() as connection:
        held = people_table.models_by_tag(connection, [tag for tag in tags if tag])
    names = {name for some in held.values() for name in some}
    missing = sorted(set(one.rows) - names)
    if missing:
        raise UnknownSubject(
            f"model {missing[0]!r} holds no rows of this person, so there is nothing "
            "to rectify; nothing was accepted; add the rows instead (registry.add)"
        )


def _changed_error(request: str) -> RequestConflict:
    return RequestConflict(
        f"request {request} was sent before and asked for something else; nothing was "
        "accepted; give each new request its own id"
    )
