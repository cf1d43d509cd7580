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
from ..files.model import Loaded
from ..ledger import Entry
from ..private_model.subjects import people
from ..promise.record import Record
from . import requests, status
from .context import WAIT, Site
from .folder import Places, Settings, read_settings, require_safe
from .held import released
from .models import Given, anchor_anew, fitted, require_name, ship, take_in, withdraw
from .recovery import (
    come_back,
    make,
    opened,
    rebuild_journal,
    rotate_signing_key,
    rotate_tag_key,
)
from .requests import readmit, require_request, returning
from .restore import restore
from .storage import ledger_table, releases_table, requests_table
from .storage.tables import overtaken
from .values import Asked, ReleaseStatus, RequestStatus, Status
from .worker import Tell, begin, work

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

    def __init__(self, site: Site) -> None:
        self._site = site

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
        return cls(make(Places(Path(folder)), Settings(url, deadline_days)))

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Return the registry in a folder."""
        return cls(come_back(Places(Path(folder))))

    @classmethod
    def restore(
        cls,
        folder: str | PathLike[str],
        backup: str | PathLike[str],
        tell: Tell | None = None,
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
        places = Places(Path(folder))
        require_safe(places)
        site = Site.at(places, read_settings(places))
        with site.unless_it_fails():
            restore(site, Path(backup), tell or _silent)
        return cls(site)

    @classmethod
    def rebuild_journal(cls, folder: str | PathLike[str]) -> int:
        """Write a damaged journal again from the database in use.

        Returns how many completed requests it cannot name people of any more: a backup
        from before them is then refused, and every fit warns.
        """
        with closing(opened(Places(Path(folder)))) as site:
            return rebuild_journal(site)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the database back and forget what was in memory."""
        self._site.close()

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
        given = Given(subjects, sample_weight, search)
        require_name(name)
        with self._site.working(WAIT):
            if name in self.names():
                raise InvalidInput(
                    f"there is a model {name!r} already; give this one another name, "
                    "or replace it (refit, or --replace)"
                )
            begin(self._site, WAIT)
            take_in(self._site, name, fitted(model, X, y, given, again=False), WAIT)

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
        given = Given(subjects, sample_weight, search)
        with self._site.working(WAIT):
            if name not in self.names():
                raise InvalidInput(f"there is no model {name!r} to replace; fit it")
            begin(self._site, WAIT)
            take_in(self._site, name, fitted(model, X, y, given, again=True), WAIT)

    def readmit(self, subjects: Iterable[object]) -> None:
        """State that people who were forgotten came back.

        Without it a fit whose data hold them is refused: the table that a model was
        fitted to mostly still exists.
        """
        readmit(self._site, people(subjects))

    def returning(self, subjects: Iterable[object]) -> list[str]:
        """Return those who were forgotten and not readmitted since."""
        return returning(self._site, people(subjects))

    def names(self) -> list[str]:
        """Return the names of all models."""
        with self._site.store.reading() as connection:
            return releases_table.names(connection)

    def accept(self, asked: Sequence[Asked]) -> tuple[RequestStatus, ...]:
        """Take in requests, all or none; on return they are on disk.

        A request that was sent before is not taken in again: its status is returned.
        Raises UnknownSubject if a person is in no model.
        """
        return requests.accept(self._site, asked)

    def apply(self, wait: float = WAIT, tell: Tell | None = None) -> None:
        """Apply all requests that wait, as one batch, and complete them.

        Raises Busy if another process was at it for so many seconds, and, when
        everything else is done, the reason why a request could not be applied.
        """
        with self._site.working(wait):
            failed = work(self._site, wait, tell or _silent)
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
        asked = Asked(words) if request is None else Asked(words, request)
        (status,) = self.accept([asked])

        def done() -> bool:
            return self.receipt(asked.request) is not None

        if status.stage != "completed":
            with self._site.working(wait, needless=done) as locked:
                failed = work(self._site, wait, _silent) if locked else {}
            if asked.request in failed:
                raise failed[asked.request]
        receipt = self.receipt(asked.request)
        if receipt is None:
            raise overtaken()
        return receipt

    def known(self, subjects: Iterable[object]) -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them; none for strangers.

        Ids come back in their one spelling, each once.
        """
        return requests.known(self._site, people(subjects))

    def request(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        return status.request(self._site, request)

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        require_request(request)
        with self._site.store.reading() as connection:
            text = requests_table.receipt(connection, request)
        if text is None:
            self.request(request)  # raises if there is none
        return text

    def status(self) -> Status:
        """Return the registry at one moment."""
        return status.look(self._site)

    def log(self, start: int = 0) -> Iterator[Entry]:
        """Yield the ledger's entries from one on."""
        while True:
            # A transaction for each page: whoever reads slowly holds up nobody.
            with self._site.store.reading() as connection:
                page = ledger_table.entries_from(connection, start, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start += PAGE

    def export(self) -> bytes:
        """Return the whole ledger, as ``ledger.check_export`` reads it."""
        with self._site.store.reading() as connection:
            return ledger_table.lines(connection)

    def public_pem(self) -> str:
        """Return all public keys of the ledger, each with the sizes that it signs."""
        with self._site.store.reading() as connection:
            return ledger_table.ledger_in(connection).keys.to_pem()

    def release(self, name: str) -> Loaded:
        """Return the newest release of a model, as an estimator that predicts."""
        with self._site.store.reading() as connection:
            number = releases_table.number(connection, name)
            line = releases_table.release(connection, name, number)
        return released(line)

    def ship(self, name: str, path: str | PathLike[str]) -> ReleaseStatus:
        """Write the newest release of a model to a file, and remember that it left.

        Parameters
        ----------
        name
            Of the model.
        path
            Of the file, ending in .safetensors or .onnx.
        """
        return ship(self._site, name, Path(path))

    def withdraw(self, name: str, number: int) -> None:
        """State that every copy of a release was taken back."""
        withdraw(self._site, name, number)

    def plan(self, name: str) -> "PlanReport":
        """Return how many removals the contract of a model allows, run on its rows."""
        from .models import plan_of

        return plan_of(self._site, name)

    def record(self, name: str) -> Record:
        """Return the private record behind the newest release, for an auditor."""
        from .models import record_of

        return record_of(self._site, name)

    def case(self, name: str) -> "Case":
        """Return the removal of the first row of a model, to be put on trial. Private.

        The rows are those that are left, and the objective is as it is for them.
        """
        from .models import case_of

        return case_of(self._site, name)

    def reanchor(self, name: str) -> None:
        """Make the private state of a model anew from the rows that are left.

        The old one was fitted with everybody, and whoever opens it could learn of
        removed rows. It takes a pass over all rows, and releases nothing.
        """
        with self._site.working(WAIT):
            begin(self._site, WAIT)
            anchor_anew(self._site, name)

    def rotate_signing_key(self) -> None:
        """Let a new key sign from now on; the old secret one is destroyed."""
        with self._site.working(WAIT):
            begin(self._site, WAIT)
            rotate_signing_key(self._site)

    def rotate_tag_key(self) -> None:
        """Tag people under a new key from now on; old tags are still found."""
        with self._site.working(WAIT):
            begin(self._site, WAIT)
            rotate_tag_key(self._site)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
