# SPDX-License-Identifier: Apache-2.0
"""Registries and backups of older versions are brought up to date."""

import shutil
from pathlib import Path

import pytest

from expunge.exceptions import OlderSchema
from expunge.registry import Registry
from expunge.rights import Identifier
from tests.registries import (
    VERSIONS,
    make_older,
    registry_at,
    require_consistent,
    upgrade,
)

ADA = Identifier("email", "ada@example.org")


@pytest.mark.parametrize("version", VERSIONS)
def test_registry(tmp_path: Path, registry_url: str | None, version: str) -> None:
    folder = tmp_path / "registry"
    with registry_at(folder, registry_url) as registry:
        registry.forget(["person 3"])
        make_older(registry, version)
    with pytest.raises(OlderSchema, match=f"schema {version} .* run expunge init"):
        Registry.open(folder)
    with Registry.create(folder, url=registry_url) as registry:
        registry.aliases.add([("person 4", ADA)])
        registry.forget(registry.aliases.resolve(["email:ada@example.org"]))
        assert registry.aliases.count() == 0
        require_consistent(registry)


@pytest.mark.parametrize("version", VERSIONS)
def test_backup(tmp_path: Path, version: str) -> None:
    folder, backup = tmp_path / "registry", tmp_path / "backup"
    with registry_at(folder) as registry:
        make_older(registry, version)
        shutil.copytree(folder, backup)
        upgrade(registry)
        registry.aliases.add([("person 3", ADA)])
        registry.forget(["person 3"])
    with Registry.restore(folder, backup) as registry:
        assert registry.requests.find_models(["person 3"]) == {"person 3": ()}
        assert registry.aliases.count() == 0
        require_consistent(registry)
