# SPDX-License-Identifier: Apache-2.0
"""A model fitted again still aims at the objective of its first fit."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder

from expunge import Budget, LogisticRegression
from expunge.linear_model.base import private_model

N_ROWS = 90


@pytest.mark.parametrize("budget", [None, Budget(sigma=1e-4, allow_seeded=True)])
def test_sum_scaling_refers_to_the_first_fit_after_any_refit(
    budget: Budget | None,
) -> None:
    """A column becomes empty, then answers are polished; alpha W stays the same."""
    rng = np.random.default_rng(5)
    X = rng.choice(["a", "b", "c"], size=(N_ROWS, 2)).astype(object)
    X[:30, 0] = "rare"
    people = np.array([f"p{max(0, row - 29)}" for row in range(N_ROWS)])
    y = (X[:, 1] == "a") ^ (rng.random(N_ROWS) < 0.3)
    model = LogisticRegression(
        alpha=0.05,
        scaling="sum",
        penalize_intercept=True,
        budget=budget,
        random_state=1,
        preprocessing=OneHotEncoder(),
    )
    model.fit(X, y, subjects=people)
    for person in ("p0", "p40", "p50", "p60"):
        model.forget([person])
        gone = ["p0", "p40", "p50", "p60"][: model.certificate_.n_subjects_removed]
        left = ~np.isin(people, gone)
        plain = clone(model).set_params(alpha=0.05 * N_ROWS / left.sum(), budget=None)
        plain.fit(X[left], y[left])
        gap = np.linalg.norm(draft_of(model) - draft_of(plain))
        radius = model.record_.radius
        assert radius is not None and gap <= radius * (1.0 + 1e-9) + 1e-11


def draft_of(model: Any) -> Any:
    """Return the noise-free parameters of a model."""
    return private_model(model).answer.draft.theta
