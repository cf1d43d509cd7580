# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the sealed private states of models, in files beside the database.

A checkpoint is megabytes, changes with every request, and is worthless without its key,
so it is a file: it is written once and not three times, and no dead copies pile up in
tables. Its name is that of the model and the number of its key, which the database
keeps. The next one is on disk, sealed under a key of its own, before the database
commits. Afterwards the old key is destroyed, and the old file is noise, which is
deleted. Every file whose key is destroyed goes, so the folder must belong to one
registry: a file in it names the owner, by the first key that signed the ledger.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from ...core.values import Private
from ...disk import make_folder, open_new, replace_file, sync_folder
from ...exceptions import NeedsRestore, StoreFailed
from .engine import translate_errors
from .keystore import Keystore, destroyed_error, place_of, seal_to, unseal

OWNER = "owner"
SHOWN = 16  # digits of a key in messages


class Checkpoints(Private):
    """The sealed files of a registry's models.

    Parameters
    ----------
    folder
        Where they are.
    keystore
        Their keys, and those of everything else.
    """

    __slots__ = ("folder", "keystore", "owner")

    def __init__(self, folder: Path, keystore: Keystore) -> None:
        self.folder = folder
        self.keystore = keystore
        self.owner = ""

    def create(self, owner: str = "") -> None:
        """Make the folder and the file of keys, unless they exist."""
        with translate_errors():
            make_folder(self.folder)
        self.keystore.create(owner)

    def require_owner(self, owner: str) -> None:
        """Refuse what is another registry's; an owner is its ledger's first key.

        A folder without an owner is marked with the next checkpoint.
        """
        self.owner = owner
        self._check_owner()
        self.keystore.require_owner(owner)

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

    def write(self, model: str, parts: Iterable[memoryview]) -> int:
        """Write and flush a checkpoint; return the number of its key.

        It has no effect until the database holds that number.
        """
        ((number, key),) = self.keystore.add().items()
        path = self.path(model, number)
        with translate_errors():
            if not self._check_owner():
                replace_file(self.folder / OWNER, self.owner.encode("ascii"))
            path.unlink(missing_ok=True)  # of a file of keys that was lost
            with os.fdopen(open_new(path), "wb", 0) as file:
                seal_to(file, parts, key=key, place=place_of(number, path.name))
                os.fsync(file.fileno())
            sync_folder(self.folder)
        return number

    def read(self, model: str, number: int) -> bytes:
        """Return the content of a checkpoint."""
        path = self.path(model, number)
        key = self.keystore.load([number]).get(number)
        if key is None:
            raise destroyed_error(f"the state of model {model!r}")
        try:
            with translate_errors():
                sealed = path.read_bytes()
        except FileNotFoundError:
            raise NeedsRestore(
                f"{path} is missing, which the database refers to; put folder and "
                "database back from the same backup and run expunge restore"
            ) from None
        return unseal(sealed, key, place=place_of(number, path.name))

    def path(self, model: str, number: int) -> Path:
        """Return where a checkpoint is."""
        return self.folder / f"{model}.{number}"

    def delete_dead(self) -> None:
        """Delete the files whose key is destroyed."""
        self._check_owner()
        with translate_errors():
            numbers = {
                name: int(end)
                for name in os.listdir(self.folder)
                if (end := name.rpartition(".")[2]).isdecimal() and name[0] != "."
            }
            live = self.keystore.load(numbers.values())
            for name, number in numbers.items():
                if number not in live:
                    (self.folder / name).unlink(missing_ok=True)
