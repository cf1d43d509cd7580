# SPDX-License-Identifier: Apache-2.0
"""Estimators: people leave, strangers do not, and secrets stay behind."""

import copy
import gc
import pickle
import pydoc
import threading
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import L2, GroupLasso, HalfSquared, Huber, Jackknife, Newton, NuclearNorm
from expunge.exceptions import (
    CapacityExceeded,
    InvalidInput,
    NoPrivateState,
    ScheduleExhausted,
    UnknownRows,
    UnknownSubject,
    Unsupported,
)
from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
)
from expunge.linear_model.base import Forgetful
from expunge.linear_model.parameters import PARAMETERS
from expunge.promise.budget import Budget
from expunge.promise.verification import verify

SEEDED = Budget(sigma=1.0, allow_seeded=True)


def _people(n_rows: int) -> list[str]:
    """Return owners of one to five rows each."""
    rng = np.random.default_rng(0)
    owners: list[str] = []
    while len(owners) < n_rows:
        owners += [f"p{len(owners)}"] * int(rng.integers(1, 6))
    return owners[:n_rows]


def test_forgetting_people_is_near_fitting_without_them(cancer: Any) -> None:
    X, y = cancer
    owners = np.array(_people(len(X)))
    model = LogisticRegression(alpha=1e-2).fit(X, y, subjects=owners.tolist())
    before = model.coef_.copy()
    leaving = list(dict.fromkeys(owners))[5:15]
    model.forget(leaving)
    stay = ~np.isin(owners, leaving)
    fresh = LogisticRegression(alpha=1e-2).fit(X[stay], y[stay])
    moved = np.linalg.norm(before - fresh.coef_)
    assert np.linalg.norm(model.coef_ - fresh.coef_) <= 0.1 * moved
    assert model.certificate_.n_subjects_removed == 10
    assert model.certificate_.status == "no promise"
    assert model.record_.n_removed == int((~stay).sum())


@pytest.mark.parametrize("mechanism", ["newton", "jackknife", "retrain", Jackknife()])
def test_mechanisms_by_name_and_by_object(mechanism: Any, cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(alpha=0.1, mechanism=mechanism).fit(X, y)
    model.forget(rows=np.arange(3))
    fresh = LogisticRegression(alpha=0.1).fit(X[3:], y[3:])
    assert np.allclose(model.coef_, fresh.coef_, atol=1e-3)


def test_unknown_and_forgotten_people_are_refused_all_or_nothing(cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(alpha=0.1).fit(X, y, subjects=range(len(X)))
    before = model.coef_.copy()
    with pytest.raises(UnknownSubject, match=r"1 of 2 people.*'nobody'"):
        model.forget([0, "nobody"])
    assert np.array_equal(model.coef_, before)
    model.forget([0])
    with pytest.raises(UnknownSubject, match="or no longer, in the model"):
        model.forget(["0"])
    assert model.certificate_.n_subjects_removed == 1
    with pytest.raises(InvalidInput, match="list of ids"):
        model.forget("17")
    with pytest.raises(InvalidInput, match="say what to forget"):
        model.forget()


@pytest.mark.parametrize("keep_data", [True, False])
def test_rows_can_be_handed_over(keep_data: bool, cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(alpha=0.1, keep_data=keep_data).fit(X, y)
    model.forget(X=X[:4], y=y[:4])
    fresh = LogisticRegression(alpha=0.1).fit(X[4:], y[4:])
    assert np.allclose(model.coef_, fresh.coef_, atol=1e-3)
    for stranger, label in ((X[:1], y[:1]), (X[4:5] + 1e-9, y[4:5])):
        with pytest.raises(UnknownRows, match="or no longer, in the training data"):
            model.forget(X=stranger, y=label)
    with pytest.raises(UnknownRows, match="1 of 2 row"):  # the same row twice
        model.forget(X=X[[5, 5]], y=y[[5, 5]])
    flipped = np.where(y[5:6] == "benign", "malignant", "benign")
    with pytest.raises(UnknownRows):
        model.forget(X=X[5:6], y=flipped)
    with pytest.raises(InvalidInput, match="not one of the model's classes"):
        model.forget(X=X[5:6], y=["unheard"])
    with pytest.raises(InvalidInput, match="labels of the rows too"):
        model.forget(X=X[5:6])
    if not keep_data:
        with pytest.raises(InvalidInput, match="cannot look people up"):
            model.forget([5])
        with pytest.raises(InvalidInput, match="only if the model keeps its data"):
            model.forget(rows=[5])


def test_duplicate_rows_leave_one_at_a_time() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 2)), 2, axis=0)
    y = np.tile([0.0, 0.0, 1.0, 1.0], 10)
    model = LinearRegression(alpha=0.1, keep_data=False).fit(X, y)
    model.forget(X=X[:1], y=y[:1]).forget(X=X[:1], y=y[:1])
    with pytest.raises(UnknownRows):
        model.forget(X=X[:1], y=y[:1])


