# SPDX-License-Identifier: Apache-2.0
"""Categories encoded by what people answered: exact, by folds of people, and public."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

import expunge
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    SoftmaxRegression,
    TargetMeans,
    TunedClassifier,
)
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing.target_means import Answers, learn_means
from expunge.promise.scope import MEANS_PUBLIC
from expunge.registry import Registry

N = 400
LEAST = 5
CITIES = ["a", "b", "c", "d", "rare"]


def table(seed: int = 0) -> pd.DataFrame:
    """Return numbers, words with gaps, one of them rare, and whole numbers."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "age": rng.normal(size=N),
            "city": rng.choice(CITIES, N, p=[0.4, 0.3, 0.2, 0.09, 0.01]).astype(object),
            "code": rng.integers(0, 4, N),
        }
    )
    found.loc[::9, "city"] = None
    return found


X = table()
PEOPLE = [f"person {i // 2}" for i in range(N)]
NOISE = np.random.default_rng(1).normal(size=N)
TARGETS: dict[str, NDArray[Any]] = {
    "two classes": np.asarray(X["age"] + NOISE > 0.0),
    "three classes": np.array(["x", "y", "z"])[X["code"] % 3],
    "numbers": np.asarray(1e3 + X["age"] + NOISE),
}
MODELS: dict[str, Any] = {
    "two classes": LogisticRegression,
    "three classes": SoftmaxRegression,
    "numbers": LinearRegression,
}
STEPS = make_column_transformer(
    (StandardScaler(), ["age"]),
    (TargetMeans(LEAST), ["city", "code"]),
    (OneHotEncoder(), ["code"]),
    sparse_threshold=0.0,
)


def encoded(model: Any, rows: Any = X) -> NDArray[Any]:
    fitted: Any = public_model(model)
    return np.asarray(fitted.preprocessing.encode(rows))


def kept(model: Any) -> NDArray[Any]:
    """Return the rows that the head sees."""
    rows: Any = private_model(model).remaining_rows()
    return np.asarray(rows.dense())


@pytest.mark.parametrize("kind", TARGETS)
def test_forgetting_is_fitting_the_rest(kind: str, tmp_path: Path) -> None:
    """Encodings for predictions, and those that rows of the model have, to the bit."""
    y = TARGETS[kind]
    model = MODELS[kind](alpha=1e-2, preprocessing=STEPS, budget=Budget(sigma=0.1))
    model.fit(X, y, PEOPLE).forget(["person 3", "person 100"])
    model.save(tmp_path)
    model = expunge.load(tmp_path)
    model.forget(["person 4"])
    left = ~np.isin(PEOPLE, ["person 3", "person 100", "person 4"])
    fresh = clone(model).set_params(budget=None)
    fresh.fit(X[left], y[left], np.array(PEOPLE)[left])
    assert np.array_equal(encoded(model), encoded(fresh))
    assert np.array_equal(kept(model), kept(fresh))
    answer, exact = private_model(model).answer, private_model(fresh).answer
    distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
    assert distance <= answer.radius.value + exact.radius.value
    assert model.certificate_.status == "certified"
    assert MEANS_PUBLIC in model.certificate_.not_covered
    names = model.get_feature_names_out().tolist()
    assert len(names) == encoded(model).shape[1]
    asked = model.predict if kind == "numbers" else model.predict_proba
    plain = model.to_sklearn()
    expected = plain.predict(X) if kind == "numbers" else plain.predict_proba(X)
    np.testing.assert_allclose(asked(X), expected)


@pytest.mark.parametrize("smooth", ["auto", 0.0, 7.0])
@pytest.mark.parametrize("kind", TARGETS)
def test_is_scikit_learns_where_enough_people_are(kind: str, smooth: Any) -> None:
    y = TARGETS[kind]
    steps = make_column_transformer((TargetMeans(LEAST, smooth), ["city", "code"]))
    model = MODELS[kind](alpha=1e-2, preprocessing=steps).fit(X, y, PEOPLE)
    theirs = TargetEncoder(smooth=smooth).fit(X[["city", "code"]], y)
    expected = theirs.transform(X[["city", "code"]])
    if kind == "numbers":  # in deviations
        expected = (expected - y.mean()) / y.std()
    common = (X["city"] != "rare").to_numpy()
    np.testing.assert_allclose(encoded(model)[common], expected[common], atol=1e-10)
    # Who are too few are encoded as those are whom nobody is like.
    alone, new = X[~common], X[~common].assign(city="never seen")
    np.testing.assert_array_equal(encoded(model, alone), encoded(model, new))


