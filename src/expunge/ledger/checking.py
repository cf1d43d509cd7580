# SPDX-License-Identifier: Apache-2.0
"""Checking: whether a ledger's export stands, and which entry does not.

An export is a file of lines, each the canonical JSON of an entry or of a head, in the
order in which they came. Entries are counted, dated and hashed; heads say what the hash
must be, and rotations which key signs them. Reading stops at the first line that does
not fit, since nothing after it can be judged.

What was cut off at the end leaves no trace in what is left. It shows against a head
that the reader has from elsewhere: from an earlier export, or from a receipt.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..exceptions import InvalidInput
from ..verification import Verdict
from .book import Ledger
from .entries import KINDS, Entry
from .heads import Head
from .pages import Page
from .ring import KeyRing
from .spelling import read_page

# What a line of an export may be.
LINES: Mapping[str, type[Entry | Head]] = {"head": Head, **KINDS}

NOT_SHOWN = (
    "This does not show that nothing was cut off after the last head: a missing end "
    "shows only against a later head, from another export or a receipt. Nor does it "
    "show that everybody is shown the same ledger, that the operator's clock is right, "
    "that no key was replaced since the list of keys given was published, or that what "
    "the entries say was done."
)


@dataclass(frozen=True, slots=True)
class ExportVerdict(Verdict):
    """What the check of an export found.

    Parameters
    ----------
    ledger
        Where the ledger stands at the last head that holds; continue from it with the
        lines that come later.
    """

    ledger: Ledger


def export(pages: Iterable[Page]) -> bytes:
    """Return entries and heads as the lines of a file, in this order."""
    return b"".join(page.to_json().encode("ascii") + b"\n" for page in pages)


def check_export(
    lines: str | bytes,
    public_pem: str | bytes,
    *,
    since: Ledger | None = None,
    seen: Sequence[Head] = (),
) -> ExportVerdict:
    """Return whether an export stands, and if not, which entry.

    Parameters
    ----------
    lines
        The export.
    public_pem
        The public keys of the ledger, each with the sizes of the heads that it signs
        (``KeyRing.to_pem``): keys change there, and nowhere else. One key alone must be
        the first of the ledger, and rotations lead on from it.
    since
        Where an earlier export ended (``ExportVerdict.ledger``), if this one goes on
        from there; otherwise it must begin at the beginning.
    seen
        Heads that the reader has from elsewhere; the export must agree with them.
    """
    listed = KeyRing.from_pem(public_pem)
    start = Ledger.begin(listed.at(0)) if since is None else since
    _require_comparable(start, listed, seen)
    sizes: defaultdict[int, list[Head]] = defaultdict(list)
    for head in seen:
        sizes[head.size].append(head)
    reading = _Reading(start, start, listed, dict(sizes))
    failure = reading.held(start)
    data = lines.encode("utf-8", "surrogatepass") if isinstance(lines, str) else lines
    *whole, rest = data.split(b"\n")
    for number, line in enumerate(whole, start=1):
        if failure:
            break
        try:
            page = read_page(line, LINES)
        except InvalidInput as error:
            due = reading.ledger.size
            failure = f"line {number}, at entry {due}, is not to be read: {error}"
        else:
            reading, failure = reading.turned(page)
    if not failure:
        failure = reading.unfinished(rest)
    return _verdict(reading, failure)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How far an export was read, and how far a head vouches for it."""

    ledger: Ledger
    vouched: Ledger
    listed: KeyRing
    seen: Mapping[int, Sequence[Head]]

    def turned(self, page: Entry | Head) -> tuple["_Reading", str]:
        """Return the reading one page further, and what is wrong with that page."""
        if isinstance(page, Head):
            failure = self.disputed(self.ledger, page)
            vouched = self.vouched if failure else self.ledger
            return _Reading(self.ledger, vouched, self.listed, self.seen), failure
        failure = self.ledger.objection(page)
        if failure:
            return self, failure
        ledger = self.ledger.append(page)
        failure = _unlisted(ledger, self.listed)
        if failure:
            return self, f"entry {page.sequence} is wrong: {failure}"
        return (
            _Reading(ledger, self.vouched, self.listed, self.seen),
            self.held(ledger),
        )

    def disputed(self, ledger: Ledger, head: Head) -> str:
        """Return what a head contradicts, and where that must be."""
        failure = ledger.disagreement(head)
        first, last = self.vouched.size, ledger.size - 1
        if not failure or head.tree == ledger.frontier.tree():
            return failure
        where = (
            f"entry {last}" if first == last else f"one of entries {first} to {last}"
        )
        if first > last:
            return failure
        return f"{failure}: {where} was changed, inserted, removed or moved"

    def held(self, ledger: Ledger) -> str:
        """Return what the heads held by the reader say against this point."""
        for head in self.seen.get(ledger.size, ()):
            failure = self.disputed(ledger, head)
            if failure:
                return f"a head from elsewhere disagrees: {failure}"
        return ""

    def unfinished(self, rest: bytes) -> str:
        """Return what is wrong with the end of the export."""
        size = self.ledger.size
        if rest:
            return f"the export breaks off within a line, after {size} entries"
        longest = max(self.seen, default=0)
        if longest > size:
            return (
                f"a head from elsewhere is over {longest} entries and the export has "
                f"{size}: entries {size} to {longest - 1} were cut off"
            )
        if self.vouched.size < size or not size:
            return f"no head vouches for what comes after {self.vouched.size} entries"
        return ""


def _unlisted(ledger: Ledger, listed: KeyRing) -> str:
    """Return how the keys of a ledger are not those of the list, if it has several."""
    if len(listed.keys) == 1 or ledger.keys == listed.until(ledger.size):
        return ""
    return (
        f"after it key {ledger.keys.current.id} is in force, and by the list of keys "
        f"given {listed.at(ledger.size).id} signs heads over {ledger.size} entries: "
        "either that list is older, or this is not the operator's ledger"
    )


def _require_comparable(start: Ledger, listed: KeyRing, seen: Sequence[Head]) -> None:
    """Refuse to begin where the keys or the heads held cannot be used."""
    if start.keys.at(0) != listed.at(0):
        raise InvalidInput(
            f"the ledger to go on from began with key {start.keys.at(0).id}, and the "
            f"first key given is {listed.at(0).id}; give the keys of that ledger"
        )
    if _unlisted(start, listed):
        raise InvalidInput(
            f"the ledger to go on from, of {start.size} entries, changed its keys "
            "elsewhere than the list of keys given; check the whole export by that list"
        )
    early = [head.size for head in seen if head.size < start.size]
    if early:
        raise InvalidInput(
            f"a head over {early[0]} entries cannot be held against an export that "
            f"begins after {start.size}; check it against the whole export"
        )


def _verdict(reading: _Reading, failure: str) -> ExportVerdict:
    """Return what was found, in words."""
    vouched = reading.vouched
    held = sum(len(reading.seen[size]) for size in reading.seen if size <= vouched.size)
    findings = [
        f"entries below {vouched.size} are those that the heads were signed for"
    ]
    if held:
        findings.append(f"{held} heads from elsewhere agree")
    if failure:
        says = (
            f"The export does not stand: {failure}. Heads vouch for the {vouched.size} "
            "entries before; what comes after was not judged."
        )
    else:
        says = (
            f"All {vouched.size} entries are those that the operator signed for, the "
            f"last one of {vouched.day}. {NOT_SHOWN}"
        )
    return ExportVerdict(tuple(findings), (failure,) if failure else (), says, vouched)
