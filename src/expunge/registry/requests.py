# SPDX-License-Identifier: Apache-2.0
"""Requests of a registry: sent, applied, looked up; and, while they wait, changed.

Until a request is applied it can be cancelled, refused for a stated reason, or extended
as the law allows.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from typing import NamedTuple

from ..display.progress import OnNamedProgress, OnProgress, be_silent
from ..exceptions import Busy, ExpungeError, InvalidInput, UnknownRequest
from ..ledger import subject_tags
from ..ledger.keys import near_tags
from ..private_model.subjects import people, person
from ..rights import parse_identifier
from ..rights.calendar import parse_day
from ..rights.identifiers import ADDRESSES, ID, after_colon
from .aliases import resolve_words
from .answering.accepting import (
    Request,
    RequestStatus,
    accept_requests,
    check_requests,
    find_near_ids,
    find_tags,
    request_status,
)
from .answering.cancelling import (
    cancel_request,
    require_untouched,
    require_waiting,
)
from .answering.completion import refuse_request, state_extension
from .answering.returning import read_forgotten_tags
from .answering.worker import apply_waiting, recover
from .context import WAIT, Context
from .keys import read_tag_keys
from .listing import PageWanted, RequestPage, read_page
from .storage import people_table, releases_table, requests_table
from .storage.requests_table import MovedMeanwhile

# One transaction for each: few enough to show progress, many enough to be quick.
BATCH = 1000


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


class RegistryRequests:
    """The requests of a registry, as ``Registry.requests``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

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
        return accept_requests(self._context, requests, strangers=strangers)

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse requests of which one could not be accepted; write nothing.

        Whom they are about is not looked up. For requests that have an envelope, as
        those of the service do, whose parts are then accepted one after the other.
        """
        check_requests(self._context, requests)

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
                for status in statuses:
                    receipt = self.receipt(status.request)
                    if receipt is not None:
                        receipts[status.request] = receipt
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

    def next_close(self) -> int | None:
        """Return when the first window closes of requests that were not tried yet.

        It may have closed; None if no such request waits.
        """
        with self._context.store.read(snapshot=False) as connection:
            return requests_table.read_next_close(connection)

    def status(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        requests_table.require_request_id(request)
        with self._context.store.read() as connection:
            return request_status(requests_table.require_request(connection, request))

    def statuses(self, requests: Sequence[str]) -> dict[str, RequestStatus]:
        """Return how far requests are, by id; unknown ones are left out."""
        with self._context.store.read(snapshot=False) as connection:
            found = requests_table.find_requests(connection, requests)
        return {request: request_status(line) for request, line in found.items()}

    def page(self, wanted: PageWanted) -> RequestPage:
        """Return requests in the order of their deadlines, a page at a time."""
        with self._context.store.read() as connection:
            return read_page(connection, wanted)

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        requests_table.require_request_id(request)
        with self._context.store.read(snapshot=False) as connection:
            text = requests_table.read_receipt(connection, request)
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
            tags = find_tags(connection, ids, keys=read_tag_keys(self._context.paths))
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
        with self._context.store.read() as connection:
            if requests is None:
                return {*requests_table.list_near_misses(connection)}
            return requests_table.find_near_misses(connection, requests)

    def confirm_exact(self, request: str) -> None:
        """Record that a request means whom it names, and nobody spelled almost so."""
        requests_table.require_request_id(request)
        with self._context.store.write() as connection:
            requests_table.require_request(connection, request)
            requests_table.clear_near_miss(connection, request)

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
        requests_table.require_request_id(request)
        cancel_request(self._context, request)
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
            self._require_untouched(request)
            try:
                refuse_request(context, request, reason=reason, wait=wait)
            except MovedMeanwhile:
                self._require_untouched(request)  # or it was cancelled just now
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
            self._require_waiting(request)
            # If it is cancelled from here on, it was extended first.
            state_extension(
                context, request, reason=reason, notified=parse_day(notified)
            )
        return self.status(request)

    def _require_untouched(self, request: str) -> None:
        """Refuse what is not waiting any more, or applied to some models."""
        requests_table.require_request_id(request)
        with self._context.store.read() as connection:
            require_untouched(connection, request)

    def _require_waiting(self, request: str) -> None:
        """Refuse what is not waiting any more."""
        requests_table.require_request_id(request)
        with self._context.store.read() as connection:
            require_waiting(connection, request)
