# SPDX-License-Identifier: Apache-2.0
"""Requests: people ask to be forgotten, and the registry answers each of them.

A request is on disk twice before it counts as accepted: in the journal first and then
in the store, within a transaction that the store has not refused by then. What a crash
left in the journal alone was promised to nobody; the next worker accepts it all the
same, since a person did ask.

Ids of requests are random, so that they reveal nothing in a public ledger. Times in a
status are private, in milliseconds since 1970: they tell how long an answer took, and
so how it was reached. What is shown to others carries days.

The table that a model was fitted to usually still exists, with everybody in it. The
journal knows who was forgotten, so a fit that would bring somebody back is refused,
unless they were readmitted or their rows are left out.
"""

import re
import warnings
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput, UnknownRequest, UnknownSubject
from ..ledger import TagKey, subject_tags
from ..ledger.documents import DAY, day_of
from ..ledger.entries import REQUEST_BYTES
from ..ledger.keys import request_tag
from ..private_model.subjects import people
from ..promise.noise import random_bytes
from .context import WAIT, Context, now
from .keys import read_tag_keys
from .statements import append_line, insert_accepted
from .storage import people_table, requests_table
from .storage.engine import Collision
from .worker import apply_waiting

Stage: TypeAlias = Literal["accepted", "applied", "completed"]

_REQUEST = re.compile(r"[0-9a-f]{32}")
SHOWN = 10  # rows in an error


class JournalIncomplete(UserWarning):
    """The journal does not name everybody who was forgotten."""


class ForgottenInData(InvalidInput):
    """The data hold people who were forgotten; nothing was changed.

    Attributes
    ----------
    rows
        The positions of their rows, from 0.
    n_people
        How many they are.
    """

    def __init__(self, rows: Sequence[int], n_people: int) -> None:
        shown = ", ".join(map(str, rows[:SHOWN]))
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        super().__init__(
            f"the data hold people who were forgotten ({n_people}), and a fit would "
            f"bring them back: rows {shown}{more}, counted from 0; leave them out "
            "(without_forgotten=True), or readmit these people if they came back "
            "(requests.readmit)"
        )
        self.rows, self.n_people = tuple(rows), n_people


def _new_id() -> str:
    return random_bytes(REQUEST_BYTES).hex()


@dataclass(frozen=True, slots=True, repr=False)
class ErasureRequest:
    """A request to forget people.

    Parameters
    ----------
    subjects
        Whom to forget.
    request
        The request's id, 32 hexadecimal digits; sending it again gives the same answer.
        Random by default: a ticket number could lead to a person.
    """

    subjects: tuple[str, ...]
    request: str = field(default_factory=_new_id)

    def __repr__(self) -> str:
        return f"ErasureRequest({len(self.subjects)} people, request={self.request!r})"


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """How far a request is.

    Parameters
    ----------
    request
        Its id.
    stage
        "accepted": on disk, and will be applied. "applied": the models are changed and
        the rows deleted, and what is left on disk is being erased. "completed": done,
        with a receipt.
    accepted, deadline, completed
        When it came in, when it is due, and when it was done.
    n_subjects
        How many people it is about.
    error
        Why it could not be applied at the last attempt; empty if there was none.
    """

    request: str
    stage: Stage
    accepted: int
    deadline: int
    completed: int | None
    n_subjects: int
    error: str = ""


