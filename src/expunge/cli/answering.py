# SPDX-License-Identifier: Apache-2.0
"""What a request goes through: who is named and known, what is applied, the receipts.

Requests are accepted a thousand at a time and then applied together. An accepted
request is kept whatever happens next. So if something fails, the receipts that exist
are still handed out, and the error says which requests remain.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import Busy, ExpungeError, InvalidInput, UnknownSubject
from ..rights.standing import describe_outcome
from .common import (
    LATE,
    N_SHOWN_IDS,
    NEAR_MISS,
    PARTLY,
    REFUSED,
    CommandFailed,
    TextTable,
    count_releases_left,
    describe_releases_left,
    explain,
    find_exit_code,
    format_count,
    format_ids,
    print_note,
    print_text,
    show_progress,
)

if TYPE_CHECKING:
    from ..promise.certificate import Certificate
    from ..registry import Registry, Request
    from ..rights import Identifier

# One transaction for each: few enough to show progress, many enough to be quick.
BATCH_SIZE = 1000
CONTINUE = "expunge forget --pending continues"
INDEX = "index.csv"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RequestedPeople:
    """The people to forget.

    Parameters
    ----------
    ids
        Normalised, in the order given, each once.
    listed
        The ids of each line of a file, repetitions included; None if the ids are from
        the command line. People on the command line share a request; people in a file
        have a request each.
    tried
        The kinds of identifier that were looked for.
    spellings
        What was typed, without the kind before it, and with it.
    meant
        The ids that each word means: an address may be two ids of one person.
    """

    ids: tuple[str, ...]
    listed: tuple[tuple[str, ...], ...] | None = None
    tried: tuple[str, ...] = ("id",)
    spellings: tuple[str, ...] = ()
    meant: tuple[tuple[str, ...], ...] = ()

    @property
    def n_people(self) -> int:
        """How many people these are: words that share an id are one person's."""
        left, n_people = {*self.ids}, 0
        for some in self.meant or [(one,) for one in self.ids]:
            n_people += not left.isdisjoint(some)
            left.difference_update(some)
        return n_people

    def resolve_aliases(self, registry: "Registry") -> "RequestedPeople":
        """Return these people by their ids; what is not an alias is an id."""
        meant = dict(
            zip(self.ids, registry.aliases.resolve_each(self.ids), strict=True)
        )
        listed = self.listed and tuple(
            tuple(chain.from_iterable(meant[one] for one in line))
            for line in self.listed
        )
        ids = tuple(dict.fromkeys(chain.from_iterable(meant.values())))
        parsed = {word: _parse(word) for word in self.ids}
        kinds = {one.kind for one in parsed.values() if one is not None}
        kinds |= {*registry.aliases.subject_kinds()}
        spellings = tuple(
            spelling
            for word, one in parsed.items()
            for spelling in _list_spellings(word, one, is_found=meant[word] != (word,))
        )
        tried = ("id", *sorted(kinds - {"id"}))
        return RequestedPeople(ids, listed, tried, spellings, (*meant.values(),))

    def require_no_near_miss(self, registry: "Registry") -> None:
        """Raise if somebody else is held whose id is spelled almost as what was typed.

        Before anything is accepted: an answer that is signed cannot be taken back.
        """
        if not self.spellings:
            return
        near = registry.requests.find_near(self.spellings, named=self.ids)
        if not near:
            return
        shown = [
            f"{format_ids([word])}{f' (held as {format_ids([held])})' if held else ''}"
            for word, held in list(near.items())[:N_SHOWN_IDS]
        ]
        rest = len(near) - len(shown)
        more = f" and {rest} more" if rest else ""
        raise CommandFailed(
            f"{', '.join(shown)}{more}: somebody else is held whose id differs only in "
            "case, spacing, width, zeros or the kind before it; nothing was accepted; "
            "give the id as your records spell it, or --exact if you mean nobody but "
            "whom you named",
            NEAR_MISS,
        )

    def make_requests(self, asked: "Request") -> "tuple[Request, ...]":
        """Return the requests to send: what is asked, for these people."""
        from ..registry import Request

        if self.listed is None:
            return (replace(asked, subjects=self.ids, n_people=self.n_people),)
        known = {*self.ids}
        lines = dict.fromkeys(
            tuple(one for one in line if one in known) for line in self.listed
        )
        return tuple(
            replace(asked, subjects=line, n_people=1, request=Request(()).request)
            for line in lines
            if line
        )

    def match_requests(self, asked: "Sequence[Request]") -> tuple[str | None, ...]:
        """Return the request of each line of the file; empty without a file."""
        requests = {name: one.request for one in asked for name in one.subjects}
        return tuple(
            next((requests[name] for name in line if name in requests), None)
            for line in self.listed or ()
        )

    def split_known(
        self, registry: "Registry"
    ) -> "tuple[RequestedPeople, UnknownPeople]":
        """Return the people with rows in a model or sealed apart, and the others."""
        models = registry.requests.find_models(self.ids, sealed=True)
        known = tuple(one for one in self.ids if models[one])
        others = tuple(one for one in self.ids if not models[one])
        unknown = sort_unknown(registry, others)
        return replace(self, ids=known), replace(unknown, tried=self.tried)


