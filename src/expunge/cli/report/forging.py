# SPDX-License-Identifier: Apache-2.0
"""Forging: copies with one thing changed, to be held against the checks.

A forger has no key: he can change what is written, and must leave the signatures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...ledger import check_export, check_receipt
from ...verification import Verdict
from .values import Forgery

# The genuine copies, and those that somebody tampered with.
RECEIPT, EXPORT = "receipt.json", "ledger.jsonl"
FORGED_RECEIPT = "forged-receipt.json"
SHORTENED_EXPORT, ALTERED_EXPORT = "shortened-ledger.jsonl", "altered-ledger.jsonl"

DONE: Mapping[str, str] = {
    FORGED_RECEIPT: "One digit of the receipt was changed: it now speaks of 9 people",
    SHORTENED_EXPORT: "An entry was taken out of the export of the ledger",
    ALTERED_EXPORT: "One digit of an entry in the export was changed: 9 people",
}
# Where a forger would begin: requests name a number of people.
PEOPLE = b'"n_subjects":'


@dataclass(frozen=True, slots=True)
class Papers:
    """What an operator hands out: a receipt, the whole ledger, the public keys."""

    receipt: bytes
    export: bytes
    public_pem: bytes

    def forged(self) -> dict[str, bytes]:
        """Return each forgery by the name of its file."""
        lines = self.export.splitlines(keepends=True)
        requests = [place for place, line in enumerate(lines) if PEOPLE in line]
        place = requests[len(requests) // 2]
        before, line, after = lines[:place], lines[place], lines[place + 1 :]
        return {
            FORGED_RECEIPT: with_nine(self.receipt),
            SHORTENED_EXPORT: b"".join([*before, *after]),
            ALTERED_EXPORT: b"".join([*before, with_nine(line), *after]),
        }

    def written(self, folder: Path) -> None:
        """Write all of them, genuine and forged, for anybody to check again."""
        genuine = {RECEIPT: self.receipt, EXPORT: self.export}
        files = {**genuine, "public.pem": self.public_pem, **self.forged()}
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def checked(self, name: str, content: bytes) -> Verdict:
        """Return what the check of such a paper says."""
        check = check_receipt if "receipt" in name else check_export
        return check(content, self.public_pem)

    def forgeries(self) -> tuple[Forgery, ...]:
        """Return what was done to each copy, and what the check says to it."""
        found = []
        for name, content in self.forged().items():
            verdict = self.checked(name, content)
            found.append(Forgery(name, DONE[name], verdict.stands, verdict.says))
        return tuple(found)


def with_nine(text: bytes) -> bytes:
    """Return a request's entry, or a receipt, about nine people instead of one."""
    return text.replace(PEOPLE + b"1", PEOPLE + b"9", 1)
