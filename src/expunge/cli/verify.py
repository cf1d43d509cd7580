# SPDX-License-Identifier: Apache-2.0
"""Commands that check: ``verify`` from outside, ``audit`` from inside a registry.

``verify`` needs only the file and the public keys; ``audit`` opens private records.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import ExpungeError, InvalidInput
from .common import (
    DONE,
    NOT_VALID,
    CommandFailed,
    CommonOptions,
    RegistryOptions,
    explain,
    find_exit_code,
    format_count,
    format_list,
    print_json,
    print_note,
    print_text,
    read_file,
    wrap,
)

if TYPE_CHECKING:
    from ..audit import AuditReport
    from ..ledger.export import CheckResult
    from ..promise.verification import Verdict
    from ..registry import Registry


@dataclass(frozen=True)
class VerifyCommand(CommonOptions):
    """Check whether a receipt, ledger export or certificate is valid.

    It works offline, from the file and the public keys alone: no registry, no database.
    It exits with 0 if the file is valid and with 6 if it is not. Of several files it
    prints a line each, and exits with the worst code.
    """

    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="The files to check.")
    ]
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
        """Check the files and print the results."""
        if self.record is not None and len(self.files) > 1:
            raise InvalidInput(
                f"--record with {len(self.files)} files; a record goes with one "
                "certificate: give that file alone"
            )
        check = self._prepare_check()
        if len(self.files) > 1:
            return self._print_each([try_check(check, file) for file in self.files])
        (file,) = self.files
        result = check(file)
        if self.as_json:
            print_json(result_to_json(result))
        else:
            print_text(describe_result(file, result))
        return DONE if result.verdict.valid else NOT_VALID

    def _prepare_check(self) -> "Callable[[Path], CheckResult]":
        """Read keys, records and what to compare with; return the check of a file."""
        from ..ledger.export import FileToCheck, check_file

        pem = None if self.key is None else read_file(self.key)
        seen = [FileToCheck(path, read_file(path)) for path in self.seen or ()]
        record = None if self.record is None else read_file(self.record)

        def check(path: Path) -> "CheckResult":
            file = FileToCheck(path, read_file(path))
            return check_file(file, pem=pem, seen=seen, record=record)

        return check

    def _print_each(self, checked: "Sequence[CheckedFile]") -> int:
        """Print the outcome of each file, and return the worst code."""
        code = max(one.code for one in checked)
        if self.as_json:
            files = [one.to_json() for one in checked]
            print_json({"valid": code == DONE, "files": files})
        else:
            print_text(*(one.describe() for one in checked))
            print_note("verify one file to see what was checked, and on what terms")
        n_failed = sum(one.result is None for one in checked)
        if n_failed:
            total = format_count(len(checked), "file")
            raise CommandFailed(f"{n_failed} of {total} could not be checked", code)
        return code


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The result of the check of a file, or why it could not be checked."""

    path: Path
    result: "CheckResult | None"
    code: int
    error: str = ""

    def describe(self) -> str:
        """Return the outcome in a line."""
        if self.result is None:
            reason = self.error.removeprefix(f"{self.path} ")
            return f"NOT CHECKED: {self.path}: {reason}"
        line = f"{format_outcome(self.result.verdict)}: {self.path}, {self.result.kind}"
        return ": ".join(filter(None, [line, "; ".join(self.result.verdict.failures)]))

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON data."""
        if self.result is None:
            failure = {"valid": None, "error": self.error, "code": self.code}
            return {"file": str(self.path), **failure}
        return {"file": str(self.path), **result_to_json(self.result)}


def try_check(check: "Callable[[Path], CheckResult]", path: Path) -> CheckedFile:
    """Check a file; one that cannot be checked must not hide the others."""
    try:
        result = check(path)
    except (ExpungeError, CommandFailed) as error:
        return CheckedFile(path, None, find_exit_code(error), explain(error))
    valid = result.verdict.valid
    return CheckedFile(path, result, DONE if valid else NOT_VALID)


def result_to_json(result: "CheckResult") -> dict[str, Any]:
    """Return the result of a check as JSON data."""
    return {
        "kind": result.kind,
        "valid": result.verdict.valid,
        "resaved": getattr(result.verdict, "resaved", False),
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
    return "VALID" if verdict.valid else "NOT VALID"


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
        valid = all(verdict.valid for verdict in verdicts.values())
        passes = report is None or report.passes
        return DONE if valid and passes else NOT_VALID


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
        name: {"valid": verdict.valid, "says": verdict.says}
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
