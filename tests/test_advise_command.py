# SPDX-License-Identifier: Apache-2.0
"""``expunge advise``: the same advice as in Python, from a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge import LogisticRegression, suggest_budget
from expunge.cli.output import DATA_MISSING, DONE, WRONG_INPUT
from expunge.tables import Roles, describe_preprocessing, read_table
from tests.calling import Done, call

N_PEOPLE = 120
COLUMNS = ["age", "dose", "weight"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table with two rows for each person."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (2 * N_PEOPLE, 3)), columns=COLUMNS)
    eta = 4.0 * frame["age"] - 2.0 * frame["dose"] + rng.logistic(size=len(frame))
    frame["left"] = np.where(eta > 0.0, "yes", "no")
    frame["customer"] = [f"customer {i // 2}" for i in range(len(frame))]
    path = tmp_path_factory.mktemp("advise") / "old.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(autouse=True)
def few_sigmas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try three sigmas: the others are tried in Python."""
    monkeypatch.setattr("expunge.plan.advise.SIGMAS", (0.01, 0.1, 1.0))


def _advise(table: Path, *words: str | Path) -> Done:
    goal = "--target", "left", "--max-loss", "0.02", "--requests", "40"
    return call("advise", table, *goal, *words)


def test_it_is_the_advice_that_python_gives(table: Path) -> None:
    done = _advise(table, "--subject", "customer", "--alpha", "0.01", "--json")
    assert done.code == DONE
    read = read_table(table, Roles(target="left", subject="customer"))
    steps = describe_preprocessing(read)
    advice = suggest_budget(
        read.X,
        read.y,
        LogisticRegression(alpha=0.01, preprocessing=steps),
        subjects=read.subjects,
        max_loss=0.02,
        requests=40,
    )
    found: Any = done.json
    assert found["line"] == advice.line
    assert found["sentences"] == list(advice.sentences)
    assert found["budget"]["sigma"] == advice.budget.sigma
    for told, trial in zip(found["trials"], advice.trials, strict=True):
        assert told["without_look"] == trial.without_look
        assert told["at_random"] == list(trial.at_random)
        assert told["at_worst"] == trial.at_worst
    # What people ask comes first.
    assert list(found)[:2] == ["sigma", "may_leave"]
    assert found["sigma"] == advice.budget.sigma
    assert found["may_leave"] == advice.may_leave


def test_fit_takes_what_it_prints(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    promise = "--epsilon", "0.5", "--delta", "1e-6", "--releases", "50"
    done = _advise(table, "--subject", "customer", *promise)
    assert done.code == DONE
    assert done.out.startswith("Budget(epsilon=0.5, delta=1e-06, sigma=")
    assert "Assumed:" in done.out and "all 50 releases" in done.words
    options = done.err.partition("expunge fit ... ")[2].split()
    assert call("init").code == DONE
    columns = "--target", "left", "--subject", "customer"
    fitted = call("fit", "churn", table, *columns, *options, "--json")
    assert fitted.code == DONE
    certificate = fitted.json["certificate"]
    assert (certificate["epsilon"], certificate["delta"]) == (0.5, 1e-6)
    assert certificate["releases"] == 50
    assert f"sigma={certificate['sigma']}" in done.out


def test_without_a_subject_each_row_leaves_on_its_own(table: Path) -> None:
    done = _advise(table, "--drop", "customer")
    assert done.code == DONE
    assert "Each request removes one row" in done.words
    assert "one person" in _advise(table, "--subject", "customer").words


def test_a_plot_is_written(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "advice.png"
    assert _advise(table, "--drop", "customer", "--plot", picture).code == DONE
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--drop", "customer", "--sigma", "0.1"), "--sigma, but sigma is what advise"),
        (("--drop", "customer", "--no-budget"), "--no-budget, but sigma is"),
        (("--drop", "customer", "--max-loss", "0"), "max_loss=0.0; give a positive"),
        (("--drop", "customer", "--mechanism", "retrain"), "whatever is removed"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    table: Path, words: tuple[str, ...], told: str
) -> None:
    done = _advise(table, *words)
    assert done.code == WRONG_INPUT
    assert told in done.err and done.out == ""


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    done = _advise(tmp_path / "nothing.csv")
    assert done.code == DATA_MISSING and "nothing.csv" in done.err
