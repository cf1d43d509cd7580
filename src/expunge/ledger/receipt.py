# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a person or an auditor keeps, complete in itself.

A receipt holds the ledger's entry about a request, the public certificates that the
entry names, the proof that the entry is in the ledger, the signed head above it, and
the operator's signature under everything. No more than the entry and the certificates
say is in it: nothing names a person, nothing depends on a row but for the certificates'
commitments. ``check_receipt`` needs the receipt, a public key and nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar

from .. import certificate
from ..canonical import Check, exactly, hexadecimal, one_of
from ..certificate import Certificate
from ..exceptions import InvalidInput
from .entries import RequestCompleted
from .heads import Head
from .keys import SigningKey
from .merkle import HASH_BYTES, Proof
from .pages import by_model, several, within
from .signatures import NO_KEY, NO_SIGNATURE, SIGNED_CHECKS, Signed, sign

FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Receipt(Signed):
    """The answer to a request, with its proof.

    Parameters
    ----------
    entry
        What the ledger says of the request: its id, when it was accepted, completed
        and due, for how many people, and the digest of each certificate.
    certificates
        For each model that was changed, its certificate.
    head
        A signed head of the ledger that covers the entry.
    proof
        Hashes that lead from the entry to the root in the head, in hexadecimal.
    key, signature
        The key of the head, and its signature of all the rest.
    """

    entry: RequestCompleted
    certificates: Mapping[str, Certificate]
    head: Head
    proof: tuple[str, ...]
    key: str = NO_KEY
    signature: str = NO_SIGNATURE
    kind: str = "receipt"
    version: int = FORMAT

    # A refused value may be pages long; its field and the reason are enough.
    private: ClassVar[bool] = True
    checks: ClassVar[Mapping[str, Check]] = {
        **SIGNED_CHECKS,
        "entry": within(RequestCompleted),
        "certificates": by_model(within(Certificate)),
        "head": within(Head),
        "proof": several(hexadecimal(HASH_BYTES)),
        "kind": one_of("receipt"),
        "version": exactly(FORMAT),
    }

    def require_consistent(self) -> None:
        """Refuse certificates that are not of the entry's models."""
        if set(self.certificates) != set(self.entry.certificates):
            raise InvalidInput(
                f"Receipt: certificates of {sorted(self.certificates)}, and the entry "
                f"is about {sorted(self.entry.certificates)}; it needs one for each"
            )

    @property
    def path(self) -> Proof:
        """The proof as hashes."""
        return tuple(bytes.fromhex(sibling) for sibling in self.proof)


def issue(
    entry: RequestCompleted,
    certificates: Mapping[str, Certificate],
    *,
    head: Head,
    proof: Proof,
    key: SigningKey,
) -> Receipt:
    """Return the signed receipt of a completed request.

    Parameters
    ----------
    entry
        As it stands in the ledger.
    certificates
        For each model that the entry names, the certificate whose digest it holds.
    head
        A head that covers the entry, signed by ``key``.
    proof
        ``inclusion_proof(nodes, entry.sequence, head.size)``.
    key
        The key in force.
    """
    unsigned = Receipt(
        entry=entry,
        certificates=certificates,
        head=head,
        proof=tuple(sibling.hex() for sibling in proof),
    )
    return sign(unsigned, key)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of this version's receipts, that of certificates in it."""
    file = resources.files("expunge") / "schemas" / "receipt.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
    # With a name of its own, what it refers to is looked for within itself.
    found["$defs"]["certificate"] = certificate.schema() | {"$id": "certificate.json"}
    return found