def _parse(word: str) -> "Identifier | None":
    """Return the identifier that a word spells; None if it is an id."""
    from ..rights import parse_identifier

    try:
        return parse_identifier(word)
    except InvalidInput:  # an id with a colon
        return None


def _list_spellings(
    word: str, one: "Identifier | None", *, is_found: bool
) -> tuple[str, ...]:
    """Return what a near miss of a word would be one of.

    Parameters
    ----------
    word, one
        As it was typed, and the identifier that it spells, if any.
    is_found
        Whether that identifier led to an id.
    """
    from ..rights.identifiers import ADDRESSES, after_colon

    if one is None:  # a kind that is none may stand before an id
        return (word, rest) if (rest := after_colon(word)) else (word,)
    if one.hashed:
        return ()
    if one.kind == "id":
        return (one.value,)
    # With its kind it is almost the alias of somebody. Without, it may be an id, but
    # numbers of one kind mean others than the same numbers as ids.
    may_be_id = one.kind in ADDRESSES or not is_found
    spelling = f"{one.kind}:{one.value}"
    return (one.value, spelling) if may_be_id else (spelling,)


def take_people(ids: Sequence[str]) -> RequestedPeople:
    """Return the people named on the command line."""
    from ..private_model.subjects import people

    return RequestedPeople(people(ids))


def read_people(path: Path, column: str | None) -> RequestedPeople:
    """Return the people listed in a file."""
    from ..private_model.subjects import people
    from ..tables import read_ids

    ids = read_ids(path, column)
    return RequestedPeople(people(ids), tuple((one,) for one in ids))


@dataclass(frozen=True, slots=True)
class UnknownPeople:
    """Ids that no model holds.

    The difference is for the operator's eyes: exit codes and documents do not tell it.

    Parameters
    ----------
    forgotten
        Of people who were forgotten before.
    strangers
        The others. They may have been in a model that was replaced since.
    tried
        The kinds of identifier that were looked for.
    """

    forgotten: tuple[str, ...]
    strangers: tuple[str, ...]
    tried: tuple[str, ...] = ("id",)

    def __len__(self) -> int:
        return len(self.forgotten) + len(self.strangers)

    def describe(self, *, named: bool) -> str:
        """Return in words how many there are of each kind, with the first few ids."""
        parts = []
        for ids, words in (
            (self.strangers, "not known here"),
            (self.forgotten, "already forgotten"),
        ):
            if ids:
                shown = f" ({format_ids(ids)})" if named else ""
                parts.append(f"{format_count(len(ids), 'id')} {words}{shown}")
        return ", ".join(parts)


def sort_unknown(registry: "Registry", ids: Sequence[str]) -> UnknownPeople:
    """Tell people who were forgotten before from people who are not known."""
    # Reading the journal takes as long for the one as for the other.
    forgotten = registry.requests.find_forgotten(ids) if ids else ()
    strangers = tuple(one for one in ids if one not in {*forgotten})
    return UnknownPeople(forgotten, strangers)


SKIP_UNKNOWN = "check the ids, or leave out such ids with --skip-unknown"


def refuse_unknown(unknown: UnknownPeople, advice: str = SKIP_UNKNOWN) -> None:
    """Raise if there are ids that no model holds; say what to do then."""
    if unknown:
        raise UnknownSubject(
            f"in no model: {unknown.describe(named=True)}, looked for as "
            f"{', '.join(unknown.tried)}; nothing was accepted; {advice}"
        )


