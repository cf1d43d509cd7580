# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's transformers that learn nothing: alone, before, after other steps."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import special
from sklearn.base import clone
from sklearn.cluster import Birch
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.linear_model import LogisticRegression as Unchangeable
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

import expunge
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    TunedClassifier,
    check_encoder,
    ship,
)
from expunge.exceptions import CannotRemove, InvalidInput, UnknownRows, Unsupported
from expunge.files.onnx_maps import OPERATORS
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing import encoder, sklearn_maps
from expunge.preprocessing.columns import ExtendedTable
from expunge.preprocessing.encoder import encode_rows, find_bits
from expunge.preprocessing.sklearn_maps import MOST_FEATURES, read_map
from expunge.preprocessing.sklearn_steps import INSTEAD
from expunge.registry import Registry
from tests.test_shipping_tables import run, runtime

__all__ = ["runtime"]  # a fixture

KNOTS = np.array([[-2.0, -1.0, 0.0], [-0.5, 0.0, 1.0], [2.0, 1.0, 4.0]])


def name_of(step: Any) -> str:
    """Return what a test of a step is called, the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(step))


STEPS: list[Any] = [
    Normalizer(),
    Normalizer(norm="l1"),
    Normalizer(norm="max"),
    Binarizer(threshold=0.2),
    FunctionTransformer(),
    FunctionTransformer(np.clip, kw_args={"a_min": -1, "a_max": 0.5}),
    FunctionTransformer(np.round, kw_args={"decimals": 1}),
    FunctionTransformer(np.digitize, kw_args={"bins": [-1.0, 0.0, 1.5]}),
    FunctionTransformer(np.nan_to_num, kw_args={"nan": 3.0}),
    PolynomialFeatures(3),
    PolynomialFeatures((2, 3), interaction_only=True, include_bias=False),
    SplineTransformer(knots=KNOTS),
    SplineTransformer(knots=KNOTS, extrapolation="linear", include_bias=False),
    SplineTransformer(knots=KNOTS, degree=1, extrapolation="periodic"),
    SplineTransformer(knots=KNOTS, degree=2, extrapolation="continue"),
    RBFSampler(gamma=0.5, n_components=17, random_state=1),
    SkewedChi2Sampler(skewedness=9.0, n_components=5, random_state=2),
    GaussianRandomProjection(n_components=2, random_state=3),
]
UFUNCS: list[Any] = [
    *(np.exp, np.expm1, np.sin, np.cos, np.tan, np.tanh, np.arctan, np.arcsinh),
    *(np.sinh, np.cosh, np.cbrt, np.square, np.sign, np.floor, np.rint, np.exp2),
    *(np.negative, np.abs, np.isfinite, np.logical_not, special.expit, special.erf),
]
# Of numbers above zero.
LOGARITHMS: list[Any] = [np.log, np.log1p, np.log2, np.log10, np.sqrt, np.reciprocal]


def rows(n: int = 301, seed: int = 0) -> NDArray[Any]:
    """Return rows of three columns."""
    return np.random.default_rng(seed).normal(size=(n, 3)) * [1.0, 0.3, 2.0]


def labels(X: NDArray[Any], seed: int = 0) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    return np.asarray(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=len(X)) > 0.0)


def people(n: int) -> list[str]:
    return [f"person {i // 2}" for i in range(n)]


def table(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Return a table with numbers, gaps and words."""
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "spent": rng.exponential(80.0, n),
            "city": rng.choice(["Bern", "Cork", "Oslo"], n, p=[0.6, 0.3, 0.1]),
            "score": rng.normal(size=n),
        }
    )
    found.loc[::11, "spent"] = np.nan
    return found


