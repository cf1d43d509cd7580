# SPDX-License-Identifier: Apache-2.0
"""``expunge predict``: what the release predicts, for tables as people have them."""

import csv
import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from expunge import LinearRegression, read_shipped
from expunge.cli.output import DATA_MISSING, DONE, WRONG_INPUT
from expunge.registry import Registry
from tests.calling import call

N = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a registry of two models, and their table."""
    folder = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": [f"p{i}" for i in range(N)]})
    frame["age"] = rng.uniform(20.0, 70.0, N).round(1)
    frame["plan"] = np.array(["basic", "pro", "team"])[np.arange(N) % 3]
    frame["paid"] = (frame["age"] / 10.0 + rng.normal(size=N)).round(2)
    frame["left"] = np.where(frame["paid"] + rng.normal(size=N) > 4.5, "yes", "no")
    frame.loc[3, "age"] = np.nan
    frame.to_csv(folder / "rows.csv", index=False)
    assert call("init", "-r", folder / "registry").code == DONE
    for name, target, other in (("churn", "left", "paid"), ("spend", "paid", "left")):
        fit = ("fit", name, folder / "rows.csv", "--target", target, "--drop", other)
        more = ("--subject", "who", "-r", folder / "registry", "--no-trial")
        done = call(*fit, *more, "--sigma", "0.01")
        assert done.code == DONE, done.err
    return folder


@pytest.fixture(autouse=True)
def usual(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder / "registry"))
    monkeypatch.chdir(tmp_path)


def test_predictions_are_those_of_the_shipped_release(folder: Path) -> None:
    done = call("predict", "churn", folder / "rows.csv", "--beside", "who")
    assert done.code == DONE and done.err == ""
    frame = pd.read_csv(StringIO(done.out))
    assert call("release", "churn", "--to", "churn.safetensors").code == DONE
    served, rows = read_shipped("churn.safetensors"), pd.read_csv(folder / "rows.csv")
    assert frame["who"].tolist() == rows["who"].tolist()
    assert (
        frame["prediction"].tolist() == served.predict(rows[["age", "plan"]]).tolist()
    )
    shares = frame[["probability of no", "probability of yes"]].to_numpy()
    assert np.array_equal(shares, served.predict_proba(rows[["age", "plan"]]))
    assert len(set(frame["prediction"])) == 2


def test_amounts_are_written_to_a_file(folder: Path) -> None:
    done = call("predict", "spend", folder / "rows.csv", "-o", "spent.csv")
    assert (done.code, done.out) == (
        DONE,
        f"wrote spent.csv: predictions of {N} rows by spend\n",
    )
    found = list(csv.reader(StringIO(Path("spent.csv").read_text())))
    assert found[0] == ["prediction"] and len(found) == N + 1
    as_json = call("predict", "spend", folder / "rows.csv", "--json").json
    assert as_json["predictions"] == [float(one) for (one,) in found[1:]]
    assert as_json["model"] == "spend" and as_json["probabilities"] is None


def test_only_the_columns_of_the_model_are_needed() -> None:
    Path("new.csv").write_text('plan,note,age\npro,x,40\nunheard of,y,\n"a,b",z,60\n')
    done = call("predict", "spend", "new.csv", "--beside", "plan", "--beside", "note")
    assert done.code == DONE
    found = list(csv.reader(StringIO(done.out)))
    assert [line[:2] for line in found] == [
        ["plan", "note"],
        ["pro", "x"],
        ["unheard of", "y"],
        ["a,b", "z"],
    ]
    assert all(np.isfinite(float(line[2])) for line in found[1:])


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("plan\npro\n", (), "no column 'age'"),
        ("plan,age\npro,old\n", (), "column 'age', line 2: it is not a number"),
        ("plan,age\n", (), "has no rows"),
        ("plan,age\npro,1\n", ("--beside", "who"), "no column 'who'"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: tuple[str, ...], told: str) -> None:
    Path("new.csv").write_text(text)
    done = call("predict", "spend", "new.csv", *words)
    assert done.code == WRONG_INPUT and done.out == ""
    assert told in done.err


def test_what_is_missing_is_named(folder: Path) -> None:
    assert call("predict", "spend", "nothing.csv").code == DATA_MISSING
    done = call("predict", "nobody", folder / "rows.csv")
    assert done.code != DONE and "nobody" in done.err


def test_a_model_without_a_schema_takes_one(folder: Path) -> None:
    rows = pd.read_csv(folder / "rows.csv").dropna()
    with Registry.create("own") as registry:
        model = LinearRegression(alpha=0.1, random_state=0)
        registry.fit("own", model, rows[["age"]], rows["paid"])
        known = registry.model("own").predict(rows[["age"]])
    rows.to_csv("own.csv", index=False)
    done = call("predict", "own", "own.csv", "-r", "own")
    assert done.code == WRONG_INPUT and "say it with --schema" in done.err
    about = {"name": "paid", "task": "regression"}
    columns = [{"name": "age", "kind": "number"}]
    schema = {"format": "expunge schema 1", "target": about, "columns": columns}
    Path("schema.json").write_text(json.dumps(schema))
    done = call("predict", "own", "own.csv", "-r", "own", "--schema", "schema.json")
    assert done.code == DONE, done.err
    assert pd.read_csv(StringIO(done.out))["prediction"].tolist() == known.tolist()
