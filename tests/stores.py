# SPDX-License-Identifier: Apache-2.0
"""Where a registry under test keeps its records: a file, or PostgreSQL."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

from expunge.registry import Registry
from expunge.registry.storage import (
    Store,
    create_tables,
    people_table,
    postgresql_engine,
    sqlite_engine,
)
from tests.postgres import Lender, Missing, Server, lent_database
from tests.registries import registry_at

STORES = ("sqlite", "postgresql")


def share_statements() -> None:
    """Compile a statement once for all registries of this process.

    SQLAlchemy does so once for each, which is a fifth of the time of a short test.
    """
    compiled = LRUCache[Any, Any](2000)
    Engine._compiled_cache = property(lambda self: compiled, lambda self, new: None)  # type: ignore[assignment]
    # What is compiled is found by its dialect, of which each engine has its own.
    DefaultDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


def without_postgres(reason: Missing) -> NoReturn:
    """Skip a test that needs PostgreSQL, except where it must run: there it fails."""
    if os.environ.get("CI") or os.environ.get("EXPUNGE_REQUIRE_POSTGRES") == "1":
        pytest.fail(str(reason), pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Lend a server: the one that TEST_DATABASE_URL names, or one of our own.

    Each process of a parallel run has its own. Its database ``postgres`` is not to be
    written to: ask for ``database_url``.
    """
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    try:
        server = Server(fast=True)
    except Missing as reason:
        without_postgres(reason)
    with server:
        yield server.url


@pytest.fixture(scope="session")
def empty_database(postgres_url: str) -> Iterator[Lender]:
    """Lend the lender of an empty PostgreSQL database."""
    with closing(Lender(postgres_url)) as lender:
        yield lender


@pytest.fixture
def database_url(empty_database: Lender) -> Iterator[str]:
    """Lend an empty PostgreSQL database to one test."""
    with empty_database.lend() as url:
        yield url


@pytest.fixture(params=STORES)
def registry_url(request: pytest.FixtureRequest) -> str | None:
    """Give each kind of store in turn: None for SQLite, else an empty database."""
    if request.param == "sqlite":
        return None
    # Asked for only here, so that tests on SQLite need no server.
    url: str = request.getfixturevalue("database_url")
    return url


@pytest.fixture(params=STORES)
def registry(
    request: pytest.FixtureRequest, tmp_path: Path, fitted: Path
) -> Iterator[Registry]:
    """Lend a registry with two models, on each kind of store in turn.

    It is a copy: only the first test of a process waits for the fits.
    """
    folder = tmp_path / "registry"
    with ExitStack() as stack:
        if request.param == "sqlite":
            shutil.copytree(fitted, folder)
        else:
            there, url, lender = request.getfixturevalue("fitted_on_postgres")
            copy = stack.enter_context(lender.lend())
            shutil.copytree(there, folder)
            settings = folder / "registry.json"
            settings.write_text(settings.read_text().replace(url, copy))
        yield stack.enter_context(Registry.open(folder))


@pytest.fixture(scope="session")
def fitted_on_postgres(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str, Lender]]:
    """Lend a registry as it is after its fits: folder, database, a lender of copies."""
    folder = tmp_path_factory.mktemp("fitted") / "registry"
    with lent_database(postgres_url) as url:
        registry_at(folder, url).close()
        with closing(Lender(postgres_url, template=url)) as lender:
            yield folder, url, lender


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lend the folder of a registry as it is after its fits, to copy."""
    folder = tmp_path_factory.mktemp("fitted") / "registry"
    registry_at(folder).close()
    return folder


@pytest.fixture
def sqlite_registry(tmp_path: Path, fitted: Path) -> Iterator[Registry]:
    """Lend a registry with two models on SQLite, which takes no fit.

    For tests of what does not depend on the store.
    """
    shutil.copytree(fitted, tmp_path / "registry")
    with Registry.open(tmp_path / "registry") as registry:
        yield registry


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lend the folder of a registry that forgot person 1, to copy and not to change."""
    folder = tmp_path_factory.mktemp("template") / "registry"
    with registry_at(folder) as registry:
        registry.forget(["person 1"])
    return folder


def store_at(folder: Path, url: str | None) -> Store:
    """Return the store that a registry in a folder has."""
    if url is None:
        return Store(sqlite_engine(folder / "expunge.db"))
    return Store(postgresql_engine(url))


@pytest.fixture
def empty(tmp_path: Path, registry_url: str | None) -> Iterator[Store]:
    """Lend a store without tables."""
    store = store_at(tmp_path, registry_url)
    yield store
    store.close()


@pytest.fixture
def store(empty: Store) -> Store:
    """Lend a store with its tables."""
    create_tables(empty)
    return empty


def rows_in(
    connection: Connection, model: str, *, tags: Sequence[str]
) -> list[people_table.PersonRows]:
    """Return the rows that a model holds under these tags, in their order."""
    found = people_table.find_tagged_rows(connection, tags)
    return [one for one in found if one.model == model]
