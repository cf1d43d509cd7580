# SPDX-License-Identifier: Apache-2.0
"""Intake: where requests come in over HTTP, are shown, and are taken back.

Every route that concerns a request calls it, so that what a caller sees follows from
``windows`` at every one of them.

A person is named by words, such as an address and a customer's number. A word may be
an id that models know, and after that an alias. All are looked up at once, and the same
work is done for known and unknown ones. Where a word leads nowhere, its hash stands for
a person of whom nothing is held, so that a request about a stranger is stored like any
other.

A call may ask for thousands of people. It is written in pieces, and what others send
meanwhile is written between them, so that nobody waits for a whole batch. All of it is
checked before the first piece is written: what is wrong with a batch refuses all of it.
"""

from asyncio import sleep
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from ..exceptions import Busy, InvalidInput, RequestConflict, UnknownRequest
from ..registry import Callback, Registry, Remark, Request
from ..registry.context import WAIT
from ..registry.now import now
from ..registry.trail import Note
from ..registry.window import SECOND, Window
from ..rights.identifiers import (
    EMAIL,
    HASHED,
    ID,
    Identifier,
    after_colon,
    normal_form,
    read_identifier,
)
from .problems import Refused
from .settings import ServiceSettings
from .windows import ShownRequest, show_at
from .workers import GroupWriter

Named: TypeAlias = tuple[Identifier, ...]
"""What one word may be, in the order in which it is tried."""
Person: TypeAlias = tuple[Named, ...]
"""What one person is known by."""

LOOK_AGAIN = 600 * SECOND
MOST_LOOKS = 10_000
MOST_WITH_ROWS = 4  # calls at once: they may wait, and others need threads too
MOST_IDENTIFIERS = 20  # of one person
PIECE = 256  # identifiers of a call that are written together
DAY = 24 * 60 * 60 * SECOND


def read_person(named: Mapping[str, str], id_kinds: Sequence[str]) -> Person:
    """Return the person whom a mapping from kinds to values names.

    A value is raw, or "sha256:" and a hash. Raw values of ``id_kinds`` are tried as
    ids, and then as aliases of their kind.
    """
    if not 1 <= len(named) <= MOST_IDENTIFIERS:
        raise InvalidInput(
            f"a person with {len(named)} identifiers; give 1 to {MOST_IDENTIFIERS}"
        )
    return tuple(
        (read_identifier(kind, text),)
        if text.strip()[: len(HASHED)].lower() == HASHED and kind != ID
        else name_value(kind, text, id_kinds=id_kinds)
        for kind, text in named.items()
    )


def name_value(kind: str, text: str, *, id_kinds: Collection[str]) -> Named:
    """Return what a raw value may be: an id if its kind says so, then an alias."""
    if kind == ID or kind not in id_kinds:
        return (Identifier(kind, text),)
    as_id = Identifier(ID, text)
    # Ids under the name of a kind need not be spelled as that kind is. What holds an
    # address and more, such as a name, would be answered as a stranger's.
    if normal_form(kind, text) is None and (kind != EMAIL or "@" not in text):
        return (as_id,)
    return as_id, Identifier(kind, text)


def find_subjects(
    registry: Registry, people: Sequence[Person]
) -> list[tuple[str, ...]]:
    """Return the ids under which each person is asked for; blocks for one look-up."""
    found = iter(registry.aliases.find_meant([one for some in people for one in some]))
    return [
        tuple(dict.fromkeys(chain.from_iterable(next(found) for _ in some)))
        for some in people
    ]


def list_spellings(people: Sequence[Person]) -> tuple[str, ...]:
    """Return the raw values that people are named by; a hash has no other spelling."""
    every = chain.from_iterable(chain.from_iterable(people))
    return tuple(dict.fromkeys(one.value for one in every if not one.hashed))


def list_near_words(people: Sequence[Person]) -> tuple[str, ...]:
    """Return what shows near misses.

    These are raw values, and with their kind as aliases are; and without what stands
    before a colon, which may be a sender's own word for a kind.
    """
    every = chain.from_iterable(chain.from_iterable(people))
    aliases = [
        f"{one.kind}:{one.value}" for one in every if one.kind != ID and not one.hashed
    ]
    values = list_spellings(people)
    rests = [rest for one in values if (rest := after_colon(one))]
    return (*values, *dict.fromkeys((*aliases, *rests)))


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
    reference
        Such as the number of a ticket.
    """

    asked: Request
    people: tuple[Person, ...]
    callbacks: tuple[Callback, ...] = ()
    reference: str = ""

    def __repr__(self) -> str:
        return f"Submission({self.asked!r})"

    @property
    def weight(self) -> int:
        """How many identifiers have to be looked up and written."""
        return max(1, sum(map(len, self.people)))


def as_asked(one: Submission) -> Request:
    """Return the request of a submission, about the words that it names people by."""
    return replace(one.asked, subjects=list_spellings(one.people) or ("hash",))


def cut(submissions: Sequence[Submission]) -> list[tuple[Submission, ...]]:
    """Return submissions in pieces that are quickly written, in their order."""
    pieces: list[list[Submission]] = []
    weight = PIECE
    for one in submissions:
        if weight + one.weight > PIECE or not pieces:
            pieces.append([])
            weight = 0
        pieces[-1].append(one)
        weight += one.weight
    return [tuple(some) for some in pieces]


class Quota:
    """Counts what each sender brings in a day, in this process.

    What counts is what was sent, and never who is known. What is sent again counts
    again.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._day = 0
        self._used: dict[str, tuple[int, int]] = {}

    def charge(self, sender: str, *, n_people: int, n_bytes: int) -> None:
        """Count a call, or refuse it: then nothing is counted."""
        limits, time = self._settings, now()
        if n_people > limits.people_per_call:
            raise Refused(
                413,
                f"more than {limits.people_per_call} people in one call; send several "
                "calls with fewer",
            )
        if time // DAY != self._day:
            self._day = time // DAY
            self._used.clear()
        people, size = self._used.get(sender, (0, 0))
        for amount, most, what in (
            (people + n_people, limits.people_per_day, "people"),
            (size + n_bytes, limits.bytes_per_day, "bytes"),
        ):
            if amount > most:
                seconds = (DAY - time % DAY) // SECOND + 1
                raise Refused(
                    429,
                    f"more than {most} {what} from one sender in a day; send the rest "
                    "after midnight in UTC, or ask the operator to raise "
                    f"{what}_per_day",
                    {"Retry-After": str(seconds)},
                )
        self._used[sender] = people + n_people, size + n_bytes


