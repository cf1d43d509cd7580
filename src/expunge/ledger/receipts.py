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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Raw
from msgspec.structs import force_setattr

from ..core.values import dumps, loads
from ..exceptions import InvalidInput
from ..promise.canonical import load_schema
from ..promise.certificate import Certificate
from ..promise.scope import state_limit
from ..promise.verification import Verdict, verify
from ..rights.regimes import REGIMES
from ..rights.standing import (
    FOR_HOLDS,
    KEPT_OUT,
    OUTCOME_WORDS,
    OUTCOMES,
    REASONS,
    RIGHT_WORDS,
    RIGHTS,
    describe_outcome,
)
from .documents import (
    CanonicalDocument,
    Digest,
    ModelName,
    OptionalDay,
    Sentence,
    days_between,
    one_of,
)
from .entries import (
    EXTENSIONS,
    NO_KEY,
    NO_SIGNATURE,
    Head,
    RequestCompleted,
    Signature,
    SignedDocument,
    sign,
)
from .keys import SigningKey
from .ledger import KeyHistory, hash_entry
from .merkle import Proof, includes

RESTRICTION = "restriction"
RETRAIN = "retrain"  # the mechanism that fits again, as certificates name it
DESTROYED = (
    "rows",
    "keys of rows",
    "private states",
    "parameters of superseded releases",
)
"""What a request can destroy."""
REFERENCES = sorted(
    {text for regime in REGIMES.values() for _, text in regime.references}
)
REMOVED = {
    "data": "without your data",
    "before": "that you were in the data",
    "effect": "The influence of your data on the published parameters of {models} was "
    "removed.",
}
EFFECTS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(RIGHTS, REMOVED),
    "rectify": {
        "data": "with your corrected data",
        "before": "that it had learnt from your former data",
        "effect": "The published parameters of {models} follow from your corrected "
        "data.",
    },
    "lift": {
        "data": "with your data",
        "before": "that they were put back",
        "effect": "The published parameters of {models} follow from your data again.",
    },
}
"""By what was asked: what a retrained model learns from, what somebody may think
instead of that, and what it means for models with a promise."""
WITHOUT_PROMISE = (
    "Of {models}, changed too, nothing is promised about what is left in the result."
)
GUARANTEES: Mapping[str, str] = {
    "no promise": (
        "For at least one model nothing is promised; the certificates say which."
    ),
    "certified": (
        "Up to noise that hides the difference, the result is what retraining {data} "
        "gives: someone who thought 50:50 {before}, and otherwise that the model was "
        "retrained, is {limit} after seeing this release of it (epsilon {epsilon}, "
        "delta {delta})."
    ),
    "exact": "To the last bit, the result is what retraining {data} gives.",
    "": "No model was changed, so nothing is promised about one.",
}
"""What is promised in words, by the weakest status of the certificates."""
METHODS = ("", "exact", "certified", "retrained", "excluded only", "no promise")
"""How the influence of data on models was removed, changed or put back."""
EXCLUSIONS = ("", "until readmitted", "until lifted", "until the day stated")
"""Whether the people are left out of later fits, and how that ends."""
EXCLUSION_WORDS: Mapping[str, str] = {
    "until readmitted": "until the operator states that the person came back",
    "until lifted": "until the restriction is lifted",
    "until the day stated": "until {day}, after which the operator destroys that by "
    "which the person is recognised",
}
TOLD = ("erase", "object", "rectify", "restrict")
"""Rights of whose exercise recipients of the data must hear (GDPR Art. 19)."""


