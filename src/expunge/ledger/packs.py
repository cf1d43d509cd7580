# SPDX-License-Identifier: Apache-2.0
"""Packs: evidence about requests in one ZIP, which anyone can check offline.

    pack.json                      the digest of every part, signed
    keys.pem                       the public keys of the ledger
    ledger.json                    entries about the requests, with proofs
    requests/ID/receipt.json       the receipt, and beside it other parts
    verify.html                    the check, for a browser

Parts are stored, not compressed, so that a page can read them. A part that was changed,
dropped, added or taken from elsewhere has another digest; a list of digests that was
changed has no signature. Each receipt is checked by itself, and its head must lead to
that of the pack: they are of one ledger.
"""

import io
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal

from msgspec.structs import force_setattr

from ..core.values import loads
from ..exceptions import InvalidInput
from ..promise.verification import Verdict
from .documents import Day, Digest, OptionalDay, matching
from .entries import (
    NO_KEY,
    NO_SIGNATURE,
    Head,
    RequestId,
    Signature,
    SignedDocument,
    read_entry,
)
from .keys import PublicKey
from .ledger import KeyHistory, hash_entry
from .merkle import extends, includes
from .receipts import Receipt, check_receipt

MANIFEST, KEYS, EXTRACT, PAGE = "pack.json", "keys.pem", "ledger.json", "verify.html"
LARGEST = 1 << 30  # bytes of all parts
PartName = Annotated[str, matching(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*", "a path")]
NOT_SHOWN = (
    "that what the operator states was done",
    "who asked, or whose data it was",
    "that letters and notifications were received",
    "that the access log and the notifications are complete: the operator states them",
    "that everybody is shown the same ledger, or that its clock is right",
    "that no key was replaced since the list of keys given was published",
)
"""What a pack says nothing about; each follows "It does not prove ..."."""


class EvidencePack(SignedDocument, frozen=True, kw_only=True, tag="evidence pack"):
    """What a pack of evidence holds, signed by the operator.

    Parameters
    ----------
    day
        When it was made.
    since, until
        Of a pack about a period: its first and last day; otherwise empty.
    requests
        What it is about.
    head
        Of the ledger when it was made.
    parts
        The SHA-256 of each part, by its path.
    key, signature
        The key of the head, and its signature of everything else.
    """

    day: Day
    since: OptionalDay
    until: OptionalDay
    requests: tuple[RequestId, ...]
    head: Head
    parts: Mapping[PartName, Digest]
    key: Digest = NO_KEY
    signature: Signature = NO_SIGNATURE
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        """Keep the parts from being changed."""
        force_setattr(self, "parts", {**self.parts})


def receipt_path(request: str) -> str:
    """Return where the receipt of a request lies in a pack."""
    return f"requests/{request}/receipt.json"


def read_parts(data: bytes) -> dict[str, bytes]:
    """Return the parts of a pack by path; refuse a file that is none."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            every = opened.infolist()
            if any(one.compress_type != zipfile.ZIP_STORED for one in every):
                raise InvalidInput("it was packed again by another program")
            if sum(one.file_size for one in every) > LARGEST:
                raise InvalidInput("it is longer than any pack")
            if len({one.filename for one in every}) < len(every):
                raise InvalidInput("it holds two parts of one name")
            return {one.filename: opened.read(one) for one in every}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        raise InvalidInput("it is no ZIP file, or is damaged") from None


def check_pack(data: bytes, public_pem: str | bytes) -> Verdict:
    """Return whether a pack of evidence is valid, and what that shows.

    Parameters
    ----------
    data
        The ZIP, as it was handed over.
    public_pem
        The public keys of the ledger, from a source other than the pack.
    """
    history = KeyHistory.from_pem(public_pem)
    try:
        parts = read_parts(data)
        if MANIFEST not in parts:
            raise InvalidInput(f"it has no {MANIFEST}")
        pack = EvidencePack.from_json(parts.pop(MANIFEST))
    except InvalidInput as error:
        return _refuse((), (f"this is not a pack as it was made: {error}",))
    key = history.at(pack.head.size)
    failure = _find_bad_signature(pack, history, key=key)
    if failure:
        return _refuse((), (failure,))
    found = [f"its list of parts is signed by key {key.id}"]
    failures = [
        f"{path} {'was altered' if path in parts else 'is missing'}"
        for path, digest in pack.parts.items()
        if sha256(parts.get(path, b"")).hexdigest() != digest or path not in parts
    ]
    failures += [f"{path} was added" for path in sorted({*parts} - {*pack.parts})]
    if failures:
        return _refuse(tuple(found), tuple(failures))
    found.append(f"its {len(parts)} parts are those that were packed")
    try:
        found += _check_parts(pack, parts, public_pem=public_pem)
    except InvalidInput as error:
        return _refuse(tuple(found), (str(error),))
    period = f" from {pack.since} to {pack.until}" if pack.since else ""
    says = (
        f"The pack is valid. On {pack.day} the operator put together and signed "
        f"evidence about {len(pack.requests)} request"
        f"{'s' * (len(pack.requests) != 1)}{period}. Each receipt is valid, and is in "
        f"one ledger of {pack.head.size} entries. It does not prove "
        f"{'; '.join(NOT_SHOWN)}."
    )
    return Verdict(tuple(found), (), says)


def _find_bad_signature(
    pack: EvidencePack, history: KeyHistory, *, key: PublicKey
) -> str:
    known = [one.id for _, one in history.keys]
    if pack.key not in known:
        return (
            f"it names key {pack.key}, which is not in the list of keys; ask the "
            "operator for the newest list of all keys of the ledger"
        )
    if pack.key != key.id:
        return (
            f"its head is over {pack.head.size} entries, and by the list of keys "
            "another key signs there: the one that it names may have been stolen; ask "
            "the operator"
        )
    if not pack.signed_by(key):
        return f"it is not signed by key {pack.key}"
    if not pack.head.signed_by(key):
        return f"its head is not signed by key {pack.key}"
    return ""


def _check_parts(
    pack: EvidencePack, parts: Mapping[str, bytes], *, public_pem: str | bytes
) -> list[str]:
    """Return what holds of the parts, or raise InvalidInput with what does not."""
    stated: dict[str, Any] = loads(parts.get(EXTRACT, b""), EXTRACT)
    extract = _check_extract(pack, stated)
    for request in pack.requests:
        path = receipt_path(request)
        if path not in parts:
            raise InvalidInput(f"it has no receipt of request {request}")
        verdict = check_receipt(parts[path], public_pem)
        if not verdict.valid:
            why = "; ".join(verdict.failures)
            raise InvalidInput(f"the receipt of request {request} is not valid: {why}")
        receipt = Receipt.from_json(parts[path])
        if receipt.entry.request != request:
            raise InvalidInput(
                f"the receipt of request {request} is that of {receipt.entry.request}"
            )
        if receipt.entry.to_json() not in extract:
            raise InvalidInput(f"the extract has no entry of request {request}")
        proof = tuple(map(bytes.fromhex, stated["growth"].get(request, ())))
        if not extends(pack.head.tree, receipt.head.tree, proof=proof):
            raise InvalidInput(
                f"the ledger of the receipt of request {request} does not lead to that "
                "of the pack: they are not one ledger"
            )
    return [
        f"its {len(extract)} entries are in a ledger of {pack.head.size}, by proofs",
        f"its {len(pack.requests)} receipts are valid, and their ledger leads to that "
        "of the pack",
    ]


def _check_extract(pack: EvidencePack, stated: Mapping[str, Any]) -> set[str]:
    """Return the entries of an extract, each proved to be in the ledger."""
    try:
        found = {
            spelled: tuple(map(bytes.fromhex, proof))
            for spelled, proof in zip(stated["entries"], stated["proofs"], strict=True)
        }
        if not isinstance(stated["growth"], dict):
            raise ValueError
    except (LookupError, ValueError, TypeError):
        raise InvalidInput(f"{EXTRACT} is not as packs have it") from None
    for spelled, proof in found.items():
        entry = read_entry(spelled)
        leaf = hash_entry(entry)
        if not includes(pack.head.tree, entry.sequence, leaf=leaf, proof=proof):
            raise InvalidInput(
                f"entry {entry.sequence} of the extract is not in the pack's ledger"
            )
    return {*found}


def _refuse(findings: tuple[str, ...], failures: tuple[str, ...]) -> Verdict:
    return Verdict(findings, failures, f"The pack is not valid: {'; '.join(failures)}.")
