# SPDX-License-Identifier: Apache-2.0
"""The range of numbers: refused outside, and no bound that underflows inside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import (
    L1,
    L2,
    Budget,
    GroupLasso,
    HalfSquared,
    Huber,
    Jackknife,
    LogisticRegression,
    Newton,
    NuclearNorm,
    Objective,
    Retrain,
    Rows,
    learn,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.linalg import conjugate_gradients
from expunge.core.losses import Logistic
from expunge.exceptions import ExpungeError, InvalidInput, NotConverged
from expunge.promise.capacity import Regularity, newton_radius, noise_cost
from expunge.promise.radius import best_radius
from expunge.removal import Mechanism
from tests.exact import SUITABLE, exact_minimiser, length
from tests.extremes import interval_verdict, verdict
from tests.thorough import either

oracle = pytest.mark.skipif(
    not SUITABLE, reason="long doubles have no wider range than doubles here"
)


def _data(seed: int = 0) -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    return X, np.where(X[:, 0] + rng.logistic(size=40) > 0.0, 1.0, -1.0)


@oracle
@pytest.mark.parametrize("seeds", [range(100, 160), range(160, 220)], ids=str)
def test_at_the_ends_of_the_range_radii_hold_or_are_refused(seeds: range) -> None:
    found = [verdict(seed) for seed in seeds]
    assert [each.violations for each in found if each.violations] == []
    assert sum(each.checks for each in found) > 50
    assert any(each.refused == "InvalidInput" for each in found)


@oracle
def test_at_the_ends_of_the_range_intervals_hold_or_are_refused() -> None:
    n_seeds = either(8, thorough=30)
    found = [interval_verdict(seed) for seed in range(n_seeds)]
    assert [each.violations for each in found if each.violations] == []
    assert sum(each.checks for each in found) > n_seeds


def _removed(objective: Objective, rows: Rows, mechanism: Mechanism) -> Any:
    state = mechanism.init(learn(objective, rows))
    rest = rows.without(np.arange(10))
    state, draft = mechanism.step(
        mechanism.update(state, rows.take(np.arange(10))), rest
    )
    with np.errstate(all="ignore"):
        target = exact_minimiser(objective, rest, draft.theta)
    error = length(draft.theta - target.theta)
    return best_radius(state, draft, remaining=None).value, float(error)


def test_what_gave_a_radius_of_zero_is_refused() -> None:
    X, y = _data()
    with pytest.raises(InvalidInput, match=r"alpha=1e-163"):
        Objective(Logistic(), L2(), 1e-163)
    with pytest.raises(InvalidInput, match=r"norm \S+e-16\d; .* rescale its columns"):
        Objective(Logistic(), L2(), 0.1).rows(1e-163 * X, y)


@oracle
@pytest.mark.parametrize("mechanism", [Jackknife(), Newton(), Retrain()], ids=repr)
def test_targets_may_be_as_small_as_they_like(mechanism: Mechanism) -> None:
    X, y = _data()
    objective = Objective(HalfSquared(), L2(), 0.1)
    radius, error = _removed(objective, objective.rows(X, 1e-170 * y), mechanism)
    assert error <= radius <= 1e-170
    assert radius > 0.0


@oracle
@pytest.mark.parametrize("scale", [1e-49, 1e-20, 1e20, 1e49])
@pytest.mark.parametrize("mechanism", [Jackknife(), Newton()], ids=repr)
def test_scaled_data_is_certified_as_well_as_plain(
    scale: float, mechanism: Mechanism
) -> None:
    """Gradients as long as the penalty's, so that theta is of the order of one."""
    X, y = _data()
    objective = Objective(Logistic(), L2(), min(scale, 1.0 / scale))
    rows = objective.rows(scale * X, y)
    radius, error = _removed(objective, rows, mechanism)
    assert error <= radius


def _with(**changes: Any) -> Callable[[], object]:
    """Return a fit of plain data with something changed."""
    X, y = _data()
    known: dict[str, Any] = {"X": X, "y": y, "weight": None} | changes
    objective = Objective(known.pop("loss", Logistic()), L2(), 0.1)
    return lambda: learn(objective, objective.rows(*known.values()))


def _row(value: float) -> Matrix:
    X, _ = _data()
    X[3] = value
    return X


