# SPDX-License-Identifier: Apache-2.0
"""Matching: whom deletion lists mean, and what became of each number.

    number known and answered   as its request was answered
    one person                  erased; all their numbers share one request
    several people              opted out, which is for the operator to do elsewhere
    nobody                      not found, and kept out of later fits

What a list asks for is recorded before anything is done about it, with the request that
will answer it: the same list, run again after a crash too, gets the same
answers, and nobody is asked for twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..display.progress import OnNamedProgress
from ..exceptions import ExpungeError
from ..registry import Registry, Request, RequestStatus
from ..registry.exclusions import FoundPeople, Listed
from ..registry.now import today
from ..registry.storage.exclusions_table import SEVERAL
from ..rights.drop import KNOWN, kind_of, second_kind, to_digest
from ..rights.identifiers import Identifier
from .files import DELETED, EXEMPTED, NOT_FOUND, OPTED_OUT, REMOVED, DropList

SENDER, REGIME = "drop", "drop"


@dataclass(frozen=True, slots=True)
class Matched:
    """What became of lists.

    Parameters
    ----------
    answers
        The status of each number that is answered, by number.
    waiting
        The requests that could not be applied yet: their numbers have no answer.
    n_lifted
        How many numbers people withdrew, and are kept out by no more.
    failure
        Why requests wait, if any do.
    """

    answers: dict[str, int]
    waiting: tuple[str, ...]
    n_lifted: int = 0
    failure: ExpungeError | None = None


@dataclass(slots=True)
class _Plan:
    """Which request answers each number, and the requests that are new."""

    requests: dict[str, str] = field(default_factory=dict)
    new: dict[tuple[str, ...], Request] = field(default_factory=dict)

    def add(self, item: str, found: FoundPeople, *, submitted: str) -> None:
        """Ask for the person that a number leads to, once for all their numbers."""
        if found.is_shared:
            self.requests[item] = SEVERAL
            return
        request = self.new.setdefault(
            found.ids,
            Request(
                found.ids,
                regime=REGIME,
                submitted=submitted,
                sender=SENDER,
                n_people=1,
            ),
        )
        self.requests[item] = request.request


def match_lists(
    registry: Registry,
    lists: Sequence[DropList],
    *,
    wait: float = 30.0,
    on_progress: OnNamedProgress = lambda label, done, total: None,
) -> Matched:
    """Erase the people on deletion lists as one batch, and answer every number.

    Parameters
    ----------
    registry
        Whose people they may be.
    lists
        As they were downloaded, that of withdrawn identifiers too.
    wait
        Seconds to wait for another process that works.
    on_progress
        Called with what is done, how many steps of it are, and of how many.
    """
    removed = [
        one.item for some in lists if some.name == REMOVED for one in some.listed
    ]
    n_lifted = registry.exclusions.lift(removed) if removed else 0
    plan, every = _Plan(), [some for some in lists if some.name != REMOVED]
    for number, some in enumerate(every):
        on_progress("matching", number, len(every))
        _record_list(registry, some, plan=plan)
    failure = None
    if plan.new:
        sent = registry.requests.submit(
            [*plan.new.values()], wait=wait, strangers=True, on_progress=on_progress
        )
        failure = sent.failure
    answers, waiting = _read_answers(registry, every)
    return Matched(answers, waiting, n_lifted, failure)


def _record_list(registry: Registry, some: DropList, *, plan: _Plan) -> None:
    """Find whom a list means, and record which request answers each number."""
    known = registry.exclusions.known([one.item for one in some.listed])
    given = {line.request for line in known.values()} - {"", SEVERAL}
    there = registry.requests.statuses([*given])
    # One that was never accepted, or was cancelled, is asked for again.
    settled = {id_ for id_, one in there.items() if one.stage != "cancelled"}
    left = [
        one
        for one in some.listed
        if one.item not in known or known[one.item].request not in settled
    ]
    found = registry.exclusions.find_people(left)
    submitted = min(some.day, today().isoformat())
    for item, people in found.items():
        plan.add(item, people, submitted=submitted)
    # A number that was answered by nobody, and still is, stays as it was recorded.
    new = [
        one
        for one in left
        if one.item not in known or one.item in found or known[one.item].request
    ]
    requests = {one.item: plan.requests[one.item] for one in new if one.item in found}
    registry.exclusions.record(new, requests, day=some.day)


def _read_answers(
    registry: Registry, lists: Iterable[DropList]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the status of each number that is answered, and the requests that wait."""
    items = [one.item for some in lists for one in some.listed]
    known = registry.exclusions.known(items)
    requests = {known[item].request for item in items} - {"", SEVERAL}
    statuses = registry.requests.statuses([*requests])
    answers, waiting = {}, dict[str, None]()
    for item in items:
        request = known[item].request
        if request in ("", SEVERAL):
            answers[item] = OPTED_OUT if request else NOT_FOUND
        elif request in statuses and statuses[request].stage == "completed":
            answers[item] = _status_of(statuses[request])
        else:
            waiting[request] = None
    return answers, tuple(waiting)


def _status_of(done: RequestStatus) -> int:
    """Return the status that an answer means: of rows that stay, no deletion."""
    return DELETED if done.outcome in ("done", "nothing found") else EXEMPTED


def import_identifiers(
    registry: Registry,
    rows: Iterable[tuple[str, str, str]],
    *,
    on_progress: OnNamedProgress = lambda label, done, total: None,
) -> int:
    """Let people be found by their identifiers on lists; return how many these are.

    Each row is the id of a person, a list and a hash. One that several people share is
    kept as such: nobody is erased by it.
    """
    first: dict[tuple[str, str], str] = {}
    second: dict[tuple[str, str], str] = {}
    owners: dict[str, None] = {}
    for owner, name, hashed in rows:
        owners[owner] = None
        if first.setdefault((name, hashed), owner) != owner:
            second.setdefault((name, hashed), owner)
    listed = [
        Listed(str(place), name, _digest(hashed))
        for place, (name, hashed) in enumerate(first)
    ]
    places = dict(zip(first, listed, strict=True))
    pairs: list[tuple[object, Identifier]] = []
    before = registry.aliases.find(
        Identifier(kind_of(one.name), one.digest, hashed=True) for one in listed
    )
    for (name, hashed), owner in first.items():
        digest = places[name, hashed].digest
        own = Identifier(kind_of(name), digest, hashed=True)
        other = second.get((name, hashed))
        if before.get(own, owner) != owner:  # imported before, of somebody else
            other = owner
        elif own not in before:
            pairs.append((owner, own))
        if other is not None:
            shared = Identifier(second_kind(name), digest, hashed=True)
            if shared not in registry.aliases.find([shared]):
                pairs.append((other, shared))
    pairs += [(owner, Identifier(KNOWN, owner)) for owner in owners]
    registry.aliases.add(
        pairs, on_progress=lambda done, total: on_progress("importing", done, total)
    )
    return len(first)


def _digest(hashed: str) -> str:
    digest = to_digest(hashed)
    assert digest is not None
    return digest
