# SPDX-License-Identifier: Apache-2.0
"""Estimators that tune themselves: what they release, promise and keep private."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import expunge
from expunge import (
    L1,
    L2,
    Budget,
    HalfSquared,
    LinearRegression,
    Logistic,
    Objective,
    verify,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.solver import minimise
from expunge.exceptions import (
    InvalidInput,
    NoPrivateState,
    NotCertifiable,
    ScheduleExhausted,
    UnknownSubject,
)
from expunge.linear_model.base import private_model
from expunge.linear_model.tuned import TunedClassifier, TunedRegressor
from expunge.private_model import snapshot
from expunge.private_model.training_rows import TrainingRows
from expunge.promise.scope import CHOSEN, TUNED
from expunge.selection.fold_chooser import FoldChooser

ALPHAS = (1.0, 0.1, 1e-2, 1e-3)
BUDGET = Budget(sigma=0.5, allow_seeded=True)
N_ROWS = 240
OWNERS = [f"person {place // 2}" for place in range(N_ROWS)]


def people(seed: int = 0) -> tuple[Matrix, Vector]:
    """Return rows of two classes; two rows belong to each person."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    eta = X @ np.array([4.0, -3.0, 2.0, 0.0, 0.0])
    return X, np.where(eta + rng.logistic(size=N_ROWS) > 0.0, 1.0, 0.0)


def tuned(**parameters: Any) -> TunedClassifier:
    """Return an estimator whose folds are the same each time."""
    return TunedClassifier(**{"alphas": ALPHAS, "fold_key": "key"} | parameters)


def without(X: Matrix, y: Vector, gone: list[str]) -> dict[str, Any]:
    """Return what remains, as arguments of a fit."""
    stays = [place for place, owner in enumerate(OWNERS) if owner not in gone]
    owners = [OWNERS[place] for place in stays]
    return {"X": X[stays], "y": y[stays], "subjects": owners}


WAYS: dict[str, dict[str, Any]] = {
    "certified": {},
    "recomputed": {"method": "recomputed"},
    "elastic net": {"l1_ratios": (0.5, 1.0), "ridge": 1e-3},
}


@pytest.mark.parametrize("way", WAYS)
def test_forgetting_gives_the_model_that_tuning_again_gives(way: str) -> None:
    X, y = people()
    gone = [f"person {i}" for i in (3, 8, 20, 77)]
    model = tuned(budget=BUDGET, random_state=0, **WAYS[way])
    model.fit(X, y, subjects=OWNERS).forget(subjects=gone)
    again = tuned(**WAYS[way]).fit(**without(X, y, gone))
    assert (model.alpha_, model.l1_ratio_) == (again.alpha_, again.l1_ratio_)
    private = private_model(model)
    truth = np.append(again.coef_, again.intercept_)
    radius = model.record_.radius
    assert radius is not None
    assert np.linalg.norm(private.answer.draft.theta - truth) <= radius + 1e-9
    curve = model.curve_
    assert (curve.low <= again.curve_.errors).all()
    assert (again.curve_.errors <= curve.high).all()
    certificate = model.certificate_
    assert certificate.selection == WAYS[way].get("method", "certified")
    assert certificate.status == "certified"
    assert TUNED in certificate.assumptions
    assert certificate.n_subjects_removed == 4
    assert verify(certificate, model.record_).valid


def test_a_choice_that_moves_moves_the_private_model() -> None:
    X, y = people()
    finer = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
    model = tuned(alphas=finer, budget=BUDGET, random_state=0)
    first = model.fit(X, y, subjects=OWNERS).alpha_
    private = private_model(model)
    losses = Logistic().value(
        2.0 * y - 1.0, np.c_[X, np.ones(len(X))] @ private.answer.draft.theta
    )
    worst = dict.fromkeys(OWNERS[place] for place in np.argsort(-losses)[:40])
    model.forget(subjects=list(worst))
    assert model.alpha_ != first
    assert model.record_.decisions == ("retrained",)
    again = tuned(alphas=finer).fit(**without(X, y, list(worst)))
    assert model.alpha_ == again.alpha_
    # From there on it goes as with any model.
    others = [owner for owner in dict.fromkeys(OWNERS) if owner not in worst]
    model.forget(subjects=others[:2])
    gone = [*worst, *others[:2]]
    again = tuned(alphas=finer).fit(**without(X, y, gone))
    private = private_model(model)
    truth = np.append(again.coef_, again.intercept_)
    radius = model.record_.radius
    assert radius is not None
    assert np.linalg.norm(private.answer.draft.theta - truth) <= radius + 1e-9
    assert model.certificate_.n_subjects_removed == len(gone)
    assert model.record_.n_removed == 2 * len(gone)


