# SPDX-License-Identifier: Apache-2.0
"""Keys of a registry: one file each, numbered in order, and how they are rotated.

    signing-0.pem, signing-1.pem, ...    sign the ledger; the one in force signs
    tags-0, tags-1, ...                  turn people into tags; the newest is used
    outbox                               seals the addresses of callbacks and webhooks
    sealing                              seals rows and states, ``storage.keystore``

The store records the ids of the tag keys: under another key nobody would be found.

A rotation brings a new key and destroys the old secret. The ledger's entry decides
which key signs. What a crash leaves undone around it, keys that never came into force
or no longer are, and public keys not yet listed, is tidied up by the next worker.
"""

from pathlib import Path

from sqlalchemy import Connection

from ..disk import destroy, replace_file
from ..exceptions import NeedsRestore
from ..ledger import (
    KeyRotated,
    PublicKey,
    SigningKey,
    TagKey,
    UnusableKey,
    open_signing_key,
    open_tag_key,
    sign,
)
from ..ledger.documents import day_of
from .context import Context, Paths, next_entry_time, write_statement
from .deliveries import open_outbox_key
from .statements import Statement
from .storage import ledger_table
from .storage.engine import translate_errors
from .storage.keystore import FIRST
from .storage.ledger_table import LedgerBatch
from .storage.tables import (
    has_tables,
    overtaken_error,
    read_metadata,
    write_metadata,
)

TAG_KEYS = "tag keys"
READABLE = 0o644  # whatever the umask: others check by it, and must not change it


def create_first_keys(paths: Paths) -> SigningKey:
    """Make the first keys if they are missing; return the one that signs."""
    open_tag_key(paths.keys / "tags-0")
    open_outbox_key(paths)
    return open_signing_key(paths.keys / "signing-0.pem")


def require_unused_keys(context: Context) -> None:
    """Refuse to begin a ledger under keys that were in use: another may be published.

    A registry that a crash left half made has keys, and no model yet.
    """
    with context.store.read() as connection:
        begins = not has_tables(connection)
    if begins and context.keystore.end() > FIRST:
        raise NeedsRestore(
            f"{context.paths.keystore} holds keys of models: a registry was in use "
            "here, and its database is lost; put registry.json and the newest journal "
            "back and run expunge restore BACKUP, or make the new registry elsewhere"
        )


def find_signing_key(paths: Paths, public: PublicKey) -> SigningKey:
    """Return the secret half of a public key."""
    return _find_signing_file(paths, public)[1]


def _find_signing_file(paths: Paths, public: PublicKey) -> tuple[Path, SigningKey]:
    """Return the newest file that holds the secret half of a public key, and that."""
    for path in reversed(paths.signing_keys):
        if not path.read_bytes().strip(b"\0"):
            continue  # a process was killed while it destroyed this one
        key = open_signing_key(path, create=False)
        if key.public == public:
            return path, key
    raise UnusableKey(
        f"no file {paths.keys}/signing-*.pem holds key {public.id}, which is in force; "
        "put it back from its backup: another key could not continue the ledger"
    )


def read_tag_keys(paths: Paths) -> tuple[TagKey, ...]:
    """Return the tag keys, newest first: that one is for new people."""
    files = paths.tag_keys
    if not files:
        raise UnusableKey(
            f"{paths.keys} holds no tags-0, and without it nobody can be found; put it "
            "back from its backup"
        )
    return tuple(open_tag_key(path, create=False) for path in reversed(files))


def require_tag_keys(connection: Connection, paths: Paths) -> None:
    """Refuse to go on without the keys under which people were tagged."""
    # The store first: a rotation makes the file before it records the id.
    recorded = set(_read_tag_key_ids(connection))
    missing = recorded - {key.id for key in read_tag_keys(paths)}
    if missing:
        raise UnusableKey(
            f"no file {paths.keys}/tags-* holds key {', '.join(sorted(missing))}, "
            "under which people are tagged; put it back from its backup: without it "
            "they cannot be found"
        )


def write_tag_key_ids(connection: Connection, paths: Paths) -> None:
    """Record under which keys people are tagged."""
    recorded = _read_tag_key_ids(connection)
    ids = sorted({*recorded, *(key.id for key in read_tag_keys(paths))})
    write_metadata(connection, TAG_KEYS, value=" ".join(ids))


def _read_tag_key_ids(connection: Connection) -> list[str]:
    return read_metadata(connection, TAG_KEYS).split()


def rotate_signing_key(context: Context) -> None:
    """Let a new key sign from the next head on; the worker's lock is held."""
    with context.store.read() as connection:
        batch = LedgerBatch(ledger_table.read_ledger(connection))
    old = find_signing_key(context.paths, batch.ledger.keys.current)
    new = open_signing_key(context.paths.next_signing_key())
    time = next_entry_time(batch.ledger)
    day = day_of(time)
    rotation = KeyRotated(
        sequence=batch.ledger.size, day=day, public=new.public.raw.hex()
    )
    batch.append(sign(rotation, old))

    def check() -> None:
        try:
            find_signing_key(context.paths, new.public)
        except UnusableKey as error:
            # Another process took it for a leftover: without it nobody could sign.
            raise overtaken_error() from error

    statement = Statement(batch, batch.ledger.head(new, day), time)
    write_statement(context, statement, check=check)
    tidy_keys(context)


def rotate_tag_key(context: Context) -> None:
    """Tag new people under a new key; the worker's lock is held."""
    open_tag_key(context.paths.next_tag_key())
    with context.log.batch() as connection:
        write_tag_key_ids(connection, context.paths)


@translate_errors()
def tidy_keys(context: Context) -> None:
    """List all public keys, and destroy secret ones that are not in force."""
    paths = context.paths
    if len(paths.signing_keys) < 2 and paths.public.exists():
        return
    # While nobody can state a rotation: the key of one that is about to come must stay.
    with context.log.record({}, in_turn=True) as connection:
        keys = ledger_table.read_ledger(connection).keys
        replace_file(paths.public, keys.to_pem().encode("ascii"), mode=READABLE)
        current, _ = _find_signing_file(paths, keys.current)
        for path in paths.signing_keys:
            if path != current:
                destroy(path)
