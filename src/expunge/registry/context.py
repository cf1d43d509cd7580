# SPDX-License-Identifier: Apache-2.0
"""Context: a registry's folder, settings, store and log, and who may work on them.

The worker's lock keeps processes from working at once. It can be lost while its holder
lives on, so each transaction of a worker also takes the next turn (``log``). A worker
that finds that another process took its turn was overtaken: it writes nothing, and the
caller gets Busy.
"""

import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ..core.values import Private
from ..disk import replace_file, require_private
from ..exceptions import Busy, ExpungeError, InvalidInput, NoRegistry, StoreFailed
from ..ledger import Ledger
from ..ledger.documents import midnight
from ..ledger.keys import read_secret
from ..rights.identifiers import SPELLING
from ..rights.regimes import regime_named
from .head_file import HeadFile
from .log import Log
from .now import now
from .request import RequestStatus
from .statements import Statement, apply_line
from .storage import (
    Checkpoints,
    Keystore,
    Store,
    hold_worker_lock,
    ledger_table,
    people_table,
    postgresql_engine,
    releases_table,
    sqlite_engine,
)
from .storage.engine import Collision, translate_errors
from .storage.keystore import (
    Counts,
    count_made,
    find_unused,
    mark_dead,
    note_shredded,
    read_counts,
)
from .storage.tables import overtaken_error, read_metadata

# SciPy takes a while to import. Requests are accepted without it, and what needs it is
# imported when the first model is loaded.
if TYPE_CHECKING:
    from .loaded_model import LoadedModel

WAIT = 30.0  # seconds to wait for others by default
VERSION = 3
LONGEST_BACKUP = 36500


@dataclass(frozen=True, slots=True)
class Settings:
    """What was chosen when the registry was created.

    Parameters
    ----------
    url
        Of a PostgreSQL database; None keeps everything in a SQLite file.
    regime
        The law that gives the deadline of a request that names none.
    backup_days
        For how many days after a deletion a backup may hold what was deleted; None if
        the operator does not say. Receipts state it.
    head_file
        Where the last signed head is kept, a file or a folder on another disk; None if
        nowhere.
    recipients
        To whom data of people are passed on, as receipts and letters name them.
    excluded_days
        For how many days after an answer people are recognised, so that no later fit
        uses them; None for no end. Receipts state it.
    ids
        How ids of people are normalised before they become tags.
    version
        Of the folder's format.
    """

    url: str | None = None
    regime: str = "gdpr"
    backup_days: int | None = None
    head_file: str | None = None
    recipients: tuple[str, ...] = ()
    excluded_days: int | None = None
    ids: str = SPELLING
    version: int = VERSION

    def __post_init__(self) -> None:
        """Refuse what no registry has."""
        regime_named(self.regime)
        for name in ("backup_days", "excluded_days"):
            days: object = getattr(self, name)
            if days is not None and (
                isinstance(days, bool)
                or not isinstance(days, int)
                or not 0 <= days <= LONGEST_BACKUP
            ):
                raise InvalidInput(
                    f"{name}={days!r}; give days from 0 to {LONGEST_BACKUP}, or None"
                )
        if (self.excluded_days is not None) and (
            self.excluded_days < (self.backup_days or 0)
        ):
            raise InvalidInput(
                f"excluded_days={self.excluded_days}, and backups are kept for "
                f"{self.backup_days}: people would come back with one; give at least "
                "as many"
            )
        names: object = self.recipients
        if not isinstance(names, tuple) or not all(
            isinstance(one, str) and one.strip() and one.isprintable() for one in names
        ):
            raise InvalidInput(
                f"recipients={names!r}; give names of those to whom data are passed on"
            )
        if not isinstance(self.url, str | None):
            raise InvalidInput("the store URL must be a string; omit it to use SQLite")
        if not isinstance(self.head_file, str | None):
            raise InvalidInput(
                f"head_file={self.head_file!r}; name a file, or a folder of head files"
            )
        if self.ids != SPELLING:
            raise InvalidInput(
                f"the registry normalises ids by {self.ids!r}, and this expunge by "
                f"{SPELLING!r}: people would not be found; use the expunge that made it"
            )
        require_version(self.version)

    def __repr__(self) -> str:
        # A URL may hold a password.
        kind = "sqlite" if self.url is None else "postgresql"
        return f"Settings({kind}, regime={self.regime!r})"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the files of a registry are."""

    folder: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which files are written."""
        return self.folder, self.keys, self.checkpoints

    @property
    def settings(self) -> Path:
        """The settings."""
        return self.folder / "registry.json"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "expunge.db"

    @property
    def keys(self) -> Path:
        """The folder of keys."""
        return self.folder / "keys"

    @property
    def signing_keys(self) -> Sequence[Path]:
        """The files of signing keys, oldest first."""
        return self._numbered("signing-", ".pem")

    @property
    def tag_keys(self) -> Sequence[Path]:
        """The files of tag keys, oldest first."""
        return self._numbered("tags-", "")

    @property
    def outbox_key(self) -> Path:
        """The key of the addresses of callbacks and webhooks."""
        return self.keys / "outbox"

    @property
    def keystore(self) -> Path:
        """The keys of everything that may have to be erased."""
        return self.keys / "sealing"

    @property
    def checkpoints(self) -> Path:
        """The folder of sealed private states."""
        return self.folder / "checkpoints"

    @property
    def journal(self) -> Path:
        """What a restored database would lack; a link leads to another disk."""
        path = self.folder / "journal"
        return Path(os.path.realpath(path)) if path.is_symlink() else path

    @property
    def journal_mark(self) -> Path:
        """How long the journal is, and its digest."""
        return self.folder / "journal.mark"

    @property
    def lock(self) -> Path:
        """Held by the process that applies requests."""
        return self.folder / "worker.lock"

    @property
    def public(self) -> Path:
        """The ledger's public keys, to be published."""
        return self.folder / "public.pem"

    def next_signing_key(self) -> Path:
        """Return where the next signing key belongs."""
        return self.keys / f"signing-{self._next_number('signing-', '.pem')}.pem"

    def next_tag_key(self) -> Path:
        """Return where the next tag key belongs."""
        return self.keys / f"tags-{self._next_number('tags-', '')}"

    def _next_number(self, before: str, after: str) -> int:
        last = self._numbered(before, after)[-1]
        return int(last.name.removeprefix(before).removesuffix(after)) + 1

    def _numbered(self, before: str, after: str) -> Sequence[Path]:
        """Return the key files of a kind, lowest number first."""
        found, names = [], []
        with suppress(OSError):  # what is missing then is named by those who need it
            names = os.listdir(self.keys)  # a quarter of the time that glob takes
        for name in names:
            number = name.removeprefix(before).removesuffix(after)
            if number.isdecimal() and name == f"{before}{number}{after}":
                found.append((int(number), self.keys / name))
        return [path for _, path in sorted(found)]


