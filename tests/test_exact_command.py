# SPDX-License-Identifier: Apache-2.0
"""Exact models from the command line and over HTTP."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from expunge import EASE, MultinomialNB
from expunge.cli.app import app
from expunge.client import Client
from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings
from tests.services import serve_app, serve_in_process

PAIRS = [
    ("ann", "x", 5),
    ("ann", "y", 3),
    ("bob", "x", 4),
    ("bob", "z", 1),
    ("cay", "z", 2),
    ("cay", "y", 2),
    ("dan", "x", 1),
]


def call(*words: str, code: int = 0) -> Any:
    """Run a command; return what it printed as JSON, or its error."""
    done = CliRunner().invoke(app, [*words, "--registry", "reg", "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout if code == 0 else done.stderr)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [f"{user},{item},{stars}" for user, item, stars in PAIRS]
    Path("pairs.csv").write_text("\n".join(["user,item,stars", *lines]) + "\n")
    Registry.create(Path("reg")).close()
    return tmp_path


def test_fit_recommend_forget() -> None:
    told = call("fit", "films", "pairs.csv", "--model", "ease", "--l2", "2", *COLUMNS)
    assert told["kind"] == "ease"
    assert told["n_people"] == 4
    rated = ("--rating", "stars", "--l2", "2")
    call("fit", "rated", "pairs.csv", "--model", "ease", *COLUMNS, *rated)
    call("forget", "bob")
    left = [pair for pair in PAIRS if pair[0] != "bob"]
    for name, width in (("films", 2), ("rated", 3)):
        fresh = EASE(l2=2).fit([pair[:width] for pair in left])
        found = call("recommend", name, "x", "--k", "3")
        assert found["items"] == fresh.recommend(["x"], k=3).tolist()
    refused = call("fit", "again", "pairs.csv", "--model", "ease", *COLUMNS, code=2)
    assert "leave them out with --without-forgotten" in refused["error"]
    call("fit", "top", "pairs.csv", "--model", "popularity", *COLUMNS, OMIT)
    assert call("recommend", "top", "--k", "1")["items"] == ["x"]


def test_tables_of_numbers() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (40, 3)), rng.choice(["s", "t"], 40)
    rows = [f"p{i // 2},{y[i]},{','.join(map(str, X[i]))}" for i in range(40)]
    Path("nb.csv").write_text("\n".join(["who,label,a,b,c", *rows]) + "\n")
    nb = ("--model", "multinomial-nb", "--subject", "who")
    call("fit", "nb", "nb.csv", *nb, "--target", "label")
    call("forget", "p3")
    with Registry.open(Path("reg")) as registry:
        model = registry.model("nb")
    left = np.arange(40) // 2 != 3
    fresh = MultinomialNB().fit(X[left].astype(float), y[left])
    assert (model.feature_log_prob_ == fresh.feature_log_prob_).all()
    ridge = ("fit", "r", "nb.csv", "--model", "exact-ridge", "--subject", "who", OMIT)
    assert "--drop 'label'" in call(*ridge, "--target", "a", code=2)["error"]
    call(*ridge, "--target", "a", "--drop", "label", "--alpha", "2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "ease"], "name their columns with --user and --item"),
        (
            ["--model", "ease", "--user", "user", "--item", "item", "--sigma", "1"],
            "no b",
        ),
        (["--model", "multinomial-nb", "--user", "user"], "--user is for --model ease"),
        (["--subject", "user"], "what does the model predict?"),
        (
            ["--model", "popularity", "--user", "user", "--item", "item", "--l2", "2"],
            "l2",
        ),
    ],
)
def test_wrong_options_are_refused(words: list[str], message: str) -> None:
    assert message in call("fit", "films", "pairs.csv", *words, code=2)["error"]
    with Registry.open(Path("reg")) as registry:
        assert registry.models.names() == []


COLUMNS = ("--user", "user", "--item", "item")
OMIT = "--without-forgotten"


def test_recommend_over_http() -> None:
    columns = (*COLUMNS, "--l2", "2")
    call("fit", "films", "pairs.csv", "--model", "ease", *columns)
    call("forget", "bob")
    fresh = EASE(l2=2).fit([pair[:2] for pair in PAIRS if pair[0] != "bob"])
    wanted = {"items": ["x"], "k": 2}
    with Registry.open("reg") as registry, serve_in_process(registry) as service:
        path = "/api/v1/models/films/recommendations"
        answer = service.call("POST", path, "operate", json=wanted)
        assert answer.json() == {
            "model": "films",
            "items": fresh.recommend(["x"], k=2).tolist(),
        }
        assert service.call("POST", path, "request", json=wanted).status_code == 403
        refused = service.call("POST", path, "operate", json=wanted | {"k": 0})
        assert refused.status_code == 422
        unknown = path.replace("films", "nothing")
        assert service.call("POST", unknown, "operate", json=wanted).status_code == 404
        strange = service.call("POST", path, "operate", json={"items": ["nobody has"]})
        assert strange.status_code == 200  # who asks is not told what others have
    with Registry.open("reg") as registry:
        token = registry.access.create("shop", ["operate"])[1]
        settings = ServiceSettings(applies=False, is_secure=False)
        with serve_app(create_app(registry, settings)) as address:
            found = Client(address, token).recommend("films", ["x"], k=2)
    assert found == answer.json()["items"]
