# SPDX-License-Identifier: Apache-2.0
"""Key files: secrets on disk, made on first use and readable by their owner alone.

A secret appears under its name complete and flushed, or not at all: it is written to a
file of its own, which is then linked to the name, and a link never replaces a file. Of
two processes that both come first, one makes the key and both use it. A file that group
or world may read is refused, whatever it holds: the secret must be taken as known.

Tags: people under a keyed hash, for tables that must not hold their names.

    tag = key id : BLAKE2b(id; key)       (RFC 7693, keyed; the id as in ``ids``)

Who lacks the key cannot test a guess; who destroys the key makes every tag under it
meaningless. Equal people have equal tags under one key, so tags link requests and are
personal data still: they belong into a store that can delete them, never into a ledger.
"""

import hmac
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn, SupportsIndex

from ..disk import beside, denied, drafted, failed, flush, make_folder
from ..exceptions import ExpungeError, InvalidInput
from ..private_model.subjects import person
from ..promise.noise import random_bytes

TOKEN_BYTES = 8
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class UnusableKey(ExpungeError, ValueError):
    """A key file is missing, open to others, or holds no key; nothing was done."""


class Secret:
    """A key that prints nothing of itself and is not pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError(
            f"{type(self).__name__} is secret: it cannot be pickled or copied; hand "
            "over the path of its file instead"
        )


def secret_file(path: Path, fresh: Callable[[], bytes]) -> bytes:
    """Return the content of a secret file, made from ``fresh`` if there is none."""
    if not os.path.lexists(path):
        try:
            _create(path, fresh())
        except OSError as error:
            raise failed(error) from error
    return read_secret(path)


def read_secret(path: Path) -> bytes:
    """Return the content of a secret file, or raise UnusableKey."""
    try:
        file = path.open("rb")
    except PermissionError:
        raise UnusableKey(f"a key cannot be read: {denied(path)}") from None
    except OSError as error:
        raise UnusableKey(
            f"key file {path} cannot be read ({error.strerror}); restore it from its "
            "backup: a new key could not continue what the old one began"
        ) from None
    with file:
        # Of the file that is open, not of the name, which could change in between.
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise UnusableKey(f"key file {path} is no plain file; name the key itself")
        if os.name == "posix" and mode & OTHERS:
            raise UnusableKey(
                f"key file {path} has mode {stat.S_IMODE(mode):04o}: others may have "
                f"read it; run chmod 600 {path}, and rotate the key if they could"
            )
        return file.read()


def _create(path: Path, content: bytes) -> None:
    """Make a secret file; leave alone one that another process made meanwhile."""
    _make_folders(path.parent)
    draft = beside(path, random_bytes(TOKEN_BYTES).hex())
    try:
        with drafted(draft, content), suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    flush(path.parent)


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it, each for its owner alone; keep what exists."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        make_folder(folder)


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
    return random_bytes(KEY_BYTES).hex().encode("ascii")
