# SPDX-License-Identifier: Apache-2.0
"""Categories of two columns: forgotten like those of one."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import expunge
from expunge import Automatic, Budget, LogisticRegression, Pair, load
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model
from expunge.registry import Registry
from tests.calling import call

PAIRS = ColumnTransformer(
    [
        (
            "pair",
            make_pipeline(Pair(), OneHotEncoder(handle_unknown="ignore")),
            ["job", "town"],
        )
    ]
)


def table(n: int = 300) -> tuple[pd.DataFrame, Any, list[str]]:
    """Return two columns that tell nothing but together; a pair is one person's."""
    rng = np.random.default_rng(0)
    job = rng.choice(["nurse", "cook", "R&D"], n).astype(object)
    town = rng.choice(["Ulm", "Bonn & co"], n).astype(object)
    job[::31] = None
    job[:2], town[:2] = "pilot", "Kiel"
    odd = (job == "nurse") ^ (town == "Ulm") ^ (rng.random(n) < 0.05)
    return (
        pd.DataFrame({"job": job, "town": town}),
        odd,
        [f"p{i // 2}" for i in range(n)],
    )


def test_a_pair_is_forgotten_like_a_category(tmp_path: Path) -> None:
    X, y, people = table()
    model = LogisticRegression(alpha=1e-2, preprocessing=PAIRS, budget=Budget())
    model.fit(X, y, people)
    names = model.get_feature_names_out().tolist()
    assert "job & town_pilot & Kiel" in names
    assert "job & town_R&&D & Bonn && co" in names
    assert "job & town_nan & Ulm" in names
    assert model.score(X, y) > 0.9
    model.forget(["p0"])  # the only one with this pair
    assert "job & town_pilot & Kiel" not in model.get_feature_names_out()
    model.forget(["p5"])
    assert model.certificate_.status == "certified"
    rest = np.setdiff1d(np.arange(len(y)), [0, 1, 10, 11])
    fresh = LogisticRegression(alpha=1e-2, preprocessing=PAIRS).fit(
        X.loc[rest], y[rest]
    )
    mine, exact = private_model(model).answer, private_model(fresh).answer
    distance = np.linalg.norm(mine.draft.theta - exact.draft.theta)
    assert distance <= mine.radius.value + exact.radius.value
    words = X["job"].fillna("nan").str.replace("&", "&&")
    words = words + " & " + X["town"].str.replace("&", "&&")
    flags = pd.get_dummies(words.loc[rest]).to_numpy(dtype=float)
    plain = Plain(C=1 / (1e-2 * len(rest)), tol=1e-10).fit(flags, y[rest])
    assert np.allclose(fresh.predict_proba(X.loc[rest]), plain.predict_proba(flags))
    model.save(tmp_path / "model")
    assert (load(tmp_path / "model").predict(X) == model.predict(X)).all()
    model.add(X[:2], y[:2], subjects=["p0", "p0"])
    assert "job & town_pilot & Kiel" in model.get_feature_names_out()


def test_words_of_two_columns_are_never_mixed_up() -> None:
    rows = [("a & b", "c"), ("a", "b & c"), ("a &", "& c"), ("a", "&& c"), ("a&", "c")]
    X = np.array([*rows, ("a", "& c"), (1, 2.0), (None, float("nan"))], dtype=object)
    made = Pair().encode(X)[:, 0].tolist()
    assert len(set(made)) == len(made)
    alone = [Pair().encode(row[None, :])[0, 0] for row in X]
    assert alone == made
    assert made[-2:] == ["1 & 2", "nan & nan"]


def test_auto_takes_pairs(tmp_path: Path) -> None:
    X, y, people = table()
    X = X.assign(age=np.arange(len(y)) % 40 + 0.5)
    given = [("job", "town")]
    alone = LogisticRegression(preprocessing="auto").fit(X, y)
    model = LogisticRegression(preprocessing=Automatic(pairs=given), budget=Budget())
    model.fit(X, y, people).forget(["p7"])
    assert model.certificate_.status == "certified"
    assert model.score(X, y) > alone.score(X, y) + 0.1
    assert model.predict(X[:3]).shape == (3,)
    for pairs, said in (
        ([("job", "age")], "column 'age' is no category here"),
        ([("job", "none")], "column 'none' is not in the table"),
        ([("job", "job")], "give two different columns"),
    ):
        with pytest.raises(InvalidInput, match=said):
            LogisticRegression(preprocessing=Automatic(pairs=pairs)).fit(X, y)
    three = make_pipeline(Pair(), OneHotEncoder())
    with pytest.raises(InvalidInput, match="Pair of 3 columns; give it two"):
        LogisticRegression(preprocessing=three).fit(X, y)
    with pytest.raises(Unsupported, match="Pair"):
        expunge.ship(model, tmp_path / "model.onnx")
    with pytest.raises(Unsupported, match="Pair"):
        model.to_sklearn()


def test_command_line_and_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y, people = table()
    X.assign(y=np.where(y, "yes", "no"), who=people).to_csv("rows.csv", index=False)
    assert call("init").code == 0
    about = ("rows.csv", "--target", "y", "--subject", "who", "--no-trial")
    done = call("fit", "a", *about, "--pair", "job,town")
    assert "job & town pair one-hot, categories learnt" in done.words, done.err
    schema = Path("rows.schema.json")
    assert schema.read_text().endswith(' "pairs": [["job", "town"]]\n}\n')
    assert call("fit", "b", *about, "--schema", schema).code == 0
    assert call("forget", "p3").code == 0
    X[:2].assign(y="no", who="new").to_csv("more.csv", index=False)
    assert call("add", "b", "more.csv").code == 0
    assert call("predict", "b", "rows.csv").code == 0
    with Registry.open(tmp_path / "expunge-registry") as registry:
        assert registry.model("b").certificate_.status == "certified"
        assert registry.model("b").score(X, np.where(y, "yes", "no")) > 0.9
    for pair, said in (("job", "give two columns"), ("job,who", "kind category")):
        assert said in call("fit", "c", *about, "--pair", pair).err
    bad = schema.read_text().replace('["job", "town"]', '["job"]')
    Path("bad.json").write_text(bad)
    assert (
        "a list of two columns" in call("fit", "c", *about, "--schema", "bad.json").err
    )
