# SPDX-License-Identifier: Apache-2.0
"""Registry: a place where models live and requests arrive, and nothing is lost.

    accepted     on disk: in the journal and in the store
    applied      one transaction: new checkpoint, new release, rows and tags deleted
    completed    deleted bytes erased, old keys destroyed; ledger entry, receipt

Any process may accept. One at a time applies, under a lock that ends with it; whoever
comes next finishes what it left. The methods here parse, take the lock, and call.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from ..exceptions import InvalidInput
from ..ledger import Entry
from ..private_model.subjects import people
from ..promise.record import Record
from . import requests, status
from .context import WAIT, Context
from .folder import Paths, Settings, read_settings, require_safe_folder
from .loaded_model import load_public
from .models import (
    FitOptions,
    fit_estimator,
    reanchor_model,
    require_name,
    ship_release,
    store_model,
    withdraw_release,
)
from .recovery import (
    create_registry,
    open_registry,
    open_unchecked,
    rebuild_journal,
    rotate_signing_key,
    rotate_tag_key,
)
from .requests import find_forgotten, readmit, require_request_id
from .restore import restore_registry
from .storage import ledger_table, releases_table, requests_table
from .storage.tables import overtaken_error
from .values import ErasureRequest, RegistryStatus, ReleaseStatus, RequestStatus
from .worker import OnProgress, apply_waiting, recover

if TYPE_CHECKING:  # they take half a second to import
    from ..audit import Case
    from ..plan import PlanReport
PAGE = 500  # entries of the ledger read at once


class Registry:
    """A registry in a folder. Make one with ``create``, come back to it with ``open``.

    Parameters
    ----------
    site
        What it works with.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @classmethod
    def create(
        cls,
        folder: str | PathLike[str],
        *,
        url: str | None = None,
        deadline_days: int = 30,
    ) -> Self:
        """Make a registry, or bring the tables of one that exists up to date.

        Parameters
        ----------
        folder
            Where keys, journal and, without a URL, the database are.
        url
            Of an empty PostgreSQL database; None keeps everything in a SQLite file.
        deadline_days
            Within how many days the law wants a request done.
        """
        return cls(create_registry(Paths(Path(folder)), Settings(url, deadline_days)))

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Return the registry in a folder."""
        return cls(open_registry(Paths(Path(folder))))

    @classmethod
    def restore(
        cls,
        folder: str | PathLike[str],
        backup: str | PathLike[str],
        on_progress: OnProgress | None = None,
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
        tell
            Called with how many steps are done, of how many.
        """
        paths = Paths(Path(folder))
        require_safe_folder(paths)
        context = Context.in_folder(paths, read_settings(paths))
        with context.close_on_error():
            restore_registry(context, Path(backup), on_progress or _silent)
        return cls(context)

    @classmethod
    def rebuild_journal(cls, folder: str | PathLike[str]) -> int:
        """Write a damaged journal again from the database in use.

        Returns how many completed requests it cannot name people of any more: a backup
        from before them is then refused, and every fit warns.
        """
        with closing(open_unchecked(Paths(Path(folder)))) as context:
            return rebuild_journal(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the database back and forget what was in memory."""
        self._context.close()

    def fit(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any,
        subjects: Iterable[object] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        search: object = None,
    ) -> None:
        """Fit an estimator and take it in, with the rows of its people.

        Parameters
        ----------
        name
            Of the model; it stands in the public ledger.
        model
            An estimator of expunge; a clone of it is fitted.
        X, y
            Training data.
        subjects
            Whose row each is. Without it the model has no people: no request finds its
            rows, and nobody can be forgotten from it. People who were forgotten are
            refused, see ``readmit``.
        sample_weight
            What the rows weigh. A model that was fitted with weights needs them here.
        search
            What chose something by looking at the rows, an object or a few words: the
            certificate then says so, and promises nothing.
        """
        given = FitOptions(subjects, sample_weight, search)
        require_name(name)
        with self._context.hold_lock(WAIT):
            if name in self.names():
                raise InvalidInput(
                    f"there is a model {name!r} already; give this one another name, "
                    "or replace it (refit, or --replace)"
                )
            recover(self._context, WAIT)
            store_model(
                self._context,
                name,
                fit_estimator(model, X, y, given, again=False),
                WAIT,
            )

    def refit(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any,
        subjects: Iterable[object] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        search: object = None,
    ) -> None:
        """Fit an estimator in the place of a model, whose people are deleted.

        The parameters are those of ``fit``. Requests that wait are applied to it.
        """
        given = FitOptions(subjects, sample_weight, search)
        with self._context.hold_lock(WAIT):
            if name not in self.names():
                raise InvalidInput(f"there is no model {name!r} to replace; fit it")
            recover(self._context, WAIT)
            store_model(
                self._context, name, fit_estimator(model, X, y, given, again=True), WAIT
            )

    def readmit(self, subjects: Iterable[object]) -> None:
        """State that people who were forgotten came back.

        Without it a fit whose data hold them is refused: the table that a model was
        fitted to mostly still exists.
        """
        readmit(self._context, people(subjects))

    def returning(self, subjects: Iterable[object]) -> list[str]:
        """Return those who were forgotten and not readmitted since."""
        return find_forgotten(self._context, people(subjects))

    def names(self) -> list[str]:
        """Return the names of all models."""
        with self._context.store.read() as connection:
            return releases_table.model_names(connection)

    def accept(self, asked: Sequence[ErasureRequest]) -> tuple[RequestStatus, ...]:
        """Take in requests, all or none; on return they are on disk.

        A request that was sent before is not taken in again: its status is returned.
        Raises UnknownSubject if a person is in no model.
        """
        return requests.accept_requests(self._context, asked)

    def apply(self, wait: float = WAIT, on_progress: OnProgress | None = None) -> None:
        """Apply all requests that wait, as one batch, and complete them.

        Raises Busy if another process was at it for so many seconds, and, when
        everything else is done, the reason why a request could not be applied.
        """
        with self._context.hold_lock(wait):
            failed = apply_waiting(self._context, wait, on_progress or _silent)
        for error in failed.values():
            raise error

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
        words = people(subjects)
        asked = (
            ErasureRequest(words) if request is None else ErasureRequest(words, request)
        )
        (status,) = self.accept([asked])

        def done() -> bool:
            return self.receipt(asked.request) is not None

        if status.stage != "completed":
            with self._context.hold_lock(wait, is_done=done) as locked:
                failed = apply_waiting(self._context, wait, _silent) if locked else {}
            if asked.request in failed:
                raise failed[asked.request]
        receipt = self.receipt(asked.request)
        if receipt is None:
            raise overtaken_error()
        return receipt

    def known(self, subjects: Iterable[object]) -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them; none for strangers.

        Ids come back in their one spelling, each once.
        """
        return requests.find_subjects(self._context, people(subjects))

    def request(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        return status.request(self._context, request)

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        require_request_id(request)
        with self._context.store.read() as connection:
            text = requests_table.read_receipt(connection, request)
        if text is None:
            self.request(request)  # raises if there is none
        return text

    def status(self) -> RegistryStatus:
        """Return the registry at one moment."""
        return status.read_status(self._context)

    def log(self, start: int = 0) -> Iterator[Entry]:
        """Yield the ledger's entries from one on."""
        while True:
            # A transaction for each page: whoever reads slowly holds up nobody.
            with self._context.store.read() as connection:
                page = ledger_table.read_entries(connection, start, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start += PAGE

    def export(self) -> bytes:
        """Return the whole ledger, as ``ledger.check_export`` reads it."""
        with self._context.store.read() as connection:
            return ledger_table.export_lines(connection)

    def public_pem(self) -> str:
        """Return all public keys of the ledger, each with the sizes that it signs."""
        with self._context.store.read() as connection:
            return ledger_table.read_ledger(connection).keys.to_pem()

    def release(self, name: str) -> Any:
        """Return the newest release of a model, as an estimator that predicts."""
        with self._context.store.read() as connection:
            number = releases_table.newest_number(connection, name)
            line = releases_table.find_release(connection, name, number)
        from ..model_files import make_estimator  # scikit-learn, which others need not

        return make_estimator(load_public(name, line.content))

    def ship(self, name: str, path: str | PathLike[str]) -> ReleaseStatus:
        """Write the newest release of a model to a file, and remember that it left.

        Parameters
        ----------
        name
            Of the model.
        path
            Of the file, ending in .safetensors or .onnx.
        """
        return ship_release(self._context, name, Path(path))

    def withdraw(self, name: str, number: int) -> None:
        """State that every copy of a release was taken back."""
        withdraw_release(self._context, name, number)

    def plan(self, name: str) -> "PlanReport":
        """Return how many removals the contract of a model allows, run on its rows."""
        from .models import plan_removals

        return plan_removals(self._context, name)

    def record(self, name: str) -> Record:
        """Return the private record behind the newest release, for an auditor."""
        from .models import read_record

        return read_record(self._context, name)

    def case(self, name: str) -> "Case":
        """Return the removal of the first row of a model, to be put on trial. Private.

        The rows are those that are left, and the objective is as it is for them.
        """
        from .models import read_case

        return read_case(self._context, name)

    def reanchor(self, name: str) -> None:
        """Make the private state of a model anew from the rows that are left.

        The old one was fitted with everybody, and whoever opens it could learn of
        removed rows. It takes a pass over all rows, and releases nothing.
        """
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            reanchor_model(self._context, name)

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


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
