# SPDX-License-Identifier: Apache-2.0
"""Rows that come into a fitted model: as a fit to all of them, or refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from benchmarks.rescaled import Rescaled
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    Rows,
    SoftmaxRegression,
    TunedClassifier,
    load,
    verify,
)
from expunge.exceptions import (
    CapacityExceeded,
    ExpungeError,
    InvalidInput,
    ScheduleExhausted,
    Unsupported,
)
from expunge.linear_model.base import private_model, set_snapshot, snapshot_of
from expunge.linear_model.fitting import read_rows
from expunge.private_model.snapshot import replace_places
from expunge.private_model.training_rows import RowChange, TrainingRows
from tests.interrupts import count_lines, interrupt

N, FIRST = 120, 80
ROOM = Budget(epsilon=1.0, delta=1e-5, sigma=50.0, allow_seeded=True)


def table() -> tuple[Any, Any, Any]:
    """Return rows, labels and owners, two rows a person."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 4))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=N) > 0).astype(int)
    return X, y, np.array([f"p{i // 2}" for i in range(N)])


def plain(**changes: Any) -> Any:
    settings: dict[str, Any] = {
        "alpha": 0.05,
        "penalize_intercept": True,
        "budget": ROOM,
        "random_state": 5,
    }
    return LogisticRegression(**settings | changes)


KINDS: dict[str, Callable[[], Any]] = {
    "newton": partial(plain, mechanism="newton"),
    "jackknife": partial(plain, mechanism="jackknife"),
    "rescaled": partial(plain, mechanism=Rescaled()),
    "retrain": partial(plain, mechanism="retrain"),
    "matrix-free": partial(plain, mechanism="matrix-free"),
    "without rows": partial(plain, keep_data=False),
    "net": partial(plain, l1_ratio=0.5),
    "scaled": partial(plain, preprocessing=StandardScaler()),
    "scaled without rows": partial(
        plain, preprocessing=StandardScaler(), keep_data=False
    ),
    "between ends": partial(plain, preprocessing=MinMaxScaler()),
    "balanced": partial(plain, class_weight="balanced"),
    "softmax": lambda: SoftmaxRegression(
        alpha=0.05, penalize_intercept=True, budget=ROOM, random_state=5
    ),
    "squared": lambda: LinearRegression(alpha=0.05, budget=ROOM, random_state=5),
}


def fitted(kind: str, n_rows: int = FIRST) -> Any:
    X, y, people = table()
    return KINDS[kind]().fit(X[:n_rows], y[:n_rows], subjects=people[:n_rows].tolist())


def bring(model: Any, part: slice) -> Any:
    X, y, people = table()
    return model.add(X[part], y[part], subjects=people[part].tolist())


def theta_of(model: Any) -> Any:
    return private_model(model).answer.draft.theta


def check_near(model: Any, other: Any) -> None:
    """Check that a model is within its radius of one that was fitted."""
    record = model.record_
    distance = float(np.linalg.norm(theta_of(model) - theta_of(other)))
    assert record.radius is not None
    assert distance <= record.radius + other.record_.radius
    assert model.certificate_.status == "certified"
    assert verify(model.certificate_, record).valid


