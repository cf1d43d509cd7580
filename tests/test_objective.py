# SPDX-License-Identifier: Apache-2.0
"""Objective: what it refuses, what it leaves unpenalised, what retraining means."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import L1, L2, ElasticNet, HalfSquared, Logistic, Multinomial, Objective
from expunge.exceptions import InvalidInput

X = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]])
Y = np.array([1.0, -1.0, 1.0])
PLAIN = Objective(Logistic(), L2(), alpha=0.1)

BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"alpha": 0.0}, "alpha=0.0"),
    ({"alpha": -1.0}, "alpha=-1.0"),
    ({"alpha": np.nan}, "alpha=nan"),
    ({"alpha": np.inf}, "alpha=inf"),
    ({"alpha": "x"}, "alpha='x'; it must be a number"),
    ({"ridge": None}, "ridge=None; it must be a number"),
    ({"ridge": -1e-9}, "ridge=-1e-09"),
    ({"ridge": np.nan}, "ridge=nan"),
    ({"scaling": "median"}, "scaling='median'; choose 'mean' or 'sum'"),
    ({"penalize_intercept": True}, "needs intercept=True"),
]


@pytest.mark.parametrize(("change", "message"), BAD_PARAMETERS)
def test_parameters_outside_the_domain_are_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(PLAIN, **change)


BAD_ROWS: list[tuple[Any, Any, Any, str]] = [
    ([[np.nan, 1.0]], [1.0], None, r"NaN or infinite values \(1 of"),
    (
        [[np.inf, 1.0], [-np.inf, np.nan]],
        [1.0, 1.0],
        None,
        r"NaN or infinite values \(3 of",
    ),
    (sparse.csr_array([[np.nan, 1.0]]), [1.0], None, r"NaN or infinite values \(1 of"),
    ([1.0, 2.0], [1.0], None, r"X has shape \(2,\); it must"),
    ([["a", "b"]], [1.0], None, "X must hold numbers"),
    (X, [1.0], None, "X has 3 rows and y has 1 labels"),
    (X, Y, [1.0, 1.0], r"sample_weight has shape \(2,\) and X has 3 rows"),
    (X, Y, [1.0, -1.0, 1.0], "finite and not negative"),
    (X, Y, [1.0, np.nan, 1.0], "finite and not negative"),
]


@pytest.mark.parametrize(("design", "labels", "weight", "message"), BAD_ROWS)
def test_rows_that_make_no_sense_are_refused(
    design: Any, labels: Any, weight: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        PLAIN.rows(design, labels, weight)


def test_huge_finite_values_are_not_called_infinite() -> None:
    with pytest.raises(InvalidInput, match=r"norm 1\.41e\+200") as caught:
        PLAIN.rows(np.full((1, 2), 1e200), [1.0])
    assert "infinite" not in str(caught.value)


def test_float32_and_integers_become_float64() -> None:
    for kind in (np.float32, np.int64):
        rows = PLAIN.rows(np.ones((2, 2), dtype=kind), [1, -1], [1, 2])
        assert rows.X.dtype == rows.y.dtype == rows.weight.dtype == np.float64


def test_sparse_entries_given_twice_mean_their_sum() -> None:
    twice = sparse.csr_array(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 2))
    rows = PLAIN.rows(twice, [1.0])
    assert rows.norms().tolist() == [3.0]
    assert twice.nnz == 2  # the caller's matrix is left alone


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.coo_array])
def test_intercept_is_a_column_of_ones(kind: Any) -> None:
    rows = replace(PLAIN, intercept=True).rows(kind(X), Y)
    assert np.array_equal(rows.dense(), np.hstack([X, np.ones((3, 1))]))


@pytest.mark.parametrize("penalty", [L2(), L1(), ElasticNet(0.5)])
def test_intercept_is_free_unless_penalised(penalty: Any) -> None:
    theta = np.array([1.0, -2.0, 5.0])
    free = Objective(Logistic(), penalty, 0.1, ridge=0.2, intercept=True)
    bare = Objective(Logistic(), penalty, 0.1, ridge=0.2)
    full = replace(free, penalize_intercept=True)
    assert free.penalty_value(theta) == bare.penalty_value(theta[:2])
    assert full.penalty_value(theta) == bare.penalty_value(theta)
    assert free.quadratic_gradient(theta)[2] == 0.0
    assert free.shrink(theta, 10.0)[2] == 5.0
    step = np.full(3, 10.0)
    assert np.array_equal(free.shrink(theta, step), free.shrink(theta, 10.0))


def test_softmax_intercepts_are_pinned_by_their_sum() -> None:
    objective = Objective(Multinomial(3), L2(), 0.1, intercept=True)
    diagonal, gauge = objective.quadratic_form(9)
    assert gauge is not None
    assert np.array_equal(np.flatnonzero(gauge), [6, 7, 8])
    assert not diagonal[6:].any()
    shift = np.concatenate([np.zeros(6), np.ones(3)])
    assert objective.penalty_value(shift) > 0.0
    assert (
        Objective(HalfSquared(3), L2(), 0.1, intercept=True).quadratic_form(9)[1]
        is None
    )
    penalised = replace(objective, penalize_intercept=True)
    assert penalised.quadratic_form(9)[1] is None


def test_scaling_says_what_retraining_means() -> None:
    mean, total = PLAIN, replace(PLAIN, scaling="sum", ridge=0.3)
    assert mean.after(0.5) is mean
    later = total.after(0.5)
    assert (later.alpha, later.ridge) == (0.2, 0.6)
