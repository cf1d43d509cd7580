# SPDX-License-Identifier: Apache-2.0
"""Keys: secrets in files of their own, Ed25519 signatures, and tags for people.

**Files.** A key is made on first use, and only its owner may read the file. It appears
under its name complete and flushed, or not at all: it is written to a file of its own,
which is then linked to the name, and a link never replaces a file. When two processes
race for the first use, one makes the key and both use it. A file that group or others
may read is refused, because the secret must be assumed known.

**Signing keys** are Ed25519 (RFC 8032). A key is named by the SHA-256 of its
SubjectPublicKeyInfo, so ``openssl pkey -pubin -outform DER | sha256sum`` prints the
same name.

**Tag keys** turn people into tags, for tables that must not hold their names:

    tag = key id : BLAKE2b(id; key)       (RFC 7693, keyed; ids as in ``subjects``)

Identifiers of people have tags in the same way (``rights.identifiers``), and so has the
loosest form of an id, by which near misses are noticed.

Without the key nobody can test a guess, and destroying the key makes every tag under it
meaningless. One person has one tag under one key, so tags link requests and are still
personal data: they belong in a store that can delete them, never in a ledger.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, SupportsIndex

from ..disk import (
    denied_message,
    draft_file,
    find_inode,
    hidden_path,
    make_folder,
    store_failure,
    sync_folder,
)
from ..exceptions import ExpungeError, InvalidInput, needing
from ..private_model.subjects import person
from ..promise.noise import SECRET_BYTES, random_bytes
from ..rights.identifiers import Identifier, loosest

KEY_BYTES, SIGNATURE_BYTES = 32, 64
TAG_ID_BYTES, TAG_BYTES = 8, 32
TOKEN_BYTES = 8
MAIN = "main:"
"""What tags begin with that lead from an id of a declared kind to itself."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
# SubjectPublicKeyInfo of Ed25519 up to the key itself (RFC 8410, section 4).
SPKI = bytes.fromhex("302a300506032b6570032100")

_PEM = re.compile(
    b"(-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----)", re.DOTALL | re.ASCII
)


class UnusableKey(ExpungeError, ValueError):
    """A key file is missing, readable by others, or holds no key; nothing was done."""