class Handling(CanonicalDocument, frozen=True, kw_only=True, tag="handling"):
    """What was done, in the words of an officer.

    Parameters
    ----------
    basis
        Where the law grants the right; empty if it does not know this one.
    destroyed
        What no longer exists: rows and the keys that open them, private states made
        with them, parameters of releases made with them.
    backups_until
        The last day on which a backup of the operator can hold what was destroyed;
        empty if the operator has not stated one.
    retained, retained_until
        Why rows are kept sealed, and until which day; empty if none are, or no end is
        set. Of every request the journal keeps a keyed tag, so that nobody who was
        erased comes back with a backup or a fit.
    copies
        For each model, the file names under which superseded releases left and were
        not stated to be taken back.
    extended, notified
        Why the deadline was extended, and when the person was told; empty if not.
    guarantee
        What is promised, in one sentence.
    method
        How models were changed: "exact", "certified" or, where the mechanism fits
        again, "retrained"; "no promise" if nothing is promised of one of them;
        "excluded only" if no model was changed and the people are left out of later
        fits; empty if neither.
    exclusion, excluded_until
        Whether the people are left out of later fits, and how, or on which day, that
        ends; empty if they are not, or no day is set.
    recipients
        Whom the operator tells, as the operator names them: those to whom the data
        were passed on. When each was told is no part of a receipt.
    """

    basis: Annotated[str, one_of("", *REFERENCES)]
    destroyed: tuple[Annotated[str, one_of(*DESTROYED)], ...]
    backups_until: OptionalDay
    retained: Annotated[str, one_of("", RESTRICTION, *FOR_HOLDS)]
    retained_until: OptionalDay
    copies: Mapping[ModelName, tuple[Sentence, ...]]
    extended: Annotated[str, one_of("", *EXTENSIONS)]
    notified: OptionalDay
    guarantee: Sentence
    method: Annotated[str, one_of(*METHODS)]
    exclusion: Annotated[str, one_of(*EXCLUSIONS)]
    excluded_until: OptionalDay
    recipients: tuple[Sentence, ...]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        """Refuse an end without a reason."""
        force_setattr(self, "copies", MappingProxyType(self.copies))
        if (
            (self.retained_until and not self.retained)
            or bool(self.notified) != bool(self.extended)
            or bool(self.excluded_until) != (self.exclusion == EXCLUSIONS[-1])
        ):
            raise InvalidInput(
                "Handling: a day without its reason, or a reason without its day"
            )


def list_destroyed(
    right: str, outcome: str, *, reason: str, changed: bool, in_files: bool = False
) -> tuple[str, ...]:
    """Return what a request destroyed; where it is not known, less.

    Parameters
    ----------
    right, outcome, reason
        What was asked, what became of it, and why.
    changed
        Whether a model was changed.
    in_files
        Whether the rows may lie in files that the registry only reads, and then still
        do: what is destroyed is where they are.
    """
    assert right in RIGHTS and outcome in OUTCOMES and reason in REASONS
    erases = right in ("erase", "object", "rectify", "end-hold")
    # Where all rows are held, an erasure is answered by "partly" and destroys none.
    surely = outcome == "done" or (outcome == "partly" and changed)
    ended = right == "end-hold" and outcome == "partly"
    # Sealed rows of an earlier fit cannot come back, and are destroyed.
    stale = right == "lift" and reason == "fitted-again"
    first = 1 if in_files else 0
    rows = DESTROYED[first:2] if stale or (erases and (surely or ended)) else ()
    return rows + (DESTROYED[2:] if changed else ())


def state_exclusion(right: str, outcome: str, *, until: str = "") -> str:
    """Return how a request leaves its people out of later fits, by ``EXCLUSIONS``.

    Parameters
    ----------
    right, outcome
        What was asked, and what became of it.
    until
        The day on which the operator destroys what people are recognised by; empty if
        no day is set.
    """
    if right not in KEPT_OUT or outcome == "refused":
        return ""
    if right == "restrict":
        return "until lifted"
    return EXCLUSIONS[-1] if until else "until readmitted"


def state_method(exclusion: str, certificates: Iterable[Certificate]) -> str:
    """Return by which method models were changed: the weakest of all, by ``METHODS``.

    Parameters
    ----------
    exclusion
        How the people are left out of later fits; empty if they are not.
    certificates
        Those of the models that were changed.
    """
    found = {(one.status, one.mechanism == RETRAIN) for one in certificates}
    statuses = {status for status, _ in found}
    if not found:
        return "excluded only" if exclusion else ""
    if "no promise" in statuses:
        return "no promise"
    if statuses == {"exact"}:
        return "exact"
    fits_again = all(again for status, again in found if status == "certified")
    return "retrained" if fits_again else "certified"


