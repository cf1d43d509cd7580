# SPDX-License-Identifier: Apache-2.0
"""Commands on requests: forget, request; cancel, refuse or extend one that waits.

An accepted request is kept whatever happens next. So if something fails, the receipts
that exist are still handed out, and the error says which requests remain.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import Busy, InvalidInput, UnknownSubject
from ..rights.standing import describe_outcome
from .options import (
    FOLDER,
    Folder,
    RequestId,
    Yes,
    note,
    open_registry,
    operator,
    require_file,
)
from .output import (
    LATE,
    NEAR_MISS,
    PARTLY,
    REFUSED,
    CommandFailed,
    Result,
    TextTable,
    confirm,
    count_releases_left,
    describe_deadline,
    describe_releases_left,
    explain,
    find_exit_code,
    format_count,
    format_people,
    print_note,
    show_named_progress,
    show_progress,
)

if TYPE_CHECKING:
    from ..registry import (
        MeantPeople,
        Registry,
        Request,
        RequestStatus,
        SortedPeople,
        SubmittedRequests,
    )

CONTINUE = "expunge forget --pending continues"
SKIP_UNKNOWN = "check the ids, or leave out such ids with --skip-unknown"
# Enough of an id to recognise a typing error, and of a list to see what it holds.
ID_LENGTH, N_SHOWN_IDS = 40, 3


def format_ids(ids: Sequence[str]) -> str:
    """Return the first few ids that the operator typed, in ASCII and cut short."""
    shown = [
        ascii(id_[:ID_LENGTH]) + "..." * (len(id_) > ID_LENGTH)
        for id_ in ids[:N_SHOWN_IDS]
    ]
    rest = len(ids) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def look_up(
    registry: "Registry", words: Sequence[str], *, exact: bool
) -> "MeantPeople":
    """Return whom words mean; raise if one is almost somebody else's id.

    Before anything is accepted: an answer that is signed cannot be taken back.
    """
    found = registry.requests.look_up(words, near=not exact)
    if not found.near:
        return found
    shown = [
        f"{format_ids([word])}{f' (held as {format_ids([held])})' if held else ''}"
        for word, held in list(found.near.items())[:N_SHOWN_IDS]
    ]
    rest = len(found.near) - len(shown)
    more = f" and {rest} more" if rest else ""
    raise CommandFailed(
        f"{', '.join(shown)}{more}: somebody else is held whose id differs only in "
        "case, spacing, width, zeros or the kind before it; nothing was accepted; "
        "give the id as your records spell it, or --exact if you mean nobody but "
        "whom you named",
        NEAR_MISS,
    )


def describe_unknown(people: "SortedPeople", *, named: bool) -> str:
    """Return in words how many ids are in no model, with the first few of them.

    The difference is for the operator's eyes: exit codes and documents do not tell it.
    """
    parts = []
    for ids, words in (
        (people.strangers, "not known here"),
        (people.forgotten, "already forgotten"),
    ):
        if ids:
            shown = f" ({format_ids(ids)})" if named else ""
            parts.append(f"{format_count(len(ids), 'id')} {words}{shown}")
    return ", ".join(parts)


def unknown_error(
    people: "SortedPeople", meant: "MeantPeople", *, advice: str = SKIP_UNKNOWN
) -> UnknownSubject:
    """Return the error about ids that no model holds; it says what to do."""
    return UnknownSubject(
        f"in no model: {describe_unknown(people, named=True)}, looked for as "
        f"{', '.join(meant.tried)}; nothing was accepted; {advice}"
    )


class RightName(StrEnum):
    """What people can ask for without new rows."""

    erase = "erase"
    object = "object"
    restrict = "restrict"
    lift = "lift"
    hold = "hold"
    end_hold = "end-hold"


QUESTIONS = {
    RightName.erase: "Forget {people} in every model that holds them?",
    RightName.object: "Forget {people}, who object, in every model that holds them?",
    RightName.restrict: "Serve models without {people}, and seal their rows apart?",
    RightName.lift: "Bring the sealed rows of {people} back into the models?",
    RightName.hold: "Forget {people} in every model, and hold their rows sealed?",
    RightName.end_hold: "Erase the held rows of {people}?",
}


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options of every command that sends requests and hands out receipts."""

    yes: Yes = False
    registry: Folder = FOLDER
    request: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="Id of the request, 32 hexadecimal digits. Sent again, it is answered "
            "again but applied once.",
        ),
    ] = None
    regime: Annotated[
        str | None,
        typer.Option(
            metavar="LAW",
            help="The law that gives the deadline, such as gdpr or ccpa (default: "
            "that of the registry).",
        ),
    ] = None
    submitted: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            help="The day on which the person asked (default: today); the deadline "
            "counts from it.",
        ),
    ] = None
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="How long to wait for other processes."
        ),
    ] = 30.0
    reference: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Such as the number of a ticket; sealed, and in no ledger.",
        ),
    ] = ""
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the receipts to a folder, with an index if ids are from a "
            "file.",
        ),
    ] = None

    def name_request(self, request: "Request") -> "Request":
        """Return a request with the id that was given, if one was."""
        if self.request is None:
            return request
        return replace(request, request=self.request)


