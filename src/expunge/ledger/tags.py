# SPDX-License-Identifier: Apache-2.0
"""Tags: people under a keyed hash, for tables that must not hold their names.

    tag = key id : BLAKE2b(id; key)       (RFC 7693, keyed; the id as in ``ids``)

Who lacks the key cannot test a guess; who destroys the key makes every tag under it
meaningless. Equal people have equal tags under one key, so tags link requests and are
personal data still: they belong into a store that can delete them, never into a ledger.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..exceptions import InvalidInput
from ..ids import person
from ..noise import salt
from .keyfiles import Secret, UnusableKey, read_secret, secret_file

KEY_BYTES, ID_BYTES, TAG_BYTES = 32, 8, 32


@dataclass(frozen=True, slots=True, repr=False)
class TagKey(Secret):
    """A secret of 32 bytes under which people become tags."""

    secret: bytes

    def __post_init__(self) -> None:
        """Refuse another number of bytes, without showing them."""
        if len(self.secret) != KEY_BYTES:
            raise InvalidInput(f"a tag key of {len(self.secret)} bytes; it needs 32")

    @property
    def id(self) -> str:
        """The name of the key, which tells nothing of it: 16 hexadecimal digits."""
        name = blake2b(key=self.secret, digest_size=ID_BYTES, person=b"expunge key id")
        return name.hexdigest()


def tag_key(path: Path, *, create: bool = True) -> TagKey:
    """Return the key in a file (hexadecimal), which is made on first use.

    Parameters
    ----------
    path
        Of the file; its folder is made too, for its owner alone.
    create
        Whether to make a key if there is none.
    """
    data = secret_file(path, _fresh) if create else read_secret(path)
    try:
        return TagKey(bytes.fromhex(data.decode("ascii")))
    except ValueError:
        raise UnusableKey(
            f"key file {path} does not hold 32 bytes in hexadecimal; restore it from "
            "its backup"
        ) from None


def subject_tag(subject: object, key: TagKey) -> str:
    """Return the tag of a person under a key: one for all spellings of the id."""
    return _keyed(person(subject), key, b"expunge subject")


def request_tag(content: str, key: TagKey) -> str:
    """Return the tag of what a request asks for."""
    return _keyed(content, key, b"expunge request")


def subject_tags(subject: object, keys: Sequence[TagKey]) -> tuple[str, ...]:
    """Return the tags of a person under every key, to look for old ones as well."""
    return tuple(subject_tag(subject, key) for key in keys)


def is_tag_of(tag: str, subject: object, keys: Sequence[TagKey]) -> bool:
    """Return whether the tag is this person's, under one of the keys.

    A tag names its key; without that key it is nobody's any more.
    """
    return any(
        hmac.compare_digest(tag.encode(), candidate.encode())
        for candidate in subject_tags(subject, keys)
    )


def _keyed(text: str, key: TagKey, purpose: bytes) -> str:
    hashed = blake2b(
        text.encode(), key=key.secret, digest_size=TAG_BYTES, person=purpose
    )
    return f"{key.id}:{hashed.hexdigest()}"


def _fresh() -> bytes:
    return salt().hex().encode("ascii")