class Secret:
    """A key that prints nothing of itself and cannot be pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError(
            f"{type(self).__name__} is secret: it cannot be pickled or copied; pass "
            "the path of its file instead"
        )


def read_or_create_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the content of a secret file; if there is none, write what make gives.

    One that another process makes meanwhile is left alone, and read.
    """
    if not os.path.lexists(path):
        content = make()
        try:
            _make_folders(path.parent)
            draft = hidden_path(path, random_bytes(TOKEN_BYTES).hex())
            try:
                with draft_file(draft, content), suppress(FileExistsError):
                    os.link(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise store_failure(error) from error
    return read_secret(path)


def read_secret(path: Path) -> bytes:
    """Return the content of a secret file, or raise UnusableKey."""
    while True:
        try:
            file = path.open("rb")
        except PermissionError:
            raise UnusableKey(f"a key cannot be read: {denied_message(path)}") from None
        except OSError as error:
            raise UnusableKey(
                f"key file {path} cannot be read ({error.strerror}); restore it from "
                "its backup: a new key could not continue what the old one began"
            ) from None
        with file:
            # Of the file that is open, not of the name, which could change in between.
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UnusableKey(
                    f"key file {path} is not a regular file; give the path of the key"
                )
            if os.name == "posix" and mode & OTHERS:
                raise UnusableKey(
                    f"key file {path} has mode {stat.S_IMODE(mode):04o}: others may "
                    f"have read it; run chmod 600 {path}, and rotate the key if they "
                    "could"
                )
            content = file.read()
            # A file that was replaced meanwhile may have been erased under the reader.
            if find_inode(path) == os.fstat(file.fileno()).st_ino:
                return content


def _make_folders(folder: Path) -> None:
    """Make a folder and its parents for their owner alone; keep those that exist."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        make_folder(folder)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of a signing key: 32 bytes that check signatures."""

    raw: bytes

    def __post_init__(self) -> None:
        """Refuse any other number of bytes."""
        if len(self.raw) != KEY_BYTES:
            raise InvalidInput(f"a public key of {len(self.raw)} bytes; Ed25519 has 32")

    @property
    def id(self) -> str:
        """The name of the key: SHA-256 of its SubjectPublicKeyInfo, in hexadecimal."""
        return _key_id(self.raw)

    def to_pem(self) -> str:
        """Return the key as SubjectPublicKeyInfo in PEM."""
        forms = _cryptography().serialization
        pem: bytes = _load_public(self.raw).public_bytes(
            forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode("ascii")

    def verifies(self, signature: bytes, payload: bytes) -> bool:
        """Return whether this key made the signature of this payload."""
        try:
            _load_public(self.raw).verify(signature, payload)
        except _cryptography().InvalidSignature:
            return False
        return True


def read_pem(pem: str | bytes) -> tuple[tuple[PublicKey, ...], tuple[bytes, ...]]:
    """Return the Ed25519 keys in a PEM text, and the text around them.

    There is at least one key, and one more piece of text than keys: what precedes each
    key, and what follows the last (RFC 7468, section 2, allows both).
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
                f"public key {len(found) + 1} of the PEM text is not Ed25519; give the "
                "keys that the operator publishes for this ledger"
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
    public: PublicKey = field(init=False)
    """The public half."""
    _private: Any = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse any other number of bytes, without showing them."""
        if len(self.seed) != KEY_BYTES:
            raise InvalidInput(f"a seed of {len(self.seed)} bytes; Ed25519 needs 32")
        # Once: it takes as long as a signature, and a batch signs thousands.
        private = _cryptography().ed25519.Ed25519PrivateKey.from_private_bytes(
            self.seed
        )
        public = PublicKey(private.public_key().public_bytes_raw())
        object.__setattr__(self, "_private", private)
        object.__setattr__(self, "public", public)

    def sign(self, payload: bytes) -> bytes:
        """Return the signature of the payload, 64 bytes."""
        signature: bytes = self._private.sign(payload)
        return signature


def open_signing_key(path: Path, *, create: bool = True) -> SigningKey:
    """Return the key in a file (PKCS #8 in PEM); by default make it on first use.

    Parameters
    ----------
    path
        Of the file; its folder is made too, for its owner alone.
    create
        Whether to make a key if there is none. A ledger that has begun needs the key
        it began with, so there a missing file is an error.
    """
    library = _cryptography()
    forms = library.serialization

    def make() -> bytes:
        """Return a new key as its file holds it; all randomness is from ``noise``."""
        pem: bytes = SigningKey(random_bytes(KEY_BYTES))._private.private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        )
        return pem

    data = read_or_create_secret(path, make) if create else read_secret(path)
    try:
        key = forms.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, library.UnsupportedAlgorithm):
        key = None
    if not isinstance(key, library.ed25519.Ed25519PrivateKey):
        raise UnusableKey(
            f"key file {path} holds no unencrypted Ed25519 key in PEM; restore it from "
            "its backup"
        )
    return SigningKey(key.private_bytes_raw())


@dataclass(frozen=True, slots=True, repr=False)
class TagKey(Secret):
    """A secret of 32 bytes under which people become tags."""

    secret: bytes

    def __post_init__(self) -> None:
        """Refuse any other number of bytes, without showing them."""
        if len(self.secret) != KEY_BYTES:
            raise InvalidInput(f"a tag key of {len(self.secret)} bytes; it needs 32")

    @property
    def id(self) -> str:
        """The name of the key, which reveals nothing of it: 16 hexadecimal digits."""
        return _name_tag_key(self.secret)


def open_tag_key(path: Path, *, create: bool = True) -> TagKey:
    """Return the key in a file (hexadecimal); by default make it on first use.

    Parameters
    ----------
    path
        Of the file; its folder is made too, for its owner alone.
    create
        Whether to make a key if there is none.
    """

    def make() -> bytes:
        return random_bytes(SECRET_BYTES).hex().encode("ascii")

    data = read_or_create_secret(path, make) if create else read_secret(path)
    try:
        return TagKey(bytes.fromhex(data.decode("ascii")))
    except ValueError:
        raise UnusableKey(
            f"key file {path} does not hold 32 bytes in hexadecimal; restore it from "
            "its backup"
        ) from None


