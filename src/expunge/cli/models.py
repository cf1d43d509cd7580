# SPDX-License-Identifier: Apache-2.0
"""``expunge plan``: how many people may go under a model's contract.

``expunge reanchor``: private state that has never seen those who left.

``expunge release``: a model leaves as one file, and copies of it come back.

``expunge audit``: open a model's private record and try to break its promise.
"""

import os
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .options import DOES_NOT_STAND, DONE, OnRegistry
from .output import note, paragraph, points, release_json, say, say_json

if TYPE_CHECKING:
    from ..audit import AuditReport
    from ..promise.verification import Verdict
    from ..registry import Registry


@dataclass(frozen=True)
class Plan(OnRegistry):
    """Say how many rows may go under a contract.

    And what its noise costs. It looks at the rows that are kept: a contract chosen
    from its figures is not covered by any certificate. Keep them to yourself.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]

    def perform(self) -> int:
        """Plan on the rows kept and print the tables."""
        from ..plan import PlanningLooksAtData

        with self.opened() as registry, warnings.catch_warnings():
            # The table says it too, as a sentence rather than as a line of code.
            warnings.simplefilter("ignore", PlanningLooksAtData)
            report = registry.plan(self.name)
        if self.as_json:
            say_json(asdict(report))
        else:
            note("this looked at the rows that are kept: keep it to yourself")
            say(report.table().rstrip())
        return DONE


@dataclass(frozen=True)
class Reanchor(OnRegistry):
    """Make the private state of a model anew from the rows that are left.

    The old one was fitted with everybody, and whoever opens it could learn of removed
    rows. It takes a pass over all rows, and releases nothing.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]

    def perform(self) -> int:
        """Do it and say so."""
        with self.opened() as registry:
            registry.reanchor(self.name)
        if self.as_json:
            say_json({"reanchored": self.name})
        else:
            say(f"{self.name}: the private state knows nobody who left")
        return DONE


@dataclass(frozen=True)
class Release(OnRegistry):
    """Write a release to a file, or withdraw one.

    The file holds the noised parameters and their certificate, nothing private. What
    left is remembered: status lists releases that are out of date and still out there.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to: .safetensors or .onnx."),
    ] = None
    withdraw: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Every copy of release N was taken back."
        ),
    ] = None

    def perform(self) -> int:
        """Ship the release, or withdraw an earlier one."""
        if (self.to is None) == (self.withdraw is None):
            raise InvalidInput(
                "give either --to FILE, to write the release there, or --withdraw N, "
                "once every copy of release N was taken back"
            )
        with self.opened() as registry:
            if self.withdraw is not None:
                registry.withdraw(self.name, self.withdraw)
                answer = {"model": self.name, "withdrawn": self.withdraw}
                words = f"release {self.withdraw} of {self.name} is withdrawn"
            elif self.to is not None:
                shipped = registry.ship(self.name, self.to)
                answer = release_json(shipped)
                words = f"wrote {self.to}: release {shipped.number} of {self.name}"
        if self.as_json:
            say_json(answer)
        else:
            say(words)
        return DONE


OWNER_ALONE = 0o600


@dataclass(frozen=True)
class Audit(OnRegistry):
    """Open the private record behind a model's release, for an auditor.

    The certificate is held against the record and the ledger against its signatures.
    With --trials the removal of one row is put on trial: so many releases of both
    worlds are made, and told apart if they can be. What is printed depends on rows:
    keep it with the record. It exits with 6 if something does not stand.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Releases of each world to make, 20000 say."),
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the private record there."),
    ] = None

    def perform(self) -> int:
        """Check, try, and print what was found."""
        from ..ledger import check_export
        from ..promise.verification import verify

        with self.opened() as registry:
            certificate = registry.release(self.name).certificate_
            record = registry.record(self.name)
            verdicts = {
                "certificate": verify(certificate, record),
                "ledger": check_export(registry.export(), registry.public_pem()),
            }
            report = None if self.trials is None else tried(registry, self)
        if self.record is not None:
            write_private(self.record, record.to_json())
        if self.as_json:
            say_json(in_json(verdicts, report))
        else:
            say(in_words(verdicts, report))
        stands = all(verdict.stands for verdict in verdicts.values())
        passes = report is None or report.passes
        return DONE if stands and passes else DOES_NOT_STAND


def tried(registry: "Registry", asked: Audit) -> "AuditReport":
    """Return what a trial of a removal from the model found."""
    from ..audit import AuditOptions, audit

    budget = registry.release(asked.name).budget
    if budget is None:
        raise InvalidInput(
            f"model {asked.name!r} was fitted without a contract, so there is nothing "
            "to try; leave --trials out"
        )
    return audit(
        registry.case(asked.name), AuditOptions(budget, n_draws=asked.trials or 0)
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read; never over another one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags, OWNER_ALONE)
    except FileExistsError:
        raise InvalidInput(f"{path} is there already; give another file") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def in_json(
    verdicts: "dict[str, Verdict]", report: "AuditReport | None"
) -> dict[str, Any]:
    """Return what was found as JSON data."""
    found: dict[str, Any] = {
        name: {"stands": verdict.stands, "says": verdict.says}
        for name, verdict in verdicts.items()
    }
    if report is not None:
        found["trial"] = asdict(report) | {"passes": report.passes}
    return found


def in_words(verdicts: "dict[str, Verdict]", report: "AuditReport | None") -> str:
    """Return what was found as text for a person to read."""
    parts = []
    for name, verdict in verdicts.items():
        heading = f"{name}: {'STANDS' if verdict.stands else 'DOES NOT STAND'}"
        parts.append(f"{heading}\n{paragraph(verdict.says)}")
    if report is not None:
        heading = f"trial: {'PASSES' if report.passes else 'FAILS'}"
        parts.append(f"{heading}\n{paragraph(report.shows)}")
        parts.append(f"It does not show\n{points(report.does_not_show)}")
    return "\n\n".join(parts)
