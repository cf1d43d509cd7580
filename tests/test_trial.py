# SPDX-License-Identifier: Apache-2.0
"""Trials: people are held out whole, each counts once, and scores carry noise."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Unchangeable

from expunge import Budget, LinearRegression, LogisticRegression, PoissonRegressor
from expunge.exceptions import InvalidInput
from expunge.selection.choice import folds_of
from expunge.tables import Schema, TrainingTable
from expunge.tables.schema import make_column
from expunge.tables.trial import TrialScore, try_model

pa: Any = import_module("pyarrow")  # it ships no types

KEY = b"key"
N_PEOPLE = 2000
SCHEMA = Schema("y", "classification", (make_column("a", "number"),))


def make_table(rows_each: int = 2, n_people: int = N_PEOPLE) -> TrainingTable:
    """Return rows of people; the class follows from the one feature, mostly."""
    rng = np.random.default_rng(0)
    n = rows_each * n_people
    a = rng.normal(size=n)
    y = (a + 0.5 * rng.normal(size=n) > 0.8).astype(int)
    subjects = [f"p{i // rows_each}" for i in range(n)]
    return TrainingTable(pa.table({"a": a}), y, subjects, None, SCHEMA)


def estimator(**settings: Any) -> Any:
    budget = Budget(epsilon=1.0, sigma=0.01, allow_seeded=True)
    given: dict[str, Any] = {"alpha": 1e-3, "budget": budget, "random_state": 0}
    return LogisticRegression(**given | settings)


def score_exactly(table: TrainingTable, key: bytes) -> tuple[float, float]:
    """Return the scores without noise, by scikit-learn's model of the others."""
    assert table.subjects is not None
    held = folds_of(table.subjects, key, n_folds=10) == 0
    X, y = np.asarray(table.X["a"])[:, None], table.y
    model = Unchangeable(C=1e3 / (~held).sum()).fit(X[~held], y[~held])
    people = np.array(table.subjects)[held]
    right = model.predict(X[held]) == y[held]
    common = np.bincount(y[~held]).argmax() == y[held]
    by_person = [
        np.mean([values[people == one].mean() for one in np.unique(people)])
        for values in (right, common)
    ]
    return float(by_person[0]), float(by_person[1])


def test_scores_are_those_of_the_others_with_noise() -> None:
    table = make_table()
    found = try_model(estimator(), table, key=KEY)
    score, guess = score_exactly(table, KEY)
    assert abs(found.score - score) < 4 * found.noise
    assert abs(found.guess - guess) < 4 * found.noise
    assert found.score > found.guess + 4 * found.noise
    assert found.score != score


def test_noise_hides_one_person_of_those_held_out() -> None:
    table = make_table()
    found = try_model(estimator(), table, key=KEY)
    assert table.subjects is not None
    people = np.array(table.subjects)
    n_held = len(set(people[folds_of(table.subjects, KEY, n_folds=10) == 0]))
    mu = Budget(epsilon=1.0).gdp
    # Two means over n_held people, each moved by at most 1 / n_held.
    assert found.noise == pytest.approx(np.sqrt(2.0) / n_held / mu)


def test_noise_is_drawn_afresh() -> None:
    table = make_table()
    unseeded = estimator(random_state=None)
    scores = {try_model(unseeded, table, key=KEY).score for _ in range(3)}
    assert len(scores) == 3


def test_people_are_held_out_at_random() -> None:
    table = make_table()
    # The noise of the seed is the same; who is held out is not.
    scores = {try_model(estimator(), table).score for _ in range(3)}
    assert len(scores) > 1


def test_person_with_many_rows_counts_once() -> None:
    table = make_table(rows_each=1)
    assert table.subjects is not None
    held = folds_of(table.subjects, KEY, n_folds=10) == 0
    # One of those held out has a thousand more rows, all of them wrong.
    place = int(np.flatnonzero(held)[0])
    a, y = np.asarray(table.X["a"]), table.y
    wrong = TrainingTable(
        pa.table({"a": np.append(a, np.full(1000, 10.0))}),
        np.append(y, np.zeros(1000, dtype=int)),
        table.subjects + [table.subjects[place]] * 1000,
        None,
        SCHEMA,
    )
    before = try_model(estimator(), table, key=KEY)
    after = try_model(estimator(), wrong, key=KEY)
    assert before.noise == after.noise
    assert abs(before.score - after.score) <= 1.01 / held.sum()


def test_estimator_stays_unfitted_and_weights_count() -> None:
    table = replace(make_table(), weight=np.ones(2 * N_PEOPLE))
    model = estimator()
    try_model(model, table, key=KEY)
    assert not hasattr(model, "_snapshot")


def test_regression_is_compared_with_the_median() -> None:
    table = make_table()
    a = np.asarray(table.X["a"])
    schema = replace(SCHEMA, task="regression")
    amounts = replace(table, y=3.0 * a, schema=schema)
    model = LinearRegression(
        alpha=1e-3, budget=Budget(sigma=0.01, allow_seeded=True), random_state=0
    )
    found = try_model(model, amounts, key=KEY)
    assert found.guess == 0.5
    assert found.score > 0.9
    assert "nearer to the truth than the median" in found.describe()


def test_rare_counts_are_compared_with_their_rate() -> None:
    # Most counts are zero, and so is their median: no mean is nearer.
    table = make_table()
    years = np.linspace(0.5, 1.5, len(table.y))
    counts = np.where(np.asarray(table.X["a"]) > 0.5, table.y, 0)
    schema = replace(SCHEMA, task="regression")
    rare = replace(table, y=counts, exposure=years, schema=schema)
    budget = Budget(sigma=0.001, allow_seeded=True)
    model = PoissonRegressor(alpha=1e-3, budget=budget, random_state=0)
    found = try_model(model, rare, key=KEY)
    assert found.score > 0.7
    assert "nearer to the truth than the best constant" in found.describe()


def test_few_people_are_not_tried() -> None:
    with pytest.raises(InvalidInput, match="too few people to try the model"):
        try_model(estimator(), make_table(n_people=40), key=KEY)


def test_sentence_says_what_to_expect() -> None:
    text = TrialScore(
        "classification", "the most common class", 0.852, 0.761, 0.0013
    ).describe()
    assert text == (
        "with people it has not seen, right in about 85.2% of rows, where the most "
        "common class is in 76.1%, give or take 0.3 points of noise"
    )
