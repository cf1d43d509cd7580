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
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from expunge.core.arrays import Vector
from expunge.exceptions import ExpungeError, InvalidInput, MissingExtra
from expunge.promise.budget import Budget
from expunge.promise.noise import (
    AT_ONCE,
    Noise,
    OpenDpSampler,
    SecureNoise,
    SeededNoise,
    make_noise,
    pool_size,
    random_bytes,
    round_to_grid,
)

BUDGET = Budget(sigma=0.3)
SIGMA, GRID = BUDGET.sigma, BUDGET.grid
RARE = 1e-6  # chance that a correct sampler fails a test of its law
RARE_ERRORS = 5.0  # standard errors that a normal figure exceeds as rarely

MAKERS: list[Callable[[], Noise]] = [
    lambda: SecureNoise(SIGMA, GRID),
    lambda: SecureNoise(SIGMA, GRID, source="opendp"),
    lambda: SeededNoise(SIGMA, GRID, seed=0),
]
SOURCES = ["secure", "opendp", "seeded"]
POOL = pool_size(3)
each_source = pytest.mark.parametrize("make", MAKERS, ids=SOURCES)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a background thread, at most half a minute."""
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "the pool was not filled"
        time.sleep(0.001)


def counting(monkeypatch: pytest.MonkeyPatch) -> SecureNoise:
    """Return noise on a grid of 1 that counts: 0, 1, 2, ..."""
    noise = SecureNoise(1.0, 1.0, source="opendp")
    numbers = itertools.count()

    def sample(size: int) -> Vector:
        return np.array([float(next(numbers)) for _ in range(size)])

    monkeypatch.setattr(noise, "_sample", sample)
    return noise


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


def test_law_of_opendp_is_the_discrete_gaussian() -> None:
    # On a coarse grid it differs from a rounded normal, by 12 % at two sigma.
    secure = SecureNoise(0.5, 0.5, source="opendp")
    rounded = SeededNoise(0.5, 0.5, seed=0)
    weights = np.exp(-0.5 * np.arange(-20, 21) ** 2)
    law = weights[16:25] / weights.sum()
    law[[0, -1]] += 0.5 * (1.0 - law.sum())

    def fit(noise: Noise) -> float:
        steps = np.concatenate([noise.draw(1000) for _ in range(40)]) / 0.5
        seen = [np.count_nonzero(np.clip(steps, -4, 4) == k) for k in range(-4, 5)]
        return float(stats.chisquare(seen, steps.size * law).pvalue)

    assert fit(secure) > RARE > fit(rounded)


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


class TestPool:
    def test_is_filled_ahead_and_each_vector_used_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise = counting(monkeypatch)
        assert noise.ready == 0
        noise.prepare(3)
        wait_until(lambda: noise.ready == POOL)
        for k in range(3 * POOL):
            wait_until(lambda: noise.ready >= POOL // 2)
            expected = [3 * k, 3 * k + 1, 3 * k + 2]
            np.testing.assert_array_equal(noise.draw(3), expected)

    def test_is_emptied_when_another_size_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise = counting(monkeypatch)
        noise.prepare(3)
        wait_until(lambda: noise.ready == POOL)
        vector = noise.draw(2)
        assert vector.shape == (2,)
        assert vector[0] >= 3 * POOL  # none of those that were ready
        assert noise.draw(3)[0] > vector[1]

    def test_is_never_behind_a_caller_who_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise, sizes = SecureNoise(SIGMA, GRID), []

        def sample(size: int) -> Vector:
            sizes.append(size)
            return np.zeros(size)

        monkeypatch.setattr(noise, "_sample", sample)
        noise.draw(784)
        wait_until(lambda: noise.ready >= POOL - 1)
        assert sizes[0] == 784  # one alone, for the one who waits
        assert max(sizes) > 784  # then several together
        assert max(sizes) <= AT_ONCE

    def test_of_opendp_is_filled_in_pieces_between_forks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sampler, pieces = OpenDpSampler(1.0), itertools.count()
        monkeypatch.setattr(
            sampler, "_integers", lambda zeros: [next(pieces)] * len(zeros)
        )
        vector = sampler(2500)
        assert np.unique(vector, return_counts=True)[1].tolist() == [1024, 1024, 452]

    def test_holds_a_bounded_number_of_vectors(self) -> None:
        assert [pool_size(d) for d in (1, 784, 10**5, 10**7)] == [32, 32, 2, 2]
        assert pool_size(2**14) == 16

    def test_threads_never_share_a_vector(self) -> None:
        noise = SecureNoise(SIGMA, GRID)

        def fifty(_: int) -> list[bytes]:
            return [noise.draw(16).tobytes() for _ in range(50)]

        with ThreadPoolExecutor(8) as threads:
            vectors = list(itertools.chain.from_iterable(threads.map(fifty, range(8))))
        assert len(set(vectors)) == len(vectors) == 400

    def test_threads_get_the_sizes_they_ask_for(self) -> None:
        noise = SecureNoise(SIGMA, GRID)
        sizes = list(range(1, 9)) * 10
        with ThreadPoolExecutor(8) as threads:
            assert [len(v) for v in threads.map(noise.draw, sizes)] == sizes

    def test_sampler_stays_out_of_threads_that_may_fork(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise, seen = SecureNoise(SIGMA, GRID), set()

        def spy(size: int) -> Vector:
            seen.add(threading.get_ident())
            return np.zeros(size)

        monkeypatch.setattr(noise, "_sample", spy)
        noise.draw(3)
        assert seen
        assert threading.get_ident() not in seen

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
        wait_until(lambda: owner[0].ready == POOL)
        remains = weakref.ref(owner.pop())
        wait_until(lambda: gc.collect() >= 0 and remains() is None)

    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
    def test_is_never_duplicated(self, duplicate: Callable[[Any], Any]) -> None:
        noise = SecureNoise(SIGMA, GRID)
        with pytest.raises(TypeError, match="used twice"):
            duplicate(noise)


FORK = """
import os
import time
from expunge.promise.noise import SecureNoise, pool_size

