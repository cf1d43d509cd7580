# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a person or an auditor keeps, complete in itself.

A receipt holds the ledger's entry about a request, the public certificates that the
entry names, the proof that the entry is in the ledger, the signed head above it, and
the operator's signature under everything. It holds no more than the entry and the
certificates say: nothing names a person, and nothing depends on a row except the
certificates' commitments.

``check_receipt`` needs the receipt and the public keys: no network, no ledger, no data.
It checks the signature first. If that is bad, nothing else in the receipt is worth
reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from ..core.values import dumps, loads
from ..exceptions import InvalidInput
from ..promise.canonical import Digest, load_schema
from ..promise.certificate import Certificate
from ..promise.verification import Verdict, verify
from ..rights.standing import OUTCOME_WORDS, REASONS, RIGHT_WORDS, describe_outcome
from .documents import ModelName, days_between
from .entries import (
    NO_KEY,
    NO_SIGNATURE,
    Head,
    RequestCompleted,
    Signature,
    SignedDocument,
    sign,
)
from .handling import (
    EFFECTS,
    GUARANTEES,
    WITHOUT_PROMISE,
    Handling,
    describe_effect,
    describe_guarantee,
)
from .keys import SigningKey
from .ledger import KeyHistory, hash_entry
from .merkle import Proof, includes

# Each follows "It says nothing about ...", like those of a certificate.
NOT_COVERED = (
    "who was removed: it names nobody, and only the operator can tell you that it "
    "answers your request",
    "whether the operator shows everybody the same ledger: compare its head with an "
    "export, or with the heads that others have",
    "whether the operator's clock, which gave the day of acceptance, is right",
    "copies of data or models other than the models that it names",
)