REFUSED = {
    "rows": (_with(X=1e-60 * _data()[0]), "a row of X has norm"),
    "one short row": (_with(X=_row(1e-60)), "a row of X has norm 1.73e-60"),
    "one row of denormals": (_with(X=_row(5e-324)), "a row of X has norm"),
    "one long row": (_with(X=_row(1e60)), r"a row of X has norm 1.73e\+60"),
    "sparse": (_with(X=sparse.csr_array(_row(1e160))), "a row of X has norm"),
    "sparse and short": (_with(X=sparse.csr_array(_row(1e-160))), "a row of X has"),
    "weight": (_with(weight=np.full(40, 1e60)), r"sample_weight holds 1e\+60"),
    "light": (_with(weight=np.full(40, 1e-60)), "sum to less than 1e-50"),
    "targets": (_with(loss=HalfSquared(), y=np.full(40, 1e60)), r"target 1e\+60"),
    "threshold": (lambda: Huber(1e-60), "threshold=1e-60"),
    "ridge": (lambda: Objective(Logistic(), L1(), 0.1, ridge=1e-60), "ridge=1e-60"),
    "alpha": (lambda: Objective(Logistic(), L1(), 1e60), r"alpha=1e\+60"),
    "estimator": (lambda: LogisticRegression(alpha=1e-60).fit(*_data()), "alpha=1e-60"),
    "promise": (lambda: Budget(row_norm=1e60), r"row_norm=1e\+60"),
    "noise": (lambda: Budget(sigma=1e-300), "sigma=1e-300"),
    "constants": (lambda: Regularity(1, 1, 1, 1e60, 1), r"row_norm=1e\+60"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_value_and_what_to_do(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(InvalidInput, match=message):
        call()


def _entry(value: float) -> Matrix:
    X, _ = _data()
    X[3, 1] = value
    return X


ORDINARY = {
    "noise": _data()[0] + 1e-8,
    "tiny entry": _entry(1e-20),
    "denormal entry": _entry(1e-310),
    "smallest entry": _entry(5e-324),
    "zero entry": _entry(0.0),
    "zero row": _row(0.0),
    "small column": _data()[0] * np.array([1.0, 1e-20, 1.0]),
    "column of denormals": _data()[0] * np.array([1.0, 1e-310, 1.0]),
    "explicit zeros": sparse.csr_array(
        (np.zeros(120), np.tile(np.arange(3), 40), np.arange(0, 121, 3)), shape=(40, 3)
    ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_is_not_refused(name: str) -> None:
    weight = np.ones(40)
    weight[5], weight[6] = 0.0, 1e-200
    objective = Objective(Logistic(), L2(), 0.1)
    rows = objective.rows(ORDINARY[name], _data()[1], weight)
    newton = Newton()
    state = newton.update(newton.init(learn(objective, rows)), rows.take(np.arange(9)))
    assert best_radius(*newton.step(state)).value < 1.0


def test_short_rows_beside_an_intercept_are_long_enough() -> None:
    X, y = _data()
    objective = Objective(Logistic(), L2(), 0.1, intercept=True)
    assert np.isfinite(learn(objective, objective.rows(1e-163 * X, y)).anchor).all()


def test_a_short_group_is_not_taken_for_zero() -> None:
    v = np.array([[3e-170], [4e-170]])
    assert GroupLasso([0, 0]).shrink(v, 1e-200) == pytest.approx(v, rel=1e-12, abs=0)
    assert GroupLasso([0, 0]).kink(v) == pytest.approx(np.sqrt(2.0) * 5e-170)


def test_a_prox_of_what_is_not_finite_is_our_error() -> None:
    with pytest.raises(NotConverged, match="scale the columns"):
        NuclearNorm().shrink(np.full((2, 2), np.nan), 1.0)


@pytest.mark.parametrize("size", [1e-170, 1e-300])
def test_conjugate_gradients_of_a_short_vector(size: float) -> None:
    found = conjugate_gradients(
        lambda v: 2.0 * v,
        np.array([size, size]),
        precondition=lambda v: v,
        start=np.zeros(2),
        max_steps=5,
    )
    assert found.converged
    assert found.x == pytest.approx(np.full(2, 0.5 * size), rel=1e-12, abs=0.0)


def test_constants_alone_bound_from_above_at_both_ends() -> None:
    tiny = Regularity(1.0, 1.0, 1.0, row_norm=1e-50, strong_convexity=1e50)
    assert newton_radius(tiny, 1, n_samples=10**9) > 0.0
    assert newton_radius(tiny, 0, n_samples=10**9) == 0.0
    assert noise_cost(tiny, 3, sigma=1e250) == np.inf


@pytest.mark.parametrize("scale", [1e-170, 1e-150, 1e-100, 1e100, 1e150, 1e170])
@pytest.mark.parametrize("loss", [Logistic(), HalfSquared(), Huber()], ids=repr)
@pytest.mark.parametrize("penalty", [L2(), L1(), GroupLasso([0, 0, 1])], ids=repr)
def test_no_raw_error_comes_out(loss: Any, penalty: Any, scale: float) -> None:
    X, y = _data()
    for given in ((scale * X, y, 0.1), (X, scale * y, 0.1), (X, y, scale)):
        design, labels, alpha = given
        labels = np.sign(labels) if isinstance(loss, Logistic) else labels
        try:
            objective = Objective(loss, penalty, alpha, ridge=1e-3)
            rows = objective.rows(design, labels)
            newton = Newton()
            state = newton.init(learn(objective, rows))
            best_radius(*newton.step(newton.update(state, rows.take(np.arange(3)))))
        except ExpungeError:
            continue
        assert design is X and alpha == 0.1
