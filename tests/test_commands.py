# SPDX-License-Identifier: Apache-2.0
"""Commands on a registry: one job each, and nothing changed when they fail."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from expunge.cli.estimators import ModelKind, ModelOptions
from expunge.cli.output import (
    DATA_MISSING,
    DONE,
    STORE_FAILED,
    WRONG_INPUT,
)
from expunge.exceptions import InvalidInput
from expunge.registry import Registry
from expunge.tables import Schema
from expunge.tables.training import guess_task
from tests.calling import N_PEOPLE, call, copied, make_registry, person, whole
from tests.cli_page import GUIDE
from tests.registries import set_schema

REQUEST = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
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


def test_example_of_the_manual_runs(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXPUNGE_REGISTRY", raising=False)
    shutil.copy(table, "people.csv")
    example = GUIDE.read_text().partition("## An example")[2].partition("```text\n")[2]
    example = example.partition("```")[0].replace("\\\n", " ")
    commands = re.findall(r"^\$ expunge (.+)$", example, re.MULTILINE)
    assert len(commands) >= 7
    answered = ""
    for command in commands:
        words = [re.sub(r"answered/\w+\.json", answered, w) for w in command.split()]
        done = call(*words)
        assert done.code == DONE, (words, done.err)
        if words[0] == "forget":
            answered = done.out.strip().rpartition(" ")[2]
    assert call("status", "--json").json["outstanding"] == []


class TestInit:
    def test_says_where_keys_are_and_what_to_back_up(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        done = call("init", "-r", folder)
        assert done.code == DONE
        for part in (folder / "keys", folder / "public.pem"):
            assert part.exists()
            assert str(part) in done.out
        assert str(folder / "journal") in done.out
        assert "To back up, copy the whole folder" in done.words
        again = call("init", "-r", folder, "--json")
        assert again.json["store"] == "sqlite"
        assert again.json["key"] in call("status", "-r", folder).out

    def test_again_changes_nothing_and_says_so(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        made = call("init", "-r", folder, "--regime", "ccpa", "--json").json
        assert made["change"] == "created"
        before = whole(folder)
        done = call("init", "-r", folder, "--regime", "gdpr")
        assert done.code == DONE
        assert done.out == f"{folder} is a registry already; nothing was changed\n"
        assert "options other than --head-file count only when" in done.err
        again = call("init", "-r", folder, "--json").json
        assert again == {**made, "change": "none"}
        assert whole(folder) == before

    def test_tables_of_another_version_are_refused(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            set_schema(registry, "0")
        for command in ("init", "status"):
            done = call(command)
            assert done.code == STORE_FAILED
            assert "tables of version 0" in done.err

    @pytest.mark.parametrize(
        "options",
        [
            ("--store", "mysql://ada:secret@localhost/db"),
            ("--store", "secret"),
            ("--deadline-days", "0"),
            ("--deadline-days", "soon"),
            ("--deadline-days", "999999"),
        ],
    )
    def test_wrong_options_are_refused(
        self, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        done = call("init", "-r", tmp_path / "registry", *options)
        assert done.code == WRONG_INPUT
        assert "secret" not in done.err
        assert not (tmp_path / "registry").exists()


class TestFit:
    @pytest.mark.parametrize(
        ("y", "kind"),
        [
            (["a", "b", "a"], ModelKind.logistic),
            ([0, 1, 1], ModelKind.logistic),
            ([0.5, 7.25], ModelKind.logistic),
            (["a", "b", "c"], ModelKind.softmax),
            (range(50), ModelKind.softmax),
            (range(51), ModelKind.linear),
            ([0.0, 1.0, 2.0], ModelKind.linear),
        ],
    )
    def test_kind_follows_from_the_target(
        self, y: list[object], kind: ModelKind
    ) -> None:
        schema = Schema("y", guess_task(np.array(y)), ())
        assert ModelOptions().choose_kind(schema.task, len(set(y))) is kind

    def test_budget_is_the_default(self, folder: Path) -> None:
        models = {one["name"]: one for one in call("status", "--json").json["models"]}
        assert models["churn"]["certificate"]["status"] == "certified"
        assert models["churn"]["releases_left"] is None
        assert models["dose"]["releases_left"] == 3
        assert models["dose"]["estimator"] == "LinearRegression"
        assert models["dose"]["n_people"] == N_PEOPLE

    def test_words_say_kind_rows_and_promise(self, folder: Path, table: Path) -> None:
        about = ("--target", "outcome", "--subject", "patient")
        done = call("fit", "three", table, *about)
        assert done.code == DONE
        assert (
            "logistic (guessed from the target; choose with --task or --kind)"
            in done.words
        )
        assert "80 of 40 people, 3 features" in done.words
        assert (
            "epsilon 1, delta 1e-05 for each release, with noise of sigma 0.001"
            in done.words
        )

    def test_budget_without_another_release_is_warned_of(
        self, folder: Path, table: Path
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--no-trial")
        done = call("fit", "once", *about, "--releases", "1")
        assert done.code == DONE
        assert "epsilon 1, delta 1e-05 for 1 release, with noise" in done.words
        (warning,) = [one for one in done.err.splitlines() if "warning" in one]
        assert warning.startswith("warning: the budget allows 1 release, and this is ")
        assert "no request can be applied to once; fit it again" in warning
        done = call("fit", "twice", *about, "--releases", "2")
        assert "for 2 releases together, with noise" in done.words
        assert "warning" not in done.err
        told = call("fit", "json", *about, "--releases", "1", "--json")
        assert told.json["releases_left"] == 0
        assert "warning" in told.err

    def test_without_a_budget_nothing_is_promised(
        self, folder: Path, table: Path
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--no-budget")
        done = call("fit", "bare", *about)
        assert done.code == DONE
        assert "none: nothing is promised" in done.words
        assert "nothing is promised" in done.err

    def test_alphas_tune_and_names_travel(self, folder: Path, table: Path) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--json")
        done = call("fit", "tuned", *about, "--alphas", "1e-1,1e-2", "--sigma", "1")
        assert done.code == DONE
        assert done.json["estimator"] == "TunedClassifier"
        assert done.json["certificate"]["selection"] == "certified"
        with Registry.open(folder) as registry:
            names = registry.model("tuned").feature_names_in_
        assert list(names) == ["age", "dose", "weight"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("outcom", "--no-subject"), "did you mean 'outcome'?"),
            (("outcome", "--subject", "x"), "no column 'x'"),
            (
                ("outcome", "--no-subject", "--drop", "outcome"),
                "column 'outcome' is used twice",
            ),
        ],
    )
    def test_column_that_does_not_fit_is_named(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        options: tuple[str, ...],
        said: str,
    ) -> None:
        done = call("fit", "new", table, "--target", *options)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--alphas", "1e-2,a"), "--alphas '1e-2,a'"),
            (("--alphas", "1e-2", "--alpha", "1"), "--alpha with --alphas"),
            (("--alphas", "1", "--kind", "softmax"), "does not work with softmax"),
            (("--no-budget", "--sigma", "2"), "--no-budget with --sigma"),
            (("--no-budget", "--row-norm", "2"), "--no-budget with --row-norm"),
            (("--epsilon", "-1"), "epsilon=-1.0"),
            (("--sigma", "x"), "'--sigma': 'x' is not a number; give a number;"),
            (("--releases", "1.5"), "'1.5' is not a whole number; give a whole number"),
            (("--releases", "0"), "'--releases': '0' is too small; give at least 1;"),
            (("--l1-ratio", "2"), "'--l1-ratio': '2' is too large; give at most 1;"),
            (("--kind", "linear"), "column 'outcome': words, which a regression cann"),
            (("--task", "regression"), "words, which a regression cannot predict"),
            (("--task", "regression", "--kind", "softmax"), "--task regression with"),
            (("--search", "--alpha", "1"), "--alpha with --search; give only one"),
            (("--search", "--alphas", "1"), "--alphas with --search; give only one"),
            (("--search", "--C", "1"), "--C with --search; give only one"),
            (("--alpha", "1", "--C", "1"), "--alpha with --C; give only one"),
            (("--class-weight", "no=1,yes"), "give classes and numbers, such as no=1"),
            (("--tau", "-1"), "tau=-1.0"),
            (("--write-schema", "no/where"), "there is no such folder"),
        ],
    )
    def test_options_that_do_not_fit_are_named(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        options: tuple[str, ...],
        said: str,
    ) -> None:
        about = ("--target", "outcome", "--subject", "patient")
        done = call("fit", "new", table, *about, *options)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()

    def test_too_many_words_are_no_classes(self) -> None:
        with pytest.raises(InvalidInput, match="51 different words"):
            guess_task(np.array([f"word {number}" for number in range(51)]))

    def test_taken_name_is_refused(
        self, table: Path, unchanged: Callable[[], bool]
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient")
        done = call("fit", "churn", *about)
        assert done.code == WRONG_INPUT
        assert "there is already a model 'churn'" in done.err
        assert unchanged()

    def test_bad_names_and_missing_files(
        self, table: Path, unchanged: Callable[[], bool]
    ) -> None:
        options = ("--target", "outcome", "--drop", "patient", "--no-subject")
        assert call("fit", "new", "nowhere.csv", *options).code == DATA_MISSING
        done = call("fit", "ada@example.org", table, *options)
        assert done.code == WRONG_INPUT
        assert unchanged()

    def test_model_is_replaced_on_request(self, folder: Path, table: Path) -> None:
        options = ("--target", "outcome", "--subject", "patient", "--sigma", "0.5")
        done = call("fit", "churn", table, *options, "--replace", "--json")
        assert done.code == DONE
        assert done.json["release"] == 2


def test_forgotten_people_are_readmitted_only_on_request(
    tmp_path: Path, table: Path
) -> None:
    place = tmp_path / "registry"
    fit = ("fit", "again", table, "--target", "outcome", "--subject", "patient")
    assert call("init", "-r", place).code == 0
    assert call(*fit, "-r", place).code == 0
    assert call("forget", person(1), "-r", place).code == 0
    refused = call(*fit, "--replace", "-r", place)
    assert refused.code == WRONG_INPUT and "--readmit" in refused.err
    assert f"{table}, lines 4, 5: rows of 1 person who were forgotten" in refused.err
    assert person(1) not in refused.err
    both = call(*fit, "--replace", "--readmit", "--without-forgotten", "-r", place)
    assert both.code == WRONG_INPUT and "give only one of them" in both.err
    left = call(*fit, "--replace", "--without-forgotten", "-r", place)
    assert left.code == 0
    assert "left out: 2 rows of 1 person who left before" in left.err
    assert "78 of 39 people" in left.words
    other = ("fit", "other", *fit[2:], "--without-forgotten", "--json", "-r", place)
    told = call(*other).json
    assert told["left_out"] == {"n_rows": 2, "n_people": 1, "n_merged": 0}
    assert told["n_rows"] == 78
    assert call(*fit, "--replace", "--readmit", "-r", place).code == 0


class TestRestore:
    def test_a_sound_journal_is_not_rebuilt(
        self, folder: Path, unchanged: Callable[[], bool]
    ) -> None:
        done = call("restore", "--journal")
        assert done.code == DONE
        assert f"the journal of {folder} is sound; nothing to rebuild" in done.out
        found = call("restore", "--journal", "--json").json
        assert found == {"registry": str(folder), "rebuilt": False, "n_unnamed": 0}
        assert unchanged()

    def test_a_damaged_journal_is_rebuilt(self, folder: Path) -> None:
        (folder / "journal").unlink()
        found = call("restore", "--journal", "--json").json
        assert found["rebuilt"] is True
        (folder / "journal").unlink()
        assert call("restore", "--journal").out.startswith("rebuilt the journal of")
        assert call("status").code == DONE
