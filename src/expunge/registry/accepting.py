# SPDX-License-Identifier: Apache-2.0
"""Accepting: a request is on disk, twice, before anybody is told so.

In the journal first and in the store then, within a transaction that the store has not
refused by then. What a crash left in the journal alone was promised to nobody; it is
taken in when the store is next worked on, since a person did ask.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from ..exceptions import InvalidInput, UnknownSubject
from ..ids import people as words
from ..ledger import TagKey, subject_tags
from ..ledger.pages import DAY, day_of
from ..ledger.tags import request_tag
from ..stores import people, requests
from ..stores.engine import Collision
from .ids import require_request
from .news import record
from .site import Site, now
from .statuses import Asked, RequestStatus


def accept(site: Site, asked: Sequence[Asked]) -> tuple[RequestStatus, ...]:
    """Take in requests, all of them or none; see ``Registry.accept``."""
    wanted: dict[str, tuple[str, ...]] = {}
    for one in asked:
        require_request(one.request)
        subjects = words(one.subjects)
        if set(wanted.setdefault(one.request, subjects)) != set(subjects):
            raise _changed(one.request)
    for left in reversed(range(len(wanted) + 1)):
        try:
            found = _taken_in(site, wanted)
            break
        except Collision:
            # Somebody sent one of them at the same time: now it is there.
            if not left:
                raise
    return tuple(found[one.request] for one in asked)


def known(site: Site, subjects: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each person the models that hold them."""
    keys = site.tag_keys()
    with site.store.reading() as connection:
        tags = _tags(connection, subjects, keys)
        held = people.holders(connection, [tag for tag in tags.values() if tag])
    return {
        subject: tuple(sorted(held.get(tags[subject] or "", ())))
        for subject in subjects
    }


def status(line: Any) -> RequestStatus:
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


def line_of(request: Any, tags: Sequence[str]) -> dict[str, Any]:
    """Return a request in the store as the journal holds it."""
    names = ("id", "accepted", "deadline", "n_subjects", "fingerprint")
    return {name: getattr(request, name) for name in names} | {"tags": [*tags]}


def insert_accepted(connection: Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Write requests as the journal holds them."""
    requests.take_in(
        connection,
        [
            {
                "id": line["id"],
                "stage": requests.ACCEPTED,
                "accepted": line["accepted"],
                "deadline": line["deadline"],
                "n_subjects": line["n_subjects"],
                "fingerprint": line["fingerprint"],
            }
            for line in lines
        ],
        [(line["id"], tag) for line in lines for tag in line["tags"]],
    )


def _taken_in(
    site: Site, wanted: dict[str, tuple[str, ...]]
) -> dict[str, RequestStatus]:
    """Write those requests that are new, and return all."""
    with site.store.reading() as connection:
        there = requests.look_up(connection, list(wanted))
        keys = site.tag_keys()  # now: one of them may have come under a new key
        for request, line in there.items():
            content = _content(request, wanted[request])
            if line.fingerprint not in [request_tag(content, key) for key in keys]:
                raise _changed(request)
        new = {id_: wanted[id_] for id_ in wanted if id_ not in there}
        subjects = list(dict.fromkeys(word for one in new.values() for word in one))
        tags = _tags(connection, subjects, keys)
    _require_known(tags)
    found = {request: status(line) for request, line in there.items()}
    if not new:
        return found
    time = now()
    day_of(time)  # or refuse a clock that no public document can tell
    lines: list[dict[str, Any]] = [
        {
            "id": request,
            "accepted": time,
            "deadline": time + site.settings.deadline_days * DAY,
            "n_subjects": len(named),
            "fingerprint": request_tag(_content(request, named), keys[0]),
            "tags": sorted({str(tags[subject]) for subject in named}),
        }
        for request, named in sorted(new.items())  # so that no two senders block
    ]
    with site.store.writing() as connection:
        insert_accepted(connection, lines)
        record(site, connection, {"accepted": lines})
    return found | {line["id"]: _accepted(line) for line in lines}


def _accepted(line: dict[str, Any]) -> RequestStatus:
    """Return a request that was accepted just now."""
    return RequestStatus(
        request=line["id"],
        stage="accepted",
        accepted=line["accepted"],
        deadline=line["deadline"],
        completed=None,
        n_subjects=line["n_subjects"],
    )


def _tags(
    connection: Connection, subjects: Sequence[str], keys: Sequence[TagKey]
) -> dict[str, str | None]:
    """Return the tag under which each person is known; None for strangers."""
    possible = {subject: subject_tags(subject, keys) for subject in subjects}
    every = [tag for tags in possible.values() for tag in tags]
    there = people.holders(connection, every)
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


def _content(request: str, subjects: Sequence[str]) -> str:
    """Return what a request asks for, as a word."""
    return "\x00".join((request, *sorted(subjects)))


def _changed(request: str) -> InvalidInput:
    return InvalidInput(
        f"request {request} was sent before and asked for something else; nothing was "
        "accepted, give a new request an id of its own"
    )
