# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: each shortcut against the long way."""

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from expunge.core import linalg
from expunge.core import prox as prox_module
from expunge.core.arrays import Matrix, Vector
from expunge.core.linalg import (
    LARGE,
    MOST_RECENT,
    SMALL_PRODUCT,
    Symmetric,
    conjugate_gradients,
    most_recent,
    threads_for,
)
from expunge.core.losses import HalfSquared
from expunge.core.objective import Objective
from expunge.core.penalties import L1, L2, GroupLasso, NuclearNorm, Penalty
from expunge.core.prox import (
    Kink,
    Minimum,
    find_fixed_point,
    model_residual,
    scaled_prox,
    sweep_coordinates,
)
from expunge.core.rows import NARROW, Rows, block_sum
from expunge.exceptions import NotPositiveDefinite
from expunge.private_model.model import PrivateModel

SIZE = 12


def _definite(
    rng: np.random.Generator, condition: float = 100.0, size: int = SIZE
) -> Matrix:
    """Return a symmetric matrix with eigenvalues from 1/condition to 1."""
    basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix: Matrix = (basis * np.geomspace(1.0 / condition, 1.0, size)) @ basis.T
    return matrix


def _kink(penalty: Penalty, weight: float, columns: int = 1) -> Kink:
    def shrink(v: Vector, step: float | Vector) -> Vector:
        if isinstance(step, np.ndarray):
            step = step.reshape(-1, columns)
        return penalty.shrink(v.reshape(-1, columns), weight * step).ravel()

    return Kink(shrink, penalty.separable)


def test_symmetric_reads_the_lower_triangle_alone(rng: np.random.Generator) -> None:
    A = _definite(rng)
    spoiled = np.tril(A) + np.triu(np.full_like(A, 7.0), 1)
    S = Symmetric.from_dense(spoiled)
    v, V, Z = (
        rng.normal(size=SIZE),
        rng.normal(size=(SIZE, 3)),
        rng.normal(size=(4, SIZE)),
    )
    index = np.array([1, 4, 7])
    assert np.allclose(S.dense(), A)
    assert np.allclose(S @ v, A @ v)
    assert np.allclose(S @ V, A @ V)
    assert np.allclose(S.update(-0.1, Z).dense(), A - 0.1 * Z.T @ Z)
    assert np.allclose(S.update(2.0, Z[:1]).dense(), A + 2.0 * np.outer(Z[0], Z[0]))
    assert np.allclose(S.add_diagonal(v).dense(), A + np.diag(v))
    assert np.allclose(S.submatrix(index).dense(), A[np.ix_(index, index)])
    assert np.allclose(S.cholesky().solve(v), np.linalg.solve(A, v))
    assert np.allclose(S.cholesky().inverse().dense(), np.linalg.inv(A))
    assert np.allclose(S.dense(), A)  # nothing above wrote into S
    made = (S.copy(), S.add_diagonal(v), S.cholesky().inverse())
    for matrix in (S, *made, S.update(-0.1, Z), S.update(0.1, Z[:1], overwrite=True)):
        assert not np.triu(matrix.lower, 1).any()


