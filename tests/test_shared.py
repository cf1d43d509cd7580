# SPDX-License-Identifier: Apache-2.0
"""Databases and folders that are not this registry's: named, before harm is done."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from expunge.exceptions import NeedsRestore, StoreFailed
from expunge.registry import Registry
from tests.postgres import connect, lent_database
from tests.registries import by_name, data_without, estimator, require_consistent

SHARED = "two registries share a folder"
COMING_BACK = {"open": Registry.open, "create": Registry.create}


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1."""
    return Path(shutil.copytree(template, tmp_path / "registry"))


def made(folder: Path, url: str | None = None) -> Path:
    """Return a registry with one model, made just now."""
    with Registry.create(folder, url=url) as registry:
        registry.fit("all", estimator(), **by_name(data_without()))
    return folder


def share(folder: Path, other: Path) -> None:
    """Let a registry have the checkpoints of another one by a link."""
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").symlink_to(other / "checkpoints")


class TestCheckpoints:
    @pytest.mark.parametrize("how", COMING_BACK)
    def test_of_two_registries(self, folder: Path, tmp_path: Path, how: str) -> None:
        other = made(tmp_path / "other")
        share(other, folder)
        before = {*(folder / "checkpoints").iterdir()}
        with pytest.raises(StoreFailed, match=SHARED):
            COMING_BACK[how](other)
        assert {*(folder / "checkpoints").iterdir()} == before
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
            require_consistent(registry)

    def test_of_one_that_is_made_upon_another(
        self, folder: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir(mode=0o700)
        (tmp_path / "other" / "checkpoints").symlink_to(folder / "checkpoints")
        with pytest.raises(StoreFailed, match=SHARED):
            Registry.create(tmp_path / "other")

    def test_from_before_they_said_whose_they_are(self, folder: Path) -> None:
        owner = folder / "checkpoints" / "owner"
        before = owner.read_text()
        owner.unlink()
        with Registry.open(folder) as registry:
            assert not owner.exists()  # who opens writes nothing
            registry.forget(["person 2"])
        assert owner.read_text() == before
        Registry.open(folder).close()

    def test_that_another_took_meanwhile(self, folder: Path, tmp_path: Path) -> None:
        """Its files are left alone: they hold the only private state of a model."""
        other = made(tmp_path / "other")
        (folder / "checkpoints" / "owner").unlink()
        with Registry.open(folder) as late:
            for file in (folder / "checkpoints").iterdir():
                shutil.copy(file, other / "checkpoints")
            share(folder, other)
            there = {*(other / "checkpoints").iterdir()}
            with pytest.raises(StoreFailed, match=SHARED):
                late.forget(["person 2"])
            assert {*(other / "checkpoints").iterdir()} == there
        with Registry.open(other) as registry:
            registry.forget(["person 2"])
            require_consistent(registry)


class TestPostgreSQL:
    def test_database_of_another_registry(
        self, tmp_path: Path, postgres_url: str
    ) -> None:
        with (
            lent_database(postgres_url) as first,
            lent_database(postgres_url) as second,
        ):
            one, other = made(tmp_path / "one", first), made(tmp_path / "two", second)
            settings = json.loads((one / "registry.json").read_text())
            settings["url"] = second
            (one / "registry.json").write_text(json.dumps(settings))
            with pytest.raises(StoreFailed, match="names the database of another"):
                Registry.open(one)
            with Registry.open(other) as registry:
                registry.forget(["person 2"])
                require_consistent(registry)

    @pytest.mark.parametrize("how", [*COMING_BACK, "restore"])
    def test_database_that_is_empty(
        self, tmp_path: Path, database_url: str, how: str
    ) -> None:
        calls: dict[str, Callable[[Path], Registry]] = COMING_BACK | {
            "restore": lambda folder: Registry.restore(folder, tmp_path / "backup")
        }
        folder = made(tmp_path / "registry", database_url)
        shutil.copytree(folder, tmp_path / "backup")
        with connect(database_url) as database:
            database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        url = make_url(database_url)
        with pytest.raises(NeedsRestore) as refusal:
            calls[how](folder)
        said = str(refusal.value)
        assert f"the PostgreSQL database {url.database} on {url.host} is empty" in said
        assert "check that the URL in registry.json is right" in said
        assert url.password is None or url.password not in said
        with connect(database_url) as database:
            tables = database.execute(
                "SELECT * FROM pg_tables WHERE schemaname='public'"
            )
            assert tables.fetchall() == []
