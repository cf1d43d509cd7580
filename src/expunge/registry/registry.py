# SPDX-License-Identifier: Apache-2.0
"""Registry: models live here, requests arrive, and nothing is lost.

    accepted     on disk: in the journal and in the store
    applied      one transaction: new checkpoint, new release, rows and tags deleted
    completed    deleted bytes erased, old keys destroyed; ledger entry, receipt

Any process may accept requests. One at a time applies them, under a lock that ends with
the process; the next one finishes what it left.

Its parts have what is needed less often: ``requests``, ``people``, ``rules``,
``access``, ``aliases``, ``models``, ``lake``, ``deliveries``, ``keys`` and ``ledger``.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike
from sqlalchemy import delete, false

from ..disk import try_writing
from ..display.progress import OnProgress, be_silent
from ..exceptions import ExpungeError, InvalidInput
from ..ledger import Entry, Head, sign
from ..ledger.packs import EvidencePack
from ..private_model.subjects import people
from ..rights.identifiers import ID
from .access import RegistryAccess
from .aliases import RegistryAliases
from .clock import ClockStatus, confirm_clock, read_clock
from .context import (
    WAIT,
    Context,
    Paths,
    RegistryPart,
    Settings,
    read_settings,
    require_safe_folder,
)
from .deciding import RegistryRules
from .deliveries import RegistryDeliveries
from .exclusions import RegistryExclusions
from .figures import RegistryFigures
from .fits import FitOptions, LeftOut, NewRows
from .keys import find_signing_key, rotate_signing_key, rotate_tag_key
from .known import RegistryPeople
from .models import ModelStatus, RegistryModels, fit_model, read_models
from .opening import (
    create_context,
    open_context,
    open_unchecked,
    require_current_store,
)
from .recovery.losses import Losses
from .request import CANCELLED, COMPLETED, RequestStatus, read_pending, requests
from .requests import RegistryRequests, Request, RequestCounts, count_requests
from .storage import ledger_table, people_table, releases_table
from .storage.engine import translate_errors
from .storage.people_table import AsideStatus
from .storage.releases_table import ReleaseStatus
from .storage.tables import overtaken_error, read_metadata
from .worker import recover

if TYPE_CHECKING:
    from .expiry import RegistryExpiry
    from .lake import RegistryLake

ENTRIES = 500  # of the ledger, read at once


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
    clock
        Whether the machine's clock is believed.
    head_file
        Where the last signed head is kept; empty if nowhere.
    unsigned
        Why nothing is signed now, and requests wait; empty if the head can be kept.
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
    clock: ClockStatus
    head_file: str = ""
    unsigned: str = ""


class Registry:
    """A registry in a folder. Make one with ``create``, come back to it with ``open``.

    Parameters
    ----------
    context
        Of the folder.

    Attributes
    ----------
    requests, people, rules, access, aliases, models, lake, exclusions, figures,
    deliveries, keys, ledger
        Its parts.
    losses
        What could not come back, if it was just restored.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.losses = Losses()
        self.requests = RegistryRequests(context)
        self.access = RegistryAccess(context)
        self.rules = RegistryRules(context)
        self.people = RegistryPeople(context)
        self.aliases = RegistryAliases(context)
        self.models = RegistryModels(context)
        self.exclusions = RegistryExclusions(context)
        self.figures = RegistryFigures(context)
        self.deliveries = RegistryDeliveries(context)
        self.keys = RegistryKeys(context)
        self.ledger = RegistryLedger(context)

    @property
    def expiry(self) -> "RegistryExpiry":
        """What was kept long enough."""
        from .expiry import RegistryExpiry

        return RegistryExpiry(self._context)

    @property
    def settings(self) -> Settings:
        """What was chosen when it was created."""
        return self._context.settings

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._context.paths.folder

    @property
    def lake(self) -> "RegistryLake":
        """The files that models read their rows from."""
        from .lake import RegistryLake

        return RegistryLake(self._context)

    @classmethod
    def create(
        cls,
        folder: str | PathLike[str],
        *,
        url: str | None = None,
        regime: str = "gdpr",
        backup_days: int | None = None,
        head_file: str | PathLike[str] | None = None,
        recipients: Iterable[str] = (),
        excluded_days: int | None = None,
    ) -> Self:
        """Make a registry, or bring the tables of one that exists up to date.

        Parameters
        ----------
        folder
            Where keys, journal and, without a URL, the database are.
        url
            Of an empty PostgreSQL database; None keeps everything in a SQLite file.
        regime
            The law that gives the deadline of a request that names none, such as
            "gdpr" or "ccpa"; ``rights.REGIMES`` has all of them.
        backup_days
            For how many days a backup may hold what was deleted, which receipts state.
        head_file
            Where to keep the last signed head of the ledger: a file, or a folder in
            which each registry has one, on another disk. A folder that is put back to
            an earlier day as a whole is noticed by it alone. A registry that exists
            keeps its head there from now on.
        recipients
            To whom data of people are passed on: receipts and letters name them.
        excluded_days
            For how many days after an answer people are kept out of later fits, which
            receipts state; None for no end.
        """
        where = None if head_file is None else os.path.abspath(head_file)
        told = (recipients,) if isinstance(recipients, str) else tuple(recipients)
        settings = Settings(url, regime, backup_days, where, told, excluded_days)
        return cls(create_context(Paths(Path(folder)), settings))

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Return the registry in a folder."""
        return cls(open_context(Paths(Path(folder))))

    @classmethod
    def restore(
        cls,
        folder: str | PathLike[str],
        backup: str | PathLike[str] | None = None,
        *,
        accept_mark: bool = False,
        on_progress: OnProgress = be_silent,
    ) -> Self:
        """Put a registry's store back from a backup, and forget everybody again.

        ``losses`` of the result says what came after the backup and must be sent again.

        Parameters
        ----------
        folder
            The registry, with its newest journal.
        backup
            A folder with ``keys/sealing``, ``checkpoints`` and, on SQLite,
            ``expunge.db`` as they were when the backup was taken. A PostgreSQL
            database must have been put back already. None, with ``accept_mark``, keeps
            the store as it is.
        accept_mark
            Go on from the ledger as it is, or as the newest journal leads to, though
            the head file is lost or says that there was more. Whoever was forgotten
            after that is in the models again. The ledger gets an entry.
        on_progress
            Called with how many steps are done, of how many.
        """
        from .recovery.restore import accept_ledger, restore_registry

        paths = Paths(Path(folder))
        if backup is None:
            if not accept_mark:
                raise InvalidInput("name the folder of a backup, or accept_mark=True")
            context = open_unchecked(paths)
            with context.close_on_error():
                require_current_store(context)
                accept_ledger(context)
            return cls(context)
        require_safe_folder(paths)
        context = Context.in_folder(paths, read_settings(paths))
        with context.close_on_error():
            losses = restore_registry(
                context,
                Path(backup),
                on_progress=on_progress,
                accept_mark=accept_mark,
            )
        registry = cls(context)
        registry.losses = losses
        return registry

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
        y: Any = None,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        search: object = None,
        without_forgotten: bool = False,
        subject_kind: str = ID,
        exact: bool = False,
        columns: str = "",
        unchecked: bool = False,
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
            Training data. A long table, or a ``Lake`` that says what is to be kept of
            one, comes alone.
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
        subject_kind
            What kind of identifier the ids are, such as "email": they are then kept in
            its normal form, people are found by it, raw or hashed, and ids that fall
            together are one person, as the result says. By default ids are as they are.
        exact
            Whether ids that differ from those of forgotten people in case, spacing,
            width or zeros alone are of other people. Otherwise they count as these.
        columns
            What the columns of the table are, in words of the caller's: kept with the
            model as long as this fit, see ``models.columns``. It must hold no value
            from the rows, since nobody is forgotten from it.
        unchecked
            Whether to fit though people have bare ids, which cannot be compared with
            the identifiers on deletion lists (``exclusions``).
        on_progress
            Called with how many steps are done, of how many.
        """
        choices = search, without_forgotten, on_progress, subject_kind, exact, columns
        options = FitOptions(subjects, sample_weight, *choices, unchecked)
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
        exact: bool = False,
        unchecked: bool = False,
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
        exact, unchecked
            As for ``fit``. The kind of the ids is that of the model.
        """
        from .adding import add_rows

        options = FitOptions(
            subjects,
            sample_weight,
            None,
            without_forgotten,
            be_silent,
            exact=exact,
            unchecked=unchecked,
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

        Requests of others go on waiting, and so does this one if an earlier one about
        the same people waits for its window (WindowOpen), or if operators must decide
        about it first (NeedsDecision).

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
        asked = Request(ids) if request is None else Request(ids, request)
        submitted = self.requests.submit([asked], wait=wait)
        if asked.request in submitted.receipts:
            return submitted.receipts[asked.request]
        if submitted.failure is not None:
            raise submitted.failure
        if self.requests.status(asked.request).stage == CANCELLED:
            raise InvalidInput(
                f"request {asked.request} was cancelled; to forget these people, "
                "send another one"
            )
        raise overtaken_error()

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
        from .loaded_model import load_public

        return make_estimator(load_public(name, line.content))

    def status(self) -> RegistryStatus:
        """Return the registry at one moment. This changes nothing."""
        self._require_current()
        with self._context.store.read() as connection:
            ledger = ledger_table.read_ledger(connection)
            stages = count_requests(connection).stages
            pending = read_pending(connection)
            return RegistryStatus(
                models=tuple(read_models(connection)),
                pending=tuple(pending),
                outstanding=tuple(
                    one
                    for one in releases_table.shipped_releases(connection)
                    if one.is_outstanding
                ),
                set_aside=people_table.read_status(connection),
                n_requests=sum(stages.values()),
                n_completed=stages[COMPLETED],
                ledger_size=ledger.size,
                key=ledger.keys.current.id,
                store=self._context.store.dialect,
                clock=read_clock(connection),
                head_file=self._context.settings.head_file or "",
                unsigned=self._why_unsigned(),
            )

    def _why_unsigned(self) -> str:
        """Return why the next head could not be kept; nothing is changed."""
        head_file = self._context.head_file
        if head_file is None:
            return ""
        with self._context.store.read() as connection:
            try:
                head_file.require_extended(connection)
                if self._context.store.read_only_file is None:  # or others write it
                    first = read_metadata(connection, ledger_table.FIRST_KEY)
                    head_file.require_writable(first)
            except ExpungeError as error:
                return str(error)
        return ""

    def clock(self) -> ClockStatus:
        """Return whether the machine's clock is believed; quicker than ``status``."""
        with self._context.store.read() as connection:
            return read_clock(connection)

    def compact_journal(self, days: int | None = None) -> int:
        """Begin a new journal without what no backup needs; return the bytes saved.

        Backups from before that are refused from then on, by their day. The tags of
        people who were forgotten stay, so that fits go on to refuse them.

        Parameters
        ----------
        days
            How old a backup may be that is restored; by default ``backup_days``.
        """
        from .recovery.new_log import compact_log

        return compact_log(self._context, days)

    def confirm_clock(self) -> ClockStatus:
        """Believe the machine's clock as it is now; what is due to end may then end.

        Needed after the registry was idle for more than 30 days, or after the clock was
        wrong. If entries of the ledger were written by a clock that was ahead, later
        ones carry the day of the last of them until that day has come.
        """
        return confirm_clock(self._context)

    def count_requests(self) -> RequestCounts:
        """Return how many requests are at each stage; quicker than ``status``."""
        with self._context.store.read() as connection:
            return count_requests(connection)

    def try_writing(self) -> None:
        """Write a little where the journal is and take it back, or raise StoreFailed.

        SQLite's database is on the same disk, and to wait for its lock would tell how
        long others work.
        """
        store = self._context.store
        store.require_writable()
        with translate_errors():
            try_writing(self._context.paths.journal.parent)
        self.models.names()
        if store.dialect == "postgresql":
            with store.write() as connection:  # a standby refuses even this
                connection.execute(delete(requests).where(false()))

    def _require_current(self) -> None:
        """Refuse to show a store that was put back from a backup meanwhile."""
        require_current_store(self._context)


