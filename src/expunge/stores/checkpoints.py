# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: private state in sealed files, one generation of each model at a time.

A checkpoint is megabytes, changes with every request, and is worth nothing without its
key, so it lies in a file beside the database, not in it: written once and not three
times, and no dead copies pile up in tables. The database names the generation that
counts. The next one is on disk, sealed under a key of its own, before that commits;
afterwards the old key is destroyed and the old file removed.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..durable import OWNER_ALONE, flush
from ..exceptions import NeedsRestore
from ..private import Private
from .engine import translated
from .sealing import seal_to, unseal
from .vault import Vault


class Checkpoints(Private):
    """The sealed files of a registry's models.

    Parameters
    ----------
    folder
        Where they are.
    vault
        Their keys.
    """

    __slots__ = ("folder", "vault")

    def __init__(self, folder: Path, vault: Vault) -> None:
        self.folder = folder
        self.vault = vault

    def begin(self) -> None:
        """Make the folder and the file of keys, unless they are there."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        flush(self.folder.parent)
        self.vault.begin()

    def write(self, model: str, generation: int, parts: Iterable[memoryview]) -> None:
        """Write a generation that nothing refers to yet, and see it on disk."""
        key = self.vault.keys(model).of(generation, model)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        path = self.folder / _name(model, generation)
        with (
            translated(),
            os.fdopen(os.open(path, flags, OWNER_ALONE), "wb", 0) as file,
        ):
            seal_to(file, parts, key, path.name)
            os.fsync(file.fileno())
        flush(self.folder)

    def read(self, model: str, generation: int) -> bytes:
        """Return what was written."""
        key = self.vault.keys(model).of(generation, model)
        path = self.folder / _name(model, generation)
        try:
            sealed = path.read_bytes()
        except FileNotFoundError:
            raise NeedsRestore(
                f"{path} is missing, which the database refers to; put folder and "
                "database back from the same backup and run expunge restore"
            ) from None
        return unseal(sealed, key, _name(model, generation))

    def settle(self, generations: Mapping[str, int]) -> None:
        """Destroy all before these generations, which the database has committed."""
        self.vault.settle(generations)
        current = {_name(model, number) for model, number in generations.items()}
        stale = [file.path for file in os.scandir(self.folder)]
        for path in stale:
            if Path(path).name not in current:
                Path(path).unlink(missing_ok=True)


def _name(model: str, generation: int) -> str:
    """Return the name of a checkpoint, to which its content is bound."""
    return f"{model}.{generation}"