def test_rows_are_encoded_by_what_others_answered() -> None:
    """By scikit-learn fitted to the other folds, which are found by id and key."""
    from hashlib import sha256

    y = TARGETS["numbers"]
    steps = make_column_transformer((TargetMeans(2, "auto", folds=3, key=7), ["code"]))
    model = LinearRegression(preprocessing=steps).fit(X, y, PEOPLE)
    digests = [sha256(f"7:{one}".encode()).hexdigest() for one in PEOPLE]
    folds = np.array([(int(one[:16], 16) >> 12) % 3 for one in digests])
    for fold in range(3):
        other = TargetEncoder().fit(X.loc[folds != fold, ["code"]], y[folds != fold])
        expected = other.transform(X.loc[folds == fold, ["code"]])
        expected = (expected - y.mean()) / y.std()
        np.testing.assert_allclose(kept(model)[folds == fold, :1], expected, atol=1e-10)


def test_people_are_counted_not_their_rows() -> None:
    """A mean of many rows of one person would be what they answered."""
    answers = Answers(np.zeros((20, 2)), np.arange(20.0), 0)
    one, _ = learn_means(TargetMeans(2), answers, column=0)
    assert not one.known
    answers.raw[10:, 1] = 1.0
    two, _ = learn_means(TargetMeans(2), answers, column=0)
    assert two.known == (0,)


def test_a_category_of_too_few_is_not_named() -> None:
    steps = make_column_transformer(
        (TargetMeans(30), ["city"]), (StandardScaler(), ["age"])
    )
    model = LogisticRegression(preprocessing=steps).fit(
        X, TARGETS["two classes"], PEOPLE
    )
    fitted: Any = public_model(model)
    named = fitted.preprocessing.first.columns[0].categories
    assert {"a", "b"} <= {*named} <= {*CITIES[:4], None}


def test_where_nobody_is_frequent_the_column_is_constant(tmp_path: Path) -> None:
    steps = make_column_transformer(
        (TargetMeans(10**6), ["city", "code"]), (StandardScaler(), ["age"])
    )
    y = TARGETS["two classes"]
    model = LogisticRegression(preprocessing=steps).fit(X, y, PEOPLE)
    model.forget(["person 1"])
    assert np.ptp(encoded(model)[:, :2]) == 0.0
    np.testing.assert_allclose(
        model.to_sklearn().predict_proba(X), model.predict_proba(X)
    )
    expunge.ship(model, tmp_path / "release.onnx")


def test_files_and_graphs_hold_it(tmp_path: Path) -> None:
    y = TARGETS["three classes"]
    model = SoftmaxRegression(alpha=1e-2, preprocessing=STEPS, class_weight="balanced")
    model.fit(X, y, PEOPLE).forget(["person 7"])
    expunge.ship(model, tmp_path / "a.safetensors")
    again = expunge.read_shipped(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    path = tmp_path / "a.onnx"
    expunge.ship(model, path)
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    given = {
        "age": X[["age"]].to_numpy(),
        "code": X[["code"]].to_numpy(dtype=float),
        "city": np.array(
            [["" if pd.isna(one) else one] for one in X["city"]], dtype=object
        ),
    }
    (found,) = session.run(["probabilities"], given)
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-12)


def test_people_and_categories_come() -> None:
    y = TARGETS["numbers"]
    model = LinearRegression(alpha=1e-2, preprocessing=STEPS).fit(X, y, PEOPLE)
    new = X[:12].assign(city="new")
    owners = [f"new {i}" for i in range(12)]
    model.add(new, y[:12], subjects=owners)
    everyone, answers = pd.concat([X, new]), np.append(y, y[:12])
    fresh = clone(model).fit(everyone, answers, [*PEOPLE, *owners])
    assert np.array_equal(encoded(model, everyone), encoded(fresh, everyone))
    assert np.array_equal(kept(model), kept(fresh))