@dataclass(frozen=True, slots=True)
class DryRun:
    """What forgetting people would change.

    Parameters
    ----------
    n_people
        How many people there are.
    unknown
        Those whom no model holds.
    models
        For each model that would change, how many of the people it holds and the
        certificate of its release.
    """

    n_people: int
    unknown: UnknownPeople
    models: "dict[str, tuple[int, Certificate]]"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data, which names nobody."""
        return {
            "n_people": self.n_people,
            "n_unknown": len(self.unknown),
            "n_forgotten": len(self.unknown.forgotten),
            "models": {
                name: {"n_people": n, "releases_left": count_releases_left(certificate)}
                for name, (n, certificate) in self.models.items()
            },
        }

    def print(self) -> None:
        """Print it as a table."""
        lines = [
            (str(n), describe_releases_left(certificate), name)
            for name, (n, certificate) in self.models.items()
        ]
        TextTable(("people", "releases left", "model"), tuple(lines)).print()
        people = format_count(self.n_people, "person", plural="people")
        missing = self.unknown.describe(named=False)
        known = f"in no model: {missing}" if missing else "all of them known"
        print_note(f"{people}, {known}; nothing was changed")


def dry_run(registry: "Registry", people: RequestedPeople) -> DryRun:
    """Find out what forgetting these people would change. This changes nothing."""
    held = registry.requests.find_models(people.ids)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    models = {name: (counts[name], certificates[name]) for name in sorted(counts)}
    _, unknown = people.split_known(registry)
    return DryRun(people.n_people, unknown, models)


@dataclass(frozen=True, slots=True)
class ForgetOutcome:
    """What became of requests.

    Parameters
    ----------
    receipts
        Receipts of the completed requests, by request.
    pending
        Requests accepted and not completed.
    n_refused
        How many requests were not accepted.
    failure
        What went wrong, if anything.
    """

    receipts: dict[str, str]
    pending: tuple[str, ...]
    n_refused: int
    failure: ExpungeError | None

    def require_complete(self, where: str) -> None:
        """Raise unless every request is completed; ``where`` lists the others."""
        if not self.pending and not self.n_refused:
            return
        failure = self.failure or Busy("another process is at work")
        parts = [explain(failure)]
        if len(self.pending) == 1:
            parts.append(f"request {self.pending[0]} is accepted and kept; {CONTINUE}")
        elif self.pending:
            kept = f"{len(self.pending)} requests are accepted and kept"
            parts.append(f"{kept}, {where} lists them; {CONTINUE}")
        if self.n_refused:
            refused = format_count(
                self.n_refused, "request was", plural="requests were"
            )
            parts.append(f"{refused} not accepted, send them again")
        raise CommandFailed("; ".join(parts), find_exit_code(failure)) from failure


def apply_requests(
    registry: "Registry",
    asked: "Sequence[Request]",
    *,
    wait: float,
    strangers: bool = False,
) -> ForgetOutcome:
    """Accept requests and apply them, and return their receipts.

    ``Registry.forget`` does this for one request. Here there may be many, and a failure
    must not hide the receipts of those that are completed.
    """
    accepted: list[str] = []
    failure: ExpungeError | None = None
    try:
        with show_progress("accepting") as report:
            for batch in split_into_batches(asked):
                registry.requests.accept(batch, strangers=strangers)
                accepted += [one.request for one in batch]
                report(len(accepted), len(asked))
        apply_accepted(registry, wait=wait, only=accepted)
    except ExpungeError as error:
        if not accepted:
            raise
        failure = error
    receipts: dict[str, str] = {}
    try:
        for request in accepted:
            receipt = registry.requests.receipt(request)
            if receipt is not None:
                receipts[request] = receipt
    except ExpungeError as error:
        failure = failure or error
    pending = tuple(request for request in accepted if request not in receipts)
    return ForgetOutcome(receipts, pending, len(asked) - len(accepted), failure)


def apply_accepted(
    registry: "Registry", *, wait: float, only: Sequence[str] | None = None
) -> None:
    """Apply accepted requests, and show progress.

    ``only`` are the command's own; without them, all whose window has closed. If the
    clock is doubtful it says so first: what is entered now dates every later receipt.
    """
    clock = registry.clock()
    if clock.state == "ahead":
        print_note(clock.warning)
    with show_progress("forgetting") as report:
        registry.requests.apply(wait, on_progress=report, only=only)


def split_into_batches(
    items: Sequence[Item], size: int = BATCH_SIZE
) -> Iterator[tuple[Item, ...]]:
    """Yield the items, at most ``size`` at a time."""
    rest = iter(items)
    while batch := tuple(islice(rest, size)):
        yield batch


@dataclass(frozen=True, slots=True)
class ReceiptFolder:
    """A folder of receipts, with one file for each, named after its request.

    For a file of ids there is also an index, written before the first request is
    accepted. It says which line of the file became which request, and names nobody.
    """

    path: Path

    @property
    def index(self) -> Path:
        """The path of the index."""
        return self.path / INDEX

    def create(self, listed: Sequence[str | None]) -> None:
        """Create the folder, and write the index if ids are from a file."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not listed:
            return
        lines = [f"{place},{one or ''}" for place, one in enumerate(listed, start=1)]
        try:
            with self.index.open("x", encoding="utf-8") as file:
                file.write("\n".join(["place,request", *lines]) + "\n")
        except FileExistsError:
            raise InvalidInput(
                f"{self.index} is the index of an earlier file; give another folder"
            ) from None

    def write(self, receipts: Mapping[str, str]) -> dict[str, Path]:
        """Write the receipts, byte for byte, and return their paths by request."""
        files = {request: self.path / f"{request}.json" for request in receipts}
        for request, file in files.items():
            file.write_text(receipts[request], encoding="utf-8")
        return files


