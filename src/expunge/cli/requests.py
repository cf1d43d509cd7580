# SPDX-License-Identifier: Apache-2.0
"""``expunge forget``: people ask, every model forgets them, receipts prove it.

Asking: requests are accepted a thousand at a time and applied together.

What was accepted is kept whatever happens then. So a failure is not the end: receipts
that are there are handed out, and the rest is named together with what went wrong.

Receipts: where the answers to requests go.

To stdout, one a line, or into a folder. For a file of ids there is an index beside
them, written before the first request is accepted: whatever happens then, it says which
id of the file became which request, by its place. It names nobody.

Rehearsal: what forgetting people would do, without doing it.

People: whom a command line or a file asks to forget, and who of them is known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import Busy, ExpungeError, InvalidInput, UnknownSubject
from .options import DONE, Failed, OnRegistry, exit_code, reason, require_file
from .output import (
    Table,
    counted,
    left,
    left_in_words,
    note,
    progress,
    say,
    say_json,
    some,
)

if TYPE_CHECKING:
    from ..promise.certificate import Certificate
    from ..registry import ErasureRequest, Registry


INDEX = "index.csv"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for receipts: one file for each, named by its request."""

    path: Path

    @property
    def index(self) -> Path:
        """Which id of a file became which request."""
        return self.path / INDEX

    def begin(self, listed: Sequence[str | None]) -> None:
        """Make the folder; write the index if a file lists anybody."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not listed:
            return
        lines = [f"{place},{one or ''}" for place, one in enumerate(listed, start=1)]
        try:
            with self.index.open("x", encoding="ascii") as file:
                file.write("\n".join(["place,request", *lines]) + "\n")
        except FileExistsError:
            raise InvalidInput(
                f"{self.index} is that of an earlier file; give another folder"
            ) from None

    def keep(self, receipts: Mapping[str, str]) -> dict[str, Path]:
        """Write receipts, byte for byte, and return where they are."""
        files = {request: self.path / f"{request}.json" for request in receipts}
        for request, file in files.items():
            file.write_text(receipts[request], encoding="utf-8")
        return files


@dataclass(frozen=True, slots=True)
class Answers:
    """Receipts by request, and where they were written.

    ``listed`` holds for each id of a file, in order, the request that it became; None
    for those that were left out.
    """

    receipts: Mapping[str, str]
    listed: Sequence[str | None] = ()
    folder: Folder | None = None
    files: Mapping[str, Path] | None = None

    def in_json(self) -> dict[str, Any]:
        """Return them as JSON data; a receipt is text, since every byte counts."""
        files = self.files or {}
        requests = [
            {
                "request": request,
                "receipt": receipt,
                "file": str(files[request]) if request in files else None,
            }
            for request, receipt in self.receipts.items()
        ]
        return {"requests": requests, "listed": self.listed}

    def show(self) -> None:
        """Print the receipts, or where they are."""
        if self.folder is None or self.files is None:
            say(*self.receipts.values())
        elif self.listed:
            say(f"{len(self.files)} receipts in {self.folder.path}")
            say(f"{self.folder.index} says which id became which request")
        else:
            say(*map(str, self.files.values()))


CHUNK = 1000


@dataclass(frozen=True, slots=True)
class People:
    """Ids in the order given, each once.

    Parameters
    ----------
    ids
        In their one spelling.
    listed
        As a file lists them, repetitions included; None for the command line. People
        on the command line ask together, people in a file each for themselves.
    """

    ids: tuple[str, ...]
    listed: tuple[str, ...] | None = None

    def asked(self, request: str | None) -> "tuple[ErasureRequest, ...]":
        """Return the requests to make."""
        from ..registry import ErasureRequest

        if self.listed is not None:
            return tuple(ErasureRequest((one,)) for one in self.ids)
        if request is None:
            return (ErasureRequest(self.ids),)
        return (ErasureRequest(self.ids, request),)

    def places(self, asked: "Sequence[ErasureRequest]") -> tuple[str | None, ...]:
        """Return for each place of the file its request; nothing without a file."""
        requests = {one.subjects[0]: one.request for one in asked}
        return tuple(requests.get(one) for one in self.listed or ())

    def held(self, registry: "Registry") -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them. This changes nothing."""
        held: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(self.ids), CHUNK):
            several = self.ids[start : start + CHUNK]
            held |= registry.requests.find_models(several)
        return held

    def known(self, registry: "Registry") -> "tuple[People, tuple[str, ...]]":
        """Return those whom some model holds, and the others."""
        held = self.held(registry)
        known = tuple(one for one in self.ids if held[one])
        unknown = tuple(one for one in self.ids if not held[one])
        return People(known, self.listed), unknown


