# SPDX-License-Identifier: Apache-2.0
"""Registries to test with: a small one, its people, and what must hold of it."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import pytest
from sqlalchemy import Connection, delete, insert, select

from expunge import Budget, LogisticRegression
from expunge.ledger import Receipt, RequestCompleted, check_export, check_receipt
from expunge.linear_model.snapshots import private_model
from expunge.private_model.model import PrivateModel
from expunge.registry import Registry, Request, context
from expunge.registry.answering.worker import apply_waiting
from expunge.registry.context import Context, Paths, read_settings
from expunge.registry.storage import Store, people_table
from expunge.registry.storage.tables import schema
from expunge.rights.standing import Right

# Wide enough that answers fit without a look at the rows: the anchor stays.
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=10.0)
N_PEOPLE, N_FEATURES = 60, 4
Dump = dict[str, list[dict[str, Any]]]
A_REQUEST = "0123456789abcdef0123456789abcdef"


def data(n_people: int = N_PEOPLE) -> tuple[Any, Any, list[str]]:
    """Return features, labels and whose each row is: every person has two rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2 * n_people, N_FEATURES))
    y = (X[:, 0] + rng.standard_normal(len(X)) > 0).astype(int)
    return X, y, [f"person {row // 2}" for row in range(len(X))]


def data_without(*names: str) -> tuple[Any, Any, list[str]]:
    """Return the data of everybody but these."""
    X, y, owners = data()
    stay = [row for row, owner in enumerate(owners) if owner not in names]
    return X[stay], y[stay], [owners[row] for row in stay]


def by_name(rows: tuple[Any, Any, list[str]]) -> dict[str, Any]:
    """Return such data under the names that ``Registry.fit`` has for them."""
    return dict(zip(("X", "y", "subjects"), rows, strict=True))


def estimator(**changes: Any) -> LogisticRegression:
    """Return an estimator under the usual contract."""
    settings: dict[str, Any] = {"alpha": 0.05, "budget": BUDGET} | changes
    return LogisticRegression(**settings)


def registry_at(folder: Path, url: str | None = None) -> Registry:
    """Return a registry with two models: one of everybody, one of the first half."""
    X, y, owners = data()
    half = len(X) // 2
    registry = Registry.create(folder, url=url)
    registry.fit("all", estimator(), X, y, subjects=owners)
    registry.fit(
        "half", estimator(alpha=0.1), X[:half], y[:half], subjects=owners[:half]
    )
    return registry


def private_model_of(registry: Registry, name: str) -> PrivateModel:
    """Return the private state of a model."""
    with registry._context.hold_lock(30.0):
        return registry._context.load_model(name).private


def work_without_lock(registry: Registry) -> None:
    """Apply what waits, as a process does that believes it holds the lock."""
    with registry._context.take_turns():
        apply_waiting(registry._context, 5.0, on_progress=lambda done, total: None)


def retrained(names: Sequence[str], *, half: bool = False) -> Any:
    """Return the noise-free parameters that a fit without these people has."""
    X, y, owners = data()
    size = len(X) // (2 if half else 1)
    stay = [row for row in range(size) if owners[row] not in set(names)]
    model = estimator(alpha=0.1 if half else 0.05, budget=None)
    model.fit(X[stay], y[stay])
    return private_model(model).answer.draft.theta


def ask(registry: Registry, right: Right, *names: str, **details: Any) -> Receipt:
    """Send a request, have it applied, and return the receipt."""
    asked = Request(names, right=right, **details)
    registry.requests.accept([asked])
    registry.requests.apply()
    return receipt_of(registry, asked.request)


def hold(registry: Registry, *names: str, until: str) -> Receipt:
    """Have people's rows held until a day, and return the receipt."""
    return ask(registry, "hold", *names, reason="legal-claims", until=until)


def receipt_of(registry: Registry, request: str) -> Receipt:
    """Return a receipt that stands."""
    text = registry.requests.receipt(request)
    assert text is not None
    verdict = check_receipt(text, registry.keys.public_pem())
    assert verdict.stands, verdict.says
    return Receipt.from_json(text)


def require_retrained(registry: Registry, *names: str) -> None:
    """See that both models are as if they had been fitted without these people."""
    for name in ("all", "half"):
        model = private_model_of(registry, name)
        gap = model.answer.draft.theta - retrained(names, half=name == "half")
        assert np.linalg.norm(gap) <= model.answer.radius.value


def today() -> date:
    """Return the day; it is not about to end, so that a test does not meet midnight."""
    while (now := datetime.now(UTC)).time() >= time(23, 59):
        sleep(1.0)
    return now.date()


def set_clock(patch: pytest.MonkeyPatch, day: date) -> None:
    """Let it be noon of a day for all registries."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    patch.setattr(context, "time_ns", lambda: round(noon.timestamp()) * 10**9)


class Backup(NamedTuple):
    """A backup of a registry, on either store."""

    folder: Path
    copy: Path
    dump: Dump
    on_sqlite: bool

    def restore(self) -> Registry:
        """Put the registry back, as an operator does who lost the database."""
        if self.on_sqlite:
            for path in self.folder.glob("expunge.db*"):
                path.unlink()
        else:
            settings = read_settings(Paths(self.folder))
            with closing(Context.in_folder(Paths(self.folder), settings)) as opened:
                put_back(opened.store, self.dump)
        return Registry.restore(self.folder, self.copy)


def back_up(registry: Registry, to: Path) -> Backup:
    """Take a backup of a registry that nobody is using."""
    found = registry._context
    folder = found.paths.folder
    with found.hold_lock(30.0):
        found.store.erase_deleted(30.0)  # so that no log is left to copy
    copy = Path(shutil.copytree(folder, to))
    return Backup(folder, copy, dump_of(found.store), found.store.dialect == "sqlite")


def rows_in(
    connection: Connection, model: str, *, tags: Sequence[str]
) -> list[people_table.SealedRows]:
    """Return the sealed rows that a model holds under these tags, in their order."""
    found = people_table.find_tagged_rows(connection, tags)
    return people_table.sort_rows(one for name, one in found if name == model)


def dump_of(store: Store) -> Dump:
    """Return all lines of all tables in order, as the backup of a database has them."""
    with store.read() as connection:
        return {
            table.name: [
                dict(line)
                for line in connection.execute(
                    select(table).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for table in schema.sorted_tables
        }


def put_back(store: Store, dump: Dump) -> None:
    """Put the tables of a database back as they were."""
    with store.write() as connection:
        for table in reversed(schema.sorted_tables):
            connection.execute(delete(table))
        for table in schema.sorted_tables:
            if dump[table.name]:
                connection.execute(insert(table), dump[table.name])


def require_consistent(registry: Registry) -> None:
    """See that the ledger stands, and that each completed request has its receipt."""
    pem = registry.keys.public_pem()
    verdict = check_export(registry.ledger.export(), pem)
    assert verdict.stands, verdict.says
    done = [
        entry
        for entry in registry.ledger.entries()
        if isinstance(entry, RequestCompleted)
    ]
    assert len({entry.request for entry in done}) == len(done)
    for entry in done:
        receipt = registry.requests.receipt(entry.request)
        assert receipt is not None
        assert check_receipt(receipt, pem).stands
    assert registry.status().n_completed == len(done)
