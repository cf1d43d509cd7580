# SPDX-License-Identifier: Apache-2.0
"""``expunge fit``: whose rows a table holds, their weights, and what chose."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from expunge.cli.common import DONE, UNKNOWN, WRONG_INPUT
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
    assert models["chosen"]["certificate"]["status"] == "radius-only"
    assert models["churn"]["certificate"]["status"] == "certified"