def test_weights_are_part_of_a_row() -> None:
    rng = np.random.default_rng(1)
    X, y, weight = rng.normal(size=(60, 3)), rng.normal(size=60), rng.random(60) + 0.5
    model = LinearRegression(alpha=0.1, keep_data=False)
    model.fit(X, y, sample_weight=weight)
    with pytest.raises(UnknownRows):
        model.forget(X=X[:2], y=y[:2])
    model.forget(X=X[:2], y=y[:2], sample_weight=weight[:2])
    fresh = LinearRegression(alpha=0.1).fit(X[2:], y[2:], sample_weight=weight[2:])
    assert np.allclose(model.coef_, fresh.coef_, atol=1e-12)


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        pd.DataFrame,
        pl.DataFrame,
        sparse.csr_array,
        lambda X: X.astype(np.float32),
    ],
)
def test_inputs_of_every_kind(kind: Any, cancer: Any) -> None:
    X, y = cancer
    X = np.round(X, 2).astype(np.float32).astype(np.float64)
    model = LogisticRegression(alpha=0.1).fit(kind(X), y).forget(rows=[0, 1])
    plain = LogisticRegression(alpha=0.1).fit(X, y).forget(rows=[0, 1])
    assert np.allclose(model.coef_, plain.coef_, atol=1e-10)
    assert np.array_equal(model.predict(kind(X)), plain.predict(X))


def test_multiclass_by_softmax_and_one_against_the_rest() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    softmax = SoftmaxRegression(alpha=1e-2).fit(X, names)
    rival = rivals.LogisticRegression(C=1.0 / (1e-2 * 150), tol=1e-10, max_iter=10_000)
    assert np.allclose(softmax.coef_, rival.fit(X, names).coef_, atol=1e-4)
    rest = LogisticRegression(alpha=1e-2).fit(X, names)
    for k, name in enumerate(rest.classes_):
        alone = LogisticRegression(alpha=1e-2).fit(X, names == name)
        assert np.allclose(rest.coef_[k], alone.coef_[0], atol=1e-8)
    for loss in ("squared_hinge", HalfSquared()):
        parts = LogisticRegression(alpha=1e-2, loss=loss).fit(X, names)
        alone = LogisticRegression(alpha=1e-2, loss=loss).fit(X, names == names[0])
        k = parts.classes_.tolist().index(names[0])
        assert np.allclose(parts.coef_[k], alone.coef_[0], atol=1e-8)
        assert parts.forget(rows=range(5)).score(X, names) > 0.8
        assert not hasattr(parts, "predict_proba")
    for model in (softmax, rest):
        assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
        assert model.forget(rows=range(5)).score(X, names) > 0.9
    for penalty in (NuclearNorm(), GroupLasso([0, 0, 1, 1])):
        model = SoftmaxRegression(alpha=1e-3, penalty=penalty, ridge=1e-3)
        assert model.fit(X, names).forget(rows=[3]).score(X, names) > 0.9


@pytest.mark.parametrize("kind", [LogisticRegression, TunedClassifier])
def test_only_log_odds_give_probabilities(cancer: Any, kind: Any) -> None:
    X, y = cancer
    X = X[:, :4]
    assert hasattr(kind(), "predict_proba")
    assert not hasattr(kind(loss="squared_hinge"), "predict_proba")
    assert not hasattr(kind(loss="no such loss"), "predict_proba")
    model = kind(loss="squared_hinge").fit(X, y)
    with pytest.raises(AttributeError) as refused:
        model.predict_proba(X)
    assert "use decision_function" in str(refused.value.__cause__)
    model.set_params(loss="logistic")  # and the release stays as it was fitted
    assert not hasattr(model, "predict_proba")
    assert not hasattr(pickle.loads(pickle.dumps(model)), "predict_proba")
    vote = VotingClassifier([("ours", kind(loss="squared_hinge"))], voting="soft")
    with pytest.raises(AttributeError, match="predict_proba"):
        vote.fit(X, y).predict_proba(X)
    scores = cross_val_score(kind(loss="squared_hinge"), X, y, scoring="roc_auc", cv=3)
    assert scores.min() > 0.9


