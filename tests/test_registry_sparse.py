# SPDX-License-Identifier: Apache-2.0
"""Sparse rows in a registry: stored as they are, read once, and gone when they go."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import Rows, TunedClassifier
from expunge.core.arrays import Index
from expunge.core.rows import RowSource, in_memory
from expunge.linear_model.base import private_model
from expunge.private_model.answers import Answer
from expunge.private_model.model import PrivateModel
from expunge.private_model.training_rows import NO_ROWS, TrainingRows
from expunge.registry import Registry
from expunge.registry.loaded_model import dump_by_person, dump_rows, load_rows
from tests.registries import BUDGET, data, estimator, private_model_of

NAMES = ("person 3", "person 11")
BOTH = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])


def _rows_of(private: PrivateModel) -> RowSource:
    rows = private.remaining_rows()
    assert rows is not None
    return rows


def _rows(kind: Any, rng: np.random.Generator, n_rows: int = 30) -> Rows:
    X = rng.normal(size=(n_rows, 7)) * (rng.random((n_rows, 7)) < 0.4)
    X[4] = 0.0
    return Rows(kind(X), rng.normal(size=n_rows), rng.uniform(1.0, 2.0, n_rows))


@BOTH
def test_rows_come_back_as_they_were(kind: Any, rng: np.random.Generator) -> None:
    rows = _rows(kind, rng)
    owners = [f"person {i % 11}" for i in range(30)]  # not in the order of places
    people = [data for _, data in dump_by_person(rows, owners)]
    found, places = load_rows(people)
    assert places.tolist() == list(range(30))
    assert type(found.X) is type(rows.X)
    assert np.array_equal(found.dense(), rows.dense())
    assert np.array_equal(found.y, rows.y)
    assert np.array_equal(found.weight, rows.weight)
    found.weight[:] = 0.0  # memory of their own, to be overwritten


@BOTH
def test_rows_of_many_are_written_as_those_of_one(
    kind: Any, rng: np.random.Generator
) -> None:
    rows = _rows(kind, rng)
    owners = [f"person {(i * i) % 13}" for i in range(30)]
    people = list(dump_by_person(rows, owners))
    assert [owner for owner, _ in people] == list(dict.fromkeys(owners))
    for owner, written in people:
        at = np.array([i for i, one in enumerate(owners) if one == owner])
        assert written == dump_rows(rows, at, at=at)


@BOTH
def test_rows_are_left_out_while_they_are_read(
    kind: Any, rng: np.random.Generator
) -> None:
    rows, gone = _rows(kind, rng), np.array([3, 4, 14, 29])
    people = dump_by_person(rows, [f"person {i // 3}" for i in range(30)])
    found, places = load_rows((data for _, data in people), without=gone)
    stay = np.delete(np.arange(30), gone)
    assert np.array_equal(places, stay)
    assert np.array_equal(found.dense(), rows.dense()[stay])
    assert np.array_equal(found.y, rows.y[stay])


def test_rows_without_any_entry_come_back() -> None:
    X: Any = sparse.csr_array((2, 5))
    found, _ = load_rows([dump_rows(Rows(X, np.ones(2), np.ones(2)), np.arange(2))])
    assert found.X.shape == (2, 5)
    assert not found.dense().any()


def test_targets_in_several_columns_come_back(rng: np.random.Generator) -> None:
    rows, targets = _rows(sparse.csr_array, rng), rng.normal(size=(30, 3))
    rows = Rows(rows.X, np.asfortranarray(targets), rows.weight)
    people = dump_by_person(rows, [str(i % 7) for i in range(30)])
    found, _ = load_rows(data for _, data in people)
    assert np.array_equal(found.y, targets)


def test_sparse_rows_take_the_room_of_their_entries(rng: np.random.Generator) -> None:
    columns = np.sort(rng.choice(50_000, 60, replace=False)).astype(np.int32)
    X: Any = sparse.csr_array((np.ones(60), columns, [0, 60]), shape=(1, 50_000))
    data = dump_rows(Rows(X, np.ones(1), np.ones(1)), np.arange(1))
    assert len(data) < 3 * 12 * 60


@pytest.fixture
def text() -> tuple[Any, Any, list[str]]:
    """Return the usual data with gaps, as a sparse matrix."""
    X, y, owners = data()
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    return sparse.csr_array(X), y, owners


def test_sparse_model_forgets_as_the_dense_one(
    text: tuple[Any, Any, list[str]], tmp_path: Path
) -> None:
    X, y, owners = text
    registry = Registry.create(tmp_path / "registry")
    registry.fit("sparse", estimator(), X, y, subjects=owners)
    registry.fit("dense", estimator(), X.toarray(), y, subjects=owners)
    registry.forget(NAMES)
    drafts = []
    for name in ("sparse", "dense"):
        private = private_model_of(registry, name)
        drafts.append(private.answer.draft.theta)
        rows = in_memory(_rows_of(private))
        assert sparse.issparse(rows.X) == (name == "sparse")
        stay = [i for i, owner in enumerate(owners) if owner not in NAMES]
        assert np.array_equal(rows.dense()[:, :-1], X.toarray()[stay])
    np.testing.assert_allclose(drafts[0], drafts[1], rtol=1e-9)


def test_rows_are_read_once_for_a_request(
    text: tuple[Any, Any, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y, owners = text
    registry = Registry.create(tmp_path / "registry")
    model = estimator(mechanism="retrain")
    registry.fit("sparse", model, X, y, subjects=owners)
    private = private_model_of(registry, "sparse")
    fetch, n_reads = private.fetch, 0
    assert fetch is not None

    def counted(gone: Index) -> RowSource:
        nonlocal n_reads
        n_reads += 1
        assert fetch is not None
        return fetch(gone)

    gone, removed = np.arange(2), in_memory(_rows_of(private)).take(slice(0, 2))
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "fits", lambda *_: False)  # look at them again
        after = replace(private, fetch=counted).forget(removed, gone=gone)
    assert n_reads == 1
    fresh = estimator(budget=None).fit(X[2:], y[2:])
    theta = private_model(fresh).answer.draft.theta
    np.testing.assert_allclose(after.answer.draft.theta, theta, atol=1e-7)


def test_tuned_model_keeps_sparse_rows_at_their_places(
    text: tuple[Any, Any, list[str]], tmp_path: Path
) -> None:
    X, y, owners = text
    registry = Registry.create(tmp_path / "registry")
    tuned = TunedClassifier(alphas=[0.05, 0.5], budget=BUDGET)
    registry.fit("tuned", tuned, X, y, subjects=owners)
    for name in NAMES:
        registry.forget([name])
    private = private_model_of(registry, "tuned")
    kept = private.training_rows
    assert isinstance(kept, TrainingRows) and sparse.issparse(kept.rows.X)
    assert np.count_nonzero(~kept.alive) == 4
    gone = kept.rows.X[np.flatnonzero(~kept.alive)]
    assert gone.nnz == 0
    rows = kept.remaining(NO_ROWS)
    assert len(rows) == len(y) - 4
