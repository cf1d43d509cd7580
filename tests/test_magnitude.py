# SPDX-License-Identifier: Apache-2.0
"""Norms at the ends of the range of floats, and LAPACK's errors as ours."""

from math import inf, nan

import numpy as np
import pytest
from scipy import sparse

from expunge.core.arrays import catch_lapack_errors, norm, row_norms
from expunge.core.values import LARGEST, SMALLEST, require_magnitude
from expunge.exceptions import InvalidInput, NotConverged

SCALES = [5e-324, 1e-310, 1e-200, 1e-163, 1e-100, 1.0, 1e100, 1e163, 1e307]


@pytest.mark.parametrize("scale", SCALES)
def test_norms_neither_underflow_nor_overflow(scale: float) -> None:
    X = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]) * scale
    expected = np.array([5.0, 0.0, np.sqrt(2.0)]) * scale
    for design in (X, sparse.csr_array(X)):
        assert row_norms(design) == pytest.approx(expected, rel=1e-13, abs=5e-324)
    for row, size in zip(X, expected, strict=True):
        assert norm(row) == pytest.approx(size, rel=1e-13, abs=5e-324)


def test_a_norm_is_rounded_up(rng: np.random.Generator) -> None:
    for size in (1, 3, 100, 2000):
        v = rng.normal(size=size)
        true = np.sqrt(np.sum(v.astype(np.longdouble) ** 2))
        assert true <= norm(v) <= true * (1.0 + 1e-12)


def test_small_entries_beside_large_ones_do_no_harm() -> None:
    row = np.array([[1.0, 1e-310, 1e-200]])
    assert row_norms(row)[0] == 1.0
    assert norm(np.array([1e-300, 1e-310])) == pytest.approx(1e-300)


def test_one_row_and_many_rows_have_the_same_norms(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 7))
    assert [row_norms(X[i : i + 1])[0] for i in range(50)] == pytest.approx(
        row_norms(X), rel=1e-15
    )


def test_what_is_no_number_is_infinitely_long() -> None:
    assert norm(np.array([nan, 1.0])) == norm(np.array([inf, 1.0])) == inf
    assert row_norms(np.array([[nan, 1.0], [3.0, 4.0]])).tolist() == [inf, 5.0]


def test_of_nothing() -> None:
    assert norm(np.zeros(0)) == 0.0
    assert row_norms(np.zeros((2, 0))).tolist() == [0.0, 0.0]
    assert row_norms(np.zeros((0, 2))).size == 0


@pytest.mark.parametrize("value", [1e-51, 1e51, inf, nan, 0.0])
def test_a_factor_beyond_the_range_is_refused(value: float) -> None:
    require_magnitude("alpha", SMALLEST)
    require_magnitude("alpha", LARGEST)
    with pytest.raises(InvalidInput, match=r"alpha=.* between 1e-50 and 1e\+50"):
        require_magnitude("alpha", value)


def test_what_lapack_gives_up_is_our_error() -> None:
    with pytest.raises(NotConverged, match="scale the columns"), catch_lapack_errors():
        np.linalg.svd(np.full((2, 2), nan))
