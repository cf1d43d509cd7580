# SPDX-License-Identifier: Apache-2.0
"""Keys: Ed25519, with which an operator signs and anybody checks (RFC 8032).

A key is named by the SHA-256 of its SubjectPublicKeyInfo, so that
``openssl pkey -pubin -outform DER | sha256sum`` gives the same name. Secret keys come
from files that are made on first use. The library is imported when a key is first used.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..exceptions import InvalidInput, MissingExtra
from ..noise import salt
from .keyfiles import Secret, UnusableKey, read_secret, secret_file

KEY_BYTES, SIGNATURE_BYTES = 32, 64
# SubjectPublicKeyInfo of Ed25519 up to the key itself (RFC 8410, section 4).
SPKI = bytes.fromhex("302a300506032b6570032100")

_PEM = re.compile(
    b"(-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----)", re.DOTALL | re.ASCII
)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What anybody may know of a key: 32 bytes that check signatures."""

    raw: bytes

    def __post_init__(self) -> None:
        """Refuse another number of bytes."""
        if len(self.raw) != KEY_BYTES:
            raise InvalidInput(f"a public key of {len(self.raw)} bytes; Ed25519 has 32")

    @property
    def id(self) -> str:
        """The name of the key: SHA-256 of its SubjectPublicKeyInfo, in hexadecimal."""
        return _named(self.raw)

    def to_pem(self) -> str:
        """Return the key as SubjectPublicKeyInfo in PEM."""
        forms = _cryptography().serialization
        pem: bytes = _loaded(self.raw).public_bytes(
            forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode("ascii")

    def verifies(self, signature: bytes, payload: bytes) -> bool:
        """Return whether the signature is this key's, of this payload."""
        try:
            _loaded(self.raw).verify(signature, payload)
        except _cryptography().InvalidSignature:
            return False
        return True


def read_pem(pem: str | bytes) -> tuple[tuple[PublicKey, ...], tuple[bytes, ...]]:
    """Return the Ed25519 keys in a PEM text, and the text around them.

    There is at least one key. The text is one part longer: what stands before each key,
    and what stands after the last (RFC 7468, section 2, allows both).
    """
    library = _cryptography()
    data = pem.encode("utf-8", "surrogatepass") if isinstance(pem, str) else pem
    parts = _PEM.split(data)
    found: list[PublicKey] = []
    for block in parts[1::2]:
        try:
            key = library.serialization.load_pem_public_key(block)
        except (ValueError, library.UnsupportedAlgorithm):
            key = None
        if not isinstance(key, library.ed25519.Ed25519PublicKey):
            raise InvalidInput(
                f"public key {len(found) + 1} of the PEM text is not Ed25519; hand "
                "over the keys that the operator publishes for this ledger"
            )
        found.append(PublicKey(key.public_bytes_raw()))
    if not found:
        raise InvalidInput(
            "no public key in the PEM text; it must hold -----BEGIN PUBLIC KEY-----"
        )
    return tuple(found), tuple(parts[::2])


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey(Secret):
    """The secret half of a key, from its 32-byte seed (RFC 8032, section 5.1.5)."""

    seed: bytes

    def __post_init__(self) -> None:
        """Refuse another number of bytes, without showing them."""
        if len(self.seed) != KEY_BYTES:
            raise InvalidInput(f"a seed of {len(self.seed)} bytes; Ed25519 needs 32")

    @property
    def public(self) -> PublicKey:
        """What anybody may know of this key."""
        return PublicKey(self._private().public_key().public_bytes_raw())

    def sign(self, payload: bytes) -> bytes:
        """Return the signature of the payload, 64 bytes."""
        signature: bytes = self._private().sign(payload)
        return signature

    def _private(self) -> Any:
        return _cryptography().ed25519.Ed25519PrivateKey.from_private_bytes(self.seed)


def signing_key(path: Path, *, create: bool = True) -> SigningKey:
    """Return the key in a file (PKCS #8 in PEM), which is made on first use.

    Parameters
    ----------
    path
        Of the file; its folder is made too, for its owner alone.
    create
        Whether to make a key if there is none. A ledger that has begun needs the key
        it began with: then a missing file is an error.
    """
    library = _cryptography()
    data = secret_file(path, _fresh) if create else read_secret(path)
    try:
        key = library.serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, library.UnsupportedAlgorithm):
        key = None
    if not isinstance(key, library.ed25519.Ed25519PrivateKey):
        raise UnusableKey(
            f"key file {path} holds no unencrypted Ed25519 key in PEM; restore it from "
            "its backup"
        )
    return SigningKey(key.private_bytes_raw())


def _fresh() -> bytes:
    """Return a new key as its file holds it; all chance comes from ``noise``."""
    forms = _cryptography().serialization
    pem: bytes = (
        SigningKey(salt())
        ._private()
        .private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        )
    )
    return pem


class _Library:
    """The parts of the cryptography library that are used here."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.InvalidSignature = InvalidSignature
        self.UnsupportedAlgorithm = UnsupportedAlgorithm
        self.serialization = serialization
        self.ed25519 = ed25519


@lru_cache(maxsize=1)
def _cryptography() -> _Library:
    """Return the library, imported when a key is first used."""
    try:
        return _Library()
    except ImportError as error:
        raise MissingExtra(
            "signatures need cryptography, which is not installed; run pip install "
            "expunge[registry]"
        ) from error


# One ledger has few keys and many heads.
@lru_cache(maxsize=64)
def _named(raw: bytes) -> str:
    """Return the name of a public key."""
    return sha256(SPKI + raw).hexdigest()


@lru_cache(maxsize=64)
def _loaded(raw: bytes) -> Any:
    """Return a public key as the library knows it."""
    return _cryptography().ed25519.Ed25519PublicKey.from_public_bytes(raw)
