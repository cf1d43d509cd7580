# SPDX-License-Identifier: Apache-2.0
"""Commands on requests: forget, request; cancel, refuse or extend one that waits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InvalidInput, UnknownSubject
from .answering import (
    SKIP_UNKNOWN,
    IssuedReceipts,
    ReceiptFolder,
    RequestedPeople,
    apply_accepted,
    apply_requests,
    dry_run,
    read_people,
    refuse_unknown,
    require_fulfilled,
    require_in_time,
    take_people,
)
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    describe_deadline,
    format_count,
    print_json,
    print_note,
    print_text,
    request_to_json,
    require_file,
)

if TYPE_CHECKING:
    from ..registry import Registry, Request


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
class AnswerOptions(RegistryOptions, ConfirmOptions):
    """Options of every command that sends requests and hands out receipts."""

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
            help="The law that gives the deadline: gdpr, uk-gdpr or ccpa (default: "
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
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the receipts to a folder, with an index if ids are from a "
            "file.",
        ),
    ] = None

    def named(self, asked: "Request") -> "Request":
        """Return a request with the id that was given, if one was."""
        return asked if self.request is None else replace(asked, request=self.request)

    def answer(
        self,
        registry: "Registry",
        people: RequestedPeople,
        *,
        asked: "Sequence[Request]",
        strangers: bool = False,
        advice: str = SKIP_UNKNOWN,
    ) -> None:
        """Send requests, apply them, and hand out their receipts.

        ``advice`` says what to do about ids that no model holds.
        """
        listed = people.match_requests(asked)
        folder = None if self.receipts is None else ReceiptFolder(self.receipts)
        if folder is not None:
            folder.create(listed)
        try:
            outcome = apply_requests(
                registry, asked, wait=self.wait, strangers=strangers
            )
        except UnknownSubject:
            _, unknown = people.split_known(registry)
            refuse_unknown(unknown, advice)  # in words for the operator
            raise
        receipts = outcome.receipts
        files = None if folder is None else folder.write(receipts)
        self.print_receipts(IssuedReceipts(receipts, listed, folder, files))
        where = folder.index if folder is not None and listed else "expunge status"
        outcome.require_complete(str(where))
        require_fulfilled(receipts.values())

    def print_receipts(self, receipts: IssuedReceipts) -> None:
        """Print receipts, or where they are."""
        if self.as_json:
            print_json(receipts.to_json())
        elif receipts.receipts:
            receipts.print()


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

    def read_people(self, ids: list[str] | None) -> RequestedPeople:
        """Return the people that the command is about."""
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
            return take_people(ids)
        assert self.source is not None
        require_file(self.source)
        return read_people(self.source, self.column)

    def select_known(
        self, registry: "Registry", people: RequestedPeople
    ) -> RequestedPeople:
        """Return the people to make requests for; raise if some are unknown."""
        if self.answer_strangers or (people.listed is None and not self.skip_unknown):
            # The registry refuses unknown ids itself, except in a repeated request.
            return people
        known, unknown = people.split_known(registry)
        if not self.skip_unknown:
            refuse_unknown(unknown)
        elif unknown:
            print_note(f"left out, in no model: {unknown.describe(named=False)}")
        return known

    def file_requests(
        self,
        registry: "Registry",
        people: RequestedPeople,
        *,
        right: RightName,
        reason: str = "",
        until: str = "",
    ) -> None:
        """Make the requests, apply them, and hand out their receipts."""
        from ..registry import Request

        people = people.resolve_aliases(registry)
        if not self.exact:
            people.require_no_near_miss(registry)
        people = self.select_known(registry, people)
        if not people.ids:
            print_note("none of them is in a model; nothing was changed")
            self.print_receipts(IssuedReceipts({}))
            return
        n = format_count(people.n_people, "person", plural="people")
        self.confirm(QUESTIONS[right].format(people=n))
        asked = Request(
            (),
            right=right.value,
            regime=self.regime,
            submitted=self.submitted,
            reason=reason,
            until=until,
        )
        asked_for = people.make_requests(self.named(asked))
        self.answer(registry, people, asked=asked_for, strangers=self.answer_strangers)


@dataclass(frozen=True)
class ForgetCommand(RequestOptions):
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
    pending: Annotated[
        bool, typer.Option("--pending", help="Only apply requests accepted earlier.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")
    ] = False

    def perform(self) -> int:
        """Accept and apply the requests, and hand out receipts."""
        self._require_options()
        people = None if self.pending else self.read_people(self.ids)
        with self.open_registry() as registry:
            if people is None:
                self._apply_pending(registry)
            elif self.dry_run:
                self._show_dry_run(registry, people.resolve_aliases(registry))
            else:
                self.file_requests(registry, people, right=RightName.erase)
        return DONE

    def _require_options(self) -> None:
        """Raise unless the options say, once, what to do."""
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

    def _show_dry_run(self, registry: "Registry", people: RequestedPeople) -> None:
        """Print what would happen; change nothing."""
        if not self.exact:
            people.require_no_near_miss(registry)
        result = dry_run(registry, people)
        if self.as_json:
            print_json(result.to_json())
        else:
            result.print()
        if not self.skip_unknown and not self.answer_strangers:
            refuse_unknown(result.unknown)

    def _apply_pending(self, registry: "Registry") -> None:
        """Apply the requests accepted earlier, and print how many."""
        before = registry.status().n_completed
        apply_accepted(registry, wait=self.wait)
        n_completed = registry.status().n_completed - before
        if self.as_json:
            print_json({"n_completed": n_completed})
        else:
            print_text(f"{format_count(n_completed, 'request')} completed")


@dataclass(frozen=True)
class RequestCommand(RequestOptions):
    """Exercise a right of people: erase, object, restrict, lift, hold or end-hold.

    restrict serves every model without the people, whose rows are sealed apart until
    lift brings them back. hold forgets them in every model and keeps their rows sealed
    until a day; then they are erased. object does the same as erase; only the receipt
    differs. To replace a person's rows use expunge rectify.
    """

    right: Annotated[
        RightName, typer.Argument(metavar="RIGHT", help="What the people ask for.")
    ]
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Whom it is about: ids, or aliases such as email:ada@example.org.",
        ),
    ] = None
    reason: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="Of a hold: legal-claims, legal-duty, public-interest or research.",
        ),
    ] = ""
    until: Annotated[
        str, typer.Option(metavar="DAY", help="Of a hold: its last day.")
    ] = ""

    def perform(self) -> int:
        """Accept and apply the requests, and hand out receipts."""
        people = self.read_people(self.ids)
        with self.open_registry() as registry:
            self.file_requests(
                registry,
                people,
                right=self.right,
                reason=self.reason,
                until=self.until,
            )
        return DONE


@dataclass(frozen=True)
class CancelCommand(RegistryOptions, ConfirmOptions):
    """Take back a request that waits. It will not be applied, and gets no receipt."""

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]

    def perform(self) -> int:
        """Cancel the request."""
        with self.open_registry() as registry:
            self.confirm(f"Cancel request {self.request}?")
            status = registry.requests.cancel(self.request)
        if self.as_json:
            print_json(request_to_json(status))
        else:
            print_text(f"request {self.request} is cancelled")
        return DONE


@dataclass(frozen=True)
class ExactCommand(RegistryOptions):
    """State that a request means whom it names, and nobody else.

    It leaves the list of near misses (expunge status --near). Its answer stays.
    """

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]

    def perform(self) -> int:
        """Take the request off the list of near misses."""
        with self.open_registry() as registry:
            registry.requests.confirm_exact(self.request)
        if self.as_json:
            print_json({"request": self.request, "near": False})
        else:
            print_text(f"request {self.request} is no near miss")
        return DONE


@dataclass(frozen=True)
class RefuseCommand(RegistryOptions, ConfirmOptions):
    """Answer a request that waits with a refusal, and print the receipt.

    The reason is one of these codes, and is public: legal-duty, public-interest,
    research, legal-claims, unidentified, unfounded, not-applicable.
    """

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]
    reason: Annotated[str, typer.Option(metavar="CODE", help="Why it is refused.")]

    def perform(self) -> int:
        """Refuse the request and print its receipt."""
        with self.open_registry() as registry:
            self.confirm(f"Refuse request {self.request} ({self.reason})?")
            receipt = registry.requests.refuse(self.request, self.reason)
        print_text(receipt)
        require_in_time([receipt])
        return DONE


@dataclass(frozen=True)
class ExtendCommand(RegistryOptions, ConfirmOptions):
    """Extend the deadline of a request, once, as its law allows.

    The person must have been told, with the reason, by the first deadline. The
    extension is entered in the ledger.
    """

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]
    reason: Annotated[
        str,
        typer.Option(
            metavar="CODE",
            help="complex: the request is complex; many: there are many requests.",
        ),
    ]
    notified: Annotated[
        str, typer.Option(metavar="DAY", help="The day on which the person was told.")
    ]

    def perform(self) -> int:
        """Extend the deadline and print the new one."""
        with self.open_registry() as registry:
            self.confirm(f"Extend the deadline of request {self.request}?")
            status = registry.requests.extend(
                self.request, self.reason, notified=self.notified
            )
        if self.as_json:
            print_json(request_to_json(status))
        else:
            print_text(
                f"request {self.request} is due {describe_deadline(status.deadline)}"
            )
        return DONE