@dataclass(frozen=True, kw_only=True)
class RequestOptions(AnswerOptions):
    """Options of every command that is about any number of people."""

    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A file of ids, one per line."),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the ids, if FILE is a table."),
    ] = None
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out ids that are in no model.")
    ] = False
    answer_strangers: Annotated[
        bool,
        typer.Option(
            "--answer-strangers",
            help="Accept and answer requests of people of whom nothing is held, like "
            "any other.",
        ),
    ] = False

    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Go on where somebody else is held whose id differs only in case, "
            "spacing, width or zeros.",
        ),
    ] = False

    def read_words(self, ids: list[str] | None) -> Sequence[str]:
        """Return the words that name people: given, or the lines of a file."""
        if bool(ids) == (self.source is not None):
            raise InvalidInput("nobody is named: give ids, or a file with --from")
        if self.request is not None and not ids:
            raise InvalidInput(
                "--request without ids; give the ids of the people on the command line"
            )
        if self.skip_unknown and self.answer_strangers:
            raise InvalidInput(
                "--skip-unknown with --answer-strangers; give only one of them"
            )
        if ids:
            return ids
        from ..tables import read_ids

        assert self.source is not None
        require_file(self.source)
        return read_ids(self.source, self.column)


def warn_of_clock(registry: "Registry") -> None:
    """Say first if the clock is doubtful: what is entered now dates every receipt."""
    clock = registry.clock()
    if clock.state == "ahead":
        print_note(clock.warning)


def explain_pending(submitted: "SubmittedRequests", where: str) -> CommandFailed | None:
    """Return what there is to say of requests that remain; ``where`` lists them."""
    pending, n_refused = submitted.pending, submitted.n_refused
    if not pending and not n_refused:
        return None
    failure = submitted.failure or Busy("another process is at work")
    parts = [explain(failure)]
    if len(pending) == 1:
        parts.append(f"request {pending[0]} is accepted and kept; {CONTINUE}")
    elif pending:
        kept = f"{len(pending)} requests are accepted and kept"
        parts.append(f"{kept}, {where} lists them; {CONTINUE}")
    if n_refused:
        refused = format_count(n_refused, "request was", plural="requests were")
        parts.append(f"{refused} not accepted, send them again")
    error = CommandFailed("; ".join(parts), find_exit_code(failure))
    error.__cause__ = failure
    return error


