# SPDX-License-Identifier: Apache-2.0
"""Registry: a place where models live and requests arrive, and nothing is lost.

    accepted     on disk: in the journal and in the store
    applied      one transaction: new checkpoint, new release, rows and tags deleted
    completed    deleted bytes erased, old keys destroyed; ledger entry, receipt

Any process may accept. One at a time applies, under a lock that ends with it; whoever
comes next finishes what it left. The methods here parse, take the lock, and call.
"""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..audit import Case
from ..durable import ANYONE, destroy, replace_file
from ..exceptions import InvalidInput, NoRegistry
from ..files.contents import Loaded
from ..ledger import Entry, KeyRotated, SigningKey, sign, signing_key, tag_key
from ..plan import PlanReport
from ..record import Record
from ..stores import chain, publications, requests, require_newest, upgrade
from ..stores.chain import Appending
from ..stores.notes import note, write_note
from . import accepting, looking
from .catching_up import require_current
from .completing import Statement, conclude
from .fitting import fitted, require_name, take_in
from .held import released
from .ids import people, require_request
from .keys import first_keys, next_signing_path, next_tag_path, signing_path_of
from .restoring import restore
from .settings import Places, Settings, read_settings, write_settings
from .shipping import ship
from .site import Site, now
from .statuses import Asked, ReleaseStatus, RequestStatus, Status
from .working import Tell, work

