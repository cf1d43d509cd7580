# SPDX-License-Identifier: Apache-2.0
"""The drills of docs/operations.md: a part is lost, and its row is followed."""

import shutil
from pathlib import Path

import pytest

from expunge.cli.output import STORE_FAILED
from expunge.exceptions import ExpungeError, NeedsRestore, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry import Registry
from tests.calling import call
from tests.registries import lose_database, registry_at, require_consistent

ONE = "a" * 32
PAGE = Path(__file__).parents[1] / "docs" / "operations.md"


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a registry that forgot person 2 since its backup, and has a head file."""
    folder = Path(shutil.copytree(template, tmp_path / "registry"))
    (tmp_path / "heads").mkdir()
    Registry.create(folder, head_file=tmp_path / "heads").close()
    shutil.copytree(folder, tmp_path / "backup")
    with Registry.open(folder) as registry:
        registry.forget(["person 2"], ONE)
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder))
    return folder


def require_refused(folder: Path, *kinds: type[ExpungeError]) -> None:
    with pytest.raises(kinds):
        Registry.open(folder).close()
    assert call("status").code == STORE_FAILED


def require_whole(folder: Path) -> None:
    """See that nobody is back, and that the next request is answered."""
    with Registry.open(folder) as registry:
        assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
        assert registry.requests.receipt(ONE)
        registry.forget(["person 3"])
        require_consistent(registry)


@pytest.mark.parametrize("part", ["database", "keys/sealing", "its end", "its head"])
def test_the_database_and_the_keys_of_rows(folder: Path, part: str) -> None:
    keys = folder / "keys" / "sealing"
    if part == "database":
        lose_database(folder)
    elif part == "keys/sealing":
        keys.unlink()
    else:
        keys.write_bytes(keys.read_bytes()[: 0 if part == "its head" else -32])
    require_refused(folder, NeedsRestore, StoreFailed, UnusableKey)
    assert call("restore", str(folder.with_name("backup")), "--yes").code == 0
    require_whole(folder)


@pytest.mark.parametrize("is_open", [False, True])
def test_keys_of_rows_of_another_registry(
    folder: Path, tmp_path: Path, is_open: bool
) -> None:
    """Its keys have the same numbers: none is destroyed, and nothing is changed."""
    with registry_at(tmp_path / "other") as other:
        for person in range(10):
            other.forget([f"person {person}"])
    keys = folder / "keys" / "sealing"
    own, others = keys.read_bytes(), (tmp_path / "other/keys/sealing").read_bytes()
    if is_open:
        with Registry.open(folder) as registry:
            registry.forget(["person 4"])
            own = keys.read_bytes()
            keys.write_bytes(others)
            for _ in range(2):
                with pytest.raises(StoreFailed, match="of another registry"):
                    registry.forget(["person 5"])
    else:
        keys.write_bytes(others)
        require_refused(folder, StoreFailed)
    journal = (folder / "journal").read_bytes()
    backup = str(folder.with_name("backup"))
    assert call("restore", backup, "--yes").code == STORE_FAILED
    assert keys.read_bytes() == others and (folder / "journal").read_bytes() == journal
    keys.write_bytes(own)
    require_whole(folder)


@pytest.mark.parametrize("part", ["keys/signing-0.pem", "keys/tags-0"])
def test_keys_that_sign_and_find(folder: Path, part: str) -> None:
    (folder / part).unlink()
    with pytest.raises(ExpungeError, match="put it back from its backup"):
        with Registry.open(folder) as registry:
            registry.forget(["person 5"])
    shutil.copy(folder.with_name("copy") / part, folder / part)
    require_whole(folder)


def test_the_journal_with_a_copy(folder: Path) -> None:
    (folder / "journal").unlink()
    require_refused(folder, StoreFailed)
    shutil.copy(folder.with_name("copy") / "journal", folder / "journal")
    require_whole(folder)


def test_the_journal_without_one(folder: Path) -> None:
    (folder / "journal").unlink()
    require_refused(folder, StoreFailed)
    said = call("restore", "--journal", "--json")
    assert said.code == 0 and said.json["n_unnamed"] == 2
    backup = str(folder.with_name("backup"))
    assert call("restore", backup, "--yes").code == STORE_FAILED
    require_whole(folder)


def test_the_mark_beside_the_journal(folder: Path) -> None:
    (folder / "journal.mark").unlink()
    require_whole(folder)
    assert (folder / "journal.mark").exists()


def test_the_head_file(folder: Path) -> None:
    (head,) = folder.with_name("heads").iterdir()
    head.unlink()
    require_refused(folder, StoreFailed)
    assert call("restore", "--accept-mark", "--yes").code == 0
    require_whole(folder)


@pytest.mark.parametrize("has_journal", [True, False])
def test_the_whole_folder(folder: Path, has_journal: bool) -> None:
    backup = folder.with_name("backup")
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    require_refused(folder, NeedsRestore)
    if has_journal:
        shutil.copy(folder.with_name("copy") / "journal", folder / "journal")
        assert call("restore", str(backup), "--yes").code == 0
    else:
        assert call("restore", "--accept-mark", "--yes").code == 0
        assert call("forget", "person 2", "--request", ONE).code == 0
    require_whole(folder)


def test_the_page_has_a_row_for_each() -> None:
    """And for nothing that nobody loses here."""
    section = PAGE.read_text().partition("## Drills")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    parts = [row.split("|")[1] for row in rows]
    assert [part.split("`")[1] if "`" in part else part.strip() for part in parts] == [
        "the SQLite file, or the PostgreSQL database",
        "keys/sealing",
        "keys/signing-*",
        "keys/tags-*",
        "journal",
        "journal.mark",
        "the head file",
        "the whole folder, put back by a snapshot",
    ]
