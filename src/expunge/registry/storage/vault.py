# SPDX-License-Identifier: Apache-2.0
"""Vault: private state in sealed files, and the keys that make them readable.

**Sealing** is AES-256-GCM (NIST SP 800-38D) with a random nonce. Sealed bytes are bound
to a place: under another name they are refused. Each key seals one thing, so destroying
the key destroys that thing, wherever copies of it are.

**Checkpoints.** A checkpoint is megabytes, changes with every request, and is worthless
without its key, so it is kept in a file beside the database, not in it: it is written
once and not three times, and no dead copies pile up in tables. The database names the
current file. The next one is on disk, sealed under its own key, before the database
commits; afterwards the old key is destroyed, and the old file is noise that the next
one overwrites. When two processes both make a next generation, each has its own file:
the database lets one become current, and the other does no harm. Older files are
destroyed, so the folder must belong to one registry: a file in it names the owner, by
the first key that signed the ledger.

**The vault** is the file of these keys, outside the database. It holds the key of a
model's current generation and, drawn in advance, that of the next. Once the next
checkpoint is committed, the file is rewritten without the old key, and every copy of
the old checkpoint becomes noise, in freed blocks and on other disks too. The checkpoint
in turn holds the keys of people's rows, so a person whose key is not in the new one is
gone as well. A database that was put back from a backup names an earlier generation
than the vault; that shows, and its key is destroyed unless the backup has it.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from ...core.values import Private
from ...disk import (
    delete_draft,
    destroy,
    make_folder,
    open_new,
    replace_file,
    sync_folder,
)
from ...exceptions import NeedsRestore, StoreFailed, needing
from ...ledger.keys import UnusableKey, read_secret
from ...promise.noise import random_bytes
from .engine import translate_errors
from .lock import lock_file
from .tables import overtaken_error

KEY_BYTES, NONCE_BYTES = 32, 12
CHUNK = 1 << 20
VERSION = 1  # of the file of keys
TOKEN_BYTES = 8
OWNER = "owner"
SHOWN = 16  # digits of a key in messages


def new_key() -> bytes:
    """Return a new key."""
    return random_bytes(KEY_BYTES)


def seal(data: bytes, key: bytes, *, place: str) -> bytes:
    """Return the data sealed under a key, for this place alone."""
    nonce = random_bytes(NONCE_BYTES)
    sealed: bytes = _aead()(key).encrypt(nonce, data, place.encode())
    return nonce + sealed


def seal_to(
    file: IO[bytes], parts: Iterable[memoryview], *, key: bytes, place: str
) -> None:
    """Write what ``seal`` would return for the joined parts, without copying them."""
    nonce = random_bytes(NONCE_BYTES)
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


def unseal(sealed: bytes, key: bytes, *, place: str) -> bytes:
    """Return the data that was sealed, or raise StoreFailed."""
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        data: bytes = _aead()(key).decrypt(nonce, rest, place.encode())
    except _refusal():
        raise StoreFailed(
            f"what the store holds as {place} was altered, or has a different key; put "
            "database and keys back from the same backup and run expunge restore"
        ) from None
    return data


@lru_cache(maxsize=1)
def _aead() -> Any:
    """Return the cipher."""
    with needing("registry,files", "a registry"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM


def _gcm() -> Any:
    """Return the same cipher for a stream."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    def encryptor(key: bytes, nonce: bytes) -> Any:
        return Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()

    return encryptor


