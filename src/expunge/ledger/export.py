# SPDX-License-Identifier: Apache-2.0
"""Checking an export: whether a ledger is what its operator signed, and where not.

An export is a file of lines, each the canonical JSON of an entry or of a head, in the
order in which they were written. Entries are counted, dated and hashed; heads say what
the hash must be, and rotations which key signs them. Reading stops at the first line
that does not fit, since nothing after it can be judged.

A missing end leaves no trace in what remains. It only shows against a head that the
reader has from elsewhere: from an earlier export, or from a receipt.

``check_file`` is for anyone who holds a file and the public keys. It finds out what the
file claims to be, and whether it is valid: no registry, no database, no network. A file
that cannot be parsed is not valid. A file to compare with must itself be valid.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from ..core.values import loads
from ..exceptions import InvalidInput
from ..promise.certificate import Certificate
from ..promise.verification import Record, Verdict, verify
from .documents import CanonicalDocument, read_document
from .entries import KINDS, AnyEntry, Entry, Head, KeyRotated, payload_of
from .keys import PublicKey
from .ledger import KeyHistory, Ledger, check_sequence, unsigned_message
from .merkle import leaf_hash
from .packs import check_pack
from .receipts import Receipt, check_receipt, without_newline

SHARE = 100  # signatures that a thread verifies at a time: 10 ms

Line: TypeAlias = AnyEntry | Head
"""What a line of an export may be."""

NOT_SHOWN = (
    "This does not show that nothing was cut off after the last head: to find a "
    "missing end, compare with a later head, from another export or a receipt. Nor "
    "does it show that everybody is shown the same ledger, that the operator's clock "
    "is right, that no key was replaced since the list of keys given was published, or "
    "that what the entries say was done."
)


@dataclass(frozen=True, slots=True)
class ExportVerdict(Verdict):
    """What the check of an export found.

    Parameters
    ----------
    ledger
        Where the ledger stands at the last valid head; continue from it with the lines
        that come later.
    """

    ledger: Ledger


def export(documents: Iterable[CanonicalDocument]) -> bytes:
    """Return entries and heads as the lines of a file, in this order."""
    return b"".join(one.to_json().encode() + b"\n" for one in documents)


def check_export(
    lines: str | bytes,
    public_pem: str | bytes,
    *,
    since: Ledger | None = None,
    seen: Sequence[Head] = (),
) -> ExportVerdict:
    """Return whether an export is valid, and if not, which entry is wrong.

    Parameters
    ----------
    lines
        The export.
    public_pem
        The public keys of the ledger, each with the sizes of the heads that it signs
        (``KeyHistory.to_pem``): keys change there, and nowhere else. A single key must
        be the first of the ledger, and rotations lead on from it.
    since
        Where an earlier export ended (``ExportVerdict.ledger``), if this one goes on
        from there; otherwise it must begin at the beginning.
    seen
        Heads that you have from elsewhere; the export must agree with them.
    """
    listed = KeyHistory.from_pem(public_pem)
    start = Ledger.empty(listed.at(0)) if since is None else since
    if start.keys.at(0) != listed.at(0):
        raise InvalidInput(
            f"the ledger to go on from began with key {start.keys.at(0).id}, and the "
            f"first key given is {listed.at(0).id}; give the keys of that ledger"
        )
    if _compare_keys(start, listed):
        raise InvalidInput(
            f"the ledger to go on from, of {start.size} entries, changed its keys "
            "elsewhere than the list of keys given; check the whole export by that list"
        )
    early = [head.size for head in seen if head.size < start.size]
    if early:
        raise InvalidInput(
            f"a head over {early[0]} entries cannot be compared with an export that "
            f"begins after {start.size}; compare it with the whole export"
        )

    reader = _ExportReader(start, listed, seen)
    data = lines.encode("utf-8", "surrogatepass") if isinstance(lines, str) else lines
    *whole, rest = data.split(b"\n")
    failure = reader.check_seen()
    for number, line in enumerate(whole, start=1):
        if failure:
            break
        try:
            document = read_document(line, Line)
        except InvalidInput as error:
            where = f"line {number}, at entry {reader.size}"
            failure = f"{where}, cannot be parsed: {error}"
        else:
            failure = reader.read(document, line)
    size, longest = reader.size, max((head.size for head in seen), default=0)
    if failure:
        pass
    elif rest:
        failure = f"the export breaks off within a line, after {size} entries"
    elif longest > size:
        failure = (
            f"a head from elsewhere is over {longest} entries and the export has "
            f"{size}: entries {size} to {longest - 1} were cut off"
        )
    elif reader.confirmed.size < size or not size:
        vouched = reader.confirmed.size
        failure = f"no head vouches for what comes after {vouched} entries"
    # A bad signature under a head takes precedence over anything else found.
    failure = reader.verify_signatures() or failure

    confirmed = reader.confirmed
    findings = [
        f"entries below {confirmed.size} are those that the heads were signed for"
    ]
    if n_agree := sum(head.size <= confirmed.size for head in seen):
        findings.append(f"{n_agree} heads from elsewhere agree")
    says = (
        f"All {confirmed.size} entries are those that the operator signed for, the "
        f"last one dated {confirmed.day}. {NOT_SHOWN}"
    )
    if failure:
        says = (
            f"The export is not valid: {failure}. Heads vouch for the "
            f"{confirmed.size} entries before; what comes after was not judged."
        )
    failures = (failure,) if failure else ()
    return ExportVerdict(tuple(findings), failures, says, confirmed)


class UnverifiedHead(NamedTuple):
    """A head that fits, but for its signature; what a bad one means, and what is then.

    The ledger ``before`` is what earlier heads confirm.
    """

    key: PublicKey
    signature: bytes
    payload: bytes
    failure: str
    before: Ledger


class _ExportReader:
    """How far an export was read, and up to where heads confirm it.

    Between heads only the position, the day and the hash of each entry are kept. The
    signatures of heads are verified many at a time, so that cores share the work.
    """

    def __init__(self, start: Ledger, listed: KeyHistory, seen: Sequence[Head]) -> None:
        self.confirmed = start
        self._listed = listed
        self._seen: defaultdict[int, list[Head]] = defaultdict(list)
        for head in seen:
            self._seen[head.size].append(head)
        self._ledger = start
        self._day = start.day
        self._leaves: list[bytes] = []
        self._claims: list[UnverifiedHead] = []
        # Where the keys in force may begin to differ from those listed.
        self._turns = {since for since, _ in listed.keys}

    @property
    def size(self) -> int:
        """Number of entries read."""
        return self._ledger.size + len(self._leaves)

    def read(self, document: Entry | Head, line: bytes) -> str:
        """Take the next document, and return what is wrong with it."""
        if isinstance(document, Head):
            failure = self._claim(document, payload_of(line.decode()))
            if not failure:
                self.confirmed = self._grow()
            return failure
        size = self.size
        if isinstance(document, KeyRotated) or size + 1 in self._turns:
            ledger = self._grow()
            if failure := ledger.check_entry(document):
                return failure
            grown = ledger.append_hashed(document, leaf_hash(line))
            if failure := _compare_keys(grown, self._listed):
                return f"entry {size} is wrong: {failure}"
            self._ledger = grown
        else:
            if failure := check_sequence(document, size, day=self._day):
                return failure
            self._leaves.append(leaf_hash(line))
        self._day = document.day
        return self.check_seen() if size + 1 in self._seen else ""

    def check_seen(self) -> str:
        """Return what heads from elsewhere contradict at this point."""
        disagrees = "a head from elsewhere disagrees: "
        failures = (
            self._claim(head, head.payload(), source=disagrees)
            for head in self._seen.get(self.size, ())
        )
        return next(filter(None, failures), "")

    def verify_signatures(self) -> str:
        """Return the first signature that fails; confirm only what came before it.

        The library verifies without Python's lock, so that threads share the work.
        """

        def find_bad(start: int) -> UnverifiedHead | None:
            for claim in self._claims[start : start + SHARE]:
                if not claim.key.verifies(claim.signature, claim.payload):
                    return claim
            return None

        starts = range(0, len(self._claims), SHARE)
        if len(starts) > 1:
            with ThreadPoolExecutor() as pool:
                found = list(pool.map(find_bad, starts))
        else:
            found = [*map(find_bad, starts)]
        for claim in found:
            if claim is not None:
                self.confirmed = claim.before
                return claim.failure
        return ""

    def _grow(self) -> Ledger:
        """Return the ledger up to here."""
        if self._leaves:
            grown = self._ledger.frontier.extend(self._leaves)
            self._ledger = Ledger(grown, self._ledger.keys, self._day)
            self._leaves = []
        return self._ledger

    def _claim(self, head: Head, payload: bytes, *, source: str = "") -> str:
        """Return what a head contradicts, and where that must be.

        If it fits, its signature is verified later.
        """
        ledger = self._grow()
        failure = ledger.check_contents(head)
        first, last = self.confirmed.size, ledger.size - 1
        if failure and head.tree != ledger.frontier.tree() and first <= last:
            some = (
                f"entry {last}"
                if first == last
                else f"one of entries {first} to {last}"
            )
            failure += f": {some} was changed, inserted, removed or moved"
        if failure:
            return source + failure
        key, signature = ledger.keys.at(head.size), bytes.fromhex(head.signature)
        unsigned = source + unsigned_message(head)
        self._claims.append(
            UnverifiedHead(key, signature, payload, unsigned, self.confirmed)
        )
        return ""


def _compare_keys(ledger: Ledger, listed: KeyHistory) -> str:
    """Return how a ledger's keys differ from a list of several keys."""
    if len(listed.keys) == 1 or ledger.keys == listed.until(ledger.size):
        return ""
    return (
        f"after it key {ledger.keys.current.id} is in force, and by the list of keys "
        f"given {listed.at(ledger.size).id} signs heads over {ledger.size} entries: "
        "either that list is older, or this is not the operator's ledger"
    )


