# SPDX-License-Identifier: Apache-2.0
"""A process that did not fit a model applies requests to it: it imports less."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from expunge import Budget, FixedMap, LogisticRegression
from expunge.registry import Registry

KINDS = """
import pkgutil
import expunge.registry
from expunge.core.values import STORED_LATER, stored_kinds
for one in pkgutil.iter_modules(expunge.registry.__path__, "expunge.registry."):
    __import__(one.name)
for module in STORED_LATER:
    __import__(module)
known = set(stored_kinds())
import expunge.linear_model, expunge.selection, expunge.adopt, expunge.plan
print(sorted(set(stored_kinds()) - known))
"""


def lengths(texts: Any) -> Any:
    return np.array([[len(text), text.count("a")] for text in texts], dtype=float)


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_knows_every_class_that_estimators_are_made_of() -> None:
    assert run("-c", KINDS).strip() == "[]"


def test_scikit_learn_is_not_imported_for_a_table_of_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(20, 80, 200), "plan": [*"ab"] * 100})
    people = [f"p{i}" for i in range(200)]
    model = LogisticRegression(alpha=0.1, preprocessing="auto", budget=Budget())
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("m", model, X, rng.random(200) < 0.5, subjects=people)
    code = f"""import sys
from expunge.registry import Registry
with Registry.open({str(tmp_path / "registry")!r}) as registry:
    registry.forget(["p3"])
    print(len(registry.requests.find_models(["p3"])["p3"]), "sklearn" in sys.modules)"""
    assert run("-c", code).split() == ["0", "False"]


@pytest.mark.parametrize("given", ["texts", "dicts", "encoder"])
def test_people_leave_models_of_texts_from_the_command_line(
    given: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    y = rng.random(120) < 0.5
    X: Any = ["a" * (3 + 2 * k + rng.integers(3)) + " b" for k in y.astype(int)]
    steps: Any = HashingVectorizer(n_features=64)
    if given == "dicts":
        X, steps = [{"n": len(text)} for text in X], FeatureHasher(n_features=64)
    elif given == "encoder":
        steps = FixedMap(lengths)
    model = LogisticRegression(
        alpha=1e-2, preprocessing=steps, budget=Budget(sigma=0.01)
    )
    people = [f"p{i // 2}" for i in range(120)]
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", model, X, y, subjects=people)
    place = ("--registry", str(tmp_path / "registry"))
    assert "receipt" in run("-m", "expunge", "forget", "p7", "--json", *place)
    with Registry.open(tmp_path / "registry") as registry:
        (status,) = registry.status().models
        assert status.n_people == 59 and status.number == 2
