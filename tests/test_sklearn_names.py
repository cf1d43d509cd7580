# SPDX-License-Identifier: Apache-2.0
"""What scikit-learn users call by its name: features, partial_fit and routed ids."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import expunge
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
)
from expunge.exceptions import InvalidInput, UnknownSubject

N = 120
WHO = [f"person {i // 2}" for i in range(N)]


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(N, 3)) / 2.0
    return X, (X[:, 0] + rng.normal(size=N) / 2.0 > 0.0).astype(int)


@pytest.fixture
def encoded(rows: tuple[np.ndarray, np.ndarray]) -> LogisticRegression:
    """Return a model of a table with two numbers and a category."""
    X, y = rows
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "town": "Bonn"})
    frame.loc[::3, "town"] = "Ulm"
    steps = make_column_transformer(
        (StandardScaler(), ["age", "dose"]), (OneHotEncoder(), ["town"])
    )
    return LogisticRegression(alpha=0.01, preprocessing=steps).fit(frame, y)


class TestNames:
    def test_are_those_of_the_columns(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        model = LinearRegression(alpha=0.01)
        with pytest.raises(NotFittedError):
            model.get_feature_names_out()
        model.fit(X, y)
        assert model.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
        given = ["a", "b", "c"]
        assert model.get_feature_names_out(given).tolist() == given
        with pytest.raises(ValueError, match="should have length equal"):
            model.get_feature_names_out(["a"])
        model.fit(pd.DataFrame(X, columns=given), y)
        assert model.get_feature_names_out().tolist() == given
        with pytest.raises(ValueError, match="not equal to feature_names_in_"):
            model.get_feature_names_out(["c", "b", "a"])

    def test_are_of_features_after_preprocessing(
        self, encoded: LogisticRegression
    ) -> None:
        names = ["age", "dose", "town_Bonn", "town_Ulm"]
        assert encoded.get_feature_names_out().tolist() == names
        encoded.forget(rows=range(0, N, 3))  # the last who live in Ulm
        assert encoded.get_feature_names_out().tolist() == names[:3]
        assert list(encoded.coef_table().index) == ["(intercept)", *names[:3]]

    def test_are_shipped_with_the_model(
        self, encoded: LogisticRegression, tmp_path: Path
    ) -> None:
        expunge.ship(encoded, tmp_path / "model.safetensors")
        encoded.save(tmp_path / "folder")
        for copy in (
            expunge.read_shipped(tmp_path / "model.safetensors"),
            expunge.load(tmp_path / "folder"),
        ):
            pd.testing.assert_frame_equal(copy.coef_table(), encoded.coef_table())


class TestTable:
    def test_has_the_coefficients(self, encoded: LogisticRegression) -> None:
        table = encoded.coef_table()
        assert table["coefficient"]["(intercept)"] == encoded.intercept_[0]
        assert table["coefficient"].tolist()[1:] == encoded.coef_[0].tolist()
        eta = float(encoded.decision_function(_one(age=0.5, dose=0.1, town="Ulm"))[0])
        moved = float(
            encoded.decision_function(_one(age=0.5, dose=0.1, town="Bonn"))[0]
        )
        step = table["coefficient"]["town_Ulm"] - table["coefficient"]["town_Bonn"]
        assert eta - moved == pytest.approx(step, abs=1e-12)

    def test_has_a_column_for_each_class_or_target(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        words = np.array(["low", "middle", "high"])[np.arange(N) % 3]
        model = SoftmaxRegression(alpha=0.01).fit(X, words)
        table = model.coef_table()
        assert list(table.columns) == ["high", "low", "middle"]
        assert np.array_equal(table.to_numpy()[1:], model.coef_.T)
        both = LinearRegression(alpha=0.01, fit_intercept=False)
        table = both.fit(X, np.column_stack([y, -y])).coef_table()
        assert list(table.columns) == [0, 1]
        assert list(table.index) == ["x0", "x1", "x2"]

    def test_is_the_same_without_pandas(
        self, encoded: LogisticRegression, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = encoded.coef_table()
        monkeypatch.setitem(sys.modules, "pandas", None)
        assert encoded.coef_table() == table.to_dict()


def _one(**row: Any) -> pd.DataFrame:
    return pd.DataFrame([row])


class TestPartialFit:
    def test_fits_first_and_adds_then(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        budget = Budget(sigma=0.01)
        model = LogisticRegression(alpha=0.05, budget=budget, random_state=1)
        whole = LogisticRegression(alpha=0.05, mechanism="retrain").fit(X, y)
        for some in (slice(0, 80), slice(80, 100), slice(100, N)):
            assert model.partial_fit(X[some], y[some], subjects=WHO[some]) is model
        assert model.certificate_.n_subjects_added == 20
        assert model.record_.n_samples == N
        assert abs(model.coef_ - whole.coef_).max() < 6 * 0.01
        model.forget(["person 59"])
        with pytest.raises(InvalidInput, match="say whose rows"):
            model.partial_fit(X[:1], y[:1])

    def test_weights_are_those_of_fit(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        weight = np.linspace(0.5, 2.0, N)
        model = LinearRegression(alpha=0.05).partial_fit(X, y, sample_weight=weight)
        known = LinearRegression(alpha=0.05).fit(X, y, sample_weight=weight)
        assert np.array_equal(model.coef_, known.coef_)
        with pytest.raises(InvalidInput, match="a regression has none"):
            LinearRegression(alpha=0.05).partial_fit(X, y, classes=[0, 1])

    def test_classes_are_declared_by_the_first_call(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        model = LogisticRegression(alpha=0.05, penalize_intercept=True)
        first = y[:60] > 5  # of one class
        model.partial_fit(X[:60], first.astype(int), classes=[0, 1])
        assert model.certificate_.classes == "declared"
        model.partial_fit(X[60:], y[60:], classes=[1, 0])
        assert model.classes is None  # a parameter stays as it was given
        before = model.coef_
        with pytest.raises(InvalidInput, match="the first call did not declare"):
            model.partial_fit(X, y, classes=[0, 1, 2])
        assert np.array_equal(model.coef_, before)

    def test_a_failed_first_call_leaves_it_unfitted(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, _ = rows
        model = LogisticRegression(alpha=0.05)
        with pytest.raises(ValueError, match="one class"):
            model.partial_fit(X, np.zeros(N))
        with pytest.raises(NotFittedError):
            model.predict(X)

    def test_tuned_models_have_none(self) -> None:
        assert not hasattr(TunedClassifier(), "partial_fit")
        assert hasattr(LogisticRegression(), "partial_fit")


class TestRouting:
    """``subjects`` reaches every model that asks for it, and finds its people."""

    @pytest.fixture(autouse=True)
    def routed(self) -> Any:
        with sklearn.config_context(enable_metadata_routing=True):
            yield

    def test_through_a_pipeline(self, rows: tuple[np.ndarray, np.ndarray]) -> None:
        X, y = rows
        model = LogisticRegression(alpha=0.05)
        with pytest.raises(UnsetMetadataPassedError, match="subjects"):
            make_pipeline(StandardScaler(), model).fit(X, y, subjects=WHO)
        pipe = make_pipeline(StandardScaler(), model.set_fit_request(subjects=True))
        pipe.fit(X, y, subjects=WHO)
        pipe[-1].forget(["person 3"])
        assert pipe[-1].certificate_.n_subjects_removed == 1
        assert pipe[-1].record_.n_removed == 2

    def test_through_cross_validation(
        self, rows: tuple[np.ndarray, np.ndarray]
    ) -> None:
        X, y = rows
        model = LogisticRegression(alpha=0.05).set_fit_request(subjects=True)
        for one in (model, Pipeline([("model", model)])):
            found = cross_validate(
                one,
                X,
                y,
                params={"subjects": WHO},
                return_estimator=True,
                return_indices=True,
                error_score="raise",
            )
            train, test = (found["indices"][part][0] for part in ("train", "test"))
            fitted = found["estimator"][0]
            fitted = fitted[-1] if isinstance(fitted, Pipeline) else fitted
            inside = {WHO[i] for i in train}
            fitted.forget([WHO[train[-1]]])
            stranger = next(WHO[i] for i in test if WHO[i] not in inside)
            with pytest.raises(UnknownSubject):
                fitted.forget([stranger])

    def test_through_a_search(self, rows: tuple[np.ndarray, np.ndarray]) -> None:
        X, y = rows
        model = LogisticRegression().set_fit_request(subjects=True)
        search = GridSearchCV(model, {"alpha": [0.1, 0.01]}).fit(X, y, subjects=WHO)
        search.best_estimator_.forget([WHO[0]])
        assert search.best_estimator_.record_.n_removed == 2

    def test_of_later_rows(self) -> None:
        model = LogisticRegression().set_partial_fit_request(subjects=True)
        asked = model.get_metadata_routing().partial_fit.requests
        assert asked["subjects"] is True
