# SPDX-License-Identifier: Apache-2.0
"""Entries: what a ledger says happened, as frozen pages without a person in them.

Ledgers outlive code, so the constitution of ``events`` holds here too: a kind is never
removed and never changes its meaning, and an unknown one is refused.

An entry is append-only and public, so it must not hold what may have to be erased: no
name, no keyed tag of a person (equal tags would link requests for ever), no row, and
nothing computed from one. Requests are 16 random bytes, models have short names, and
people are a number. Certificates stand for themselves by their digest, which covers
the commitment to the private record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..canonical import Check, count, exactly, hexadecimal, one_of
from ..exceptions import InvalidInput
from .keys import KEY_BYTES, PublicKey
from .pages import Page, by_model, digest, name, several, utc_day
from .signatures import NO_KEY, NO_SIGNATURE, SIGNED_CHECKS, Signed
from .spelling import read_page

FORMAT = 1
REQUEST_BYTES = 16

_STAMP: Mapping[str, Check] = {
    "sequence": count(0),
    "day": utc_day,
    "version": exactly(FORMAT),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Entry(Page):
    """One line of a ledger.

    Parameters
    ----------
    sequence
        Its place, counted from 0.
    day
        When it was written: a day in UTC, as YYYY-MM-DD; never before the entry before
        it.
    kind
        What happened; one word or two for each class.
    version
        Of the format.
    """

    sequence: int
    day: str
    kind: str
    version: int = FORMAT


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelRegistered(Entry):
    """A model came under the ledger, with the certificate of its first release."""

    model: str
    certificate: str
    kind: str = "model registered"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        "kind": one_of("model registered"),
        "model": name,
        "certificate": digest,
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RequestCompleted(Entry):
    """People asked to be forgotten, and are; the day is that of completion.

    Parameters
    ----------
    request
        16 random bytes in hexadecimal, ``uuid4().hex`` say; never a ticket number, an
        address or a hash of one, nor a UUID that holds a time.
    certificates
        For each model that was changed, the digest of its new certificate.
    n_subjects
        How many people the request was about.
    accepted, deadline
        The day when the request came in, and that by which the law wanted it done.
    """

    request: str
    certificates: Mapping[str, str]
    n_subjects: int
    accepted: str
    deadline: str
    kind: str = "request completed"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        "kind": one_of("request completed"),
        "request": hexadecimal(REQUEST_BYTES),
        "certificates": by_model(digest),
        "n_subjects": count(0),
        "accepted": utc_day,
        "deadline": utc_day,
    }

    def require_consistent(self) -> None:
        """Refuse days that cannot follow one another."""
        if not self.accepted <= min(self.day, self.deadline):
            raise InvalidInput(
                f"RequestCompleted: accepted={self.accepted}, day={self.day}, "
                f"deadline={self.deadline}; completion and deadline come after it"
            )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReleaseMade(Entry):
    """A model was published, under the certificate with this digest."""

    model: str
    certificate: str
    kind: str = "release made"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        "kind": one_of("release made"),
        "model": name,
        "certificate": digest,
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReleasesSuperseded(Entry):
    """Earlier releases of a model must not be used any more.

    ``certificates`` are the digests of theirs; ``by`` is that of the release to use.
    """

    model: str
    certificates: tuple[str, ...]
    by: str
    kind: str = "releases superseded"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        "kind": one_of("releases superseded"),
        "model": name,
        "certificates": several(digest),
        "by": digest,
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyRotated(Entry, Signed):
    """From here on another key signs; ``sign`` it with the key that did so far.

    ``public`` is the new key, 32 bytes in hexadecimal; ``key`` names the old one.
    """

    public: str
    key: str = NO_KEY
    signature: str = NO_SIGNATURE
    kind: str = "key rotated"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        **SIGNED_CHECKS,
        "kind": one_of("key rotated"),
        "public": hexadecimal(KEY_BYTES),
    }

    @property
    def introduced(self) -> PublicKey:
        """The key in force from the next head on."""
        return PublicKey(bytes.fromhex(self.public))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Restored(Entry):
    """The models were restored from a backup, and requests carried out again.

    ``taken`` is the day of the last entry in the backup; ``n_replayed`` how many
    requests, completed after that, were applied to it.
    """

    taken: str
    n_replayed: int
    kind: str = "restored"

    checks: ClassVar[Mapping[str, Check]] = {
        **_STAMP,
        "kind": one_of("restored"),
        "taken": utc_day,
        "n_replayed": count(0),
    }


KINDS: Mapping[str, type[Entry]] = {
    "key rotated": KeyRotated,
    "model registered": ModelRegistered,
    "release made": ReleaseMade,
    "releases superseded": ReleasesSuperseded,
    "request completed": RequestCompleted,
    "restored": Restored,
}


def read_entry(text: str | bytes) -> Entry:
    """Return the entry that these bytes spell; refuse a kind that is not known."""
    return read_page(text, KINDS)