def require_version(version: object) -> None:
    """Refuse the format of another expunge."""
    if version != VERSION:
        raise InvalidInput(
            f"the registry has format {version!r} and this expunge reads {VERSION}; "
            "use the expunge that made it, or make a new registry"
        )


def read_settings(paths: Paths) -> Settings:
    """Return the settings of the registry in a folder."""
    try:
        with translate_errors():
            raw = json.loads(paths.settings.read_text(encoding="utf-8"))
        require_version(raw["version"])
        if {*raw} != {field.name for field in fields(Settings)}:
            raise ValueError("the fields are not those that were written")
        return Settings(**raw | {"recipients": tuple(raw["recipients"])})
    except (FileNotFoundError, NotADirectoryError):
        raise NoRegistry(
            f"{paths.folder} holds no registry; run expunge init, or name its folder"
        ) from None
    except InvalidInput as error:
        raise StoreFailed(f"{paths.settings}: {error}") from None
    except (LookupError, ValueError, TypeError):
        raise StoreFailed(
            f"{paths.settings} is damaged; restore it from a copy"
        ) from None


def write_settings(paths: Paths, settings: Settings) -> None:
    """Write the settings, readable by the owner alone: a URL may hold a password."""
    data = json.dumps(asdict(settings), indent=2) + "\n"
    replace_file(paths.settings, data.encode())


def require_safe_folder(paths: Paths) -> None:
    """Refuse a registry that others may change, or that this user cannot read.

    Files that do not exist yet are skipped, but a link to a journal must lead
    somewhere.
    """
    files = [paths.settings, paths.public, paths.journal, paths.journal_mark]
    files += [Path(f"{paths.database}{end}") for end in ("", "-wal", "-shm")]
    for path in (*paths.folders, *files):
        require_private(path)
    for path in paths.signing_keys:
        read_secret(path)  # the other keys are read by every open
    if paths.journal.parent != paths.folder:
        _require_journal_link(paths)


