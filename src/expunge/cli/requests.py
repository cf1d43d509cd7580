# SPDX-License-Identifier: Apache-2.0
"""``expunge forget``: people ask, every model forgets them, receipts prove it.

Requests are accepted a thousand at a time and then applied together. An accepted
request is kept whatever happens next. So if something fails, the receipts that exist
are still handed out, and the error says which requests remain.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..exceptions import Busy, ExpungeError, InvalidInput, UnknownSubject
from .common import (
    DONE,
    CommandFailed,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    count_releases_left,
    describe_releases_left,
    explain,
    find_exit_code,
    format_count,
    format_ids,
    print_json,
    print_note,
    print_text,
    require_file,
    show_progress,
)
from .receipts import IssuedReceipts, ReceiptFolder

if TYPE_CHECKING:
    from ..promise.certificate import Certificate
    from ..registry import ErasureRequest, Registry

# One transaction for each: few enough to show progress, many enough to be quick.
BATCH_SIZE = 1000
CONTINUE = "expunge forget --pending continues"

Item = TypeVar("Item")


@dataclass(frozen=True)
class ForgetCommand(RegistryOptions, ConfirmOptions):
    """Forget people in every model that holds them.

    Ids on the command line make one request. Each line of a file makes a request of its
    own. All accepted requests are applied together. Receipts are printed, one per line,
    or written to a folder.
    """

    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="People to forget: ids, or aliases such as email:ada@example.org.",
        ),
    ] = None
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A file of ids, one per line."),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the ids, if FILE is a table."),
    ] = None
    pending: Annotated[
        bool, typer.Option("--pending", help="Only apply requests accepted earlier.")
    ] = False
    request: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="Id of the request, 32 hexadecimal digits. Sent again, it is answered "
            "again but applied once.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")
    ] = False
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out ids that are in no model.")
    ] = False
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="How long to wait for other processes."
        ),
    ] = 30.0
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the receipts to a folder, with an index if ids are from a "
            "file.",
        ),
    ] = None

    def perform(self) -> int:
        """Accept and apply the requests, and hand out receipts."""
        people = self._read_people()
        with self.open_registry() as registry:
            if people is None:
                self._apply_pending(registry)
                return DONE
            people = people.resolve_aliases(registry)
            if self.dry_run:
                self._show_dry_run(registry, people)
            else:
                self._forget(registry, self._select_known(registry, people))
        return DONE

    def _read_people(self) -> "RequestedPeople | None":
        """Return the people to forget; None with --pending."""
        if [bool(self.ids), self.source is not None, self.pending].count(True) != 1:
            raise InvalidInput(
                "nobody to forget: give ids, a file with --from, or --pending"
            )
        if self.request is not None and not self.ids:
            raise InvalidInput(
                "--request without ids; give the ids of the people on the command line"
            )
        if self.pending and self.dry_run:
            raise InvalidInput(
                "--pending with --dry-run; expunge status lists pending requests"
            )
        if self.source is not None:
            require_file(self.source)
            return read_people(self.source, self.column)
        return take_people(self.ids) if self.ids else None

    def _select_known(
        self, registry: "Registry", people: "RequestedPeople"
    ) -> "RequestedPeople":
        """Return the people to make requests for; raise if some are unknown."""
        if people.listed is None and not self.skip_unknown:
            # The registry refuses unknown ids itself, except in a repeated request.
            return people
        known, unknown = people.split_known(registry)
        if not self.skip_unknown:
            refuse_unknown(unknown)
        elif unknown:
            print_note(f"left out, in no model: {unknown.describe(named=False)}")
        return known

    def _show_dry_run(self, registry: "Registry", people: "RequestedPeople") -> None:
        """Print what would happen; change nothing."""
        result = dry_run(registry, people)
        if self.as_json:
            print_json(result.to_json())
        else:
            result.print()
        if not self.skip_unknown:
            refuse_unknown(result.unknown)

    def _forget(self, registry: "Registry", people: "RequestedPeople") -> None:
        """Make the requests, apply them, and hand out their receipts."""
        if not people.ids:
            print_note("none of them is in a model; nothing was changed")
            self._print_receipts(IssuedReceipts({}))
            return
        n = format_count(len(people.ids), "person", plural="people")
        self.confirm(f"Forget {n} in every model that holds them?")
        asked = people.make_requests(self.request)
        listed = people.match_requests(asked)
        folder = None if self.receipts is None else ReceiptFolder(self.receipts)
        if folder is not None:
            folder.create(listed)
        try:
            outcome = apply_requests(registry, asked, wait=self.wait)
        except UnknownSubject:
            _, unknown = people.split_known(registry)
            refuse_unknown(unknown)  # in words for the operator
            raise
        receipts = outcome.receipts
        files = None if folder is None else folder.write(receipts)
        self._print_receipts(IssuedReceipts(receipts, listed, folder, files))
        where = folder.index if folder is not None and listed else "expunge status"
        outcome.require_complete(str(where))

    def _print_receipts(self, receipts: "IssuedReceipts") -> None:
        if self.as_json:
            print_json(receipts.to_json())
        elif receipts.receipts:
            receipts.print()

    def _apply_pending(self, registry: "Registry") -> None:
        """Apply the requests accepted earlier, and print how many."""
        before = registry.status().n_completed
        apply_accepted(registry, wait=self.wait)
        n_completed = registry.status().n_completed - before
        if self.as_json:
            print_json({"n_completed": n_completed})
        else:
            print_text(f"{format_count(n_completed, 'request')} completed")


@dataclass(frozen=True, slots=True)
class RequestedPeople:
    """The people to forget.

    Parameters
    ----------
    ids
        Normalised, in the order given, each once.
    listed
        All ids of a file, repetitions included; None if the ids are from the command
        line. People on the command line share a request; people in a file have a
        request each.
    """

    ids: tuple[str, ...]
    listed: tuple[str, ...] | None = None

    def resolve_aliases(self, registry: "Registry") -> "RequestedPeople":
        """Return these people by their ids; what is no alias is an id."""
        meant = dict(zip(self.ids, registry.aliases.resolve(self.ids), strict=True))
        listed = self.listed and tuple(meant[one] for one in self.listed)
        return RequestedPeople(tuple(dict.fromkeys(meant.values())), listed)

    def make_requests(self, request: str | None) -> "tuple[ErasureRequest, ...]":
        """Return the requests to send."""
        from ..registry import ErasureRequest

        if self.listed is not None:
            return tuple(ErasureRequest((one,)) for one in self.ids)
        if request is None:
            return (ErasureRequest(self.ids),)
        return (ErasureRequest(self.ids, request),)

    def match_requests(
        self, asked: "Sequence[ErasureRequest]"
    ) -> tuple[str | None, ...]:
        """Return the request of each line of the file; empty without a file."""
        requests = {one.subjects[0]: one.request for one in asked}
        return tuple(requests.get(one) for one in self.listed or ())

    def split_known(
        self, registry: "Registry"
    ) -> "tuple[RequestedPeople, UnknownPeople]":
        """Return the people that some model holds, and the others."""
        models = registry.requests.find_models(self.ids)
        known = tuple(one for one in self.ids if models[one])
        others = tuple(one for one in self.ids if not models[one])
        return RequestedPeople(known, self.listed), sort_unknown(registry, others)


def take_people(ids: Sequence[str]) -> RequestedPeople:
    """Return the people named on the command line."""
    from ..private_model.subjects import people

    return RequestedPeople(people(ids))


def read_people(path: Path, column: str | None) -> RequestedPeople:
    """Return the people listed in a file."""
    from ..private_model.subjects import people
    from ..tables import read_ids

    ids = read_ids(path, column)
    return RequestedPeople(people(ids), tuple(ids))


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
    """

    forgotten: tuple[str, ...]
    strangers: tuple[str, ...]

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