class RegistryRequests:
    """The requests of a registry, as ``Registry.requests``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def accept(self, requests: Sequence[ErasureRequest]) -> tuple[RequestStatus, ...]:
        """Accept requests, all or none; on return they are on disk.

        A request that was sent before is not accepted again: its status is returned.
        Raises UnknownSubject if a person is in no model.
        """
        return accept_requests(self._context, requests)

    def apply(self, wait: float = WAIT, on_progress: OnProgress = be_silent) -> None:
        """Apply all waiting requests as one batch, and complete them.

        Raises Busy if another process works for longer than ``wait`` seconds, and, when
        everything else is done, the reason why a request could not be applied.
        """
        with self._context.hold_lock(wait):
            failed = apply_waiting(self._context, wait, on_progress=on_progress)
        for error in failed.values():
            raise error

    def status(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        require_request_id(request)
        with self._context.store.read() as connection:
            found = requests_table.find_requests(connection, [request])
        if request not in found:
            raise UnknownRequest(
                f"request {request} was never accepted by this registry; check its id, "
                "or send it"
            )
        return request_status(found[request])

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        require_request_id(request)
        with self._context.store.read(once=True) as connection:
            text = requests_table.read_receipt(connection, request)
        if text is None:
            self.status(request)  # raises if there is none
        return text

    def find_models(self, subjects: Iterable[object]) -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them; none for strangers.

        Ids come back in their normal spelling, each once.
        """
        ids = people(subjects)
        with self._context.store.read() as connection:
            tags = _find_tags(connection, ids, keys=read_tag_keys(self._context.paths))
            there = [tag for tag in tags.values() if tag]
            models = people_table.models_by_tag(connection, there)
        return {one: tuple(sorted(models.get(tags[one] or "", ()))) for one in ids}

    def find_forgotten(self, subjects: Iterable[object]) -> tuple[str, ...]:
        """Return those who were forgotten and did not come back since.

        This is for the operator alone. Who may only send requests must not learn it,
        nor how long it took: answer them alike. People whose lines were lost with a
        journal are not found, see ``rebuild_journal``.
        """
        forgotten, _ = _read_forgotten_tags(self._context)
        keys = read_tag_keys(self._context.paths)
        return _select_tagged(people(subjects), forgotten, keys=keys)

    def readmit(self, subjects: Iterable[object]) -> None:
        """Record that people who were forgotten came back.

        Otherwise a fit whose data hold them is refused: the table that a model was
        fitted to usually still exists.
        """
        keys = read_tag_keys(self._context.paths)
        ids = people(subjects)
        tags = sorted({tag for one in ids for tag in subject_tags(one, keys)})
        context = self._context
        with context.hold_lock(WAIT), context.write_in_turn() as connection:
            append_line(context, connection, line={"readmitted": tags})


def require_request_id(request: object) -> None:
    """Refuse what cannot be the id of a request."""
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        shown = repr(request)[:60]
        raise InvalidInput(
            f"request {shown}; give 32 random hexadecimal digits in lower case: a "
            "ticket number or an address would stay in the ledger for ever"
        )


def request_status(line: Any) -> RequestStatus:
    """Return a request in the store as an operator may see it."""
    return RequestStatus(
        request=line.id,
        stage=line.stage,
        accepted=line.accepted,
        deadline=line.deadline,
        completed=line.completed,
        n_subjects=line.n_subjects,
        error=line.error,
    )


def accept_requests(
    context: Context, requests: Sequence[ErasureRequest]
) -> tuple[RequestStatus, ...]:
    """Accept requests, all of them or none."""
    wanted: dict[str, tuple[str, ...]] = {}
    for one in requests:
        require_request_id(one.request)
        subjects = people(one.subjects)
        if set(wanted.setdefault(one.request, subjects)) != set(subjects):
            raise _changed_error(one.request)
    for left in reversed(range(len(wanted) + 1)):
        try:
            found = _accept_new(context, wanted)
            break
        except Collision:
            # Somebody sent one of them at the same time: now it is there.
            if not left:
                raise
    return tuple(found[one.request] for one in requests)


def _accept_new(
    context: Context, wanted: dict[str, tuple[str, ...]]
) -> dict[str, RequestStatus]:
    """Write the requests that are new, and return the status of all."""
    with context.store.read() as connection:
        there = requests_table.find_requests(connection, list(wanted))
        # Only now: one of them may have been accepted under a new key.
        keys = read_tag_keys(context.paths)
        for request, line in there.items():
            content = _request_content(request, wanted[request])
            if line.fingerprint not in [request_tag(content, key) for key in keys]:
                raise _changed_error(request)
        new = {id_: wanted[id_] for id_ in wanted if id_ not in there}
        subjects = list(dict.fromkeys(one for some in new.values() for one in some))
        tags = _find_tags(connection, subjects, keys=keys)
    _require_known(tags)
    found = {request: request_status(line) for request, line in there.items()}
    if not new:
        return found
    time = now()
    day_of(time)  # or refuse a clock that no public document can tell
    with context.store.write() as connection:
        lines = _request_lines(context, new, time=time)
        insert_accepted(connection, lines)
        append_line(context, connection, line={"accepted": lines})
    return found | {line["id"]: _accepted_status(line) for line in lines}


