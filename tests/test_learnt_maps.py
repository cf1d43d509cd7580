# SPDX-License-Identifier: Apache-2.0
"""Maps that are learnt from all rows: at every request again, from exact statistics."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

import expunge
from expunge import Budget, LinearRegression, LogisticRegression
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model, public_model

N = 160
# Numbers, waiting times with gaps, whole numbers, counts of two words, three codes.
NUMBER, TIME, WHOLE, WORDS, CODE = 0, 1, 2, [3, 4], 5


def table(seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=N),
            rng.exponential(size=N),
            np.round(rng.normal(size=N)),
            *rng.poisson([[0.5], [1.0]], (2, N)),
            rng.integers(0, 3, N),
        ]
    )
    X[::7, TIME] = np.nan
    return X


X = table()
Y = X[:, NUMBER] + np.random.default_rng(1).normal(size=N) > 0.0
PEOPLE = [f"person {i // 2}" for i in range(N)]
RANKS = QuantileTransformer(subsample=None, n_quantiles=20)
STEPS: dict[str, Any] = {
    "knots at quantiles": SplineTransformer(knots="quantile", n_knots=4),
    "knots from end to end": SplineTransformer(n_knots=3, extrapolation="linear"),
    "ranks": RANKS,
    "ranks of a normal": QuantileTransformer(
        subsample=None, n_quantiles=100, output_distribution="normal"
    ),
    "knots of a scaled number": make_pipeline(
        RobustScaler(), SplineTransformer(knots="quantile", degree=2)
    ),
}


def forgotten(steps: Any, tmp_path: Path) -> tuple[Any, NDArray[Any]]:
    """Return a model after two requests with a file between, and who is left."""
    model = LogisticRegression(alpha=1e-2, preprocessing=steps, budget=Budget(sigma=1))
    model.fit(X, Y, PEOPLE).forget(["person 3", "person 4"])
    model.save(tmp_path)
    model = expunge.load(tmp_path)
    return model.forget(["person 9"]), np.setdiff1d(np.arange(N), [6, 7, 8, 9, 18, 19])


def require_fit_of_the_rest(model: Any, steps: Any, left: NDArray[Any]) -> None:
    """Assert features to the last bit, and the answer within its radius."""
    fresh = clone(model).set_params(budget=None).fit(X[left], Y[left])
    fitted: list[Any] = [public_model(one) for one in (model, fresh)]
    seen, expected = (one.preprocessing.encode(X) for one in fitted)
    assert np.array_equal(seen, expected)
    theirs = np.asarray(clone(steps).fit(X[left]).transform(X), dtype=float)
    np.testing.assert_allclose(seen, theirs, atol=1e-12)
    answer, exact = private_model(model).answer, private_model(fresh).answer
    distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
    assert distance <= answer.radius.value + exact.radius.value
    assert model.certificate_.status == "certified"
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", STEPS)
def test_forgetting_is_fitting_the_rest(name: str, tmp_path: Path) -> None:
    """Of columns with values that come again, and of such with gaps that are filled."""
    filled = make_pipeline(SimpleImputer(strategy="median"), STEPS[name])
    steps = make_column_transformer(
        (STEPS[name], [NUMBER, WHOLE]),
        (filled, [TIME]),
        (OneHotEncoder(handle_unknown="ignore"), [CODE]),
        sparse_threshold=0.0,
    )
    model, left = forgotten(steps, tmp_path)
    require_fit_of_the_rest(model, steps, left)


def test_maps_of_some_columns_after_steps_that_learn(tmp_path: Path) -> None:
    """Each branch has its own; ONNX has those that it can say."""
    steps = make_pipeline(
        make_column_transformer(
            (TfidfTransformer(), WORDS),
            (make_pipeline(StandardScaler(), PolynomialFeatures(2)), [NUMBER, WHOLE]),
            (make_pipeline(MinMaxScaler(), FunctionTransformer(np.square)), [NUMBER]),
            (make_pipeline(SimpleImputer(), StandardScaler()), [TIME]),
            sparse_threshold=0.0,
        ),
        Normalizer(),
    )
    model, left = forgotten(steps, tmp_path)
    require_fit_of_the_rest(model, steps, left)
    path = tmp_path / "release.onnx"
    expunge.ship(model, path, dtype="float64")
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    given = {one.name: X[:, [int(one.name[1:])]] for one in session.get_inputs()}
    (found,) = session.run(["probabilities"], given)
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-12)
    assert '{"name":"Normalizer"' in model.certificate_.assumptions[-1]


def test_nothing_stays_of_who_had_the_largest_value() -> None:
    """Neither the knots nor what was learnt before them."""
    far = X[:, [NUMBER]].copy()
    far[40] = 1234.5
    steps = make_pipeline(StandardScaler(), SplineTransformer())
    model = LogisticRegression(alpha=1e-2, preprocessing=steps)
    model.fit(far, Y, PEOPLE).forget(["person 20"])
    encoding: Any = private_model(model).encoding
    assert encoding.encoder.parts[0].learnt.max() < 10.0
    assert encoding.first.reference.features.scale[0] < 10.0


def test_a_certificate_states_no_knots() -> None:
    """They are learnt, as scales are, and not fixed in advance."""
    steps = SplineTransformer(knots="quantile")
    model = LogisticRegression(preprocessing=steps, budget=Budget(sigma=1))
    model.fit(X[:, [NUMBER]], Y)
    stated = model.certificate_.assumptions
    assert not any("SplineTransformer" in text for text in stated)
    assert any("preprocessing learns from the rows" in text for text in stated)


@dataclass(frozen=True)
class Centred:
    """A map that learns, which its protocol forbids."""

    def encode(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(X - X.mean(axis=0))


def test_a_map_for_some_columns_that_learns_is_refused() -> None:
    steps = make_column_transformer((make_pipeline(StandardScaler(), Centred()), [0]))
    with pytest.raises(InvalidInput, match="it learns from the rows it is given"):
        LogisticRegression(preprocessing=steps).fit(X, Y)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (make_pipeline(SplineTransformer(), StandardScaler()), "no sums tell of"),
        (make_pipeline(OneHotEncoder(), SplineTransformer()), "filled or scaled"),
        (make_pipeline(TfidfTransformer(), RANKS), "no sums tell of"),
        (make_pipeline(TfidfTransformer(norm=None), RANKS), "weights of terms"),
        (
            make_pipeline(SimpleImputer(add_indicator=True), SplineTransformer()),
            "leave add_indicator out",
        ),
        (make_pipeline(SplineTransformer(n_knots=1)), "n_knots"),
    ],
)
def test_what_cannot_follow_is_refused(steps: Any, message: str) -> None:
    with pytest.raises((InvalidInput, Unsupported), match=message):
        LinearRegression(preprocessing=steps).fit(X[:, [NUMBER]], X[:, NUMBER])


def test_gaps_that_nothing_fills_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"put SimpleImputer\(\) into"):
        LinearRegression(preprocessing=RANKS).fit(X[:, [TIME]], X[:, NUMBER])


def test_rows_must_be_kept() -> None:
    with pytest.raises(InvalidInput, match="SplineTransformer learns"):
        LinearRegression(preprocessing=SplineTransformer(), keep_data=False).fit(
            X[:, [NUMBER]], X[:, NUMBER]
        )


def test_a_category_that_comes_makes_more_features() -> None:
    steps = make_column_transformer(
        (SplineTransformer(), [NUMBER]), (OneHotEncoder(), [CODE]), sparse_threshold=0.0
    )
    model = LogisticRegression(alpha=1e-2, preprocessing=steps).fit(X, Y, PEOPLE)
    new = X[:2].copy()
    new[:, CODE] = 7.0
    model.add(new, Y[:2], subjects=["new", "new"])
    everyone, labels = np.vstack([X, new]), np.append(Y, Y[:2])
    theirs = clone(steps).fit(everyone).transform(everyone)
    fitted: Any = public_model(model)
    np.testing.assert_allclose(
        fitted.preprocessing.encode(everyone), theirs, atol=1e-12
    )
    fresh = clone(model).fit(everyone, labels)
    np.testing.assert_allclose(model.coef_, fresh.coef_, atol=1e-6)


def test_down_to_one_row() -> None:
    """Where scikit-learn would ask for two."""
    model = LinearRegression(alpha=1.0, preprocessing=SplineTransformer())
    model.fit(X[:, [NUMBER]], X[:, WHOLE], np.arange(N))
    model.forget(np.arange(1, N))
    assert np.isfinite(model.coef_).all()
