# SPDX-License-Identifier: Apache-2.0
"""Sums over rows as a vector space: each operation against the rows that it means."""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

from expunge import Rows
from expunge.core.feature_map import FeatureMap
from expunge.exceptions import InvalidInput
from expunge.removal.sums import Sums, sum_rows

from .instances import LOSSES, labelled

NAMES = (
    "weight",
    "n_rows",
    "gradient",
    "hessian",
    "moment",
    "kinks",
    "curvature",
    "intercept_columns",
)


def problem(name: str) -> tuple[Any, Rows, Any]:
    """Return a loss, weighted rows, and a point."""
    rng = np.random.default_rng(1)
    loss = LOSSES[name][0]
    X, y = labelled(name, rng)
    theta = rng.normal(size=X.shape[1] * loss.outputs)
    return loss, Rows(X, y, rng.uniform(0.5, 2.0, len(X))), theta


def whole(loss: Any, rows: Rows, theta: Any) -> Sums:
    """Return all sums by one pass."""
    return sum_rows(loss, rows, theta=theta, intercept_columns=loss.independent)


def require_near(ours: Sums, theirs: Sums) -> None:
    """See that two sums agree up to the rounding that they state."""
    size, u = ours.sizes, 2.0**-53
    count = 2.0 * u * (ours.roundings + 2 * ours.theta.size + 16.0)
    allowed = {
        "weight": size.weight,
        "n_rows": 0.0,
        "gradient": size.slope,
        "hessian": size.hessian,
        "moment": size.moment,
        "kinks": size.square_norm,
        "curvature": size.weight,
        "intercept_columns": size.weight * size.row_norm,
    }
    for name in NAMES:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None), name
        if one is None:
            continue
        pair = [
            each.dense() if hasattr(each, "dense") else each for each in (one, other)
        ]
        off = float(np.abs(np.asarray(pair[0]) - np.asarray(pair[1])).max())
        assert off <= 4.0 * count * allowed[name], (name, off)
        # A bound that holds by a mile would hide a wrong term.
        if name == "gradient":
            assert count * allowed[name] < 1e-6 * np.abs(pair[1]).max()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n_gone", [1, 5, 60])
def test_a_difference_is_the_sum_over_the_rest(name: str, n_gone: int) -> None:
    loss, rows, theta = problem(name)
    gone = np.arange(n_gone) * 2
    total = whole(loss, rows, theta)
    rest = total - total.over(rows.take(gone), leaving=True)
    require_near(rest, whole(loss, rows.without(gone), theta))
    # What left has left its rounding behind.
    assert rest.sizes == total.sizes
    assert rest.roundings > total.roundings and rest.subtracted


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n_new", [1, 5, 60])
def test_a_sum_is_that_over_both(name: str, n_new: int) -> None:
    loss, rows, theta = problem(name)
    new = np.arange(n_new) * 2
    first = whole(loss, rows.without(new), theta)
    both = first + first.over(rows.take(new))
    fresh = whole(loss, rows, theta)
    require_near(both, fresh)
    sizes = "row_norm slope steepness square_norm moment weight hessian gram"
    for one in sizes.split():
        ours, theirs = getattr(both.sizes, one), getattr(fresh.sizes, one)
        assert ours == pytest.approx(theirs, rel=1e-9), one
    # No fit to the same rows may count more roundings than we do.
    assert both.roundings >= fresh.roundings


@pytest.mark.parametrize("name", LOSSES)
def test_all_folds_but_one_are_the_total_less_that_one(name: str) -> None:
    loss, rows, theta = problem(name)
    folds = [rows.take(np.arange(k, len(rows), 5)) for k in range(5)]
    parts = [whole(loss, fold, theta) for fold in folds]
    others = reduce(add, parts[:2] + parts[3:])
    require_near(reduce(add, parts) - parts[2], others)


