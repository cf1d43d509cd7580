# SPDX-License-Identifier: Apache-2.0
"""A pipeline that forgets is the pipeline fitted on the remaining rows."""

import copy
import gc
import pickle
import types
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from expunge.preprocessing.transformers import NO_NOISE, apply_steps, classify_step
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import SkipTestWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression as ForeignModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, Normalizer
from sklearn.utils.estimator_checks import estimator_checks_generator

from expunge import Budget, verify
from expunge.exceptions import (
    CannotRemove,
    EmptyClass,
    InvalidInput,
    NoPrivateState,
    ScheduleExhausted,
    UnknownSubject,
)
from expunge.linear_model import LinearRegression, LogisticRegression
from expunge.preprocessing import (
    Changes,
    ForgettablePipeline,
    MeanImputer,
    OneHotEncoder,
    StandardScaler,
    forgettable_pipeline,
)
from expunge.promise.scope import ASSUMPTIONS, CHOSEN

N_ROWS = 120
MARK = 4321.0987654321
SEEDED = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, allow_seeded=True)


@pytest.fixture
def table(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Return raw rows with gaps and scales, two classes, and a person for two rows."""
    X = rng.normal(size=(N_ROWS, 4)) * [1.0, 1e-3, 1e4, 2.0] + [0.0, 1.0, 1e4, -3.0]
    y = (X[:, 0] + X[:, 2] / 1e4 + rng.normal(size=N_ROWS) > 1.0).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[7] = MARK * np.array([1.0, 1.1, 1.2, 1.3])
    return X, y, [f"p{i // 2}" for i in range(N_ROWS)]


def steps() -> list[Any]:
    return [MeanImputer(), StandardScaler()]


def same_model(a: ForgettablePipeline, b: ForgettablePipeline) -> None:
    """Assert that steps are equal bit for bit and models to 1e-8."""
    for name, step in a.steps_.items():
        if hasattr(step, "learned"):
            assert step.fingerprint() == b.steps_[name].fingerprint()
    np.testing.assert_allclose(a.model_.coef_, b.model_.coef_, atol=1e-8, rtol=1e-8)
    np.testing.assert_allclose(
        a.model_.intercept_, b.model_.intercept_, atol=1e-8, rtol=1e-8
    )
    assert a.get_feature_names_out().tolist() == b.get_feature_names_out().tolist()


MODELS = [
    LogisticRegression(alpha=1e-2),
    LogisticRegression(alpha=1e-2, l1_ratio=1.0, ridge=1e-3),
    LinearRegression(alpha=1e-2),
    LinearRegression(alpha=3e-2, l1_ratio=1.0, ridge=1e-3),
    LinearRegression(alpha=1e-2, mechanism="retrain", fit_intercept=False),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_forgetting_is_fitting_the_remaining_rows(
    model: Any, weighted: bool, table: Any, rng: np.random.Generator
) -> None:
    X, y, people = table
    weight = rng.integers(0, 3, size=N_ROWS) / 2.0 if weighted else None
    pipeline = forgettable_pipeline(*steps(), estimator=model)
    pipeline.fit(X, y, subjects=people, sample_weight=weight)
    for request in (["p3"], ["p50", "p8"], ["p1", "p2", "p4", "p9", "p30"]):
        pipeline.forget(request)
    gone = ["p3", "p50", "p8", "p1", "p2", "p4", "p9", "p30"]
    left = ~np.isin(people, gone)
    fresh = clone(pipeline).fit(
        X[left], y[left], sample_weight=None if weight is None else weight[left]
    )
    same_model(pipeline, fresh)
    np.testing.assert_allclose(pipeline.predict(X), fresh.predict(X), rtol=1e-8)
    assert pipeline.certificate_.n_subjects_removed == 8
    assert pipeline.certificate_.n_releases == 4
    assert pipeline.record_.n_removed == 16
    assert pipeline.record_.n_samples == N_ROWS
    assert verify(pipeline.certificate_, pipeline.record_).stands


def test_sum_scaling_keeps_alpha_times_weight(table: Any) -> None:
    X, y, _ = table
    model = LinearRegression(alpha=1e-1, scaling="sum")
    pipeline = forgettable_pipeline(*steps(), estimator=model).fit(X, y)
    pipeline.forget(rows=range(10)).forget(rows=range(10, 30))
    alpha = 1e-1 * N_ROWS / (N_ROWS - 30)
    fresh = clone(pipeline).set_params(estimator__alpha=alpha)
    same_model(pipeline, fresh.fit(X[30:], y[30:]))
    assert pipeline.certificate_.objective["alpha"] == 1e-1


def people_frame(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.Series]:
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 12.0, N_ROWS),
            "income": np.exp(rng.normal(8.0, 1.0, N_ROWS)),
            "city": rng.choice(["ulm", "bonn", "jena"], N_ROWS),
        }
    )
    frame.loc[5, "city"] = "atlantis"
    frame.loc[9, "age"] = np.nan
    label = frame["age"].fillna(40.0) + rng.normal(0.0, 9.0, N_ROWS) > 40.0
    return frame, label.map({True: "yes", False: "no"})


def by_columns() -> ColumnTransformer:
    return make_column_transformer(
        (make_pipeline(MeanImputer(), StandardScaler()), ["age", "income"]),
        (OneHotEncoder(), ["city"]),
    )


def test_data_frame_with_columns_of_many_kinds(rng: np.random.Generator) -> None:
    frame, label = people_frame(rng)
    people = [f"p{i}" for i in range(N_ROWS)]
    pipeline = forgettable_pipeline(by_columns(), estimator=LogisticRegression())
    pipeline.fit(frame, label, subjects=people)
    assert pipeline.feature_names_in_.tolist() == ["age", "income", "city"]
    n_before = pipeline.certificate_.n_parameters
    pipeline.forget(["p5", "p9"])
    fresh = clone(pipeline).fit(frame.drop([5, 9]), label.drop([5, 9]))
    np.testing.assert_allclose(pipeline.model_.coef_, fresh.model_.coef_, atol=1e-8)
    proba = fresh.predict_proba(frame)
    np.testing.assert_allclose(pipeline.predict_proba(frame), proba, atol=1e-8)
    assert pipeline.changes_ == Changes(lost=(2,))
    assert pipeline.certificate_.n_parameters == n_before - 1
    assert pipeline.certificate_.selection == "none"
    assert "atlantis" not in " ".join(pipeline.get_feature_names_out())
    assert verify(pipeline.certificate_, pipeline.record_).stands


def test_kept_rows_are_the_pipelines_own(table: Any) -> None:
    X, y, _ = table
    mine = X.copy()
    pipeline = forgettable_pipeline(*steps(), estimator=LinearRegression())
    pipeline.fit(mine, y)
    mine[:] = 0.0
    same_model(pipeline.forget(rows=[0]), clone(pipeline).fit(X[1:], y[1:]))


def test_without_statistics_the_model_forgets_by_itself(table: Any) -> None:
    X, y, people = table
    X = np.nan_to_num(X)
    model = LogisticRegression(alpha=1e-2)
    pipeline = forgettable_pipeline(Normalizer(), estimator=model)
    pipeline.fit(X, y, subjects=people).forget(["p3"])
    alone = clone(model).fit(Normalizer().transform(X), y, subjects=people)
    alone.forget(["p3"])
    assert pipeline.record_.decisions == ("accepted",)
    np.testing.assert_array_equal(pipeline.model_.coef_, alone.coef_)
    exact = clone(pipeline).set_params(estimator__mechanism="retrain")
    exact.fit(X, y, subjects=people).forget(["p3"]).forget(["p4"])
    left = ~np.isin(people, ["p3", "p4"])
    same_model(exact, clone(exact).fit(X[left], y[left]))


def test_encoder_that_keeps_its_columns_lets_the_model_forget(
    rng: np.random.Generator,
) -> None:
    X = rng.choice(["a", "b", "c"], size=(N_ROWS, 2)).astype(object)
    X[0, 0] = "rare"
    y = (X[:, 0] == "a") + rng.normal(size=N_ROWS)
    model = LinearRegression(mechanism="retrain")
    pipeline = forgettable_pipeline(OneHotEncoder(), estimator=model).fit(X, y)
    kept = pipeline.model_
    pipeline.forget(rows=[3])
    assert pipeline.changes_ == Changes()
    with pytest.raises(NoPrivateState):
        kept.forget(rows=[7])  # replaced, and left without secrets
    with pytest.raises(InvalidInput, match="forget on the pipeline"):
        pipeline.model_.forget(rows=[7])
    pipeline.forget(rows=[0])
    assert pipeline.changes_ == Changes(lost=(3,))
    pipeline.forget(rows=[7])
    left = np.delete(np.arange(N_ROWS), [0, 3, 7])
    same_model(pipeline, clone(pipeline).fit(X[left], y[left]))
    assert pipeline.certificate_.n_subjects_removed == 3


def owners_in(pipeline: Any) -> tuple[str, ...]:
    """Return whose rows a pipeline keeps."""
    owners: tuple[str, ...] = pipeline._fitted.raw.owners
    return owners


def test_budget_continues_through_refits(table: Any) -> None:
    X, y, people = table
    budget = replace(SEEDED, releases=3)
    model = LogisticRegression(alpha=1e-2, budget=budget, random_state=1)
    pipeline = forgettable_pipeline(*steps(), estimator=model)
    pipeline.fit(X, y, subjects=people).forget(["p3"]).forget(["p4", "p5"])
    certificate = pipeline.certificate_
    assert (certificate.n_releases, certificate.n_subjects_removed) == (3, 3)
    assert certificate.status == "certified"
    assert verify(certificate, pipeline.record_).stands
    before = pipeline.model_.coef_
    with pytest.raises(ScheduleExhausted):
        pipeline.forget(["p6"])
    np.testing.assert_array_equal(pipeline.model_.coef_, before)
    assert "p6" in owners_in(pipeline)


def test_noise_is_secure_by_default(table: Any) -> None:
    pytest.importorskip("opendp")
    X, y, people = table
    budget = replace(SEEDED, allow_seeded=False)
    model = LogisticRegression(alpha=1e-2, budget=budget)
    pipeline = forgettable_pipeline(*steps(), estimator=model)
    pipeline.fit(X, y, subjects=people)
    first = pipeline.model_.coef_
    pipeline.forget(["p3"])
    assert pipeline.certificate_.status == "certified"
    assert pipeline.certificate_.noise_source == "secure"
    assert verify(pipeline.certificate_, pipeline.record_).stands
    assert np.abs(pipeline.model_.coef_ - first).max() > 0.01


def test_certificate_has_a_sentence_for_each_step(table: Any) -> None:
    X, y, _ = table
    model = LogisticRegression(alpha=1e-2, budget=SEEDED, random_state=1)
    parts = (*steps(), FunctionTransformer(np.arctan))
    pipeline = forgettable_pipeline(*parts, estimator=model).fit(X, y)
    certificates = [pipeline.certificate_]
    certificates += [
        pipeline.forget(rows=request).certificate_ for request in ([7], [1, 2])
    ]
    for certificate in certificates:
        imputer, scaler, function = certificate.assumptions[len(ASSUMPTIONS) :]
        assert "'meanimputer' (MeanImputer) is fitted on the rows" in imputer
        assert "bit for bit" in scaler
        assert "(FunctionTransformer) is stateless" in function
        assert certificate.not_covered[-1] == NO_NOISE
        assert certificate.status == "certified"
    assert len({certificate.assumptions for certificate in certificates}) == 1
    assert len({certificate.not_covered for certificate in certificates}) == 1
    bare = forgettable_pipeline(Normalizer(), estimator=model)
    assert NO_NOISE not in bare.fit(np.nan_to_num(X), y).certificate_.not_covered


def test_foreign_step_is_named_and_costs_the_certificate(table: Any) -> None:
    X, y, people = table
    model = LogisticRegression(alpha=1e-2, budget=SEEDED, random_state=1)
    pipeline = forgettable_pipeline(
        *steps(), PCA(2, svd_solver="full"), estimator=model
    )
    pipeline.fit(X, y, subjects=people)
    for _ in range(2):
        certificate = pipeline.certificate_
        assert (
            certificate.status == pipeline.model_.certificate_.status == "radius-only"
        )
        assert CHOSEN in certificate.not_covered
        assert any(
            "'pca' (PCA), which learned" in text for text in certificate.not_covered
        )
        assert verify(certificate, pipeline.record_).stands
        pipeline.forget([owners_in(pipeline)[0]])
    fresh = clone(pipeline).fit(X[4:], y[4:])  # it is fitted again all the same
    ours, theirs = pipeline.steps_["pca"], fresh.steps_["pca"]
    np.testing.assert_array_equal(ours.components_, theirs.components_)


HANDLED = [
    (StandardScaler(), "exact"),
    (Normalizer(), "stateless"),
    (PCA(), "foreign"),
    (FrozenEstimator(StandardScaler()), "foreign"),
    (by_columns(), "exact"),
    (by_columns().set_params(remainder=PCA()), "foreign"),
    (make_column_transformer(("passthrough", [0]), remainder="drop"), "stateless"),
    (make_union(Normalizer(), MeanImputer()), "exact"),
    (make_pipeline(Normalizer(), StandardScaler(), memory="cache"), "foreign"),
]


@pytest.mark.parametrize(("step", "expected"), HANDLED)
def test_handling_of_steps(step: Any, expected: str) -> None:
    assert classify_step(step) == expected


def test_unknown_people_change_nothing(table: Any) -> None:
    X, y, people = table
    pipeline = forgettable_pipeline(*steps(), estimator=LinearRegression())
    pipeline.fit(X, y, subjects=people)
    coef, learned = pipeline.model_.coef_, pipeline.steps_["meanimputer"].fingerprint()
    with pytest.raises(
        UnknownSubject, match=r"for example 'nobody'; nobody was removed"
    ):
        pipeline.forget(["p3", "nobody"])
    assert pipeline.certificate_.n_releases == 1
    assert pipeline.model_.coef_ is not None
    np.testing.assert_array_equal(pipeline.model_.coef_, coef)
    assert pipeline.steps_["meanimputer"].fingerprint() == learned
    pipeline.forget(["p3"])
    with pytest.raises(UnknownSubject):
        pipeline.forget(["p3"])
    with pytest.raises(InvalidInput, match="list of ids"):
        pipeline.forget("p4")
    with pytest.raises(CannotRemove, match="nobody was removed"):
        pipeline.forget(set(people) - {"p3"})
    assert pipeline.forget([]).certificate_.n_releases == 2


def test_request_that_cannot_be_fitted_changes_nothing() -> None:
    X = np.arange(8.0)[:, None]
    y = np.array([0, 1, 1, 1, 1, 1, 1, 1])
    pipeline = forgettable_pipeline(StandardScaler(), estimator=LogisticRegression())
    pipeline.fit(X, y)
    before = pipeline.decision_function(X)
    with pytest.raises(EmptyClass, match="only one class"):
        pipeline.forget(rows=[0])
    np.testing.assert_array_equal(pipeline.decision_function(X), before)
    same_model(
        pipeline.forget(rows=[5]), clone(pipeline).fit(X[[0, 1, 2, 3, 4, 6, 7]], y[:7])
    )


def reachable(root: object) -> Iterator[object]:
    """Yield every object that can be reached from this one, short of code."""
    seen: set[int] = set()
    queue: list[object] = [root]
    while queue:
        here = queue.pop()
        if id(here) in seen or isinstance(here, type | types.ModuleType):
            continue
        if isinstance(here, types.FunctionType | types.BuiltinFunctionType):
            continue
        seen.add(id(here))
        yield here
        queue += gc.get_referents(here)
        if isinstance(here, np.ndarray) and here.base is not None:
            queue.append(here.base)


def holds(root: object, numbers: NDArray[Any], word: str = "\0") -> bool:
    """Whether one of the numbers, or the word, is anywhere in the object."""
    needles = [np.float64(number).tobytes() for number in numbers]
    for found in reachable(root):
        if isinstance(found, np.ndarray) and found.dtype != object:
            if any(needle in found.tobytes() for needle in needles):
                return True
        if isinstance(found, float) and np.float64(found).tobytes() in needles:
            return True
        if isinstance(found, str) and word in found:
            return True
    return False


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize(
    "parts",
    [steps(), [FunctionTransformer(np.nan_to_num), Normalizer()]],
    ids=["refitted", "by itself"],
)
def test_person_is_gone_from_the_whole_object(
    framed: bool, parts: list[Any], table: Any
) -> None:
    X, y, people = table
    data = pd.DataFrame(X, columns=list("abcd")) if framed else X
    pipeline = forgettable_pipeline(*parts, estimator=LinearRegression())
    pipeline.fit(data, y, subjects=people)
    raw, old = X[7], pipeline.model_
    seen = apply_steps(pipeline.steps_.items(), data[7:8])
    assert holds(pipeline, raw)
    assert holds(pipeline, seen[0])
    assert "p3" in {word for word in reachable(pipeline) if isinstance(word, str)}
    pipeline.forget(["p3"])
    assert not holds(pipeline, raw)
    assert not holds(pipeline, seen[0])
    assert "p3" not in {word for word in reachable(pipeline) if isinstance(word, str)}
    # A reference from before has its release, and nothing of the rows.
    assert not holds(old, raw)
    assert not holds(old, seen[0])


def test_category_is_gone_from_the_whole_object(rng: np.random.Generator) -> None:
    frame, label = people_frame(rng)
    pipeline = forgettable_pipeline(by_columns(), estimator=LogisticRegression())
    pipeline.fit(frame, label)
    old = pipeline.steps_["columntransformer"]
    assert holds(pipeline, np.array([]), "atlantis")
    pipeline.forget(rows=[5])
    assert not holds(pipeline, np.array([]), "atlantis")
    scaler = old.named_transformers_["pipeline"]
    encoder = old.named_transformers_["onehotencoder"]
    assert scaler[0]._tally is scaler[1]._tally is encoder._tally is None


def test_copies_carry_the_release_alone(table: Any) -> None:
    X, y, _ = table
    pipeline = forgettable_pipeline(*steps(), estimator=LinearRegression()).fit(X, y)
    for travelled in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        np.testing.assert_array_equal(travelled.predict(X), pipeline.predict(X))
        assert not holds(travelled, X[7])
        with pytest.raises(NoPrivateState):
            travelled.forget(rows=[1])
    with pytest.raises(NoPrivateState):
        pickle.loads(pickle.dumps(pipeline)).record_  # noqa: B018


def test_parts_that_do_not_fit_are_refused(table: Any) -> None:
    X, y, people = table
    with pytest.raises(InvalidInput, match="cannot forget"):
        forgettable_pipeline(StandardScaler(), estimator=ForeignModel()).fit(X, y)
    with pytest.raises(InvalidInput, match="set keep_data=True"):
        forgettable_pipeline(estimator=LinearRegression(keep_data=False)).fit(X, y)
    pipeline = forgettable_pipeline(*steps(), estimator=LinearRegression())
    with pytest.raises(InvalidInput, match="subjects has 3 ids"):
        pipeline.fit(X, y, subjects=people[:3])
    with pytest.raises(InvalidInput, match="requires y"):
        pipeline.fit(X, None)


def test_scikit_learn_manners(table: Any) -> None:
    X, y, _ = table
    pipeline = forgettable_pipeline(*steps(), estimator=LogisticRegression(alpha=1e-2))
    assert is_classifier(pipeline)
    other = forgettable_pipeline(estimator=LinearRegression())
    assert is_regressor(other)
    assert not hasattr(other, "predict_proba")
    search = GridSearchCV(
        pipeline,
        {"estimator__alpha": [1e-3, 1e-1], "standardscaler__with_mean": [True, False]},
        cv=3,
    ).fit(X, y)
    assert 0.5 < search.best_score_ <= 1.0
    pipeline.fit(X, y)
    assert pipeline.n_features_in_ == 4
    assert pipeline.classes_.tolist() == [0, 1]
    assert pipeline.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]
    assert other.fit(np.eye(3), [1, 2, 3]).get_feature_names_out().tolist() == [
        "x0",
        "x1",
        "x2",
    ]
    np.testing.assert_array_equal(
        pipeline.predict(X), (pipeline.decision_function(X) > 0.0).astype(int)
    )


def scikit_learn_checks() -> list[Any]:
    models = (LogisticRegression(), LinearRegression())
    pipelines = [forgettable_pipeline(*steps(), estimator=model) for model in models]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        return [pair for one in pipelines for pair in estimator_checks_generator(one)]


@pytest.mark.parametrize(("estimator", "check"), scikit_learn_checks())
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest as reason:
        pytest.skip(str(reason))