class TestEstimators:
    @pytest.mark.parametrize("kind", KINDS)
    def test_add_is_a_fit_to_all_rows(self, kind: str) -> None:
        model = fitted(kind)
        for begin in range(FIRST, N, 10):
            bring(model, slice(begin, begin + 10))
        check_near(model, fitted(kind, N))
        certificate = model.certificate_
        assert (certificate.n_subjects_removed, certificate.n_subjects_added) == (0, 20)
        assert certificate.n_releases == 5
        assert model.record_.n_samples == N

    @pytest.mark.parametrize("kind", [k for k in KINDS if "without" not in k])
    def test_those_who_came_can_leave(self, kind: str) -> None:
        model = bring(fitted(kind), slice(FIRST, N)).forget(["p45", "p2"])
        X, y, people = table()
        left = ~np.isin(people, ["p45", "p2"])
        check_near(model, KINDS[kind]().fit(X[left], y[left], subjects=people[left]))
        with pytest.raises(ExpungeError, match="no longer"):
            model.forget(["p45"])

    def test_those_who_came_can_leave_without_rows(self) -> None:
        model = bring(fitted("without rows"), slice(FIRST, N))
        X, y, _ = table()
        model.forget(X=X[90:92], y=y[90:92])
        assert model.certificate_.n_subjects_removed == 1
        with pytest.raises(ExpungeError, match="no longer"):
            model.forget(X=X[90:92], y=y[90:92])

    def test_a_person_brings_more_and_counts_once_as_they_leave(self) -> None:
        X, y, _ = table()
        for kind in ("newton", "without rows"):
            model = fitted(kind)
            model.add(X[100:101], y[100:101], subjects=["p3"])
            assert model.certificate_.n_subjects_added == 1
            model.forget(X=X[100:101], y=y[100:101])
            model.forget(X=X[6:8], y=y[6:8])
            assert model.certificate_.n_subjects_removed == 1

    def test_rows_without_owners_are_named_by_their_place(self) -> None:
        X, y, _ = table()
        model = plain().fit(X[:FIRST], y[:FIRST])
        model.add(X[FIRST:100], y[FIRST:100]).forget(rows=[3, 85])
        model.add(X[100:], y[100:]).forget(rows=[100, 119])
        left = np.setdiff1d(np.arange(N), [3, 85, 100, 119])
        check_near(model, plain().fit(X[left], y[left]))
        with pytest.raises(ExpungeError, match="no longer"):
            model.forget(rows=[85])

    def test_sparse_rows_stay_sparse(self) -> None:
        X, y, people = table()
        thin = sparse.csr_array(np.where(np.abs(X) < 0.7, 0.0, X))
        for mechanism in ("matrix-free", "newton"):
            model = plain(mechanism=mechanism)
            model.fit(thin[:FIRST], y[:FIRST], subjects=people[:FIRST])
            model.add(thin[FIRST:], y[FIRST:], subjects=people[FIRST:])
            model.forget(["p1", "p50"])
            kept = private_model(model).training_rows
            assert isinstance(kept, TrainingRows) and sparse.issparse(kept.rows.X)
            left = ~np.isin(people, ["p1", "p50"])
            other = plain(mechanism=mechanism)
            check_near(model, other.fit(thin[left], y[left], subjects=people[left]))

    @pytest.mark.parametrize("kind", ["newton", "without rows", "scaled", "balanced"])
    def test_saved_models_go_on(self, kind: str, tmp_path: Path) -> None:
        model = bring(fitted(kind), slice(FIRST, 100))
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        bring(again, slice(100, N))
        bring(model, slice(100, N))
        np.testing.assert_allclose(theta_of(again), theta_of(model), atol=1e-12)
        assert again.certificate_.n_subjects_added == 20

    @pytest.mark.parametrize("scaling", ["mean", "sum"])
    def test_penalties_are_those_of_all_rows(self, scaling: str) -> None:
        X, y, _ = table()
        model = LogisticRegression(C=0.3, mechanism="retrain", budget=None)
        if scaling == "mean":
            model = plain(mechanism="retrain")
        other = type(model)(**model.get_params())
        model.fit(X[:FIRST], y[:FIRST]).add(X[FIRST:], y[FIRST:])
        other.fit(X, y)
        np.testing.assert_allclose(theta_of(model), theta_of(other), atol=1e-8)

    def test_a_tight_budget_looks_at_the_rows(self) -> None:
        X, y, people = table()
        budget = Budget(sigma=1e-4, allow_seeded=True)
        model = plain(budget=budget).fit(X[:FIRST], y[:FIRST], people[:FIRST])
        bring(model, slice(FIRST, N))
        assert model.record_.decisions[0] != "accepted"
        check_near(model, plain(budget=budget).fit(X, y, people))

    def test_without_rows_a_tight_budget_adds_nothing(self) -> None:
        X, y, people = table()
        budget = Budget(sigma=1e-4, allow_seeded=True)
        model = plain(budget=budget, keep_data=False)
        model.fit(X[:FIRST], y[:FIRST], people[:FIRST])
        before = theta_of(model)
        with pytest.raises(CapacityExceeded):
            bring(model, slice(FIRST, N))
        assert theta_of(model) is before
        assert private_model(model).n_samples == FIRST