def typed(ids: Sequence[str]) -> People:
    """Return the people that the command line names."""
    from ..private_model.subjects import people

    return People(people(ids))


def filed(path: Path, column: str | None) -> People:
    """Return the people that a file lists."""
    from ..private_model.subjects import people
    from .tables import read_ids

    ids = read_ids(path, column)
    return People(people(ids), tuple(ids))


def refuse_unknown(unknown: Sequence[str]) -> None:
    """Refuse a request about people whom no model holds."""
    if unknown:
        raise UnknownSubject(
            f"{counted(len(unknown), 'id is', 'ids are')} in no model: "
            f"{some(unknown)}; nothing was accepted; correct them, or leave them out "
            "with --skip-unknown"
        )


GO_ON = "expunge forget --pending goes on"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of requests.

    Parameters
    ----------
    receipts
        Of those that are completed, by request.
    late
        Those that are accepted and not completed.
    n_refused
        How many were not accepted.
    failure
        What went wrong, if anything did.
    """

    receipts: dict[str, str]
    late: tuple[str, ...]
    n_refused: int
    failure: ExpungeError | None

    def require_complete(self, where: str) -> None:
        """Raise unless every request is completed; ``where`` lists the others."""
        if not self.late and not self.n_refused:
            return
        failure = self.failure or Busy("somebody else is at work")
        words = [reason(failure)]
        if len(self.late) == 1:
            words.append(f"request {self.late[0]} is accepted and kept; {GO_ON}")
        elif self.late:
            kept = f"{len(self.late)} requests are accepted and kept"
            words.append(f"{kept}, {where} lists them; {GO_ON}")
        if self.n_refused:
            refused = counted(self.n_refused, "request was", "requests were")
            words.append(f"{refused} not accepted, send them again")
        raise Failed("; ".join(words), exit_code(failure)) from failure


def forgotten(
    registry: "Registry", asked: "Sequence[ErasureRequest]", wait: float
) -> Outcome:
    """Accept requests and apply all that wait; return what became of them."""
    accepted: list[str] = []
    failure: ExpungeError | None = None
    try:
        with progress("accepting") as watch:
            for start in range(0, len(asked), CHUNK):
                several = asked[start : start + CHUNK]
                registry.requests.accept(several)
                accepted += [one.request for one in several]
                watch(len(accepted), len(asked))
        apply(registry, wait)
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
    late = tuple(request for request in accepted if request not in receipts)
    return Outcome(receipts, late, len(asked) - len(accepted), failure)


def apply(registry: "Registry", wait: float) -> None:
    """Apply everything accepted, with a bar."""
    with progress("forgetting") as watch:
        registry.requests.apply(wait, on_progress=watch)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Whom which model holds, whom none does, and what the contracts have left.

    Parameters
    ----------
    people
        Everybody asked for.
    unknown
        Those whom no model holds.
    models
        For each model that would change, how many of them it holds, and the
        certificate of its release.
    """

    people: People
    unknown: tuple[str, ...]
    models: "dict[str, tuple[int, Certificate]]"

    def in_json(self) -> dict[str, Any]:
        """Return it as JSON data; nobody is named."""
        return {
            "n_people": len(self.people.ids),
            "n_unknown": len(self.unknown),
            "models": {
                name: {"n_people": n, "releases_left": left(certificate)}
                for name, (n, certificate) in self.models.items()
            },
        }

    def show(self) -> None:
        """Print it."""
        lines = [
            (str(n), left_in_words(certificate), name)
            for name, (n, certificate) in self.models.items()
        ]
        Table(("people", "releases left", "model"), tuple(lines)).show()
        asked = counted(len(self.people.ids), "person", "people")
        note(f"{asked}, {len(self.unknown)} in no model; nothing was changed")