BEFORE = make_column_transformer(
    (
        make_pipeline(FunctionTransformer(np.log1p), SimpleImputer(), StandardScaler()),
        ["spent"],
    ),
    (make_pipeline(PolynomialFeatures(2), RobustScaler()), ["age", "score"]),
    (
        make_pipeline(
            FunctionTransformer(np.digitize, kw_args={"bins": [30, 50]}),
            OneHotEncoder(handle_unknown="ignore"),
        ),
        ["age"],
    ),
    (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    (make_pipeline(FunctionTransformer(np.tanh), Binarizer()), ["score"]),
)


def require_fit_of_the_rest(ours: Any, steps: Any, X: Any, y: Any, left: Any) -> None:
    """Assert that features and answer are those of a fit to these rows."""
    fresh = clone(ours).set_params(budget=None).fit(X[left], y[left])
    theirs = np.asarray(clone(steps).fit(X[left]).transform(X), dtype=float)
    fitted: Any = public_model(ours)
    np.testing.assert_allclose(fitted.preprocessing.encode(X), theirs, atol=1e-12)
    answer, exact = private_model(ours).answer, private_model(fresh).answer
    distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
    assert distance <= answer.radius.value + exact.radius.value


class TestMaps:
    """Each is scikit-learn's own, and rounds a row alone as it does among others."""

    @pytest.mark.parametrize("step", STEPS, ids=name_of)
    def test_is_scikit_learns(self, step: Any) -> None:
        X, found = rows(), read_map(step)
        assert found is not None
        expected = clone(step).fit(X).transform(X)
        np.testing.assert_allclose(found.encode(X), expected, atol=1e-14)
        check_encoder(found, X)

    @pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 64, 301])
    @pytest.mark.parametrize("step", STEPS, ids=name_of)
    def test_blocks_round_as_rows_do(self, step: Any, n: int) -> None:
        found: Any = read_map(step)
        for X in (rows(n), np.asfortranarray(rows(n, 1)), rows(3 * n, 2)[::3]):
            block = encode_rows(found, X)
            alone = np.vstack([found.encode(row[None].copy()) for row in X])
            assert block.tobytes() == alone.tobytes()

    @pytest.mark.parametrize("function", UFUNCS + LOGARITHMS)
    def test_blocks_of_functions_do_too(self, function: Any) -> None:
        found: Any = read_map(FunctionTransformer(function))
        for n in (1, 5, 16, 333):
            X = rows(n) * 10.0 ** np.linspace(-3.0, 2.0, n)[:, None]
            X = np.abs(X) + 1e-9 if function in LOGARITHMS else X
            block = encode_rows(found, X)
            alone = np.vstack([found.encode(row[None].copy()) for row in X])
            assert block.tobytes() == alone.tobytes()
            np.testing.assert_array_equal(block, np.asarray(function(X), dtype=float))

    def test_wide_rows_too(self) -> None:
        X = np.random.default_rng(1).normal(size=(40, 777))
        for step in (
            Normalizer(),
            Normalizer(norm="l1"),
            RBFSampler(gamma=1e-3, n_components=300, random_state=0),
            GaussianRandomProjection(n_components=50, random_state=0),
        ):
            found: Any = read_map(step)
            alone = np.vstack([found.encode(row[None].copy()) for row in X])
            assert encode_rows(found, X).tobytes() == alone.tobytes()

    @pytest.mark.parametrize(
        ("step", "message"),
        [
            (FunctionTransformer(lambda X: X), "no file and no certificate"),
            (FunctionTransformer(lambda X: X - X.mean()), "frozen dataclass"),
            (FunctionTransformer(np.cumsum), "does not make one number of each"),
            (FunctionTransformer(np.add), "np.log1p"),
            (FunctionTransformer(np.log, kw_args={"where": [True]}), "leave kw_args"),
            (FunctionTransformer(np.digitize), "without bins"),
            (FunctionTransformer(np.clip, kw_args={"a_min": [[0], [1]]}), "a number"),
            (Normalizer(norm="l3"), "'l1', 'l2' or 'max'"),
            (PolynomialFeatures(0), "such as 2"),
            (PolynomialFeatures(60), r"makes 39,711 features of 3 columns"),
            (SplineTransformer(extrapolation="periodic"), "or give the knots"),
            (SplineTransformer(extrapolation="error"), "use 'constant', 'linear'"),
            (SplineTransformer(knots="best"), "use 'quantile' or 'uniform'"),
            (SplineTransformer(sparse_output=True), "leave sparse_output"),
            (SplineTransformer(knots=KNOTS, sparse_output=True), "leave sparse_output"),
            (SplineTransformer(knots=KNOTS[:, :2]), "and there are 3 columns; give"),
            (SplineTransformer(knots=[1.0, 2.0]), r"shape \(2,\), and there are 3"),
            (SplineTransformer(knots=KNOTS, extrapolation="error"), "use 'constant'"),
            (KBinsDiscretizer(), "learns its edges from the rows; give them"),
            (MinMaxScaler(clip=True), "last step of all"),
            (TfidfTransformer(norm=None, sublinear_tf=True), "np.log1p"),
            (TfidfTransformer(norm=None, use_idf=False), "leave use_idf"),
            (RBFSampler(gamma="scale", random_state=0), "give a number: gamma=1.0"),
            (RBFSampler(), "random_state=0"),
            (SkewedChi2Sampler(random_state=None), "random_state=0"),
            (SkewedChi2Sampler(skewedness=0.1, random_state=0), "above -0.1 alone"),
            (GaussianRandomProjection(random_state=0), "n_components=100"),
            (PCA(2), r"or project with GaussianRandomProjection"),
            (QuantileTransformer(), "set subsample=None"),
            (
                QuantileTransformer(subsample=None, output_distribution="flat"),
                "use 'uniform' or 'normal'",
            ),
            (
                QuantileTransformer(subsample=None, ignore_implicit_zeros=True),
                "leave it at its default",
            ),
            (StandardScaler, r"is a class; make one: StandardScaler\(...\)"),
            (np.log1p, r"give FunctionTransformer\(np.log1p\)"),
            (Unchangeable(), "it predicts; give the steps before it alone"),
            (Birch(), "it predicts"),
            (RandomTreesEmbedding(), "leave it out, or make it a map of rows"),
        ],
        ids=name_of,
    )
    def test_what_learns_or_is_wrong_is_refused(self, step: Any, message: str) -> None:
        X = rows()
        for steps in (step, make_pipeline(step, StandardScaler())):
            with pytest.raises((InvalidInput, Unsupported), match=message):
                LinearRegression(preprocessing=steps).fit(X, X[:, 0])

    def test_what_is_advised_instead_works(self) -> None:
        """Every call in the advice is one that fits and forgets."""
        X = np.abs(rows())
        y = X[:, 0] > np.median(X[:, 0])
        known = {"Bins": expunge.Bins, "TargetMeans": expunge.TargetMeans}
        known |= {name: value for name, value in globals().items() if name[0].isupper()}
        calls = set()
        for advice in INSTEAD.values():
            calls |= set(re.findall(r"[A-Z]\w+\((?:[^()]|\([^()]*\))*\)", advice))
        assert len(calls) == 9
        for call in calls:
            step = eval(call.replace("...", "2"), {"np": np, **known})
            model = LogisticRegression(
                alpha=1e-2, preprocessing=step, l1_ratio=0.5, budget=Budget()
            )
            model.fit(X.round(1), y, subjects=[*range(len(y))]).forget([3])
            assert model.certificate_.status == "certified", call

    def test_most_features_are_few_gigabytes(self) -> None:
        X = rows()
        assert MOST_FEATURES**2 * 8 <= 3.2e9
        with pytest.raises(InvalidInput, match=r"39,711 .* 20,000 is the most"):
            LinearRegression(preprocessing=PolynomialFeatures(60)).fit(X, X[:, 0])

    @pytest.mark.parametrize(
        "name", ["numpy.load", "numpy.memmap", "os.system", "eval"]
    )
    def test_a_file_names_no_other_function(self, name: str) -> None:
        given = {"func": name, "kw_args": {}}
        found = sklearn_maps.SklearnMap("FunctionTransformer", given)
        with pytest.raises(InvalidInput, match="no function of NumPy"):
            found.encode(rows())

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("KBinsDiscretizer", {}),
            ("StandardScaler", {}),
            ("Binarizer", {"thresholds": 1.0}),
            ("RBFSampler", {"gamma": -1.0, "n_components": 3, "random_state": 0}),
            ("PolynomialFeatures", {"degree": [1]}),
            ("SplineTransformer", {"knots": [[0.0, 1.0]]}),
        ],
    )
    def test_a_file_that_makes_no_sense_is_refused(
        self, name: str, parameters: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            sklearn_maps.SklearnMap(name, parameters).encode(rows())


class TestAlone:
    """A map is all there is."""

    @pytest.mark.parametrize("keep", [True, "encoded", False], ids=str)
    @pytest.mark.parametrize("step", STEPS, ids=name_of)
    def test_forgetting_is_fitting_the_rest(
        self, step: Any, keep: Any, tmp_path: Path
    ) -> None:
        X = rows(80)
        y = labels(X)
        ours = LogisticRegression(alpha=1e-2, preprocessing=step, keep_data=keep)
        ours.set_params(mechanism="newton").fit(X, y, people(80))
        if keep:
            ours.forget(["person 3"])
        else:
            ours.forget(X=X[6:8], y=y[6:8])
        ours.save(tmp_path)
        ours = expunge.load(tmp_path)
        if keep == "encoded":  # of which several may be equal
            ours.forget(["person 10"])
        else:
            ours.forget(X=X[20:22], y=y[20:22])
        ours.add(X[6:7], y[6:7], subjects=["person 3"])
        if keep != "encoded":
            with pytest.raises(UnknownRows):
                ours.forget(X=X[7:8], y=y[7:8])
        left = np.setdiff1d(np.arange(80), [7, 20, 21])
        require_fit_of_the_rest(ours, step, X, y, left)
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))
        fitted = clone(ours).set_params(budget=None).fit(X, y)  # what a file describes
        np.testing.assert_array_equal(
            public_model(fitted).preprocessing.encode(X),  # type: ignore[union-attr]
            public_model(ours).preprocessing.encode(X),  # type: ignore[union-attr]
        )

    def test_maps_follow_each_other(self) -> None:
        X = rows()
        steps = make_pipeline(
            FunctionTransformer(np.tanh),
            PolynomialFeatures(2, include_bias=False),
            RBFSampler(gamma=0.3, n_components=20, random_state=0),
        )
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps, keep_data="encoded")
        ours.fit(X, labels(X), people(len(X))).forget(["person 7"])
        assert private_model(ours).answer.decisions == ("accepted",)
        names = [f"rbfsampler{i}" for i in range(20)]
        assert ours.get_feature_names_out().tolist() == names
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))

    def test_features_have_the_names_of_columns(self) -> None:
        X = pd.DataFrame(rows(), columns=["a", "b", "c"])
        step = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        ours = LogisticRegression(alpha=1e-2, preprocessing=step)
        ours.fit(X, labels(X.to_numpy()))
        names = ["a", "b", "c", "a b", "a c", "b c"]
        assert ours.get_feature_names_out().tolist() == names
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))

    def test_certificate_names_map_parameters_and_digest(self) -> None:
        X = rows()
        step = RBFSampler(gamma=0.5, n_components=7, random_state=3)
        ours = LogisticRegression(preprocessing=step, budget=Budget(sigma=0.3))
        stated = ours.fit(X, labels(X)).certificate_.assumptions
        found: Any = read_map(step)
        digest = find_bits(found, 3).hex()[:16]
        assert any(
            text.endswith(
                f'{{"digest":"{digest}","name":"RBFSampler","parameters":{{"gamma":0.5,'
                '"n_components":7,"random_state":3}}'
            )
            for text in stated
        )