def refuse_unknown(unknown: UnknownPeople) -> None:
    """Raise if there are ids that no model holds."""
    if unknown:
        raise UnknownSubject(
            f"in no model: {unknown.describe(named=True)}; nothing was accepted; check "
            "the ids, or leave out such ids with --skip-unknown"
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
        missing = self.unknown.describe(named=False) or "nobody"
        print_note(f"{people}, in no model: {missing}; nothing was changed")


def dry_run(registry: "Registry", people: RequestedPeople) -> DryRun:
    """Find out what forgetting these people would change. This changes nothing."""
    held = registry.requests.find_models(people.ids)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    models = {name: (counts[name], certificates[name]) for name in sorted(counts)}
    others = [one for one in people.ids if not held[one]]
    return DryRun(len(people.ids), sort_unknown(registry, others), models)


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
    registry: "Registry", asked: "Sequence[ErasureRequest]", *, wait: float
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
                registry.requests.accept(batch)
                accepted += [one.request for one in batch]
                report(len(accepted), len(asked))
        apply_accepted(registry, wait=wait)
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


def apply_accepted(registry: "Registry", *, wait: float) -> None:
    """Apply all accepted requests, and show progress."""
    with show_progress("forgetting") as report:
        registry.requests.apply(wait, on_progress=report)


def split_into_batches(
    items: Sequence[Item], size: int = BATCH_SIZE
) -> Iterator[tuple[Item, ...]]:
    """Yield the items, at most ``size`` at a time."""
    rest = iter(items)
    while batch := tuple(islice(rest, size)):
        yield batch