class Intake:
    """Takes requests in, shows them, and cancels them."""

    def __init__(self, registry: Registry, settings: ServiceSettings) -> None:
        self.registry = registry
        self.settings = settings
        self.windows = settings.windows
        self._writer = GroupWriter(
            self._accept,
            "accepting",
            weigh=lambda group: sum(one.weight for one in group),
        )
        self._quota = Quota(settings)
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

    async def accept(
        self, submissions: Sequence[Submission], *, size: int
    ) -> list[ShownRequest]:
        """Accept the requests of a call; on return they are on disk.

        If one is wrong, none is accepted. If the service fails between two pieces,
        those before it are accepted; sending the same ids again completes the call.

        Parameters
        ----------
        submissions
            Of one sender.
        size
            Bytes of the call.
        """
        group = tuple(submissions)
        n_people = sum(len(one.people) for one in group)
        pieces = cut(group)
        has_rows = any(one.asked.rows for one in group)
        if has_rows and len(pieces) > 1:
            raise Refused(
                413,
                f"new rows in a call with more than {PIECE} identifiers; send "
                "rectifications in calls of their own",
            )
        self._quota.charge(group[0].asked.sender, n_people=n_people, n_bytes=size)
        if has_rows:
            # They wait until no model changes, and others must not wait with them.
            await self._wait_for_answers()
            accept = partial(self._accept_rows, group)
            return await run_sync(accept, limiter=self._with_rows)
        if len(pieces) > 1:
            await run_sync(self.registry.requests.check, list(map(as_asked, group)))
        return [one for piece in pieces for one in await self._writer.write(piece)]

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
            raise UnknownRequest(
                f"request {request} was not sent by you, or never accepted; check its "
                "id"
            )
        return show_at(found, now())

    def cancel(self, request: str, sender: str | None) -> ShownRequest:
        """Cancel a request while its window is open."""
        shown = self.show(request, sender)
        if shown.state == "cancelled":
            return shown
        if shown.state != "pending":
            raise not_pending(request)
        try:
            return show_at(self.registry.requests.cancel(request), now())
        except InvalidInput:  # its window closed meanwhile
            raise not_pending(request) from None

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
                subjects=self._choose(
                    one, tuple(chain(*(next(subjects) for _ in one.people)))
                ),
                n_people=len(one.people),
                spellings=list_near_words(one.people),
                window=self.windows.seconds,
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
        self._refer(every)
        time = now()
        return [[show_at(next(statuses), time) for _ in group] for group in groups]

    def _refer(self, submissions: Sequence[Submission]) -> None:
        """Write references beside requests that have none: one may be sent again."""
        given = {one.asked.request: one.reference for one in submissions}
        given = {request: text for request, text in given.items() if text}
        if given:
            there = self.registry.requests.remarks([*given])
            new = {
                request: Remark(text)
                for request, text in given.items()
                if request not in there
            }
            self.registry.requests.remark_all(new)

    def _choose(self, one: Submission, ids: tuple[str, ...]) -> tuple[str, ...]:
        """Return whom a request names: for new rows, by which id each model does."""
        if not one.asked.rows:
            return ids
        return self.registry.aliases.choose_holders(ids, one.asked.rows.keys())

    def _accept_rows(self, group: tuple[Submission, ...]) -> list[ShownRequest]:
        """Accept requests that bring rows; no error quotes a value of a row."""
        try:
            (shown,) = self._accept([group])
        except RequestConflict:
            raise
        except (ValueError, TypeError):
            raise InvalidInput(
                "the new rows do not fit; give a model that exists, a value for each "
                "of its columns in order, targets of a kind that it knows, and "
                "exposure, offset or time where it was fitted with them"
            ) from None
        return shown

    def _record(self, notes: Sequence[Note]) -> list[None]:
        """Write lines of the trail."""
        self.registry.access.record(notes)
        return [None] * len(notes)


def not_pending(request: str) -> RequestConflict:
    """Return the error for a request that can no longer be cancelled."""
    return RequestConflict(
        f"request {request} is not pending any more, and can no longer be cancelled"
    )
