# SPDX-License-Identifier: Apache-2.0
"""``expunge add``, ``rectify`` and ``schema``: what is taken in, and what is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from expunge import LinearRegression
from expunge.cli.output import DONE, LOST, UNKNOWN, WRONG_INPUT
from expunge.registry import Registry
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
    done = call("rectify", "p5", "sales", "one.csv", *COLUMNS, *SUBJECT)
    assert done.code == WRONG_INPUT
    assert "one.csv, column 'plan', line 2: a category" in done.err
    assert "OneHotEncoder" not in done.err
    assert unchanged()


def test_rectification_takes_the_rows_of_the_person(registry: Path) -> None:
    write_rows("one.csv", range(5, 6), ("pro",))
    done = call("rectify", "p5", "sales", "one.csv", *COLUMNS, *SUBJECT)
    assert done.code == DONE, done.err


def test_rectification_of_a_stranger_suggests_what_exists(
    unchanged: Callable[[], bool],
) -> None:
    write_rows("new.csv", range(999, 1000), ("pro",))
    done = call("rectify", "p999", "sales", "new.csv", *COLUMNS, *SUBJECT)
    assert done.code == UNKNOWN, done.err
    assert "in no model: " in done.err and "use expunge add" in done.err
    assert "--skip-unknown" not in done.err
    assert call("add", "--help").code == DONE
    assert unchanged()


def test_rectification_refuses_rows_of_others(unchanged: Callable[[], bool]) -> None:
    write_rows("others.csv", range(5, 8), ("pro",))
    done = call("rectify", "p6", "sales", "others.csv", *COLUMNS, *SUBJECT)
    assert done.code == WRONG_INPUT
    assert "others.csv, column 'person', lines 2, 4: an id that is not" in done.err
    assert "p5" not in done.err and "p7" not in done.err
    # To leave the ids out would let the rows of anybody pass.
    done = call("rectify", "p6", "sales", "others.csv", *COLUMNS, "--drop", "person")
    assert done.code == WRONG_INPUT and "drop none of them" in done.err
    assert unchanged()


def test_rectification_compares_ids_by_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXPUNGE_REGISTRY", raising=False)
    write_rows("rows.csv", range(40), ("basic", "basic", "pro"))
    text = Path("rows.csv").read_text()
    lines = [one.replace(",", "@example.org,", 1) for one in text.splitlines()[1:]]
    Path("rows.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    assert call("init").code == DONE
    fit = ("fit", "sales", "rows.csv", "--target", "bought", *SUBJECT, "--no-trial")
    kind = ("--subject-kind", "email", "--sigma", "0.5")
    assert call(*fit, *kind, "--write-schema", "schema.json").code == DONE
    Path("one.csv").write_text(f"{HEADER}\nP5@Example.org,30,pro,no\n")
    done = call(*("rectify", "p5@example.org", "sales", "one.csv", *COLUMNS, *SUBJECT))
    assert done.code == DONE, done.err


class TestSchema:
    def test_is_what_fit_wrote_and_stays_when_people_leave(
        self, registry: Path
    ) -> None:
        done = call("schema", "sales")
        assert (done.code, done.out) == (DONE, Path("schema.json").read_text())
        assert "'person', of kind id" in done.err
        said = call("schema", "sales", "--json").json
        assert said["subject"] == "person" and said["weight"] is None
        # All who have one of the two plans leave: a category leaves with them.
        leaving = [f"p{one}" for one in range(40) if one % 3 == 2]
        assert call("forget", *leaving, "--skip-unknown").code == DONE
        assert call("schema", "sales").out == done.out

    def test_declared_categories_are_in_it_and_learnt_ones_are_not(
        self, registry: Path
    ) -> None:
        assert "basic" not in call("schema", "sales").out
        declared = Path("schema.json").read_text()
        declared = declared.replace(
            '"categories": null', '"categories": ["basic", "pro", "gold"]'
        )
        Path("declared.json").write_text(declared)
        fit = ("fit", "again", "rows.csv", "--target", "bought", *SUBJECT)
        more = ("--schema", "declared.json", "--without-forgotten", "--no-trial")
        assert call(*fit, *more, "--sigma", "0.5").code == DONE
        assert call("schema", "again").out == declared

    def test_a_model_without_one(self, registry: Path) -> None:
        X = np.arange(20.0).reshape(10, 2)
        with Registry.open(registry) as opened:
            opened.fit("plain", LinearRegression(alpha=0.1), X, X[:, 0])
        done = call("schema", "plain")
        assert done.code == WRONG_INPUT and "no schema of it" in done.err
        assert call("schema", "nothing").code == WRONG_INPUT


class TestWhatTheRegistryKnows:
    """Target, schema, and columns of ids and weights need not be given again."""

    def test_rows_are_added_and_rectified(self, registry: Path) -> None:
        write_rows("more.csv", range(50, 55), ("pro",))
        done = call("add", "sales", "more.csv")
        assert (done.code, done.out[:12]) == (DONE, "5 rows added"), done.err
        write_rows("one.csv", range(5, 6), ("pro",))
        done = call("rectify", "p5", "sales", "one.csv")
        assert done.code == DONE, done.err
        done = call("rectify", "p6", "sales", "one.csv")
        assert done.code == WRONG_INPUT and "not the person's" in done.err

    def test_columns_of_weights_and_those_left_out(self, registry: Path) -> None:
        rows = Path("rows.csv").read_text().splitlines()
        wide = [f"{rows[0]},times,notes", *(f"{one},2,words" for one in rows[1:])]
        Path("wide.csv").write_text("\n".join(wide) + "\n")
        fit = ("fit", "heavy", "wide.csv", "--target", "bought", *SUBJECT)
        more = ("--weight", "times", "--drop", "notes", "--without-forgotten")
        given = ("--schema", "schema.json", "--sigma", "0.5", "--no-trial")
        assert call(*fit, *more, *given).code == DONE
        Path("more.csv").write_text(f"{wide[0]}\nnew,30,pro,no,3,words\n")
        done = call("add", "heavy", "more.csv")
        assert done.code == DONE, done.err

    def test_an_option_counts_first(self, unchanged: Callable[[], bool]) -> None:
        write_rows("more.csv", range(50, 55), ("pro",))
        done = call("add", "sales", "more.csv", "--target", "age")
        assert done.code == WRONG_INPUT and "about the target 'bought'" in done.err
        assert unchanged()

    def test_a_model_of_which_it_knows_nothing(self, registry: Path) -> None:
        X = np.arange(20.0).reshape(10, 2)
        with Registry.open(registry) as opened:
            opened.fit("plain", LinearRegression(alpha=0.1), X, X[:, 0])
        write_rows("more.csv", range(50, 55), ("pro",))
        done = call("add", "plain", "more.csv")
        assert done.code == WRONG_INPUT and "say it with --schema" in done.err


def test_restore_says_what_is_lost(registry: Path) -> None:
    shutil.copytree(registry, "backup")
    write_rows("more.csv", range(50, 55), ("pro",))
    assert call("forget", "p4").code == DONE
    done = call("restore", "backup")
    assert (done.code, "lost" in done.out) == (DONE, False), done.err
    assert call("add", "sales", "more.csv").code == DONE
    write_rows("one.csv", range(5, 6), ("pro",))
    request = "0123456789abcdef" * 2
    assert call("rectify", "p5", "sales", "one.csv", "--request", request).code == DONE
    assert call("token", "create", "desk", "--scope", "request").code == DONE
    Path("aliases.csv").write_text("person,kind,value\np7,email,p7@example.org\n")
    assert call("alias", "import", "aliases.csv").code == DONE
    done = call("restore", "backup")
    assert done.code == LOST and "send or make that again" in done.err
    for words in (
        f"lost: new rows of 1 rectification; send them again, by expunge add if the "
        f"request is completed: {request}\n",
        "lost: rows added to sales (1 time); add them again\n",
        "lost: 1 token; make others: ",
        "lost: 1 alias; import them again\n",
    ):
        assert words in done.out
    lost = call("restore", "backup", "--json")
    assert lost.code == LOST
    assert json.loads(lost.out)["lost"]["rectifications"] == [request]
