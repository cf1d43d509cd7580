# SPDX-License-Identifier: Apache-2.0
"""Statuses: what an operator may see. No person is in them.

Times are by the private clock, in milliseconds since 1970. They tell how long an answer
took, and so how it was reached: whatever is shown to others carries days.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..ledger.entries import REQUEST_BYTES
from ..promise.certificate import Certificate
from ..promise.noise import random_bytes

Stage: TypeAlias = Literal["accepted", "applied", "completed"]


def _fresh() -> str:
    return random_bytes(REQUEST_BYTES).hex()


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """A request to forget people.

    Parameters
    ----------
    subjects
        Whom to forget.
    request
        The request's id, 32 hexadecimal digits; whoever sends it again gets the same
        answer. Random by default: no ticket number, which could lead to a person.
    """

    subjects: tuple[str, ...]
    request: str = field(default_factory=_fresh)

    def __repr__(self) -> str:
        return f"Asked({len(self.subjects)} people, request={self.request!r})"


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """How far a request is.

    Parameters
    ----------
    request
        Its id.
    stage
        "accepted": on disk, and will be applied. "applied": the models are changed and
        the rows deleted, and what is left on disk is being erased. "completed": done,
        with a receipt.
    accepted, deadline, completed
        When it came in, when it is due, and when it was done.
    n_subjects
        How many people it is about.
    error
        Why it could not be applied when that was last tried; empty if it was not.
    """

    request: str
    stage: Stage
    accepted: int
    deadline: int
    completed: int | None
    n_subjects: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model as it is released now.

    Parameters
    ----------
    name, estimator
        Its name, and what it is; empty if it must be fitted anew, its contract being
        spent when it was restored.
    certificate
        Of the newest release.
    number, made
        Of the newest release, counted from 1, and when it was made.
    n_people
        How many people it holds; 0 if it was fitted without saying whose rows these
        are.
    """

    name: str
    estimator: str
    certificate: Certificate
    number: int
    made: int
    n_people: int


@dataclass(frozen=True, slots=True)
class ReleaseStatus:
    """A release that left the registry.

    Parameters
    ----------
    model, number, made, digest
        Whose it is, which, since when, and the digest of its certificate.
    superseded
        Since when another one is to be used, which somebody whom this one still
        contains has left; None if it is the newest.
    withdrawn
        When every copy had been taken back; None if that was not stated.
    shipped
        When it left, and under which file name.
    """

    model: str
    number: int
    made: int
    digest: str
    superseded: int | None
    withdrawn: int | None
    shipped: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """A registry at one moment.

    Parameters
    ----------
    models
        All of them.
    pending
        Requests that are not completed, oldest first.
    outstanding
        Releases that left, are superseded, and were not taken back: they still
        contain people who were forgotten.
    n_requests, n_completed
        How many there were, and how many are done.
    ledger_size, key
        Number of entries, and the id of the key that signs.
    store
        "sqlite" or "postgresql".
    """

    models: tuple[ModelStatus, ...]
    pending: tuple[RequestStatus, ...]
    outstanding: tuple[ReleaseStatus, ...]
    n_requests: int
    n_completed: int
    ledger_size: int
    key: str
    store: str
