# SPDX-License-Identifier: Apache-2.0
"""Learnt bins: edges are those of the remaining rows, and models follow them."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import Bins, Budget, LogisticRegression, load, ship
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing.bins import (
    MANY,
    find_bins,
    find_edges,
    guess_quantum,
    name_bins,
)
from expunge.preprocessing.columns import Recipe, learn_columns, read_columns
from expunge.preprocessing.learned import Learned
from expunge.preprocessing.learning import learn, learn_again, learn_features
from expunge.preprocessing.sklearn_steps import describe
from expunge.promise.scope import QUANTA_GUESSED
from tests.attack.pipelines import is_near
from tests.test_shipping_tables import run

Table = NDArray[Any]

VALUES = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e3, 1e3, allow_subnormal=False),
    st.sampled_from([0.0, 1.0, 1e300, -1e300, 1e-300]),
)


def edges_by_hand(values: list[float], n_bins: int, quantum: float) -> list[float]:
    """Return edges by the rule as it is written down, one value at a time."""
    counts = Counter(values)
    common = {v for v, n in counts.items() if n * n_bins > len(values)}
    others = sorted(set(counts) - common)
    n_others = sum(counts[v] for v in others)
    sizes = [{v: 1 for v in others}]
    if n_others > 2 * len(others):
        sizes.append({v: counts[v] for v in others})
    around = {v for one in common for v in (one, math.nextafter(one, -math.inf))}
    edges = set(around)
    for size in sizes:
        total = sum(size.values())
        for j in range(1, n_bins):
            below = 0
            for v in others:
                below += size[v]
                if n_bins * below >= j * total:
                    with np.errstate(all="ignore"):
                        near = float(np.rint(np.float64(v) / quantum) * quantum)
                    edges.add(near if math.isfinite(near) else v)
                    break
    alike: dict[int, list[float]] = {}
    for edge in sorted(edges):
        alike.setdefault(sum(v <= edge for v in values), []).append(edge)
    return [
        next((one for one in same if one in around), same[0])
        for below, same in sorted(alike.items())
        if 0 < below < len(values)
    ]


@given(st.lists(VALUES, max_size=40), st.integers(2, 6), st.sampled_from([0.1, 1, 50]))
def test_edges_follow_the_rule(values: Any, n_bins: int, quantum: float) -> None:
    found = find_edges(np.sort(values), n_bins, quantum=quantum)
    assert found.tolist() == edges_by_hand(values, n_bins, quantum)
    places = find_bins(found, np.array([*values, np.nan]))
    assert places[-1] == len(found) + 1
    if values:  # no range is empty
        assert set(places[:-1].tolist()) == set(range(len(found) + 1))
        assert len(set(name_bins("x", found.tolist()))) == len(found) + 2


@given(st.lists(VALUES, max_size=70), st.integers(0, 10**6))
def test_many_values_are_found_as_few_are(edges: Any, seed: int) -> None:
    ends = np.unique(edges) if edges else np.empty(0)
    values = np.array([*edges, np.nan, np.inf, -np.inf, 0.5])
    x = np.random.default_rng(seed).choice(values, MANY)
    alone = [find_bins(ends, x[i : i + 1])[0] for i in range(len(x))]
    assert find_bins(ends, x).tolist() == alone


@given(st.lists(VALUES, max_size=40), st.integers(2, 40))
def test_a_guessed_quantum_is_a_round_number(values: Any, n_bins: int) -> None:
    quantum = guess_quantum(np.array(values), n_bins)
    first = f"{quantum:.5e}"
    assert quantum > 0.0 and first[0] in "125" and first[1:7] == ".00000"


COLUMNS: dict[str, Any] = {
    "normal": lambda rng: rng.normal(size=300),
    "skewed": lambda rng: rng.lognormal(0.0, 2.0, 300),
    "mostly zero": lambda rng: rng.exponential(size=300) * (rng.random(300) < 0.4),
    "ages": lambda rng: rng.integers(18, 90, 300).astype(float),
    "few": lambda rng: rng.choice([0.1, 0.2, 0.4, 0.7, 0.9], 20),
    "three": lambda rng: np.array([0.0, 0.5, 1.0]),
}


@pytest.mark.parametrize("n_bins", [2, 4, 8, 32])
@pytest.mark.parametrize("kind", COLUMNS)
def test_one_odd_value_costs_few_bins(kind: str, n_bins: int) -> None:
    """Nor do units and where zero is: what is guessed follows the column."""
    x = COLUMNS[kind](np.random.default_rng(0))
    for odd in ([], [1e9], [-1e9], [1e300], [x.max() * 1e3 + 1.0]):
        for factor, shift in ((1.0, 0.0), (1e-7, 0.0), (1e7, 0.0), (1.0, 1e4)):
            values = np.sort(np.append(factor * x + shift, odd))
            quantum = guess_quantum(values, n_bins)
            edges = find_edges(values, n_bins, quantum=quantum)
            finest = find_edges(values, n_bins, quantum=1e-300)
            assert len(edges) >= 0.6 * len(finest)


def test_a_common_value_has_a_range_of_its_own() -> None:
    values = np.sort(np.r_[np.zeros(70), np.arange(1, 31)])
    edges = find_edges(values, 4, quantum=1.0)
    assert name_bins("gain", edges.tolist())[:-1] == [
        "gain <= 0",
        "0 < gain <= 8",
        "8 < gain <= 15",
        "15 < gain <= 23",
        "gain > 23",
    ]
    edges = find_edges(np.sort(values - 40.0 * (values > 20)), 4, quantum=1.0)
    assert "gain = 0" in name_bins("gain", edges.tolist())


def make_rows(seed: int, n: int) -> tuple[Table, Table]:
    """Return rows with repeated values, a common value, gaps, and a free number."""
    rng = np.random.default_rng(seed)
    age = rng.normal(40.0, 12.0, n).round()
    gain = np.where(rng.random(n) < 0.7, 0.0, rng.exponential(1e3, n).round())
    spent = rng.exponential(80.0, n)
    spent[rng.random(n) < 0.1] = np.nan
    y = np.sin(age / 8.0) + (gain > 500.0) + 0.5 * rng.logistic(size=n) > 0.5
    return np.column_stack([age, gain, spent]), y


STEPS = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), [0, 1, 2]),
    (Bins(6, (1.0, 20.0, 5.0)), [0, 1, 2]),
)


def learn_steps(X: Table) -> Any:
    described = describe(clone(STEPS), X)
    recipe = Recipe(described, learn_columns(described, X))
    return *learn(recipe, raw_rows(recipe, X)), recipe


def raw_rows(recipe: Recipe, X: Table) -> Any:
    from expunge.core.rows import Rows

    return Rows(read_columns(recipe.columns, X), np.ones(len(X)), np.ones(len(X)))


@given(st.integers(0, 10**6))
def test_what_remains_has_the_edges_of_a_fit_to_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, _ = make_rows(seed, int(rng.integers(8, 60)))
    recipe, statistics, features, _ = learn_steps(X)
    stay = np.ones(len(X), dtype=bool)
    for _ in range(4):
        gone = stay & (rng.random(len(X)) < 0.2)
        if gone.sum() >= stay.sum() - 1:
            return
        stay &= ~gone
        statistics = statistics.without(read_columns(recipe.columns, X[gone]))
        features = learn_again(recipe, statistics, before=features)
        assert features.equals(learn_features(recipe, statistics))
        fresh = learn_steps(X[stay])[2]
        assert features.layout.names == fresh.layout.names
        assert features.equals(fresh)
        raw = read_columns(recipe.columns, X[stay])
        split = features.split(raw).toarray()
        assert split.tobytes() == features.encode(raw).tobytes()
        assert (
            split[:, [code is not None for code in features.layout.codes]].any(0).all()
        )


def fitted(X: Table, y: Table, **settings: Any) -> LogisticRegression:
    model = LogisticRegression(alpha=1e-3, preprocessing=clone(STEPS), **settings)
    return model.fit(X, y, subjects=[str(i) for i in range(len(X))])


def names_of(model: LogisticRegression) -> tuple[str, ...]:
    public: Any = public_model(model)
    names: tuple[str, ...] = public.preprocessing.names
    return names


@pytest.mark.parametrize("balance", [None, "balanced"])
def test_a_request_gives_what_a_fit_to_the_rest_gives(balance: Any) -> None:
    X, y = make_rows(1, 400)
    model = fitted(X, y, class_weight=balance, budget=Budget(sigma=1e-3))
    stay, moved, replaced = np.ones(len(X), dtype=bool), 0, 0
    for i in np.random.default_rng(2).permutation(len(X))[:30]:
        before = names_of(model)
        model.forget([str(i)])
        stay[i] = False
        fresh = LogisticRegression(
            alpha=1e-3, preprocessing=clone(STEPS), class_weight=balance
        ).fit(X[stay], y[stay])
        assert names_of(model) == names_of(fresh)
        if names_of(model) != before:
            moved += 1
            replaced += model.record_.decisions != ("retrained",)
        private = private_model(model)
        off = private.answer.draft.theta - private_model(fresh).answer.draft.theta
        radius = private.answer.radius.value + private_model(fresh).answer.radius.value
        assert np.linalg.norm(off) <= radius < 1e-3
    assert 5 < moved < 30 and replaced
    model.add(X[~stay][:1], y[~stay][:1], subjects=["new"])
    model.forget(["new"])
    assert model.certificate_.status == "certified"


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_fit_after_bins_came_or_went_starts_where_the_last_one_ended(
    outputs: int,
) -> None:
    X, _ = make_rows(8, 200)
    gaps = np.isnan(X[:, 2])
    recipe = learn_steps(X)[3]
    first, rest = (
        Learned.of(recipe, raw_rows(recipe, rows), intercept=True)
        for rows in (X, X[~gaps][:90])
    )
    names, left = first.features.layout.names, rest.features.layout.names
    assert "x2 missing" in names and len(names) != len(left)
    theta = np.random.default_rng(0).normal(size=(len(names) + 1, outputs))
    carried = rest.carry(theta.ravel(), first, outputs=outputs)
    found = dict(zip([*left, "intercept"], carried.reshape(-1, outputs), strict=True))
    known = dict(zip([*names, "intercept"], theta, strict=True))
    for name in {*found} & {*known}:
        assert (found[name] == known[name]).all()
    # Every bin has what some bin of the same column had.
    for name, own in found.items():
        assert any((own == one).all() for one in known.values()), name
    again = first.carry(carried, rest, outputs=outputs).reshape(-1, outputs)
    assert (again[names.index("x2 missing")] == 0.0).all()
    assert first.carry(theta.ravel(), first, outputs=outputs) is not None


def test_a_class_may_come_with_bins() -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 9, (60, 2)).astype(float)
    y = np.where(X.sum(axis=1) > 8, "high", "low")
    model = LogisticRegression(alpha=0.1, preprocessing=Bins(4, 1.0), budget=Budget())
    model.fit(X, y)
    more = rng.integers(20, 40, (9, 2)).astype(float)
    model.add(more, ["far"] * 9)
    fresh = clone(model).fit(np.vstack([X, more]), [*y, *["far"] * 9])
    assert list(model.classes_) == ["far", "high", "low"]
    assert np.abs(model.coef_ - fresh.coef_).max() < 0.02


def test_gaps_are_a_range_of_their_own_while_there_are_some() -> None:
    X, y = make_rows(3, 300)
    gaps = np.flatnonzero(np.isnan(X[:, 2]))
    X[gaps[3:], 2] = 1.0
    model = fitted(X, y, budget=Budget())
    assert "x2 missing" in names_of(model)
    model.forget([str(i) for i in gaps[:3]])
    assert "x2 missing" not in names_of(model)
    assert np.isfinite(model.predict_proba(X[gaps[:1]])).all()
    model.add(X[gaps[:1]], y[gaps[:1]], subjects=["back"])
    assert "x2 missing" in names_of(model)


def test_files_graphs_and_pipelines_carry_bins(tmp_path: Path) -> None:
    X, y = make_rows(4, 400)
    X[:200, 1] -= 40.0 * (X[:200, 1] > 0)  # the common value is in the middle
    model = fitted(X, y, budget=Budget())
    expected = model.predict_proba(X)
    plain = model.to_sklearn()
    assert is_near(plain.predict_proba(X), expected)
    model.save(tmp_path / "model")
    read = load(tmp_path / "model")
    read.forget(["7"])
    model.forget(["7"])
    one, other = private_model(read), private_model(model)
    assert one.answer.draft.theta.tobytes() == other.answer.draft.theta.tobytes()
    for dtype, off in (("float32", 1e-4), ("float64", 1e-12)):
        place = tmp_path / f"{dtype}.onnx"
        ship(model, place, dtype=dtype)
        for runtime in ("reference", "onnxruntime"):
            found = run(place, X, runtime)["probabilities"]
            assert np.abs(found - model.predict_proba(X)).max() < off


def test_a_pandas_column_is_binned_beside_its_scaled_number() -> None:
    X, y = make_rows(5, 300)
    frame = pd.DataFrame(X, columns=["age", "gain", "spent"])
    steps = make_column_transformer((StandardScaler(), ["age"]), (Bins(4), ["age"]))
    model = LogisticRegression(preprocessing=steps, budget=Budget()).fit(frame, y)
    names = names_of(model)
    assert names[0] == "age" and names[1].startswith("age <= ")
    assert QUANTA_GUESSED in model.certificate_.not_covered
    steps = make_column_transformer((Bins(4, 5.0), ["age"]))
    model = LogisticRegression(preprocessing=steps, budget=Budget()).fit(frame, y)
    assert QUANTA_GUESSED not in model.certificate_.not_covered


@pytest.mark.parametrize(
    ("steps", "error", "words"),
    [
        (Bins(1), InvalidInput, "give 2 to 10,000"),
        (Bins(10**9), InvalidInput, "give 2 to 10,000"),
        (Bins(4, -1.0), InvalidInput, "positive"),
        (Bins(4, (1.0,)), InvalidInput, "3 columns"),
        (make_pipeline(SimpleImputer(), Bins()), Unsupported, "as they are"),
        (make_pipeline(Bins(), StandardScaler()), Unsupported, "as they are"),
    ],
)
def test_what_cannot_be_is_refused(steps: Any, error: Any, words: str) -> None:
    X, y = make_rows(6, 60)
    with pytest.raises(error, match=words):
        LogisticRegression(preprocessing=steps).fit(X, y)


def test_without_rows_bins_are_refused() -> None:
    X, y = make_rows(7, 60)
    with pytest.raises(InvalidInput, match="learnt bins"):
        fitted(X, y, keep_data=False)