MIXED = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay"]),
    (OneHotEncoder(handle_unknown="ignore"), ["town"]),
)

COLUMNS: dict[str, Any] = {
    "plain": make_column_transformer(
        (StandardScaler(), ["pay"]), (OneHotEncoder(), ["town"])
    ),
    "most frequent": make_column_transformer(
        (
            make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()),
            ["town"],
        ),
        (StandardScaler(), ["pay"]),
    ),
    "constant": make_column_transformer(
        (
            make_pipeline(
                SimpleImputer(strategy="constant", fill_value="none"),
                OneHotEncoder(handle_unknown="ignore", drop="first"),
                StandardScaler(),
            ),
            ["town"],
        ),
        (StandardScaler(), ["pay"]),
    ),
    "rare": make_column_transformer(
        (
            OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"),
            ["town"],
        ),
        (StandardScaler(), ["pay"]),
    ),
}


def people_table() -> tuple[Any, Any]:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 9.0, N),
            "pay": rng.lognormal(3.0, 0.4, N),
            "town": rng.choice(["ayr", "bath", "cork"], N),
        }
    )
    frame.loc[[70, 100, 101], "age"] = np.nan
    return frame, (frame["pay"] + rng.normal(0, 8, N) > 21.0).astype(int)


class TestPreprocessing:
    @pytest.mark.parametrize("first", [60, 80], ids=["no gap yet", "a gap"])
    def test_statistics_grow_exactly(self, first: int) -> None:
        frame, y = people_table()
        model = plain(preprocessing=MIXED).fit(frame[:first], y[:first])
        model.add(frame[first:], y[first:])
        other = plain(preprocessing=MIXED).fit(frame, y)
        steps: Any = [snapshot_of(m).public.preprocessing for m in (model, other)]
        ours, theirs = steps
        assert np.array_equal(ours.encode(frame), theirs.encode(frame))
        check_near(model, other)

    @pytest.mark.parametrize("late", ["aa", "bb", "zz", None])
    @pytest.mark.parametrize("columns", COLUMNS)
    @pytest.mark.parametrize("weight", [None, "balanced"])
    def test_a_new_category_comes_and_goes(
        self, columns: str, late: str | None, weight: str | None
    ) -> None:
        frame, y = people_table()
        frame.loc[[90, 91, 110], "town"] = late

        def make() -> Any:
            return plain(preprocessing=COLUMNS[columns], class_weight=weight)

        model = make().fit(frame[:80], y[:80])
        before = model.get_feature_names_out().tolist()
        model.add(frame[80:], y[80:])
        whole = make().fit(frame, y)
        check_same_features(model, whole, frame)
        # Later rows are taken in, and found, like those of a fit.
        model.add(frame[90:92], y[90:92]).forget(rows=[5, 90])
        model.forget(X=frame[100:103], y=y[100:103])
        kept = [*np.delete(np.arange(N), [5, 90, 100, 101, 102]), 90, 91]
        check_same_features(model, make().fit(frame.iloc[kept], y[kept]), frame)
        model.forget(rows=[91, 110, 120, 121])
        if columns == "plain":
            assert model.get_feature_names_out().tolist() == before
        rest = np.setdiff1d(kept, [90, 91, 110])
        check_same_features(model, make().fit(frame.iloc[rest], y[rest]), frame[:80])
        model.add(frame[90:91], y[90:91])  # and once more
        rest = np.append(rest, 90)
        check_same_features(model, make().fit(frame.iloc[rest], y[rest]), frame)

    def test_an_array_may_bring_one_too(self) -> None:
        frame, y = people_table()
        frame = frame.drop(columns="age")
        steps = COLUMNS["plain"]
        model = plain(preprocessing=steps).fit(frame[:80], y[:80])
        late = frame[80:].copy()
        late.iloc[3, 1] = "derby"
        with pytest.warns(UserWarning, match="feature names"):
            model.add(late.to_numpy(), y[80:])
        whole = pd.concat([frame[:80], late])
        check_same_features(model, plain(preprocessing=steps).fit(whole, y), whole)

    def test_a_saved_model_has_it(self, tmp_path: Path) -> None:
        frame, y = people_table()
        frame.loc[90, "town"] = "derby"
        model = plain(preprocessing=COLUMNS["plain"]).fit(frame[:80], y[:80])
        model.add(frame[80:], y[80:]).save(tmp_path / "model")
        again = load(tmp_path / "model").forget(rows=[90])
        assert "town_derby" in model.get_feature_names_out()
        assert "town_derby" not in again.get_feature_names_out()

    def test_no_room_is_made_by_what_is_refused(self) -> None:
        frame, y = people_table()
        model = plain(preprocessing=COLUMNS["plain"]).fit(frame[:80], y[:80])
        before, snapshot = theta_of(model), snapshot_of(model)
        late = frame[80:].copy()
        late.iloc[3, 2] = "derby"
        with pytest.raises(InvalidInput, match="mixes text and numbers"):
            model.add(late.assign(town=7), y[80:])
        with pytest.raises(InvalidInput, match="has missing values"):
            model.add(late.assign(pay=np.nan), y[80:])
        assert theta_of(model) is before and snapshot_of(model) is snapshot

    def test_it_is_refused_where_others_are_declared(self) -> None:
        frame, y = people_table()
        late = frame[80:].copy()
        late.iloc[3, 2] = "derby"
        towns = ["ayr", "bath", "cork"]
        for known in (towns, [*towns, "derby"]):
            declared = make_column_transformer(
                (OneHotEncoder(categories=[known]), ["town"]),
                (StandardScaler(), ["pay"]),
            )
            model = plain(preprocessing=declared).fit(frame[:80], y[:80])
            if known is towns:
                before = theta_of(model)
                with pytest.raises(InvalidInput, match="'town' holds a category"):
                    model.add(late, y[80:])
                assert theta_of(model) is before
            else:
                model.add(late, y[80:])
                whole = pd.concat([frame[:80], late])
                check_near(model, plain(preprocessing=declared).fit(whole, y))

    def test_it_is_refused_without_rows(self) -> None:
        frame, y = people_table()
        steps = make_column_transformer((OneHotEncoder(), ["town"]))
        model = plain(preprocessing=steps, keep_data=False).fit(frame[:80], y[:80])
        late = frame[80:].copy()
        late.iloc[3, 2] = "derby"
        before = theta_of(model)
        with pytest.raises(InvalidInput, match="cannot be taken in here; fit again"):
            model.add(late, y[80:])
        assert theta_of(model) is before


