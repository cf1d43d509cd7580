# SPDX-License-Identifier: Apache-2.0
"""A model that forgets with its preprocessing is the whole fitted to the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)

from expunge import Budget, GroupLasso, load, verify
from expunge.exceptions import (
    CannotRemove,
    CapacityExceeded,
    EmptyClass,
    InvalidInput,
    ScheduleExhausted,
    UnknownRows,
    UnknownSubject,
)
from expunge.linear_model import LinearRegression, LogisticRegression
from expunge.linear_model.base import private_model, public_model
from expunge.private_model.answers import retrain_answer

N_ROWS = 120
SEEDED = Budget(epsilon=1.0, delta=1e-5, sigma=0.1, allow_seeded=True)


@pytest.fixture
def table(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    """Return raw rows with gaps and scales, two classes, and a person for two rows."""
    X = rng.normal(size=(N_ROWS, 4)) * [1.0, 1e-3, 1e4, 2.0] + [0.0, 1.0, 1e4, -3.0]
    y = (X[:, 0] + X[:, 2] / 1e4 + rng.normal(size=N_ROWS) > 1.0).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[7] = 4321.0987654321 * np.array([1e-3, 1e-3, 1.2, 1e-3])
    return X, y, [f"p{i // 2}" for i in range(N_ROWS)]


def steps() -> Any:
    return make_pipeline(SimpleImputer(), StandardScaler())


def draft(model: Any) -> Any:
    """Return the noise-free parameters of a model."""
    return private_model(model).answer.draft.theta


def same_model(ours: Any, fresh: Any, atol: float = 1e-8) -> None:
    """Assert that features are equal bit for bit and models nearly."""
    a: Any = public_model(ours)
    b: Any = public_model(fresh)
    mine, theirs = a.preprocessing.features, b.preprocessing.features
    assert mine.equals(theirs)
    assert mine.layout.names == theirs.layout.names
    np.testing.assert_allclose(draft(ours), draft(fresh), atol=atol, rtol=atol)


MODELS = [
    LinearRegression(alpha=1e-2),
    LinearRegression(alpha=1e-2, fit_intercept=False),
    LinearRegression(alpha=1e-2, penalize_intercept=True),
    LinearRegression(alpha=3e-2, l1_ratio=1.0, ridge=1e-3),
    LinearRegression(alpha=1e-2, mechanism="retrain", fit_intercept=False),
    LinearRegression(alpha=1e-2, mechanism="jackknife"),
    LogisticRegression(alpha=1e-2, mechanism="retrain"),
    LogisticRegression(alpha=1e-2, mechanism="retrain", l1_ratio=1.0, ridge=1e-3),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_forgetting_is_fitting_the_remaining_rows(
    model: Any, weighted: bool, table: Any, rng: np.random.Generator
) -> None:
    X, y, people = table
    weight = rng.integers(0, 3, size=N_ROWS) / 2.0 if weighted else None
    ours = clone(model).set_params(preprocessing=steps())
    ours.fit(X, y, subjects=people, sample_weight=weight)
    for request in (["p3"], ["p50", "p8"], ["p1", "p2", "p4", "p9", "p30"]):
        ours.forget(request)
    gone = ["p3", "p50", "p8", "p1", "p2", "p4", "p9", "p30"]
    left = ~np.isin(people, gone)
    fresh = clone(ours).fit(
        X[left], y[left], sample_weight=None if weight is None else weight[left]
    )
    same_model(ours, fresh)
    np.testing.assert_allclose(ours.predict(X), fresh.predict(X), rtol=1e-7)
    assert ours.certificate_.n_subjects_removed == 8
    assert ours.certificate_.n_releases == 4
    assert (ours.record_.n_removed, ours.record_.n_samples) == (16, N_ROWS)
    assert verify(ours.certificate_, ours.record_).valid


def test_sum_scaling_keeps_alpha_times_weight(table: Any) -> None:
    X, y, _ = table
    ours = LinearRegression(alpha=1e-1, scaling="sum", preprocessing=steps())
    ours.fit(X, y).forget(rows=range(10)).forget(rows=range(10, 30))
    fresh = clone(ours).set_params(alpha=1e-1 * N_ROWS / (N_ROWS - 30))
    same_model(ours, fresh.fit(X[30:], y[30:]))
    assert ours.certificate_.objective["alpha"] == 1e-1


def people_frame(rng: np.random.Generator) -> tuple[pd.DataFrame, NDArray[Any]]:
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 12.0, N_ROWS),
            "income": np.exp(rng.normal(8.0, 1.0, N_ROWS)),
            "city": rng.choice(["ulm", "bonn", "jena"], N_ROWS).astype(object),
        }
    )
    frame.loc[5, "city"] = "atlantis"
    frame.loc[9, "age"] = np.nan
    return frame, rng.normal(size=N_ROWS) + frame["age"].fillna(40.0).to_numpy() / 9.0


def by_columns(**encoder: Any) -> ColumnTransformer:
    return make_column_transformer(
        (steps(), ["age"]),
        (MinMaxScaler(), ["income"]),
        (OneHotEncoder(**encoder), ["city"]),
    )


def test_data_frame_with_columns_of_many_kinds(rng: np.random.Generator) -> None:
    frame, y = people_frame(rng)
    ours = LinearRegression(alpha=0.01, preprocessing=by_columns())
    ours.fit(frame, y, subjects=range(N_ROWS))
    assert ours.feature_names_in_.tolist() == ["age", "income", "city"]
    n_before = ours.certificate_.n_parameters
    richest = int(frame["income"].argmax())
    gone = [5, 9, richest]
    for person in gone:
        ours.forget([person])
    fresh = clone(ours).fit(frame.drop(gone), np.delete(y, gone))
    same_model(ours, fresh)
    left = frame.drop(gone)
    np.testing.assert_allclose(ours.predict(left), fresh.predict(left), atol=1e-8)
    np.testing.assert_allclose(
        ours.to_sklearn().predict(left), ours.predict(left), atol=1e-10
    )
    assert ours.certificate_.n_parameters == n_before - 1
    assert ours.certificate_.selection == "not known"
    # The largest income must not stay in the features of the anchor.
    assert ours.record_.decisions == ("retrained",)
    ours.forget([int(frame["income"].drop(gone).sort_values().index[30])])
    assert ours.record_.decisions == ("accepted",)  # no row was read


def test_category_that_is_declared_empties(rng: np.random.Generator) -> None:
    """It stays, and its coefficient is that of a column of zeros: none."""
    frame, y = people_frame(rng)
    frame["income"] = np.arange(N_ROWS) % 2
    declared = OneHotEncoder(categories=[["atlantis", "bonn", "jena", "ulm"]])
    ours = LinearRegression(
        alpha=0.1, penalize_intercept=True, preprocessing=declared
    ).fit(frame[["city"]], y, subjects=range(N_ROWS))
    theirs = frame["city"] == "bonn"
    ours.forget(np.flatnonzero(theirs).tolist())
    fresh = clone(ours).fit(frame.loc[~theirs, ["city"]], y[~theirs])
    same_model(ours, fresh)
    assert abs(ours.coef_[1]) < 1e-12


def test_rows_are_forgotten_by_content_without_being_kept(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    frame, y = people_frame(rng)
    two = make_column_transformer(
        (steps(), ["age", "income"]), (OneHotEncoder(), ["city"])
    )
    ours: Any = LinearRegression(alpha=0.01, preprocessing=two, keep_data=False)
    ours.fit(frame, y, subjects=range(N_ROWS))
    kept = clone(ours).set_params(keep_data=True).fit(frame, y, range(N_ROWS))
    for gone in ([5], [9, 30], [77]):
        ours.forget(X=frame.iloc[gone], y=y[gone])
        kept.forget(X=frame.iloc[gone], y=y[gone])
        ours.save(tmp_path / "model")
        ours = load(tmp_path / "model")
    left = np.setdiff1d(np.arange(N_ROWS), [5, 9, 30, 77])
    fresh = clone(kept).fit(frame.iloc[left], y[left])
    same_model(ours, fresh)
    same_model(kept, fresh)
    assert ours.certificate_.n_subjects_removed == 4
    before = draft(ours).copy()
    for model in (ours, kept):
        with pytest.raises(UnknownRows):
            model.forget(X=frame.iloc[[5]], y=y[[5]])  # a city that nobody has
        with pytest.raises(UnknownRows):
            model.forget(X=frame.iloc[[1]], y=y[[2]])
    np.testing.assert_array_equal(draft(ours), before)


def test_what_only_rows_can_tell_is_refused_without_them() -> None:
    """A category had no feature of its own; a scale changes by far too much."""
    words = np.array(list("aaaaaaaabbbbcc"), dtype=object)
    frame, y = pd.DataFrame({"c": words}), np.arange(14.0)
    rare = OneHotEncoder(max_categories=2, handle_unknown="ignore")
    lone = np.append(np.linspace(0.0, 1.0, 13), 1e9)
    cases: list[tuple[Any, Any, slice]] = [
        (rare, frame, slice(0, 7)),
        (StandardScaler(), lone[:, None], slice(13, 14)),
    ]
    for step, X, gone in cases:
        ours = LinearRegression(alpha=0.1, preprocessing=step, keep_data=False)
        ours.fit(X, y)
        before = draft(ours).copy()
        with pytest.raises(CannotRemove, match="must be read again"):
            ours.forget(X=X[gone], y=y[gone])
        np.testing.assert_array_equal(draft(ours), before)
        kept = clone(ours).set_params(keep_data=True).fit(X, y)
        kept.forget(rows=range(14)[gone])
        assert kept.record_.decisions == ("retrained",)
        left = np.delete(np.arange(14), range(14)[gone])
        table: Any = X.iloc[left] if isinstance(X, pd.DataFrame) else X[left]
        same_model(kept, clone(kept).fit(table, y[left]))


def test_kept_rows_are_the_models_own(table: Any) -> None:
    X, y, _ = table
    mine = X.copy()
    ours = LinearRegression(alpha=0.01, preprocessing=steps()).fit(mine, y)
    mine[:] = 0.0
    same_model(ours.forget(rows=[0]), clone(ours).fit(X[1:], y[1:]))


def test_budget_continues(table: Any) -> None:
    X, y, people = table
    model = LogisticRegression(
        alpha=1e-2,
        budget=replace(SEEDED, releases=3),
        random_state=1,
        preprocessing=steps(),
    )
    model.fit(X, y, subjects=people).forget(["p3"]).forget(["p4", "p5"])
    certificate = model.certificate_
    assert (certificate.n_releases, certificate.n_subjects_removed) == (3, 3)
    assert certificate.status == "certified"
    assert verify(certificate, model.record_).valid
    before = model.coef_
    with pytest.raises(ScheduleExhausted):
        model.forget(["p6"])
    np.testing.assert_array_equal(model.coef_, before)


@pytest.mark.parametrize("free", [False, True])
def test_answers_stay_within_the_budget(table: Any, free: bool) -> None:
    X, y, people = table
    model = LogisticRegression(
        alpha=1e-2,
        budget=replace(SEEDED, sigma=1e-3),
        random_state=1,
        penalize_intercept=not free,
        preprocessing=steps(),
    ).fit(X, y, subjects=people)
    for first in range(0, 40, 5):
        model.forget([f"p{i}" for i in range(first, first + 5)])
        private = private_model(model)
        rows = private.remaining_rows()
        assert rows is not None and private.budget is not None
        exact = retrain_answer(private.terms, rows, start=None)
        size = draft(model).size
        distance = np.linalg.norm(draft(model) - exact.draft.theta)
        assert distance <= private.answer.radius.value + exact.radius.value
        assert private.answer.radius.value <= private.budget.removal_budget(size)


def test_without_rows_the_budget_may_be_exhausted(table: Any) -> None:
    X, y, people = table
    model = LogisticRegression(
        alpha=1e-2,
        budget=replace(SEEDED, sigma=1e-3),
        random_state=1,
        preprocessing=steps(),
        keep_data=False,
    ).fit(X, y, subjects=people)
    before = model.coef_
    with pytest.raises(CapacityExceeded, match="budget is exhausted"):
        model.forget(X=X[:30], y=y[:30])
    np.testing.assert_array_equal(model.coef_, before)
    assert private_model(model).n_removed == 30


def test_noise_is_secure_by_default(table: Any) -> None:
    X, y, people = table
    budget = replace(SEEDED, allow_seeded=False)
    model = LogisticRegression(alpha=1e-2, budget=budget, preprocessing=steps())
    first = model.fit(X, y, subjects=people).coef_
    model.forget(["p3"])
    assert model.certificate_.status == "certified"
    assert model.certificate_.noise_source == "secure"
    assert verify(model.certificate_, model.record_).valid
    assert np.abs(model.coef_ - first).max() > 0.01


def test_unknown_people_change_nothing(table: Any) -> None:
    X, y, people = table
    model = LinearRegression(alpha=0.01, preprocessing=steps())
    model.fit(X, y, subjects=people)
    coef = model.coef_
    with pytest.raises(
        UnknownSubject, match=r"for example 'nobody'; nobody was removed"
    ):
        model.forget(["p3", "nobody"])
    assert model.certificate_.n_releases == 1
    np.testing.assert_array_equal(model.coef_, coef)
    model.forget(["p3"])
    with pytest.raises(UnknownSubject):
        model.forget(["p3"])
    with pytest.raises(CannotRemove):
        model.forget(set(people) - {"p3"})
    assert model.forget([]).certificate_.n_releases == 2


def test_request_that_cannot_be_fitted_changes_nothing() -> None:
    X = np.arange(8.0)[:, None]
    y = np.array([0, 1, 1, 1, 1, 1, 1, 1])
    model = LogisticRegression(preprocessing=StandardScaler(), mechanism="retrain")
    model.fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(EmptyClass, match="only one class"):
        model.forget(rows=[0])
    np.testing.assert_array_equal(model.decision_function(X), before)
    left = [0, 1, 2, 3, 4, 6, 7]
    same_model(model.forget(rows=[5]), clone(model).fit(X[left], y[left]))


def test_a_penalty_that_does_not_fit_fewer_columns_refuses(
    rng: np.random.Generator,
) -> None:
    frame, y = people_frame(rng)
    penalty = GroupLasso((0, 1, 2, 2, 2, 2))
    model = LinearRegression(ridge=0.01, penalty=penalty, preprocessing=by_columns())
    model.fit(frame, y, subjects=range(N_ROWS))
    before = draft(model).copy()
    with pytest.raises(InvalidInput, match="GroupLasso numbers 6 features"):
        model.forget([5])
    np.testing.assert_array_equal(draft(model), before)
    with pytest.raises(InvalidInput, match="GroupLasso numbers 6 features"):
        clone(model).fit(frame.drop(5), np.delete(y, 5))


@pytest.mark.parametrize("mechanism", ["newton", "retrain", "jackknife"])
@pytest.mark.parametrize("intercept", [False, True])
def test_sums_are_rebuilt(mechanism: str, intercept: bool, table: Any) -> None:
    X, y, people = table
    model = LinearRegression(
        alpha=0.01,
        mechanism=mechanism,
        fit_intercept=intercept,
        preprocessing=steps(),
    ).fit(X, y, subjects=people)
    private: Any = private_model(model.forget(["p3"]))
    again = private.reanchor(private.kept_rows())
    assert again.answer.decisions == ("re-anchored",)
    assert again.encoding.reference.features.equals(private.encoding.features)
    np.testing.assert_allclose(
        again.answer.draft.theta, private.answer.draft.theta, atol=1e-9
    )


def test_scikit_learn_manners(table: Any) -> None:
    X, y, _ = table
    model = LogisticRegression(alpha=1e-2, preprocessing=steps())
    assert is_classifier(model)
    grid = {
        "alpha": [1e-3, 1e-1],
        "preprocessing__standardscaler__with_mean": [True, False],
    }
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert 0.5 < search.best_score_ <= 1.0
    model.fit(X, y)
    assert model.n_features_in_ == 4
    assert model.classes_.tolist() == [0, 1]
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), (scores > 0.0).astype(int))
    assert "nan" not in str(model.predict_proba(X))