POOL = pool_size(16)
noise = SecureNoise(1.0, 2.0**-27)

def pooled(size):
    noise.prepare(size)
    while noise.ready < POOL:
        time.sleep(0.001)

def fork(size):
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert noise.ready == 0
            vectors = [noise.draw(size).tobytes() for _ in range(POOL)]
            os.write(sender, b"".join(vectors))
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert len(text) == POOL * size * 8, "the child drew no noise"
    return {text[i : i + size * 8] for i in range(0, len(text), size * 8)}

pooled(16)
both = [fork(16), fork(16), {noise.draw(16).tobytes() for _ in range(2 * POOL)}]
assert len(set.union(*both)) == 4 * POOL

for _ in range(20):  # in the middle of a draw, too
    noise.draw(2000)
    assert len(fork(4)) == POOL

inside = False

def slow(zeros):
    global inside
    inside = True
    time.sleep(0.05)
    inside = False
    return zeros

noise = SecureNoise(1.0, 2.0**-27, source="opendp")
noise._sample._integers = slow
noise.prepare(8)
while not inside:
    time.sleep(0.001)
child = os.fork()  # waits until the sampler is left
if child == 0:
    os._exit(int(inside))
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_forked_child_draws_its_own() -> None:
    run(FORK)


def test_import_of_the_package_leaves_opendp_alone() -> None:
    run("import sys, expunge.promise.noise; assert 'opendp' not in sys.modules")


def test_missing_opendp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opendp", *(m for m in sys.modules if m.startswith("opendp."))):
        monkeypatch.setitem(sys.modules, name, None)
    budget = replace(BUDGET, noise="opendp")
    with pytest.raises(MissingExtra, match=r'install "expunge\[opendp\]') as caught:
        make_noise(budget, None)
    assert isinstance(caught.value, ExpungeError)
    assert isinstance(caught.value, ImportError)
    assert make_noise(BUDGET, None).source == "secure"
    assert make_noise(budget, 0).source == "seeded"


def test_release_noise_is_secure_unless_seeded() -> None:
    secure = make_noise(BUDGET, None)
    seeded = make_noise(BUDGET, 7)
    assert (secure.source, seeded.source) == ("secure", "seeded")
    assert make_noise(replace(BUDGET, noise="opendp"), None).source == "opendp"
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