def check_same_features(model: Any, other: Any, frame: Any) -> None:
    """Check that two models encode rows to the same bits, and are near."""
    ours, theirs = (snapshot_of(one).public.preprocessing for one in (model, other))
    assert ours is not None and theirs is not None
    assert ours.names == theirs.names
    assert np.array_equal(ours.encode(frame), theirs.encode(frame))
    check_near(model, other)


LABELS = {
    "last": np.array([0, 1, 2, 3]),
    "first": np.array([2, 3, 1, 0]),
    "words": np.array(["d", "b", "c", "a long one"]),
    "objects": np.array(["d", "b", "c", "a"], dtype=object),
}


class TestNewClasses:
    """Rows 80 and later bring a third class, and the last few a fourth."""

    @staticmethod
    def labels(kind: str) -> Any:
        codes = np.where(table()[0][:, 2] > 0.8, 2, table()[1])
        codes[:FIRST] = table()[1][:FIRST]
        codes[[100, 115, 118]] = 3
        return LABELS[kind][codes]

    @pytest.mark.parametrize("order", LABELS)
    @pytest.mark.parametrize(
        "kind",
        ["newton", "jackknife", "retrain", "net", "scaled", "balanced", "softmax"],
    )
    def test_come_and_go(self, kind: str, order: str) -> None:
        (X, _, people), y = table(), self.labels(order)
        model = KINDS[kind]().fit(X[:FIRST], y[:FIRST], subjects=people[:FIRST])
        assert len(model.classes_) == 2
        for begin, n_classes in ((80, 3), (90, 3), (100, 4), (110, 4)):
            part = slice(begin, begin + 10)
            model.add(X[part], y[part], subjects=people[part])
            assert len(model.classes_) == n_classes
        whole = KINDS[kind]().fit(X, y, subjects=people)
        assert model.classes_.tolist() == whole.classes_.tolist()
        assert model.classes_.dtype == whole.classes_.dtype
        check_near(model, whole)
        model.forget(["p3", "p50"])  # one of the two has the fourth
        model.forget(X=X[[115, 118]], y=y[[115, 118]])
        left = ~np.isin(people, ["p3", "p50"])
        left[[115, 118]] = False
        known = KINDS[kind]().fit(X[left], y[left], subjects=people[left])
        assert model.classes_.tolist() == known.classes_.tolist()
        assert len(model.classes_) == 3
        check_near(model, known)
        third = y == LABELS[order][2]
        model.forget([*{*people[third & left]}])
        left &= ~np.isin(people, people[third & left])
        known = KINDS[kind]().fit(X[left], y[left], subjects=people[left])
        assert model.classes_.tolist() == known.classes_.tolist()
        assert len(model.classes_) == 2
        check_near(model, known)
        model.add(X[third][:1], y[third][:1], subjects=["back"])
        again = np.append(np.flatnonzero(left), np.flatnonzero(third)[0])
        check_near(model, KINDS[kind]().fit(X[again], y[again]))

    def test_come_with_new_categories(self) -> None:
        frame, _ = people_table()
        frame.loc[[90, 91, 110], "town"] = "bb"
        y = self.labels("words")
        steps = COLUMNS["plain"]
        model = plain(preprocessing=steps).fit(frame[:80], y[:80])
        model.add(frame[80:], y[80:])
        check_same_features(model, plain(preprocessing=steps).fit(frame, y), frame)
        assert model.coef_.shape == (4, len(model.get_feature_names_out()))

    def test_a_saved_model_has_them(self, tmp_path: Path) -> None:
        (X, _, people), y = table(), self.labels("first")
        model = plain().fit(X[:FIRST], y[:FIRST], subjects=people[:FIRST])
        model.add(X[FIRST:], y[FIRST:], subjects=people[FIRST:])
        model.save(tmp_path / "model")
        again = load(tmp_path / "model").forget(["p50"])
        left = people != "p50"
        check_near(again, plain().fit(X[left], y[left], subjects=people[left]))

    def test_are_refused_where_others_are_declared(self) -> None:
        (X, _, _), y = table(), self.labels("last")
        model = plain(classes=[0, 1]).fit(X[:FIRST], y[:FIRST])
        before = theta_of(model)
        with pytest.raises(
            InvalidInput, match=r"declared .classes=.*nothing was added"
        ):
            model.add(X[FIRST:], y[FIRST:])
        assert theta_of(model) is before


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"X": np.zeros((2, 3))}, "3 features"),
            ({"X": np.full((2, 4), np.nan)}, "NaN"),
            ({"X": np.zeros((0, 4)), "y": []}, "no rows"),
            ({"y": ["a", "b"]}, "class that the model has"),
            ({"y": [0.5, 1.5]}, "class that the model has|continuous"),
            ({"y": None}, "labels"),
            ({"subjects": None}, "whose rows these are"),
            ({"subjects": ["p1"]}, "1 ids and X has 2 rows"),
            ({"subjects": ["p1", None]}, "missing"),
            ({"sample_weight": [1.0, 2.0]}, "without weights"),
        ],
    )
    @pytest.mark.parametrize("kind", ["newton", "without rows", "matrix-free"])
    def test_change_nothing(self, kind: str, changes: Any, words: str) -> None:
        model = fitted(kind)
        X, y, people = table()
        given = {"X": X[:2], "y": y[:2], "subjects": people[:2], "sample_weight": None}
        before, snapshot = theta_of(model), snapshot_of(model)
        with pytest.raises((InvalidInput, ValueError), match=words):
            model.add(**given | changes)
        assert theta_of(model) is before
        assert snapshot_of(model) is snapshot
        bring(model, slice(FIRST, N))
        check_near(model, fitted(kind, N))

    def test_weights_where_the_fit_had_weights(self) -> None:
        X, y, _ = table()
        weight = np.linspace(0.5, 2.0, N)
        model = plain().fit(X[:FIRST], y[:FIRST], sample_weight=weight[:FIRST])
        with pytest.raises(InvalidInput, match="fitted with weights"):
            model.add(X[FIRST:], y[FIRST:])
        model.add(X[FIRST:], y[FIRST:], sample_weight=weight[FIRST:])
        check_near(model, plain().fit(X, y, sample_weight=weight))

    def test_subjects_where_the_fit_had_none(self) -> None:
        X, y, people = table()
        model = plain().fit(X[:FIRST], y[:FIRST])
        with pytest.raises(InvalidInput, match="fitted without subjects"):
            model.add(X[FIRST:], y[FIRST:], subjects=people[FIRST:])

    def test_rows_longer_than_declared(self) -> None:
        X, y, people = table()
        longest = float(np.sqrt((X**2).sum(axis=1).max() + 1.0)) * 1.01
        budget = Budget(sigma=50.0, row_norm=longest, allow_seeded=True)
        model = plain(budget=budget).fit(X[:FIRST], y[:FIRST], people[:FIRST])
        before = theta_of(model)
        with pytest.raises(InvalidInput, match="longer than the budget's row_norm"):
            model.add(3.0 * X[FIRST:], y[FIRST:], subjects=people[FIRST:])
        assert theta_of(model) is before
        bring(model, slice(FIRST, N))

    def test_a_dropped_class_comes_back(self) -> None:
        X, _, people = table()
        y = np.where(np.arange(N) < 2, "rare", np.where(X[:, 0] > 0, "a", "b"))
        for declared in (None, ["a", "b", "rare"]):
            model = plain(classes=declared).fit(X[:FIRST], y[:FIRST], people[:FIRST])
            model.forget(["p0"])
            assert model.classes_.tolist() == (declared or ["a", "b"])
            model.add(X[:2], y[:2], subjects=people[:2])
            labels = private_model(model).labels
            assert labels is not None and labels.n_rows[2] == 2
            check_near(model, plain(classes=declared).fit(X[:FIRST], y[:FIRST]))

    def test_a_new_class_without_rows(self) -> None:
        X, _, people = table()
        model = fitted("without rows")
        before = theta_of(model)
        with pytest.raises(InvalidInput, match="unless the model learnt its classes"):
            model.add(X[:2], [0, 2], subjects=people[:2])
        assert theta_of(model) is before

    def test_all_planned_releases(self) -> None:
        X, y, people = table()
        budget = Budget(sigma=50.0, releases=2, allow_seeded=True)
        model = plain(budget=budget).fit(X[:FIRST], y[:FIRST], people[:FIRST])
        bring(model, slice(FIRST, 90))
        with pytest.raises(ScheduleExhausted):
            bring(model, slice(90, N))

    def test_tuned_models(self) -> None:
        X, y, people = table()
        model = TunedClassifier(alphas=[0.1, 1.0], fold_key="key", budget=ROOM)
        model.fit(X[:FIRST], y[:FIRST], subjects=people[:FIRST])
        before = snapshot_of(model)
        with pytest.raises(Unsupported, match="a tuned model cannot be added to"):
            bring(model, slice(FIRST, N))
        assert snapshot_of(model) is before


