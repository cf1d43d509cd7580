# SPDX-License-Identifier: Apache-2.0
"""Vault: the keys of checkpoints, in a file outside the database.

A model's checkpoints are counted by generations. The file holds the key of the present
one and, drawn in advance, that of the next. A new checkpoint is sealed under the next
key; once it is committed, the file is rewritten without the old key, and with that
every copy of the old checkpoint is noise: in blocks that were freed, on another disk.
The checkpoint holds the keys of people's rows in turn, so a person whose key is not in
the new one is gone as well.

A database that was put back from a backup has a checkpoint of an earlier generation
than the file, which shows, and whose key is destroyed unless the backup has it too.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..durable import clear, replace_file
from ..exceptions import NeedsRestore, StoreFailed
from ..ledger.keyfiles import UnusableKey, read_secret
from ..private import Private
from .engine import translated
from .lock import locked
from .sealing import fresh_key

VERSION = 1


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Keys(Private):
    """The generation in force, its key, and the key of the next."""

    generation: int
    present: bytes
    next: bytes

    def of(self, generation: int, model: str) -> bytes:
        """Return the key of a generation, or say why it is not here."""
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
            f"database at {generation}: vault.json is not the newest; put that back"
        )


class Vault(Private):
    """The file of keys. It is read anew each time: another process may have written.

    Parameters
    ----------
    path
        Of the file.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Make the file, with no key in it, unless it is there."""
        with self._locked():
            if not self.path.exists():
                self._write({})

    def keys(self, model: str) -> Keys:
        """Return the keys of a model."""
        return self._of(self._read(), model)

    def prepare(self, model: str) -> Keys:
        """Return the keys of a model that may be new, on disk before they are used."""
        with self._locked():
            held = self._read()
            if model not in held:
                held[model] = Keys(0, fresh_key(), fresh_key())
                self._write(held)
        return held[model]

    def is_at(self, generations: Mapping[str, int]) -> bool:
        """Whether these are the generations in force."""
        held = self._read()
        return all(
            self._of(held, model).generation == generation
            for model, generation in generations.items()
        )

    def settle(self, committed: Callable[[], Mapping[str, int]]) -> None:
        """Destroy the keys of all generations before those that are committed."""
        with self._locked():
            clear(self.path)
            held = self._read()
            moved = {}
            for model, generation in committed().items():
                keys = self._of(held, model)
                if keys.generation != generation:
                    key = keys.of(generation, model)
                    moved[model] = Keys(generation, key, fresh_key())
            if moved:
                self._write(held | moved)

    def replace(self, content: bytes) -> None:
        """Put another file of keys in the place of this one."""
        with self._locked():
            replace_file(self.path, content)

    def _of(self, held: Mapping[str, Keys], model: str) -> Keys:
        try:
            return held[model]
        except KeyError:
            raise NeedsRestore(
                f"{self.path} holds no key of model {model!r}; put back the vault.json "
                "that belongs to this database"
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Change the file while nobody else does.

        The worker's lock alone will not do: where it was lost unnoticed, two processes
        would each draw a next key, and one would seal under a key that is not kept.
        """
        with translated(), locked(self.path.with_name("vault.lock")):
            yield

    def _read(self) -> dict[str, Keys]:
        try:
            data = json.loads(read_secret(self.path))
            if data["version"] != VERSION:
                raise ValueError
            return {
                model: Keys(
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
                f"{self.path} is damaged; put it back from where it was copied"
            ) from None

    def _write(self, held: Mapping[str, Keys]) -> None:
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
