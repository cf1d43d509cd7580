# SPDX-License-Identifier: Apache-2.0
"""Certificates and records to test with, made as a release makes them."""

from collections.abc import Iterable
from typing import Any

from expunge import L2, Logistic, Objective
from expunge.ledger import (
    Handling,
    describe_guarantee,
    state_exclusion,
    state_method,
)
from expunge.promise.accountant import (
    Accountant,
    Event,
    Fitted,
    Removed,
    TunedRemovably,
    release_event,
)
from expunge.promise.budget import Budget
from expunge.promise.certificate import Certificate, certify
from expunge.promise.noise import Source
from expunge.promise.scope import EXACT as CARRIES_NO_NOISE
from expunge.promise.scope import (
    EXACT_ASSUMPTIONS,
    NOT_COVERED,
    PREPROCESSING,
    Scope,
)
from expunge.promise.verification import Record

OBJECTIVE = Objective(Logistic(), L2(), alpha=1e-3, intercept=True)
N_PARAMETERS = 9
SALT = bytes(range(32))


def record(radius: float = 1e-3) -> Record:
    """Return the record of an accepted removal."""
    return Record(
        radius=radius,
        radius_kind="residual-local",
        decisions=("polished 2 times",),
        n_samples=400,
        n_removed=3,
        timings={"forget": 0.25},
        salt=SALT,
    )


def handling(
    certificates: Iterable[Certificate] = (), right: str = "erase", **changes: Any
) -> Handling:
    """Return what a receipt says of a request that led to these certificates."""
    held = tuple(certificates)
    exclusion = state_exclusion(right, "done")
    stated: dict[str, Any] = {
        "basis": "GDPR Art. 17",
        "destroyed": ("rows", "keys of rows"),
        "backups_until": "",
        "retained": "",
        "retained_until": "",
        "copies": {},
        "extended": "",
        "notified": "",
        "guarantee": describe_guarantee(right, held),
        "method": state_method(exclusion, held),
        "exclusion": exclusion,
        "excluded_until": "",
        "recipients": (),
    }
    return Handling(**stated | changes)


def account(
    budget: Budget | None, noise_source: Source | None, events: Iterable[Event] = ()
) -> Accountant:
    """Return the account of a model fitted, released, and released after a removal."""
    release = release_event(budget, noise_source)
    before = (Fitted(N_PARAMETERS), release, *events, Removed(2), release)
    accountant = Accountant(budget)
    for event in before:
        accountant = accountant.compose(event)
    return accountant


def certificate(
    budget: Budget | None = None,
    noise_source: Source | None = None,
    events: Iterable[Event] = (),
) -> Certificate:
    """Return the certificate of the account's last release."""
    return certify(
        account(budget, noise_source, events),
        OBJECTIVE,
        scope=Scope(),
        noise_source=noise_source,
        commitment=record().commitment(),
    )


EACH = certificate(Budget(sigma=0.1), "secure")
JOINT = certificate(Budget(epsilon=0.5, sigma=0.1, releases=12, row_norm=1.0), "secure")
SEEDED = certificate(Budget(sigma=0.1, allow_seeded=True), "seeded")
UNPROTECTED = certificate(Budget(sigma=0.1, tau=1e-4), "seeded")
BARE = certificate()
EXACT = BARE.replace(  # nothing makes one yet
    status="exact",
    assumptions=EXACT_ASSUMPTIONS,
    not_covered=(*NOT_COVERED, PREPROCESSING, CARRIES_NO_NOISE),
)
CHOSEN = certificate(Budget(sigma=0.1), "secure", [TunedRemovably(certified=True)])
ALL = (EACH, JOINT, SEEDED, UNPROTECTED, BARE, CHOSEN, EXACT)
