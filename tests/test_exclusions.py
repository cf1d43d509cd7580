# SPDX-License-Identifier: Apache-2.0
"""Exclusions that leave the registry: a table elsewhere is checked against them."""

from pathlib import Path

import pytest

from expunge.cli.output import DONE, NOT_VALID, WRONG_INPUT
from expunge.registry import Registry, Request
from tests.calling import call, copied
from tests.registries import registry_at


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a registry that forgot person 1 and restricts person 2."""
    del template
    registry_at(tmp_path / "made").close()
    folder = copied(tmp_path / "made", tmp_path, monkeypatch)
    with Registry.open(folder) as registry:
        registry.forget(["person 1"])
        registry.requests.submit([Request(("person 2",), right="restrict")])
    return folder


def write_table(*people: str) -> Path:
    path = Path("table.csv")
    path.write_text("who,x\n" + "".join(f"{one},1\n" for one in people))
    return path


def test_a_table_is_checked_with_and_without_the_registry(folder: Path) -> None:
    bad = write_table("person 3", "person 1", "Person  2", "person 1")
    done = call("exclusions", "--to", "kept.json")
    assert done.code == DONE and "keep it secret" in done.out
    assert Path("kept.json").stat().st_mode & 0o777 == 0o600
    text = Path("kept.json").read_text()
    assert "person" not in text.replace('"kind"', "")
    for more in ((), ("--exclusions", "kept.json", "-r", "nowhere")):
        done = call("check", bad, "--subject", "who", *more)
        assert done.code == NOT_VALID
        assert "2 people who must be in no fit: rows 1, 2, 3, counted" in done.err
        assert "person 1" not in done.err
        assert call("check", bad, "--subject", "who", "--json", *more).code == NOT_VALID
        exact = call("check", bad, "--subject", "who", "--exact", *more)
        assert "1 person who must be in no fit: rows 1, 3" in exact.err
        good = write_table("person 3", "person 4")
        done = call("check", good, "--subject", "who", *more)
        assert (done.code, done.out) == (
            DONE,
            "table.csv holds nobody who is kept out\n",
        )
        write_table("person 3", "person 1", "Person  2", "person 1")


def test_people_come_back_and_lists_count(folder: Path) -> None:
    table = write_table("person 1", "ada@example.org", "person 9")
    Path("20260312_1_Email.csv").write_text(
        "ID,Hash\nAb3dEf7hIj00,fzwJvkdrLpmQCvPp0FC9bdNfVGOgxEvCYBnAJqJ6MkM=\n"
    )
    with Registry.open(folder) as registry:
        registry.requests.readmit(["person 1"])
    assert call("check", table, "--subject", "who").code == DONE
    from expunge.rights.drop import drop_hash

    hashed = drop_hash("ada@example.org")
    Path("20260312_1_Email.csv").write_text(f"ID,Hash\nAb3dEf7hIj00,{hashed}\n")
    assert call("drop", "match", "20260312_1_Email.csv", "--yes").code == DONE
    call("exclusions", "--to", "kept.json")
    for more in ((), ("--exclusions", "kept.json")):
        done = call("check", table, "--subject", "who", *more)
        assert done.code == NOT_VALID and "rows 1, counted" in done.err
        assert "2 people have bare ids" in done.err


def test_another_file_is_refused(folder: Path) -> None:
    table = write_table("person 3")
    for text in ("", "{}", "[]", '{"kind": "exclusions", "version": 2}'):
        Path("kept.json").write_text(text)
        done = call("check", table, "--subject", "who", "--exclusions", "kept.json")
        assert done.code == WRONG_INPUT and "no file of exclusions" in done.err
