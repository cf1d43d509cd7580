# SPDX-License-Identifier: Apache-2.0
"""Registry: models live here, requests arrive, and nothing is lost.

    accepted     on disk: in the journal and in the store
    applied      one transaction: new checkpoint, new release, rows and tags deleted
    completed    deleted bytes erased, old keys destroyed; ledger entry, receipt

Any process may accept requests. One at a time applies them, under a lock that ends with
the process; the next one finishes what it left.

Its parts have what is needed less often: ``requests``, ``aliases``, ``models``,
``keys`` and ``ledger``.
"""

import os
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from numpy.typing import ArrayLike
from sqlalchemy import Connection

from ..disk import (
    delete_draft,
    delete_leftovers,
    find_leftovers,
    has_draft,
    is_allowed,
    write_new_file,
)
from ..display.progress import OnProgress, be_silent
from ..exceptions import (
    Busy,
    InvalidInput,
    NeedsRestore,
    NoRegistry,
    StoreFailed,
    UnknownRequest,
)
from ..private_model.subjects import people
from .accepting import Request, RequestStatus, request_status
from .adding import NewRows, add_rows
from .aliases import RegistryAliases
from .context import (
    WAIT,
    Context,
    Paths,
    Settings,
    read_settings,
    require_safe_folder,
    write_settings,
)
from .keys import (
    create_first_keys,
    require_unused_keys,
    rotate_signing_key,
    rotate_tag_key,
    tidy_keys,
    write_tag_key_ids,
)
from .loaded_model import load_public
from .models import (
    ModelStatus,
    RegistryModels,
    fit_model,
    model_status,
)
from .recovery import require_current_store, rewrite_journal
from .requests import RegistryRequests
from .restore import restore_registry
from .returning import FitOptions, LeftOut
from .statements import RegistryLedger
from .storage import (
    aside_table,
    hold_worker_lock,
    ledger_table,
    releases_table,
    requests_table,
    require_current_schema,
    require_tables,
    upgrade_tables,
)
from .storage.aside_table import AsideStatus
from .storage.engine import translate_errors
from .storage.releases_table import ReleaseStatus
from .storage.tables import overtaken_error, read_metadata, write_metadata
from .worker import apply_waiting, recover


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """A registry at one moment. No person is in it.

    Parameters
    ----------
    models
        All of them.
    pending
        Requests that are not completed, oldest first.
    outstanding
        Releases that left, are superseded, and were not taken back: they still
        include people who were forgotten.
    set_aside
        How many people have rows sealed apart.
    n_requests, n_completed
        How many requests there were, and how many are done.
    ledger_size, key
        Number of entries, and the id of the key that signs.
    store
        "sqlite" or "postgresql".
    """

    models: tuple[ModelStatus, ...]
    pending: tuple[RequestStatus, ...]
    outstanding: tuple[ReleaseStatus, ...]
    set_aside: AsideStatus
    n_requests: int
    n_completed: int
    ledger_size: int
    key: str
    store: str