def _write(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of the data: an unbuffered file may take less at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _refusal() -> tuple[type[Exception], ...]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag, ValueError


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CheckpointKeys(Private):
    """The current generation of a model, its key, and the key of the next one."""

    generation: int
    present: bytes
    next: bytes

    def key_of(self, generation: int, model: str) -> bytes:
        """Return the key of a generation, or say why there is none."""
        if generation == self.generation:
            return self.present
        if generation == self.generation + 1:
            return self.next
        if generation < self.generation:
            raise NeedsRestore(
                f"the database has generation {generation} of model {model!r} and its "
                f"keys are at {self.generation}: it was put back from a backup; run "
                "expunge restore BACKUP, so that nobody comes back with it"
            )
        raise NeedsRestore(
            f"the keys are at generation {self.generation} of model {model!r} and the "
            f"database at {generation}: vault.json is out of date; put its newest copy "
            "back"
        )


class Vault(Private):
    """The file of keys. It is read each time: another process may have written it.

    Parameters
    ----------
    path
        Of the file.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the file, with no key in it, unless it exists."""
        with self._lock():
            if not self.path.exists():
                self._write({})

    def read_keys(self, model: str) -> CheckpointKeys:
        """Return the keys of a model."""
        return self._find(self._read(), model)

    def create_keys(self, model: str) -> CheckpointKeys:
        """Return the keys of a model; make them first, on disk, if it is new."""
        with self._lock():
            held = self._read()
            if model not in held:
                held[model] = CheckpointKeys(0, new_key(), new_key())
                self._write(held)
        return held[model]

    def read_all(self) -> dict[str, CheckpointKeys]:
        """Return the keys of all models, by name, as they are at one moment."""
        return self._read()

    def is_empty(self) -> bool:
        """Return whether there is no key of any model."""
        return not self._read()

    def is_at(self, generations: Mapping[str, int | None]) -> bool:
        """Return whether these are the current generations; None has no key."""
        held = self._read()
        return all(
            model not in held
            if generation is None
            else self._find(held, model).generation == generation
            for model, generation in generations.items()
        )

    def destroy_old_keys(
        self, committed: Callable[[], Mapping[str, int | None]]
    ) -> None:
        """Destroy the keys of all generations before those that are committed.

        Of a model whose generation is None, every key is destroyed.
        """
        with self._lock():
            delete_draft(self.path)
            held = self._read()
            left = dict(held)
            for model, generation in committed().items():
                if generation is None:
                    left.pop(model, None)
                    continue
                keys = self._find(held, model)
                if keys.generation != generation:
                    key = keys.key_of(generation, model)
                    left[model] = CheckpointKeys(generation, key, new_key())
            if left != held:
                self._write(left)

    def replace(self, content: bytes) -> None:
        """Replace the file of keys by another."""
        with self._lock():
            replace_file(self.path, content)

    def _find(self, held: Mapping[str, CheckpointKeys], model: str) -> CheckpointKeys:
        try:
            return held[model]
        except KeyError:
            raise NeedsRestore(
                f"{self.path} holds no key of model {model!r}: if the database was put "
                "back from a backup, run expunge restore BACKUP; otherwise put back "
                "the vault.json that belongs to it"
            ) from None

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other processes from changing the file.

        The worker's lock is not enough: if it was lost unnoticed, two processes would
        each draw a next key, and one would seal under a key that is not kept.
        """
        with translate_errors(), lock_file(self.path.with_name("vault.lock")):
            yield

    def _read(self) -> dict[str, CheckpointKeys]:
        try:
            data = json.loads(read_secret(self.path))
            if data["version"] != VERSION:
                raise ValueError
            return {
                model: CheckpointKeys(
                    int(item["generation"]),
                    bytes.fromhex(item["present"]),
                    bytes.fromhex(item["next"]),
                )
                for model, item in data["keys"].items()
            }
        except UnusableKey:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreFailed(
                f"{self.path} is damaged; restore it from a copy"
            ) from None

    def _write(self, held: Mapping[str, CheckpointKeys]) -> None:
        keys = {
            model: {
                "generation": item.generation,
                "present": item.present.hex(),
                "next": item.next.hex(),
            }
            for model, item in held.items()
        }
        data = json.dumps({"version": VERSION, "keys": keys}).encode()
        replace_file(self.path, data)


class Checkpoints(Private):
    """The sealed files of a registry's models.

    Parameters
    ----------
    folder
        Where they are.
    vault
        Their keys.
    """

    __slots__ = ("folder", "owner", "vault")

    def __init__(self, folder: Path, vault: Vault) -> None:
        self.folder = folder
        self.vault = vault
        self.owner = ""

    def create(self) -> None:
        """Make the folder and the file of keys, unless they exist."""
        with translate_errors():
            make_folder(self.folder)
        self.vault.create()

    def require_owner(self, owner: str) -> None:
        """Refuse the folder of another registry; an owner is its ledger's first key.

        A folder without an owner is marked with the next checkpoint.
        """
        self.owner = owner
        self._check_owner()

    def _check_owner(self) -> bool:
        """Refuse the folder of another registry; return whether it has an owner."""
        if not self.owner:
            return True
        try:
            with translate_errors():
                said = (self.folder / OWNER).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, ValueError):
            return False
        if said != self.owner:
            raise StoreFailed(
                f"{self.folder} belongs to the registry with the first key "
                f"{said[:SHOWN]}, and the database to that with {self.owner[:SHOWN]}: "
                "two registries share a folder, or registry.json names the database "
                "of another; give each its own"
            )
        return True

    def write(self, model: str, generation: int, *, parts: Iterable[memoryview]) -> str:
        """Write and flush a generation; return its file name.

        It has no effect until the database holds that name.
        """
        key = self.vault.read_keys(model).key_of(generation, model)
        name = f"{model}.{generation}.{random_bytes(TOKEN_BYTES).hex()}"
        with translate_errors():
            if not self._check_owner():
                replace_file(self.folder / OWNER, self.owner.encode("ascii"))
            with os.fdopen(self._open_file(name, model), "wb", 0) as file:
                seal_to(file, parts, key=key, place=name)
                file.truncate()
                os.fsync(file.fileno())
            sync_folder(self.folder)
            if self.vault.read_keys(model).generation >= generation:
                # Another process was faster, and this key is no longer the next one.
                destroy(self.folder / name)
                raise overtaken_error()
        return name

    def _open_file(self, name: str, model: str) -> int:
        """Open a file for this process alone: the spare one of a model, or a new one.

        A file that has its blocks already is written in half the time.
        """
        path, spare = self.folder / name, self.folder / _spare(model)
        with suppress(FileNotFoundError):
            if spare.stat().st_nlink == 1:  # and no backup shares its blocks
                spare.rename(path)
                return os.open(path, os.O_WRONLY)
        return open_new(path)

    def read(self, name: str) -> bytes:
        """Return the content of a checkpoint."""
        model, generation = _parts(name)
        key = self.vault.read_keys(model).key_of(generation, model)
        path = self.folder / name
        try:
            with translate_errors():
                sealed = path.read_bytes()
        except FileNotFoundError:
            raise NeedsRestore(
                f"{path} is missing, which the database refers to; put folder and "
                "database back from the same backup and run expunge restore"
            ) from None
        return unseal(sealed, key, place=name)

    def require_key(self, name: str) -> None:
        """Refuse a checkpoint whose key is destroyed, or does not exist yet."""
        model, generation = _parts(name)
        self.vault.read_keys(model).key_of(generation, model)

    def is_clean(self, names: Mapping[str, str]) -> bool:
        """Return whether no key of a generation before these is kept.

        Of a model without a file no key is kept.
        """
        return self.vault.is_at(_generations(names))

    def destroy_old(self, current: Callable[[], Mapping[str, str]]) -> None:
        """Destroy all checkpoints older than those that the database names.

        ``current`` is called while nobody else can change the keys: what was current a
        moment ago may be gone. A later generation is kept: another process may be
        about to commit it. Of a model that was removed, whose name is empty, nothing is
        kept.
        """
        self._check_owner()
        names: Mapping[str, str] = {}

        def generations() -> dict[str, int | None]:
            nonlocal names
            names = current()
            return _generations(names)

        self.vault.destroy_old_keys(generations)
        with translate_errors():
            for file in os.listdir(self.folder):
                model, generation = _parts(file)
                name = names.get(model)
                if name is None or file == name:
                    continue
                if not name:
                    destroy(self.folder / file)
                elif generation < _parts(name)[1]:
                    # Noise, now that its key is destroyed.
                    with suppress(FileNotFoundError):
                        (self.folder / file).rename(self.folder / _spare(model))
                elif generation == _parts(name)[1]:
                    destroy(self.folder / file)  # its key is still kept
            for model, name in names.items():
                if not name:
                    destroy(self.folder / _spare(model))


def _spare(model: str) -> str:
    """Return the name of a file that is kept only for its blocks."""
    return f"spare~{model}"  # no model has such a name


def _generations(names: Mapping[str, str]) -> dict[str, int | None]:
    """Return the generation of each model's file; None if it has no file."""
    return {model: _parts(name)[1] if name else None for model, name in names.items()}


def _parts(name: str) -> tuple[str, int]:
    """Return the model and the generation in a file name."""
    front, _, _ = name.rpartition(".")
    model, _, generation = front.rpartition(".")
    return (model, int(generation)) if generation.isdecimal() else ("", 0)
