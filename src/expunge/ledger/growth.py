# SPDX-License-Identifier: Apache-2.0
"""Growth: whether one head's ledger goes on from another's, without seeing entries.

Two people who hold receipts of different days can so make sure that they were shown
the same ledger.
"""

from ..verification import Verdict
from .heads import Head
from .merkle import Proof, extends
from .ring import KeyRing


def check_growth(
    new: Head, old: Head, proof: Proof, public_pem: str | bytes
) -> Verdict:
    """Return whether a ledger only grew between two heads, without its entries.

    Parameters
    ----------
    new, old
        Two heads, the one over more entries first.
    proof
        From ``merkle.consistency_proof``.
    public_pem
        The public keys of the ledger, with the sizes that each signs.
    """
    ring = KeyRing.from_pem(public_pem)
    found = [
        (
            f"the head over {head.size} entries is signed by key {key.id}, which is in "
            "force there",
            head.signed_by(key),
        )
        for head, key in ((head, ring.at(head.size)) for head in (old, new))
    ]
    grown = extends(new.tree, old.tree, proof)
    found.append((f"the first {old.size} entries of both are the same", grown))
    found.append(("the larger head is not the earlier one", new.day >= old.day))
    findings = tuple(finding for finding, holds in found if holds)
    failures = tuple(f"not so: {finding}" for finding, holds in found if not holds)
    says = f"The ledger grew from {old.size} to {new.size} entries and changed none."
    if failures:
        says = "The heads do not fit together: " + "; ".join(failures) + "."
    return Verdict(findings, failures, says)