def test_people_one_by_one_end_where_a_batch_does() -> None:
    X, y = people()
    gone = [f"person {i}" for i in range(0, 60, 5)]
    stream = tuned().fit(X, y, subjects=OWNERS)
    for person in gone:
        stream.forget(subjects=[person])
    batch = tuned().fit(X, y, subjects=OWNERS).forget(subjects=gone)
    again = tuned().fit(**without(X, y, gone))
    assert stream.alpha_ == batch.alpha_ == again.alpha_
    np.testing.assert_allclose(stream.coef_, batch.coef_, rtol=1e-9)
    for model in (stream, batch):
        distance = np.linalg.norm(model.coef_ - again.coef_)
        assert distance <= (model.record_.radius or 0.0)


def test_regressor_chooses_and_forgets() -> None:
    X, _ = people()
    y = X @ np.arange(5.0) + np.random.default_rng(1).normal(size=N_ROWS)
    model = TunedRegressor(alphas=(1.0, 1e-1, 1e-2, 1e-3), fold_key=b"key")
    model.fit(X, y, subjects=OWNERS).forget(subjects=["person 5"])
    rest = without(X, y, ["person 5"])
    again = TunedRegressor(alphas=model.alphas, fold_key=b"key").fit(**rest)
    assert model.alpha_ == again.alpha_
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-9)
    objective = Objective(HalfSquared(), L2(), model.alpha_, intercept=True)
    truth = minimise(objective, objective.rows(rest["X"], rest["y"])).theta
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), truth, 1e-9)


@pytest.mark.parametrize("n", [4, 16, 64])
def test_proposition_1_is_cured(n: int) -> None:
    X, z = np.ones((n, 1)), np.full(n, -1.0)
    z[0] = 5.0 * n
    stiff, free = 1e6, 1e-6
    model = TunedRegressor(alphas=(stiff, free), fold_key="key", fit_intercept=False)
    assert model.fit(X, z).alpha_ == stiff
    fixed = LinearRegression(alpha=stiff, fit_intercept=False).fit(X, z)
    again = TunedRegressor(**model.get_params()).fit(X[1:], z[1:])
    assert again.alpha_ == free
    assert abs(fixed.forget(rows=[0]).coef_ - again.coef_) > 0.99
    assert abs(model.forget(rows=[0]).coef_ - again.coef_) < 1e-9
    assert (model.alpha_, model.certificate_.selection) == (free, "certified")


def test_tie_is_not_covered_and_stays_so() -> None:
    X, y = people()
    equal = (1e-2, 1e-2 * (1 - 1e-15))
    model = tuned(alphas=equal, budget=BUDGET, random_state=0)
    model.fit(X, y, subjects=OWNERS)
    leaving = ["person 1", "person 2"]
    while leaving:
        certificate = model.certificate_
        assert (certificate.selection, certificate.status) == (
            "not covered",
            "no promise",
        )
        assert CHOSEN in certificate.not_covered
        assert verify(certificate, model.record_).valid
        model.forget(subjects=[leaving.pop()])


def test_models_of_zeros_are_one_and_the_largest_alpha_wins() -> None:
    X, _ = people()
    y = np.where(np.random.default_rng(5).random(N_ROWS) > 0.5, 1.0, 0.0)
    model = tuned(alphas=(3.0, 2.0, 1.0), l1_ratios=(1.0,), ridge=1e-3)
    model.fit(X, y, subjects=OWNERS).forget(subjects=["person 3"])
    assert (model.alpha_, model.l1_ratio_) == (3.0, 1.0)
    assert model.certificate_.selection == "certified"