def create_receipt_folder(folder: Path, listed: Sequence[str | None]) -> Path:
    """Create a folder of receipts; return the path of its index.

    For a file of ids the index is written, before the first request is accepted. It
    says which line of the file became which request, and names nobody.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.csv"
    if listed:
        rows = [f"{place},{one or ''}" for place, one in enumerate(listed, start=1)]
        try:
            with index.open("x", encoding="utf-8") as file:
                file.write("\n".join(["place,request", *rows]) + "\n")
        except FileExistsError:
            raise InvalidInput(
                f"{index} is the index of an earlier file; give another folder"
            ) from None
    return index


def find_shortfall(receipts: Sequence[Mapping[str, Any]]) -> CommandFailed | None:
    """Return the error, with a code of its own, if people did not get what they asked.

    A refusal counts before an answer in part, and one that is late comes last. People
    of whom nothing is held are answered like any others.
    """
    entries = [receipt["entry"] for receipt in receipts]
    outcomes = Counter(entry["outcome"] for entry in entries)
    late = sum(entry["day"] > entry["deadline"] for entry in entries)
    for n, words, code in (
        (outcomes["refused"], "refused; the receipts say why", REFUSED),
        (outcomes["partly"], "fulfilled only in part; the receipts say why", PARTLY),
        (late, "after the deadline; the receipts say when", LATE),
    ):
        if n:
            requests = format_count(len(entries), "request")
            return CommandFailed(f"of {requests} answered: {n} {words}", code)
    return None


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
    people = format_people(n_people)
    changed = format_count(len(models), "model") if models else "no model"
    entries = [receipt["entry"] for receipt in receipts]
    rights = {entry["right"] for entry in entries}
    outcomes = Counter(
        describe_outcome(entry["outcome"], entry["reason"]) for entry in entries
    )
    if models and rights == {"erase"} and set(outcomes) == {"done"}:
        return f"{people} removed from {changed}"
    reached = ", ".join(
        outcome if len(outcomes) == 1 else f"{n} {outcome}"
        for outcome, n in sorted(outcomes.items())
    )
    return f"{', '.join(sorted(rights))}, {people}: {reached}; {changed} changed"


def answer_requests(
    registry: "Registry",
    requests: "Sequence[Request]",
    *,
    meant: "MeantPeople",
    asked: AnswerOptions,
    listed: Sequence[str | None] = (),
    strangers: bool = False,
    advice: str = SKIP_UNKNOWN,
) -> Result:
    """Send requests, apply them, and hand out their receipts.

    ``listed`` has the request of each line of a file. ``advice`` says what to do about
    ids that no model holds.
    """
    # First, since what is entered now dates every later receipt.
    warn_of_clock(registry)
    folder, index = asked.receipts, None
    if folder is not None:
        index = create_receipt_folder(folder, listed)
    try:
        with show_named_progress("accepting") as report:
            outcome = registry.requests.submit(
                requests, wait=asked.wait, strangers=strangers, on_progress=report
            )
    except UnknownSubject:
        found = registry.requests.sort_people(meant.ids)
        raise unknown_error(found, meant, advice=advice) from None
    sent = [*outcome.receipts, *outcome.pending]
    if sent:
        note(registry, "send request", *sent)
    if asked.reference:
        from ..registry import Remark

        registry.requests.remark_all(dict.fromkeys(sent, Remark(asked.reference)))
    files = {}
    if folder is not None:
        for request, receipt in outcome.receipts.items():
            files[request] = folder / f"{request}.json"
            files[request].write_text(receipt, encoding="utf-8")
    receipts = {id_: json.loads(text) for id_, text in outcome.receipts.items()}
    where = str(index) if index is not None and listed else "expunge status"
    error = explain_pending(outcome, where) or find_shortfall([*receipts.values()])
    # Spelled by RFC 8785 a receipt has its bytes again, which are what is signed.
    n_people, models = count_changed(receipts.values())
    data = {
        "n_people": n_people,
        "models": models,
        "requests": [
            {
                "request": request,
                "receipt": receipt,
                "file": str(files[request]) if files else None,
            }
            for request, receipt in receipts.items()
        ],
        "listed": listed,
    }
    if not receipts:
        return Result(data, error=error)
    said = describe_answers([*receipts.values()])
    text = [*outcome.receipts.values()]
    notes = [said]  # redirected to a file, stdout is the receipt alone
    if folder is not None and not listed:
        text, notes = [f"{said}; receipt in {files.popitem()[1]}"], []
    elif folder is not None:
        kept = f"{said}; {format_count(len(files), 'receipt')} in {folder}"
        text, notes = [kept, f"{index} says which id became which request"], []
    return Result(data, text, notes, error=error)


def file_requests(
    registry: "Registry",
    words: Sequence[str],
    *,
    right: RightName,
    asked: RequestOptions,
    reason: str = "",
    until: str = "",
) -> Result:
    """Make the requests, apply them, and hand out their receipts."""
    from ..registry import Request

    meant, is_file = (
        look_up(registry, words, exact=asked.exact),
        asked.source is not None,
    )
    ids = meant.ids
    # The registry refuses unknown ids itself, except in a repeated request.
    if not asked.answer_strangers and (is_file or asked.skip_unknown):
        found = registry.requests.sort_people(ids)
        ids, unknown = found.known, describe_unknown(found, named=False)
        if unknown and not asked.skip_unknown:
            raise unknown_error(found, meant)
        if unknown:
            print_note(f"left out, in no model: {unknown}")
    if not ids:
        nothing = {"n_people": 0, "models": [], "requests": [], "listed": []}
        why = "none of them is in a model; nothing was changed"
        return Result(nothing, warnings=[why])
    n_people = meant.count(ids)
    confirm(QUESTIONS[right].format(people=format_people(n_people)), yes=asked.yes)
    request = Request(
        ids,
        right=right.value,
        regime=asked.regime,
        submitted=asked.submitted,
        reason=reason,
        until=until,
        n_people=n_people,
    )
    requests, listed = [asked.name_request(request)], []
    if is_file:  # a request for each person that it lists
        known = {*ids}
        lines = [
            tuple(id_ for id_ in meant.meant[word] if id_ in known) for word in words
        ]
        each = {
            line: replace(
                request, subjects=line, n_people=1, request=Request(()).request
            )
            for line in lines
            if line
        }
        requests = [*each.values()]
        listed = [each[line].request if line else None for line in lines]
    return answer_requests(
        registry,
        requests,
        meant=meant,
        asked=asked,
        listed=listed,
        strangers=asked.answer_strangers,
    )


def forget(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="People to forget: ids, or aliases such as email:ada@example.org.",
        ),
    ] = None,
    *,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only apply requests accepted earlier.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")
    ] = False,
    asked: RequestOptions,
) -> Result:
    """Forget people in every model that holds them.

    Ids on the command line make one request. Each line of a file makes a request of its
    own. All accepted requests are applied together. Receipts are printed, one per line,
    or written to a folder.
    """
    if [bool(ids), asked.source is not None, pending].count(True) != 1:
        raise InvalidInput(
            "nobody to forget: give ids, a file with --from, or --pending"
        )
    if asked.request is not None and not ids:
        raise InvalidInput(
            "--request without ids; give the ids of the people on the command line"
        )
    if pending and dry_run:
        raise InvalidInput(
            "--pending with --dry-run; expunge status lists pending requests"
        )
    if pending:
        with open_registry(asked.registry) as registry:
            before = registry.status().n_completed
            warn_of_clock(registry)
            with show_progress("forgetting") as report:
                registry.requests.apply(asked.wait, on_progress=report)
            n = registry.status().n_completed - before
        return Result({"n_completed": n}, f"{format_count(n, 'request')} completed")
    words = asked.read_words(ids)
    with open_registry(asked.registry) as registry:
        if dry_run:
            return _show_dry_run(registry, words, asked=asked)
        return file_requests(registry, words, right=RightName.erase, asked=asked)


def _show_dry_run(
    registry: "Registry", words: Sequence[str], *, asked: RequestOptions
) -> Result:
    """Show what would happen; change nothing."""
    meant = look_up(registry, words, exact=asked.exact)
    held = registry.requests.find_models(meant.ids)
    counts = Counter(name for names in held.values() for name in names)
    certificates = {model.name: model.certificate for model in registry.status().models}
    found = registry.requests.sort_people(meant.ids)
    n_people = meant.count(meant.ids)
    n_unknown = len(found.strangers) + len(found.forgotten)
    models = {
        name: {
            "n_people": n,
            "releases_left": count_releases_left(certificates[name]),
        }
        for name, n in sorted(counts.items())
    }
    data = {
        "n_people": n_people,
        "n_unknown": n_unknown,
        "n_forgotten": len(found.forgotten),
        "models": models,
    }
    rows = [
        (str(n), describe_releases_left(certificates[name]), name)
        for name, n in sorted(counts.items())
    ]
    table = TextTable(("people", "releases left", "model"), rows)
    known = "all of them known"
    if n_unknown:
        known = f"in no model: {describe_unknown(found, named=False)}"
    note = f"{format_people(n_people)}, {known}; nothing was changed"
    refused = n_unknown and not asked.skip_unknown and not asked.answer_strangers
    error = unknown_error(found, meant) if refused else None
    return Result(data, table, [note], error=error)


def request(
    right: Annotated[
        RightName, typer.Argument(metavar="RIGHT", help="What the people ask for.")
    ],
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Whom it is about: ids, or aliases such as email:ada@example.org.",
        ),
    ] = None,
    *,
    reason: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="Of a hold: legal-claims, legal-duty, public-interest or research.",
        ),
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="DAY", help="Of a hold: its last day.")
    ] = "",
    asked: RequestOptions,
) -> Result:
    """Exercise a right of people: erase, object, restrict, lift, hold or end-hold.

    restrict serves every model without the people, whose rows are sealed apart until
    lift brings them back. hold forgets them in every model and keeps their rows sealed
    until a day; then they are erased. object does the same as erase; only the receipt
    differs. To replace a person's rows use expunge rectify.
    """
    words = asked.read_words(ids)
    with open_registry(asked.registry) as registry:
        return file_requests(
            registry, words, right=right, asked=asked, reason=reason, until=until
        )


def cancel(
    request: RequestId, *, yes: Yes = False, registry: Folder = FOLDER
) -> Result:
    """Take back a request that waits. It will not be applied, and gets no receipt."""
    with open_registry(registry) as opened:
        confirm(f"Cancel request {request}?", yes=yes)
        status = opened.requests.cancel(request)
        note(opened, "cancel", request)
    return Result(status.to_json(), f"request {request} is cancelled")


def exact(request: RequestId, *, registry: Folder = FOLDER) -> Result:
    """State that a request means whom it names, and nobody else.

    It leaves the list of near misses (expunge status --near). Its answer stays.
    """
    with open_registry(registry) as opened:
        opened.requests.confirm_exact(request)
        note(opened, "confirm exact", request)
    told = {"request": request, "near": False}
    return Result(told, f"request {request} is no near miss")


def approve(
    request: RequestId,
    *,
    identity: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="State that it was checked who asks: by account, message, document, "
            "in-person or sender.",
        ),
    ] = "",
    registry: Folder = FOLDER,
) -> Result:
    """Approve a request that waits for it, or state that it was checked who asks.

    Where two people must approve, each shows a token that says whose it is, in the
    environment as EXPUNGE_TOKEN.
    """
    with open_registry(registry) as opened:
        if identity:
            one = opened.requests.check_identity(request, identity, by=operator())
        else:
            one = opened.requests.approve(request, by=operator())
    return show_wait(one)


def wait(
    request: RequestId,
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            help="Its last day of waiting (default: a week before its deadline).",
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Let a request wait. It goes on by itself as its deadline nears."""
    with open_registry(registry) as opened:
        return show_wait(opened.requests.wait(request, until, by=operator()))


