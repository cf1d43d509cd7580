# SPDX-License-Identifier: Apache-2.0
"""``expunge advise``: the same advice as in Python, from a file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge import LogisticRegression, advise
from expunge.cli.output import DATA_MISSING, DONE, WRONG_INPUT
from expunge.tables import Roles, describe_preprocessing, read_table
from tests.calling import Done, call

N_PEOPLE = 60
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
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try two sigmas and few labels, and boost nothing: that is tried in Python."""
    monkeypatch.setattr("expunge.plan.advice.SIGMAS", (0.001, 0.1))
    monkeypatch.setattr("expunge.plan.trials.MOST_STEPS", 20)
    monkeypatch.setattr("expunge.plan.trials.boosted_score", lambda *_, **__: 0.9)


def _advise(table: Path, *words: str | Path) -> Done:
    return call("advise", table, "--target", "left", "--requests", "10", *words)


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_the_advice_that_python_gives(table: Path, kept: bool) -> None:
    never = () if kept else ("--keep-rows", "never")
    done = _advise(table, "--subject", "customer", "--alpha", "0.01", "--json", *never)
    assert done.code == DONE and done.err == ""
    roles = Roles(target="left", subject="customer", bins=kept)
    read = read_table(table, roles)
    steps = describe_preprocessing(read)
    model = LogisticRegression(alpha=0.01, preprocessing=steps, keep_data=kept)
    advice = advise(read.X, read.y, model, subjects=read.subjects, requests=10)
    found: Any = done.json
    expected = json.loads(json.dumps(asdict(advice)))
    for told, trial in zip(found["trials"], expected["trials"], strict=True):
        assert told.pop("seconds") > 0.0 and trial.pop("seconds") > 0.0
    found["sentences"], sentences = None, found["sentences"]
    assert found == expected | {
        "sigma": advice.budget.sigma,
        "may_leave": advice.may_leave,
        "line": advice.line,
        "options": found["options"],
        "sentences": None,
    }
    assert len(sentences) == len(advice.sentences)
    # What people ask comes first.
    assert list(found)[:2] == ["sigma", "may_leave"]
    assert (found["may_leave"] is None) == kept


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


def test_rows_that_are_never_kept_are_said_to_fit_too(table: Path) -> None:
    done = _advise(table, "--subject", "customer", "--keep-rows", "never")
    assert done.code == DONE and "sigma=0.1)" in done.out
    assert done.err.endswith("--sigma 0.1 --keep-rows never\n")


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
        (("--drop", "customer", "--max-seconds", "-1"), "max_seconds=-1.0; give a"),
        (("--search", "--keep-rows", "never"), "choosing again needs the rows"),
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
