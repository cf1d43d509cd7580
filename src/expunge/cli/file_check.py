# SPDX-License-Identifier: Apache-2.0
"""Check a file offline: find out what it claims to be, and whether it stands.

For anyone who holds a file and the public keys: no registry, no database, no network. A
file that cannot be parsed does not stand. A file to compare with must itself stand.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from ..exceptions import InvalidInput
from ..ledger import Head, Receipt, check_export, check_receipt
from ..ledger.documents import read_document
from ..ledger.export import LINES
from ..promise.canonical import loads
from ..promise.certificate import Certificate
from ..promise.record import Record
from ..promise.verification import Verdict, verify

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
