# SPDX-License-Identifier: Apache-2.0
"""Completing: what was deleted is erased, the ledger says so, and receipts are issued.

Each step can be done again, and whoever works next begins with what is left of it: the
write-ahead log is cut, old keys are destroyed, then entries, head and receipts go into
the journal and, in one transaction, into the store.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..certificate import Certificate
from ..ledger import (
    ModelRegistered,
    ReleaseMade,
    ReleasesSuperseded,
    RequestCompleted,
    issue,
)
from ..ledger.pages import day_of
from ..stores import chain, publications, requests
from ..stores.chain import Appending
from .site import Site, time_for
from .statement import Statement, conclude

Papers: TypeAlias = dict[tuple[str, int], tuple[Certificate, str]]
"""By model and number of a release, its certificate and the digest of that."""


def complete(site: Site, wait: float) -> None:
    """Finish whatever was committed; nothing if all is finished.

    A checkpoint may have moved on without a request or a release, by ``reanchor`` say:
    then there is nothing to state, but an old key to destroy.
    """
    with site.store.reading() as connection:
        applied = requests.at_stage(connection, requests.APPLIED)
        releases = publications.unentered(connection)
        current = publications.checkpoints(connection)
        book = Appending(chain.ledger_in(connection)) if applied or releases else None
    if book is None and site.checkpoints.is_settled(current):
        return
    site.store.erase(wait)
    site.settle()
    if book is not None:
        conclude(site, _statement(site, book, applied, releases))


def _statement(
    site: Site, book: Appending, applied: Sequence[Any], releases: Sequence[Any]
) -> Statement:
    """Return what is to be said of what was applied, in the ledger and in receipts."""
    latest = max((line.accepted for line in applied), default=0)
    time = time_for(book.ledger, latest)
    day = day_of(time)
    papers, fitted = {}, []
    for line in releases:
        _append_release(book, line, day)
        paper = Certificate.from_json(line.certificate)
        papers[line.model, line.number] = (paper, line.digest)
        if not paper.n_subjects_removed:
            fitted.append(line.model)
    completed = [_append_request(book, line, papers, day) for line in applied]
    key = site.signing_key(book.ledger)
    head = book.ledger.head(key, day)
    receipts = [
        issue(entry, named, head=head, proof=book.proof(entry), key=key)
        for entry, named in completed
    ]
    texts = {line.digest: line.certificate for line in releases}
    return Statement(book, head, time, receipts, fitted, texts)


def _append_release(book: Appending, line: Any, day: str) -> None:
    """Append what happened to a model: it came, or its releases are superseded."""
    kind = ModelRegistered if line.before is None else ReleaseMade
    made = kind(
        sequence=book.ledger.size, day=day, model=line.model, certificate=line.digest
    )
    book.append(made)
    if line.before is not None:
        # Those before the last one were superseded by it, entry by entry.
        entry = ReleasesSuperseded(
            sequence=book.ledger.size,
            day=day,
            model=line.model,
            certificates=(line.before,),
            by=line.digest,
        )
        book.append(entry)


def _append_request(
    book: Appending, line: Any, papers: Papers, day: str
) -> tuple[RequestCompleted, dict[str, Certificate]]:
    """Append that a request is done; return the entry with its certificates."""
    numbers: dict[str, int] = json.loads(line.releases)
    named = {name: papers[name, number] for name, number in numbers.items()}
    entry = RequestCompleted(
        sequence=book.ledger.size,
        day=day,
        request=line.id,
        certificates={name: digest for name, (_, digest) in named.items()},
        n_subjects=line.n_subjects,
        accepted=day_of(line.accepted),
        deadline=day_of(line.deadline),
    )
    book.append(entry)
    return entry, {name: paper for name, (paper, _) in named.items()}
