# SPDX-License-Identifier: Apache-2.0
"""Requests of a registry: accepted, applied, looked up; and, while they wait, changed.

**Accepting.** A request is on disk twice before it counts as accepted: in the journal
first and then in the store, within a transaction that the store has not refused by
then. What a crash left in the journal alone was promised to nobody; the next worker
accepts it all the same, since a person did ask. Ids of requests are random, so that
they reveal nothing in a public ledger. A deadline is the first moment of its day in
UTC, counted as the law counts from the day the person asked.

**Cancelling** waits for no worker. Like accepting it is one transaction that any
process may make at any moment. The request moves on only from "accepted", so of a
worker that applies it and a process that cancels it one comes first, and the other
finds that it moved. A worker then starts its batch again without the request; a process
that comes too late says so. The log has the line before the store has the commit. What
a crash left in the log alone is carried out by the next writer, unless the request
was applied by then. Who asks again hears that it is cancelled, as after any answer
that was lost. The tags and new rows that the request names are deleted with it. SQLite
keeps their bytes in its log until something is erased next, and the journal keeps the
tags, as of every request. The keys of new rows are destroyed, so no copy of them can be
read.

**Refusing and extending** are done with the worker's lock: both are in the ledger.

**Deciding**, that somebody's identity was checked, that a request is approved, or that
it waits or goes on, is a line of the log too (``decisions``). No such line changes what
the sender sees.

**Listing.** A page is found by where the one before it ended, not by counting rows, so
that it takes as long at the end of a million requests as at their beginning, and
requests that come or go meanwhile neither repeat nor hide another.
"""

import json
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    delete,
    func,
    select,
    tuple_,
    union_all,
    update,
)

from ..display.progress import OnNamedProgress, OnProgress, be_silent
from ..exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    RequestConflict,
    UnknownRequest,
    UnknownSubject,
)
from ..ledger import RequestExtended, TagKey, subject_tags
from ..ledger.documents import DAY, FIRST_DAY, day_of, midnight
from ..ledger.entries import EXTENSIONS, REQUEST_BYTES
from ..ledger.keys import near_tags, request_tag
from ..private_model.subjects import people, person
from ..promise.noise import random_bytes
from ..rights import parse_identifier
from ..rights.calendar import parse_day
from ..rights.identifiers import ADDRESSES, ID, after_colon, list_spellings
from ..rights.regimes import Regime, deadline, extended_deadline, regime_named
from ..rights.standing import BY_OPERATOR, FOR_HOLDS, RIGHTS, Right, require_right
from .aliases import resolve_words
from .clock import require_clock
from .completion import finish_committed, state_answers, state_entry
from .context import WAIT, Context, RegistryPart, next_entry_time, read_ledger
from .deciding import (
    NOBODY,
    Decider,
    make_decision,
    record_decision,
    require_wanted,
)
from .decisions import (
    APPROVAL,
    GO_ON,
    IDENTITY,
    METHODS,
    WAITS,
    Decision,
    find_rule,
    read_decisions,
    read_rules,
)
from .fits import ERASED, NewRows, read_forgotten_tags
from .keys import read_tag_keys
from .log import Content
from .now import now, today
from .remarks import (
    Remark,
    erase_remarks,
    find_reference,
    read_remarks,
    write_outcomes,
    write_remarks,
)
from .request import (
    ACCEPTED,
    APPLIED,
    CANCELLED,
    COMPLETED,
    IS_NEAR_MISS,
    NEAR,
    STAGES,
    MovedMeanwhile,
    RequestStatus,
    find_requests,
    mark_applied,
    read_receipts,
    require_request,
    require_request_id,
    to_line,
)
from .request import requests as table
from .statements import accepted_line, insert_accepted, write_cancelled
from .storage import people_table, releases_table
from .storage.engine import Collision, chunks, collision_error
from .storage.keystore import place_of, seal
from .storage.ledger_table import LedgerBatch
from .storage.tables import (
    aliases,
    overtaken_error,
    request_tags,
    subjects,
)
from .window import Window
from .worker import apply_waiting, recover

# Milliseconds by which a clock may fall behind requests that are there already.
CLOCK_DRIFT = 60_000
MOST = 1000
# One transaction for each: few enough to show progress, many enough to be quick.
BATCH = 1000
_CURSOR = struct.Struct(">q16s")  # a deadline, and the id of a request


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
class SubmittedRequests:
    """What became of requests that were sent to be applied at once.

    Parameters
    ----------
    receipts
        Receipts of the completed requests, by request.
    pending
        Requests that are accepted and not completed.
    n_refused
        How many requests were not accepted.
    failure
        What went wrong, if anything.
    """

    receipts: dict[str, str]
    pending: tuple[str, ...]
    n_refused: int
    failure: ExpungeError | None


