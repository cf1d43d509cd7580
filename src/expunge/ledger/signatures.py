# SPDX-License-Identifier: Apache-2.0
"""Signatures: pages that name a key and carry its signature of all the rest.

What is signed is the page's canonical JSON without the field "signature". Every kind of
page says its kind in that JSON, so that no signature of one kind passes for another.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..canonical import hexadecimal
from .keys import KEY_BYTES, SIGNATURE_BYTES, PublicKey, SigningKey
from .pages import Page, digest

SIGNED_CHECKS = {"key": digest, "signature": hexadecimal(SIGNATURE_BYTES)}
SHARE = 100  # signatures that a thread verifies at a time: 10 ms
# Of a page that is not signed yet; no key verifies it.
NO_KEY, NO_SIGNATURE = "00" * KEY_BYTES, "00" * SIGNATURE_BYTES


class Signed(Page):
    """A page with a key's name and that key's signature."""

    __slots__ = ()

    key: str
    signature: str

    def payload(self) -> bytes:
        """Return the bytes that the signature is of."""
        return payload_in(self.to_json())

    def signed_by(self, key: PublicKey) -> bool:
        """Return whether the page names this key and is signed by it."""
        signature = bytes.fromhex(self.signature)
        return self.key == key.id and key.verifies(signature, self.payload())


def payload_in(text: str) -> bytes:
    """Return what the signature is of, from the canonical JSON of the whole page.

    The page's own signature comes last: what follows it are whole numbers.
    """
    before, _, after = text.rpartition('"signature":"')
    return (before + after.partition('",')[2]).encode("ascii")


@dataclass(frozen=True, slots=True)
class Owed:
    """A signature that is still to be verified."""

    key: PublicKey
    signature: bytes
    payload: bytes


def first_unverified(owed: Sequence[Owed]) -> int | None:
    """Return the place of the first signature that is not its key's; None if all are.

    The library verifies without Python's lock, so that threads share the work.
    """

    def unverified(start: int) -> int | None:
        for place, one in enumerate(owed[start : start + SHARE], start):
            if not one.key.verifies(one.signature, one.payload):
                return place
        return None

    starts = range(0, len(owed), SHARE)
    if len(starts) < 2:
        return unverified(0)
    with ThreadPoolExecutor() as pool:
        found = pool.map(unverified, starts)
        return next((place for place in found if place is not None), None)


SignedPage = TypeVar("SignedPage", bound=Signed)


def sign(page: SignedPage, key: SigningKey) -> SignedPage:
    """Return the page with this key's name and signature."""
    # Fields of its classes, which the base cannot declare: Entry has slots of its own.
    unsigned: Any = page
    named: Any = replace(unsigned, key=key.public.id)
    signed: SignedPage = replace(named, signature=key.sign(named.payload()).hex())
    return signed
