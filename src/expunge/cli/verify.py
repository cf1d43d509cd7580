# SPDX-License-Identifier: Apache-2.0
"""Commands that check: ``verify`` from outside, ``audit`` from inside a registry.

``verify`` needs only the file and the public keys; ``audit`` opens private records.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .options import DOES_NOT_STAND, DONE, CommonOptions, RegistryOptions, read_file
from .output import format_list, print_json, print_text, wrap

if TYPE_CHECKING:
    from ..audit import AuditReport
    from ..ledger.export import CheckResult
    from ..promise.verification import Verdict
    from ..registry import Registry


@dataclass(frozen=True)
class VerifyCommand(CommonOptions):
    """Check whether a receipt, a ledger export or a certificate stands.

    It works offline, from the file and the public keys alone: no registry, no database.
    It exits with 0 if the file stands and with 6 if it does not.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to check.")]
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="The operator's public keys; get them from the operator's site. A "
            "certificate is not signed and needs none.",
        ),
    ] = None
    seen: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A receipt or export from elsewhere that must be of the same ledger; "
            "may be repeated.",
        ),
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The private record of a certificate, if you have it."
        ),
    ] = None

    def perform(self) -> int:
        """Check the file and print the result."""
        from ..ledger.export import FileToCheck, check_file

        result = check_file(
            FileToCheck(self.file, read_file(self.file)),
            pem=None if self.key is None else read_file(self.key),
            seen=[FileToCheck(path, read_file(path)) for path in self.seen or ()],
            record=None if self.record is None else read_file(self.record),
        )
        if self.as_json:
            print_json(result_to_json(result))
        else:
            print_text(describe_result(self.file, result))
        return DONE if result.verdict.stands else DOES_NOT_STAND


def result_to_json(result: "CheckResult") -> dict[str, Any]:
    """Return the result of a check as JSON data."""
    return {
        "kind": result.kind,
        "stands": result.verdict.stands,
        "says": result.says,
        "findings": result.verdict.findings,
        "failures": result.verdict.failures,
        "provided": result.provided,
        "not_covered": result.not_covered,
    }


def describe_result(file: Path, result: "CheckResult") -> str:
    """Return the result of a check as text."""
    outcome = format_outcome(result.verdict)
    parts = [f"{outcome}: {file}, {result.kind}", wrap(result.says)]
    lists = {
        "Checked, and it holds:": result.verdict.findings,
        "It holds provided that": result.provided,
        "It says nothing about": result.not_covered,
    }
    parts += [
        f"{title}\n{format_list(texts)}" for title, texts in lists.items() if texts
    ]
    return "\n\n".join(parts)


def format_outcome(verdict: "Verdict") -> str:
    """Return the outcome of a check in capitals."""
    return "STANDS" if verdict.stands else "DOES NOT STAND"


@dataclass(frozen=True)
class AuditCommand(RegistryOptions):
    """Open the private record behind a model's release, for an auditor.

    It checks the certificate against the record, and the ledger against its signatures.
    With --trials it also tests the removal of one row: it draws that many releases with
    the row removed and with the model retrained, and tries to tell them apart. The
    output depends on rows, so keep it with the record. It exits with 6 if a check
    fails.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Releases to draw on each side, e.g. 20000."),
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the private record to a file."),
    ] = None

    def perform(self) -> int:
        """Check the model, test a removal, and print the results."""
        from ..ledger import check_export
        from ..promise.verification import verify

        with self.open_registry() as registry:
            certificate = registry.model(self.name).certificate_
            record = registry.models.record(self.name)
            ledger = registry.ledger.export()
            verdicts = {
                "certificate": verify(certificate, record),
                "ledger": check_export(ledger, registry.keys.public_pem()),
            }
            report = None
            if self.trials is not None:
                report = try_removal(registry, self.name, n_draws=self.trials)
        if self.record is not None:
            write_private(self.record, record.to_json())
        if self.as_json:
            print_json(audit_to_json(verdicts, report))
        else:
            print_text(describe_audit(verdicts, report))
        stands = all(verdict.stands for verdict in verdicts.values())
        passes = report is None or report.passes
        return DONE if stands and passes else DOES_NOT_STAND


def try_removal(registry: "Registry", name: str, *, n_draws: int) -> "AuditReport":
    """Test whether releases with a row removed differ from retrained ones."""
    from ..audit import AuditOptions, audit

    budget = registry.model(name).budget
    if budget is None:
        raise InvalidInput(
            f"model {name!r} was fitted without a budget, so there is nothing to test; "
            "omit --trials"
        )
    return audit(registry.models.case(name), AuditOptions(budget, n_draws=n_draws))


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read."""
    from ..disk import write_new_file

    try:
        write_new_file(path, text.encode())
    except FileExistsError:
        raise InvalidInput(f"{path} already exists; give another file") from None


def audit_to_json(
    verdicts: "dict[str, Verdict]", report: "AuditReport | None"
) -> dict[str, Any]:
    """Return the results of an audit as JSON data."""
    results: dict[str, Any] = {
        name: {"stands": verdict.stands, "says": verdict.says}
        for name, verdict in verdicts.items()
    }
    if report is not None:
        results["trial"] = asdict(report) | {"passes": report.passes}
    return results


def describe_audit(verdicts: "dict[str, Verdict]", report: "AuditReport | None") -> str:
    """Return the results of an audit as text."""
    parts = [
        f"{name}: {format_outcome(verdict)}\n{wrap(verdict.says)}"
        for name, verdict in verdicts.items()
    ]
    if report is not None:
        heading = f"trial: {'PASSES' if report.passes else 'FAILS'}"
        parts.append(f"{heading}\n{wrap(report.shows)}")
        parts.append(f"It does not show\n{format_list(report.does_not_show)}")
    return "\n\n".join(parts)