def test_tuning_scores_people_by_what_others_answered() -> None:
    y = TARGETS["two classes"]
    tuned = TunedClassifier(
        alphas=(1e-2, 1e-1), folds=3, preprocessing=STEPS, fold_key="key"
    )
    tuned.fit(X, y, PEOPLE).forget(["person 7"])
    left = ~np.isin(PEOPLE, ["person 7"])
    fresh = clone(tuned).fit(X[left], y[left], np.array(PEOPLE)[left])
    np.testing.assert_allclose(tuned.coef_, fresh.coef_, atol=1e-10)


def test_a_registry_adds_and_rectifies(tmp_path: Path) -> None:
    y = TARGETS["numbers"]
    model = LinearRegression(alpha=1e-2, preprocessing=STEPS, budget=Budget(sigma=1))
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("claims", model, X, y, subjects=PEOPLE)
        registry.forget(["person 3"])
        registry.add("claims", X[:2], y[:2], subjects=["new", "new"])
        found = registry.model("claims")
    left = ~np.isin(PEOPLE, ["person 3"])
    everyone = pd.concat([X[left], X[:2]])
    owners = [*np.array(PEOPLE)[left], "new", "new"]
    fresh = clone(model).set_params(budget=None)
    fresh.fit(everyone, np.append(y[left], y[:2]), owners)
    assert np.array_equal(encoded(found), encoded(fresh))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (TargetMeans(1), "a mean of one person is what they answered"),
        (TargetMeans(2.5), "give a whole number"),  # type: ignore[arg-type]
        (TargetMeans(folds=1), "at least 2"),
        (TargetMeans(key="k"), "give a whole number"),  # type: ignore[arg-type]
        (TargetMeans(smooth=-1.0), "'auto', or a number of rows"),
        (TargetMeans(smooth=np.nan), "'auto', or a number of rows"),
        (make_pipeline(TargetMeans(), StandardScaler()), "no sums tell of"),
        (make_pipeline(OneHotEncoder(), TargetMeans()), "the columns as they are"),
        (TargetEncoder(), r"use expunge.TargetMeans\(\)"),
    ],
)
def test_what_is_no_such_step_is_refused(step: Any, message: str) -> None:
    steps = make_column_transformer((step, ["city"]))
    with pytest.raises((InvalidInput, Unsupported), match=message):
        LogisticRegression(preprocessing=steps).fit(X, TARGETS["two classes"], PEOPLE)


def test_two_keys_are_refused() -> None:
    steps = make_column_transformer(
        (TargetMeans(key=1), ["city"]), (TargetMeans(key=2), ["code"])
    )
    with pytest.raises(InvalidInput, match="give them the same key"):
        LogisticRegression(preprocessing=steps).fit(X, TARGETS["two classes"], PEOPLE)


def test_rows_without_people_are_refused() -> None:
    y = TARGETS["two classes"]
    model = LogisticRegression(preprocessing=STEPS)
    with pytest.raises(InvalidInput, match=r"say whose they are: subjects=\[...\]"):
        model.fit(X, y)
    model.fit(X, y, PEOPLE)
    with pytest.raises(InvalidInput, match="forget people by their ids"):
        model.forget(X=X[:1], y=y[:1])
    with pytest.raises(InvalidInput, match="keep_data=True"):
        LogisticRegression(preprocessing=STEPS, keep_data=False).fit(X, y, PEOPLE)


def test_labels_without_a_mean_are_refused() -> None:
    y = TARGETS["numbers"]
    with pytest.raises(Unsupported, match="of several targets"):
        LinearRegression(preprocessing=STEPS).fit(X, np.column_stack([y, y]), PEOPLE)
    with pytest.raises(Unsupported, match="with offsets"):
        PoissonRegressor(preprocessing=STEPS).fit(
            X, np.abs(y), PEOPLE, offset=np.zeros(N)
        )
    with pytest.raises(ValueError, match="NaN"):
        LinearRegression(preprocessing=STEPS).fit(
            X, np.where(y > 1e3, y, np.nan), PEOPLE
        )


def test_maps_may_follow_all_of_it() -> None:
    steps = make_pipeline(STEPS, PolynomialFeatures(2, include_bias=False))
    y = TARGETS["two classes"]
    model = LogisticRegression(alpha=1e-1, preprocessing=steps).fit(X, y, PEOPLE)
    model.forget(["person 9"])
    left = ~np.isin(PEOPLE, ["person 9"])
    fresh = clone(model).fit(X[left], y[left], np.array(PEOPLE)[left])
    assert np.array_equal(kept(model), kept(fresh))
