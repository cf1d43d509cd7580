# SPDX-License-Identifier: Apache-2.0
"""Registries to test with: a small one, its people, and what must hold of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select

from expunge import Budget, LogisticRegression
from expunge.ledger import RequestCompleted, check_export, check_receipt
from expunge.linear_model.snapshots import private_model
from expunge.private_model.model import PrivateModel
from expunge.registry import Registry
from expunge.registry.storage import Store, people_table
from expunge.registry.storage.tables import schema
from expunge.registry.worker import apply_waiting

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