class TestBefore:
    """Maps make columns of which the next steps learn."""

    @pytest.mark.filterwarnings("ignore:X does not have valid feature names")
    @pytest.mark.parametrize("way", ["subjects", "content", "array"])
    def test_forgetting_is_fitting_the_rest(self, way: str, tmp_path: Path) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        budget = Budget(sigma=0.3, releases=20)
        ours = LogisticRegression(alpha=1e-2, preprocessing=BEFORE, budget=budget)
        ours.fit(X, y, people(len(X)))
        gone = [6, 7, 40, 41, 90, 91, 198, 199]
        for place in gone[::2]:
            own = X.iloc[place : place + 2]
            if way == "subjects":
                ours.forget([f"person {place // 2}"])
            elif way == "content":
                ours.forget(X=own, y=y[place : place + 2])
            else:
                ours.forget(X=own.to_numpy(dtype=object), y=y[place : place + 2])
            if place == 40:
                ours.save(tmp_path)
                ours = expunge.load(tmp_path)
        left = np.setdiff1d(np.arange(len(X)), gone)
        fresh = clone(ours).set_params(budget=None, preprocessing=BEFORE)
        fresh.fit(X.iloc[left], y[left])
        theirs = clone(BEFORE).fit(X.iloc[left]).transform(X)
        fitted: Any = public_model(ours)
        np.testing.assert_allclose(fitted.preprocessing.encode(X), theirs, atol=1e-12)
        answer, exact = private_model(ours).answer, private_model(fresh).answer
        distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
        assert distance <= answer.radius.value + exact.radius.value
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))
        assert "log1p(spent)" in ours.get_feature_names_out()
        ship(ours, tmp_path / "model.safetensors")
        shipped = expunge.read_shipped(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(shipped.predict(X), ours.predict(X))

    def test_no_row_is_read_for_it(self) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        steps = make_column_transformer(
            (
                make_pipeline(
                    FunctionTransformer(np.log1p), SimpleImputer(), StandardScaler()
                ),
                ["spent"],
            ),
            (make_pipeline(PolynomialFeatures(2), StandardScaler()), ["age", "score"]),
        )
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps, keep_data=False)
        ours.fit(X, y, people(len(X))).forget(X=X.iloc[6:8], y=y[6:8])
        assert private_model(ours).answer.decisions == ("accepted",)

    def test_the_library_of_the_frame_does_not_matter(self) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        one = LogisticRegression(alpha=1e-2, preprocessing=BEFORE).fit(X, y)
        other = LogisticRegression(alpha=1e-2, preprocessing=BEFORE)
        other.fit(pl.from_pandas(X), y)
        np.testing.assert_array_equal(one.coef_, other.coef_)

    def test_new_rows_may_bring_new_bins(self) -> None:
        X, steps = (
            rows(),
            make_pipeline(
                FunctionTransformer(np.digitize, kw_args={"bins": [-9.0, 0.0, 9.0]}),
                OneHotEncoder(handle_unknown="ignore"),
            ),
        )
        y = labels(X)
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps)
        ours.fit(X, y, people(len(X)))
        ours.add(np.full((1, 3), 11.0), y[:1], subjects=["person 0"])
        assert "digitize(x0)_3" in ours.get_feature_names_out()
        ours.forget(["person 0"])
        assert "digitize(x0)_3" not in ours.get_feature_names_out()

    def test_gaps_stay_gaps_or_are_refused(self) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        for step, message in (
            (PolynomialFeatures(2), "PolynomialFeatures takes none; fill them before"),
            (FunctionTransformer(np.digitize, kw_args={"bins": [9]}), "digitize takes"),
            (FunctionTransformer(np.log1p), "has missing values"),
        ):
            steps = make_column_transformer(
                (make_pipeline(step, StandardScaler()), ["spent"])
            )
            with pytest.raises(InvalidInput, match=message):
                LogisticRegression(preprocessing=steps).fit(X, y)
        filled = make_pipeline(
            FunctionTransformer(np.nan_to_num, kw_args={"nan": 0.0}),
            PolynomialFeatures(2),
            StandardScaler(),
        )
        steps = make_column_transformer((filled, ["spent", "age"]))
        model = LogisticRegression(alpha=1e-2, preprocessing=steps).fit(X, y)
        fitted: Any = public_model(model)
        np.testing.assert_allclose(
            fitted.preprocessing.encode(X), clone(steps).fit_transform(X), atol=1e-12
        )

    def test_a_number_that_has_no_image_is_refused(self) -> None:
        X = rows()
        for step in (FunctionTransformer(np.log), FunctionTransformer(np.reciprocal)):
            steps = make_pipeline(step, SimpleImputer(), StandardScaler())
            own = np.abs(X)
            model = LinearRegression(preprocessing=steps).fit(own, X[:, 0])
            own[3, 1] = 0.0
            with pytest.raises(InvalidInput, match="infinite or missing of 0; bound"):
                LinearRegression(preprocessing=steps).fit(own, X[:, 0])
            with pytest.raises(InvalidInput, match="infinite"):
                model.add(own[3:4], X[3:4, 0])
            own[4, 1] = np.nan
            with pytest.raises(InvalidInput, match="infinite"):
                model.predict(own)
            model.forget(rows=[0])

    def test_another_rounding_is_seen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        ours = LogisticRegression(alpha=1e-2, preprocessing=BEFORE)
        ours.fit(X, y, people(len(X))).save(tmp_path)
        real = sklearn_maps.SklearnMap.encode
        monkeypatch.setattr(
            sklearn_maps.SklearnMap,
            "encode",
            lambda self, X: real(self, X) * (1 + 1e-15),
        )
        other: Any = expunge.load(tmp_path)
        with pytest.raises(InvalidInput, match="rounds otherwise than at the fit"):
            other.forget(X=X.iloc[:1], y=y[:1])
        with pytest.raises(InvalidInput, match="rounds otherwise than at the fit"):
            other.add(X.iloc[:1], y[:1], subjects=["person 0"])
        other.forget(["person 0"])  # kept as it was made

    def test_names_are_those_of_no_other_column(self) -> None:
        X = pd.DataFrame(rows(), columns=["a", "tanh(a)", "b"])
        steps = make_column_transformer(
            (FunctionTransformer(np.tanh), ["a"]),
            (FunctionTransformer(np.tanh), ["a", "b"]),
            remainder="passthrough",
        )
        model = LinearRegression(preprocessing=steps).fit(X, X["a"])
        names = ["tanh(a)_", "tanh(a)__", "tanh(b)", "tanh(a)"]
        assert model.get_feature_names_out().tolist() == names

    def test_a_map_of_ones_own_comes_first_too(self) -> None:
        from tests.strangers.fourier import RandomFourier

        X = rows()
        own = RandomFourier(gamma=0.3, n_features=9, seed=1)
        steps = make_pipeline(own, StandardScaler())
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps)
        ours.fit(X, labels(X), people(len(X))).forget(["person 3"])
        assert private_model(ours).answer.decisions == ("accepted",)
        ours.forget(X=X[:1], y=labels(X)[:1])
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))

    def test_between_steps_that_learn_it_is_refused(self) -> None:
        X = rows()
        steps = make_pipeline(StandardScaler(), PolynomialFeatures(2), StandardScaler())
        with pytest.raises(Unsupported, match="whose result no sums tell of"):
            LinearRegression(preprocessing=steps).fit(X, X[:, 0])
        both = make_column_transformer(
            (StandardScaler(), [0]), (MinMaxScaler(), [1]), sparse_threshold=0.0
        )
        steps = make_pipeline(both, PolynomialFeatures(2), StandardScaler())
        with pytest.raises(Unsupported, match="last of all"):
            LinearRegression(preprocessing=steps).fit(X, X[:, 0])

    def test_tables_that_may_be_made_again(self) -> None:
        X = rows(5)
        described = make_pipeline(Normalizer(), StandardScaler())
        model = LinearRegression(preprocessing=described).fit(X, X[:, 0])
        learned: Any = private_model(model).encoding.learned
        extended = ExtendedTable(X, learned.recipe.described.made)
        assert len(extended) == len(list(extended)) == 3
        np.testing.assert_array_equal(extended[1], X[:, 1])


