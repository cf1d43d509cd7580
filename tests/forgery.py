# SPDX-License-Identifier: Apache-2.0
"""What somebody with a stolen signing key can make up."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from expunge.ledger import (
    Entry,
    EntryProof,
    Head,
    RequestCompleted,
    SigningKey,
    issue_receipt,
    sign,
)
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import Frontier, build_nodes, inclusion_proof
from tests.certificates import handling


def made_up(entries: Sequence[Entry]) -> RequestCompleted:
    """Return an entry about a request that nobody carried out."""
    day = entries[-1].day
    return RequestCompleted(
        sequence=len(entries),
        day=day,
        request="ab" * 16,
        certificates={},
        n_subjects=1,
        submitted=day,
        accepted=day,
        deadline=day,
        right="erase",
        regime="gdpr",
        outcome="done",
        reason="",
    )


def signed_head(entries: Sequence[Entry], key: SigningKey) -> Head:
    """Return a head over any entries, by any key."""
    tree = reduce(Frontier.append, map(hash_entry, entries), Frontier()).tree()
    head = Head(size=tree.size, root=tree.root.hex(), day=entries[-1].day)
    return sign(head, key)


def forged_receipt(entries: Sequence[Entry], key: SigningKey) -> str:
    """Return the receipt of the last of these entries, by any key."""
    entry: Any = entries[-1]
    proof = inclusion_proof(
        build_nodes(map(hash_entry, entries)), entry.sequence, size=len(entries)
    )
    head = signed_head(entries, key)
    place = EntryProof(head, proof)
    return issue_receipt(entry, {}, handling=handling(), place=place, key=key).to_json()