def test_joint_schedule_counts_every_choice() -> None:
    X, y = people()
    budget = Budget(sigma=0.5, releases=2, allow_seeded=True)
    model = tuned(budget=budget, random_state=0).fit(X, y, subjects=OWNERS)
    model.forget(subjects=["person 1"])
    shown = model.coef_.copy()
    with pytest.raises(ScheduleExhausted):
        model.forget(subjects=["person 2"])
    np.testing.assert_array_equal(model.coef_, shown)


def test_stranger_changes_nothing() -> None:
    X, y = people()
    model = tuned().fit(X, y, subjects=OWNERS)
    private = private_model(model)
    with pytest.raises(UnknownSubject, match="nobody was removed"):
        model.forget(subjects=["person 1", "nobody"])
    assert private_model(model) is private


def test_rows_can_be_forgotten_by_content() -> None:
    X, y = people()
    model = tuned().fit(X, y, subjects=OWNERS).forget(X=X[6:8], y=y[6:8])
    again = tuned().fit(**without(X, y, ["person 3"]))
    assert model.alpha_ == again.alpha_
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-3)


def test_equal_rows_in_several_folds_must_be_asked_for_by_name() -> None:
    X, y = people()
    X[1::40], y[1::40] = X[1], y[1]
    model = tuned().fit(X, y, subjects=OWNERS)
    with pytest.raises(InvalidInput, match="whose is removed"):
        model.forget(X=X[1:2], y=y[1:2])
    copies = np.flatnonzero((X == X[1]).all(axis=1))
    model.forget(X=X[copies], y=y[copies])  # all of them: nothing to choose
    assert model.record_.n_removed == len(copies)


def test_nobody_costs_nothing() -> None:
    X, y = people()
    model = tuned(budget=BUDGET, random_state=0).fit(X, y, subjects=OWNERS)
    shown, made = model.coef_.copy(), model.certificate_.n_releases
    for _ in range(3):
        model.forget(subjects=[])
    np.testing.assert_array_equal(model.coef_, shown)
    assert model.certificate_.n_releases == made
    model.forget(subjects=["person 1"])
    assert model.certificate_.status == "certified"


def test_request_whose_release_fails_never_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = people()
    model = tuned(budget=BUDGET, random_state=0).fit(X, y, subjects=OWNERS)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot.Snapshot, "release", _out_of_order)
        with pytest.raises(RuntimeError):
            model.forget(subjects=["person 1"])
    model.forget(subjects=["person 2"])
    model.forget(subjects=["person 1"])  # still there: the request never was
    assert model.certificate_.status == "certified"
    assert model.certificate_.n_subjects_removed == 2


def _out_of_order(shown: object, private: object) -> None:
    raise RuntimeError("the printer is out of order")


def test_few_people_in_many_folds() -> None:
    X, _ = people()
    y = X @ np.arange(5.0)
    for key in ("a", "b", "c"):
        model = TunedRegressor(alphas=(1.0, 0.1), fold_key=key).fit(X[:6], y[:6])
        assert model.certificate_.selection == "certified"
    with pytest.raises(InvalidInput, match="one fold"):
        TunedRegressor(fold_key="a").fit(X[:1].repeat(3, 0), y[:3], subjects=[1, 1, 1])


def test_removed_rows_leave_no_bytes_behind() -> None:
    X, y = people()
    model = tuned().fit(X, y, subjects=OWNERS)
    model.forget(subjects=["person 7"])
    kept = private_model(model).training_rows
    assert isinstance(kept, TrainingRows)
    for row in X[14:16]:
        assert row.tobytes() not in kept.rows.dense().tobytes()
    assert "person 7" not in kept.owners


