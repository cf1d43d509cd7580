# SPDX-License-Identifier: Apache-2.0
"""``expunge fit``: whose rows a table holds, their weights, and what chose."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge.cli.output import DATA_MISSING, DONE, UNKNOWN, WRONG_INPUT
from expunge.linear_model.tuned import ALPHAS
from expunge.promise.scope import COLUMNS_GUESSED, QUANTA_GUESSED
from expunge.registry import Registry
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


class TestClasses:
    def test_are_declared(self, folder: Path, table: Path) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--no-budget")
        for words in ("maybe,no,yes", "yes, no"):
            options = ("--classes", words, "--penalize-intercept", "--kind", "logistic")
            assert call("fit", f"m{words.count(',')}", *about, *options).code == DONE
        with Registry.open(folder) as registry:
            assert registry.model("m2").classes_.tolist() == ["maybe", "no", "yes"]
            assert registry.model("m2").certificate_.classes == "declared"

    @pytest.mark.parametrize("words", ["no", "no,no", "no,perhaps"])
    def test_in_doubt_are_refused(
        self, table: Path, unchanged: Callable[[], bool], words: str
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--no-budget")
        refused = call("fit", "model", *about, "--classes", words)
        assert refused.code == WRONG_INPUT
        assert unchanged()


class TestPeople:
    def test_model_without_people_says_so(self, folder: Path, table: Path) -> None:
        about = (table, "--target", "outcome", "--drop", "patient", "--no-subject")
        done = call("fit", "nobody", *about)
        assert done.code == DONE
        assert "rows 80 without owners, 3 features" in done.words
        assert "The model has no people: nobody can be forgotten from it." in done.err
        assert "none any number nobody" in call("status").words
        assert call("fit", "none", *about, "--json").json["n_people"] == 0
        refused = call("forget", "7")
        assert refused.code == UNKNOWN
        assert "in no model: 1 id not known here ('7')" in refused.err

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ((), "whose rows are these? name the column of ids with --subject, or giv"),
            (("--subject", "patient", "--no-subject"), "--no-subject with --subject"),
            (("--no-subject", "--readmit"), "--no-subject with --readmit"),
        ],
    )
    def test_fit_must_say_whose_rows_these_are(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        options: tuple[str, ...],
        said: str,
    ) -> None:
        done = call("fit", "new", table, "--target", "outcome", *options)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()

    @pytest.mark.parametrize(
        ("one", "said"),
        [
            ("", "it is empty"),
            ("nan", "it looks like a missing value"),
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


ABOUT = ("--target", "outcome", "--subject", "patient")


class TestWeight:
    def write(self, table: Path, first: str) -> Path:
        """Write the table with the numbers of rows as weights, but for the first."""
        heading, *lines = table.read_text().splitlines()
        weights = [first, *(str(number) for number in range(2, len(lines) + 1))]
        pairs = zip(lines, weights, strict=True)
        text = [f"{heading},count", *(f"{line},{weight}" for line, weight in pairs)]
        path = Path("weighted.csv")
        path.write_text("\n".join(text) + "\n")
        return path

    def test_is_a_weight_and_no_feature(self, folder: Path, table: Path) -> None:
        path = self.write(table, "1")
        done = call("fit", "weighted", path, *ABOUT, "--weight", "count")
        assert done.code == DONE
        assert "80 of 40 people, 3 features" in done.words
        with Registry.open(folder) as registry:
            weight = registry.models.case("weighted").rows.weight
            names = registry.model("weighted").feature_names_in_
        assert np.array_equal(weight, np.arange(1.0, 81.0))
        assert list(names) == ["age", "dose", "weight"]
        assert call("forget", "patient-0001").code == DONE

    @pytest.mark.parametrize(
        ("first", "column", "said"),
        [
            ("-1", "count", "column 'count', line 2: a negative weight; give zero"),
            ("", "count", "column 'count', line 2: a value is missing"),
            ("inf", "count", "column 'count', line 2: an infinite number"),
            ("many", "count", "column 'count', line 2: it is not a number; give num"),
            ("1", "counts", "did you mean 'count'?"),
            ("1", "patient", "column 'patient' is used twice"),
        ],
    )
    def test_in_doubt_is_refused(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        first: str,
        column: str,
        said: str,
    ) -> None:
        path = self.write(table, first)
        done = call("fit", "new", path, *ABOUT, "--weight", column)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()


@pytest.mark.usefixtures("folder")
def test_search_is_declared(table: Path) -> None:
    done = call("fit", "chosen", table, *ABOUT, "--tuned-by", "grid search")
    assert done.code == DONE
    assert "none: nothing is promised" in done.words
    assert "nothing is promised" in done.err
    assert call("forget", "patient-0001").code == DONE
    models = {one["name"]: one for one in call("status", "--json").json["models"]}
    assert models["chosen"]["certificate"]["selection"] == "not covered"
    assert models["chosen"]["certificate"]["status"] == "no promise"
    assert models["churn"]["certificate"]["status"] == "certified"


class TestEstimator:
    def fit(self, table: Path, *options: str) -> dict[str, Any]:
        """Return the parameters of the estimator that options choose."""
        done = call("fit", "new", table, *ABOUT, "--no-trial", "--no-budget", *options)
        assert done.code == DONE, done.err
        with Registry.open(Path("registry")) as registry:
            parameters: dict[str, Any] = registry.model("new").get_params(deep=False)
        return parameters

    def test_options_reach_it(self, folder: Path, table: Path) -> None:
        options = ("--ridge", "0.5", "--no-intercept", "--l1-ratio", "0.5")
        found = self.fit(table, *options, "--class-weight", "no=1,yes=2.5")
        assert found["alpha"] == 1e-4
        assert found["ridge"] == 0.5
        assert found["l1_ratio"] == 0.5
        assert found["fit_intercept"] is False
        assert found["class_weight"] == {"no": 1.0, "yes": 2.5}

    def test_classes_may_be_balanced(self, folder: Path, table: Path) -> None:
        found = self.fit(table, "--class-weight", "balanced")
        assert found["class_weight"] == "balanced"
        assert call("forget", "patient-0001").code == DONE

    def test_c_takes_the_place_of_alpha(self, folder: Path, table: Path) -> None:
        assert self.fit(table, "--C", "2")["C"] == 2.0

    def test_search_has_candidates_of_its_own(self, folder: Path, table: Path) -> None:
        assert tuple(self.fit(table, "--search")["alphas"]) == ALPHAS
        models = {one["name"]: one for one in call("status", "--json").json["models"]}
        guessed = {COLUMNS_GUESSED, QUANTA_GUESSED}
        assert guessed <= {*models["new"]["certificate"]["not_covered"]}

    def test_tau_is_the_budget_s(self, folder: Path, table: Path) -> None:
        options = ("--no-trial", "--tau", "1e-3", "--sigma", "1", "--json")
        done = call("fit", "new", table, *ABOUT, *options)
        assert done.json["certificate"]["tau"] == 1e-3

    def test_task_overrules_the_target(self, folder: Path, table: Path) -> None:
        path = Path("counts.csv")
        lines = [f"p{i // 2},{i * 7 % 11},{i % 6}" for i in range(60)]
        path.write_text("\n".join(["patient,x,outcome", *lines]) + "\n")
        about = (path, *ABOUT, "--no-trial", "--no-budget", "--json")
        for options, kind, task in (
            ((), "softmax", "classification"),
            (("--task", "regression"), "linear", "regression"),
            (("--kind", "logistic"), "logistic", "classification"),
        ):
            done = call("fit", f"m{kind}", *about, *options)
            assert (done.json["kind"], done.json["task"]) == (kind, task)


class TestColumns:
    """Mixed columns, gaps and all, with nothing but --target and --subject."""

    @pytest.fixture
    def path(self, folder: Path) -> Path:
        rng = np.random.default_rng(0)
        lines = ["patient,age,town,since,note,outcome"]
        for i in range(400):
            age = "" if i % 9 == 0 else str(20 + int(rng.integers(60)))
            town = ("Jena", "Ulm", "Kiel", "")[int(rng.integers(4))]
            day = f"2020-01-{1 + int(rng.integers(28)):02d}"
            word = "yes" if town == "Ulm" or rng.random() < 0.2 else "no"
            lines.append(f"q{i // 2},{age},{town},{day},seen {i} times by me,{word}")
        lines.append("q0,50,Ulm,2020-01-01,late,")
        path = Path("mixed.csv")
        path.write_text("\n".join(lines) + "\n")
        return path

    def test_table_says_what_is_done(self, path: Path) -> None:
        done = call("fit", "mixed", path, *ABOUT)
        assert done.code == DONE
        lines = [" ".join(line.split()) for line in done.out.splitlines()]
        assert lines[0] == "column kind what is done"
        assert lines[1].startswith("age number missing becomes the mean, scaled")
        assert lines[2] == "town category one-hot, categories learnt"
        assert lines[3].startswith("since date days since 1970, missing becomes")
        assert lines[4] == "note text its words hashed into 256 columns"
        assert "400 of 200 people, 4 features" in done.words
        notes = done.err.splitlines()
        assert notes[0] == "left out: 1 row without a target, column 'outcome'"
        assert notes[1].startswith("looks like free text: 'note', whose words are has")
        assert notes[2].startswith("mixed.schema.json says what each column is")
        assert len(notes) == 3

    def test_model_forgets_and_takes_raw_rows(self, folder: Path, path: Path) -> None:
        assert call("fit", "mixed", path, *ABOUT).code == DONE
        assert call("forget", "q7").code == DONE
        assert call("release", "mixed", "--to", "mixed.safetensors").code == DONE
        raw = {"age": [np.nan, 30.0], "town": ["Ulm", "Bonn"], "since": [18262.0] * 2}
        raw |= {"note": ["seen 7 times", None]}
        with Registry.open(folder) as registry:
            words = registry.model("mixed").predict(pd.DataFrame(raw))
        assert words[0] == "yes"

    def test_schema_is_written_and_taken_back(self, folder: Path, path: Path) -> None:
        about = ("fit", "mixed", path, *ABOUT, "--no-budget", "--json")
        first = call(*about).json
        assert first["schema"] == "mixed.schema.json"
        assert first["n_without_target"] == 1
        schema = Path("mixed.schema.json")
        assert COLUMNS_GUESSED in first["certificate"]["not_covered"]
        again = call(*about, "--replace", "--schema", schema).json
        assert COLUMNS_GUESSED not in again["certificate"]["not_covered"]
        assert again["columns"] == first["columns"]
        assert again["schema"] is None
        plain = call("fit", "plain", path, *ABOUT, "--schema", schema)
        assert plain.err == "left out: 1 row without a target, column 'outcome'\n"

    def test_edited_schema_is_obeyed_and_kept(self, folder: Path, path: Path) -> None:
        assert call("fit", "mixed", path, *ABOUT, "--drop", "note").code == DONE
        schema = Path("mixed.schema.json")
        edited = schema.read_text().replace(
            '"categories": null', '"categories": ["Bonn", "Jena", "Kiel", "Ulm"]'
        )
        edited = edited.replace('"classes": null', '"classes": ["no", "yes"]')
        schema.write_text(edited)
        options = ("--schema", schema, "--penalize-intercept", "--json")
        done = call("fit", "declared", path, *ABOUT, *options)
        assert done.code == DONE, done.err
        assert done.json["certificate"]["classes"] == "declared"
        with Registry.open(folder) as registry:
            names = registry.model("declared").to_sklearn()[:-1].get_feature_names_out()
        assert [name.rpartition("__")[2] for name in names if "town" in name] == [
            f"town_{town}" for town in ("Bonn", "Jena", "Kiel", "Ulm", "missing")
        ]
        other = call("fit", "guessed", path, *ABOUT)
        assert "mixed.schema.json is another schema, which was not used" in other.err
        assert schema.read_text() == edited
        assert call("fit", "g", path, *ABOUT, "--write-schema", schema).code == DONE
        assert schema.read_text() != edited

    def test_schema_that_does_not_fit_changes_nothing(
        self, path: Path, unchanged: Callable[[], bool]
    ) -> None:
        Path("bad.json").write_text('{"format": "expunge schema 1"')
        for given, code, said in (
            ("bad.json", WRONG_INPUT, "bad.json, line 1: not JSON"),
            ("none.json", DATA_MISSING, "none.json does not exist"),
        ):
            done = call("fit", "new", path, *ABOUT, "--schema", given)
            assert done.code == code
            assert said in done.err
        assert unchanged()

    def test_folder_that_cannot_be_written_is_no_failure(self, path: Path) -> None:
        Path("mixed.schema.json").mkdir()
        done = call("fit", "mixed", path, *ABOUT)
        assert done.code == DONE
        assert "mixed.schema.json was not written" in done.err

    def test_expectation_is_told_or_why_not(self, folder: Path, path: Path) -> None:
        lines = path.read_text().splitlines()
        more = [f"r{i}{line}" for i in range(10) for line in lines[1:]]
        path.write_text("\n".join([lines[0], *more]) + "\n")
        done = call("fit", "many", path, *ABOUT)
        assert "with people it has not seen, right in about" in done.words
        found = call("fit", "again", path, *ABOUT, "--json").json["trial"]
        assert found["score"] > found["guess"]
        assert found["noise"] < 0.1
        done = call("fit", "quick", path, *ABOUT, "--no-trial")
        assert "expect not tried, as you asked" in done.words


def test_few_people_are_not_tried(folder: Path, table: Path) -> None:
    done = call("fit", "few", table, *ABOUT)
    assert "expect not known: too few people to try the model" in done.words


@pytest.mark.parametrize("given", [("--alpha", "1e-4"), ("--C", "100")])
def test_a_fit_that_cannot_be_certified_names_an_option_that_works(
    folder: Path, table: Path, given: tuple[str, str]
) -> None:
    about = (table, "--target", "outcome", "--subject", "patient", *given)
    strict = "1e-13" if "--C" in given else "1e-11"
    refused = call("fit", "model", *about, "--sigma", strict)
    assert refused.code == WRONG_INPUT
    said = re.search(r"; (--[\w-]+ ?\S*) works", refused.err)
    assert said is not None
    option = said[1].split()
    sigma = () if option[0] == "--sigma" else ("--sigma", strict)
    change = () if option[0] in given else given
    done = call("fit", "model", *about[:5], *change, *sigma, *option)
    assert done.code == DONE
