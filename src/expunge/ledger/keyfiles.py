# SPDX-License-Identifier: Apache-2.0
"""Key files: secrets on disk, made on first use and readable by their owner alone.

A secret appears under its name complete and flushed, or not at all: it is written to a
file of its own, which is then linked to the name, and a link never replaces a file. Of
two processes that both come first, one makes the key and both use it. A file that group
or world may read is refused, whatever it holds: the secret must be taken as known.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, SupportsIndex

from ..durable import beside, drafted, flush, make_folder
from ..exceptions import ExpungeError
from ..noise import salt
from ..rights import denied, failed

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
    draft = beside(path, salt()[:TOKEN_BYTES].hex())
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