def test_private_parts_neither_show_nor_travel() -> None:
    X, y = people()
    model = tuned(budget=BUDGET, random_state=0).fit(X, y, subjects=OWNERS)
    private = private_model(model)
    chooser = private.chooser
    assert isinstance(chooser, FoldChooser)
    for secret in (private, chooser, chooser.models, model.curve_, model.record_):
        assert repr(secret) == f"{type(secret).__name__}(private)"
    for travelled in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert travelled.alpha_ == model.alpha_
        np.testing.assert_array_equal(travelled.coef_, model.coef_)
        with pytest.raises(NoPrivateState):
            travelled.forget(subjects=["person 1"])
    certificate = model.certificate_.to_json()
    for interval in chooser.models.choice.intervals:
        assert repr(interval.value) not in certificate
    assert clone(model).get_params()["alphas"] == ALPHAS


@pytest.mark.parametrize("way", WAYS)
def test_saved_model_goes_on_where_it_was(way: str, tmp_path: Path) -> None:
    X, y = people()
    model = tuned(budget=BUDGET, random_state=0, **WAYS[way])
    model.fit(X, y, subjects=OWNERS).forget(subjects=["person 4"])
    model.save(tmp_path / "model")
    loaded = expunge.load(tmp_path / "model")
    assert isinstance(loaded, TunedClassifier)
    for each in (model, loaded):
        each.forget(subjects=["person 40", "person 41"])
    assert loaded.alpha_ == model.alpha_
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    # Rows removed earlier lie among the others here and were not saved: sums round.
    np.testing.assert_allclose(loaded.curve_.high, model.curve_.high, rtol=1e-13)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"alphas": ()}, "at least one"),
        ({"alphas": (1e-2, -1.0)}, "positive"),
        ({"alphas": (1e-2, float("nan"))}, "positive"),
        ({"alphas": (1e-2, 1e-2)}, "only once"),
        ({"l1_ratios": (2.0,)}, "between 0 and 1"),
        ({"penalty": L1(), "l1_ratios": (0.5,)}, "pass one of them"),
        ({"alphas": 0.1}, "alphas=0.1; give a list of numbers"),
        ({"fold_key": b""}, "0 bytes"),
        ({"fold_key": "k" * 65}, "65 bytes"),
        ({"fold_key": 5}, "bytes, a string or None"),
        ({"folds": 1}, "at least 2"),
        ({"folds": True}, "at least 2"),
        ({"folds": "loo"}, "folds='loo'; give an integer of at least 2, as in folds=5"),
        ({"method": "noised"}, "method='noised'; choose 'certified' or 'recomputed'"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], words: str) -> None:
    X, y = people()
    with pytest.raises(InvalidInput, match=words):
        tuned(**parameters).fit(X, y)


def test_choice_that_cannot_be_released_is_refused() -> None:
    X, y = people()
    budget = Budget(sigma=1e-9, tau=1e-12, allow_seeded=True)
    model = tuned(alphas=(1e-6,), budget=budget, random_state=0)
    with pytest.raises(NotCertifiable, match="tau"):
        model.fit(X, y)


def test_bar_is_drawn_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = people()
    tuned(verbose=True).fit(X, y)
    drawn = capsys.readouterr().err
    total = len(ALPHAS) * 5
    assert drawn.endswith(f"{total}/{total}\n")
    tuned().fit(X, y)
    assert capsys.readouterr().err == ""


def test_each_fit_draws_a_key_if_none_is_given() -> None:
    X, y = people()
    models = [TunedClassifier(alphas=ALPHAS).fit(X, y) for _ in range(2)]
    choosers = [private_model(model).chooser for model in models]
    keys = {each.rule.key for each in choosers if isinstance(each, FoldChooser)}
    assert len(keys) == 2


def test_more_classes_are_tuned_one_against_the_rest() -> None:
    X, _ = people()
    y = np.argmax(X[:, :3] + 0.3 * np.random.default_rng(2).normal(size=(N_ROWS, 3)), 1)
    model = tuned().fit(X, y, subjects=OWNERS).forget(subjects=["person 11"])
    again = tuned().fit(**without(X, y, ["person 11"]))
    assert model.alpha_ == again.alpha_
    assert model.predict_proba(X).shape == (N_ROWS, 3)
    assert model.to_sklearn().predict(X).tolist() == model.predict(X).tolist()
