# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: private state in sealed files, one generation of each model at a time.

A checkpoint is megabytes, changes with every request, and is worth nothing without its
key, so it lies in a file beside the database, not in it: written once and not three
times, and no dead copies pile up in tables. The database names the file that counts.
The next one is on disk, sealed under a key of its own, before that commits; afterwards
the old key is destroyed, and the old file is noise that the next is written over. Of
two processes that both make a next generation, each has a file of its own: the database
lets one count, and the other is in nobody's way.

Whatever is older is destroyed, so the folder must be one registry's alone. A file in it
says whose it is, by the first key that signed the ledger.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..durable import destroy, flush, make_folder, open_new, replace_file
from ..exceptions import NeedsRestore, StoreFailed
from ..noise import salt
from ..private import Private
from .engine import translated
from .notes import overtaken
from .sealing import seal_to, unseal
from .vault import Vault

TOKEN_BYTES = 8
OWNER = "owner"
SHOWN = 16  # digits of a key, which nobody would read in full


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

    def begin(self) -> None:
        """Make the folder and the file of keys, unless they are there."""
        with translated():
            make_folder(self.folder)
        self.vault.begin()

    def belong_to(self, owner: str) -> None:
        """Say whose the folder must be, by the first key of the ledger, in hexadecimal.

        It is written down with the next checkpoint, where it was not yet.
        """
        self.owner = owner
        self._require_own()

    def _require_own(self) -> bool:
        """Refuse the folder of another registry; return whether it says whose it is."""
        if not self.owner:
            return True
        try:
            with translated():
                said = (self.folder / OWNER).read_text(encoding="ascii").strip()
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

    def write(self, model: str, generation: int, parts: Iterable[memoryview]) -> str:
        """Write a generation and see it on disk; return its name.

        It counts for nothing until the database holds that name.
        """
        key = self.vault.keys(model).of(generation, model)
        name = f"{model}.{generation}.{salt()[:TOKEN_BYTES].hex()}"
        with translated():
            if not self._require_own():
                replace_file(self.folder / OWNER, self.owner.encode("ascii"))
            with os.fdopen(self._opened(name, model), "wb", 0) as file:
                seal_to(file, parts, key, name)
                file.truncate()
                os.fsync(file.fileno())
            flush(self.folder)
            if self.vault.keys(model).generation >= generation:
                # Somebody else was faster, and the key is no longer that of the next.
                destroy(self.folder / name)
                raise overtaken()
        return name

    def _opened(self, name: str, model: str) -> int:
        """Open a file that is nobody else's: the spare one of a model, or a new one.

        A file that has its blocks is written in half the time.
        """
        path, spare = self.folder / name, self.folder / _spare(model)
        with suppress(FileNotFoundError):
            if spare.stat().st_nlink == 1:  # and no backup shares its blocks
                spare.rename(path)
                return os.open(path, os.O_WRONLY)
        return open_new(path)

    def read(self, name: str) -> bytes:
        """Return what was written under a name."""
        model, generation = _parts(name)
        key = self.vault.keys(model).of(generation, model)
        path = self.folder / name
        try:
            with translated():
                sealed = path.read_bytes()
        except FileNotFoundError:
            raise NeedsRestore(
                f"{path} is missing, which the database refers to; put folder and "
                "database back from the same backup and run expunge restore"
            ) from None
        return unseal(sealed, key, name)

    def require_key(self, name: str) -> None:
        """Refuse a checkpoint whose key is destroyed, or not here yet."""
        model, generation = _parts(name)
        self.vault.keys(model).of(generation, model)

    def is_settled(self, names: Mapping[str, str]) -> bool:
        """Whether no key is kept of a generation before these."""
        return self.vault.is_at({m: _parts(name)[1] for m, name in names.items()})

    def settle(self, current: Callable[[], Mapping[str, str]]) -> None:
        """Destroy all before those that the database names, model by model.

        It is asked while nobody else can change the keys: what counted a moment ago
        may be gone. A later generation is left alone: somebody may be about to commit
        it.
        """
        self._require_own()
        names: Mapping[str, str] = {}

        def generations() -> dict[str, int]:
            nonlocal names
            names = current()
            return {model: _parts(name)[1] for model, name in names.items()}

        self.vault.settle(generations)
        with translated():
            for file in os.listdir(self.folder):
                model, generation = _parts(file)
                name = names.get(model)
                if name is None or file == name:
                    continue
                if generation < _parts(name)[1]:
                    # Noise, now that its key is destroyed.
                    with suppress(FileNotFoundError):
                        (self.folder / file).rename(self.folder / _spare(model))
                elif generation == _parts(name)[1]:
                    destroy(self.folder / file)  # its key is the one in force


def _spare(model: str) -> str:
    """Return the name of a file that is kept for its blocks alone."""
    return f"spare~{model}"  # no model has such a name


def _parts(name: str) -> tuple[str, int]:
    """Return the model and the generation that a name speaks of."""
    front, _, _ = name.rpartition(".")
    model, _, generation = front.rpartition(".")
    return (model, int(generation)) if generation.isdecimal() else ("", 0)
