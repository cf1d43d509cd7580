# SPDX-License-Identifier: Apache-2.0
"""Noise: its law, its grid, and that no vector is ever used twice.

The secure sampler cannot be seeded, so what is random about it is tested with
thresholds that a correct sampler misses about once in a million runs.
"""

import copy
import gc
import itertools
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from expunge.core.arrays import Vector
from expunge.exceptions import InvalidInput
from expunge.promise.budget import Budget
from expunge.promise.noise import (
    Noise,
    SecureNoise,
    SeededNoise,
    make_noise,
    random_bytes,
    round_to_grid,
)

BUDGET = Budget(sigma=0.3)
SIGMA, GRID = BUDGET.deviation, BUDGET.grid
RARE = 1e-6  # chance that a correct sampler fails a test of its law
RARE_ERRORS = 5.0  # standard errors that a normal figure exceeds as rarely

MAKERS: list[Callable[[], Noise]] = [
    lambda: SecureNoise(SIGMA, GRID),
    lambda: SeededNoise(SIGMA, GRID, seed=0),
]
SOURCES = ["secure", "seeded"]
each_source = pytest.mark.parametrize("make", MAKERS, ids=SOURCES)


class Counting:
    """A sampler whose numbers are 0, 1, 2 and so on."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> Vector:
        self.sizes.append(size)
        end = sum(self.sizes)
        return np.arange(end - size, end, dtype=np.float64)


def counting(monkeypatch: pytest.MonkeyPatch) -> tuple[SecureNoise, list[int]]:
    """Return noise that counts its vectors, and the sizes it has drawn."""
    noise, sample = SecureNoise(1.0, 2.0**-27), Counting()
    monkeypatch.setattr(noise, "_sample", sample)
    monkeypatch.setattr(noise, "_grid", 1.0)
    return noise, sample.sizes


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a background thread, at most half a minute."""
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "nothing was drawn ahead"
        time.sleep(0.001)