class TestRecentRows:
    """Rows kept beside a large matrix's triangle until there are many."""

    SIZE = LARGE

    @pytest.fixture(name="A")
    def matrix(self, rng: np.random.Generator) -> Matrix:
        return _definite(rng, size=self.SIZE)

    @pytest.fixture(name="Z")
    def rows(self, rng: np.random.Generator) -> Matrix:
        return 0.01 * rng.normal(size=(3 * MOST_RECENT, self.SIZE))

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize("n_rows", [1, 2, MOST_RECENT, 3 * MOST_RECENT])
    def test_count_at_once(
        self, A: Matrix, Z: Matrix, *, n_rows: int, overwrite: bool
    ) -> None:
        S, v = Symmetric.from_dense(A), Z[-1] + 1.0
        for row in Z[:n_rows]:
            S = S.update(-0.5, row[None], overwrite=overwrite)
        expected = A - 0.5 * Z[:n_rows].T @ Z[:n_rows]
        assert np.allclose(S @ v, expected @ v, rtol=1e-12)
        assert np.allclose(S @ Z.T, expected @ Z.T, atol=1e-12)
        assert np.allclose(S.dense(), expected, atol=1e-14)
        assert np.allclose(S @ v, expected @ v, rtol=1e-12)  # folded by now

    def test_are_folded_by_whatever_needs_the_whole(self, A: Matrix, Z: Matrix) -> None:
        expected = A + Z[:2].T @ Z[:2]

        def recent() -> Symmetric:
            return Symmetric.from_dense(A).update(1.0, Z[:2])

        whole = [recent().copy(), recent().add_diagonal(np.zeros(self.SIZE))]
        for matrix in whole:
            assert np.allclose(matrix.dense(), expected)
        assert np.allclose(recent().diagonal, np.diagonal(expected))
        assert np.allclose(
            recent().cholesky().solve(Z[0]), np.linalg.solve(expected, Z[0])
        )

    def test_of_two_signs(self, A: Matrix, Z: Matrix) -> None:
        S = Symmetric.from_dense(A).update(1.0, Z[:2]).update(-1.0, Z[1:3])
        expected = A + np.outer(Z[0], Z[0]) - np.outer(Z[2], Z[2])
        assert np.allclose(S @ Z[5], expected @ Z[5], rtol=1e-12)
        assert np.allclose(S @ Z.T, expected @ Z.T, atol=1e-12)
        assert np.allclose(S.last_rows, expected[-1:], atol=1e-14)
        assert np.allclose(S.dense(), expected, atol=1e-14)
        for overwrite in (False, True):
            mixed = Symmetric.from_dense(A)
            for place, row in enumerate(Z):
                mixed = mixed.update((-1.0) ** place, row[None], overwrite=overwrite)
            signed = A + Z.T @ (Z * ((-1.0) ** np.arange(len(Z)))[:, None])
            assert np.allclose(mixed.dense(), signed, atol=1e-13)

    def test_of_one_matrix_are_not_another_s(self, A: Matrix, Z: Matrix) -> None:
        first = Symmetric.from_dense(A)
        second = first.update(-1.0, Z[:1])
        third = second.update(-1.0, Z[1:2], overwrite=True)
        for row in Z[2:]:
            third = third.update(-1.0, row[None], overwrite=True)
        assert np.allclose(first.dense(), A)
        assert np.allclose(second.dense(), A - np.outer(Z[0], Z[0]))

    def test_are_subtracted_in_place_where_nobody_shares_the_triangle(
        self, A: Matrix, Z: Matrix
    ) -> None:
        S = Symmetric.from_dense(A)
        memory = S.lower
        spent = S.update(-1.0, Z[:1], overwrite=True)
        assert spent.lower is memory or np.shares_memory(spent.lower, memory)
        assert np.allclose(spent.dense(), A - np.outer(Z[0], Z[0]))
        other = spent.update(-1.0, Z[1:2])  # from now on it is shared
        again = spent.update(-1.0, Z[2:3], overwrite=True)
        for matrix, rows in ((spent, Z[:1]), (other, Z[:2]), (again, Z[[0, 2]])):
            assert np.allclose(matrix.dense(), A - rows.T @ rows)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_are_not_in_copies(
        self, A: Matrix, Z: Matrix, duplicate: Callable[[Symmetric], Any]
    ) -> None:
        S = Symmetric.from_dense(A).update(-1.0, Z[:1])
        made = duplicate(S)
        text = made if isinstance(made, bytes) else pickle.dumps(made)
        assert Z[0].tobytes() not in text
        back = pickle.loads(text)
        np.testing.assert_array_equal(back.lower, S.lower)

    def test_of_a_small_matrix_are_not_kept(self) -> None:
        assert most_recent(LARGE) == MOST_RECENT
        assert most_recent(LARGE - 1) == 0