WAIT = 30.0


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
        places = Places(Path(folder))
        try:
            settings = read_settings(places)
        except NoRegistry:
            settings = Settings(url, deadline_days)
        if url is not None and settings.url != url:
            raise InvalidInput(
                f"{places.folder} holds a registry on another database; open it, or "
                "make this one elsewhere"
            )
        site = Site.at(places, settings)
        with site.unless_it_fails():
            places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = first_keys(places.keys)
            site.checkpoints.begin()
            upgrade(site.store)
            _begin_ledger(site, key)
            write_settings(places, settings)  # last: now it is one
        return cls(site)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Self:
        """Return the registry in a folder."""
        places = Places(Path(folder))
        site = Site.at(places, read_settings(places))
        with site.unless_it_fails():
            require_newest(site.store)
            require_current(site)
        return cls(site)

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
            A folder with ``keys/vault.json`` and, on SQLite, ``expunge.db`` as they
            were when the backup was taken. A PostgreSQL database must have been put
            back already.
        tell
            Called with how many steps are done, of how many.
        """
        places = Places(Path(folder))
        site = Site.at(places, read_settings(places))
        with site.unless_it_fails():
            restore(site, Path(backup), tell or _silent)
        return cls(site)

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
        subjects: Sequence[object] | None = None,
    ) -> None:
        """Fit an estimator and take it in, with the rows of its people.

        Parameters
        ----------
        name
            Of the model; it stands in the public ledger.
        model
            An estimator of expunge, not fitted.
        X, y
            Training data.
        subjects
            Whose row each is; by default each row is a person, by its position.
        """
        require_name(name)
        with self._site.working(WAIT):
            if name in self.names():
                raise InvalidInput(
                    f"there is a model {name!r} already; give this one another name, "
                    "or say that it replaces the other"
                )
            take_in(self._site, name, fitted(model, X, y, subjects), WAIT)

    def refit(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any,
        subjects: Sequence[object] | None = None,
    ) -> None:
        """Fit an estimator in the place of a model, whose people are deleted.

        The parameters are those of ``fit``. Requests that wait are applied to it.
        """
        with self._site.working(WAIT):
            if name not in self.names():
                raise InvalidInput(f"there is no model {name!r} to replace; fit it")
            take_in(self._site, name, fitted(model, X, y, subjects), WAIT)

    def names(self) -> list[str]:
        """Return the names of all models."""
        with self._site.store.reading() as connection:
            return publications.names(connection)

    def accept(self, asked: Sequence[Asked]) -> tuple[RequestStatus, ...]:
        """Take in requests, all or none; on return they are on disk.

        A request that was sent before is not taken in again: its status is returned.
        Raises UnknownSubject if a person is in no model.
        """
        return accepting.accept(self._site, asked)

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
        self.accept([asked])

        def done() -> bool:
            return self.receipt(asked.request) is not None

        if not done():
            with self._site.working(wait, needless=done) as locked:
                failed = work(self._site, wait, _silent) if locked else {}
            if asked.request in failed:
                raise failed[asked.request]
        receipt = self.receipt(asked.request)
        assert receipt is not None
        return receipt

    def known(self, subjects: Iterable[object]) -> dict[str, tuple[str, ...]]:
        """Return for each person the models that hold them; none for strangers."""
        return accepting.known(self._site, people(subjects))

    def request(self, request: str) -> RequestStatus:
        """Return how far a request is."""
        return looking.request(self._site, request)

    def receipt(self, request: str) -> str | None:
        """Return the receipt of a request; None until it is completed."""
        require_request(request)
        with self._site.store.reading() as connection:
            text = requests.receipt(connection, request)
        if text is None:
            self.request(request)  # raises if there is none
        return text

    def status(self) -> Status:
        """Return the registry at one moment."""
        return looking.look(self._site)

    def log(self, start: int = 0) -> Iterator[Entry]:
        """Yield the ledger's entries from one on."""
        with self._site.store.reading() as connection:
            yield from chain.entries_from(connection, start)

    def export(self) -> bytes:
        """Return the whole ledger, as ``ledger.check_export`` reads it."""
        with self._site.store.reading() as connection:
            return chain.lines(connection)

    def public_pem(self) -> str:
        """Return all public keys of the ledger, oldest first."""
        with self._site.store.reading() as connection:
            return chain.ledger_in(connection).keys.to_pem()

    def release(self, name: str) -> Loaded:
        """Return the newest release of a model, as an estimator that predicts."""
        with self._site.store.reading() as connection:
            number = publications.number(connection, name)
            content = publications.release(connection, name, number).content
        return released(content)[0]

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
        self._site.journal.append([{"withdrawn": [name, number, now()]}])
        with self._site.store.writing() as connection:
            publications.withdraw(connection, name, number, now())

    def plan(self, name: str) -> PlanReport:
        """Return how many removals the contract of a model allows, run on its rows."""
        from ..plan import plan

        case = self.case(name)
        budget = self.release(name).budget
        if budget is None:
            raise InvalidInput(
                f"model {name!r} was fitted without a contract, so there is nothing to "
                "plan; fit it with a budget"
            )
        return plan(case.objective, case.rows, budget, case.mechanism)

    def record(self, name: str) -> Record:
        """Return the private record behind the newest release, for an auditor."""
        with self._site.working(WAIT):
            record: Record = self._site.held(name).model.record_
        return record

    def case(self, name: str) -> Case:
        """Return the removal of the first row of a model, to be put on trial. Private.

        The rows are those that are left, and the objective is as it is for them.
        """
        with self._site.working(WAIT):
            held = self._site.held(name)
            custody = held.holdings.custody
            nobody = np.array([], dtype=np.intp)
            fetch = held.holdings.fetch
            assert fetch is not None
            rows = fetch(nobody)
        kept = rows.total_weight / custody.state.anchor_weight
        first = np.array([0], dtype=np.intp)
        return Case(custody.state.objective.after(kept), rows, first, custody.mechanism)

    def rotate_signing_key(self) -> None:
        """Let a new key sign from now on; the old secret one is destroyed."""
        site = self._site
        with site.working(WAIT):
            work(site, WAIT, _silent)
            with site.store.reading() as connection:
                book = Appending(chain.ledger_in(connection))
            old = site.signing_key(book.ledger)
            new = signing_key(next_signing_path(site.places.keys))
            time = max(now(), book.ledger.time)
            rotation = KeyRotated(
                sequence=book.ledger.size, time=time, public=new.public.raw.hex()
            )
            book.append(sign(rotation, old))
            conclude(site, Statement(book, book.ledger.head(new, time)))
            _publish_keys(site)
            destroy(signing_path_of(site.places.keys, old.public))

    def rotate_tag_key(self) -> None:
        """Tag people under a new key from now on; old tags are still found."""
        with self._site.working(WAIT):
            work(self._site, WAIT, _silent)
            tag_key(next_tag_path(self._site.places.keys))


def _begin_ledger(site: Site, key: SigningKey) -> None:
    """Write down the first key of the ledger, unless that was done."""
    with site.store.writing() as connection:
        if not note(connection, chain.FIRST_KEY):
            write_note(connection, chain.FIRST_KEY, key.public.raw.hex())
    _publish_keys(site)


def _publish_keys(site: Site) -> None:
    """Write the public keys where whoever publishes them finds them."""
    with site.store.reading() as connection:
        pem = chain.ledger_in(connection).keys.to_pem()
    replace_file(site.places.public, pem.encode("ascii"), ANYONE)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
