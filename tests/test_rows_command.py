# SPDX-License-Identifier: Apache-2.0
"""``expunge add`` and ``rectify``: lines that cannot be taken in are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from expunge.cli.common import DONE, WRONG_INPUT
from tests.calling import call, whole

HEADER = "person,age,plan,bought"
COLUMNS = ("--target", "bought", "--schema", "schema.json")
SUBJECT = ("--subject", "person")


def write_rows(path: str, people: range, plans: tuple[str, ...]) -> None:
    """Write a row for each person, with plans and classes in turn."""
    rows = (
        f"p{one},{20 + one % 7},{plans[one % len(plans)]},{('no', 'yes')[one % 2]}"
        for one in people
    )
    Path(path).write_text("\n".join([HEADER, *rows]) + "\n")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a registry with one model, of which one person left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXPUNGE_REGISTRY", raising=False)
    write_rows("rows.csv", range(40), ("basic", "basic", "pro"))
    assert call("init").code == DONE
    fit = ("fit", "sales", "rows.csv", "--target", "bought", *SUBJECT, "--no-trial")
    more = ("--sigma", "0.5", "--write-schema", "schema.json")
    assert call(*fit, *more).code == DONE
    assert call("forget", "p3").code == DONE
    return tmp_path / "expunge-registry"


@pytest.fixture
def unchanged(registry: Path) -> Callable[[], bool]:
    """Return a function that tells whether the registry is as it was."""
    before = whole(registry)
    return lambda: whole(registry) == before


def test_rows_are_added(registry: Path) -> None:
    write_rows("more.csv", range(50, 55), ("pro",))
    done = call("add", "sales", "more.csv", *COLUMNS, *SUBJECT)
    assert done.code == DONE
    assert done.out == "5 rows added to sales, which has release 3 now\n"


def test_lines_of_forgotten_people_are_named(unchanged: Callable[[], bool]) -> None:
    add = ("add", "sales", "rows.csv", *COLUMNS, *SUBJECT)
    done = call(*add)
    assert done.code == WRONG_INPUT
    assert "rows.csv, line 5: rows of 1 person who were forgotten" in done.err
    assert "--without-forgotten" in done.err
    for words in ("counted from 0", "without_forgotten", "requests.readmit", "p3"):
        assert words not in done.err
    assert unchanged()
    done = call(*add, "--without-forgotten")
    assert done.code == DONE
    assert "39 rows added" in done.out


def test_lines_of_an_unseen_category_are_named(unchanged: Callable[[], bool]) -> None:
    write_rows("odd.csv", range(3, 9), ("basic", "pro", "gold"))
    write_rows("new.csv", range(50, 55), ("gold", "basic"))
    # Places are those in the file, although the first row of it is left out.
    for file, option, lines in (
        ("odd.csv", ["--without-forgotten"], "lines 4, 7"),
        ("new.csv", [], "lines 2, 4, 6"),
    ):
        done = call("add", "sales", file, *COLUMNS, *SUBJECT, *option)
        assert done.code == WRONG_INPUT
        assert f"{file}, column 'plan', {lines}: a category" in done.err
        assert "in the schema" in done.err
        assert "OneHotEncoder" not in done.err
    assert unchanged()


def test_rectification_names_the_lines_too(unchanged: Callable[[], bool]) -> None:
    write_rows("one.csv", range(5, 6), ("gold",))
    done = call("rectify", "p5", "sales", "one.csv", *COLUMNS, "--drop", "person")
    assert done.code == WRONG_INPUT
    assert "one.csv, column 'plan', line 2: a category" in done.err
    assert "OneHotEncoder" not in done.err
    assert unchanged()
