# SPDX-License-Identifier: Apache-2.0
"""Accepting: a request is on disk, twice, before anybody is told so.

In the journal first and in the store then, within a transaction that the store has not
refused by then. What a crash left in the journal alone was promised to nobody; it is
taken in when the store is next worked on, since a person did ask.

Ids of requests: random, so that they tell nothing in a public ledger.

Returning: whoever was forgotten is not fitted again by oversight.

The table that a model was fitted to mostly still exists somewhere, with everybody in
it. The journal knows who was forgotten, so a fit that would bring somebody back is
refused, unless it was said that they came back.
"""

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from ..exceptions import InvalidInput, UnknownSubject
from ..ledger import TagKey, subject_tags
from ..ledger.documents import DAY, day_of
from ..ledger.secrets import request_tag
from ..private_model.subjects import people as words
from .context import WAIT, Context, now
from .statements import append_line
from .storage import people_table, requests_table
from .storage.engine import Collision
from .values import ErasureRequest, RequestStatus

_REQUEST = re.compile(r"[0-9a-f]{32}")


def require_request_id(request: object) -> None:
    """Refuse the id of a request that could not be one."""
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        shown = repr(request)[:60]
        raise InvalidInput(
            f"request {shown}; give 32 hexadecimal digits in lower case, random ones: "
            "a ticket number or an address would stay in the ledger for ever"
        )


class JournalIncomplete(UserWarning):
    """The journal does not name everybody who was forgotten."""


def require_nobody_returns(context: Context, people: Iterable[str]) -> None:
    """Refuse people who were forgotten."""
    back = find_forgotten(context, people)
    if back:
        raise InvalidInput(
            f"{len(back)} person(s) in the data were forgotten, and would be in a "
            "model again; take their rows out, or readmit them if they came back "
            "(readmit, or --readmit)"
        )


def find_forgotten(context: Context, people: Iterable[str]) -> list[str]:
    """Return those of the people who were forgotten and not readmitted since."""
    forgotten, n_unnamed = _read_forgotten_tags(context)
    if n_unnamed:
        warnings.warn(
            f"the journal was rebuilt and does not say whom {n_unnamed} completed "
            "request(s) were about; see that none of these people is in the data",
            JournalIncomplete,
            stacklevel=2,
        )
    if not forgotten:
        return []
    keys = context.tag_keys()
    return [
        person
        for person in dict.fromkeys(people)
        if not forgotten.isdisjoint(subject_tags(person, keys))
    ]


def readmit(context: Context, people: Sequence[str]) -> None:
    """Write down that people came back, and may be in models again."""
    keys = context.tag_keys()
    tags = sorted({tag for person in people for tag in subject_tags(person, keys)})
    with context.hold_lock(WAIT), context.write_in_turn() as connection:
        append_line(context, connection, {"readmitted": tags})


def _read_forgotten_tags(context: Context) -> tuple[set[str], int]:
    """Return the tags of all who were forgotten, and the number of requests unknown."""
    asked: dict[str, list[str]] = {}
    forgotten: set[str] = set()
    n_unnamed = 0
    for _, line in context.journal.read(0):
        for one in line.get("accepted", ()):
            asked.setdefault(one["id"], []).extend(one["tags"])
        for request in line.get("receipts", ()):
            n_unnamed += request not in asked
            forgotten.update(asked.get(request, ()))
        forgotten.difference_update(line.get("readmitted", ()))
    return forgotten, n_unnamed


def accept_requests(
    context: Context, asked: Sequence[ErasureRequest]
) -> tuple[RequestStatus, ...]:
    """Take in requests, all of them or none; see ``Registry.accept``."""
    wanted: dict[str, tuple[str, ...]] = {}
    for one in asked:
        require_request_id(one.request)
        subjects = words(one.subjects)
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
    return tuple(found[one.request] for one in asked)