def halve(X: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(X / 2.0)


@expunge.stored
@dataclass(frozen=True)
class Halve:
    """What the refusal of a function says."""

    encode = staticmethod(halve)


def test_a_function_of_ones_own_is_a_map_in_three_lines(tmp_path: Path) -> None:
    X = rows()
    said = r"@dataclass\(frozen=True\) class Halve: encode = staticmethod\(halve\)"
    with pytest.raises(Unsupported, match=said):
        LinearRegression(preprocessing=FunctionTransformer(halve)).fit(X, X[:, 0])
    steps = make_column_transformer(
        (make_pipeline(Halve(), StandardScaler()), [0, 1]), (Halve(), [2])
    )
    ours = LogisticRegression(alpha=1e-2, preprocessing=steps)
    ours.fit(X, labels(X), people(len(X))).save(tmp_path)
    again = expunge.load(tmp_path).forget(["person 3"])
    np.testing.assert_array_equal(again.coef_, ours.forget(["person 3"]).coef_)


class TestAfter:
    """Maps of what was learned look at the rows."""

    @pytest.mark.parametrize(
        "steps",
        [
            make_pipeline(StandardScaler(), PolynomialFeatures(2)),
            make_pipeline(RobustScaler(), Normalizer()),
            make_pipeline(FunctionTransformer(np.tanh), MinMaxScaler(), Normalizer()),
            make_pipeline(
                StandardScaler(), RBFSampler(gamma=0.2, random_state=0), Normalizer()
            ),
        ],
        ids=name_of,
    )
    def test_forgetting_is_fitting_the_rest(self, steps: Any, tmp_path: Path) -> None:
        X = rows(100)
        y = labels(X)
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps)
        ours.fit(X, y, people(100)).forget(["person 7", "person 9"])
        ours.save(tmp_path)
        ours = expunge.load(tmp_path)
        ours.forget(X=X[50:51], y=y[50:51])
        left = np.setdiff1d(np.arange(100), [14, 15, 18, 19, 50])
        require_fit_of_the_rest(ours, steps, X, y, left)
        plain = ours.to_sklearn()
        np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))

    @pytest.mark.parametrize("norm", ["l1", "l2", None])
    def test_weights_of_terms_and_their_norm(self, norm: Any) -> None:
        rng = np.random.default_rng(0)
        X = rng.poisson(0.4, size=(120, 8)).astype(float)
        y = X[:, 0] + rng.normal(size=120) > 0.5
        step = TfidfTransformer(norm=norm)
        ours = LogisticRegression(alpha=1e-2, preprocessing=step)
        ours.fit(X, y, people(120)).forget(["person 7"])
        left = np.setdiff1d(np.arange(120), [14, 15])
        fresh = LogisticRegression(alpha=1e-2, preprocessing=step)
        fresh.fit(X[left], y[left])
        theirs = clone(step).fit(X[left]).transform(X).toarray()
        fitted: Any = public_model(ours)
        np.testing.assert_allclose(fitted.preprocessing.encode(X), theirs, atol=1e-14)
        how = "accepted" if norm is None else "retrained"
        assert private_model(ours).answer.decisions == (how,)
        answer, exact = private_model(ours).answer, private_model(fresh).answer
        distance = np.linalg.norm(answer.draft.theta - exact.draft.theta)
        assert distance <= answer.radius.value + exact.radius.value

    def test_a_category_that_leaves_makes_fewer_features(self) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        X.loc[10, "city"] = "Rome"
        steps = make_pipeline(
            make_column_transformer(
                (OneHotEncoder(handle_unknown="ignore"), ["city"]),
                (StandardScaler(), ["age", "score"]),
                sparse_threshold=0.0,
            ),
            PolynomialFeatures(2, include_bias=False),
        )
        ours = LogisticRegression(alpha=1e-2, preprocessing=steps)
        ours.fit(X, y, people(len(X)))
        before = ours.coef_.size
        ours.forget(["person 5"])
        assert ours.coef_.size < before
        left = np.setdiff1d(np.arange(len(X)), [10, 11])
        theirs = clone(steps).fit(X.iloc[left]).transform(X)
        fitted: Any = public_model(ours)
        np.testing.assert_allclose(fitted.preprocessing.encode(X), theirs, atol=1e-12)

    def test_without_rows_it_is_refused(self) -> None:
        X = rows()
        steps = make_pipeline(StandardScaler(), PolynomialFeatures(2))
        with pytest.raises(InvalidInput, match="comes after steps"):
            LinearRegression(preprocessing=steps, keep_data=False).fit(X, X[:, 0])