def proceed(request: RequestId, *, registry: Folder = FOLDER) -> Result:
    """Let a request go on that waits for its operator, or was extended."""
    with open_registry(registry) as opened:
        return show_wait(opened.requests.proceed(request, by=operator()))


def remark(
    request: RequestId,
    *,
    reference: Annotated[
        str, typer.Option(metavar="TEXT", help="Such as the number of a ticket.")
    ] = "",
    words: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="Any text.")
    ] = "",
    registry: Folder = FOLDER,
) -> Result:
    """Write a reference and a note beside a request, in place of what is there.

    Both are sealed, and in neither journal, ledger nor receipt. Without either option
    what is there is erased.
    """
    with open_registry(registry) as opened:
        if reference or words:
            opened.requests.remark(request, reference, note=words)
        else:
            opened.requests.erase_remarks([request])
        note(opened, "write remark", request)
    return Result({"request": request}, f"written beside request {request}")


def outcomes(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="File to write (default: print)."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Only what was asked on this day or later."),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Print what became of requests as CSV, for a ticket system.

    A cell that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    with open_registry(registry) as opened:
        text = opened.requests.outcomes(since=since)
        note(opened, "download outcomes")
    if file is not None:
        file.write_text(text, encoding="utf-8", newline="")
        return Result({"file": str(file)}, f"wrote {file}")
    return Result({"csv": text}, text.rstrip("\r\n"))


def show_wait(one: "RequestStatus") -> Result:
    """Return what a request waits for now."""
    waits = f"waits for {one.waits_for}" if one.waits_for else "can be applied"
    return Result(one.to_json(), f"request {one.request} {waits}")


def refuse(
    request: RequestId,
    *,
    reason: Annotated[str, typer.Option(metavar="CODE", help="Why it is refused.")],
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Answer a request that waits with a refusal, and print the receipt.

    The reason is one of these codes, and is public: legal-duty, public-interest,
    research, legal-claims, unidentified, unfounded, not-applicable.
    """
    with open_registry(registry) as opened:
        confirm(f"Refuse request {request} ({reason})?", yes=yes)
        receipt = opened.requests.refuse(request, reason)
        note(opened, "refuse", request)
    entry = json.loads(receipt)["entry"]
    late = find_shortfall([{"entry": entry | {"outcome": ""}}])  # the refusal is meant
    return Result(text=receipt, error=late)


def extend(
    request: RequestId,
    *,
    reason: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="complex: the request is complex; many: there are many requests.",
        ),
    ],
    notified: Annotated[
        str, typer.Option(metavar="DAY", help="The day on which the person was told.")
    ],
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Extend the deadline of a request, once, as its law allows.

    The person must have been told, with the reason, by the first deadline. The
    extension is entered in the ledger.
    """
    with open_registry(registry) as opened:
        confirm(f"Extend the deadline of request {request}?", yes=yes)
        status = opened.requests.extend(request, reason, notified=notified)
        note(opened, "extend", request)
    due = f"request {request} is due {describe_deadline(status.deadline)}"
    return Result(status.to_json(), due)