# Said where the key has no end in the list that was given.
AS_OF_THE_LIST = (
    "whether its key was replaced since the list of keys given was published: only a "
    "newer list would say where that key ends, so get one from the operator"
)
# Said where it has one: in its own range the key is good for ever.
RETIRED = (
    "whether its key, which is retired, was stolen: a thief could have signed it, for "
    "entries from before the rotation; compare it with an export of the ledger"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Receipt(SignedDocument):
    """The answer to a request, with its proof.

    Parameters
    ----------
    entry
        What the ledger says of the request: its id, when it was accepted, completed
        and due, for how many people, and the digest of each certificate.
    certificates
        For each model that was changed, its certificate.
    handling
        What was done, as an officer needs to know it.
    head
        A signed head of the ledger that covers the entry.
    proof
        Hashes that lead from the entry to the root in the head, in hexadecimal.
    key, signature
        The key of the head, and its signature of everything else.
    """

    entry: RequestCompleted
    certificates: Mapping[ModelName, Certificate]
    handling: Handling
    head: Head
    proof: tuple[Digest, ...]
    key: Digest = NO_KEY
    signature: Signature = NO_SIGNATURE
    kind: Literal["receipt"] = "receipt"
    version: Literal[1] = 1

    # A refused value may be very long; its field and the reason are enough.
    private: ClassVar[bool] = True

    def require_consistent(self) -> None:
        """Refuse certificates that are not of the entry's models, or say less."""
        promised = describe_guarantee(self.entry.right, self.certificates.values())
        if self.handling.guarantee != promised:
            raise InvalidInput(
                "Receipt: the guarantee in words is not what its certificates promise"
            )
        if set(self.certificates) != set(self.entry.certificates):
            raise InvalidInput(
                f"Receipt: certificates of {sorted(self.certificates)}, and the entry "
                f"is about {sorted(self.entry.certificates)}; it needs one for each"
            )

    @property
    def path(self) -> Proof:
        """The proof as hashes."""
        return tuple(bytes.fromhex(sibling) for sibling in self.proof)


class EntryProof(NamedTuple):
    """A head that covers an entry, and the hashes that lead from the one to the other.

    ``proof`` is ``inclusion_proof(nodes, entry.sequence, head.size)``.
    """

    head: Head
    proof: Proof


def issue_receipt(
    entry: RequestCompleted,
    certificates: Mapping[str, Certificate],
    *,
    handling: Handling,
    place: EntryProof,
    key: SigningKey,
) -> Receipt:
    """Return the signed receipt of a completed request.

    Parameters
    ----------
    entry
        As it stands in the ledger.
    certificates
        For each model that the entry names, the certificate whose digest it holds.
    handling
        What was done.
    place
        Where the entry is, under a head that ``key`` signed.
    key
        The key in force.
    """
    unsigned = Receipt(
        entry=entry,
        certificates=certificates,
        handling=handling,
        head=place.head,
        proof=tuple(sibling.hex() for sibling in place.proof),
        key=key.public.id,
    )
    return sign(unsigned, key)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of this version's receipts, that of certificates in it."""
    # With a name of its own, what it refers to is looked for within itself.
    inner = load_schema("certificate") | {"$id": "certificate.json"}
    return load_schema("receipt") | {"$defs": {"certificate": inner}}


def rules() -> dict[str, Any]:
    """Return what ``check.js`` checks receipts by: their schema, and the words used."""
    words = {
        "not_covered": NOT_COVERED,
        "as_of_the_list": AS_OF_THE_LIST,
        "retired": RETIRED,
        "resaved": RESAVED,
        "rights": RIGHT_WORDS,
        "outcomes": OUTCOME_WORDS,
        "reasons": REASONS,
        "effects": EFFECTS,
        "without_promise": WITHOUT_PROMISE,
        "guarantees": GUARANTEES,
    }
    return {"schema": schema(), "words": words}


Findings: TypeAlias = list[tuple[str, str]]
"""Each a finding, and the failure if it does not hold."""


@dataclass(frozen=True, slots=True)
class ReceiptVerdict(Verdict):
    """What the check of a receipt found.

    Parameters
    ----------
    not_covered
        What the receipt says nothing about, including what its certificates exclude;
        empty if it is not valid.
    resaved
        Whether it is not valid only because some program saved it in another spelling:
        what it says is what was signed.
    """

    not_covered: tuple[str, ...] = ()
    resaved: bool = False


RESAVED = (
    "it was saved again in another spelling: what it says is what was signed, but its "
    "bytes are not; use the file as you were given it, or write this one as canonical "
    "JSON (RFC 8785)"
)


def without_newline(data: bytes) -> bytes:
    """Return a document without the one line ending that a shell or an editor adds."""
    return data.removesuffix(b"\n").removesuffix(b"\r" if data[-1:] == b"\n" else b"")


def check_receipt(receipt: str | bytes, public_pem: str | bytes) -> ReceiptVerdict:
    """Return whether a receipt is valid, and what that shows.

    Parameters
    ----------
    receipt
        As it was handed over, byte for byte; one newline at its end is no matter.
    public_pem
        The public keys of the operator's ledger, each with the sizes of the heads that
        it signs (``KeyHistory.to_pem``), from a source other than the receipt.
    """
    history = KeyHistory.from_pem(public_pem)
    given = (
        receipt
        if isinstance(receipt, bytes)
        else receipt.encode("utf-8", "surrogatepass")
    )
    data = without_newline(given)
    verdict = _check_bytes(data, history)
    if verdict.valid:
        return verdict
    try:
        # Some editors put a mark of the encoding in front.
        spelled = dumps(loads(data.decode("utf-8-sig"), "Receipt")).encode()
    except (InvalidInput, RecursionError, UnicodeDecodeError):
        return verdict
    if spelled != data and _check_bytes(spelled, history).valid:
        return replace(_refuse((), (RESAVED,)), resaved=True)
    return verdict


def _check_bytes(data: bytes, history: KeyHistory) -> ReceiptVerdict:
    """Return whether a receipt in these bytes is valid."""
    try:
        parsed = Receipt.from_json(data)
    except InvalidInput as error:
        return _refuse((), (f"this is not a receipt as it was issued: {error}",))
    failure = _check_signatures(parsed, history)
    if failure:
        return _refuse((), (failure,))
    found = [*_list_signers(parsed, history), *_check_place(parsed)]
    verdicts = {name: verify(one) for name, one in parsed.certificates.items()}
    for name, verdict in verdicts.items():
        found.append(_check_digest(parsed, name))
        found += [(f"{name}: {finding}", "") for finding in verdict.findings]
        found += [("", f"{name}: {failure}") for failure in verdict.failures]
    findings = tuple(finding for finding, failure in found if not failure)
    failures = tuple(failure for _, failure in found if failure)
    if failures:
        return _refuse(findings, failures)
    exclusions = _exclusions(parsed, history)
    promises = [f"Model {name}: {verdict.says}" for name, verdict in verdicts.items()]
    says = " ".join(
        (
            _describe(parsed),
            *promises,
            f"It says nothing about {'; '.join(exclusions)}.",
        )
    )
    return ReceiptVerdict(findings, (), says, exclusions)


def _refuse(findings: tuple[str, ...], failures: tuple[str, ...]) -> ReceiptVerdict:
    says = f"The receipt is not valid: {'; '.join(failures)}."
    return ReceiptVerdict(findings, failures, says)


def _check_signatures(receipt: Receipt, history: KeyHistory) -> str:
    """Return what is wrong with the signatures of the receipt and its head."""
    ids = [key.id for _, key in history.keys]
    if receipt.key not in ids:
        return (
            f"it names key {receipt.key}, and the keys given are {', '.join(ids)}; ask "
            "the operator for the newest list of all keys of the ledger"
        )
    key = history.at(receipt.head.size)
    if receipt.key != key.id:
        return (
            f"its head is over {receipt.head.size} entries, and by the list of keys "
            f"given key {key.id} signs there, not {receipt.key}, which the receipt "
            "names: that key may have been stolen; ask the operator"
        )
    if not receipt.signed_by(key):
        return f"it is not signed by key {receipt.key}"
    if not receipt.head.signed_by(key):
        return f"its head is not signed by key {receipt.key}"
    return ""


def _list_signers(receipt: Receipt, history: KeyHistory) -> Findings:
    """Say whose the signatures are, once they are verified."""
    first, last = history.range_at(receipt.head.size)
    sizes = (
        f"{first} entries and more" if last is None else f"{first} to {last} entries"
    )
    return [
        (f"it is signed by key {receipt.key}", ""),
        (f"that key signs heads over {sizes}, by the list of keys given", ""),
    ]


def _check_place(receipt: Receipt) -> Findings:
    """Compare the entry with the head."""
    entry, head = receipt.entry, receipt.head
    inside = includes(
        head.tree, entry.sequence, leaf=hash_entry(entry), proof=receipt.path
    )
    return [
        (
            f"the request is entry {entry.sequence} of a ledger of {head.size}, by the "
            "proof and the signed head",
            "" if inside else "the proof does not lead from the entry to the head",
        ),
        (
            "the head was not signed before the entry was written",
            "" if head.day >= entry.day else "the head is older than the entry",
        ),
    ]


def _check_digest(receipt: Receipt, name: str) -> tuple[str, str]:
    """Compare a certificate with the digest in the entry."""
    same = receipt.certificates[name].digest() == receipt.entry.certificates[name]
    return (
        f"{name}: the certificate is the one that the ledger names",
        "" if same else f"{name}: the certificate is not the one in the ledger",
    )


def _describe(receipt: Receipt) -> str:
    """Return what happened to the request, in sentences."""
    entry = receipt.entry
    models = ", ".join(receipt.certificates) or "none"
    outcome = describe_outcome(entry.outcome, entry.reason)
    right = RIGHT_WORDS.get(entry.right, entry.right)
    return (
        f"The operator states that request {entry.request} ({right}, "
        f"{entry.regime}), made on {entry.submitted} and accepted on {entry.accepted}, "
        f"was answered on {entry.day}, {_punctuality(entry)} its deadline of "
        f"{entry.deadline}. Outcome: {outcome}. {_describe_rows(receipt)}"
        f"People it was about: {entry.n_subjects}. Models changed: {models}. "
        f"{describe_effect(entry.right, receipt.certificates)}"
        f"{receipt.handling.guarantee} The statement is entry {entry.sequence} of the "
        "ledger and cannot be taken back unnoticed."
    )


def _describe_rows(receipt: Receipt) -> str:
    """Return what was destroyed and what is kept, in sentences."""
    handling, said = receipt.handling, []
    if handling.destroyed:
        said.append(f"Destroyed: {', '.join(handling.destroyed)}.")
        until = handling.backups_until
        said.append(
            f"Backups may hold them until {until}."
            if until
            else "The operator has not stated until when backups hold them."
        )
    if handling.retained:
        until = handling.retained_until
        end = f" until {until}" if until else ""
        said.append(f"Rows are kept sealed{end} ({handling.retained}).")
    for model, names in handling.copies.items():
        if names:
            said.append(
                f"Copies of superseded releases of {model} that were not stated to be "
                f"taken back: {', '.join(names)}."
            )
    return "".join(f"{one} " for one in said)


def _punctuality(entry: RequestCompleted) -> str:
    """Return how the completion compares with the deadline; on that day is in time."""
    left = days_between(entry.day, entry.deadline)
    if not left:
        return "on the day of"
    days = f"{abs(left)} day{'s' * (abs(left) > 1)}"
    return f"{days} before" if left > 0 else f"{days} AFTER"


def _exclusions(receipt: Receipt, history: KeyHistory) -> tuple[str, ...]:
    """Return what is not covered, each sentence once."""
    inner = [text for one in receipt.certificates.values() for text in one.not_covered]
    _, last = history.range_at(receipt.head.size)
    about_key = AS_OF_THE_LIST if last is None else RETIRED
    return tuple(dict.fromkeys((*NOT_COVERED, about_key, *inner)))
