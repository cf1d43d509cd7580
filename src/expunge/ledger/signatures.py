# SPDX-License-Identifier: Apache-2.0
"""Signatures: pages that name a key and carry its signature of all the rest.

What is signed is the page's canonical JSON without the field "signature". Every kind of
page says its kind in that JSON, so that no signature of one kind passes for another.
"""

from dataclasses import replace
from typing import Any, TypeVar

from ..canonical import dumps, hexadecimal
from .keys import KEY_BYTES, SIGNATURE_BYTES, PublicKey, SigningKey
from .pages import Page, digest

SIGNED_CHECKS = {"key": digest, "signature": hexadecimal(SIGNATURE_BYTES)}
# Of a page that is not signed yet; no key verifies it.
NO_KEY, NO_SIGNATURE = "00" * KEY_BYTES, "00" * SIGNATURE_BYTES


class Signed(Page):
    """A page with a key's name and that key's signature."""

    __slots__ = ()

    key: str
    signature: str

    def payload(self) -> bytes:
        """Return the bytes that the signature is of."""
        parts = self.parts()
        del parts["signature"]
        return dumps(parts).encode("ascii")

    def signed_by(self, key: PublicKey) -> bool:
        """Return whether the page names this key and is signed by it."""
        signature = bytes.fromhex(self.signature)
        return self.key == key.id and key.verifies(signature, self.payload())


SignedPage = TypeVar("SignedPage", bound=Signed)


def sign(page: SignedPage, key: SigningKey) -> SignedPage:
    """Return the page with this key's name and signature."""
    # Fields of its classes, which the base cannot declare: Entry has slots of its own.
    unsigned: Any = page
    named: Any = replace(unsigned, key=key.public.id)
    signed: SignedPage = replace(named, signature=key.sign(named.payload()).hex())
    return signed
