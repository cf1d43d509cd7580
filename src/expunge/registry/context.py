# SPDX-License-Identifier: Apache-2.0
"""Site: what every part of a registry works with, and who may work.

The worker's lock keeps processes from working at once. It can be lost while its holder
lives on, so each transaction of a worker also takes the next turn, and whoever finds
that another took it was overtaken: nothing is written, and the caller is told Busy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import time_ns

from sqlalchemy import Connection

from ..core.arrays import Private
from ..exceptions import ExpungeError
from ..ledger import Ledger, SigningKey, TagKey
from ..ledger.documents import midnight
from ..promise.noise import salt
from .folder import Paths, Settings, find_signing_key, read_tag_keys
from .loaded_model import LoadedModel, load_checkpoint
from .storage import (
    Checkpoints,
    Journal,
    Store,
    Vault,
    hold_worker_lock,
    people_table,
    postgresql_engine,
    releases_table,
    sqlite_engine,
)
from .storage.people_table import PageKeys
from .storage.tables import TURN, overtaken_error, read_metadata, take_turn

WAIT = 30.0  # seconds that a caller who says nothing waits for others


@dataclass(slots=True, repr=False, eq=False)
class Context(Private):
    """A registry's store, keys and files.

    Attributes
    ----------
    places, settings
        Where it is, and what was settled.
    store, checkpoints, journal
        The database, the sealed private states, and the journal.
    cache
        Models as they were last held, good for as long as the checkpoint is the same.
    turn, journal_position
        Of the process while it works: the turn it has, and up to where in the journal
        the store holds every statement.
    """

    paths: Paths
    settings: Settings
    store: Store
    checkpoints: Checkpoints
    journal: Journal
    cache: dict[str, LoadedModel] = field(default_factory=dict)
    turn: str = ""
    journal_position: int = 0

    @classmethod
    def in_folder(cls, paths: Paths, settings: Settings) -> "Context":
        """Return the site in a folder; nothing is opened yet."""
        engine = (
            sqlite_engine(paths.database)
            if settings.url is None
            else postgresql_engine(settings.url)
        )
        return cls(
            paths,
            settings,
            Store(engine),
            Checkpoints(paths.checkpoints, Vault(paths.vault)),
            Journal(paths.journal, paths.journal_mark),
        )

    def close(self) -> None:
        """Give the database back and forget what was in memory."""
        self.cache.clear()
        self.store.close()

    @contextmanager
    def close_on_error(self) -> Iterator[None]:
        """Close the site if what is done with it raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def hold_lock(
        self, wait: float, is_done: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Be the one process that changes models; see ``stores.lock.alone``."""
        with hold_worker_lock(self.store, self.paths.lock, wait, is_done) as locked:
            if not locked:
                yield False
                return
            with self.take_turns():
                yield True

    @contextmanager
    def take_turns(self) -> Iterator[None]:
        """Work, with the lock held; what fails as another took over ends in Busy."""
        self.turn = self.current_turn()
        try:
            yield
        except Exception as error:
            if self._was_overtaken():
                raise overtaken_error() from error
            raise

    @contextmanager
    def write_in_turn(self) -> Iterator[Connection]:
        """Give a transaction of the process that works; refuse one overtaken."""
        turn = salt().hex()
        with self.store.write() as connection:
            take_turn(connection, self.turn, turn)
            yield connection
        self.turn = turn

    def require_turn(self) -> None:
        """Refuse to go on if another process took over."""
        if self.current_turn() != self.turn:
            raise overtaken_error()

    def current_turn(self) -> str:
        """Return whose turn it is; another one each time that a worker wrote."""
        with self.store.read() as connection:
            return read_metadata(connection, TURN)

    def _was_overtaken(self) -> bool:
        try:
            return self.current_turn() != self.turn
        except ExpungeError:
            return False

    def tag_keys(self) -> tuple[TagKey, ...]:
        """Return the keys of tags, the newest first."""
        return read_tag_keys(self.paths.keys)

    def signing_key(self, ledger: Ledger) -> SigningKey:
        """Return the key that signs at the end of this ledger."""
        return find_signing_key(self.paths.keys, ledger.keys.current)

    def load_model(self, name: str) -> LoadedModel:
        """Return a model with its private state; only the worker may ask."""
        with self.store.read() as connection:
            current = releases_table.read_checkpoints(connection).get(name)
            known = self.cache.get(name)
            if known is not None and known.checkpoint == current:
                return known
            line = releases_table.read_newest(connection, name)
        data = self.checkpoints.read(line.checkpoint)
        loaded = load_checkpoint(line, data, partial(self.read_rows, name))
        self.remember(loaded)
        return loaded

    def destroy_old_checkpoints(self) -> None:
        """Destroy the keys and files of checkpoints that no longer count."""

        def current() -> dict[str, str]:
            with self.store.read() as connection:
                return releases_table.read_checkpoints(connection)

        self.checkpoints.destroy_old(current)

    def remember(self, loaded: LoadedModel) -> None:
        """Keep a model for the next request, unless rows would stay with it."""
        self.cache.pop(loaded.name, None)
        if loaded.private.training_rows is None:
            self.cache[loaded.name] = loaded

    def read_rows(self, name: str, page_keys: PageKeys) -> Iterator[bytes]:
        """Yield the rows of each person in a model."""
        with self.store.read() as connection:
            found = people_table.read_all_rows(connection, name)
            pages = people_table.read_pages(connection, name, found, page_keys)
        yield from people_table.unseal_rows(name, found, pages)


def next_entry_time(ledger: Ledger, after: int = 0) -> int:
    """Return the time for a ledger's next entry, which comes after another time.

    It is now, unless the clock was set back: days in a ledger do not go back.
    """
    return max(now(), midnight(ledger.day), after)


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time_ns() // 1_000_000