def test_regression_of_one_and_several_targets() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = LinearRegression(alpha=1e-3).fit(X, y).forget(rows=range(10))
    fresh = LinearRegression(alpha=1e-3).fit(X[10:], y[10:])
    assert np.allclose(model.coef_, fresh.coef_, atol=1e-8)
    ridge = rivals.Ridge(alpha=1e-3 * 432).fit(X[10:], y[10:])
    assert np.allclose(model.coef_, ridge.coef_, atol=1e-8)
    both = LinearRegression(alpha=1e-3).fit(X, np.column_stack([y, -y]))
    assert both.coef_.shape == (2, 10) and both.predict(X).shape == (442, 2)
    huber = LinearRegression(alpha=1e-3, loss="huber").fit(X, y / 100.0)
    assert huber.forget(rows=[0]).predict(X).shape == (442,)
    with pytest.raises(Unsupported, match="is for one target"):
        LinearRegression(loss="huber").fit(X, np.column_stack([y, y]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l1_ratio": 1.5}, "l1_ratio=1.5"),
        ({"penalty": NuclearNorm(), "l1_ratio": 0.5}, "pass one of them"),
        ({"mechanism": "magic"}, "mechanism='magic'; choose one of 'auto', 'newton'"),
        ({"alpha": 0.0}, "alpha=0"),
        ({"loss": "hinge"}, "loss='hinge'"),
    ],
)
def test_bad_parameters_are_refused(
    parameters: dict[str, Any], message: str, cancer: Any
) -> None:
    with pytest.raises(InvalidInput, match=message):
        LogisticRegression(**parameters).fit(*cancer)


ESTIMATORS = (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
)
# Each parameter's kind, and values that users tried or may try.
WRONG: dict[str, tuple[str, list[Any]]] = {
    "alpha": ("None or a number", ["x", [1.0], True, 1j, 10**400]),
    "C": ("None or a number", ["x", [1.0], True]),
    "selection": ("None or 'none'", ["certified", "not known", 0, True]),
    "l1_ratio": ("a number", ["x", None]),
    "alphas": ("a list of numbers", [0.1, "0.1", None]),
    "l1_ratios": ("a list of numbers", [0.1, None]),
    "folds": ("an integer of at least 2", [2.5, None, "loo"]),
    "method": ("'certified'", [3, None]),
    "fold_key": ("bytes, a string or None", [3]),
    "penalty": ("a penalty object, such as L2()", ["l2", L2, 0.1]),
    "ridge": ("a number", ["x", None, np.ones(3)]),
    "scaling": ("None, 'mean' or 'sum'", [3]),
    "fit_intercept": ("True or False", ["yes", None, 1]),
    "penalize_intercept": ("True or False", ["no"]),
    "mechanism": ("'auto', 'newton', 'jackknife'", [3, None, Newton]),
    "budget": ("None or a Budget, such as Budget()", [1.0, "x", Budget]),
    "keep_data": ("True or False", ["yes", 0]),
    "random_state": ("zero or a positive integer", ["x", 1.5, -1, object()]),
    "loss": ("a loss object", [3, Huber]),
    "verbose": ("True or False", ["yes"]),
    "classes": ("a list of labels", ["ab", 3]),
    "tol": ("None or a positive number", ["x", 0.0, -1.0, np.nan]),
    "preprocessing": ("a transformer of scikit-learn", ["standard", 3, 0.5]),
    "max_iter": ("None or a positive integer", ["x", 0, -1, 10.0, True]),
    "class_weight": (
        "None, 'balanced' or a dict of positive weights by label",
        ["balance", [1.0, 2.0], {0: 0.0}, {0: -1}, {0: "x"}, {0: np.nan}, {0: 1e60}],
    ),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_values_of_a_wrong_type_are_refused(kind: Any) -> None:
    X, y = np.eye(12)[:, :3], np.arange(12) % 2
    model = kind().fit(X, y)
    before = model.certificate_
    parameters = model.get_params()
    assert set(parameters) <= set(WRONG)
    for name, (wanted, values) in WRONG.items():
        for value in values if name in parameters else ():
            model.set_params(**parameters | {name: value})
            with pytest.raises(InvalidInput) as caught:
                model.fit(X, y)
            shown, _, advice = str(caught.value).partition("; give ")
            assert shown.startswith(f"{name}=") and wanted in advice
            assert model.certificate_ is before


def test_refused_values_are_shown_if_they_are_not_data() -> None:
    shown_values: dict[str, Any] = {"'l2'": "l2", "L2": L2, "<ndarray>": np.ones(3)}
    for shown, value in shown_values.items():
        with pytest.raises(InvalidInput, match=f"^penalty={shown}; give"):
            LogisticRegression(penalty=value).fit(np.eye(4), [0, 1, 0, 1])


def test_numbers_of_numpy_are_numbers() -> None:
    X, y = np.eye(12)[:, :3], np.arange(12) % 2
    given: dict[str, Any] = {"alpha": np.float32(0.1), "ridge": np.int64(1)}
    given |= {"keep_data": np.True_, "random_state": np.int64(3)}
    LogisticRegression(**given).fit(X, y)
    folds: Any = np.int64(2)
    TunedClassifier(folds=folds, fold_key="key").fit(X, y)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_help_shows_the_parameters(kind: Any) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind)).replace(" |  ", "")
    for name, default in kind().get_params().items():
        known = PARAMETERS[name]
        assert f"\n{name} : {known.kind}, default {default!r}\n" in shown
        assert " ".join(known.meaning.split()) in " ".join(shown.split())
    assert "help(expunge" not in shown
    assert shown.count("Parameters\n----------\nalpha") == 1