class TestPrivateModels:
    @pytest.mark.parametrize("kind", ["newton", "matrix-free", "scaled", "balanced"])
    def test_a_correction_is_one_request(self, kind: str) -> None:
        X, y, people = table()
        model = fitted(kind, N)
        corrected = X.copy()
        corrected[[20, 21]] += 0.5
        added = read_rows(snapshot_of(model), corrected[20:22], y[20:22])
        private = private_model(model)
        assert private.training_rows is not None
        gone = private.training_rows.find({"p10"})
        after = replace_places(private, gone, added=added, owners=["p10", "p10"])
        set_snapshot(model, snapshot_of(model).release(after))
        check_near(model, KINDS[kind]().fit(corrected, y, subjects=people))
        certificate = model.certificate_
        assert (certificate.n_subjects_removed, certificate.n_subjects_added) == (1, 1)
        assert certificate.n_releases == 2
        model.forget(["p10"])

    def test_rows_are_fetched_without_those_that_come(self) -> None:
        X, y, people = table()
        budget = Budget(sigma=1e-4, allow_seeded=True)
        model = plain(budget=budget).fit(X[:FIRST], y[:FIRST], people[:FIRST])
        private = private_model(model)
        kept = private.training_rows
        assert isinstance(kept, TrainingRows)
        asked: list[list[int]] = []

        def fetch(gone: Any) -> Any:
            asked.append(gone.tolist())
            return kept.rows.without(gone)

        elsewhere = replace(private, training_rows=None, fetch=fetch)
        added = read_rows(snapshot_of(model), X[FIRST:], y[FIRST:])
        change = RowChange(
            removed=kept.rows.take(np.array([4, 5])),
            gone=np.array([4, 5]),
            added=added,
            n_subjects_removed=1,
            n_subjects_added=20,
        )
        after = elsewhere.change(change)
        assert asked == [[4, 5]]
        left = np.setdiff1d(np.arange(N), [4, 5])
        other = plain(budget=budget).fit(X[left], y[left])
        distance = np.linalg.norm(after.answer.draft.theta - theta_of(other))
        assert distance <= after.answer.radius.value + other.record_.radius
        assert after.n_samples == N and after.n_removed == 2