def subject_tag(subject: object, key: TagKey) -> str:
    """Return the tag of a person under a key: the same for all spellings of the id."""
    return _hash_under(key, b"expunge subject", text=person(subject))


def subject_tags(subject: object, keys: Sequence[TagKey]) -> tuple[str, ...]:
    """Return the tags of a person under every key, to find old ones as well."""
    return tuple(subject_tag(subject, key) for key in keys)


def near_tag(word: str, key: TagKey) -> str:
    """Return the tag of the loosest form of a word: of ids that may be one person's."""
    return _hash_under(key, b"expunge near", text=loosest(word))


def near_tags(word: str, keys: Sequence[TagKey]) -> tuple[str, ...]:
    """Return the tags of the loosest form of a word under every key."""
    return tuple(near_tag(word, key) for key in keys)


def main_tags(identifier: Identifier, keys: Sequence[TagKey]) -> tuple[str, ...]:
    """Return the tags by which an id of a declared kind is found by its hash.

    They are not those of an alias: an address may be one model's id of a person, and
    lead to the id that another model has.
    """
    text = _spell_alias(identifier)
    return tuple(MAIN + _hash_under(key, b"expunge main", text=text) for key in keys)


def alias_tag(identifier: Identifier, key: TagKey) -> str:
    """Return the tag of an identifier under a key: the same for all its forms."""
    return _hash_under(key, b"expunge alias", text=_spell_alias(identifier))


def alias_tags(identifier: Identifier, keys: Sequence[TagKey]) -> tuple[str, ...]:
    """Return the tags of an identifier under every key."""
    return tuple(alias_tag(identifier, key) for key in keys)


def alias_seal_key(identifier: Identifier, key: TagKey) -> bytes:
    """Return the key that seals what an alias leads to.

    It takes the tag key and the identifier: with the tag key and the sealed bytes one
    can test a guess, as with a tag, and read nothing. Keyed BLAKE2b is a
    pseudorandom function, so keys of other identifiers tell nothing of this one.
    """
    hashed = blake2b(
        _spell_alias(identifier).encode(),
        key=key.secret,
        digest_size=KEY_BYTES,
        person=b"expunge sealing",
    )
    return hashed.digest()


def _spell_alias(identifier: Identifier) -> str:
    """Return an identifier as one string; a kind holds no colon."""
    return f"{identifier.kind}:{identifier.digest()}"


def request_tag(content: str, key: TagKey) -> str:
    """Return the tag of what a request asks for."""
    return _hash_under(key, b"expunge request", text=content)


def _hash_under(key: TagKey, purpose: bytes, *, text: str) -> str:
    hashed = blake2b(
        text.encode(), key=key.secret, digest_size=TAG_BYTES, person=purpose
    )
    return f"{key.id}:{hashed.hexdigest()}"


@lru_cache(maxsize=1)
def _cryptography() -> Any:
    """Return what is used of the library, imported when a key is first used."""
    with needing("registry", "a signature"):
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

    return SimpleNamespace(
        InvalidSignature=InvalidSignature,
        UnsupportedAlgorithm=UnsupportedAlgorithm,
        serialization=serialization,
        ed25519=ed25519,
    )


# One registry has few of them and many tags.
@lru_cache(maxsize=16)
def _name_tag_key(secret: bytes) -> str:
    name = blake2b(key=secret, digest_size=TAG_ID_BYTES, person=b"expunge key id")
    return name.hexdigest()


# One ledger has few keys and many heads.
@lru_cache(maxsize=64)
def _key_id(raw: bytes) -> str:
    return sha256(SPKI + raw).hexdigest()


@lru_cache(maxsize=64)
def _load_public(raw: bytes) -> Any:
    """Return a public key as the library's object."""
    return _cryptography().ed25519.Ed25519PublicKey.from_public_bytes(raw)
