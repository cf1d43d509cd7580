# SPDX-License-Identifier: Apache-2.0
"""A model that was removed: nothing of its rows is left, and it does not come back."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expunge.exceptions import InvalidInput, NeedsRestore
from expunge.ledger import ModelRemoved, check_receipt
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import (
    by_name,
    count_rows,
    crash_at,
    crash_with_a_statement_in_the_journal_alone,
    data,
    data_without,
    dump_of,
    empty_releases,
    estimator,
    has_keys,
    open_state,
    put_back,
    registry_at,
    releases_of,
    require_consistent,
)

ONE = "a" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a registry that was copied after one request."""
    folder = tmp_path / "registry"
    with registry_at(folder) as registry:
        registry.forget(["person 1"])
    shutil.copytree(folder, tmp_path / "backup")
    return folder


def require_removed(registry: Registry, folder: Path) -> None:
    """See that of the model "half" nothing is left but certificates."""
    assert registry.models.names() == ["all"]
    assert [model.name for model in registry.status().models] == ["all"]
    held = registry.requests.find_models(["person 3", "person 50"])
    assert held == {"person 3": ("all",), "person 50": ("all",)}
    files = [path.name for path in (folder / "checkpoints").iterdir()]
    assert not [name for name in files if "half" in name]
    assert not has_keys(registry, "half") and not count_rows(registry, "half")
    for release in releases_of(registry, "half"):
        assert not release.has_content and release.superseded is not None
    removals = [e for e in registry.ledger.entries() if isinstance(e, ModelRemoved)]
    assert [entry.model for entry in removals] == ["half"]
    require_consistent(registry)