def describe_guarantee(right: str, certificates: Iterable[Certificate]) -> str:
    """Return in one sentence what certificates promise together: the weakest.

    Parameters
    ----------
    right
        What was asked.
    certificates
        Those of the models that were changed.
    """
    return _describe_guarantee(right, tuple(certificates))


@lru_cache(64)  # many receipts hold the same certificates
def _describe_guarantee(right: str, found: tuple[Certificate, ...]) -> str:
    statuses = {one.status for one in found}
    epsilon = max((one.epsilon or 0.0 for one in found), default=0.0)
    delta = max((one.delta or 0.0 for one in found), default=0.0)
    return GUARANTEES[
        next((word for word in GUARANTEES if word in statuses), "")
    ].format(
        **EFFECTS[right],
        limit=state_limit(epsilon, delta),
        epsilon=f"{epsilon:g}",
        delta=f"{delta:g}",
    )


def describe_effect(right: str, certificates: Mapping[str, Certificate]) -> str:
    """Return in sentences what a request did to models; nothing if none was changed."""
    bare = [name for name, one in certificates.items() if one.status == "no promise"]
    names = [name for name in certificates if name not in bare]
    said = []
    for text, found in ((EFFECTS[right]["effect"], names), (WITHOUT_PROMISE, bare)):
        if found:
            models = f"model{'s' * (len(found) > 1)} {', '.join(found)}"
            said.append(f"{text.format(models=models)} ")
    return "".join(said)


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


# Many receipts hold the same one.
_read_certificate = lru_cache(64)(Certificate.from_json)
if TYPE_CHECKING:
    Held: TypeAlias = Certificate
else:
    # As it is: its numbers have a spelling that is not msgspec's.
    Held = Annotated[Raw, Meta(extra_json_schema={"$ref": "certificate.json"})]


class Receipt(SignedDocument, frozen=True, kw_only=True, tag="receipt"):
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
    certificates: Mapping[ModelName, Held]
    handling: Handling
    head: Head
    proof: tuple[Digest, ...]
    key: Digest = NO_KEY
    signature: Signature = NO_SIGNATURE
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        """Refuse certificates that are not of the entry's models, or say less."""
        held: Mapping[str, Any] = self.certificates
        read = {
            name: one if isinstance(one, Certificate) else _read_certificate(bytes(one))
            for name, one in held.items()
        }
        force_setattr(self, "certificates", MappingProxyType(read))
        promised = describe_guarantee(self.entry.right, self.certificates.values())
        if self.handling.guarantee != promised:
            raise InvalidInput(
                "Receipt: the guarantee in words is not what its certificates promise"
            )
        stated = state_method(self.handling.exclusion, self.certificates.values())
        if self.handling.method != stated:
            raise InvalidInput(
                "Receipt: its method is not that of its certificates and of what it "
                "says about later fits"
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
        "exclusions": EXCLUSION_WORDS,
        "retrain": RETRAIN,
    }
    return {"schema": schema(), "words": words}


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
    except (InvalidInput, UnicodeDecodeError):
        return verdict
    if spelled != data and _check_bytes(spelled, history).valid:
        return replace(_refuse((), (RESAVED,)), resaved=True)
    return verdict


