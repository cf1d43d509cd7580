# SPDX-License-Identifier: Apache-2.0
"""Sums that are asked for together take one pass, and have the bits of their own."""

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import numpy as np
import pytest

from expunge import (
    L2,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    Objective,
    OneVsRest,
    Rows,
    summarise,
)
from expunge.core import sums
from expunge.core.arrays import Vector
from expunge.core.losses import Loss
from expunge.core.rows import RowSource
from expunge.core.solver import minimise
from expunge.core.sums import overview

Value = TypeVar("Value")
LOSSES = (Logistic(), HalfSquared(), Huber(), Multinomial(3), OneVsRest(3, Logistic()))


class Counting(RowSource):
    """Rows in memory that count the passes over them."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.passes = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_columns(self) -> int:
        return self.rows.n_columns

    @property
    def total_weight(self) -> float:
        return self.rows.total_weight

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        self.passes += 1
        return self.rows.map_blocks(term)

    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        return type(self)(self.rows.recode(code))


def _problem(loss: Loss) -> tuple[Objective, Rows]:
    rng = np.random.default_rng(5)
    n = 5 * 2048 + 77
    objective = Objective(loss, L2(), 0.01, intercept=True)
    X, score = rng.normal(size=(n, 6)), rng.normal(size=n)
    if loss.outputs > 1:
        y = rng.integers(0, 3, size=n).astype(float)
    else:
        y = np.sign(score) if isinstance(loss, Logistic) else score
    return objective, objective.rows(X, y, rng.random(n))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_summary_is_one_pass_with_the_bits_of_single_sums(loss: Loss) -> None:
    objective, rows = _problem(loss)
    theta = 0.1 * np.random.default_rng(6).normal(size=rows.n_columns * loss.outputs)
    counted = Counting(rows)
    found = summarise(objective, counted, theta=theta).sums
    assert counted.passes == 1
    seen = overview(loss, rows, theta=theta, intercept_columns=loss.independent)
    slope, steepness, square, cube, largest = sums.row_sizes(loss, rows, theta=theta)
    hessian = sums.loss_hessian(loss, rows, theta=theta)
    assert found.moment is not None and found.hessian is not None
    pairs: list[tuple[Any, Any]] = [
        (found.gradient, seen.gradient),
        (found.curvature, seen.curvature),
        (found.hessian.dense(), hessian.dense()),
        (found.moment.dense()[np.triu_indices(7)], _moment(rows)),
        (found.sizes.row_norm, largest),
        (found.sizes.slope, slope),
        (found.sizes.steepness, steepness),
        (found.sizes.square_norm, square),
        (found.sizes.moment, cube),
        (found.sizes.n_entries, sums.most_entries(rows)),
    ]
    if loss.independent:
        assert (
            seen.intercept_columns is not None and found.intercept_columns is not None
        )
        pairs.append((found.intercept_columns, seen.intercept_columns))
    if loss.curvature_jump > 0.0:
        assert found.kinks is not None
        masses = sums.kink_masses(loss, rows, theta=theta)
        pairs.append((found.kinks, masses))
    for one, other in pairs:
        assert np.array_equal(one, other)


def _moment(rows: Rows) -> Any:
    return sums.norm_moment(rows)[np.triu_indices(7)]


def test_many_blocks_of_outputs_take_more_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss = OneVsRest(3, Logistic())
    objective, rows = _problem(loss)
    theta = np.full(rows.n_columns * 3, 0.1)
    whole = summarise(objective, rows, theta=theta).sums.loss_hessian.dense()
    monkeypatch.setattr(sums, "SUMMED_AT_ONCE", rows.n_columns**2)
    counted = Counting(rows)
    split = summarise(objective, counted, theta=theta).sums.loss_hessian.dense()
    assert counted.passes == 3
    assert np.array_equal(split, whole)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_fit_takes_its_first_gradient_and_hessian_in_one_pass(loss: Loss) -> None:
    objective, rows = _problem(loss)
    counted = Counting(rows)
    found = minimise(objective, counted)
    # Each step is a gradient, and each further Hessian a pass.
    assert counted.passes == found.n_steps + found.n_hessians
    assert np.array_equal(found.theta, minimise(objective, rows).theta)
