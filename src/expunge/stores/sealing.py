# SPDX-License-Identifier: Apache-2.0
"""Sealing: bytes that only the holder of a key can read or replace.

AES-256-GCM (NIST SP 800-38D) with a random nonce. What is sealed is bound to its place:
the same bytes under another name are refused. Each key seals one thing, so that whoever
destroys the key destroys that thing, wherever copies of it lie.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import IO, Any

from ..exceptions import MissingExtra, StoreFailed
from ..noise import salt

KEY_BYTES, NONCE_BYTES = 32, 12
CHUNK = 1 << 20


def fresh_key() -> bytes:
    """Return a new key."""
    return salt()


def seal(data: bytes, key: bytes, place: str) -> bytes:
    """Return the data sealed under a key, for this place alone."""
    nonce = salt()[:NONCE_BYTES]
    sealed: bytes = _aead()(key).encrypt(nonce, data, place.encode())
    return nonce + sealed


def seal_to(
    file: IO[bytes], parts: Iterable[memoryview], key: bytes, place: str
) -> None:
    """Write what ``seal`` would return for the parts in a row, without copies of it."""
    nonce = salt()[:NONCE_BYTES]
    cipher = _gcm()(key, nonce)
    cipher.authenticate_additional_data(place.encode())
    buffer = bytearray(CHUNK)
    _write(file, nonce)
    for part in parts:
        for start in range(0, len(part), CHUNK):
            piece = part[start : start + CHUNK]
            size = cipher.update_into(piece, buffer)
            _write(file, memoryview(buffer)[:size])
    _write(file, cipher.finalize() + cipher.tag)


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


def _gcm() -> Any:
    """Return the same cipher for a stream."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    def encryptor(key: bytes, nonce: bytes) -> Any:
        return Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()

    return encryptor


def _write(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of it: an unbuffered file may take less."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _refusal() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag, ValueError