def test_quartiles_that_meet_scale_by_one() -> None:
    """Where the distance of quartiles becomes zero, scikit-learn takes one."""
    rng = np.random.default_rng(0)
    X = np.c_[np.r_[np.zeros(29), rng.normal(size=31)], rng.normal(size=60)]
    y = X[:, 1] + 0.5 * rng.normal(size=60) > 0.0
    ours = LogisticRegression(alpha=1e-2, preprocessing=RobustScaler())
    ours.fit(X, y, people(60))
    for gone in range(58, 30, -4):
        ours.forget([f"person {gone // 2}", f"person {gone // 2 - 1}"])
        left = np.arange(gone - 2)
        require_fit_of_the_rest(ours, RobustScaler(), X, y, left)
    scale = public_model(ours).preprocessing.features.scale  # type: ignore[union-attr]
    assert scale[0] == 1.0


def test_tuned_models_and_registries_have_them(tmp_path: Path) -> None:
    X = table()
    y = labels(X[["score", "age"]].to_numpy())
    tuned = TunedClassifier(
        alphas=(0.1, 1e-2), folds=3, preprocessing=BEFORE, fold_key="fixed"
    )
    tuned.fit(X, y, people(len(X))).forget(["person 4"])
    model = LogisticRegression(preprocessing=BEFORE, budget=Budget(sigma=0.3))
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", model, X, y, subjects=people(len(X)))
        registry.forget(["person 7"])
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 8", "person 9"])
        certificate = registry.model("model").certificate_
        assert certificate.status == "certified"
        assert "log1p" in " ".join(certificate.assumptions)
        assert expunge.verify(certificate, registry.models.record("model")).valid