def _check_bytes(data: bytes, history: KeyHistory) -> ReceiptVerdict:
    try:
        receipt = Receipt.from_json(data)
    except InvalidInput as error:
        return _refuse((), (f"this is not a receipt as it was issued: {error}",))
    entry, head = receipt.entry, receipt.head
    ids, key = [key.id for _, key in history.keys], history.at(head.size)
    fault = ""
    if receipt.key not in ids:
        fault = (
            f"it names key {receipt.key}, and the keys given are {', '.join(ids)}; ask "
            "the operator for the newest list of all keys of the ledger"
        )
    elif receipt.key != key.id:
        fault = (
            f"its head is over {head.size} entries, and by the list of keys given key "
            f"{key.id} signs there, not {receipt.key}, which the receipt names: that "
            "key may have been stolen; ask the operator"
        )
    elif not receipt.signed_by(key):
        fault = f"it is not signed by key {receipt.key}"
    elif not head.signed_by(key):
        fault = f"its head is not signed by key {receipt.key}"
    if fault:
        return _refuse((), (fault,))

    first, last = history.range_at(head.size)
    sizes = f"{first} to {last} entries"
    if last is None:
        sizes = f"{first} entries and more"
    leaf = hash_entry(entry)
    inside = includes(head.tree, entry.sequence, leaf=leaf, proof=receipt.path)
    # Each a finding, and the failure if it does not hold.
    found = [
        (f"it is signed by key {receipt.key}", ""),
        (f"that key signs heads over {sizes}, by the list of keys given", ""),
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
    promises = []
    not_covered = [*NOT_COVERED, AS_OF_THE_LIST if last is None else RETIRED]
    for name, certificate in receipt.certificates.items():
        same, verdict = (
            certificate.digest() == entry.certificates[name],
            verify(certificate),
        )
        swapped = f"{name}: the certificate is not the one in the ledger"
        known = f"{name}: the certificate is the one that the ledger names"
        found.append((known, "" if same else swapped))
        found += [(f"{name}: {finding}", "") for finding in verdict.findings]
        found += [("", f"{name}: {failure}") for failure in verdict.failures]
        promises.append(f"Model {name}: {verdict.says}")
        not_covered += certificate.not_covered
    findings = tuple(finding for finding, failure in found if not failure)
    failures = tuple(failure for _, failure in found if failure)
    if failures:
        return _refuse(findings, failures)
    exclusions = tuple(dict.fromkeys(not_covered))
    about = f"It says nothing about {'; '.join(exclusions)}."
    says = " ".join((_describe(receipt), *promises, about))
    return ReceiptVerdict(findings, (), says, exclusions)


def _refuse(findings: tuple[str, ...], failures: tuple[str, ...]) -> ReceiptVerdict:
    says = f"The receipt is not valid: {'; '.join(failures)}."
    return ReceiptVerdict(findings, failures, says)


def _describe(receipt: Receipt) -> str:
    """Return what happened to the request, to rows and to models, in sentences."""
    entry, handling, rows = receipt.entry, receipt.handling, []
    if handling.destroyed:
        rows.append(f"Destroyed: {', '.join(handling.destroyed)}.")
        until = handling.backups_until
        rows.append(
            f"Backups may hold them until {until}."
            if until
            else "The operator has not stated until when backups hold them."
        )
    if handling.retained:
        until = handling.retained_until
        end = f" until {until}" if until else ""
        rows.append(f"Rows are kept sealed{end} ({handling.retained}).")
    for model, names in handling.copies.items():
        if names:
            rows.append(
                f"Copies of superseded releases of {model} that were not stated to be "
                f"taken back: {', '.join(names)}."
            )
    if handling.exclusion:
        end = EXCLUSION_WORDS[handling.exclusion].format(day=handling.excluded_until)
        rows.append(f"Excluded from all later training {end}.")
    if handling.recipients:
        told = ", ".join(handling.recipients)
        rows.append(f"The operator tells these recipients of the data: {told}.")
    left = days_between(entry.day, entry.deadline)
    days = f"{abs(left)} day{'s' * (abs(left) > 1)}"
    punctual = f"{days} before" if left > 0 else f"{days} AFTER"
    return (
        f"The operator states that request {entry.request} "
        f"({RIGHT_WORDS.get(entry.right, entry.right)}, {entry.regime}), made on "
        f"{entry.submitted} and accepted on {entry.accepted}, was answered on "
        f"{entry.day}, {punctual if left else 'on the day of'} its deadline of "
        f"{entry.deadline}. Outcome: {describe_outcome(entry.outcome, entry.reason)}. "
        f"{''.join(f'{sentence} ' for sentence in rows)}"
        f"People it was about: {entry.n_subjects}. "
        f"Models changed: {', '.join(receipt.certificates) or 'none'}. "
        f"{f'Method: {handling.method}. ' if handling.method else ''}"
        f"{describe_effect(entry.right, receipt.certificates)}"
        f"{handling.guarantee} The statement is entry {entry.sequence} of the "
        "ledger and cannot be taken back unnoticed."
    )