@dataclass(frozen=True, slots=True)
class IssuedReceipts:
    """Receipts by request, and where they were written.

    ``listed`` has the request of each line of a file, in order; None for lines that
    were left out.
    """

    receipts: Mapping[str, str]
    listed: Sequence[str | None] = ()
    folder: ReceiptFolder | None = None
    files: Mapping[str, Path] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON data; spelled by RFC 8785 a receipt has its bytes again.

        Those bytes are what is signed, and what ``verify`` takes.
        """
        files = self.files or {}
        read = {request: json.loads(text) for request, text in self.receipts.items()}
        requests = [
            {
                "request": request,
                "receipt": receipt,
                "file": str(files[request]) if request in files else None,
            }
            for request, receipt in read.items()
        ]
        n_people, models = count_changed(read.values())
        totals = {"n_people": n_people, "models": models}
        return {**totals, "requests": requests, "listed": self.listed}

    def print(self) -> None:
        """Print a sentence, after the receipts if there is no folder for them."""
        said = describe_answers([json.loads(one) for one in self.receipts.values()])
        if self.folder is None or self.files is None:
            print_text(*self.receipts.values())
            # Not to stdout: redirected to a file, that is the receipt alone.
            print_note(said)
        elif self.listed:
            receipts = format_count(len(self.files), "receipt")
            print_text(
                f"{said}; {receipts} in {self.folder.path}",
                f"{self.folder.index} says which id became which request",
            )
        else:
            (file,) = self.files.values()
            print_text(f"{said}; receipt in {file}")


def require_in_time(receipts: Iterable[str]) -> None:
    """Raise, with an exit code of its own, if an answer came after its deadline."""
    entries = [json.loads(text)["entry"] for text in receipts]
    late = sum(one["day"] > one["deadline"] for one in entries)
    if late:
        requests = format_count(len(entries), "request")
        raise CommandFailed(
            f"of {requests} answered: {late} after the deadline; the receipts say when",
            LATE,
        )


def require_fulfilled(receipts: Iterable[str]) -> None:
    """Raise, with an exit code of its own, if people did not get what they asked for.

    A refusal counts before an answer in part, and one that is late comes last. People
    of whom nothing is held are answered like any others.
    """
    receipts = list(receipts)
    outcomes = Counter(json.loads(text)["entry"]["outcome"] for text in receipts)
    for outcome, code in (("refused", REFUSED), ("partly", PARTLY)):
        if outcomes[outcome]:
            requests = format_count(len(receipts), "request")
            words = "refused" if code == REFUSED else "fulfilled only in part"
            raise CommandFailed(
                f"of {requests} answered: {outcomes[outcome]} {words}; the receipts "
                "say why",
                code,
            )
    require_in_time(receipts)


def count_changed(receipts: Iterable[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Return how many people receipts are about, and the models that were changed."""
    n_people = 0
    models: set[str] = set()
    for receipt in receipts:
        n_people += receipt["entry"]["n_subjects"]
        models |= receipt["entry"]["certificates"].keys()
    return n_people, sorted(models)


def describe_answers(receipts: Sequence[Mapping[str, Any]]) -> str:
    """Return in a few words what became of requests, and why."""
    n_people, models = count_changed(receipts)
    people = format_count(n_people, "person", plural="people")
    changed = format_count(len(models), "model") if models else "no model"
    entries = [one["entry"] for one in receipts]
    rights = {one["right"] for one in entries}
    outcomes = Counter(
        describe_outcome(one["outcome"], one["reason"]) for one in entries
    )
    if models and rights == {"erase"} and set(outcomes) == {"done"}:
        return f"{people} removed from {changed}"
    found = ", ".join(
        outcome if len(outcomes) == 1 else f"{n} {outcome}"
        for outcome, n in sorted(outcomes.items())
    )
    return f"{', '.join(sorted(rights))}, {people}: {found}; {changed} changed"
