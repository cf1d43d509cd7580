# SPDX-License-Identifier: Apache-2.0
"""``expunge verify``: whether a receipt, an export or a certificate stands.

Checks: what a file claims to be, and whether it stands.

For whoever holds a file and a public key: no registry, no database, no network. What
cannot be read does not stand; a file that was to be held against it must stand itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import typer

from ..exceptions import InvalidInput
from ..ledger import Head, Receipt, check_export, check_receipt
from ..ledger.documents import read_document
from ..ledger.export import LINES
from ..promise.canonical import loads
from ..promise.certificate import Certificate
from ..promise.record import Record
from ..promise.verification import Verdict, verify
from .options import DOES_NOT_STAND, DONE, Options, content
from .output import paragraph, points, say, say_json

if TYPE_CHECKING:
    pass


Kind: TypeAlias = Literal["receipt", "ledger export", "certificate", "unknown"]

NEITHER = "it is neither a receipt, nor a ledger's export, nor a certificate"
SAYS_NOTHING = " It says nothing about "

AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


@dataclass(frozen=True, slots=True)
class Paper:
    """A file to be checked: where it came from, and its bytes."""

    path: Path
    data: bytes

    @property
    def kind(self) -> Kind:
        """What the file claims to be."""
        for text in (self.data, self.data.partition(b"\n")[0]):
            try:
                found = loads(text, "Paper")
            except InvalidInput:
                continue
            if found.get("kind") == "receipt":
                return "receipt"
            if isinstance(found.get("kind"), str) and found["kind"] in LINES:
                return "ledger export"
            if "commitment" in found:
                return "certificate"
        return "unknown"

    @property
    def line(self) -> bytes:
        """The bytes without the line ending that a shell or an editor adds."""
        return self.data.removesuffix(b"\n").removesuffix(b"\r")


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a paper stands, on what conditions, and of what it does not speak."""

    kind: Kind
    verdict: Verdict
    provided: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """What it shows in words; what it says nothing about is a list of its own."""
        return self.verdict.says.partition(SAYS_NOTHING)[0]


def check(
    paper: Paper, pem: bytes | None, seen: Sequence[Paper], record: bytes | None
) -> Finding:
    """Return whether a paper stands.

    Parameters
    ----------
    paper
        A receipt, a ledger's export or a certificate.
    pem
        Public keys of the ledger; a certificate bears no signature and needs none.
    seen
        Receipts and exports that the reader has from elsewhere.
    record
        The private record behind a certificate, where it was opened.
    """
    kind = paper.kind
    if record is not None and kind != "certificate":
        raise InvalidInput(f"{paper.path} is no certificate; --record belongs to one")
    if kind == "unknown":
        says = f"{paper.path} does not stand: {NEITHER}, or no longer."
        return Finding(kind, Verdict((), (NEITHER,), says))
    if kind == "certificate":
        if seen:
            raise InvalidInput("--seen is held against a receipt or an export")
        return _certificate(paper, record)
    if pem is None:
        raise InvalidInput(
            f"{paper.path} is signed; give the operator's public keys with --key, from "
            "a source other than whoever handed it over"
        )
    return (_receipt if kind == "receipt" else _export)(paper, pem, seen)


def _certificate(paper: Paper, record: bytes | None) -> Finding:
    opened = None if record is None else Record.from_json(record)
    try:
        certificate = Certificate.from_json(paper.data)
    except InvalidInput as error:
        failure = f"this is not a certificate as it was issued: {error}"
        says = f"The certificate does not stand: {failure}."
        return Finding("certificate", Verdict((), (failure,), says))
    verdict = verify(certificate, opened)
    if not verdict.stands:
        return Finding("certificate", verdict)
    provided = _assumptions([certificate])
    return Finding("certificate", verdict, provided, certificate.not_covered)


def _receipt(paper: Paper, pem: bytes, seen: Sequence[Paper]) -> Finding:
    verdict = check_receipt(paper.line, pem)
    if not verdict.stands:
        return Finding("receipt", verdict)
    receipt = Receipt.from_json(paper.line)
    held = [_compared(receipt.head, other, pem) for other in seen]
    failures = tuple(failure for _, failure in held if failure)
    found = verdict.findings + tuple(finding for finding, failure in held if finding)
    if failures:
        says = f"The receipt does not stand: {'; '.join(failures)}."
        return Finding("receipt", Verdict(found, failures, says))
    provided = _assumptions(receipt.certificates.values())
    full = replace(verdict, findings=found)
    return Finding("receipt", full, provided, verdict.not_covered)