@pytest.mark.parametrize("name", ["logistic", "multinomial", "huber"])
def test_a_factor_multiplies_every_weight(name: str) -> None:
    loss, rows, theta = problem(name)
    half = np.arange(len(rows)) % 2 == 0
    own, other = rows.take(half), rows.take(~half)
    weighed = 3.0 * whole(loss, own, theta) + 0.25 * whole(loss, other, theta)
    weight = np.concatenate([3.0 * own.weight, 0.25 * other.weight])
    joined = Rows(
        np.vstack([own.dense(), other.dense()]),
        np.concatenate([own.y, other.y]),
        weight,
    )
    require_near(weighed, whole(loss, joined, theta))


def test_a_negative_factor_keeps_sizes_positive() -> None:
    loss, rows, theta = problem("logistic")
    sizes = (-2.0 * whole(loss, rows, theta)).sizes
    assert min(sizes.slope, sizes.square_norm, sizes.weight, sizes.moment) > 0.0


def test_nobody_is_zero() -> None:
    loss, rows, theta = problem("huber")
    total = whole(loss, rows, theta)
    empty = whole(loss, rows.take(slice(0, 0)), theta)
    assert empty.weight == 0.0 and not empty.gradient.any()
    require_near(total + empty, total)
    require_near(total - empty, total)


@pytest.mark.parametrize("name", ["logistic", "half_squared", "one_vs_rest"])
def test_mapped_sums_are_those_over_mapped_rows(name: str) -> None:
    loss, _, _ = problem(name)
    rng = np.random.default_rng(3)
    ratio, shift = np.array([2.0, 0.5, 3.0]), np.array([0.3, -1.0, 0.2])
    features = FeatureMap(
        rows=np.array([0, 1, 2, 3]),
        columns=np.array([0, 1, 2, 3]),
        values=np.append(ratio, 1.0),
        shift=shift,
        size=4,
        intercept=True,
        main=np.ones(4, dtype=bool),
        share=np.ones(4),
        outputs=loss.outputs,
    )
    e = np.hstack([rng.normal(size=(50, 3)), np.ones((50, 1))])
    x = np.hstack([e[:, :3] * ratio + shift, np.ones((50, 1))])
    y = LOSSES[name][1](rng, rng.normal(size=(50, loss.outputs)))
    theta = rng.normal(size=4 * loss.outputs)
    anchor = features.lift(theta)
    weight = np.ones(50)
    mapped = sum_rows(loss, Rows(e, y, weight), theta=anchor).mapped(features)
    direct = sum_rows(loss, Rows(x, y, weight), theta=mapped.theta)
    np.testing.assert_allclose(mapped.theta, theta, atol=1e-12)
    np.testing.assert_allclose(mapped.gradient, direct.gradient, atol=1e-10)
    ours, theirs = mapped.loss_hessian.dense(), direct.loss_hessian.dense()
    np.testing.assert_allclose(ours, theirs, atol=1e-10)
    for one in ("row_norm", "slope", "square_norm", "hessian", "moment", "gram"):
        assert getattr(mapped.sizes, one) >= getattr(direct.sizes, one), one


def test_sums_over_rows_that_leave_can_only_be_subtracted() -> None:
    loss, rows, theta = problem("logistic")
    total = whole(loss, rows, theta)
    leaving = total.over(rows.take(np.arange(2)), leaving=True)
    with pytest.raises(InvalidInput, match="can only be subtracted"):
        total + leaving


def test_spending_takes_over_the_memory() -> None:
    loss, rows, theta = problem("logistic")
    learned = whole(loss, rows, theta)
    total, before = learned.keeping(hessian=True), learned.loss_hessian.dense()
    assert total.loss_hessian.lower is learned.loss_hessian.lower  # not copied so far
    one, other = (
        total.over(rows.take(np.array([row])), leaving=True) for row in (3, 5)
    )
    first = total.minus(one, overwrite=True)
    own = first.loss_hessian.lower
    assert first.minus(other, overwrite=True).loss_hessian.lower is own
    np.testing.assert_array_equal(learned.loss_hessian.dense(), before)


def test_private_sums_show_no_figure() -> None:
    loss, rows, theta = problem("logistic")
    total = whole(loss, rows, theta)
    assert repr(total) == "Sums(private)" and repr(total.sizes) == "Magnitude(private)"
    assert replace(total.sizes, weight=2.0).weight == 2.0
