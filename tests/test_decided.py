# SPDX-License-Identifier: Apache-2.0
"""Exact sums, and numbers rounded as they decide: against fractions and 80 digits."""

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from expunge.core.decided import (
    LOG_BITS,
    SLOW_WIDTH,
    Solver,
    eliminate,
    quotients,
    round_logs,
    solve_rounded,
)
from expunge.core.whole_sums import (
    WholeSums,
    count_by_group,
    from_integers,
    products,
    sum_by_group,
    to_integers,
    whole_numbers,
)
from expunge.exceptions import CannotFit, InvalidInput
from tests.thorough import either


def integers(numbers: NDArray[Any]) -> NDArray[Any]:
    return np.array([[int(one) for one in row] for row in numbers], dtype=object)


def test_products_of_whole_numbers_are_those_of_python() -> None:
    rng = np.random.default_rng(0)
    A = np.rint(rng.normal(size=(500, 5)) * 10.0 ** np.array([0, 3, 6, 9, 14]))
    A[0] = [2**53 - 1, 1 - 2**53, 2**52, -1, 0]
    found = to_integers(products(A, A[:, :3]))
    assert (found == integers(A).T.dot(integers(A[:, :3]))).all()
    assert (to_integers(from_integers(found, 5)) == found).all()


def test_removal_leaves_the_bytes_of_the_rows_that_are_left() -> None:
    rng = np.random.default_rng(1)
    A = np.rint(rng.normal(size=(90, 4)) * 1e9)
    gone, group = slice(30, 61), rng.integers(0, 3, 90)
    left = np.delete(np.arange(90), gone)

    def sums(at: Any) -> WholeSums:
        counts = sum_by_group(A[at], group[at], n_groups=3)
        return WholeSums({"products": products(A[at], A[at]), "columns": counts})

    after = sums(slice(None)).minus(sums(gone))
    assert after.equals(sums(left))
    for name, parts in sums(left).parts.items():
        assert after.parts[name].tobytes() == parts.tobytes()
    assert after.plus(sums(gone)).equals(sums(slice(None)))
    assert not after.equals(sums(slice(None)))


def test_a_sum_that_would_wrap_around_is_refused() -> None:
    near = WholeSums({"users": np.full((1, 2), 2**61)})
    with pytest.raises(InvalidInput, match="must not wrap around"):
        near.plus(near)
    big = np.full((4, 1), 2.0**61)
    with pytest.raises(InvalidInput, match="would not fit"):
        sum_by_group(big, np.zeros(4, dtype=np.intp), n_groups=1)


def test_groups_of_sparse_rows_are_those_of_dense_ones() -> None:
    rng = np.random.default_rng(2)
    X, group = rng.integers(0, 3, (50, 7)).astype(float), rng.integers(0, 4, 50)
    dense = sum_by_group(X, group, n_groups=4)
    assert (sum_by_group(sparse.csr_array(X), group, n_groups=4) == dense).all()
    assert (
        dense[0] == [[X[group == g, j].sum() for j in range(7)] for g in range(4)]
    ).all()
    assert count_by_group(np.ones(50), group, n_groups=4).sum() == 50


def test_numbers_are_put_on_the_grid_each_by_itself() -> None:
    X = np.array([[0.29, -1.005, 2.5e-7, -0.0]])
    assert whole_numbers(X, 2).tolist() == [[29.0, -100.0, 0.0, 0.0]]
    with pytest.raises(InvalidInput, match=r"holds 0\.29, and this model counts whole"):
        whole_numbers(X, None)
    with pytest.raises(InvalidInput, match=r"up to 9e\+09 are carried exactly"):
        whole_numbers(np.array([[1e10]]), 6)


def test_quotients_are_rounded_once() -> None:
    top = np.array([1, 2**60 + 1, -(10**17) - 3, 0], dtype=object)
    bottom = np.array([3, 7, 10**6, 5], dtype=object)
    expected = [float(Fraction(a, b)) for a, b in zip(top, bottom, strict=True)]
    assert quotients(top, bottom).tolist() == expected


@pytest.mark.parametrize("off", [0.0, 3.0])
def test_logarithms_are_the_nearest_of_their_grid(off: float) -> None:
    """Also where NumPy's are off by some units in the last place."""
    rng = np.random.default_rng(3)
    top = rng.integers(1, 10**6, 20_000)
    bottom = top + rng.integers(0, 10**6, len(top))
    near = np.log(top / bottom)
    near *= 1.0 + off * 2.0**-52
    found = round_logs(near, lambda at: {Fraction(int(top[at]), int(bottom[at])): 1})
    # The hardest of them, and some others.
    hard = np.argsort(np.abs(np.abs(near * 2.0**LOG_BITS % 1.0) - 0.5))[:200]
    with localcontext() as context:
        context.prec = 60
        for at in [*hard.tolist(), *range(200)]:
            log = Decimal(int(top[at])).ln() - Decimal(int(bottom[at])).ln()
            nearest = (log * 2**LOG_BITS).to_integral_value()
            assert int(nearest) == found[at] * 2.0**LOG_BITS


def by_fractions(A: NDArray[Any], b: list[int], grid: list[int]) -> list[int]:
    top, bottom = eliminate([list(map(int, row)) for row in A], b)
    scaled = [
        Fraction(n, bottom) * Fraction(2) ** g for n, g in zip(top, grid, strict=True)
    ]
    return [round(one) for one in scaled]


@pytest.mark.parametrize("seed", range(either(40, thorough=2000)))
def test_solutions_are_those_of_fractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 7))
    n = d + int(rng.integers(0, 30))
    X = np.rint(rng.normal(size=(n, d)) * 10.0 ** rng.integers(0, 8, size=d))
    if seed % 5 == 0 and d > 1:  # nearly dependent
        X[:, 0] = X[:, 1] + (np.arange(n) == 0)
    A = to_integers(products(X, X)) + np.diag([int(rng.integers(1, 50))] * d)
    b = [int(one) for one in rng.integers(-(10**9), 10**9, size=d)]
    if seed % 7 == 0:  # a solution of integers
        b = [int(one) for one in A[:, 0] * int(rng.integers(-5, 5))]
    grid = [int(one) for one in rng.integers(-3, 60, size=d)]
    found = solve_rounded(Solver(from_integers(A, 5)), b, grid=grid)
    assert found == by_fractions(A, b, grid)


def test_ties_go_to_the_even_neighbour() -> None:
    A = np.array([[6, 2], [2, 6]], dtype=object)
    solver = Solver(from_integers(A, 5))
    for b in [[i, j] for i in range(-20, 20, 3) for j in range(-9, 9)]:
        assert solve_rounded(solver, b, grid=[4, 3]) == by_fractions(A, b, [4, 3])


def test_singular_systems_are_refused() -> None:
    A = np.array([[4, 2], [2, 1]], dtype=object)
    with pytest.raises(CannotFit, match="linearly dependent"):
        solve_rounded(Solver(from_integers(A, 5)), [1, 1], grid=[4, 4])
    wide = np.ones((SLOW_WIDTH + 1, SLOW_WIDTH + 1), dtype=object)
    with pytest.raises(CannotFit, match="so nearly dependent"):
        solve_rounded(
            Solver(from_integers(wide, 5)), [1] * len(wide), grid=[4] * len(wide)
        )