def test_every_parameter_described_is_one() -> None:
    # Exact models describe their own.
    kinds = [one for one in Forgetful.by_name.values() if issubclass(one, Forgetful)]
    taken = {name for kind in kinds for name in signature(kind).parameters}
    assert taken == set(PARAMETERS)


def test_subjects_must_name_every_row(cancer: Any) -> None:
    with pytest.raises(InvalidInput, match="subjects has 2 ids and X has 569 rows"):
        LogisticRegression().fit(cancer[0], cancer[1], subjects=["a", "b"])


def test_a_budget_certifies_every_release(cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(
        alpha=0.1, penalize_intercept=True, budget=SEEDED, random_state=3
    ).fit(X, y)
    seen = []
    for row in range(5):
        model.forget(rows=[row])
        assert model.certificate_.status == "certified"
        assert verify(model.certificate_, model.record_).valid
        seen.append(model.coef_.tobytes())
    assert len(set(seen)) == 5
    assert model.certificate_.n_releases == 6


def test_schedule_and_capacity_end_as_documented(cancer: Any) -> None:
    X, y = cancer
    planned = Budget(sigma=1.0, releases=2, allow_seeded=True)
    model = LogisticRegression(
        alpha=0.1, penalize_intercept=True, budget=planned, random_state=0
    ).fit(X, y)
    model.forget(rows=[0])
    before = model.coef_.copy()
    with pytest.raises(ScheduleExhausted):
        model.forget(rows=[1])
    assert np.array_equal(model.coef_, before)
    tight = LogisticRegression(
        alpha=0.1,
        penalize_intercept=True,
        budget=Budget(sigma=1e-3, allow_seeded=True),
        random_state=0,
        keep_data=False,
    ).fit(X, y)
    with pytest.raises(CapacityExceeded):
        tight.forget(X=X[:100], y=y[:100])
    with pytest.raises(UnknownRows):  # they are gone all the same
        tight.forget(X=X[:1], y=y[:1])


@pytest.mark.parametrize(
    "travel", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_carry_the_release_alone(travel: Any, cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(alpha=0.1).fit(X, y)
    other = travel(model)
    assert np.array_equal(other.predict(X), model.predict(X))
    assert other.certificate_.to_json() == model.certificate_.to_json()
    with pytest.raises(NoPrivateState, match="only the release"):
        other.forget(rows=[0])
    with pytest.raises(NoPrivateState, match="only the release"):
        _ = other.record_
    assert X[17].tobytes() not in pickle.dumps(model)


def _arrays(thing: object) -> list[np.ndarray]:
    """Return every array that can be reached from an object."""
    found, seen, queue = [], {id(np), id(sklearn)}, [thing]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            found.append(item)
        if type(item).__module__.split(".")[0] in ("expunge", "builtins", "scipy"):
            queue += gc.get_referents(item)
    return found


def _lines(array: np.ndarray, length: int) -> Iterator[np.ndarray]:
    """Yield the vectors in an array: its rows, columns or, if flat, its windows."""
    if array.ndim == 1 and array.size >= length:
        yield sliding_window_view(array, length)
    elif array.ndim == 2:
        yield from (lines for lines in (array, array.T) if lines.shape[1] >= length)


def _traces(model: object, row: np.ndarray) -> int:
    """Return how many stored vectors or matrix rows look like this row."""
    traces = 0
    for array in _arrays(model):
        if array.dtype.kind != "f" or array.ndim not in (1, 2) or not array.size:
            continue
        for lines in _lines(array, row.size):
            part = lines[:, : row.size]
            norms = np.linalg.norm(part, axis=1) * np.linalg.norm(row)
            cosine = np.abs(part @ row) / np.where(norms > 0.0, norms, np.inf)
            traces += int((cosine > 0.99).sum())
    return traces


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_forgotten_person_leaves_no_trace_in_the_object_graph(
    kind: Any, cancer: Any
) -> None:
    X, y = cancer
    X, y = X[:200], y[:200]
    model = LogisticRegression(alpha=0.1, mechanism="newton").fit(kind(X), y)
    row = X[17].copy()
    assert _traces(model, row) > 0  # it is found while it is there
    model.forget(rows=[17])
    assert _traces(model, row) == 0
    model.planted = [3.0 * row]
    assert _traces(model, row) > 0


def test_the_callers_arrays_are_not_written_to(cancer: Any) -> None:
    X, y = cancer
    before = X.copy()
    LogisticRegression(alpha=0.1, fit_intercept=False).fit(X, y).forget(rows=range(50))
    assert np.array_equal(X, before)


def test_predictions_beside_a_removal_see_one_model(cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(
        alpha=0.1, penalize_intercept=True, budget=SEEDED, random_state=0
    ).fit(X, y)
    models = [(model.coef_[0].copy(), float(model.intercept_[0]))]
    answers: list[np.ndarray] = []
    done = threading.Event()

    def predict() -> None:
        while not done.is_set():
            answers.append(model.decision_function(X[:5]))

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    for row in range(40):
        model.forget(rows=[row])
        models.append((model.coef_[0].copy(), float(model.intercept_[0])))
    done.set()
    for thread in threads:
        thread.join()
    expected = np.array([X[:5] @ coef + b for coef, b in models])
    for answer in answers:
        assert np.isclose(expected, answer, atol=1e-9).all(axis=1).any()


def test_search_routes_subjects_and_is_declared(cancer: Any) -> None:
    X, y = cancer
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(alpha=0.1).set_fit_request(subjects=True)
        search = GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=3)
        search.fit(X, y, subjects=_people(len(X)))
    best = search.best_estimator_
    assert best.certificate_.selection == "not known"
    best.declare_tuned(search)
    assert best.certificate_.selection == "not covered"
    assert best.certificate_.status == "no promise"
    assert best.forget(["p0"]).certificate_.selection == "not covered"
    assert verify(best.certificate_, best.record_).valid


def test_pipelines_clones_and_set_params(cancer: Any) -> None:
    X, y = cancer
    pipe = make_pipeline(StandardScaler(), LogisticRegression(alpha=0.1))
    pipe.set_params(logisticregression__alpha=0.2).fit(X, y)
    assert pipe.score(X, y) > 0.9
    copy_ = clone(LogisticRegression(alpha=0.3, budget=SEEDED, penalty=NuclearNorm()))
    assert copy_.alpha == 0.3 and copy_.budget == SEEDED
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    model = LogisticRegression(alpha=0.1).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert "private" not in repr(model) and "Custody" not in repr(model)
