# SPDX-License-Identifier: Apache-2.0
"""What a certificate counts: people once, and the releases of one fit."""

import multiprocessing
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LogisticRegression, load, verify
from expunge.exceptions import InvalidInput, UnknownSubject
from expunge.linear_model.base import private_model, snapshot_of
from expunge.linear_model.fitting import read_shipped, ship
from expunge.promise.scope import (
    BEFORE_PREPROCESSING,
    NO_NOISE,
    OTHER_RELEASES,
    PREPROCESSED,
    PREPROCESSING,
    ROWS_NOT_KEPT,
)

N_ROWS = 40


def table() -> tuple[Any, Any, list[str]]:
    """Return rows, labels and people with two rows each."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_ROWS, 2))
    y = (X[:, 0] + rng.normal(size=N_ROWS) > 0).astype(int)
    return X, y, [f"p{row // 2}" for row in range(N_ROWS)]


def make_budget(**options: Any) -> Budget:
    return Budget(**{"sigma": 0.5, "allow_seeded": True} | options)


def model(**parameters: Any) -> LogisticRegression:
    return LogisticRegression(
        alpha=0.1, penalize_intercept=True, random_state=0, **parameters
    )


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("keep_data", [True, False])
def test_a_person_counts_once_however_their_rows_are_removed(
    keep_data: bool, saved: bool, tmp_path: Path
) -> None:
    X, y, people = table()
    ours: Any = model(keep_data=keep_data).fit(X, y, subjects=people)

    def removed(some: slice) -> int:
        nonlocal ours
        ours.forget(X=X[some], y=y[some])
        if saved:
            ours.save(tmp_path)
            ours = load(tmp_path)
        count: int = ours.certificate_.n_subjects_removed
        return count

    assert removed(slice(0, 1)) == 1
    assert removed(slice(1, 2)) == 1  # the same person's other row
    assert removed(slice(2, 6)) == 3
    assert removed(slice(7, 9)) == 5  # one row each of two people
    assert removed(slice(6, 7)) == 5
    if keep_data:
        assert ours.forget(["p4", "p5"]).certificate_.n_subjects_removed == 6


def equal_rows() -> tuple[Any, Any, list[str]]:
    """Return a table in which two people share a row; one of them has another."""
    X, y, people = table()
    X[1], y[1] = X[2], y[2]
    people[:4] = ["ada", "bob", "cyd", "cyd"]
    return X, y, people


@pytest.mark.parametrize("keep_data", [True, False])
def test_equal_rows_go_with_the_person_who_asks_for_all(
    keep_data: bool,
) -> None:
    X, y, people = equal_rows()
    ours = model(keep_data=keep_data).fit(X, y, subjects=people)
    assert ours.forget(X=X[1:2], y=y[1:2]).certificate_.n_subjects_removed == 1
    assert ours.forget(X=X[2:4], y=y[2:4]).certificate_.n_subjects_removed == 2
    if keep_data:
        for gone in ("bob", "cyd"):
            with pytest.raises(UnknownSubject):
                ours.forget([gone])


def test_equal_rows_that_could_be_either_persons_are_refused() -> None:
    X, y, people = equal_rows()
    X[0], y[0] = X[2], y[2]
    ours = model().fit(X, y, subjects=people)
    with pytest.raises(InvalidInput, match="several people have a row like"):
        ours.forget(X=X[:1], y=y[:1])
    assert ours.forget(X=X[:3], y=y[:3]).certificate_.n_subjects_removed == 3
    assert ours.forget(["cyd"]).certificate_.n_subjects_removed == 3
    fresh = model().fit(X[4:], y[4:])
    assert ours.record_.radius is not None
    gap = np.linalg.norm(ours.coef_ - fresh.coef_)
    assert gap <= ours.record_.radius + 1e-9


def test_rows_without_owners_count_one_by_one() -> None:
    X, y, _ = table()
    for keep_data in (True, False):
        ours = model(keep_data=keep_data).fit(X, y)
        assert ours.forget(X=X[:3], y=y[:3]).certificate_.n_subjects_removed == 3


def test_positions_are_not_ids() -> None:
    X, y, people = table()
    nobody = model().fit(X, y)
    for ids in ([7], ["7"]):
        with pytest.raises(InvalidInput, match="fitted without subjects"):
            nobody.forget(ids)
    assert nobody.certificate_.n_releases == 1
    nobody.forget(rows=[7])
    with pytest.raises(UnknownSubject, match=r"1 of 1 rows, for example '7'"):
        nobody.forget(rows=[7])
    named = model().fit(X, y, subjects=people)
    with pytest.raises(InvalidInput, match="fitted without subjects"):
        named.forget(rows=[7])
    for bad in ([0.5], ["7"], [[1]]):
        with pytest.raises(InvalidInput, match="list of positions"):
            nobody.forget(rows=bad)


def test_ids_have_one_spelling() -> None:
    X, y, people = table()
    people[:2] = ["Zo\u00eb", "  Zoe\u0308 "]
    ours = model().fit(X, y, subjects=people)
    assert ours.forget(["Zoe\u0308"]).certificate_.n_subjects_removed == 1
    assert ours.record_.n_removed == 2
    for nobody in (None, float("nan"), 3.0, b"ada", True):
        with pytest.raises(InvalidInput):
            model().fit(X, y, subjects=[nobody, *people[1:]])
        with pytest.raises(InvalidInput):
            ours.forget([nobody])


def test_a_mask_is_not_a_list_of_people() -> None:
    X, y, people = table()
    ours = model().fit(X, y, subjects=people)
    mask = np.arange(N_ROWS) < 3
    for masked in (mask, mask.tolist()):
        with pytest.raises(InvalidInput, match="looks like a mask"):
            ours.forget(masked)
        with pytest.raises(InvalidInput, match="looks like a mask"):
            ours.forget(rows=masked)
    assert ours.certificate_.n_releases == 1


def test_an_empty_request_changes_nothing() -> None:
    X, y, people = table()
    ours = model(budget=make_budget(releases=3)).fit(X, y, subjects=people)
    shown = ours.coef_
    ours.forget(X=X[:0], y=y[:0])
    ours.forget([])
    np.testing.assert_array_equal(ours.coef_, shown)
    assert ours.certificate_.n_releases == 1


def test_a_second_fit_under_one_budget_says_so() -> None:
    X, y, people = table()
    ours = model(budget=make_budget(releases=3)).fit(X, y, subjects=people)
    assert OTHER_RELEASES not in ours.certificate_.not_covered
    assert OTHER_RELEASES not in ours.forget(["p1"]).certificate_.not_covered
    copied = clone(ours)
    for again in (ours, copied):
        again.fit(X, y, subjects=people)
        assert again.certificate_.n_releases == 1
        assert OTHER_RELEASES in again.certificate_.not_covered
        assert OTHER_RELEASES in again.forget(["p1"]).certificate_.not_covered
        assert verify(again.certificate_, again.record_).valid
    ours.set_params(budget=make_budget(releases=4)).fit(X, y, subjects=people)
    assert OTHER_RELEASES not in ours.certificate_.not_covered


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, pd.DataFrame])
def test_a_second_fit_under_an_equal_budget_says_so(kind: Any) -> None:
    X, y, people = table()
    given = kind(X)
    model(budget=make_budget()).fit(given, y, people)
    for changes in ({}, {"alpha": 0.3}, {"fit_intercept": False}):
        again = clone(model(budget=make_budget())).set_params(**changes)
        again.fit(given, y, people)
        assert OTHER_RELEASES in again.certificate_.not_covered
        assert OTHER_RELEASES in again.forget(["p1"]).certificate_.not_covered
        assert again.certificate_.status == "certified"
    for X_, y_, budget in (
        (kind(X[1:]), y[1:], make_budget()),
        (given, y[::-1], make_budget()),
        (kind(X * 2.0), y, make_budget()),
        (kind(X[:, ::-1]), y, make_budget()),
        (kind(X + 1e-9 * (np.arange(X.size) == 7).reshape(X.shape)), y, make_budget()),
        (given, y, make_budget(sigma=0.7)),
    ):
        other = model(budget=budget).fit(X_, y_)
        assert OTHER_RELEASES not in other.certificate_.not_covered


def test_a_fit_of_what_was_fitted_elsewhere_says_so(tmp_path: Path) -> None:
    X, y, people = table()
    ours = model(budget=make_budget(releases=3)).fit(X, y, subjects=people)
    ours.save(tmp_path / "saved")
    ship(ours, tmp_path / "shipped.safetensors")
    unfitted = pickle.loads(pickle.dumps(model(budget=make_budget(releases=3))))
    for other in (
        pickle.loads(pickle.dumps(ours)),
        load(tmp_path / "saved"),
        read_shipped(tmp_path / "shipped.safetensors"),
        unfitted,
    ):
        other.fit(X, y, subjects=people)
        assert OTHER_RELEASES in other.certificate_.not_covered


def test_simultaneous_fits_under_one_budget_notice_each_other() -> None:
    X, y, people = table()
    budget = make_budget(releases=3)
    fits = [model(budget=budget) for _ in range(6)]
    threads = [threading.Thread(target=ours.fit, args=(X, y, people)) for ours in fits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [OTHER_RELEASES in ours.certificate_.not_covered for ours in fits]
    assert sum(said) == 5


def test_a_declaration_survives_another_fit(tmp_path: Path) -> None:
    X, y, people = table()
    ours = model(budget=make_budget()).fit(X, y).declare_tuned("grid search")
    ship(ours, tmp_path / "shipped.safetensors")
    copies = [read_shipped(tmp_path / "shipped.safetensors")]
    copies.append(pickle.loads(pickle.dumps(ours)))
    for again in (ours, *copies, ours.set_params(preprocessing=StandardScaler())):
        certificate = again.fit(X, y, subjects=people).certificate_
        assert (certificate.status, certificate.selection) == (
            "no promise",
            "not covered",
        )
    scaled = model(budget=make_budget(), preprocessing=StandardScaler())
    searched = scaled.fit(X, y)
    assert searched.certificate_.status == "certified"
    assert searched.declare_tuned("a search").certificate_.status == "no promise"
    assert searched.forget(rows=[3]).certificate_.status == "no promise"
    assert searched.fit(X, y).certificate_.status == "no promise"


def test_seeded_noise_is_used_once_whatever_happened_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    y[:6] = 2
    ours: Any = LogisticRegression(
        alpha=0.1, budget=make_budget(), random_state=0, penalize_intercept=True
    ).fit(X, y, subjects=range(60))
    seen = [_noise(ours)]
    for request in (range(6), [7], [8]):
        ours.forget(request)
        seen.append(_noise(ours))
        ours.save(tmp_path)
        ours = load(tmp_path)
    figures = np.round(np.concatenate(seen), 6)  # answers are rounded to a grid
    assert len(np.unique(figures)) == len(figures)


def _noise(ours: Any) -> Any:
    drawn = snapshot_of(ours).public.release.theta
    return drawn - private_model(ours).answer.draft.theta


def _forgets_elsewhere(ours: Any, said: Any) -> None:
    said.put(OTHER_RELEASES in ours.forget(["p1"]).certificate_.not_covered)


def test_a_fork_says_that_there_may_be_others() -> None:
    X, y, people = table()
    ours = model(budget=make_budget(releases=3)).fit(X, y, subjects=people)
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    child = context.Process(target=_forgets_elsewhere, args=(ours, said))
    child.start()
    assert said.get(timeout=60)
    child.join()
    assert OTHER_RELEASES not in ours.forget(["p1"]).certificate_.not_covered


def test_a_loaded_model_says_that_there_may_be_others(tmp_path: Path) -> None:
    X, y, people = table()
    ours = model(budget=make_budget(releases=3)).fit(X, y, subjects=people)
    ours.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.certificate_ == ours.certificate_  # of the release that was saved
    assert OTHER_RELEASES in loaded.forget(["p1"]).certificate_.not_covered


def test_parameters_set_after_the_fit_are_not_those_of_the_release(
    tmp_path: Path,
) -> None:
    X, y, people = table()
    ours = model(budget=make_budget()).fit(X, y, subjects=people)
    ours.save(tmp_path / "before")
    ship(ours, tmp_path / "before.safetensors")
    ours.set_params(alpha=7.0, random_state=5, loss="squared_hinge", budget=None)
    ours.set_params(mechanism="jackknife", fit_intercept=False, classes=[1, 2])
    ours.save(tmp_path / "after")
    ship(ours, tmp_path / "after.safetensors")
    for name in ("release.json", "private.json"):
        texts = [(tmp_path / at / name).read_bytes() for at in ("before", "after")]
        assert texts[0] == texts[1]
    shipped = [tmp_path / f"{at}.safetensors" for at in ("before", "after")]
    assert shipped[0].read_bytes() == shipped[1].read_bytes()
    assert read_shipped(shipped[1]).alpha == load(tmp_path / "after").alpha == 0.1
    assert ours.predict_proba(X).shape == (N_ROWS, 2)
    np.testing.assert_array_equal(ours.to_sklearn().predict(X), ours.predict(X))
    assert ours.forget(["p1"]).certificate_.objective["alpha"] == 0.1


def test_not_covered_is_what_is_true_of_the_model() -> None:
    X, y, people = table()
    plain = model().fit(X, y).certificate_.not_covered
    bare = model(keep_data=False).fit(X, y).certificate_.not_covered
    scaled = model(preprocessing=StandardScaler()).fit(X, y, subjects=people)
    piped = scaled.certificate_.not_covered
    assert PREPROCESSED in scaled.certificate_.assumptions
    later = scaled.forget(["p1"]).certificate_.not_covered
    assert (PREPROCESSING in plain, BEFORE_PREPROCESSING in plain) == (True, False)
    assert ROWS_NOT_KEPT in bare and ROWS_NOT_KEPT not in plain
    assert PREPROCESSING not in piped and BEFORE_PREPROCESSING in piped
    assert NO_NOISE in piped and NO_NOISE not in plain
    assert later == piped
