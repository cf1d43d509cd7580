# SPDX-License-Identifier: Apache-2.0
"""Keys: the secrets of a registry, one file each, numbered as they come.

signing-0.pem, signing-1.pem, ...    the ledger's; the one in force signs
tags-0, tags-1, ...                  under which people become tags; newest first
vault.json                           of checkpoints, see ``stores.vault``

The store notes the ids of the keys of tags: with another key everybody would be a
stranger.
"""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection

from ..ledger import PublicKey, SigningKey, TagKey, UnusableKey, signing_key, tag_key
from ..stores.notes import note, write_note

TAG_KEYS = "tag keys"


def first_keys(folder: Path) -> SigningKey:
    """Make the first keys if need be; return the one that signs."""
    tag_key(folder / "tags-0")
    return signing_key(folder / "signing-0.pem")


def signing_key_of(folder: Path, public: PublicKey) -> SigningKey:
    """Return the secret half of the key in force."""
    return signing_key(signing_path_of(folder, public), create=False)


def signing_path_of(folder: Path, public: PublicKey) -> Path:
    """Return the file that holds the secret half of a key."""
    for path in reversed(signing_paths(folder)):
        if signing_key(path, create=False).public == public:
            return path
    raise UnusableKey(
        f"no file {folder}/signing-*.pem holds key {public.id}, which is in force; put "
        "it back from its backup: another key could not continue the ledger"
    )


def tag_keys(folder: Path) -> tuple[TagKey, ...]:
    """Return the keys of tags, the newest first: it is the one for new people."""
    paths = _numbered(folder, "tags-", "")
    if not paths:
        raise UnusableKey(
            f"{folder} holds no tags-0, and without it nobody can be found; put it "
            "back from its backup"
        )
    return tuple(tag_key(path, create=False) for path in reversed(paths))


def require_tag_keys(connection: Connection, folder: Path) -> None:
    """Refuse keys of tags that are not those under which people were tagged."""
    missing = set(_noted(connection)) - {key.id for key in tag_keys(folder)}
    if missing:
        raise UnusableKey(
            f"no file {folder}/tags-* holds key {', '.join(sorted(missing))}, under "
            "which people are tagged; put it back from its backup: without it they "
            "cannot be found"
        )


def note_tag_keys(connection: Connection, folder: Path) -> None:
    """Write down under which keys people are tagged."""
    ids = {*_noted(connection), *(key.id for key in tag_keys(folder))}
    write_note(connection, TAG_KEYS, " ".join(sorted(ids)))


def _noted(connection: Connection) -> list[str]:
    return note(connection, TAG_KEYS).split()


def signing_paths(folder: Path) -> Sequence[Path]:
    """Return the files of signing keys, oldest first."""
    return _numbered(folder, "signing-", ".pem")


def next_signing_path(folder: Path) -> Path:
    """Return where the next signing key belongs."""
    return folder / f"signing-{_next(folder, 'signing-', '.pem')}.pem"


def next_tag_path(folder: Path) -> Path:
    """Return where the next key of tags belongs."""
    return folder / f"tags-{_next(folder, 'tags-', '')}"


def _next(folder: Path, before: str, after: str) -> int:
    """Return the number of the next file of a kind."""
    paths = _numbered(folder, before, after)
    last = paths[-1].name.removeprefix(before).removesuffix(after)
    return int(last) + 1


def _numbered(folder: Path, before: str, after: str) -> Sequence[Path]:
    """Return the files of a kind, lowest number first."""
    found = []
    for path in folder.glob(f"{before}*{after}"):
        number = path.name.removeprefix(before).removesuffix(after)
        if number.isdecimal():
            found.append((int(number), path))
    return [path for _, path in sorted(found)]
