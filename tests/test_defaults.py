# SPDX-License-Identifier: Apache-2.0
"""Defaults: what a budget means that names no sigma, the same wherever it is given."""

import warnings
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import expunge
from expunge import Budget, LinearRegression, LogisticRegression, TunedClassifier
from expunge.cli.estimators import BudgetOptions, ModelOptions
from expunge.core.arrays import Matrix, Vector
from expunge.exceptions import NotCertifiable
from expunge.linear_model.parameters import ALPHA, warn_without_budget
from expunge.private_model.answers import MEASURED
from expunge.promise.scope import TWO_RELEASES
from tests.strangers.fourier import RandomFourier

N_ROWS = 200


def people() -> tuple[Matrix, Vector]:
    """Return rows of two classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ [4.0, -3.0, 2.0, 0.0] + rng.logistic(size=N_ROWS) > 0, 1, 0)


FOURIER = RandomFourier(n_features=8, seed=1)
KEPT: dict[str, Any] = {
    "logistic": LogisticRegression(alpha=0.01),
    "linear": LinearRegression(alpha=0.01),
    "tuned": TunedClassifier(alphas=(0.1, 0.01)),
    "raw rows of a map": LogisticRegression(alpha=0.01, preprocessing=FOURIER),
    "encoded rows of a map": LogisticRegression(
        alpha=0.01, preprocessing=FOURIER, keep_data="encoded"
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_where_rows_are_kept_noise_is_small(name: str, tmp_path: Path) -> None:
    X, y = people()
    model = KEPT[name].set_params(budget=Budget(), random_state=0)
    model.fit(X, y)
    assert model.budget == Budget()  # as it was given: it may be fitted to other rows
    assert model.certificate_.sigma == 1e-3
    model.forget(rows=[3])
    assert model.certificate_.sigma == 1e-3
    model.save(tmp_path / "model")
    again = expunge.load(tmp_path / "model")
    assert again.budget == Budget(sigma=1e-3)
    again.forget(rows=[4])
    assert again.certificate_.sigma == 1e-3


def test_where_rows_are_not_kept_noise_hides_what_nobody_looks_at() -> None:
    X, y = people()
    model = LogisticRegression(alpha=0.01, budget=Budget(), keep_data=False).fit(X, y)
    assert model.certificate_.sigma == 0.1
    model.forget(X=X[:1], y=y[:1])
    assert model.certificate_.sigma == 0.1
    assert model.record_.decisions == ("accepted",)


def test_a_sigma_that_was_fixed_stays_whatever_becomes_of_the_rows(
    tmp_path: Path,
) -> None:
    X, y = people()
    kept = LogisticRegression(alpha=0.01, budget=Budget()).fit(X, y)
    kept.save(tmp_path / "model")
    again = expunge.load(tmp_path / "model").set_params(keep_data=False)
    assert again.fit(X, y).certificate_.sigma == 1e-3


def test_small_noise_and_kept_rows_mean_a_look_at_every_request() -> None:
    X, y = people()
    for sigma, decision in ((None, MEASURED), (1e-3, MEASURED), (10.0, "accepted")):
        model = LogisticRegression(alpha=0.1, budget=Budget(sigma=sigma, tau=1e-5))
        model.fit(X, y)
        for row in (5, 6, 7):
            model.forget(rows=[row])
            decisions = model.record_.decisions
            assert decisions == (decision,) or "polished" in decisions[0]
            if sigma != 10.0:
                assert decisions != ("accepted",)


def test_noise_below_rounding_is_refused_and_nothing_changes() -> None:
    X, y = people()
    model = LogisticRegression(alpha=0.01, budget=Budget()).fit(X, y)
    before = model.certificate_, model.coef_.copy()
    model.set_params(budget=Budget(sigma=1e-14))
    with pytest.raises(NotCertifiable, match="raise sigma") as refused:
        model.fit(X, y)
    assert "\n" not in str(refused.value)
    assert model.certificate_ is before[0] and (model.coef_ == before[1]).all()
    model.forget(rows=[0])
    assert model.certificate_.status == "certified"


def test_the_warning_and_the_command_line_propose_the_default() -> None:
    X, y = people()
    warn_without_budget.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        LogisticRegression().fit(X, y)
    assert "budget=Budget() " in str(said[0].message)
    assert BudgetOptions().build_budget() == Budget()
    hints = get_type_hints(BudgetOptions, include_extras=True)
    assert "default 0.001, or 0.1 where" in hints["sigma"].__metadata__[0].help
    (delta,) = hints["delta"].__metadata__
    assert f"default {Budget().delta:.0e}".replace("e-0", "e-") in delta.help
    alpha = get_type_hints(ModelOptions, include_extras=True)["alpha"]
    assert f"default {ALPHA:.0e}".replace("e-0", "e-") in alpha.__metadata__[0].help


def test_certificates_say_what_two_releases_reveal() -> None:
    X, y = people()
    model = LogisticRegression(alpha=0.01, budget=Budget()).fit(X, y)
    assert TWO_RELEASES in model.certificate_.not_covered
    assert "0.54, 0.72 and 0.985" in TWO_RELEASES and "retraining" in TWO_RELEASES
