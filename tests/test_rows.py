# SPDX-License-Identifier: Apache-2.0
"""Rows: selection, blocks and norms, dense and sparse alike."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import L2, HalfSquared, Objective, Rows
from expunge.core.arrays import slice_rows, transpose

BOTH = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])


def _rows(kind: Any, rng: np.random.Generator, n_samples: int = 7) -> Rows:
    X = rng.normal(size=(n_samples, 3)) * (rng.random((n_samples, 3)) < 0.6)
    objective = Objective(HalfSquared(), L2(), 1.0)
    return objective.rows(kind(X), rng.normal(size=n_samples), rng.random(n_samples))


def _entries(X: Any) -> Any:
    return X if isinstance(X, np.ndarray) else X.data


def _dense(X: Any) -> Any:
    return X if isinstance(X, np.ndarray) else X.toarray()


@BOTH
def test_take_and_without_divide_the_rows(kind: Any, rng: np.random.Generator) -> None:
    rows, index = _rows(kind, rng), np.array([4, 0])
    inside, outside = rows.take(index), rows.without(index)
    assert (len(inside), len(outside)) == (2, 5)
    assert np.array_equal(inside.dense(), rows.dense()[index])
    assert np.array_equal(outside.y, np.delete(rows.y, index))
    assert np.isclose(inside.total_weight + outside.total_weight, rows.total_weight)


@BOTH
def test_blocks_are_consecutive(kind: Any, rng: np.random.Generator) -> None:
    rows = _rows(kind, rng)
    blocks = list(rows.blocks(3))
    assert [len(block) for block in blocks] == [3, 3, 1]
    assert np.array_equal(np.vstack([b.dense() for b in blocks]), rows.dense())


@BOTH
def test_blocks_share_the_memory_of_the_rows(
    kind: Any, rng: np.random.Generator
) -> None:
    rows = _rows(kind, rng, 40)
    values = _entries(rows.X)
    for block in rows.blocks(4):  # few of many: what SciPy would copy
        assert np.shares_memory(_entries(block.X), values)
        turned = transpose(block.X)
        assert np.shares_memory(_entries(turned), values)
        np.testing.assert_allclose(turned @ block.y, block.dense().T @ block.y)


def test_blocks_of_entries_given_twice_leave_the_rows_alone() -> None:
    X: Any = sparse.csr_array(([1.0, 2.0, 4.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    for block in Rows(X, np.ones(2), np.ones(2)).blocks(1):
        assert not np.shares_memory(_entries(block.X), X.data)
        abs(block.X)  # SciPy adds up
    assert X.data.tolist() == [1.0, 2.0, 4.0]


@BOTH
@pytest.mark.parametrize("part", [slice(2, 5), slice(0), slice(5, 99), slice(4, 2)])
def test_slices_are_those_of_numpy(
    kind: Any, part: slice, rng: np.random.Generator
) -> None:
    rows = _rows(kind, rng)
    assert np.array_equal(_dense(slice_rows(rows.X, part)), rows.dense()[part])


@BOTH
def test_norms_are_euclidean(kind: Any, rng: np.random.Generator) -> None:
    rows = _rows(kind, rng)
    assert np.allclose(rows.norms(), np.linalg.norm(rows.dense(), axis=1))


def test_repr_shows_the_shape_alone(rng: np.random.Generator) -> None:
    assert repr(_rows(np.asarray, rng)) == "Rows(7 x 3)"