@dataclass(frozen=True, slots=True, repr=False)
class MeantPeople:
    """Whom words mean, as ``RegistryRequests.look_up`` found it: for the operator.

    Parameters
    ----------
    meant
        The ids that each word means: an address may be two ids of one person.
    tried
        The kinds of identifier that were looked for.
    near
        The words that may mean somebody else, see ``RegistryRequests.find_near``.
    """

    meant: dict[str, tuple[str, ...]]
    tried: tuple[str, ...]
    near: dict[str, str]

    @property
    def ids(self) -> tuple[str, ...]:
        """All the ids, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.meant.values())))

    def count(self, ids: Iterable[str]) -> int:
        """Return how many people ids are: words that share one are one person's."""
        left, n_people = {*ids}, 0
        for some in self.meant.values():
            n_people += not left.isdisjoint(some)
            left.difference_update(some)
        return n_people


class SortedPeople(NamedTuple):
    """Ids by what is known of them, which is for the operator's eyes alone.

    Attributes
    ----------
    known
        With rows in a model, or sealed apart.
    forgotten
        Of people who were forgotten before.
    strangers
        The others. They may have been in a model that was replaced since.
    """

    known: tuple[str, ...]
    forgotten: tuple[str, ...]
    strangers: tuple[str, ...]


class RequestCounts(NamedTuple):
    """How many requests are at each stage.

    ``oldest`` is when the oldest of those came in that are not answered, and ``due``
    the first of their deadlines; None if there are none.
    """

    stages: dict[str, int]
    oldest: int | None
    due: int | None


