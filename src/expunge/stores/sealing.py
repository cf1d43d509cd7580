# SPDX-License-Identifier: Apache-2.0
"""Sealing: bytes that only the holder of a key can read or replace.

AES-256-GCM (NIST SP 800-38D) with a random nonce. What is sealed is bound to its place:
the same bytes under another name are refused. Each key seals one thing, so that whoever
destroys the key destroys that thing, wherever copies of it lie.
"""

from functools import lru_cache
from typing import Any

from ..exceptions import MissingExtra, StoreFailed
from ..noise import salt

KEY_BYTES, NONCE_BYTES = 32, 12


def fresh_key() -> bytes:
    """Return a new key."""
    return salt()


def seal(data: bytes, key: bytes, place: str) -> bytes:
    """Return the data sealed under a key, for this place alone."""
    nonce = salt()[:NONCE_BYTES]
    sealed: bytes = _aead()(key).encrypt(nonce, data, place.encode())
    return nonce + sealed


def unseal(sealed: bytes, key: bytes, place: str) -> bytes:
    """Return what was sealed, or raise StoreFailed."""
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        data: bytes = _aead()(key).decrypt(nonce, rest, place.encode())
    except _refusal():
        raise StoreFailed(
            f"what the store holds as {place} was altered, or its key is another; put "
            "database and keys back from the same backup and run expunge restore"
        ) from None
    return data


@lru_cache(maxsize=1)
def _aead() -> Any:
    """Return the cipher."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra(
            "a registry needs cryptography, which is not installed; run "
            "pip install expunge[registry]"
        ) from error
    return AESGCM


def _refusal() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag, ValueError
