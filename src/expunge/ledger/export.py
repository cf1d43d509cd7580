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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from ..core.values import loads
from ..exceptions import InvalidInput
from ..promise.certificate import Certificate
from ..promise.verification import Record, Verdict, verify
from .documents import CanonicalDocument, read_document
from .entries import KINDS, AnyEntry, Entry, Head, KeyRotated, payload_of
from .keys import PublicKey
from .ledger import KeyHistory, Ledger, check_place, unsigned_message
from .merkle import leaf_hash
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
    _require_comparable(start, listed, seen=seen)
    sizes: defaultdict[int, list[Head]] = defaultdict(list)
    for head in seen:
        sizes[head.size].append(head)
    reader = _ExportReader(start, listed, seen=dict(sizes))
    data = lines.encode("utf-8", "surrogatepass") if isinstance(lines, str) else lines
    *whole, rest = data.split(b"\n")
    failure = reader.check_seen_heads()
    for number, line in enumerate(whole, start=1):
        if failure:
            break
        try:
            document = read_document(line, Line)
        except InvalidInput as error:
            due = reader.size
            failure = f"line {number}, at entry {due}, cannot be parsed: {error}"
        else:
            failure = reader.read(document, line)
    if not failure:
        failure = reader.check_end(rest)
    # A bad signature under a head takes precedence over anything else found.
    failure = reader.verify_signatures() or failure
    return _make_verdict(reader, failure)


@dataclass(frozen=True, slots=True)
class UnverifiedSignature:
    """A signature that has not been verified yet."""

    key: PublicKey
    signature: bytes
    payload: bytes


def find_bad_signature(signatures: Sequence[UnverifiedSignature]) -> int | None:
    """Return the position of the first signature that fails; None if all hold.

    The library verifies without Python's lock, so that threads share the work.
    """

    def find_in_share(start: int) -> int | None:
        for place, one in enumerate(signatures[start : start + SHARE], start):
            if not one.key.verifies(one.signature, one.payload):
                return place
        return None

    starts = range(0, len(signatures), SHARE)
    if len(starts) < 2:
        return find_in_share(0)
    with ThreadPoolExecutor() as pool:
        found = pool.map(find_in_share, starts)
        return next((place for place in found if place is not None), None)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A head that fits: its signature, what a bad one means, and the ledger before."""

    signature: UnverifiedSignature
    failure: str
    before: Ledger


class _ExportReader:
    """How far an export was read, and up to where heads confirm it.

    Between heads only the position, the day and the hash of each entry are kept. The
    signatures of heads are verified many at a time, so that cores share the work.
    """

    def __init__(
        self, start: Ledger, listed: KeyHistory, *, seen: Mapping[int, Sequence[Head]]
    ) -> None:
        self.confirmed = start
        self.listed = listed
        self.seen = seen
        self._ledger = start
        self._day = start.day
        self._leaves: list[bytes] = []
        self._claims: list[_Claim] = []
        # Where the keys in force may begin to differ from those listed.
        self._turns = {since for since, _ in listed.keys}

    @property
    def size(self) -> int:
        """Number of entries read."""
        return self._ledger.size + len(self._leaves)

    def ledger(self) -> Ledger:
        """Return the ledger up to here."""
        if self._leaves:
            grown = self._ledger.frontier.extend(self._leaves)
            self._ledger = Ledger(grown, self._ledger.keys, self._day)
            self._leaves = []
        return self._ledger

    def read(self, document: Entry | Head, line: bytes) -> str:
        """Take the next document, and return what is wrong with it."""
        if isinstance(document, Head):
            return self._read_head(document, line)
        size = self.size
        if isinstance(document, KeyRotated) or size + 1 in self._turns:
            return self._read_key_change(document, line)
        failure = check_place(document, size, day=self._day)
        if failure:
            return failure
        self._leaves.append(leaf_hash(line))
        self._day = document.day
        return self.check_seen_heads() if size + 1 in self.seen else ""

    def _read_key_change(self, entry: Entry, line: bytes) -> str:
        """Take an entry at which a key may change."""
        ledger = self.ledger()
        failure = ledger.check_entry(entry)
        if failure:
            return failure
        grown = ledger.append_hashed(entry, leaf_hash(line))
        failure = _check_listed(grown, self.listed)
        if failure:
            return f"entry {entry.sequence} is wrong: {failure}"
        self._ledger, self._day = grown, grown.day
        return self.check_seen_heads()

    def _read_head(self, head: Head, line: bytes) -> str:
        """Take a head of the export, which confirms what was read before it."""
        failure = self._check_head(head)
        if not failure:
            self._claim(head, payload_of(line.decode()), failure=unsigned_message(head))
            self.confirmed = self.ledger()
        return failure

    def _check_head(self, head: Head) -> str:
        """Return what a head contradicts, and where that must be."""
        ledger = self.ledger()
        failure = ledger.check_contents(head)
        first, last = self.confirmed.size, ledger.size - 1
        if not failure or head.tree == ledger.frontier.tree() or first > last:
            return failure
        where = (
            f"entry {last}" if first == last else f"one of entries {first} to {last}"
        )
        return f"{failure}: {where} was changed, inserted, removed or moved"

    def check_seen_heads(self) -> str:
        """Return what heads from elsewhere contradict at this point."""
        for head in self.seen.get(self.size, ()):
            disagrees = "a head from elsewhere disagrees: "
            failure = self._check_head(head)
            if failure:
                return disagrees + failure
            self._claim(
                head, head.payload(), failure=disagrees + unsigned_message(head)
            )
        return ""

    def _claim(self, head: Head, payload: bytes, *, failure: str) -> None:
        """Remember to verify the signature of a head that fits."""
        key = self.ledger().keys.at(head.size)
        signature = UnverifiedSignature(key, bytes.fromhex(head.signature), payload)
        self._claims.append(_Claim(signature, failure, self.confirmed))

    def verify_signatures(self) -> str:
        """Return the first signature that fails; confirm only what came before it."""
        place = find_bad_signature([claim.signature for claim in self._claims])
        if place is None:
            return ""
        self.confirmed = self._claims[place].before
        return self._claims[place].failure

    def check_end(self, rest: bytes) -> str:
        """Return what is wrong with the end of the export."""
        size = self.size
        if rest:
            return f"the export breaks off within a line, after {size} entries"
        longest = max(self.seen, default=0)
        if longest > size:
            return (
                f"a head from elsewhere is over {longest} entries and the export has "
                f"{size}: entries {size} to {longest - 1} were cut off"
            )
        if self.confirmed.size < size or not size:
            return f"no head vouches for what comes after {self.confirmed.size} entries"
        return ""


def _check_listed(ledger: Ledger, listed: KeyHistory) -> str:
    """Return how a ledger's keys differ from a list of several keys."""
    if len(listed.keys) == 1 or ledger.keys == listed.until(ledger.size):
        return ""
    return (
        f"after it key {ledger.keys.current.id} is in force, and by the list of keys "
        f"given {listed.at(ledger.size).id} signs heads over {ledger.size} entries: "
        "either that list is older, or this is not the operator's ledger"
    )