class TestTrainingRows:
    @pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array])
    def test_places_are_never_used_twice(self, wrap: Any) -> None:
        X, y, people = table()
        rows = Rows(wrap(X), y.astype(float), np.ones(N))
        kept = TrainingRows(rows.take(np.arange(FIRST)), people[:FIRST].tolist())
        for place in range(FIRST, N):
            one = rows.take(np.array([place]))
            for _ in range(2):  # the second time as after an interrupt
                kept.append(one, people[place : place + 1].tolist(), position=place)
            kept.erase(np.array([place - FIRST]))
        gone = np.arange(N - FIRST)
        assert len(kept.owners) == len(kept.alive) == len(kept.rows) == N
        assert np.array_equal(np.flatnonzero(~kept.alive), gone)
        expected = X.copy()
        expected[gone] = 0.0
        assert np.array_equal(kept.rows.dense(), expected)
        assert kept.positions["p45"] == [90, 91]
        assert "p3" not in kept.positions
        left = kept.compact()
        assert np.array_equal(left.rows.dense(), X[N - FIRST :])

    def test_most_additions_copy_the_new_rows_alone(self) -> None:
        X, y, people = table()
        rows = Rows(X, y.astype(float), np.ones(N))
        kept = TrainingRows(rows.take(np.arange(FIRST)), people[:FIRST].tolist())
        arrays = set()
        for place in range(FIRST, N):
            one = rows.take(np.array([place]))
            kept.append(one, people[place : place + 1].tolist(), position=place)
            arrays.add(kept.rows.y.__array_interface__["data"][0])
        assert len(arrays) <= 3


@pytest.mark.parametrize(
    "kind", ["newton", "without rows", "scaled", "balanced", "matrix-free"]
)
def test_an_interrupted_addition_happens_completely_or_not_at_all(kind: str) -> None:
    part = slice(FIRST, 90)
    before, after = fitted(kind), bring(fitted(kind), part)
    later = bring(bring(fitted(kind), part), slice(90, N))
    target = fitted(kind)
    n_lines = count_lines(lambda: bring(target, part))
    outcomes = set()
    for line in np.unique(np.linspace(1, n_lines, 25).astype(int)):
        model = fitted(kind)
        assert interrupt(partial(bring, model, part), int(line))
        happened = model.certificate_.n_subjects_added == 5
        outcomes.add(happened)
        expected = after if happened else before
        np.testing.assert_allclose(theta_of(model), theta_of(expected), atol=1e-9)
        if not happened:
            bring(model, part)
        bring(model, slice(90, N))
        np.testing.assert_allclose(theta_of(model), theta_of(later), atol=1e-9)
        kept = private_model(model).training_rows
        if isinstance(kept, TrainingRows):
            assert kept.alive.all() and len(kept.owners) == N
            assert kept.positions["p42"] == [84, 85]
    assert outcomes == {True, False}
