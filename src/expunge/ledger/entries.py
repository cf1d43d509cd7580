# SPDX-License-Identifier: Apache-2.0
"""Entries and heads: what a ledger says happened, and the signature under it.

Ledgers outlive code, so the rules of ``promise.accountant``'s events hold here too: a
kind is never removed and never changes its meaning, and an unknown one is refused.

An entry is append-only and public, so it must not hold what may have to be erased: no
name, no keyed tag of a person (equal tags would link requests for ever), no row, and
nothing computed from one. Requests are 16 random bytes, models have short names, and
people are a number. A certificate is named by its digest, which covers the commitment
to the private record.

A head is the operator's signature under the whole ledger so far. Anyone who holds a
head can hold the operator to every entry below it.

What is signed is a document's canonical JSON without the field "signature". Every kind
of document states its kind in that JSON, so that no signature of one kind passes for
another.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar, get_args

from msgspec import structs

from ..exceptions import InvalidInput
from ..rights.regimes import REGIMES
from ..rights.standing import REASONS, Outcome, Right
from .documents import (
    CanonicalDocument,
    Count,
    Day,
    Digest,
    ModelName,
    OneOrMore,
    OptionalDay,
    hexadecimal,
    one_of,
    read_document,
)
from .keys import KEY_BYTES, SIGNATURE_BYTES, PublicKey, SigningKey
from .merkle import Tree

REQUEST_BYTES = 16
RequestId: TypeAlias = Annotated[str, hexadecimal(REQUEST_BYTES)]
Signature: TypeAlias = Annotated[str, hexadecimal(SIGNATURE_BYTES)]
Extension: TypeAlias = Literal["complex", "many"]
EXTENSIONS: tuple[Extension, ...] = get_args(Extension)
"""Reasons for which laws allow an extension: complexity, or the number of requests."""
# Of a document that is not signed yet; no key verifies it.
NO_KEY, NO_SIGNATURE = "00" * KEY_BYTES, "00" * SIGNATURE_BYTES


class SignedDocument(CanonicalDocument, frozen=True):
    """A document with a key's name and that key's signature."""

    if TYPE_CHECKING:  # its classes have them; an entry cannot inherit fields twice

        @property
        def key(self) -> str:
            """Name of the key."""

        @property
        def signature(self) -> str:
            """Signature of everything else."""

    def payload(self) -> bytes:
        """Return the bytes that the signature is of."""
        return payload_of(self.to_json())

    def signed_by(self, key: PublicKey) -> bool:
        """Return whether the document names this key and is signed by it."""
        signature = bytes.fromhex(self.signature)
        return self.key == key.id and key.verifies(signature, self.payload())


def payload_of(text: str) -> bytes:
    """Return the bytes that are signed, from the canonical JSON of the whole document.

    Its own signature comes last: only whole numbers follow it.
    """
    before, _, after = text.rpartition('"signature":"')
    return (before + after.partition('",')[2]).encode()


AnySigned = TypeVar("AnySigned", bound=SignedDocument)


def sign(document: AnySigned, key: SigningKey) -> AnySigned:
    """Return the document with this key's name and signature."""
    name = key.public.id
    named = document if document.key == name else document.replace(key=name)
    # All else was checked, and a signature of a key is one.
    return structs.replace(named, signature=key.sign(named.payload()).hex())


class Entry(CanonicalDocument, frozen=True, kw_only=True):
    """One line of a ledger.

    Parameters
    ----------
    sequence
        Its position, counted from 0.
    day
        When it was written: a day in UTC, as YYYY-MM-DD; never earlier than the entry
        before it.
    kind
        What happened; fixed for each class.
    version
        Version of the format.
    """

    sequence: Count
    day: Day
    version: Literal[1] = 1


class ModelRegistered(Entry, frozen=True, kw_only=True, tag="model registered"):
    """A model came under the ledger, with the certificate of its first release."""

    model: ModelName
    certificate: Digest


class RequestCompleted(Entry, frozen=True, kw_only=True, tag="request completed"):
    """People exercised a right, and were answered; the day is that of the answer.

    Parameters
    ----------
    request
        16 random bytes in hexadecimal, such as ``uuid4().hex``; never a ticket number,
        an address or a hash of one, nor a UUID that holds a time.
    certificates
        For each model that was changed, the digest of its new certificate.
    n_subjects
        How many people the request was about.
    submitted, accepted, deadline
        The day on which the person asked, the day on which the request came in here,
        and the day by which the law wanted it done.
    right, regime
        What was asked, and the law that gives the deadline.
    outcome, reason
        What became of it, and the code of a reason; empty without one.
    """

    request: RequestId
    certificates: Mapping[ModelName, Digest]
    n_subjects: Count
    submitted: Day
    accepted: Day
    deadline: Day
    right: Right
    regime: Annotated[str, one_of(*REGIMES)]
    outcome: Outcome
    reason: Annotated[str, one_of(*REASONS)]

    def __post_init__(self) -> None:
        """Refuse days in an impossible order, and a refusal without a reason."""
        structs.force_setattr(self, "certificates", MappingProxyType(self.certificates))
        if not self.submitted <= min(self.accepted, self.deadline):
            raise InvalidInput(
                f"RequestCompleted: submitted={self.submitted}, accepted="
                f"{self.accepted}, deadline={self.deadline}; submitted comes first"
            )
        if self.accepted > self.day:
            raise InvalidInput(
                f"RequestCompleted: accepted={self.accepted}, day={self.day}; it "
                "cannot be answered before it came in"
            )
        if self.outcome == "refused" and not self.reason:
            raise InvalidInput("RequestCompleted: it was refused, without a reason")