def find_subjects(
    context: Context, subjects: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return for each person the models that hold them."""
    keys = context.tag_keys()
    with context.store.read() as connection:
        tags = _find_tags(connection, subjects, keys)
        held = people_table.models_by_tag(
            connection, [tag for tag in tags.values() if tag]
        )
    return {
        subject: tuple(sorted(held.get(tags[subject] or "", ())))
        for subject in subjects
    }


def request_status(line: Any) -> RequestStatus:
    """Return a request as an operator may see it."""
    return RequestStatus(
        request=line.id,
        stage=line.stage,
        accepted=line.accepted,
        deadline=line.deadline,
        completed=line.completed,
        n_subjects=line.n_subjects,
        error=line.error,
    )


def journal_line(request: Any, tags: Sequence[str]) -> dict[str, Any]:
    """Return a request in the store as the journal holds it."""
    names = ("id", "accepted", "deadline", "n_subjects", "fingerprint")
    return {name: getattr(request, name) for name in names} | {"tags": [*tags]}


def insert_accepted(connection: Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Write requests as the journal holds them."""
    requests_table.insert_requests(
        connection,
        [
            {
                "id": line["id"],
                "stage": requests_table.ACCEPTED,
                "accepted": line["accepted"],
                "deadline": line["deadline"],
                "n_subjects": line["n_subjects"],
                "fingerprint": line["fingerprint"],
            }
            for line in lines
        ],
        [(line["id"], tag) for line in lines for tag in line["tags"]],
    )


def _accept_new(
    context: Context, wanted: dict[str, tuple[str, ...]]
) -> dict[str, RequestStatus]:
    """Write those requests that are new, and return all."""
    with context.store.read() as connection:
        there = requests_table.find_requests(connection, list(wanted))
        keys = context.tag_keys()  # now: one of them may have come under a new key
        for request, line in there.items():
            content = _request_content(request, wanted[request])
            if line.fingerprint not in [request_tag(content, key) for key in keys]:
                raise _changed_error(request)
        new = {id_: wanted[id_] for id_ in wanted if id_ not in there}
        subjects = list(dict.fromkeys(word for one in new.values() for word in one))
        tags = _find_tags(connection, subjects, keys)
    _require_known(tags)
    found = {request: request_status(line) for request, line in there.items()}
    if not new:
        return found
    time = now()
    day_of(time)  # or refuse a clock that no public document can tell
    lines: list[dict[str, Any]] = [
        {
            "id": request,
            "accepted": time,
            "deadline": time + context.settings.deadline_days * DAY,
            "n_subjects": len(named),
            "fingerprint": request_tag(_request_content(request, named), keys[0]),
            "tags": sorted({str(tags[subject]) for subject in named}),
        }
        for request, named in sorted(new.items())  # so that no two senders block
    ]
    with context.store.write() as connection:
        insert_accepted(connection, lines)
        append_line(context, connection, {"accepted": lines})
    return found | {line["id"]: _accepted_status(line) for line in lines}


def _accepted_status(line: dict[str, Any]) -> RequestStatus:
    """Return a request that was accepted just now."""
    return RequestStatus(
        request=line["id"],
        stage="accepted",
        accepted=line["accepted"],
        deadline=line["deadline"],
        completed=None,
        n_subjects=line["n_subjects"],
    )


def _find_tags(
    connection: Connection, subjects: Sequence[str], keys: Sequence[TagKey]
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
            f"{len(missing)} of {len(tags)} person(s) are in no model, or no longer: "
            f"{some}{', ...' if len(missing) > 3 else ''}; nothing was accepted"
        )


def _request_content(request: str, subjects: Sequence[str]) -> str:
    """Return what a request asks for, as a word."""
    return "\x00".join((request, *sorted(subjects)))


def _changed_error(request: str) -> InvalidInput:
    return InvalidInput(
        f"request {request} was sent before and asked for something else; nothing was "
        "accepted, give a new request an id of its own"
    )
