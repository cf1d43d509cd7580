# SPDX-License-Identifier: Apache-2.0
"""``expunge audit``: open a model's private record and try to break its promise."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .exits import DOES_NOT_STAND, DONE
from .options import OnRegistry
from .printing import paragraph, points, say, say_json

if TYPE_CHECKING:
    from ..audit import AuditReport
    from ..registry import Registry
    from ..verification import Verdict

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
        from ..verification import verify

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
    from ..audit import Trial, audit

    budget = registry.release(asked.name).budget
    if budget is None:
        raise InvalidInput(
            f"model {asked.name!r} was fitted without a contract, so there is nothing "
            "to try; leave --trials out"
        )
    return audit(registry.case(asked.name), Trial(budget, n_draws=asked.trials or 0))


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
