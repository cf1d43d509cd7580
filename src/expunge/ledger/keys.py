# SPDX-License-Identifier: Apache-2.0
"""Keys: Ed25519, with which an operator signs and anybody checks (RFC 8032).

A key is named by the SHA-256 of its SubjectPublicKeyInfo, so that
``openssl pkey -pubin -outform DER | sha256sum`` gives the same name. Secret keys come
from files that are made on first use. The library is imported when a key is first used.

Key rings: the keys of one ledger, one after another.

A rotation adds a key and takes none away, so that a head stays verifiable by the key
that was in force at its size. In PEM each key stands below the sizes that it signs:

    Signs-From: 0
    Signs-To: 41
    -----BEGIN PUBLIC KEY-----
    ...
    -----END PUBLIC KEY-----
    Signs-From: 42
    -----BEGIN PUBLIC KEY-----
    ...

The last key has no end yet. A key alone needs no lines, and signs from 0 on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from ..exceptions import InvalidInput, MissingExtra
from ..promise.noise import random_bytes
from .secrets import Secret, UnusableKey, read_secret, secret_file

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
        SigningKey(random_bytes(KEY_BYTES))
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


Range: TypeAlias = tuple[int, int | None]
"""The first and the last size of the heads that a key signs; None if it has no end."""

_FROM, _TO = "Signs-From", "Signs-To"
_LINE = re.compile(rf"({_FROM}|{_TO}): (0|[1-9][0-9]{{0,17}})")


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one ledger, oldest first, each with the size it is in force from.

    A head of size s is signed by the last key whose ``since`` is at most s. The first
    has since=0; that of a rotation at sequence r has since=r + 1, so that the new key
    signs every head that covers its own introduction.
    """

    keys: tuple[tuple[int, PublicKey], ...]

    def __post_init__(self) -> None:
        """Refuse a history that no ledger has."""
        sizes = [since for since, _ in self.keys]
        ids = {key for _, key in self.keys}
        if not sizes or sizes[0] != 0 or sizes != sorted(set(sizes)):
            raise InvalidInput(
                f"keys in force from sizes {sizes}; the first must be in force from 0, "
                "and each later one from a larger size"
            )
        if len(ids) != len(self.keys):
            raise InvalidInput("a key comes back; a retired key is never used again")

    @classmethod
    def from_pem(cls, pem: str | bytes) -> "KeyRing":
        """Return the keys that an operator publishes; refuse a list with a gap."""
        keys, texts = read_pem(pem)
        *stated, after = map(_stated, texts)
        if stated == [{}]:
            stated = [{_FROM: 0}]
        if after or not all(_FROM in lines for lines in stated):
            raise _unusable(f"not every key stands below a line {_FROM}: SIZE")
        ranges: list[Range] = [(lines[_FROM], lines.get(_TO)) for lines in stated]
        try:
            ring = cls(tuple(zip((first for first, _ in ranges), keys, strict=True)))
        except InvalidInput as error:
            raise _unusable(str(error)) from None
        if ranges != list(ring.ranges()):
            raise _unusable(
                f"its keys sign sizes {_in_words(ranges)}; each must end with the size "
                "before the next one begins, and the last must have no end"
            )
        return ring

    @property
    def current(self) -> PublicKey:
        """The key that signs now."""
        return self.keys[-1][1]

    def at(self, size: int) -> PublicKey:
        """Return the key that signs heads of this size."""
        return next(key for since, key in reversed(self.keys) if since <= size)

    def until(self, size: int) -> "KeyRing":
        """Return the ring as it was when the ledger had this size."""
        return KeyRing(tuple(pair for pair in self.keys if pair[0] <= size))

    def range_at(self, size: int) -> Range:
        """Return the sizes of the heads that the key at this size signs."""
        return list(self.ranges())[len(self.until(size).keys) - 1]

    def rotated(self, since: int, key: PublicKey) -> "KeyRing":
        """Return the ring with a new key, in force from this size on."""
        return KeyRing((*self.keys, (since, key)))

    def ranges(self) -> Iterator[Range]:
        """Yield for each key the sizes of the heads that it signs."""
        sizes = [since for since, _ in self.keys]
        yield from ((since, then - 1) for since, then in pairwise(sizes))
        yield sizes[-1], None

    def to_pem(self) -> str:
        """Return all keys with what they sign, oldest first, for all to check by."""
        lines = []
        for (first, last), (_, key) in zip(self.ranges(), self.keys, strict=True):
            end = "" if last is None else f"{_TO}: {last}\n"
            lines.append(f"{_FROM}: {first}\n{end}{key.to_pem()}")
        return "".join(lines)


def _stated(text: bytes) -> dict[str, int]:
    """Return the sizes that the text before a key states; other lines are remarks."""
    found: dict[str, int] = {}
    for line in text.decode("ascii", "replace").splitlines():
        if "signs-" not in line.lower():
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None or match[1] in found:
            raise _unusable(f"it has a line {line[:80]!r}")
        found[match[1]] = int(match[2])
    return found


def _in_words(ranges: list[Range]) -> str:
    return ", ".join(
        f"{first} to {'-' if last is None else last}" for first, last in ranges
    )


def _unusable(why: str) -> InvalidInput:
    return InvalidInput(
        f"the list of keys cannot be used: {why}; get the operator's public.pem, whole "
        "and as it was published"
    )