def test_an_encoder_that_says_by_block_must_be_one() -> None:
    class Products:
        """A product, which BLAS rounds otherwise in a block."""

    from dataclasses import dataclass
    from typing import ClassVar

    @dataclass(frozen=True)
    class Product(Products):
        by_block: ClassVar[bool] = True

        def encode(self, X: NDArray[Any]) -> NDArray[Any]:
            W = np.random.default_rng(0).normal(size=(X.shape[1], 50))
            return np.asarray((X @ W) * (1.0 + 1e-15 * (len(X) > 1)))

    with pytest.raises(InvalidInput, match="leave by_block out"):
        check_encoder(Product(), rows())
    assert not encoder.by_block(Products())  # type: ignore[arg-type]


def test_a_model_without_its_rows_needs_the_same_rounding(tmp_path: Path) -> None:
    X = rows(60)
    y = labels(X)
    ours = LogisticRegression(preprocessing=Normalizer(), keep_data=False)
    ours.fit(X, y).save(tmp_path)
    loaded: Any = expunge.load(tmp_path)
    loaded.forget(X=X[:1], y=y[:1])
    with pytest.raises((CannotRemove, UnknownRows)):
        loaded.forget(X=X[:1], y=y[:1])


SHIPPED = [
    step
    for step in STEPS
    if not isinstance(step, SplineTransformer)
    and (step.get_params().get("kw_args") or {}).get("decimals", 0) == 0
]
LISTED = [getattr(np, name, None) or getattr(special, name) for name in OPERATORS]
LISTED += [getattr(np, name) for name in ("expm1", "log10", "log1p", "log2", "square")]


