# SPDX-License-Identifier: Apache-2.0
"""Desk: where requests come in over HTTP, are shown, and are taken back.

Every route that concerns a request calls it, so that what a caller sees follows from
``windows`` at every one of them.

A person is a set of identifiers, such as an address and a customer's number. All of
them are looked up at once, and the same work is done for known and unknown ones. Where
an identifier leads nowhere, its hash stands for a person of whom nothing is held, so
that a request about a stranger is stored like any other.
"""

from asyncio import sleep
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ..exceptions import Busy, InvalidInput, RequestConflict, UnknownRequest
from ..registry import Callback, Registry, Request, RequestStatus
from ..registry.context import WAIT, now
from ..rights.identifiers import HASHED, ID, Identifier, read_identifier
from .settings import ServiceSettings
from .windows import SECOND, ShownRequest, Window
from .workers import GroupWriter

Person: TypeAlias = tuple[Identifier, ...]
"""What one person is known by."""

LOOK_AGAIN = 600 * SECOND
MOST_LOOKS = 10_000
MOST_WITH_ROWS = 4  # calls at once: they may wait, and others need threads too
MOST_IDENTIFIERS = 20  # of one person
SHORT = 32  # digits of a hash: no longer than ids are, and so as quick to be tagged


def read_person(named: Mapping[str, str], id_kinds: Sequence[str]) -> Person:
    """Return the person whom a mapping from kinds to values names.

    A value is raw, or "sha256:" and a hash. Raw values of ``id_kinds`` are ids.
    """
    if not 1 <= len(named) <= MOST_IDENTIFIERS:
        raise InvalidInput(
            f"a person with {len(named)} identifiers; give 1 to {MOST_IDENTIFIERS}"
        )
    return tuple(
        read_identifier(ID if _is_id(kind, text, id_kinds=id_kinds) else kind, text)
        for kind, text in named.items()
    )


def _is_id(kind: str, text: str, *, id_kinds: Sequence[str]) -> bool:
    hashed = text.strip()[: len(HASHED)].lower() == HASHED
    return kind in id_kinds and (kind == ID or not hashed)


def find_subjects(
    registry: Registry, people: Sequence[Person]
) -> list[tuple[str, ...]]:
    """Return the ids under which each person is asked for; blocks for one look-up."""
    every = [one for person in people for one in person]
    found = registry.aliases.find(every)
    return [tuple(name_subjects(person, found)) for person in people]


def name_subjects(person: Person, found: Mapping[Identifier, str]) -> Iterable[str]:
    """Yield the id behind each identifier of a person, each once."""
    known = (found.get(one, f"{one.kind}:{one.digest()[:SHORT]}") for one in person)
    return dict.fromkeys(known)


