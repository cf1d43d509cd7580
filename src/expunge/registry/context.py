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
from ..promise.noise import SECRET_BYTES, random_bytes
from .folder import Places, Settings, signing_key_of, tag_keys
from .held import Held, take_up
from .storage import (
    Checkpoints,
    Journal,
    Store,
    Vault,
    alone,
    people_table,
    postgresql_engine,
    releases_table,
    sqlite_engine,
)
from .storage.people_table import PageKeys
from .storage.tables import TURN, note, overtaken, write_turn

WAIT = 30.0  # seconds that a caller who says nothing waits for others


@dataclass(slots=True, repr=False, eq=False)
class Site(Private):
    """A registry's store, keys and files.

    Attributes
    ----------
    places, settings
        Where it is, and what was settled.
    store, checkpoints, journal
        The database, the sealed private states, and the journal.
    cache
        Models as they were last held, good for as long as the checkpoint is the same.
    turn, stated
        Of the process while it works: the turn it has, and up to where in the journal
        the store holds every statement.
    """

    places: Places
    settings: Settings
    store: Store
    checkpoints: Checkpoints
    journal: Journal
    cache: dict[str, Held] = field(default_factory=dict)
    turn: str = ""
    stated: int = 0

    @classmethod
    def at(cls, places: Places, settings: Settings) -> "Site":
        """Return the site in a folder; nothing is opened yet."""
        engine = (
            sqlite_engine(places.database)
            if settings.url is None
            else postgresql_engine(settings.url)
        )
        return cls(
            places,
            settings,
            Store(engine),
            Checkpoints(places.checkpoints, Vault(places.vault)),
            Journal(places.journal, places.journal_mark),
        )

    def close(self) -> None:
        """Give the database back and forget what was in memory."""
        self.cache.clear()
        self.store.close()

    @contextmanager
    def unless_it_fails(self) -> Iterator[None]:
        """Close the site if what is done with it raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def working(
        self, wait: float, needless: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Be the one process that changes models; see ``stores.lock.alone``."""
        with alone(self.store, self.places.lock, wait, needless) as locked:
            if not locked:
                yield False
                return
            with self.taking_turns():
                yield True

    @contextmanager
    def taking_turns(self) -> Iterator[None]:
        """Work, with the lock held; what fails as another took over ends in Busy."""
        self.turn = self.turn_now()
        try:
            yield
        except Exception as error:
            if self._was_overtaken():
                raise overtaken() from error
            raise

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """Give a transaction of the process that works; refuse one overtaken."""
        turn = random_bytes(SECRET_BYTES).hex()
        with self.store.writing() as connection:
            write_turn(connection, self.turn, turn)
            yield connection
        self.turn = turn

    def require_turn(self) -> None:
        """Refuse to go on if another process took over."""
        if self.turn_now() != self.turn:
            raise overtaken()

    def turn_now(self) -> str:
        """Return whose turn it is; another one each time that a worker wrote."""
        with self.store.reading() as connection:
            return note(connection, TURN)

    def _was_overtaken(self) -> bool:
        try:
            return self.turn_now() != self.turn
        except ExpungeError:
            return False

    def tag_keys(self) -> tuple[TagKey, ...]:
        """Return the keys of tags, the newest first."""
        return tag_keys(self.places.keys)

    def signing_key(self, ledger: Ledger) -> SigningKey:
        """Return the key that signs at the end of this ledger."""
        return signing_key_of(self.places.keys, ledger.keys.current)

    def held(self, name: str) -> Held:
        """Return a model with its private state; only the worker may ask."""
        with self.store.reading() as connection:
            current = releases_table.checkpoints(connection).get(name)
            known = self.cache.get(name)
            if known is not None and known.checkpoint == current:
                return known
            line = releases_table.newest(connection, name)
        data = self.checkpoints.read(line.checkpoint)
        held = take_up(line, data, partial(self.everybody, name))
        self.remember(held)
        return held

    def settle(self) -> None:
        """Destroy the keys and files of checkpoints that no longer count."""

        def current() -> dict[str, str]:
            with self.store.reading() as connection:
                return releases_table.checkpoints(connection)

        self.checkpoints.settle(current)

    def remember(self, held: Held) -> None:
        """Keep a model for the next request, unless rows would stay with it."""
        self.cache.pop(held.name, None)
        if held.holdings.kept is None:
            self.cache[held.name] = held

    def everybody(self, name: str, page_keys: PageKeys) -> Iterator[bytes]:
        """Yield the rows of each person in a model."""
        with self.store.reading() as connection:
            found = people_table.everybody(connection, name)
            pages = people_table.pages_of(connection, name, found, page_keys)
        yield from people_table.opened(name, found, pages)


def time_for(ledger: Ledger, after: int = 0) -> int:
    """Return the time for a ledger's next entry, which comes after another time.

    It is now, unless the clock was set back: days in a ledger do not go back.
    """
    return max(now(), midnight(ledger.day), after)


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time_ns() // 1_000_000