def _require_words(
    words: tuple[str, ...], known: tuple[str, ...], *, what: str
) -> None:
    unknown = [word for word in words if word not in known]
    if unknown or isinstance(words, str):
        raise InvalidInput(f"{what} {words!r}; give some of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class PageWanted:
    """Which requests to list.

    Parameters
    ----------
    stages, rights
        Only those at one of these stages, and asking for one of these rights; any, if
        there are none.
    due
        Only those whose deadline is on this day or before.
    after
        Where the page before ended: its ``next``. Empty for the first page.
    most
        How many at most, from 1 to 1000.
    sender
        Only those of this sender; None for those of all.
    """

    stages: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()
    due: str | date | None = None
    after: str = ""
    most: int = 100
    sender: str | None = None

    def __post_init__(self) -> None:
        """Refuse a page that cannot be made."""
        _require_words(self.stages, STAGES, what="stages")
        _require_words(self.rights, RIGHTS, what="rights")
        if not 1 <= self.most <= MOST:
            raise InvalidInput(f"most={self.most}; give a number from 1 to {MOST}")


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Some requests, in the order of their deadlines, and of their ids on one day.

    Parameters
    ----------
    lines
        The requests.
    next
        What to give as ``after`` for the next page; empty if this is the last.
    """

    lines: tuple[RequestStatus, ...]
    next: str


@dataclass(frozen=True, slots=True, repr=False)
class _Sent:
    """A request that was sent: in its normal spelling, and as it would be accepted.

    New rows of a rectification are bytes, by model.
    """

    given: Request
    subjects: tuple[str, ...]
    row: RequestStatus
    rows: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """What the request asks for, as one string."""
        rows = [sha256(self.rows[name]).hexdigest() for name in sorted(self.rows)]
        sent = json.dumps([self.given.sender, self.given.envelope])
        # An alias leads to nobody any more once its person is erased, and a request
        # that is sent again must still be the same.
        about = () if self.given.envelope else sorted(self.subjects)
        row = self.row
        return "\x00".join((row.request, row.right, row.details, sent, *rows, *about))


@lru_cache
def _due(submitted: date, regime: Regime) -> int:
    return midnight(deadline(submitted, regime).isoformat())


def _check(context: Context, given: Request, *, day: date) -> _Sent:
    """Return a request in its normal spelling; refuse what cannot be asked."""
    require_request_id(given.request, new=True)
    right = require_right(given.right)
    name = context.settings.regime if given.regime is None else given.regime
    regime = regime_named(name)
    submitted = day if given.submitted is None else parse_day(given.submitted)
    if submitted > day:
        raise InvalidInput(
            f"submitted={submitted}, which is after today; give the day on which the "
            "person asked"
        )
    subjects = people(given.subjects)
    row = RequestStatus(
        request=given.request,
        accepted=0,
        opens=0,
        closes=0,
        deadline=_due(submitted, regime),
        n_subjects=len(subjects) if given.n_people is None else given.n_people,
        right=right,
        regime=regime.name,
        submitted=submitted.isoformat(),
        sender=given.sender,
        details=_check_details(given, right),
        fingerprint="",
        wants="",
        grace_days=0,
    )
    return _Sent(given, subjects, row)


def _check_details(given: Request, right: Right) -> str:
    """Return what only some requests have, as JSON; refuse it on others."""
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
        return "{}"
    if given.reason not in FOR_HOLDS:
        raise InvalidInput(
            f"reason={given.reason!r}; to hold rows, give one of {', '.join(FOR_HOLDS)}"
        )
    until = parse_day(given.until)
    if until < today():
        raise InvalidInput(f"until={until}, which is past; give today or a later day")
    return json.dumps({"reason": given.reason, "until": until.isoformat()})


def _code_rows(context: Context, sent: _Sent) -> _Sent:
    """Return a request with its new rows as the models keep theirs."""
    given = sent.given
    if not given.rows:
        return sent
    if sent.row.n_subjects != 1:
        raise InvalidInput(
            f"a rectification of {sent.row.n_subjects} people; send one request for "
            "each person, with their rows"
        )
    from .adding import code_rows
    from .loaded_model import dump_rows

    keys = read_tag_keys(context.paths)
    tags = {one: subject_tags(one, keys) for one in sent.subjects}
    every = [tag for some in tags.values() for tag in some]
    with context.store.read() as connection:
        fits = people_table.count_fits(connection, sorted(given.rows))
        there = people_table.models_by_tag(connection, every)
    rows = {}
    for name, new in sorted(given.rows.items()):
        # What a model calls the person, if the request names them in several ways.
        held = (
            one
            for one, some in tags.items()
            if any(name in there.get(tag, ()) for tag in some)
        )
        owner = next(held, sent.subjects[0])
        rows[name] = dump_rows(code_rows(context, name, new=new, subjects=owner))
    details = json.dumps({"models": fits}, sort_keys=True)
    return replace(sent, row=replace(sent.row, details=details), rows=rows)


def _check_all(
    context: Context,
    requests: Sequence[Request],
    *,
    code: Callable[[Context, _Sent], _Sent] = lambda context, sent: sent,
) -> dict[str, _Sent]:
    """Return requests by id, each once; ``code`` codes the new rows that they bring."""
    wanted: dict[str, _Sent] = {}
    day = today()
    for one in requests:
        sent = code(context, _check(context, one, day=day))
        before = wanted.setdefault(one.request, sent)
        if before is not sent and before.content != sent.content:
            raise _changed_error(one.request)
    return wanted


def _require_same(
    there: Mapping[str, RequestStatus],
    wanted: Mapping[str, _Sent],
    *,
    keys: Sequence[TagKey],
) -> None:
    """Refuse requests that were sent before and asked for something else."""
    for request, one in there.items():
        content = wanted[request].content
        if one.fingerprint not in [request_tag(content, key) for key in keys]:
            raise _changed_error(request)


def _changed_error(request: str) -> RequestConflict:
    return RequestConflict(
        f"request {request} was sent before and asked for something else; nothing was "
        "accepted; give each new request its own id"
    )


def _accept_new(
    context: Context, wanted: Mapping[str, _Sent], *, strangers: bool
) -> dict[str, RequestStatus]:
    """Write the requests that are new, and return the status of all."""
    # At one moment: a request that is sent again is found, or else its people are.
    with context.store.read() as connection:
        require_clock(connection)  # deadlines count from today
        there = find_requests(connection, list(wanted))
        # Only now: one of them may have been accepted under a new key.
        keys = read_tag_keys(context.paths)
        _require_same(there, wanted, keys=keys)
        new = [one for id_, one in sorted(wanted.items()) if id_ not in there]
        possible = {
            name: subject_tags(name, keys) for one in new for name in one.subjects
        }
        # Strangers are not looked up: how long that takes depends on who is known.
        tags = {} if strangers else find_tags(connection, possible)
    if not strangers:
        _require_known(tags)
        for one in new:
            _require_rows(context, one, tags={tags[name] for name in one.subjects})
    # Rows of a request that waits may be lost: they are not in the journal.
    waiting = [id_ for id_, one in there.items() if one.stage == ACCEPTED]
    sealed = [
        line
        for one in (*new, *(wanted[id_] for id_ in waiting))
        if one.rows
        for line in seal_new_rows(context, one.row.request, rows=one.rows)
    ]
    if not new and not sealed:
        return there
    delays = _count_earlier(wanted.values())
    return there | _write_new(
        context, new, sealed=sealed, delays=delays, keys=keys, possible=possible
    )


def seal_new_rows(
    context: Context, request: str, *, rows: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """Return new rows, by model, as the store keeps them, with keys on disk."""
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
    new: Sequence[_Sent],
    *,
    sealed: Sequence[dict[str, Any]],
    delays: Mapping[str, int],
    keys: Sequence[TagKey],
    possible: Mapping[str, tuple[str, ...]],
) -> dict[str, RequestStatus]:
    """Write requests that are new, and sealed rows; return the status of the new.

    They name people by every tag that these may have: a fit may give them another one
    between when they were looked up and when the request is on disk. ``possible`` are
    their tags under the ``keys`` that there were when they were looked up.
    """
    # The clock may have been set back since they were checked.
    last = max((one.row.submitted for one in new), default=FIRST_DAY)
    time = max(now(), midnight(last))
    day_of(time)  # or refuse a clock that no public document can tell
    accepted: dict[str, RequestStatus] = {}
    line: Content = {}
    ids = [one.row.request for one in new]

    def ahead(missing: Iterable[Content]) -> None:
        there = {one["request"] for some in missing for one in some.get("accepted", ())}
        if not there.isdisjoint(ids):
            raise Busy(
                "a backup is being restored, and these requests were sent before; wait "
                "until it is done, and send them again"
            )
        with context.store.read() as connection:
            if find_requests(connection, ids):
                raise collision_error()

    # One that somebody else sent since they were looked up is a Collision.
    with context.log.record(line, by=insert_accepted, ahead=ahead) as connection:
        lines = []
        # Requests are settled in the order of these times, and two calls may come
        # within a millisecond. A time far ahead is that of a clock that was wrong: it
        # counts for nothing, or all requests would wait until that day.
        latest = select(func.max(table.c.accepted)).where(
            table.c.accepted < time + CLOCK_DRIFT
        )
        time = max(time, int(connection.scalar(latest) or 0) + 1)
        newest = read_tag_keys(context.paths)
        if newest != keys:
            keys = newest
            possible = {name: subject_tags(name, keys) for name in possible}
        rules = read_rules(connection)
        for one in new:
            moment = time + delays[one.row.request]
            rule = find_rule(rules, one.row.right)
            # It must end before the deadline, however long ago the person asked.
            left = (one.row.deadline - moment) // DAY - 1
            days = max(min(rule.grace_days, left), 0)
            window = Window.at(moment, one.given.window).put_off(days)
            row = replace(
                one.row,
                accepted=moment,
                opens=window.start,
                closes=window.close,
                fingerprint=request_tag(one.content, keys[0]),
                wants=rule.steps,
                grace_days=days,
                missing=rule.steps,
            )
            words = one.given.spellings or one.subjects
            tags = {tag for name in one.subjects for tag in possible[name]}
            near = {tag for word in words for tag in near_tags(word, keys)}
            accepted[row.request] = row
            lines.append(to_line(row, sorted(tags), near=sorted(near)))
        line |= accepted_line(lines, sealed)
    return accepted


def _count_earlier(requests: Iterable[_Sent]) -> dict[str, int]:
    """Return by how much each request comes after others that are sent with it.

    They are settled in the order in which they are given; of those in a row that ask
    for the same, any may be the first. This follows from what they ask for, and not
    from whom: when a request came in decides on its window, which its sender sees, and
    must not tell that two addresses lead to one person.
    """
    delays: dict[str, int] = {}
    place, before = 0, None
    for one in requests:
        what = "erase" if one.row.right in ERASED else one.row.right
        asks = None if one.rows else (what, one.row.details)
        if delays and (asks is None or asks != before):
            place += 1
        delays[one.row.request] = place
        before = asks
    return delays


def find_tags(
    connection: Connection, possible: Mapping[str, Sequence[str]]
) -> dict[str, str | None]:
    """Return the tag under which each person is known, of these; None for strangers."""
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
    by_alias: dict[str, set[str]] = {}
    for chunk in chunks(every):
        query = (
            select(aliases.c.near, aliases.c.person)
            .join(subjects, subjects.c.tag == aliases.c.person)  # who is held
            .where(aliases.c.near.in_(chunk))
        )
        for loose, who in connection.execute(query):
            by_alias.setdefault(loose, set()).add(who)
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


def _require_rows(context: Context, one: _Sent, *, tags: set[str | None]) -> None:
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


def _require_waiting(one: RequestStatus) -> None:
    """Refuse a request that does not wait, or does not wait any more."""
    if one.stage != ACCEPTED:
        raise RequestConflict(
            f"request {one.request} is {one.stage}, and only one that waits can be "
            "changed; see its receipt"
        )


def _require_untouched(one: RequestStatus) -> None:
    """Refuse a request that does not wait, or that some models have answered."""
    _require_waiting(one)
    if one.outcome:
        raise RequestConflict(
            f"request {one.request} is applied to some models and waits for others, so "
            "it can be neither cancelled nor refused; see why it waits (status)"
        )


def refuse_request(context: Context, request: str, *, reason: str, wait: float) -> None:
    """Answer a waiting request with a refusal; the lock is held."""
    if reason not in BY_OPERATOR:
        raise InvalidInput(
            f"reason={reason!r}; to refuse a request, give one of "
            f"{', '.join(BY_OPERATOR)}"
        )
    with context.log.batch() as connection:
        waiting = require_request(connection, request)
        refused = replace(waiting, outcome="refused", reason=reason)
        mark_applied(connection, [refused])
        state_answers(connection, [refused])
    finish_committed(context, wait)


_OPEN = (
    select(
        table.c.stage,
        func.count().label("n"),
        func.min(table.c.accepted).label("oldest"),
        func.min(table.c.deadline).label("due"),
    )
    .where(table.c.stage.in_((ACCEPTED, APPLIED, CANCELLED)))  # few, by an index
    .group_by(table.c.stage)
)


def count_requests(connection: Connection) -> RequestCounts:
    """Return how many requests are at each stage."""
    whole = int(connection.scalar(select(func.count()).select_from(table)) or 0)
    found = list(connection.execute(_OPEN))
    counts = {row.stage: int(row.n) for row in found}
    counts[COMPLETED] = whole - sum(counts.values())
    there = [row for row in found if row.stage != CANCELLED]
    return RequestCounts(
        counts,
        min((row.oldest for row in there), default=None),
        min((row.due for row in there), default=None),
    )


def read_page(connection: Connection, wanted: PageWanted) -> RequestPage:
    """Return a page of requests.

    Each stage and right is a run of an index that is in the order of deadlines: of
    each, no more than a page is read, however many there are.
    """
    columns = table.c.deadline, table.c.request
    filters = []
    if wanted.after:
        filters.append(tuple_(*columns) > tuple_(*parse_cursor(wanted.after)))
    if wanted.due is not None:
        last = midnight(parse_day(wanted.due).isoformat())
        filters.append(table.c.deadline <= last)
    if wanted.sender is not None:
        filters.append(table.c.sender == wanted.sender)
    most = wanted.most + 1  # one more tells whether another page follows
    runs = [
        select(*columns)
        .where(table.c.stage == stage, table.c.right == right, *filters)
        .order_by(*columns)
        .limit(most)
        .subquery()
        for stage in dict.fromkeys(wanted.stages or STAGES)
        for right in dict.fromkeys(wanted.rights or RIGHTS)
    ]
    every = union_all(*map(select, runs)).subquery()
    query = select(every).order_by(every.c.deadline, every.c.request).limit(most)
    places = list(connection.execute(query))
    shown = places[: wanted.most]
    found = find_requests(connection, [row.request for row in shown])
    return RequestPage(
        tuple(found[row.request] for row in shown),
        write_cursor(*shown[-1]) if len(places) > len(shown) else "",
    )


def write_cursor(deadline: int, request: str) -> str:
    """Return where a page ends, as one word."""
    packed = _CURSOR.pack(deadline, bytes.fromhex(request))
    return urlsafe_b64encode(packed).decode("ascii")


def parse_cursor(word: str) -> tuple[int, str]:
    """Return the deadline and the request that a word means."""
    with suppress(ValueError, struct.error):
        deadline, request = _CURSOR.unpack(urlsafe_b64decode(word))
        if write_cursor(deadline, request.hex()) == word:  # a place has one spelling
            return deadline, request.hex()
    raise InvalidInput(
        "this word does not say where a page ended; give next of the previous page "
        "as it came, or nothing for the first page"
    )


class RegistryRequests(RegistryPart):
    """The requests of a registry, as ``Registry.requests``."""

    def accept(
        self, requests: Sequence[Request], *, strangers: bool = False
    ) -> tuple[RequestStatus, ...]:
        """Accept requests, all or none; on return they are on disk.

        A request that was sent before is not accepted again: its status is returned.

        Parameters
        ----------
        requests
            What people ask for.
        strangers
            Accept requests about people of whom nothing is held like any other: the
            sender learns it from the receipt alone. Otherwise UnknownSubject is
            raised, which tells an operator of a wrong id at once.
        """
        context = self._context
        with ExitStack() as locked:
            if any(one.rows for one in requests):
                # The model must not change until its coded rows are accepted.
                locked.enter_context(context.hold_lock(WAIT))
            wanted = _check_all(context, requests, code=_code_rows)
            for left in reversed(range(len(wanted) + 1)):
                try:
                    found = _accept_new(context, wanted, strangers=strangers)
                    break
                except Collision:
                    # Somebody sent one of them at the same time: now it is there.
                    if not left:
                        raise
        return tuple(found[one.request] for one in requests)

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse requests of which one could not be accepted; write nothing.

        Whom they are about is not looked up. For requests that have an envelope, as
        those of the service do, whose parts are then accepted one after the other.
        """
        context = self._context
        wanted = _check_all(context, requests)
        with context.store.read() as connection:
            there = find_requests(connection, list(wanted))
            _require_same(there, wanted, keys=read_tag_keys(context.paths))

    def submit(
        self,
        requests: Sequence[Request],
        *,
        wait: float = WAIT,
        strangers: bool = False,
        on_progress: OnNamedProgress = lambda label, done, total: None,
    ) -> SubmittedRequests:
        """Accept requests, apply them together, and return their receipts.

        They are accepted a thousand at a time. What is accepted is kept whatever
        happens next, so a failure after that is returned with the receipts that exist;
        it is raised if nothing was accepted.

        Parameters
        ----------
        requests
            What people ask for.
        wait
            Seconds to wait for another process that works.
        strangers
            As for ``accept``.
        on_progress
            Called with what is done, how many steps of it are, and of how many.
        """
        statuses: list[RequestStatus] = []
        failure: ExpungeError | None = None
        receipts: dict[str, str] = {}
        with self._context.store.hold_session():
            try:
                for start in range(0, len(requests), BATCH):
                    batch = requests[start : start + BATCH]
                    statuses += self.accept(batch, strangers=strangers)
                    on_progress("accepting", len(statuses), len(requests))
                if any(status.stage != "completed" for status in statuses):
                    self.apply(
                        wait,
                        lambda done, total: on_progress("forgetting", done, total),
                        only=[status.request for status in statuses],
                    )
            except ExpungeError as error:
                if not statuses:
                    raise
                failure = error
            try:
                with self._context.store.read(snapshot=False) as connection:
                    found = read_receipts(connection, [one.request for one in statuses])
                ids = (one.request for one in statuses if one.request in found)
                receipts = {id_: found[id_] for id_ in ids}
            except ExpungeError as error:
                failure = failure or error
        pending = [one.request for one in statuses if one.request not in receipts]
        n_refused = len(requests) - len(statuses)
        return SubmittedRequests(receipts, tuple(pending), n_refused, failure)

    def apply(
        self,
        wait: float = WAIT,
        on_progress: OnProgress = be_silent,
        *,
        before: int | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """Apply requests that wait as one batch, and complete them.

        A request goes on waiting while its window is open, and so does every later one
        about the same people.

        Raises Busy if another process works for longer than ``wait`` seconds, and, when
        everything else is done, the reason why a request could not be applied. With
        ``only`` it waits no longer than until another process completed these.

        Parameters
        ----------
        wait
            Seconds to wait for another process that works.
        on_progress
            Called with how many steps are done, of how many.
        before
            The moment by which a window must have closed, in milliseconds since 1970;
            by default now.
        only
            Apply the requests of these ids, and what the same people asked for before;
            by default those of everybody.
        """

        def is_done() -> bool:
            # While a restore goes on, the journal alone may know of one, and nobody may
            # look while the database is replaced.
            with suppress(UnknownRequest, Busy):
                return only is not None and all(map(self.receipt, only))
            return False

        with self._context.hold_lock(wait, is_done) as locked:
            failed = {}
            if locked:
                failed = apply_waiting(
                    self._context,
                    wait,
                    on_progress=on_progress,
                    before=before,
                    only=only,
                )
        ours = [failed[one] for one in only or () if one in failed]
        for error in [*ours, *failed.values()]:
            raise error

    def remark(self, request: str, reference: str = "", *, note: str = "") -> None:
        """Write a reference and a note beside a request, in place of what is there.

        Both are sealed, and in neither journal nor ledger; see ``remarks``.

        Parameters
        ----------
        request
            Which one.
        reference
            Such as the number of a ticket, at most 200 characters.
        note
            Any text, at most 2000 characters.
        """
        require_request_id(request)
        self.remark_all({request: Remark(reference, note)})

    def remark_all(self, found: Mapping[str, Remark]) -> None:
        """Write remarks beside requests, all at once; see ``remark``."""
        write_remarks(self._context, found)

    def remarks(self, requests: Sequence[str]) -> dict[str, Remark]:
        """Return what was written beside requests; those without are left out."""
        return read_remarks(self._context, requests)

    def find_reference(self, reference: str) -> list[str]:
        """Return the requests that have a reference, whatever its case."""
        return find_reference(self._context, reference)

    def erase_remarks(self, requests: Sequence[str]) -> None:
        """Erase what was written beside requests, from disk too."""
        erase_remarks(self._context, requests)

    def outcomes(
        self, *, since: str | date | None = None, sender: str | None = None
    ) -> str:
        """Return requests and what became of them as CSV, for a ticket system.

        A cell that a spreadsheet would take for a formula gets an apostrophe in front.

        Parameters
        ----------
        since
            Only what was asked on this day or later.
        sender
            Only those of this sender; None for those of all.
        """
        every: list[RequestStatus] = []
        wanted = PageWanted(most=MOST, sender=sender)
        while True:
            page = self.page(wanted)
            every += page.lines
            if not page.next:
                break
            wanted = replace(wanted, after=page.next)
        if since is not None:
            first = parse_day(since).isoformat()
            every = [one for one in every if one.submitted >= first]
        return write_outcomes(every, self.remarks([one.request for one in every]))

    def next_close(self) -> int | None:
        """Return when the first window closes of requests that were not tried yet.

        It may have closed; None if no such request waits. Those do not count that wait
        for an operator.
        """
        query = select(func.min(table.c.closes)).where(
            table.c.stage == ACCEPTED,
            table.c.error == "",
            table.c.missing == "",
            table.c.waits <= today().isoformat(),
        )
        with self._context.store.read(snapshot=False) as connection:
            found = connection.scalar(query)
        return None if found is None else int(found)

    def status(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        require_request_id(request)
        with self._context.store.read() as connection:
            return require_request(connection, request)

    def statuses(self, requests: Sequence[str]) -> dict[str, RequestStatus]:
        """Return how far requests are, by id; unknown ones are left out."""
        with self._context.store.read(snapshot=False) as connection:
            return find_requests(connection, requests)

    def page(self, wanted: PageWanted) -> RequestPage:
        """Return requests in the order of their deadlines, a page at a time."""
        with self._context.store.read() as connection:
            return read_page(connection, wanted)

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        require_request_id(request)
        with self._context.store.read(snapshot=False) as connection:
            text = read_receipts(connection, [request]).get(request)
        if text is None:
            self.status(request)  # raises if there is none
        return text

    def look_up(self, words: Iterable[object], *, near: bool = True) -> MeantPeople:
        """Return whom words mean, as ``aliases.resolve`` reads them: for the operator.

        Parameters
        ----------
        words
            As on a command line.
        near
            Whether to look for near misses: an answer that is signed cannot be taken
            back, so an operator should know before.
        """
        every = people(words)
        ids = resolve_words(self._context, every, strangers=False)
        meant = dict(zip(every, ids, strict=True))
        with self._context.store.read(snapshot=False) as connection:
            kinds = {*releases_table.read_subject_kinds(connection)}
        spellings: list[str] = []
        for word in every:
            try:
                named = parse_identifier(word)
            except InvalidInput:  # an id with a colon
                named = None
            if named is None:  # a kind that is none may stand before an id
                spellings += filter(None, [word, after_colon(word)])
                continue
            kinds.add(named.kind)
            if named.kind == ID:
                spellings.append(named.value)
            elif not named.hashed:
                # With its kind it is almost the alias of somebody. Without, it may be
                # an id, but numbers of one kind mean others than the same as ids.
                if named.kind in ADDRESSES or meant[word] == (word,):
                    spellings.append(named.value)
                spellings.append(f"{named.kind}:{named.value}")
        found = MeantPeople(meant, (ID, *sorted(kinds - {ID})), {})
        if not near or not spellings:
            return found
        return replace(found, near=self.find_near(spellings, named=found.ids))

    def sort_people(self, subjects: Iterable[object]) -> SortedPeople:
        """Tell people who are held from those who were forgotten, and from others."""
        models = self.find_models(subjects, sealed=True)
        known = tuple(one for one in models if models[one])
        others = [one for one in models if not models[one]]
        # Reading the journal takes as long for the one as for the other.
        forgotten = self.find_forgotten(others) if others else ()
        gone = {*forgotten}
        strangers = tuple(one for one in others if one not in gone)
        return SortedPeople(known, forgotten, strangers)

    def find_models(
        self, subjects: Iterable[object], *, sealed: bool = False
    ) -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them; none for strangers.

        Ids come back in their normal spelling, each once.

        Parameters
        ----------
        subjects
            Ids of people.
        sealed
            Whether to count rows of a model that are sealed apart, too.
        """
        ids = people(subjects)
        with self._context.store.read() as connection:
            keys = read_tag_keys(self._context.paths)
            tags = find_tags(connection, {one: subject_tags(one, keys) for one in ids})
            there = [tag for tag in tags.values() if tag]
            models = people_table.models_by_tag(connection, there, in_use=not sealed)
        return {one: tuple(sorted(models.get(tags[one] or "", ()))) for one in ids}

    def find_forgotten(
        self, subjects: Iterable[object], *, near: bool = False
    ) -> tuple[str, ...]:
        """Return those who were forgotten and did not come back since.

        With ``near`` also ids that are spelled almost as one of these.

        This is for the operator alone. Who may only send requests must not learn it,
        nor how long it took: answer them alike. People whose lines were lost with a
        journal are not found, see ``rebuild_journal``.
        """
        forgotten = read_forgotten_tags(self._context)
        keys = read_tag_keys(self._context.paths)
        return tuple(
            one for one in people(subjects) if forgotten.find(one, keys, exact=not near)
        )

    def find_near(
        self, words: Iterable[object], *, named: Iterable[object] | None = None
    ) -> dict[str, str]:
        """Return the words that may mean somebody whom a request does not name.

        Each with the id of a person who is held and is spelled almost like it, if that
        is one of the usual spellings, or an empty string: no id can be read back from
        the store. This is for the operator alone.

        Parameters
        ----------
        words
            As somebody typed them.
        named
            The ids that the request names; by default these words.
        """
        typed = people(words)
        known = typed if named is None else [person(one) for one in named]
        keys = read_tag_keys(self._context.paths)
        with self._context.store.read() as connection:
            return find_near_ids(connection, typed, named=known, keys=keys)

    def near_misses(self, requests: Sequence[str] | None = None) -> set[str]:
        """Return the requests, of these or of all, that may mean somebody else.

        While one waits: somebody is held whose id is spelled almost as what was sent.
        Once it is answered: it was so at that time. This is for the operator alone.
        """
        which, missed = select(table.c.request), table.c.near == 1
        with self._context.store.read() as connection:
            if requests is None:
                missed |= (table.c.stage == ACCEPTED) & IS_NEAR_MISS
                return {*connection.scalars(which.where(missed))}
            missed |= IS_NEAR_MISS
            return {
                request
                for chunk in chunks(requests)
                for request in connection.scalars(
                    which.where(table.c.request.in_(chunk), missed)
                )
            }

    def confirm_exact(self, request: str) -> None:
        """Record that a request means whom it names, and nobody spelled almost so."""
        require_request_id(request)
        with self._context.store.write() as connection:
            require_request(connection, request)
            spelled = (request_tags.c.request == request) & (request_tags.c.near == 1)
            connection.execute(delete(request_tags).where(spelled))
            this = update(table).where(table.c.request == request)
            connection.execute(this.values(near=0))

    def readmit(self, subjects: Iterable[object]) -> None:
        """Record that people who were forgotten came back.

        Otherwise a fit whose data hold them is refused: the table that a model was
        fitted to usually still exists.
        """
        keys = read_tag_keys(self._context.paths)
        ids = people(subjects)
        tags = sorted(
            {
                tag
                for one in ids
                for tag in (*subject_tags(one, keys), *near_tags(one, keys))
            }
        )
        context = self._context
        with (
            context.hold_lock(WAIT),
            context.log.record({"readmitted": tags}, in_turn=True),
        ):
            pass

    def cancel(self, request: str) -> RequestStatus:
        """Take back a request that waits; refused once it is applied.

        This waits for no worker: one that is applying the request leaves it out, if it
        has not committed yet.
        """
        require_request_id(request)
        context, payload = self._context, {"request": request}
        with context.log.record({"cancelled": payload}) as connection:
            require_request(connection, request)
            new_rows = people_table.read_waiting(connection, [request])
            if not write_cancelled(connection, payload):
                _require_untouched(require_request(connection, request))
                raise overtaken_error()
        if new_rows:
            note = context.shred([row.key for row in new_rows])
            with context.store.write() as connection:
                note(connection)
        return self.status(request)

    def check_identity(
        self, request: str, method: str, *, by: Decider = NOBODY
    ) -> RequestStatus:
        """State that it was checked who asks, and how.

        Parameters
        ----------
        request
            Which one.
        method
            How: "account", "message", "document", "in-person" or "sender".
        by
            Who checked it.
        """
        if method not in METHODS:
            raise InvalidInput(f"method={method!r}; give one of {', '.join(METHODS)}")
        return self._decide(request, IDENTITY, by=by, detail=method)

    def approve(self, request: str, *, by: Decider = NOBODY) -> RequestStatus:
        """Approve a request whose rule wants that; of two approvals, give one."""
        return self._decide(request, APPROVAL, by=by)

    def wait(
        self, request: str, until: str | date | None = None, *, by: Decider = NOBODY
    ) -> RequestStatus:
        """Let a request wait; it goes on by itself as its deadline nears.

        Parameters
        ----------
        request
            Which one.
        until
            Up to which day, before the deadline; by default a week before it.
        by
            Who lets it wait.
        """
        # Not beside a worker, which may be applying it.
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            due = self.status(request).deadline
            day = day_of(due - NEAR * DAY)
            if until is not None:
                day = parse_day(until).isoformat()
            if not today().isoformat() < day < day_of(due):
                raise InvalidInput(
                    f"until={day}; give a day after today and before the deadline, "
                    f"{day_of(due)}: a request cannot wait past it"
                )
            return self._decide(request, WAITS, by=by, detail=day)

    def proceed(self, request: str, *, by: Decider = NOBODY) -> RequestStatus:
        """Let a request go on that waits for its operator, or was extended."""
        return self._decide(request, GO_ON, by=by)

    def decisions(self, request: str) -> tuple[Decision, ...]:
        """Return what operators decided about a request, in order."""
        require_request_id(request)
        with self._context.store.read() as connection:
            require_request(connection, request)
            return tuple(map(Decision.of, read_decisions(connection, request)))

    def _decide(
        self, request: str, step: str, *, by: Decider, detail: str = ""
    ) -> RequestStatus:
        """Write a decision about a request that waits, unless it is not wanted."""
        require_request_id(request)
        context = self._context
        decision = make_decision(context, by, about=request, step=step, detail=detail)

        def check(connection: Connection) -> None:
            one = require_request(connection, request)
            _require_waiting(one)
            require_wanted(one, decision, made=read_decisions(connection, request))

        record_decision(context, decision, check=check)
        return self.status(request)

    def refuse(self, request: str, reason: str, *, wait: float = WAIT) -> str:
        """Answer a request that waits with a refusal; return the receipt.

        Parameters
        ----------
        request
            The request's id.
        reason
            A code, see ``rights.standing.REASONS``.
        wait
            Seconds to wait for other processes.
        """
        context = self._context
        with context.hold_lock(wait):
            recover(context, wait)
            _require_untouched(self.status(request))
            try:
                refuse_request(context, request, reason=reason, wait=wait)
            except MovedMeanwhile:
                _require_untouched(self.status(request))  # or it was just cancelled
                raise
        receipt = self.receipt(request)
        assert receipt is not None
        return receipt

    def extend(
        self, request: str, reason: str, *, notified: str | date, wait: float = WAIT
    ) -> RequestStatus:
        """Extend the deadline of a request, once, as its law allows.

        Parameters
        ----------
        request
            The request's id.
        reason
            "complex" or "many".
        notified
            The day on which the person was told, which may not be after the deadline.
        wait
            Seconds to wait for other processes.
        """
        context = self._context
        with context.hold_lock(wait):
            recover(context, wait)
            one = self.status(request)
            _require_waiting(one)
            # If it is cancelled from here on, it was extended first.
            told = parse_day(notified)
            if reason not in EXTENSIONS:
                raise InvalidInput(
                    f"reason={reason!r}; a deadline is extended because the request is "
                    f"'complex', or because there are 'many'"
                )
            if one.extended:
                raise InvalidInput(
                    f"the deadline of request {request} was extended before; no law "
                    "extends it twice"
                )
            first = day_of(one.deadline)
            if not one.submitted <= told.isoformat() <= first:
                raise InvalidInput(
                    f"notified={told}; the person must be told between the day they "
                    f"asked ({one.submitted}) and the first deadline ({first})"
                )
            if told > today():
                raise InvalidInput(
                    f"notified={told}, which is after today; tell the person first"
                )
            with context.store.read() as connection:
                batch = LedgerBatch(read_ledger(context, connection))
            time = next_entry_time(batch.ledger, one.accepted)
            later = extended_deadline(one.submitted, regime_named(one.regime))
            entry = RequestExtended(
                sequence=batch.ledger.size,
                day=day_of(time),
                request=request,
                reason=reason,
                notified=told.isoformat(),
                deadline=later.isoformat(),
            )
            state_entry(context, batch, entry=entry, time=time)
        return self.status(request)