def _request_lines(
    context: Context, new: dict[str, tuple[str, ...]], *, time: int
) -> list[dict[str, Any]]:
    """Return new requests as the journal holds them.

    They name people by every tag that these may have: a fit may give them another one
    between when they were looked up and when the request is on disk.
    """
    keys = read_tag_keys(context.paths)
    return [
        {
            "id": request,
            "accepted": time,
            "deadline": time + context.settings.deadline_days * DAY,
            "n_subjects": len(named),
            "fingerprint": request_tag(_request_content(request, named), keys[0]),
            "tags": sorted({tag for one in named for tag in subject_tags(one, keys)}),
        }
        for request, named in sorted(new.items())  # so that no two senders block
    ]


def _accepted_status(line: dict[str, Any]) -> RequestStatus:
    """Return the status of a request that was accepted just now."""
    return RequestStatus(
        request=line["id"],
        stage="accepted",
        accepted=line["accepted"],
        deadline=line["deadline"],
        completed=None,
        n_subjects=line["n_subjects"],
    )


def _find_tags(
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


def _require_known(tags: dict[str, str | None]) -> None:
    """Refuse people whom no model holds."""
    missing = [subject for subject, tag in tags.items() if tag is None]
    if missing:
        some = ", ".join(repr(subject[:60]) for subject in sorted(missing)[:3])
        raise UnknownSubject(
            f"in no model, or no longer: {len(missing)} of {len(tags)} people, {some}"
            f"{', ...' if len(missing) > 3 else ''}; nothing was accepted; check the "
            "ids, or leave out unknown ones (--skip-unknown)"
        )


def _request_content(request: str, subjects: Sequence[str]) -> str:
    """Return what a request asks for, as one string."""
    return "\x00".join((request, *sorted(subjects)))


def _changed_error(request: str) -> InvalidInput:
    return InvalidInput(
        f"request {request} was sent before and asked for something else; nothing was "
        "accepted; give each new request its own id"
    )


def require_nobody_returns(context: Context, owners: Iterable[str]) -> None:
    """Refuse rows of people who were forgotten and not readmitted since."""
    rows, n_people = find_forgotten_rows(context, list(owners))
    if rows:
        raise ForgottenInData(rows, n_people)


def find_forgotten_rows(
    context: Context, owners: Sequence[str]
) -> tuple[list[int], int]:
    """Return the positions of rows of forgotten people, and how many people.

    ``owners`` has the id of the person whom each row belongs to. Warns if the journal
    cannot name everybody.
    """
    forgotten, n_unnamed = _read_forgotten_tags(context)
    if n_unnamed:
        warnings.warn(
            "the journal was rebuilt and does not say who some completed requests "
            f"({n_unnamed}) were about; make sure that none of these people is in the "
            "data",
            JournalIncomplete,
            stacklevel=2,
        )
    if not forgotten:
        return [], 0
    keys = read_tag_keys(context.paths)
    back = {*_select_tagged(tuple(dict.fromkeys(owners)), forgotten, keys=keys)}
    return [row for row, owner in enumerate(owners) if owner in back], len(back)


def _select_tagged(
    subjects: Sequence[str], tags: Set[str], *, keys: Sequence[TagKey]
) -> tuple[str, ...]:
    """Return those people who have one of the tags."""
    return tuple(
        one for one in subjects if not tags.isdisjoint(subject_tags(one, keys))
    )


def _read_forgotten_tags(context: Context) -> tuple[set[str], int]:
    """Return the tags of all forgotten people, and how many requests name nobody."""
    named: dict[str, list[str]] = {}
    forgotten: set[str] = set()
    n_unnamed = 0
    for _, line in context.journal.read(0):
        for one in line.get("accepted", ()):
            named.setdefault(one["id"], []).extend(one["tags"])
        for request in line.get("receipts", ()):
            n_unnamed += request not in named
            forgotten.update(named.get(request, ()))
        forgotten.difference_update(line.get("readmitted", ()))
    return forgotten, n_unnamed