class Registry:
    """A registry in a folder. Make one with ``create``, come back to it with ``open``.

    Parameters
    ----------
    context
        Of the folder.

    Attributes
    ----------
    requests, aliases, models, keys, ledger
        Its parts.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.requests = RegistryRequests(context)
        self.aliases = RegistryAliases(context)
        self.models = RegistryModels(context)
        self.keys = RegistryKeys(context)
        self.ledger = RegistryLedger(context)

    @classmethod
    def create(
        cls,
        folder: str | PathLike[str],
        *,
        url: str | None = None,
        regime: str = "gdpr",
        backup_days: int | None = None,
    ) -> Self:
        """Make a registry, or bring the tables of one that exists up to date.

        Parameters
        ----------
        folder
            Where keys, journal and, without a URL, the database are.
        url
            Of an empty PostgreSQL database; None keeps everything in a SQLite file.
        regime
            The law that gives the deadline of a request that names none: "gdpr",
            "uk-gdpr" or "ccpa".
        backup_days
            For how many days a backup may hold what was deleted, which receipts state.
        """
        settings = Settings(url, regime, backup_days)
        return cls(_create_context(Paths(Path(folder)), settings))

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Return the registry in a folder."""
        context = _open_unchecked(Paths(Path(folder)))
        with context.close_on_error():
            require_current_store(context)
            _delete_leftovers(context)
        return cls(context)

    @classmethod
    def restore(
        cls,
        folder: str | PathLike[str],
        backup: str | PathLike[str],
        *,
        on_progress: OnProgress = be_silent,
    ) -> Self:
        """Put a registry's store back from a backup, and forget everybody again.

        Parameters
        ----------
        folder
            The registry, with its newest journal.
        backup
            A folder with ``keys/vault.json``, ``checkpoints`` and, on SQLite,
            ``expunge.db`` as they were when the backup was taken. A PostgreSQL
            database must have been put back already.
        on_progress
            Called with how many steps are done, of how many.
        """
        paths = Paths(Path(folder))
        require_safe_folder(paths)
        context = Context.in_folder(paths, read_settings(paths))
        with context.close_on_error():
            restore_registry(context, Path(backup), on_progress=on_progress)
        return cls(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and drop what is in memory."""
        self._context.close()

    def fit(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        search: object = None,
        without_forgotten: bool = False,
        on_progress: OnProgress = be_silent,
    ) -> LeftOut:
        """Fit an estimator and store it, with the rows of its people.

        Returns how many rows were left out, and of how many people.

        Parameters
        ----------
        name
            Of the model; it appears in the public ledger.
        model
            An estimator of expunge; a clone of it is fitted.
        X, y
            Training data.
        subjects
            Whose row each is. Without it the model has no people: no request finds its
            rows, and nobody can be forgotten from it.
        sample_weight
            Weights of the rows. A model that was fitted with weights needs them here.
        search
            What chose something by looking at the rows, an object or a few words: the
            certificate then says so, and promises nothing.
        without_forgotten
            Leave out the rows of people who were forgotten. Otherwise such data are
            refused, unless these people came back (``requests.readmit``).
        on_progress
            Called with how many steps are done, of how many.
        """
        choices = search, without_forgotten, on_progress
        options = FitOptions(subjects, sample_weight, *choices)
        return fit_model(
            self._context, name, model=model, X=X, y=y, options=options, replaces=False
        )

    def add(
        self,
        name: str,
        X: Any,
        y: Any,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        without_forgotten: bool = False,
    ) -> LeftOut:
        """Add rows to a model, of new people or of those it has, and release it.

        The model is then what ``fit`` would make of the data as they now are. Returns
        how many rows were left out, and of how many people.

        Parameters
        ----------
        name
            Of the model.
        X, y
            The rows, in columns as the model was fitted to.
        subjects
            Whose row each is; a model fitted with them needs them here.
        sample_weight
            Weights of the rows; a model fitted with weights needs them here.
        without_forgotten
            Leave out the rows of people who were forgotten, as ``fit`` does.
        """
        options = FitOptions(
            subjects, sample_weight, None, without_forgotten, be_silent
        )
        new = NewRows(X, y, sample_weight)
        return add_rows(self._context, name, new=new, options=options)

    def forget(
        self,
        subjects: Iterable[object],
        request: str | None = None,
        *,
        wait: float = WAIT,
    ) -> str:
        """Forget people in every model that holds them; return the receipt.

        Parameters
        ----------
        subjects
            Whom to forget.
        request
            Id of the request, to send it again safely; random by default.
        wait
            Seconds to wait for a process that applies requests.
        """
        ids = people(subjects)
        wanted = Request(ids) if request is None else Request(ids, request)
        (status,) = self.requests.accept([wanted])

        def is_done() -> bool:
            # While a restore goes on, the journal alone may know of it, and nobody may
            # look while the database is replaced.
            with suppress(UnknownRequest, Busy):
                return self.requests.receipt(wanted.request) is not None
            return False

        if status.stage != "completed":
            with self._context.hold_lock(wait, is_done) as locked:
                failed = (
                    apply_waiting(self._context, wait, on_progress=be_silent)
                    if locked
                    else {}
                )
            if wanted.request in failed:
                raise failed[wanted.request]
        receipt = self.requests.receipt(wanted.request)
        if receipt is None:
            raise overtaken_error()
        return receipt

    def model(self, name: str) -> Any:
        """Return the newest release of a model, as an estimator that predicts.

        Refused if the store was put back from a backup since it was opened: people who
        were forgotten would be in the model again.
        """
        self._require_current()
        with self._context.store.read() as connection:
            number = releases_table.newest_number(connection, name)
            line = releases_table.find_release(connection, name, number=number)
        from ..linear_model.fitting import make_estimator  # scikit-learn takes a second

        return make_estimator(load_public(name, line.content))

    def status(self) -> RegistryStatus:
        """Return the registry at one moment. This changes nothing."""
        self._require_current()
        with self._context.store.read() as connection:
            ledger = ledger_table.read_ledger(connection)
            n_requests, n_completed = requests_table.count_requests(connection)
            pending = requests_table.read_pending(connection)
            names = releases_table.model_names(connection)
            return RegistryStatus(
                models=tuple(model_status(connection, name) for name in names),
                pending=tuple(map(request_status, pending)),
                outstanding=tuple(
                    one
                    for one in releases_table.shipped_releases(connection)
                    if one.is_outstanding
                ),
                set_aside=aside_table.read_status(connection),
                n_requests=n_requests,
                n_completed=n_completed,
                ledger_size=ledger.size,
                key=ledger.keys.current.id,
                store=self._context.store.dialect,
            )

    def _require_current(self) -> None:
        """Refuse to show a store that was put back from a backup since it was opened.

        A thread that works keeps its own place in the journal.
        """
        require_current_store(replace(self._context))


class RegistryKeys:
    """The keys of a registry, as ``Registry.keys``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def public_pem(self) -> str:
        """Return all public keys of the ledger, each with the sizes that it signs."""
        with self._context.store.read() as connection:
            return ledger_table.read_ledger(connection).keys.to_pem()

    def rotate_signing_key(self) -> None:
        """Let a new key sign from now on; the old secret one is destroyed."""
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            rotate_signing_key(self._context)

    def rotate_tag_key(self) -> None:
        """Tag people under a new key from now on; old tags are still found."""
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            rotate_tag_key(self._context)


def rebuild_journal(folder: str | PathLike[str]) -> int | None:
    """Write the damaged journal of a registry again, from the database in use.

    Returns for how many completed requests it can no longer name the people: backups
    from before them are then refused, and every fit warns. A journal that is sound
    stays as it is; then this returns None.
    """
    with closing(_open_unchecked(Paths(Path(folder)))) as context:
        return rewrite_journal(context)


def _create_context(paths: Paths, settings: Settings) -> Context:
    """Return a new registry, or one that exists with its tables up to date."""
    require_safe_folder(paths)
    try:
        existing = read_settings(paths)
    except NoRegistry:
        return _create_new(paths, settings)
    if settings.url is not None and settings.url != existing.url:
        raise InvalidInput(
            f"{paths.folder} holds a registry on another database; open it, or make "
            "this one elsewhere"
        )
    _require_database(paths, existing)
    context = Context.in_folder(paths, existing)
    with context.close_on_error():
        require_tables(context.store)
        upgrade_tables(context.store)
        _require_same_registry(context)
        require_current_store(context)
    return context


def _create_new(paths: Paths, settings: Settings) -> Context:
    """Make a registry; finish one that a crash left half made."""
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        with translate_errors():
            paths.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = create_first_keys(paths)
            if settings.url is None and not paths.database.exists():
                write_new_file(paths.database, b"")  # for its owner alone
        context.checkpoints.create()
        require_unused_keys(context)
        upgrade_tables(context.store)
        with context.hold_lock(WAIT), translate_errors():
            with context.write_in_turn() as connection:
                _write_first_key(connection, key.public.raw.hex())
                write_tag_key_ids(connection, paths)
            context.checkpoints.require_owner(key.public.raw.hex())
            require_current_store(context)
            tidy_keys(context)
            write_settings(paths, settings)  # last: now it is a registry
    return context


def _write_first_key(connection: Connection, first: str) -> None:
    """Record the first key of the ledger; refuse a database that has another one."""
    if read_metadata(connection, ledger_table.FIRST_KEY, default=first) != first:
        raise InvalidInput(
            "the database holds another registry; give each a database of its own"
        )
    write_metadata(connection, ledger_table.FIRST_KEY, value=first)


def _open_unchecked(paths: Paths) -> Context:
    """Return the registry in a folder, not compared with its journal and keys."""
    settings = read_settings(paths)
    require_safe_folder(paths)
    _require_database(paths, settings)
    context = Context.in_folder(paths, settings)
    with context.close_on_error():
        require_current_schema(context.store)
        _require_same_registry(context)
    return context


def _require_database(paths: Paths, settings: Settings) -> None:
    """Refuse to make a new database where one was lost."""
    if settings.url is None and not paths.database.exists():
        raise NeedsRestore(
            f"{paths.database} is missing: it was lost; put it back from a backup with "
            "expunge restore BACKUP"
        )


def _require_same_registry(context: Context) -> None:
    """Refuse checkpoints that belong to another registry than the database."""
    with context.store.read() as connection:
        owner = read_metadata(connection, ledger_table.FIRST_KEY)
    context.checkpoints.require_owner(owner)


def _delete_leftovers(context: Context) -> None:
    """Delete what killed processes left, unless somebody is at work.

    A registry that can only be read in part keeps it: there is nothing to be done.
    """
    paths = context.paths
    folders = [one for one in paths.folders if is_allowed(one, os.W_OK)]
    with suppress(Busy, StoreFailed), translate_errors():
        if any(map(find_leftovers, folders)) or has_draft(paths.journal):
            with hold_worker_lock(context.store, paths.lock, wait=0.0):
                for folder in folders:
                    delete_leftovers(folder)
                # On another disk, among files that are none of ours.
                delete_draft(paths.journal)
