# SPDX-License-Identifier: Apache-2.0
"""Leave-one-out errors of estimators."""

import copy

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from expunge import LogisticRegression
from expunge.core.arrays import Matrix, Vector
from expunge.exceptions import InvalidInput, NoPrivateState, Unsupported
from expunge.linear_model.tuned import loo_error


@pytest.mark.parametrize("mechanism", ["newton", "jackknife", "retrain"])
def test_an_estimator_is_left_as_it_was(
    mechanism: str, cancer: tuple[Matrix, Vector]
) -> None:
    X, y = cancer[0][:90, :5], cancer[1][:90]
    model = LogisticRegression(alpha=0.05, scaling="sum", mechanism=mechanism)
    model.fit(X, y).forget(rows=range(8))
    before = model.coef_.copy()
    found = loo_error(model)
    assert np.array_equal(model.coef_, before)
    assert found.losses.size == 82
    rest = LogisticRegression(alpha=0.05 * 90 / 82, scaling="sum").fit(X[8:], y[8:])
    error = np.abs(found.losses - loo_error(rest).losses)
    assert (error <= found.error_bounds + loo_error(rest).error_bounds).all()


def test_an_estimator_without_data_or_private_state_is_refused(
    cancer: tuple[Matrix, Vector],
) -> None:
    X, y = cancer[0][:60, :4], cancer[1][:60]
    with pytest.raises(InvalidInput, match="keep_data=True"):
        loo_error(LogisticRegression(alpha=0.1, keep_data=False).fit(X, y))
    with pytest.raises(NoPrivateState):
        loo_error(copy.deepcopy(LogisticRegression(alpha=0.1).fit(X, y)))


def test_what_would_be_learned_again_is_refused(cancer: tuple[Matrix, Vector]) -> None:
    X, y = cancer[0][:60, :4], cancer[1][:60]
    for settings in ({"preprocessing": StandardScaler()}, {"class_weight": "balanced"}):
        with pytest.raises(Unsupported, match="learned again"):
            loo_error(LogisticRegression(alpha=0.1, **settings).fit(X, y))