@dataclass(frozen=True, slots=True, repr=False)
class Submission:
    """A request as it came in.

    Parameters
    ----------
    asked
        Everything but the people, whose ids are not known yet.
    people
        Whom it is about.
    callbacks
        Whom to tell what becomes of it.
    """

    asked: Request
    people: tuple[Person, ...]
    callbacks: tuple[Callback, ...] = ()

    def __repr__(self) -> str:
        return f"Submission({self.asked!r})"


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the trail: who did what to what."""

    actor: str
    action: str
    target: str = ""


class Desk:
    """Takes requests in, shows them, and cancels them.

    Parameters
    ----------
    registry
        Where they are kept.
    settings
        Of the service.
    """

    def __init__(self, registry: Registry, settings: ServiceSettings) -> None:
        self.registry = registry
        self.settings = settings
        self.windows = settings.windows
        self._writer = GroupWriter(self._accept, "accepting", weigh=len)
        self._recorder = GroupWriter(self._record, "recording")
        self._with_rows = CapacityLimiter(MOST_WITH_ROWS)
        self._looks: dict[Note, int] = {}

    def start(self) -> None:
        """Begin to take requests in."""
        self._writer.start()
        self._recorder.start()

    @property
    def is_alive(self) -> bool:
        """Whether requests are taken in."""
        return self._writer.is_alive and self._recorder.is_alive

    def close(self, seconds: float) -> None:
        """Write what waits, and end."""
        self._writer.close(seconds)
        self._recorder.close(seconds)

    def current_window(self) -> Window:
        """Return the window in which a request that comes now would be."""
        return self.windows.at(now())

    async def accept(self, submissions: Sequence[Submission]) -> list[ShownRequest]:
        """Accept requests, all or none; on return they are on disk."""
        group = tuple(submissions)
        if any(one.asked.rows for one in group):
            # They wait until no model changes, and others must not wait with them.
            await self._wait_for_answers()
            accept = partial(self._accept_rows, group)
            return await run_sync(accept, limiter=self._with_rows)
        return await self._writer.write(group)

    async def _wait_for_answers(self) -> None:
        """Wait until the last window's answers are shown, or raise Busy.

        How long its batch takes depends on who is in it, and must not show in how long
        a call waits for it.
        """
        time = now()
        moment = self.windows.next_answer(time)
        if moment >= self.windows.at(time).close:
            return  # they are shown
        seconds = (moment - time) / SECOND
        if seconds > WAIT:
            raise Busy("requests are being applied; new rows are taken in after that")
        await sleep(seconds)

    async def record(self, note: Note) -> None:
        """Write a line of the trail; on return it is on disk."""
        await self._recorder.write(note)

    async def record_look(self, note: Note) -> None:
        """Write into the trail that somebody looked.

        Looking again within ten minutes, as a page does that renews itself, is the same
        look.
        """
        time = now()
        if time < self._looks.get(note, 0) + LOOK_AGAIN:
            return
        await self.record(note)
        if len(self._looks) >= MOST_LOOKS:
            self._looks.clear()
        self._looks[note] = time

    def show(self, request: str, sender: str | None) -> ShownRequest:
        """Return a request as its sender sees it now.

        Those of others are unknown, unless ``sender`` is None.
        """
        found = self.registry.requests.statuses([request]).get(request)
        if found is None or sender not in (None, found.sender):
            raise unknown_request(request)
        return self.windows.show(found, now())

    def cancel(self, request: str, sender: str | None) -> ShownRequest:
        """Cancel a request while its window is open."""
        shown = self.show(request, sender)
        if shown.state == "cancelled":
            return shown
        if shown.state != "pending":
            raise not_pending(request)
        try:
            return self._show(self.registry.requests.cancel(request))
        except InvalidInput:  # its window closed meanwhile
            raise not_pending(request) from None

    def _show(self, status: RequestStatus) -> ShownRequest:
        return self.windows.show(status, now())

    def _accept(
        self, groups: Sequence[tuple[Submission, ...]]
    ) -> list[list[ShownRequest]]:
        """Accept groups of requests, all or none."""
        every = list(chain.from_iterable(groups))
        people = [person for one in every for person in one.people]
        subjects = iter(find_subjects(self.registry, people))
        requests = [
            replace(
                one.asked,
                subjects=tuple(chain(*(next(subjects) for _ in one.people))),
                n_people=len(one.people),
            )
            for one in every
        ]
        callbacks = [
            replace(callback, sender=one.asked.sender)
            for one in every
            for callback in one.callbacks
        ]
        if callbacks:  # first, so that nobody is promised a call that is not on disk
            self.registry.deliveries.add_callbacks(callbacks)
        statuses = iter(self.registry.requests.accept(requests, strangers=True))
        return [[self._show(next(statuses)) for _ in group] for group in groups]

    def _accept_rows(self, group: tuple[Submission, ...]) -> list[ShownRequest]:
        """Accept requests that bring rows; no error quotes a value of a row."""
        try:
            (shown,) = self._accept([group])
        except RequestConflict:
            raise
        except (ValueError, TypeError):
            raise InvalidInput(
                "the new rows do not fit; give a model that exists, a value for each "
                "of its columns in order, and targets of a kind that it knows"
            ) from None
        return shown

    def _record(self, notes: Sequence[Note]) -> list[None]:
        """Write lines of the trail."""
        self.registry.access.record(
            [(one.actor, one.action, one.target) for one in notes]
        )
        return [None] * len(notes)


def not_pending(request: str) -> RequestConflict:
    """Return the error for a request that can no longer be cancelled."""
    return RequestConflict(
        f"request {request} is not pending any more, and can no longer be cancelled"
    )


def unknown_request(request: str) -> UnknownRequest:
    """Return the error for a request that a caller does not know."""
    return UnknownRequest(
        f"request {request} was not sent by you, or never accepted; check its id"
    )
