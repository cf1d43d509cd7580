# SPDX-License-Identifier: Apache-2.0
"""Whose files are, who may change them, and what is said to whoever may not."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from expunge.registry import Registry
from tests.registries import by_name, data_without, estimator, require_consistent
from tests.users import NOBODY, as_nobody, give, needs_root, owners, reachable_copy


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1."""
    return Path(shutil.copytree(template, tmp_path / "registry"))


@pytest.fixture
def theirs(template: Path) -> Iterator[Path]:
    """Lend such a registry of a user without rights."""
    with reachable_copy(template) as folder:
        give(folder, NOBODY)
        yield folder


def changes(registry: Registry, folder: Path) -> None:
    """Do whatever makes or replaces files."""
    registry.forget(["person 2"])
    registry.rotate_signing_key()
    registry.rotate_tag_key()
    rest = data_without("person 1", "person 2")
    registry.fit("third", estimator(), **by_name(rest))
    registry.ship("third", folder / "model.safetensors")
    registry.forget(["person 3"])


@needs_root
class TestRoot:
    """Who runs one command as root does not shut the owner out."""

    def test_leaves_every_file_to_the_owner_of_the_folder(self, theirs: Path) -> None:
        for name in ("keys/vault.lock", "worker.lock"):
            (theirs / name).unlink()  # made again
        with Registry.open(theirs) as registry:
            changes(registry, theirs)
            assert (theirs / "expunge.db-wal").exists()
            assert (theirs / "expunge.db-shm").exists()
            assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        with as_nobody(), Registry.open(theirs) as registry:
            registry.forget(["person 4"])
            require_consistent(registry)

    def test_restores_for_the_owner(self, theirs: Path) -> None:
        backup = Path(shutil.copytree(theirs, theirs.with_name("backup")))
        with Registry.open(theirs) as registry:
            registry.forget(["person 2"])
        assert {*owners(backup).values()} == {(0, 0)}  # a copy that root made
        with Registry.restore(theirs, backup):
            pass
        assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        with as_nobody(), Registry.open(theirs) as registry:
            assert registry.known(["person 2"]) == {"person 2": ()}

    def test_makes_a_registry_in_the_folder_of_another(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o700)
        os.chown(tmp_path, NOBODY, NOBODY)
        with Registry.create(tmp_path) as registry:
            registry.fit("all", estimator(), **by_name(data_without()))
        found = owners(tmp_path)
        assert {"keys", "checkpoints", "registry.json", "journal"} <= {*found}
        assert {*found.values()} == {(NOBODY, NOBODY)}

    def test_keeps_what_is_root_s_own(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        assert {*owners(folder).values()} == {(0, 0)}