def _require_journal_link(paths: Paths) -> None:
    """Refuse a journal on another disk that is missing, or that others can replace."""
    folder = paths.journal.parent
    if not paths.journal.exists():
        raise StoreFailed(
            f"{paths.folder / 'journal'} is a link to {paths.journal}, which is not "
            "there; mount that disk or repair the link, and do not make a new journal: "
            "the old one knows who was forgotten"
        )
    # In a sticky folder others can replace only their own files.
    if not folder.stat().st_mode & stat.S_ISVTX:
        require_private(folder)


@dataclass(slots=True, repr=False, eq=False)
class Context(Private):
    """A registry's paths, settings and store.

    Attributes
    ----------
    paths, settings
        Where it is, and what was chosen when it was created.
    store, checkpoints, log
        The database, the sealed private states, and the log.
    cache
        Models as last loaded; each is valid while its checkpoint is the current one.
    ledger
        Where the ledger stood when it was last looked at.
    answered, certificates
        What this process committed since it has the lock, to be stated: requests by
        id, and certificates by digest, as JSON. Whatever is not here is read.
    """

    paths: Paths
    settings: Settings
    store: Store
    checkpoints: Checkpoints
    log: Log
    cache: "dict[str, LoadedModel]" = field(default_factory=dict)
    ledger: Ledger | None = None
    answered: dict[str, RequestStatus] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)

    @classmethod
    def in_folder(cls, paths: Paths, settings: Settings) -> "Context":
        """Return the context of a folder; nothing is opened yet."""
        engine = (
            sqlite_engine(paths.database)
            if settings.url is None
            else postgresql_engine(settings.url)
        )
        store = Store(engine)
        return cls(
            paths,
            settings,
            store,
            Checkpoints(paths.checkpoints, Keystore(paths.keystore)),
            Log(paths.journal, paths.journal_mark, store, apply=apply_line),
        )

    @property
    def keystore(self) -> Keystore:
        """The keys of everything that may have to be erased."""
        return self.checkpoints.keystore

    @property
    def head_file(self) -> HeadFile | None:
        """Where the last signed head is kept, if it is."""
        where = self.settings.head_file
        return None if where is None else HeadFile(Path(where))

    def close(self) -> None:
        """Close the database and drop what is in memory."""
        self.cache.clear()
        self.store.close()

    @contextmanager
    def close_on_error(self) -> Iterator[None]:
        """Close everything if the block raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def hold_lock(
        self, wait: float, is_done: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Be the one process that changes models; see ``lock.hold_worker_lock``."""
        with hold_worker_lock(
            self.store, self.paths.lock, wait=wait, is_done=is_done
        ) as locked:
            if not locked:
                yield False
                return
            with self.store.hold_session(), self.take_turn():
                yield True

    @contextmanager
    def take_turn(self) -> Iterator[None]:
        """Work, with the lock held; a failure after another took over becomes Busy."""
        self.answered, self.certificates = {}, {}
        self.log.begin_turn()
        try:
            yield
        except Exception as error:
            if self._was_overtaken():
                raise overtaken_error() from error
            raise

    def _was_overtaken(self) -> bool:
        for _ in range(2):  # if the session had ended, the second time it is another
            with suppress(ExpungeError):
                return self.log.current_turn() != self.log.turn
        return False

    def load_model(self, name: str, *, key: int | None = None) -> "LoadedModel":
        """Return a model with its private state; only the worker may ask.

        ``key`` is the number of the key of its checkpoint, if that was just read.
        """
        from .loaded_model import load_checkpoint

        with self.store.read(snapshot=False) as connection:
            if key is None:
                key = releases_table.read_keys(connection).get(name)
            known = self.cache.get(name)
            if known is not None and known.key == key:
                return known
            line = releases_table.read_newest(connection, name)
        # A model without a release has no checkpoint: then loading says so.
        data = self.checkpoints.read(name, line.key) if line.key else b""
        loaded = load_checkpoint(line, data, read_rows=partial(self.read_rows, name))
        self.remember(loaded)
        return loaded

    def shred(self, numbers: Collection[int]) -> Callable[[Connection], None]:
        """Destroy keys, and delete the files that they sealed.

        Returns what writes that they are destroyed.
        """
        count = self.keystore.shred(numbers)
        self.checkpoints.delete_dead()
        return partial(note_shredded, numbers=list(numbers), count=count)

    def remember(self, loaded: "LoadedModel") -> None:
        """Keep a model for the next request, unless rows would stay with it."""
        self.cache.pop(loaded.name, None)
        if loaded.private.training_rows is None:
            self.cache[loaded.name] = loaded

    def read_rows(self, name: str, first: int = 0) -> Iterator[bytes]:
        """Yield the rows that a model uses, or those under this key and later ones."""
        with self.store.read() as connection:
            found = people_table.read_rows_in_use(connection, name, first=first)
        yield from people_table.unseal_rows_in_use(self.keystore, name, found=found)