def _require_comparable(
    start: Ledger, listed: KeyHistory, *, seen: Sequence[Head]
) -> None:
    """Refuse keys or heads that cannot be compared with this export."""
    if start.keys.at(0) != listed.at(0):
        raise InvalidInput(
            f"the ledger to go on from began with key {start.keys.at(0).id}, and the "
            f"first key given is {listed.at(0).id}; give the keys of that ledger"
        )
    if _check_listed(start, listed):
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


def _make_verdict(reader: _ExportReader, failure: str) -> ExportVerdict:
    """Return what was found, in words."""
    confirmed = reader.confirmed
    n_agree = sum(
        len(heads) for size, heads in reader.seen.items() if size <= confirmed.size
    )
    findings = [
        f"entries below {confirmed.size} are those that the heads were signed for"
    ]
    if n_agree:
        findings.append(f"{n_agree} heads from elsewhere agree")
    if failure:
        says = (
            f"The export is not valid: {failure}. Heads vouch for the "
            f"{confirmed.size} entries before; what comes after was not judged."
        )
    else:
        says = (
            f"All {confirmed.size} entries are those that the operator signed for, the "
            f"last one dated {confirmed.day}. {NOT_SHOWN}"
        )
    return ExportVerdict(
        tuple(findings), (failure,) if failure else (), says, confirmed
    )


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
        says = f"{file.path} is not valid: {UNKNOWN_FILE}, or it was damaged."
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
        says = f"The certificate is not valid: {failure}."
        return CheckResult("certificate", Verdict((), (failure,), says))
    verdict = verify(certificate, opened)
    if not verdict.valid:
        return CheckResult("certificate", verdict)
    provided = _collect_assumptions([certificate])
    return CheckResult("certificate", verdict, provided, certificate.not_covered)


def _check_receipt(
    file: FileToCheck, pem: bytes, *, seen: Sequence[FileToCheck]
) -> CheckResult:
    verdict = check_receipt(file.data, pem)
    if not verdict.valid:
        return CheckResult("receipt", verdict)
    receipt = Receipt.from_json(file.line)
    compared = [_compare(receipt.head, other, pem=pem) for other in seen]
    failures = tuple(failure for _, failure in compared if failure)
    findings = tuple(finding for finding, _ in compared if finding)
    findings = verdict.findings + findings
    if failures:
        says = f"The receipt is not valid: {'; '.join(failures)}."
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
    size = _require_valid(other, check_export(other.data, pem)).ledger.size
    if size < head.size:
        return f"{other.path} ends before the receipt: it could not be compared", ""
    verdict = check_export(other.data, pem, seen=[head])
    if verdict.valid:
        return f"{other.path} is the same ledger", ""
    return "", f"{other.path} is another ledger: {verdict.failures[0]}"


def _check_export(
    file: FileToCheck, pem: bytes, *, seen: Sequence[FileToCheck]
) -> CheckResult:
    heads = [head for other in seen for head in _read_heads(other, pem)]
    return CheckResult("ledger export", check_export(file.data, pem, seen=heads))


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
