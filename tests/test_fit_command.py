# SPDX-License-Identifier: Apache-2.0
"""``expunge fit``: whose rows a table holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from expunge.cli.exits import WRONG_INPUT
from tests.calling import call, copied, make_registry, whole


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture
def table(made: Path) -> Path:
    """Return the table that its models were fitted to."""
    return made.with_name("people.csv")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


@pytest.fixture
def unchanged(folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether the registry is as it was."""
    before = whole(folder)
    return lambda: whole(folder) == before


class TestPeople:
    @pytest.mark.parametrize(
        ("one", "said"),
        [
            ("", "it is empty"),
            ("nan", "it reads like a missing value"),
            ("1003.0", "the id is written as a float"),
        ],
    )
    def test_row_of_nobody_is_refused_by_its_line(
        self, table: Path, unchanged: Callable[[], bool], one: str, said: str
    ) -> None:
        lines = table.read_text().splitlines()
        lines[3] = ",".join([one, *lines[3].split(",")[1:]])
        Path("holes.csv").write_text("\n".join(lines) + "\n")
        about = ("holes.csv", "--target", "outcome", "--subject", "patient")
        done = call("fit", "new", *about)
        assert done.code == WRONG_INPUT
        assert f"column 'patient', line 4: {said}" in done.err
        assert unchanged()