class RegistryPart:
    """A part of a registry, such as ``Registry.requests``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context


def read_ledger(context: Context, connection: Connection) -> Ledger:
    """Return where the ledger stands; entries are never changed, so its size tells."""
    size = ledger_table.count_entries(connection)
    if context.ledger is None or context.ledger.size != size:
        context.ledger = ledger_table.read_ledger(connection)
    return context.ledger


def write_statement(
    context: Context,
    statement: Statement,
    *,
    check: Callable[[], None] = lambda: None,
    also: Callable[[Connection], None] = lambda connection: None,
) -> None:
    """Write a statement to the log and to the store, in one transaction.

    ``check`` may refuse at the last moment, when nobody else can write, and ``also``
    writes something else to the store.
    """
    line = statement.to_line()
    with context.log.record(line, in_turn=True, by=statement.write_line) as connection:
        check()
        also(connection)
    context.ledger = statement.batch.ledger
    keep_head(context)


def keep_head(context: Context, *, accept: bool = False) -> None:
    """Write the last head to the head file, if there is one, or refuse to go on.

    Nothing may be signed before. With ``accept`` the ledger counts as it is, whatever
    the head file says.
    """
    head_file = context.head_file
    if head_file is None:
        return
    with context.store.read() as connection:
        if not accept:
            head_file.require_extended(connection)
        first = read_metadata(connection, ledger_table.FIRST_KEY)
        last = ledger_table.read_last_head(connection)
    head_file.write(first, last, new=accept)


@contextmanager
def erase_deleted(
    context: Context, wait: float, *, dead: Collection[int]
) -> Iterator[Callable[[Connection], None]]:
    """Erase what was deleted, rows and keys, and run the block meanwhile.

    On leaving the block both are done. Gives what writes that the keys are destroyed.
    """
    with ExitStack() as stack:
        erase: Callable[[], None] = partial(context.store.erase_deleted, wait)
        if context.store.has_log:  # which takes as long as destroying keys
            thread = stack.enter_context(ThreadPoolExecutor(1))
            erase = thread.submit(erase).result
        yield context.shred(dead)
        erase()


def require_keys(context: Context, connection: Connection) -> Counts:
    """Refuse a file of keys that does not belong to the database."""
    counts = read_counts(connection)
    keys = releases_table.read_keys(connection)
    used = {name: key for name, key in keys.items() if key}
    context.keystore.require_current(
        made=counts.made, shredded=counts.shredded, used=used
    )
    return counts


@contextmanager
def give_up_keys(
    context: Context, numbers: Collection[int]
) -> Iterator[Callable[[], None]]:
    """Destroy keys if a transaction surely failed that would refer to them.

    The block calls what it is given when it has written everything. If it fails after
    that and was not refused, only the store knows whether it was committed, and
    ``settle_keys`` asks it.
    """
    is_written = False

    def written() -> None:
        nonlocal is_written
        is_written = True

    try:
        yield written
    except Exception as error:
        if numbers and (not is_written or isinstance(error, Busy | Collision)):
            with suppress(ExpungeError):  # what is left, the next worker destroys
                context.shred(numbers)
        raise


def settle_keys(context: Context, *, first: int | None = None) -> None:
    """Give up keys that were made and that nothing refers to; the lock is held.

    A process that was killed leaves some, or one that failed. They come after those
    that are counted, or after ``first``. Whoever still works on them was overtaken, and
    is refused.
    """
    with context.store.read(snapshot=False) as connection:
        made = read_counts(connection).made
    end = context.keystore.end()
    with context.log.batch() as connection:
        unused = find_unused(connection, range(first or made, end))
        mark_dead(connection, context.keystore.load(unused).keys())
        count_made(connection, range(made, end))


def next_entry_time(ledger: Ledger, after: int = 0) -> int:
    """Return the time for a ledger's next entry, no earlier than ``after``.

    It is now, unless the clock was set back: days in a ledger do not go back.
    """
    return max(now(), midnight(ledger.day), after)