def _assumptions(certificates: Iterable[Certificate]) -> tuple[str, ...]:
    """Return on what the promises rest, each sentence once; nothing without one."""
    promising = [one for one in certificates if one.status == "certified"]
    return tuple(dict.fromkeys(text for one in promising for text in one.assumptions))


def _compared(head: Head, other: Paper, pem: bytes) -> tuple[str, str]:
    """Hold the head of a receipt against an export: what agrees, and what does not."""
    if other.kind != "ledger export":
        raise InvalidInput(
            f"{other.path} is no ledger export; a receipt is held against exports"
        )
    size = _standing(other, check_export(other.data, pem)).ledger.size
    if size < head.size:
        return f"{other.path} ends before the receipt: it could not be compared", ""
    verdict = check_export(other.data, pem, seen=[head])
    if verdict.stands:
        return f"{other.path} is the same ledger", ""
    return "", f"{other.path} is another ledger: {verdict.failures[0]}"


def _export(paper: Paper, pem: bytes, seen: Sequence[Paper]) -> Finding:
    heads = [head for other in seen for head in _heads(other, pem)]
    return Finding("ledger export", check_export(paper.data, pem, seen=heads))


def _heads(other: Paper, pem: bytes) -> Iterator[Head]:
    """Yield the heads in a receipt or an export that stands."""
    if other.kind == "receipt":
        _standing(other, check_receipt(other.line, pem))
        yield Receipt.from_json(other.line).head
        return
    if other.kind != "ledger export":
        raise InvalidInput(f"{other.path} is neither a receipt nor a ledger export")
    _standing(other, check_export(other.data, pem))
    for line in other.data.splitlines():
        page = read_document(line, LINES)
        if isinstance(page, Head):
            yield page


def _standing(other: Paper, verdict: AnyVerdict) -> AnyVerdict:
    """Return the verdict on a paper that is to be held against another one."""
    if not verdict.stands:
        raise InvalidInput(
            f"{other.path} does not stand itself ({verdict.failures[0]}); leave it out"
        )
    return verdict


@dataclass(frozen=True)
class Verify(Options):
    """Say whether a receipt, a ledger export or a certificate stands.

    It works offline, from the file and the public key alone: no registry, no
    database. It exits with 0 if the file stands and with 6 if it does not.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to check.")]
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="The operator's public keys; get them from the operator's site. "
            "A certificate bears no signature and needs none.",
        ),
    ] = None
    seen: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A receipt or an export from elsewhere that must be of the same "
            "ledger; may be repeated.",
        ),
    ] = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The private record of a certificate, once opened."
        ),
    ] = None

    def perform(self) -> int:
        """Check the file and print what that shows."""
        pass

        found = check(
            Paper(self.file, content(self.file)),
            None if self.key is None else content(self.key),
            [Paper(path, content(path)) for path in self.seen or ()],
            None if self.record is None else content(self.record),
        )
        if self.as_json:
            say_json(in_json(found))
        else:
            say(in_words(self.file, found))
        return DONE if found.verdict.stands else DOES_NOT_STAND


def in_json(found: "Finding") -> dict[str, Any]:
    """Return a finding as JSON data."""
    return {
        "kind": found.kind,
        "stands": found.verdict.stands,
        "says": found.says,
        "findings": found.verdict.findings,
        "failures": found.verdict.failures,
        "provided": found.provided,
        "not_covered": found.not_covered,
    }


def in_words(file: Path, found: "Finding") -> str:
    """Return a finding as text for a person to read."""
    stands = found.verdict.stands
    verdict = "STANDS" if stands else "DOES NOT STAND"
    parts = [f"{verdict}: {file}, {found.kind}", paragraph(found.says)]
    lists = {
        "Checked, and it holds:": found.verdict.findings,
        "It holds provided that": found.provided,
        "It says nothing about": found.not_covered,
    }
    parts += [f"{title}\n{points(texts)}" for title, texts in lists.items() if texts]
    return "\n\n".join(parts)