def rehearse(registry: "Registry", people: People) -> Rehearsal:
    """Return what forgetting these people would do. This changes nothing."""
    held = people.held(registry)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    models = {name: (counts[name], certificates[name]) for name in sorted(counts)}
    unknown = tuple(one for one in people.ids if not held[one])
    return Rehearsal(people, unknown, models)


@dataclass(frozen=True)
class Forget(OnRegistry):
    """Forget people, in every model that holds them.

    Ids on the command line are one request about all of them. Each line of a file is a
    request of its own. Whatever was accepted is applied together. Receipts are
    printed, one a line, or written into a folder.
    """

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Whom to forget.")
    ] = None
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A file of ids, one a line."),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Where the ids are, in a table."),
    ] = None
    pending: Annotated[
        bool, typer.Option("--pending", help="Only apply what was accepted before.")
    ] = False
    request: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="Name the request, by 32 hexadecimal digits: given again it is "
            "answered again, and done once.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would happen.")
    ] = False
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out ids that no model holds.")
    ] = False
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="How long to wait for others."),
    ] = 30.0
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write receipts there, and for a file an index."
        ),
    ] = None

    def perform(self) -> int:
        """Accept and apply the requests, and hand out receipts."""
        people = self._people()
        with self.opened() as registry:
            if people is None:
                self._apply_pending(registry)
            elif self.dry_run:
                self._rehearse(registry, people)
            else:
                self._forget(registry, self._wanted(registry, people))
        return DONE

    def _people(self) -> People | None:
        """Return whom the command line asks to forget; None for nobody new."""
        if [bool(self.ids), self.source is not None, self.pending].count(True) != 1:
            raise InvalidInput(
                "whom to forget? give ids, or a file with --from, or --pending"
            )
        if self.request is not None and not self.ids:
            raise InvalidInput("--request names one request; give its ids beside it")
        if self.pending and self.dry_run:
            raise InvalidInput("--pending beside --dry-run; expunge status lists it")
        if self.source is not None:
            require_file(self.source)
            return filed(self.source, self.column)
        return typed(self.ids) if self.ids else None

    def _wanted(self, registry: "Registry", people: People) -> People:
        """Return the people to ask for: all of them, or those whom a model holds."""
        if people.listed is None and not self.skip_unknown:
            # Accepting refuses strangers, unless it knows the request.
            return people
        known, unknown = people.known(registry)
        if not self.skip_unknown:
            refuse_unknown(unknown)
        elif unknown:
            note(f"left out {counted(len(unknown), 'id')} that no model holds")
        return known

    def _rehearse(self, registry: "Registry", people: People) -> None:
        """Say what would happen; change nothing."""
        found = rehearse(registry, people)
        if self.as_json:
            say_json(found.in_json())
        else:
            found.show()
        if not self.skip_unknown:
            refuse_unknown(found.unknown)

    def _forget(self, registry: "Registry", people: People) -> None:
        """Make the requests and hand out their receipts."""
        if not people.ids:
            note("no model holds any of them; nothing was changed")
            self._answer(Answers({}))
            return
        asked = people.asked(self.request)
        listed = people.places(asked)
        folder = None if self.receipts is None else Folder(self.receipts)
        if folder is not None:
            folder.begin(listed)
        outcome = forgotten(registry, asked, self.wait)
        receipts = outcome.receipts
        files = None if folder is None else folder.keep(receipts)
        self._answer(Answers(receipts, listed, folder, files))
        where = folder.index if folder is not None and listed else "expunge status"
        outcome.require_complete(str(where))

    def _answer(self, answers: Answers) -> None:
        """Print receipts, or where they are."""
        if self.as_json:
            say_json(answers.in_json())
        elif answers.receipts:
            answers.show()

    def _apply_pending(self, registry: "Registry") -> None:
        """Apply what was accepted before."""
        before = registry.status().n_completed
        apply(registry, self.wait)
        done = registry.status().n_completed - before
        if self.as_json:
            say_json({"n_completed": done})
        else:
            say(f"{counted(done, 'request')} completed")
