# SPDX-License-Identifier: Apache-2.0
"""Discrete Gaussians from tables: the tables, the search and the law of what is drawn.

What is random cannot be seeded here, so laws are tested with thresholds that a correct
sampler misses about once in a million runs.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from itertools import pairwise
from math import nextafter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features
from scipy import stats

from expunge.core.arrays import Vector
from expunge.exceptions import InvalidInput
from expunge.promise.budget import LARGEST_MODEL, Budget, mu_of, promised_mu
from expunge.promise.sampler import (
    BASE,
    BITS,
    FIRST_BITS,
    LEVELS,
    POWERS,
    VARIANCES,
    VARIATION,
    WIDEST,
    TableSampler,
    make_thresholds,
)

SCALES = [2.0**27, 1.6 * 2.0**27, nextafter(WIDEST, 0.0)]
SCALE = SCALES[1]
RARE = 1e-6
RARE_ERRORS = 5.0
REST = BITS - FIRST_BITS
N_DRAWS = 60_000

each_scale = pytest.mark.parametrize("scale", SCALES)


@pytest.fixture
def digits() -> Iterator[None]:
    """Compute with 200 digits."""
    with localcontext() as context:
        context.prec = 200
        yield


def mass(y: int, variance: Decimal) -> Decimal:
    """Return exp(-y^2 / (2 variance)), each on its own."""
    value: Decimal = (Decimal(-y * y) / (2 * variance)).exp()
    return value


def term_variance(scale: float) -> Decimal:
    """Return the variance of one term of the sum."""
    variance: Decimal = Decimal(scale) ** 2 / VARIANCES
    return variance


def draw_word(word: int, further: int, *, scale: float = SCALE) -> int:
    """Return the term that these random bits draw, by the sampler itself."""
    words = iter(
        [word.to_bytes(FIRST_BITS // 8, "little") * LEVELS]
        + [further.to_bytes(REST // 8, "big")] * LEVELS
    )
    [x] = TableSampler(scale, lambda n: next(words))(1)
    term, left = divmod(int(x), int(POWERS.sum()))
    assert left == 0
    return term


def draw_exactly(word: int, further: int) -> int:
    """Return the same from the whole table, by integers alone."""
    thresholds = make_thresholds(SCALE)
    return bisect_right(thresholds, word << REST | further) - len(thresholds) // 2


class TestTables:
    @each_scale
    def test_agree_with_masses_computed_one_by_one(
        self, scale: float, digits: None
    ) -> None:
        thresholds, variance = make_thresholds(scale), term_variance(scale)
        half = len(thresholds) // 2
        masses = [mass(y, variance) for y in range(half + 1)]
        total = 2 * sum(masses) - 1
        below = Decimal(0)
        for threshold, y in zip(thresholds, range(-half, half), strict=True):
            below += masses[abs(y)]
            assert abs(threshold - below / total * 2**BITS) <= 2

    @each_scale
    def test_are_as_close_to_the_law_as_the_budget_pays_for(
        self, scale: float, digits: None
    ) -> None:
        thresholds, variance = make_thresholds(scale), term_variance(scale)
        half = len(thresholds) // 2
        # Far beyond the table's end nothing is left even with 200 digits.
        total = 1 + 2 * sum(mass(y, variance) for y in range(1, 2 * half))
        ends = [0, *thresholds, 2**BITS]
        off, covered = Decimal(0), Decimal(0)
        for y, (low, high) in enumerate(pairwise(ends), -half):
            exact = mass(y, variance) / total
            covered += exact
            off += abs(Decimal(high - low) / 2**BITS - exact)
        variation = (off + 1 - covered) / 2
        assert 0 < LEVELS * variation < Decimal(VARIATION)

    def test_known_answers(self) -> None:
        # P(y < k) at scale 2^27 times 2^64, by another library with 120 digits.
        thresholds = make_thresholds(2.0**27)
        half = len(thresholds) // 2
        found = [thresholds[half + k - 1] >> 192 for k in (0, 1, 200, -1000)]
        assert found == [
            9194611169146370694,
            9252132904563180921,
            17349980348278725341,
            48625,
        ]

    @pytest.mark.parametrize("scale", [1.0, 2.0**27 - 1.0, 2.0**28, float("nan")])
    def test_refuse_a_deviation_that_the_proof_does_not_cover(
        self, scale: float
    ) -> None:
        with pytest.raises(InvalidInput, match="scale="):
            TableSampler(scale, os.urandom)


class TestSum:
    """Of two terms at the smallest scale, where the sum is roughest."""

    @staticmethod
    def roughness(x: int, base: int) -> Decimal:
        """Return by which factor the mass at x and at 7 differ from a Gaussian's."""
        variance = term_variance(SCALES[0])

        def ratio(x: int) -> Decimal:
            near = x // base
            terms = (
                mass(u, variance) * mass(x - base * u, variance)
                for u in range(near - 200, near + 201)
            )
            return sum(terms, Decimal(0)) / mass(x, variance * (1 + base**2))

        return abs(ratio(x) / ratio(7) - 1)

    @pytest.mark.parametrize("x", [0, 1, 15, 16, 17, 1000, -4095, 100_001])
    def test_is_a_discrete_gaussian(self, x: int, digits: None) -> None:
        # Five terms are added in four sums, none rougher than this one.
        assert self.roughness(x, BASE) < Decimal("2e-136") / (LEVELS - 1)

    def test_of_a_larger_base_would_be_rough(self, digits: None) -> None:
        assert self.roughness(2 * BASE // 2 + 7, 2 * BASE) > Decimal("1e-36")


class TestSearch:
    @given(st.integers(0, 2**FIRST_BITS - 1), st.integers(0, 2**REST - 1))
    def test_any_word(self, word: int, further: int) -> None:
        assert draw_word(word, further) == draw_exactly(word, further)

    @given(st.data())
    def test_word_that_ties_with_a_threshold(self, data: st.DataObject) -> None:
        thresholds = make_thresholds(SCALE)
        place = data.draw(st.integers(0, len(thresholds) - 1))
        move = data.draw(st.sampled_from([-1, 0, 1]))
        bits = min(max(thresholds[place] + move, 0), 2**BITS - 1)
        word, further = bits >> REST, bits % 2**REST
        assert draw_word(word, further) == draw_exactly(word, further)

    @pytest.mark.parametrize("word", [0, 1, 2**FIRST_BITS - 2, 2**FIRST_BITS - 1])
    @pytest.mark.parametrize("further", [0, 2**REST - 1])
    def test_ends_of_the_table(self, word: int, further: int) -> None:
        assert draw_word(word, further) == draw_exactly(word, further)

    def test_further_bits_are_drawn_for_ties_alone(self) -> None:
        asked: list[int] = []

        def record(n: int) -> bytes:
            asked.append(n)
            return os.urandom(n)

        sampler = TableSampler(SCALE, record)
        sampler(200_000)
        assert asked[0] == 200_000 * LEVELS * FIRST_BITS // 8
        # 1e6 words, of which about one in 600,000 ties.
        assert set(asked[1:]) <= {REST // 8}
        assert len(asked) < 30


@pytest.fixture(scope="module")
def drawn() -> Vector:
    """Return many draws from tables."""
    return TableSampler(SCALE, os.urandom)(10 * N_DRAWS)


@pytest.fixture(scope="module")
def reference() -> Vector:
    """Return draws of OpenDP's discrete Gaussian, which is exact."""
    enable_features("contrib")  # where OpenDP keeps it, its proof included
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    draw: Callable[[list[int]], list[int]] = make_gaussian(*space, scale=SCALE)
    return np.array(draw([0] * N_DRAWS), dtype=np.float64)


class TestLaw:
    def test_is_that_of_opendp(self, drawn: Vector, reference: Vector) -> None:
        assert stats.ks_2samp(drawn, reference).pvalue > RARE

    @pytest.mark.parametrize("power", range(1, 9))
    def test_moments_are_a_gaussian_s(self, drawn: Vector, power: int) -> None:
        z = (drawn / SCALE) ** power
        expected = stats.norm.moment(power)
        assert abs(z.mean() - expected) < RARE_ERRORS * z.std() / np.sqrt(z.size)

    @pytest.mark.parametrize("modulus", [2, 32, 1024])
    def test_residues_are_uniform(
        self, drawn: Vector, reference: Vector, modulus: int
    ) -> None:
        table, other = (
            np.bincount((draws % modulus).astype(int), minlength=modulus)
            for draws in (drawn, reference)
        )
        assert stats.chisquare(table).pvalue > RARE
        assert stats.chi2_contingency([table, other]).pvalue > RARE

    def test_sign_does_not_hang_on_low_bits(self, drawn: Vector) -> None:
        drawn = drawn[drawn != 0.0]
        low = (np.abs(drawn) % 64).astype(int)
        table = [np.bincount(low[drawn * sign > 0], minlength=64) for sign in (1, -1)]
        assert stats.chi2_contingency(table).pvalue > RARE

    @pytest.mark.parametrize("lag", [1, 2, LEVELS, 784])
    def test_draws_are_independent(self, drawn: Vector, lag: int) -> None:
        one, other = drawn[lag:] / SCALE, drawn[:-lag] / SCALE
        for f in (lambda z: z, lambda z: z * z - 1.0, np.sign):
            product = f(one) * f(other)
            limit = RARE_ERRORS * product.std() / np.sqrt(product.size)
            assert abs(product.mean()) < limit

    def test_low_bits_are_independent_of_the_next(self, drawn: Vector) -> None:
        low = (drawn % 32).astype(int)
        table = np.bincount(32 * low[1:] + low[:-1], minlength=1024).reshape(32, 32)
        assert stats.chi2_contingency(table).pvalue > RARE


class TestCost:
    def test_comes_off_delta(self) -> None:
        # Epsilon is so large that the tables' error would show.
        variation = LARGEST_MODEL * VARIATION
        epsilon = 80.0
        cost = (1.0 + np.exp(epsilon)) * variation
        delta = 2.0 * cost
        assert promised_mu(epsilon, delta, releases=1) <= mu_of(
            epsilon, 1.0001 * delta / 2.0
        )
        assert promised_mu(epsilon, delta, releases=1) >= mu_of(
            epsilon, 0.9999 * delta / 2.0
        )

    def test_counts_every_release(self) -> None:
        epsilon, delta = 60.0, 1e-30
        assert promised_mu(epsilon, delta, releases=1) > 0.0
        assert promised_mu(epsilon, delta, releases=10**6) == 0.0

    def test_is_paid_where_floats_cannot_show_it(self) -> None:
        assert promised_mu(1.0, 1e-5, releases=1) <= mu_of(1.0, nextafter(1e-5, 0.0))

    @pytest.mark.parametrize("epsilon", [150.0, 1e4])
    def test_promise_that_tables_cannot_bear_is_refused(self, epsilon: float) -> None:
        with pytest.raises(InvalidInput, match="so large an epsilon"):
            Budget(epsilon=epsilon, delta=1e-5)