def run(script: str) -> None:
    """Run a script in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=MAKERS, ids=SOURCES)
def drawn(request: pytest.FixtureRequest) -> Vector:
    """Return forty draws of a thousand and some numbers, one draw a row."""
    noise: Noise = request.param()
    return np.array([noise.draw(1100) for _ in range(40)])


def test_law_is_normal(drawn: Vector) -> None:
    # The grid is 1e-8 of sigma: far below what so many numbers can see.
    assert stats.kstest(drawn.ravel() / SIGMA, "norm").pvalue > RARE


def test_variance_is_that_of_the_budget(drawn: Vector) -> None:
    squares = (drawn / SIGMA) ** 2
    error = np.sqrt(2.0 / squares.size)
    assert abs(squares.mean() - 1.0) < RARE_ERRORS * error


def test_coordinates_and_draws_are_uncorrelated(drawn: Vector) -> None:
    for one, next_one in ((drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1])):
        product = (one * next_one / SIGMA**2).ravel()
        assert abs(product.mean()) < RARE_ERRORS / np.sqrt(product.size)


def test_noise_lies_on_its_grid(drawn: Vector) -> None:
    steps = drawn / GRID
    assert (steps == np.rint(steps)).all()
    assert (steps % 2 == 1).any()  # and on no coarser one


@each_source
def test_draws_differ_and_belong_to_the_caller(make: Callable[[], Noise]) -> None:
    noise = make()
    first, second = noise.draw(20), noise.draw(20)
    assert (first != second).any()
    assert first.dtype == np.float64
    assert first.shape == (20,)
    kept = second.copy()
    first[:] = 0.0
    np.testing.assert_array_equal(second, kept)


@each_source
def test_repr_shows_no_figure(make: Callable[[], Noise]) -> None:
    noise = make()
    noise.draw(3)
    assert str(SIGMA) not in repr(noise)


@each_source
def test_noise_for_no_parameters_is_refused(make: Callable[[], Noise]) -> None:
    with pytest.raises(InvalidInput, match="n_parameters=0"):
        make().draw(0)


@pytest.mark.parametrize("grid", [0.0, -0.5, 0.3, inf, nan])
def test_grid_that_is_no_power_of_two_is_refused(grid: float) -> None:
    with pytest.raises(InvalidInput, match=r"grid=.* power of two"):
        SeededNoise(1.0, grid, seed=0)
    with pytest.raises(InvalidInput, match=r"grid=.* power of two"):
        round_to_grid(np.zeros(1), grid)


@pytest.mark.parametrize("sigma", [0.1, 0.0, -1.0, 2.0**41, inf, nan])
def test_sigma_that_does_not_fit_its_grid_is_refused(sigma: float) -> None:
    with pytest.raises(InvalidInput, match="sigma="):
        SecureNoise(sigma, 1.0)


class TestDrawingAhead:
    def test_keeps_few_vectors_and_uses_each_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One at first, then twice as many at once, up to eight."""
        noise, sizes = counting(monkeypatch)
        noise.prepare(3)
        used = [noise.draw(3) for _ in range(40)]
        wait_until(lambda: len(sizes) == 8)
        assert sizes == [3, 6, 12, 24, 24, 24, 24, 24]
        np.testing.assert_array_equal(np.concatenate(used), np.arange(120.0))
        assert len(noise._ahead) == 7

    def test_draws_long_vectors_one_by_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise, sizes = counting(monkeypatch)
        for _ in range(3):
            noise.draw(2**15)
        wait_until(lambda: len(sizes) == 4)
        assert sizes == [2**15] * 4

    def test_no_vector_is_ready_before_its_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or the wait for one would tell what it took to draw it."""
        noise, sample = SecureNoise(SIGMA, GRID), []

        def draw(size: int) -> Vector:
            sample.append(size)
            return np.arange(float(size))

        monkeypatch.setattr(noise, "_sample", draw)
        batch = noise._start(2, number=4)
        vectors = [batch.vectors.get() for _ in range(4)]
        assert sample == [8]
        assert len({id(v) for v in vectors}) == 4
        assert all(isinstance(v, np.ndarray) and v.base is None for v in vectors)

    def test_takes_the_sampler_s_time_from_the_release(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise, begun = SecureNoise(SIGMA, GRID), []

        def slow(size: int) -> Vector:
            begun.append(size)
            time.sleep(0.5)
            return np.zeros(size)

        monkeypatch.setattr(noise, "_sample", slow)
        noise.prepare(3)
        time.sleep(0.7)
        start = time.perf_counter()
        noise.draw(3)
        assert time.perf_counter() - start < 0.4  # neither this vector's nor the next's
        wait_until(lambda: begun == [3, 6])

    def test_starts_again_when_another_size_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise, sizes = counting(monkeypatch)
        noise.prepare(3)
        wait_until(lambda: sizes == [3])
        np.testing.assert_array_equal(noise.draw(2), [3, 4])
        wait_until(lambda: sizes == [3, 2, 4])
        np.testing.assert_array_equal(noise.draw(3), [9, 10, 11])

    def test_threads_never_share_a_vector(self) -> None:
        noise = SecureNoise(SIGMA, GRID)

        def fifty(_: int) -> list[bytes]:
            return [noise.draw(16).tobytes() for _ in range(50)]

        with ThreadPoolExecutor(8) as threads:
            vectors = list(itertools.chain.from_iterable(threads.map(fifty, range(8))))
        assert len(set(vectors)) == len(vectors) == 400
        assert len(noise._ahead) < 100

    def test_threads_get_the_sizes_they_ask_for(self) -> None:
        noise = SecureNoise(SIGMA, GRID)
        sizes = list(range(1, 9)) * 10
        with ThreadPoolExecutor(8) as threads:
            assert [len(v) for v in threads.map(noise.draw, sizes)] == sizes

    def test_fails_in_the_caller_and_recovers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise = SecureNoise(SIGMA, GRID)
        with monkeypatch.context() as broken:
            broken.setattr(noise, "_sample", lambda size: 1 // 0)
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    noise.draw(3)
        assert len(noise.draw(3)) == 3

    def test_rests_and_goes_with_its_owner(self) -> None:
        owner = [SecureNoise(SIGMA, GRID)]
        owner[0].prepare(3)
        remains = weakref.ref(owner.pop())
        wait_until(lambda: gc.collect() >= 0 and remains() is None)

    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
    def test_is_never_duplicated(self, duplicate: Callable[[Any], Any]) -> None:
        noise = SecureNoise(SIGMA, GRID)
        with pytest.raises(TypeError, match="used twice"):
            duplicate(noise)


FORK = """
import os
import threading
import time
from expunge.promise.noise import SecureNoise