class TestGraphs:
    """ONNX has them, where it has operators."""

    @pytest.mark.parametrize("where", ["alone", "before", "after"])
    @pytest.mark.parametrize(
        "step", [*SHIPPED, *map(FunctionTransformer, LISTED)], ids=name_of
    )
    def test_predicts_as_the_model(
        self, step: Any, where: str, runtime: str, tmp_path: Path
    ) -> None:
        X = rows(90)
        if isinstance(step, FunctionTransformer) and where != "after":
            X = np.abs(X) + 0.1
        y = labels(X)
        learnt = MinMaxScaler((0.1, 1.0))
        steps = {
            "alone": step,
            "before": make_pipeline(step, learnt),
            "after": make_pipeline(learnt, step),
        }
        model = LogisticRegression(alpha=1e-2, preprocessing=steps[where]).fit(X, y)
        ship(model, tmp_path / "model.onnx")
        given = {f"x{j}": X[:, [j]] for j in range(3)}
        if where == "alone":
            given = {"X": X}
        found = run(tmp_path / "model.onnx", given, runtime)
        np.testing.assert_allclose(
            found["probabilities"], model.predict_proba(X), rtol=1e-9
        )

    def test_tables_of_every_kind(self, runtime: str, tmp_path: Path) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        model = LogisticRegression(alpha=1e-2, preprocessing=BEFORE).fit(X, y)
        ship(model, tmp_path / "model.onnx")
        given = {
            name: X[[name]].to_numpy(dtype=object if name == "city" else float)
            for name in X.columns
        }
        found = run(tmp_path / "model.onnx", given, runtime)
        wanted = model.predict_proba(X)
        np.testing.assert_allclose(found["probabilities"], wanted, rtol=1e-9)

    def test_in_single_precision(self, runtime: str, tmp_path: Path) -> None:
        X = table()
        y = labels(X[["score", "age"]].to_numpy())
        steps = make_pipeline(BEFORE, Normalizer(), RBFSampler(random_state=0))
        model = LogisticRegression(alpha=1e-2, preprocessing=steps).fit(X, y)
        ship(model, tmp_path / "model.onnx", dtype="float32")
        given = {
            name: X[[name]].to_numpy(dtype=object if name == "city" else np.float32)
            for name in X.columns
        }
        found = run(tmp_path / "model.onnx", given, runtime)
        wanted = model.predict_proba(X)
        np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-4)

    def test_maps_that_follow_each_other(self, runtime: str, tmp_path: Path) -> None:
        X = rows(90)
        steps = make_pipeline(
            FunctionTransformer(np.tanh),
            PolynomialFeatures(2),
            StandardScaler(),
            PolynomialFeatures(2, include_bias=False),
            Normalizer(),
        )
        model = LinearRegression(alpha=1e-2, preprocessing=steps).fit(X, X[:, 0])
        ship(model, tmp_path / "model.onnx")
        given = {f"x{j}": X[:, [j]] for j in range(3)}
        found = run(tmp_path / "model.onnx", given, runtime)
        np.testing.assert_allclose(found["predictions"], model.predict(X), rtol=1e-9)

    @pytest.mark.parametrize(
        "step",
        [
            SplineTransformer(knots=KNOTS),
            FunctionTransformer(np.arctan),
            FunctionTransformer(np.round, kw_args={"decimals": 1}),
            FunctionTransformer(np.digitize, kw_args={"bins": [3.0, 0.0]}),
        ],
        ids=name_of,
    )
    def test_others_are_refused(self, step: Any, tmp_path: Path) -> None:
        X = rows(30)
        for steps in (step, make_pipeline(step, StandardScaler())):
            model = LinearRegression(preprocessing=steps).fit(X, X[:, 0])
            with pytest.raises(Unsupported, match="safetensors"):
                ship(model, tmp_path / "model.onnx")
