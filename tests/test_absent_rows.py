# SPDX-License-Identifier: Apache-2.0
"""Rows that are gone: the others are not copied, and nothing is left of these."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import expunge
from expunge import L2, Objective, Rows
from expunge.core import sums
from expunge.core.arrays import may_share_memory
from expunge.core.rows import in_memory
from expunge.exceptions import UnknownRows
from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model
from expunge.private_model.row_digests import digests
from expunge.private_model.training_rows import GAPS, TrainingRows
from tests.instances import LOSSES, N_FEATURES, labelled

EVERY = pytest.mark.parametrize("name", LOSSES)
BOTH = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
KEY = b"key"


def _kept(name: str, kind: Any, rng: np.random.Generator) -> TrainingRows:
    X, y = labelled(name, rng, 60)
    X *= rng.random(X.shape) < 0.7
    weight = rng.uniform(0.5, 2.0, 60)
    weight[:3] = 0.0  # these are rows like others
    rows = Objective(LOSSES[name][0], L2(), 1.0).rows(kind(X), y, weight)
    return TrainingRows(rows, [f"person {i // 2}" for i in range(60)])


@EVERY
@BOTH
def test_sums_are_those_of_the_rows_that_are_left(
    name: str, kind: Any, rng: np.random.Generator
) -> None:
    loss = LOSSES[name][0]
    kept = _kept(name, kind, rng)
    kept.erase(np.array([4, 5, 30]))
    rows = in_memory(kept.remaining(np.array([6, 59])))
    left = rows.gather()
    assert len(rows) == len(left) == 55
    assert left.absent is None
    assert (left.weight == 0.0).sum() == 3
    assert rows.total_weight == pytest.approx(left.total_weight)
    theta = rng.normal(size=N_FEATURES * loss.outputs)
    for total in (sums.loss_gradient, sums.row_sizes, sums.kink_masses):
        for found, expected in zip(
            total(loss, rows, theta=theta),
            total(loss, left, theta=theta),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for pair in (
        [sums.loss_hessian(loss, some, theta=theta).dense() for some in (rows, left)],
        [sums.loss_slopes(loss, some, theta=theta) for some in (rows, left)],
    ):
        np.testing.assert_allclose(
            pair[0],
            pair[1],
            rtol=1e-11,
            atol=1e-11,
        )
    np.testing.assert_allclose(sums.norm_moment(rows), sums.norm_moment(left))
    np.testing.assert_allclose(sums.column_sizes(rows), sums.column_sizes(left))
    assert sums.largest_norm(rows) == sums.largest_norm(left)


@BOTH
def test_largest_values_are_those_of_the_rows_that_are_left(
    kind: Any, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(50, 3))
    X[7] = 1e49
    loss = LOSSES["logistic"][0]
    rows = Objective(loss, L2(), 1.0).rows(kind(X), np.ones(50))
    kept = TrainingRows(rows, list(map(str, range(50))))
    rows = in_memory(kept.remaining(np.array([7])))
    left, step = np.delete(X, 7, axis=0), rng.normal(size=3)
    assert sums.largest_norm(rows) == pytest.approx(np.linalg.norm(left, axis=1).max())
    expected = np.abs(left @ step).max()
    assert sums.largest_move(loss, rows, step=step) == pytest.approx(expected)
    for total in sums.row_sizes(loss, rows, theta=step):
        assert np.isfinite(total) and total < 1e6


@BOTH
def test_requests_are_handed_the_rows_themselves(
    kind: Any, rng: np.random.Generator
) -> None:
    kept = _kept("logistic", kind, rng)
    rows = in_memory(kept.remaining(np.array([6, 59])))
    assert rows.X is kept.rows.X
    assert rows.y is kept.rows.y
    assert kept.rows.weight[6] > 0.0  # nothing is removed yet
    assert not may_share_memory(rows.gather().X, kept.rows.X)
    with pytest.raises(AssertionError, match="gather first"):
        rows.take(np.array([0]))


@BOTH
def test_nothing_is_left_of_rows_that_are_erased(
    kind: Any, rng: np.random.Generator
) -> None:
    kept = _kept("logistic", kind, rng)
    gone, X = kept.find({"person 3", "person 20"}), kept.rows.dense().copy()
    kept.erase(gone)
    numbers = np.asarray(getattr(kept.rows.X, "data", kept.rows.X))
    for value in X[gone].ravel():
        assert value == 0.0 or value not in numbers
    if sparse.issparse(kept.rows.X):
        for place in gone:
            entries = slice(*kept.rows.X.indptr[place : place + 2])
            indices = kept.rows.X.indices[entries]
            assert np.array_equal(indices, np.arange(len(indices)))
        parts = (kept.rows.X.data, kept.rows.X.indices, kept.rows.X.indptr)
        assert sparse.csr_array(parts, shape=X.shape).has_canonical_format
    rest = np.delete(np.arange(60), gone)
    left = in_memory(kept.remaining(np.array([], int)))
    assert np.array_equal(left.gather().dense(), X[rest])


@BOTH
def test_a_row_has_one_digest_however_it_is_given(
    kind: Any, rng: np.random.Generator
) -> None:
    share = np.linspace(0.0, 1.0, 40)[:, None]
    X = rng.normal(size=(40, 9)) * (rng.random((40, 9)) < share)
    y, weight = rng.normal(size=40), rng.uniform(1.0, 2.0, 40)
    found = list(digests(Rows(kind(X), y, weight), KEY))
    assert len(set(found)) == 40
    for one in range(40):
        part = slice(one, one + 1)
        signed = np.where(X == 0.0, -0.0, X)
        for given in (X[part], sparse.csr_array(X[part]), signed[part]):
            assert [*digests(Rows(given, y[part], weight[part]), KEY)] == [found[one]]
    columns = Rows(np.asfortranarray(X), y, weight)
    assert list(digests(columns, KEY)) == found
    targets = np.column_stack([y, -y])
    expected = list(digests(Rows(kind(X), targets, weight), KEY))
    columns = Rows(np.asfortranarray(X), np.asfortranarray(targets), weight)
    assert list(digests(columns, KEY)) == expected


def test_digests_do_not_depend_on_how_entries_are_stored() -> None:
    plain: Any = sparse.csr_array(np.array([[0.0, 2.0, 0.0, 3.0, 0.0, 0.0]]))
    odd: Any = sparse.csr_array(
        ([1.0, 0.0, 3.0, -0.0, 1.0], [1, 5, 3, 0, 1], [0, 5]), shape=(1, 6)
    )
    one, before = np.ones(1), odd.data.copy()
    expected = list(digests(Rows(plain, one, one), KEY))
    assert list(digests(Rows(odd, one, one), KEY)) == expected
    assert np.array_equal(odd.data, before)


def test_digests_tell_apart_rows_that_differ_in_anything() -> None:
    X = np.zeros((6, 8))
    X[0, 1], X[1, 2], X[2, 1], X[3, [1, 2]] = 1.0, 1.0, 2.0, 1.0
    X[4], X[5] = X[0], X[0]
    y, weight = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 1.0]), np.ones(6)
    weight[5] = 2.0
    assert len(set(digests(Rows(X, y, weight), KEY))) == 6


def _data(kind: Any, rng: np.random.Generator) -> tuple[Any, Any, list[str]]:
    X = rng.normal(size=(80, 5)) * (rng.random((80, 5)) < 0.6)
    y = np.where(X[:, 0] + rng.normal(size=80) > 0.0, "yes", "no")
    return kind(X), y, [f"person {i // 2}" for i in range(80)]


@BOTH
def test_gaps_close_when_there_are_many(kind: Any, rng: np.random.Generator) -> None:
    X, y, people = _data(kind, rng)
    model = LogisticRegression(alpha=0.1, mechanism="retrain")
    model.fit(X, y, subjects=people)
    n_places = []
    for person in range(20):
        model.forget(subjects=[f"person {person}"])
        kept = private_model(model).training_rows
        assert isinstance(kept, TrainingRows)
        n_places.append(len(kept.alive))
        assert GAPS * np.count_nonzero(~kept.alive) <= len(kept.alive)
    assert n_places[9] == 80
    assert n_places[-1] < 80
    fresh = LogisticRegression(alpha=0.1).fit(X[40:], y[40:])
    np.testing.assert_allclose(model.coef_, fresh.coef_, atol=1e-9)


@BOTH
def test_model_goes_on_as_the_one_that_was_saved(
    kind: Any, rng: np.random.Generator, tmp_path: Path
) -> None:
    X, y, people = _data(kind, rng)
    model = LogisticRegression(alpha=0.1, mechanism="retrain")
    model.fit(X, y, subjects=people).forget(subjects=["person 3", "person 7"])
    model.save(tmp_path / "model")
    loaded = expunge.load(tmp_path / "model")
    for person in ("person 0", "person 39"):
        model.forget(subjects=[person])
        loaded.forget(subjects=[person])
        assert np.array_equal(model.coef_, loaded.coef_)
    kept = private_model(loaded).training_rows
    assert isinstance(kept, TrainingRows)
    assert sparse.issparse(kept.rows.X) == sparse.issparse(X)
    if sparse.issparse(kept.rows.X):
        assert kept.rows.X.indices.dtype == kept.rows.X.indptr.dtype == np.int32


def test_labels_of_rows_that_are_gone_do_not_matter(rng: np.random.Generator) -> None:
    kept = _kept("logistic", np.asarray, rng)
    rows = in_memory(kept.remaining(np.array([6])))
    other = replace(rows, y=np.where(np.arange(60) == 6, -rows.y, rows.y))
    theta = rng.normal(size=N_FEATURES)
    loss = LOSSES["logistic"][0]
    value, gradient = sums.loss_gradient(loss, rows, theta=theta)
    same_value, same_gradient = sums.loss_gradient(loss, other, theta=theta)
    assert value == same_value
    assert np.array_equal(gradient, same_gradient)


class TestRowsByContent:
    """They are compared with what is there, and digests are of rows not kept alone."""

    def _fit(
        self, rng: np.random.Generator, *, keep: bool
    ) -> tuple[LogisticRegression, Any, Any]:
        X = rng.normal(size=(60, 3))
        y = (X[:, 0] + rng.logistic(size=60) > 0).astype(int)
        people = [f"person {i // 2}" for i in range(60)]
        model = LogisticRegression(budget=expunge.Budget(sigma=1.0), keep_data=keep)
        return model.fit(X, y, subjects=people), X, y

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_row_leaves_once(
        self, rng: np.random.Generator, keep: bool, tmp_path: Path
    ) -> None:
        model, X, y = self._fit(rng, keep=keep)
        for first in range(0, 20, 4):
            if keep:
                model.forget([f"person {first // 2}"])
            else:
                model.forget(X=X[first : first + 2], y=y[first : first + 2])
            model.forget(X=X[first + 2 : first + 3], y=y[first + 2 : first + 3])
        model.save(tmp_path / "model")
        for one in (model, expunge.load(tmp_path / "model")):
            private = private_model(one)
            assert (private.digests is None) == keep
            assert (private.training_rows is None) != keep
            for gone in (0, 2):
                with pytest.raises(UnknownRows, match="1 of 1 rows"):
                    one.forget(X=X[gone : gone + 1], y=y[gone : gone + 1])
            with pytest.raises(UnknownRows, match="1 of 2 rows"):
                one.forget(X=X[[30, 30]], y=y[[30, 30]])
            one.forget(X=X[3:4], y=y[3:4])
            if private.digests is not None:
                left = [3, 7, 11, 15, 19, *range(20, 60)]
                left.remove(3)
                rows = one_matrix(X[left], y[left])
                table = private_model(one).digests
                assert table is not None
                assert table.counts == Counter(digests(rows, table.key))

    def test_no_row_is_hashed_where_people_ask(
        self, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, _, _ = self._fit(rng, keep=True)

        def refuse(*_: Any) -> Any:
            raise AssertionError("a row was hashed")

        monkeypatch.setattr("expunge.private_model.snapshot.digests", refuse)
        model.forget(["person 3"])
        model.add(np.zeros((1, 3)), [1], subjects=["person 3"])


def one_matrix(X: Any, y: Any) -> Rows:
    """Return rows as a model keeps them: with an intercept, and signs."""
    return Rows(np.hstack([X, np.ones((len(X), 1))]), 2.0 * y - 1.0, np.ones(len(X)))