noise = SecureNoise(1.0, 2.0**-27)

def fork(size, again=False):
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if again:  # a child of the child, which has drawn one ahead by now
                os.write(sender, b"".join(fork(size)))
            vectors = [noise.draw(size).tobytes() for _ in range(3)]
            os.write(sender, b"".join(vectors))
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert len(text) == (6 if again else 3) * size * 8, "the child drew no noise"
    return [text[i : i + size * 8] for i in range(0, len(text), size * 8)]

noise.prepare(16)
time.sleep(0.2)  # so that a vector is ready, which the children inherit
drawn = [*fork(16), *fork(16, again=True), *(noise.draw(16).tobytes() for _ in "abc")]
assert len(set(drawn)) == len(drawn) == 12

for _ in range(20):  # in the middle of a draw, too
    noise.draw(2000)
    fork(4)

stop = threading.Event()

def go_on():
    while not stop.is_set():
        drawn.append(noise.draw(100).tobytes())

threads = [threading.Thread(target=go_on) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20):  # while others draw
    drawn += fork(100)
stop.set()
for thread in threads:
    thread.join()
assert len(set(drawn)) == len(drawn)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_forked_child_draws_its_own() -> None:
    run(FORK)


def test_release_noise_is_secure_unless_seeded() -> None:
    secure = make_noise(BUDGET, None)
    seeded = make_noise(BUDGET, 7)
    assert (secure.source, seeded.source) == ("secure", "seeded")
    expected = SeededNoise(SIGMA, GRID, 7).draw(5)
    np.testing.assert_array_equal(seeded.draw(5), expected)


def test_seeded_noise_repeats_itself() -> None:
    one, same, other = (SeededNoise(SIGMA, GRID, seed) for seed in (1, 1, 2))
    for _ in range(3):
        vector = one.draw(50)
        np.testing.assert_array_equal(vector, same.draw(50))
        assert (vector != other.draw(50)).any()


@pytest.mark.parametrize("seed", [-1, 0.5, "seed"])
def test_wrong_seed_is_refused(seed: Any) -> None:
    with pytest.raises(InvalidInput, match="random_state="):
        make_noise(BUDGET, seed)


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=20))
def test_rounding_moves_a_model_by_half_a_step_at_most(values: list[float]) -> None:
    theta = np.array(values)
    rounded = round_to_grid(theta, GRID)
    for before, after in zip(theta, rounded, strict=True):
        assert Fraction(after) % Fraction(GRID) == 0
        assert abs(Fraction(after) - Fraction(before)) <= Fraction(GRID) / 2
    np.testing.assert_array_equal(round_to_grid(rounded, GRID), rounded)
    assert not np.signbit(rounded[rounded == 0.0]).any()


def test_release_is_exact_at_the_largest_parameter() -> None:
    largest = 2.0**52 * GRID
    rounded = round_to_grid(np.array([largest, -largest]), GRID)
    for noise in SecureNoise(SIGMA, GRID).draw(50):
        for value in rounded:
            assert Fraction(value + noise) == Fraction(value) + Fraction(noise)


@pytest.mark.parametrize("value", [1e30, -1e30])
def test_parameter_too_large_for_the_grid_is_put_at_its_end(value: float) -> None:
    largest = 2.0**52 * GRID
    rounded = round_to_grid(np.array([0.123456, value]), GRID)
    assert rounded[1] == np.copysign(largest, value)
    assert abs(rounded[0] - 0.123456) <= 0.5 * GRID


@pytest.mark.parametrize("value", [inf, nan])
def test_model_that_is_not_finite_is_refused_unseen(value: float) -> None:
    with pytest.raises(InvalidInput, match="no model to release") as why:
        round_to_grid(np.array([0.123456, value]), GRID)
    assert "0.123456" not in str(why.value)


@pytest.mark.parametrize("n_bytes", [8, 12, 32])
def test_random_bytes_are_as_many_as_asked_for_and_fresh(n_bytes: int) -> None:
    found = {random_bytes(n_bytes) for _ in range(100)}
    assert len(found) == 100
    assert {len(fresh) for fresh in found} == {n_bytes}
