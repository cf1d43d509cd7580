# SPDX-License-Identifier: Apache-2.0
"""Commands that check: ``verify`` from outside, ``audit`` from inside a registry.

``verify`` is for anyone who holds a file and the public keys: no registry, no database,
no network. It finds out what the file claims to be, and whether it stands. A file that
cannot be parsed does not stand. A file to compare with must itself stand. ``audit``
opens private records.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import typer

from ..exceptions import InvalidInput
from ..ledger import Head, Receipt, check_export, check_receipt
from ..ledger.documents import read_document
from ..ledger.export import LINES
from ..promise.canonical import loads
from ..promise.certificate import Certificate
from ..promise.verification import Record, Verdict, verify
from .options import DOES_NOT_STAND, DONE, CommonOptions, RegistryOptions, read_file
from .output import format_list, print_json, print_text, wrap

if TYPE_CHECKING:
    from ..audit import AuditReport
    from ..promise.verification import Verdict
    from ..registry import Registry

    pass


FileKind: TypeAlias = Literal["receipt", "ledger export", "certificate", "unknown"]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)

UNKNOWN_FILE = "it is not a receipt, a ledger export or a certificate"
# From here on a verdict lists what is not covered, which is shown separately.
NOT_COVERED = " It says nothing about "


@dataclass(frozen=True, slots=True)
class FileToCheck:
    """A file: its path and its content."""

    path: Path
    data: bytes

    @property
    def kind(self) -> FileKind:
        """What the file claims to be."""
        for text in (self.data, self.data.partition(b"\n")[0]):
            try:
                content = loads(text, "File")
            except InvalidInput:
                continue
            if content.get("kind") == "receipt":
                return "receipt"
            if isinstance(content.get("kind"), str) and content["kind"] in LINES:
                return "ledger export"
            if "commitment" in content:
                return "certificate"
        return "unknown"

    @property
    def line(self) -> bytes:
        """The content without the line ending that a shell or an editor adds."""
        return self.data.removesuffix(b"\n").removesuffix(b"\r")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a file stands, on which conditions, and what it does not cover."""

    kind: FileKind
    verdict: Verdict
    provided: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """What the check shows, without the list of what is not covered."""
        return self.verdict.says.partition(NOT_COVERED)[0]


def check_file(
    file: FileToCheck,
    *,
    pem: bytes | None,
    seen: Sequence[FileToCheck],
    record: bytes | None,
) -> CheckResult:
    """Check whether a file stands.

    Parameters
    ----------
    file
        A receipt, a ledger export or a certificate.
    pem
        Public keys of the ledger; a certificate is not signed and needs none.
    seen
        Receipts and exports from elsewhere, to compare with.
    record
        The private record behind a certificate, if it was opened.
    """
    kind = file.kind
    if record is not None and kind != "certificate":
        raise InvalidInput(
            f"{file.path} is not a certificate; --record goes with a certificate"
        )
    if kind == "unknown":
        says = f"{file.path} does not stand: {UNKNOWN_FILE}, or it was damaged."
        return CheckResult(kind, Verdict((), (UNKNOWN_FILE,), says))
    if kind == "certificate":
        if seen:
            raise InvalidInput("--seen goes with a receipt or an export; omit it")
        return _check_certificate(file, record)
    if pem is None:
        raise InvalidInput(
            f"{file.path} is signed; give the operator's public keys with --key, and "
            "get them from someone other than the person who gave you the file"
        )
    check = _check_receipt if kind == "receipt" else _check_export
    return check(file, pem, seen=seen)


def _check_certificate(file: FileToCheck, record: bytes | None) -> CheckResult:
    opened = None if record is None else Record.from_json(record)
    try:
        certificate = Certificate.from_json(file.data)
    except InvalidInput as error:
        failure = f"this is not a certificate as it was issued: {error}"
        says = f"The certificate does not stand: {failure}."
        return CheckResult("certificate", Verdict((), (failure,), says))
    verdict = verify(certificate, opened)
    if not verdict.stands:
        return CheckResult("certificate", verdict)
    provided = _collect_assumptions([certificate])
    return CheckResult("certificate", verdict, provided, certificate.not_covered)


def _check_receipt(
    file: FileToCheck, pem: bytes, *, seen: Sequence[FileToCheck]
) -> CheckResult:
    verdict = check_receipt(file.line, pem)
    if not verdict.stands:
        return CheckResult("receipt", verdict)
    receipt = Receipt.from_json(file.line)
    compared = [_compare(receipt.head, other, pem=pem) for other in seen]
    failures = tuple(failure for _, failure in compared if failure)
    findings = tuple(finding for finding, _ in compared if finding)
    findings = verdict.findings + findings
    if failures:
        says = f"The receipt does not stand: {'; '.join(failures)}."
        return CheckResult("receipt", Verdict(findings, failures, says))
    provided = _collect_assumptions(receipt.certificates.values())
    full = replace(verdict, findings=findings)
    return CheckResult("receipt", full, provided, verdict.not_covered)


def _collect_assumptions(certificates: Iterable[Certificate]) -> tuple[str, ...]:
    """Return what the promises rest on, each sentence once."""
    promising = [one for one in certificates if one.status == "certified"]
    return tuple(dict.fromkeys(text for one in promising for text in one.assumptions))


def _compare(head: Head, other: FileToCheck, *, pem: bytes) -> tuple[str, str]:
    """Compare a receipt's head with an export; return a finding and a failure.

    One of the two is empty.
    """
    if other.kind != "ledger export":
        raise InvalidInput(
            f"{other.path} is not a ledger export; compare a receipt with exports"
        )
    size = _require_standing(other, check_export(other.data, pem)).ledger.size
    if size < head.size:
        return f"{other.path} ends before the receipt: it could not be compared", ""
    verdict = check_export(other.data, pem, seen=[head])
    if verdict.stands:
        return f"{other.path} is the same ledger", ""
    return "", f"{other.path} is another ledger: {verdict.failures[0]}"


def _check_export(
    file: FileToCheck, pem: bytes, *, seen: Sequence[FileToCheck]
) -> CheckResult:
    heads = [head for other in seen for head in _read_heads(other, pem)]
    return CheckResult("ledger export", check_export(file.data, pem, seen=heads))


def _read_heads(other: FileToCheck, pem: bytes) -> Iterator[Head]:
    """Yield the heads in a receipt or an export that stands."""
    if other.kind == "receipt":
        _require_standing(other, check_receipt(other.line, pem))
        yield Receipt.from_json(other.line).head
        return
    if other.kind != "ledger export":
        raise InvalidInput(
            f"{other.path} is not a receipt or a ledger export; omit it from --seen"
        )
    _require_standing(other, check_export(other.data, pem))
    for line in other.data.splitlines():
        page = read_document(line, LINES)
        if isinstance(page, Head):
            yield page


def _require_standing(other: FileToCheck, verdict: AnyVerdict) -> AnyVerdict:
    """Return the verdict on a file to compare with; raise if it does not stand."""
    if not verdict.stands:
        raise InvalidInput(
            f"{other.path} does not stand itself ({verdict.failures[0]}); omit it"
        )
    return verdict


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
        pass

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