FileKind: TypeAlias = Literal[
    "receipt", "ledger export", "certificate", "evidence pack", "unknown"
]
AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)

UNKNOWN_FILE = (
    "it is not a receipt, a ledger export, a certificate or a pack of evidence"
)
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
        if self.data.startswith(b"PK"):
            return "evidence pack"
        for text in (self.data, self.data.partition(b"\n")[0]):
            try:
                content = loads(text, "File")
            except InvalidInput:
                continue
            if content.get("kind") == "receipt":
                return "receipt"
            if content.get("kind") in ("head", *KINDS):
                return "ledger export"
            if "commitment" in content:
                return "certificate"
        return "unknown"

    @property
    def line(self) -> bytes:
        """The content without the line ending that a shell or an editor adds."""
        return without_newline(self.data)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a file is valid, on which conditions, and what it does not cover."""

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
    """Check whether a file is valid.

    Parameters
    ----------
    file
        A receipt, a ledger export, a certificate or a pack of evidence.
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
        says = f"{file.path} is not valid: {UNKNOWN_FILE}, or it was damaged."
        return CheckResult(kind, Verdict((), (UNKNOWN_FILE,), says))
    if kind == "certificate":
        if seen:
            raise InvalidInput("--seen goes with a receipt or an export; omit it")
        opened = None if record is None else Record.from_json(record)
        try:
            certificate = Certificate.from_json(file.data)
        except InvalidInput as error:
            failure = f"this is not a certificate as it was issued: {error}"
            says = f"The certificate is not valid: {failure}."
            return CheckResult(kind, Verdict((), (failure,), says))
        judged = verify(certificate, opened)
        if not judged.valid:
            return CheckResult(kind, judged)
        provided = _collect_assumptions([certificate])
        return CheckResult(kind, judged, provided, certificate.not_covered)
    if pem is None:
        raise InvalidInput(
            f"{file.path} is signed; give the operator's public keys with --key, and "
            "get them from someone other than the person who gave you the file"
        )
    if kind == "evidence pack":
        if seen:
            raise InvalidInput("--seen goes with a receipt or an export; omit it")
        return CheckResult(kind, check_pack(file.data, pem))
    if kind == "ledger export":
        heads = [head for other in seen for head in _read_heads(other, pem)]
        return CheckResult(kind, check_export(file.data, pem, seen=heads))
    verdict = check_receipt(file.data, pem)
    if not verdict.valid:
        return CheckResult(kind, verdict)
    receipt = Receipt.from_json(file.line)
    findings, failures = list(verdict.findings), []
    for other in seen:
        if other.kind != "ledger export":
            raise InvalidInput(
                f"{other.path} is not a ledger export; compare a receipt with exports"
            )
        size = _require_valid(other, check_export(other.data, pem)).ledger.size
        if size < receipt.head.size:
            ends = "ends before the receipt: it could not be compared"
            findings.append(f"{other.path} {ends}")
            continue
        compared = check_export(other.data, pem, seen=[receipt.head])
        if compared.valid:
            findings.append(f"{other.path} is the same ledger")
        else:
            failures.append(f"{other.path} is another ledger: {compared.failures[0]}")
    if failures:
        says = f"The receipt is not valid: {'; '.join(failures)}."
        return CheckResult(kind, Verdict(tuple(findings), tuple(failures), says))
    full = replace(verdict, findings=tuple(findings))
    provided = _collect_assumptions(receipt.certificates.values())
    return CheckResult(kind, full, provided, verdict.not_covered)


def _collect_assumptions(certificates: Iterable[Certificate]) -> tuple[str, ...]:
    """Return what the promises rest on, each sentence once."""
    promising = [one for one in certificates if one.status == "certified"]
    return tuple(dict.fromkeys(text for one in promising for text in one.assumptions))


def _read_heads(other: FileToCheck, pem: bytes) -> Iterator[Head]:
    """Yield the heads in a receipt or an export that is valid."""
    if other.kind == "receipt":
        _require_valid(other, check_receipt(other.data, pem))
        yield Receipt.from_json(other.line).head
        return
    if other.kind != "ledger export":
        raise InvalidInput(
            f"{other.path} is not a receipt or a ledger export; omit it from --seen"
        )
    _require_valid(other, check_export(other.data, pem))
    for line in other.data.splitlines():
        page = read_document(line, Line)
        if isinstance(page, Head):
            yield page


def _require_valid(other: FileToCheck, verdict: AnyVerdict) -> AnyVerdict:
    """Return the verdict on a file to compare with; raise if it is not."""
    if not verdict.valid:
        raise InvalidInput(
            f"{other.path} is not valid itself ({verdict.failures[0]}); omit it"
        )
    return verdict