class RequestExtended(Entry, frozen=True, kw_only=True, tag="request extended"):
    """The deadline of a request was extended, and the person was told.

    Parameters
    ----------
    request
        Of the request, as in ``RequestCompleted``.
    reason
        "complex" or "many": the request is complex, or there are many.
    notified, deadline
        The day on which the person was told, and the new deadline.
    """

    request: RequestId
    reason: Extension
    notified: Day
    deadline: Day

    def __post_init__(self) -> None:
        """Refuse days in an impossible order."""
        if self.notified > min(self.day, self.deadline):
            raise InvalidInput(
                f"RequestExtended: notified={self.notified}, day={self.day}, deadline="
                f"{self.deadline}; the person is told before both"
            )


class HoldEnded(Entry, frozen=True, kw_only=True, tag="hold ended"):
    """Rows that a request put under a hold were erased, since its last day is past."""

    request: RequestId


class ReleaseMade(Entry, frozen=True, kw_only=True, tag="release made"):
    """A model was published, under the certificate with this digest."""

    model: ModelName
    certificate: Digest


class ReleasesSuperseded(Entry, frozen=True, kw_only=True, tag="releases superseded"):
    """Earlier releases of a model must no longer be used.

    ``certificates`` holds the digests of theirs; ``by`` is that of the release to use.
    """

    model: ModelName
    certificates: tuple[Digest, ...]
    by: Digest


class ReleaseWithdrawn(Entry, frozen=True, kw_only=True, tag="release withdrawn"):
    """The operator states that no copy of a release is in use any more.

    ``certificate`` is the digest of its certificate.
    """

    model: ModelName
    certificate: Digest


class ModelRemoved(Entry, frozen=True, kw_only=True, tag="model removed"):
    """A model was retired: its rows and keys are destroyed, and nothing follows it.

    ``certificate`` is the digest of that of its last release, which must no longer be
    used. The name is not used again.
    """

    model: ModelName
    certificate: Digest


class KeyRotated(Entry, SignedDocument, frozen=True, kw_only=True, tag="key rotated"):
    """From here on another key signs; ``sign`` this with the key that did so far.

    ``public`` is the new key, 32 bytes in hexadecimal; ``key`` names the old one.
    """

    public: Annotated[str, hexadecimal(KEY_BYTES)]
    key: Digest = NO_KEY
    signature: Signature = NO_SIGNATURE

    @property
    def new_key(self) -> PublicKey:
        """The key in force from the next head on."""
        return PublicKey(bytes.fromhex(self.public))


class Restored(Entry, frozen=True, kw_only=True, tag="restored"):
    """The models were restored from a backup, and requests were applied again.

    ``taken`` is the day of the last entry in the backup; ``n_replayed`` is how many
    requests, completed after that, were applied to it.
    """

    taken: Day
    n_replayed: Count


class TrailSealed(Entry, frozen=True, kw_only=True, tag="trail sealed"):
    """Up to here the trail of who looked and who acted cannot be changed unnoticed.

    ``n_lines`` is how many lines it has; ``last`` is the hash of the last one, which
    covers all before it.
    """

    n_lines: OneOrMore
    last: Digest


class RecordsExpired(Entry, frozen=True, kw_only=True, tag="records expired"):
    """Records were destroyed because the time to keep them is over.

    Parameters
    ----------
    requests
        What was kept of requests that were answered before this day; empty if nothing
        was destroyed.
    exclusions
        By what people were recognised whose requests were answered before this day;
        empty if nothing was destroyed.
    n_lines
        How many lines of the trail of who looked and who acted are gone, from its
        beginning on; a seal is over just these.
    """

    requests: OptionalDay
    exclusions: OptionalDay
    n_lines: Count


AnyEntry: TypeAlias = (
    HoldEnded
    | KeyRotated
    | ModelRegistered
    | ModelRemoved
    | RecordsExpired
    | ReleaseMade
    | ReleaseWithdrawn
    | ReleasesSuperseded
    | RequestCompleted
    | RequestExtended
    | Restored
    | TrailSealed
)
KINDS: Mapping[str, type[Entry]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyEntry)
}


def read_entry(text: str | bytes) -> Entry:
    """Return the entry in these bytes; refuse an unknown kind."""
    entry: Entry = read_document(text, AnyEntry)
    return entry


class Head(SignedDocument, frozen=True, kw_only=True, tag="head"):
    """How many entries, the root over them, when, by which key, and its signature.

    Parameters
    ----------
    size, root
        Number of entries, and the Merkle tree hash over their canonical JSON.
    day
        When it was signed: a day in UTC, as YYYY-MM-DD.
    key, signature
        Name of the key in force at this size, and its signature of everything else.
    """

    size: Count
    root: Digest
    day: Day
    key: Digest = NO_KEY
    signature: Signature = NO_SIGNATURE
    version: Literal[1] = 1

    @property
    def tree(self) -> Tree:
        """Size and root, as proofs take them."""
        return Tree(self.size, bytes.fromhex(self.root))