class TestOneThread:
    """Small products stay on one thread of BLAS, whatever the process allows."""

    @pytest.fixture
    def libraries(self) -> Iterator[list[Any]]:
        found = [
            library
            for library in ThreadpoolController().lib_controllers
            if library.user_api == "blas"
        ]
        before = [library.get_num_threads() for library in found]
        for library in found:
            library.set_num_threads(2)
        yield found
        for library, n_threads in zip(found, before, strict=True):
            library.set_num_threads(n_threads)

    @staticmethod
    def counts(libraries: list[Any]) -> set[int]:
        return {library.get_num_threads() for library in libraries}

    def test_is_for_small_products(self, libraries: list[Any]) -> None:
        with threads_for(SMALL_PRODUCT):
            assert self.counts(libraries) == {1}
        assert self.counts(libraries) == {2}
        with threads_for(SMALL_PRODUCT + 1):
            assert self.counts(libraries) == {2}

    def test_is_for_passes_over_narrow_rows(self, libraries: list[Any]) -> None:
        def term(block: Rows) -> tuple[int]:
            found.append(self.counts(libraries))
            return (len(block),)

        for n_columns, n_threads in ((NARROW, 1), (NARROW + 1, 2)):
            found: list[set[int]] = []
            rows = Rows(np.ones((5_000, n_columns)), np.ones(5_000), np.ones(5_000))
            assert block_sum(term, rows) == (5_000,)
            assert found == [{n_threads}] * 3
            assert self.counts(libraries) == {2}

    def test_ends_when_an_error_does(self, libraries: list[Any]) -> None:
        with pytest.raises(ZeroDivisionError), threads_for(1):
            1 // 0  # noqa: B018
        assert self.counts(libraries) == {2}

    def test_lasts_until_the_last_thread_leaves(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Library:
            n_threads = 2

            def get_num_threads(self) -> int:
                return self.n_threads

            def set_num_threads(self, n_threads: int) -> None:
                self.n_threads = n_threads

        library, entered, leave = Library(), Event(), Event()
        monkeypatch.setattr(linalg, "_libraries", lambda: [library])

        def stay() -> None:
            with threads_for(1):
                entered.set()
                leave.wait(30.0)

        other = Thread(target=stay)
        other.start()
        assert entered.wait(30.0)
        with threads_for(1):
            pass
        assert library.n_threads == 1
        leave.set()
        other.join()
        assert library.n_threads == 2

    def test_an_interrupt_on_the_way_out_does_not_last(
        self, libraries: list[Any]
    ) -> None:
        threads_for(1).__enter__()  # and never left
        with threads_for(1):
            assert self.counts(libraries) == {1}
        assert self.counts(libraries) == {2}

    def test_a_request_uses_it_and_a_fit_does_not(
        self, libraries: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[set[int]] = []
        real = Symmetric.update

        def spy(matrix: Symmetric, *arguments: Any, **options: Any) -> Symmetric:
            seen.append(self.counts(libraries))
            return real(matrix, *arguments, **options)

        X = np.random.default_rng(0).normal(size=(60, 4))
        objective = Objective(HalfSquared(), L2(), 0.1)
        rows = objective.rows(X, X[:, 0])
        model = PrivateModel.fit(objective, rows)
        assert self.counts(libraries) == {2}
        monkeypatch.setattr(Symmetric, "update", spy)
        model.forget(rows.take(np.arange(1)))
        assert seen
        assert {frozenset(one) for one in seen} == {frozenset({1})}
        assert self.counts(libraries) == {2}

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
    def test_is_not_stuck_in_a_forked_child(self) -> None:
        with threads_for(1):
            child = os.fork()
            if child == 0:
                with threads_for(1):
                    os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_cholesky_refuses_and_says_what_to_do(rng: np.random.Generator) -> None:
    flat = np.outer(np.ones(SIZE), np.ones(SIZE)) - 1e-8 * np.eye(SIZE)
    with pytest.raises(NotPositiveDefinite, match="set ridge > 0"):
        Symmetric.from_dense(flat).cholesky()


@pytest.mark.parametrize("quality", [0.0, 0.3, 1.0])
def test_cg_solves_whatever_the_preconditioner(
    quality: float, rng: np.random.Generator
) -> None:
    A, b = _definite(rng), rng.normal(size=SIZE)
    P = quality * np.linalg.inv(A) + (1.0 - quality) * np.eye(SIZE)
    solved = conjugate_gradients(
        lambda v: A @ v,
        b,
        precondition=lambda v: P @ v,
        start=rng.normal(size=SIZE),
        max_steps=60,
    )
    assert solved.converged
    assert np.allclose(solved.x, np.linalg.solve(A, b), rtol=1e-12)
    assert quality < 1.0 or solved.n_steps <= 3


def test_cg_says_when_it_ran_out_of_steps(rng: np.random.Generator) -> None:
    A, b = _definite(rng, 1e6), rng.normal(size=SIZE)
    zero = np.zeros(SIZE)
    solved = conjugate_gradients(
        lambda v: A @ v, b, precondition=lambda v: v, start=zero, max_steps=3
    )
    assert not solved.converged


def test_cg_does_not_trust_an_indefinite_preconditioner(
    rng: np.random.Generator,
) -> None:
    A, b, zero = _definite(rng), rng.normal(size=SIZE), np.zeros(SIZE)
    solved = conjugate_gradients(
        lambda v: A @ v, b, precondition=lambda v: -v, start=zero, max_steps=20
    )
    assert not solved.converged


def test_cg_says_where_a_matrix_is_indefinite(rng: np.random.Generator) -> None:
    A, zero = _definite(rng) - 0.5 * np.eye(SIZE), np.zeros(SIZE)
    b = rng.normal(size=SIZE)
    solved = conjugate_gradients(
        lambda v: A @ v, b, precondition=lambda v: v, start=zero, max_steps=20
    )
    assert solved.flat is not None and not solved.converged
    assert solved.flat @ A @ solved.flat <= 0.0


def test_cg_has_nothing_to_do_for_zero() -> None:
    zero = np.zeros(SIZE)
    solved = conjugate_gradients(
        lambda v: v, zero, precondition=lambda v: v, start=zero, max_steps=5
    )
    assert (solved.n_steps, solved.converged) == (0, True)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
@pytest.mark.parametrize(
    ("penalty", "columns"),
    [(L1(), 1), (GroupLasso([0, 0, 1, 1, 2, 2]), 2), (NuclearNorm(), 3)],
)
def test_scaled_prox_is_optimal(
    penalty: Penalty, columns: int, condition: float, rng: np.random.Generator
) -> None:
    for weight in (0.01, 0.1, 0.5):
        B = Symmetric.from_dense(_definite(rng, condition))
        b, start = B @ rng.normal(size=SIZE), rng.normal(size=SIZE)
        kink = _kink(penalty, weight * np.abs(b).max(), columns)
        minimum = scaled_prox(B, b, kink=kink, start=start)
        assert model_residual(B, b, minimum=minimum) <= 1e-12 * np.linalg.norm(b)

        def cost(x: Vector, weight: float = weight, b: Vector = b) -> float:
            scale = weight * float(np.abs(b).max())
            return scale * penalty.kink(x.reshape(-1, columns))

        # The subgradient is one: it supports the kink at the minimum.
        for size in (1e-3, 0.1, 1.0):
            z = minimum.x + size * rng.normal(size=SIZE)
            rise = minimum.subgradient @ (z - minimum.x)
            assert cost(z) >= cost(minimum.x) + rise - 1e-13


@pytest.mark.parametrize(
    ("groups", "columns"), [("pairs", 2), ("one", 1), ("nuclear", 3)]
)
def test_scaled_prox_settles_on_hard_random_cases(
    groups: str, columns: int, rng: np.random.Generator
) -> None:
    # Conditions up to 1e7 and weights from nothing to where the answer is zero.
    penalties: dict[str, Penalty] = {
        "pairs": GroupLasso([0, 0, 1, 1, 2, 2]),
        "one": GroupLasso([0] * SIZE),
        "nuclear": NuclearNorm(),
    }
    for _ in range(60):
        scale, condition = 10.0 ** rng.uniform(-3, 3), 10.0 ** rng.uniform(1, 7)
        B = Symmetric.from_dense(scale * _definite(rng, condition))
        b = B @ rng.normal(size=SIZE)
        weight = 10.0 ** rng.uniform(-4, 0) * np.abs(b).max()
        kink = _kink(penalties[groups], weight, columns)
        minimum = scaled_prox(B, b, kink=kink, start=rng.normal(size=SIZE))
        assert model_residual(B, b, minimum=minimum) <= 1e-10 * np.linalg.norm(b)


def test_scaled_prox_keeps_exact_zeros(rng: np.random.Generator) -> None:
    B, b = Symmetric.from_dense(_definite(rng)), rng.normal(size=SIZE)
    x = scaled_prox(B, b, kink=_kink(L1(), 0.8), start=np.zeros(SIZE)).x
    assert 0 < np.count_nonzero(x) < SIZE


def test_scaled_prox_falls_back_to_coordinate_descent(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nearly collinear columns: guessing supports cycles, the sweeps settle it.
    sweeps = 0

    def counted(B: Symmetric, b: Vector, *, kink: Kink, start: Vector) -> Minimum:
        nonlocal sweeps
        sweeps += 1
        return sweep_coordinates(B, b, kink=kink, start=start)

    monkeypatch.setattr(prox_module, "sweep_coordinates", counted)
    for _ in range(20):
        X = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 40))
        X += 1e-3 * rng.normal(size=X.shape)
        B, b = Symmetric.from_dense(X.T @ X / 200), X.T @ rng.normal(size=200) / 200
        minimum = scaled_prox(B, b, kink=_kink(L1(), 1e-3), start=np.zeros(40))
        assert model_residual(B, b, minimum=minimum) <= 1e-11
    assert sweeps > 0


def test_scaled_prox_on_a_singular_matrix(rng: np.random.Generator) -> None:
    # The first two columns are the same: no support solve can have both.
    X = rng.normal(size=(50, 5))
    X[:, 1] = X[:, 0]
    B, b = Symmetric.from_dense(X.T @ X / 50), X.T @ X[:, 0] / 50
    minimum = scaled_prox(B, b, kink=_kink(L1(), 0.05), start=np.ones(5))
    assert model_residual(B, b, minimum=minimum) <= 1e-9


def test_coordinate_sweep_never_raises_the_objective(rng: np.random.Generator) -> None:
    A, b, x = _definite(rng, 1e3), rng.normal(size=SIZE), rng.normal(size=SIZE)
    B, kink = Symmetric.from_dense(A), _kink(L1(), 0.2)
    values = []
    for _ in range(15):
        values.append(x @ A @ x / 2.0 - b @ x + 0.2 * np.abs(x).sum())
        x = sweep_coordinates(B, b, kink=kink, start=x).x
    assert (np.diff(values) <= 1e-14).all()
    assert values[-1] < values[0]


def test_anderson_finds_a_fixed_point_faster_than_iteration(
    rng: np.random.Generator,
) -> None:
    A, b = 0.999 * _definite(rng, 10.0), rng.normal(size=SIZE)
    calls = 0

    def advance(x: Vector) -> Vector:
        nonlocal calls
        calls += 1
        return A @ x + b

    exact = np.linalg.solve(np.eye(SIZE) - A, b)
    found = find_fixed_point(
        advance, np.zeros(SIZE), stop=lambda x: bool(np.allclose(x, exact, rtol=1e-10))
    )
    assert np.allclose(found, exact, rtol=1e-10)
    assert calls < 200  # plain iteration needs about 1000 per digit over ln 10


def test_anderson_gives_up_with_the_best_point() -> None:
    rotation = np.array([[0.0, -1.0], [1.0, 0.0]])
    found = find_fixed_point(
        lambda x: rotation @ x + 1.0, np.zeros(2), stop=lambda x: False
    )
    assert np.allclose(rotation @ found + 1.0, found, atol=1e-8)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 200])
def test_a_triangle_is_copied_by_panels(size: int, rng: np.random.Generator) -> None:
    matrix = rng.normal(size=(size, size))
    (found,) = Symmetric.from_dense(matrix).lower
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, np.tril(matrix))