class TestRemoving:
    def test_leaves_certificates_and_an_entry(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            last = registry.model("half").certificate_.digest()
            registry.models.remove("half")
            require_removed(registry, folder)
            *_, entry = registry.ledger.entries()
            assert isinstance(entry, ModelRemoved) and entry.certificate == last
            registry.forget(["person 4"])
        with Registry.open(folder) as registry:
            require_removed(registry, folder)

    def test_on_the_server_too(self, tmp_path: Path, database_url: str) -> None:
        with registry_at(tmp_path / "registry", database_url) as registry:
            registry.models.remove("half")
            require_removed(registry, tmp_path / "registry")

    def test_rows_cannot_be_read_with_the_files_of_before(self, folder: Path) -> None:
        """The key is gone, so an old copy of the checkpoint is noise."""
        with Registry.open(folder) as registry:
            (file,) = (folder / "checkpoints").glob("half.*")
            copy = file.read_bytes()
            registry.models.remove("half")
        file.write_bytes(copy)
        with pytest.raises(NeedsRestore, match="state of model 'half' is destroyed"):
            open_state(folder, file.name)

    @pytest.mark.parametrize(
        "act",
        [
            lambda one: one.model("half"),
            lambda one: one.models.remove("half"),
            lambda one: one.models.reanchor("half"),
            lambda one: one.models.record("half"),
            lambda one: one.models.case("half"),
            lambda one: one.models.ship("half", "x.safetensors"),
            lambda one: one.models.withdraw("half", 1),
            lambda one: one.models.refit("half", estimator(), **by_name(data())),
            lambda one: one.fit("half", estimator(), **by_name(data())),
        ],
    )
    def test_is_for_good(self, folder: Path, act: Callable[[Registry], Any]) -> None:
        with Registry.open(folder) as registry:
            registry.models.remove("half")
            before = registry.ledger.export()
            with pytest.raises(InvalidInput, match=r"removed|never shipped"):
                act(registry)
            assert registry.ledger.export() == before

    def test_unknown_models_are_refused(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            with pytest.raises(InvalidInput, match="'x'; the models are all, half"):
                registry.models.remove("x")

    def test_waiting_requests_are_applied_to_the_rest(self, folder: Path) -> None:
        X, y, owners = data_without("person 1")
        with Registry.open(folder) as registry:
            registry.models.refit(
                "all", estimator(), X[60:], y[60:], subjects=owners[60:]
            )
            asked = [Request(("person 3",), ONE), Request(("person 50",))]
            registry.requests.accept(asked)
            registry.models.remove("half")  # where person 3 was, and nowhere else
            registry.requests.apply()
            receipt = registry.requests.receipt(ONE) or ""
            verdict = check_receipt(receipt, registry.keys.public_pem())
            assert verdict.valid and "Models changed: none" in verdict.says
            assert registry.requests.find_forgotten(["person 3", "person 4"]) == (
                "person 3",
            )
            require_consistent(registry)

    def test_what_left_is_listed_until_it_is_withdrawn(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            left = registry.models.ship("half", tmp_path / "half.safetensors")
            registry.models.remove("half")
            (out,) = registry.status().outstanding
            assert (out.model, out.number) == ("half", left.number)
            registry.models.withdraw("half", left.number)
            assert registry.status().outstanding == ()
            require_removed(registry, folder)

    def test_a_model_whose_budget_was_spent(self, tmp_path: Path, folder: Path) -> None:
        """Restored, it has an empty checkpoint and no release."""
        with Registry.open(folder) as registry:
            empty_releases(registry, "half")
            registry.models.remove("half")
            require_removed(registry, folder)


class TestCrashes:
    @pytest.mark.parametrize(
        "point",
        [
            "erasing",
            "destroying keys",
            "deleting files of destroyed keys",
            "preparing a statement",
            "stating",
        ],
    )
    def test_the_next_process_finishes_it(self, folder: Path, point: str) -> None:
        with Registry.open(folder) as registry, crash_at(point):
            registry.models.remove("half")
        with Registry.open(folder) as registry:
            assert registry.models.names() == ["all"]
            registry.forget(["person 4"])
            require_removed(registry, folder)

    def test_between_journal_and_store(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            with crash_with_a_statement_in_the_journal_alone():
                registry.models.remove("half")
        with Registry.open(folder) as registry:
            registry.forget(["person 4"])
            require_removed(registry, folder)


class TestBackups:
    def test_from_before_bring_nothing_back(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])  # a release of "half" that is lost too
            registry.models.remove("half")
            entries = registry.ledger.export()
        for path in folder.glob("expunge.db*"):
            path.unlink()
        with Registry.restore(folder, tmp_path / "backup") as registry:
            require_removed(registry, folder)
            assert registry.ledger.export().startswith(entries)
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            registry.forget(["person 4"])

    def test_from_before_the_fit_are_good_if_it_was_removed(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            rest = by_name(data_without("person 1"))
            registry.fit("third", estimator(), **rest)
            registry.forget(["person 2"])
            registry.models.remove("third")
        with Registry.restore(folder, tmp_path / "backup") as registry:
            assert registry.models.names() == ["all", "half"]
            with pytest.raises(InvalidInput, match="was removed"):
                registry.model("third")
            require_consistent(registry)
        (folder / "journal").unlink()
        rebuild_journal(folder)  # which needs every certificate
        with Registry.open(folder) as registry:
            registry.forget(["person 4"])
            require_consistent(registry)

    def test_of_the_database_alone_are_refused(
        self, folder: Path, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            dump = dump_of(registry)
            registry.models.remove("half")
            put_back(registry, dump)
            with pytest.raises(NeedsRestore, match="expunge restore BACKUP"):
                registry.status()
        # With its keys, the journal alone knows.
        shutil.copy(tmp_path / "backup/keys/sealing", folder / "keys/sealing")
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            Registry.open(folder)
        with Registry.restore(folder, tmp_path / "backup") as registry:
            require_removed(registry, folder)

    def test_with_a_rebuilt_journal(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.models.remove("half")
        (folder / "journal").unlink()
        rebuild_journal(folder)
        with Registry.open(folder) as registry:
            require_removed(registry, folder)
        with Registry.restore(folder, tmp_path / "backup") as registry:
            require_removed(registry, folder)