class RegistryKeys(RegistryPart):
    """The keys of a registry, as ``Registry.keys``."""

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


class RegistryLedger(RegistryPart):
    """The ledger of a registry, as ``Registry.ledger``."""

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yield the entries from one on."""
        while True:
            # A transaction for each page, so that a slow reader holds up nobody.
            with self._context.store.read() as connection:
                page = ledger_table.read_entries(connection, start, most=ENTRIES)
            yield from page
            if len(page) < ENTRIES:
                return
            start += ENTRIES

    def find(self, *kinds: type[Entry]) -> list[Entry]:
        """Return all entries of some kinds, in order."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_entries_of(connection, kinds)

    def sign_pack(self, pack: EvidencePack) -> EvidencePack:
        """Sign a list of evidence with the key of its head, the newest one."""
        with self._context.store.read() as connection:
            current = ledger_table.read_ledger(connection).keys.current
            if pack.head.to_json() != ledger_table.read_last_head(connection):
                raise overtaken_error()
        return sign(pack, find_signing_key(self._context.paths, current))

    def page(self, start: int, most: int) -> list[Entry]:
        """Return at most so many entries, from one on."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_entries(connection, start, most=most)

    def head(self) -> str | None:
        """Return the newest signed head, as it was written; None if there is none."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_last_head(connection) or None

    def heads(self, after: int = 0, most: int = 100) -> list[Head]:
        """Return at most so many heads over more than ``after`` entries, in order."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_heads_after(connection, after, most=most)

    def prove_inclusion(self, sequence: int, size: int) -> tuple[str, ...]:
        """Prove that an entry is in the ledger of a size; ``merkle.includes`` checks.

        The hashes are in hexadecimal.
        """
        with self._context.store.read() as connection:
            return ledger_table.prove_inclusion(connection, sequence, size=size)

    def prove_growth(self, first: int, second: int) -> tuple[str, ...]:
        """Prove that the ledger of one size begins with that of another.

        ``ledger.check_consistency`` checks it; the hashes are in hexadecimal.
        """
        with self._context.store.read() as connection:
            return ledger_table.prove_growth(connection, first, second=second)

    def export(self) -> bytes:
        """Return the whole ledger, as ``ledger.check_export`` reads it."""
        with self._context.store.read() as connection:
            return ledger_table.export_lines(connection)
