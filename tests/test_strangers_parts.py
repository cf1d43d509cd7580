# SPDX-License-Identifier: Apache-2.0
"""A loss and a map of rows from outside the package, together in all that models do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge import (
    Budget,
    LinearRegression,
    TunedRegressor,
    load,
    read_shipped,
    ship,
    verify,
)
from expunge.linear_model.base import private_model
from expunge.registry import Registry
from tests.attack.losses import Loss
from tests.attack.oracle import Aim, Sample, minimise
from tests.strangers.fourier import RandomFourier
from tests.strangers.visits import Visits

FOURIER = RandomFourier(gamma=0.5, n_features=15, seed=1)


def problem(n: int, seed: int = 0) -> tuple[Any, Any, list[str]]:
    """Return counts that depend on where a row is, two rows for each person."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = rng.poisson(np.exp(0.8 * np.cos(2.0 * X[:, 0]) + 0.3 * X[:, 1])).astype(float)
    return X, y, [f"p{i // 2}" for i in range(n)]


def model(**options: Any) -> LinearRegression:
    given: Any = {"alpha": 1e-2, "budget": Budget(sigma=0.2)} | options
    return LinearRegression(loss=Visits(), preprocessing=FOURIER, **given)


def test_registry_and_shipped_release(tmp_path: Path) -> None:
    X, y, people = problem(300)
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("counts", model(), X, y, subjects=people)
        registry.forget(["p3"])
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["p4", "p5"])
        ours = registry.model("counts")
        certificate = ours.certificate_
        assert certificate.status == "certified"
        assert verify(certificate, registry.models.record("counts")).valid
    for name in ("Visits", "RandomFourier"):
        assert any(name in text for text in certificate.assumptions)
    fitted = model().fit(X, y, people).forget(["p3"])
    ship(fitted, tmp_path / "counts.safetensors")
    shipped = read_shipped(tmp_path / "counts.safetensors")
    assert np.array_equal(shipped.predict(X), fitted.predict(X))
    assert (fitted.predict(X) > 0.0).all()


def test_tuned() -> None:
    X, y, people = problem(240)
    options: Any = {"alphas": (0.3, 0.03, 3e-3), "folds": 3, "fold_key": "fixed"}
    parts: Any = {"loss": Visits(), "preprocessing": FOURIER}
    ours = TunedRegressor(**parts, budget=Budget(sigma=0.5), **options)
    ours.fit(X, y, people)
    for first in range(0, 40, 8):
        ours.forget([f"p{first}"])
    assert ours.certificate_.selection == "certified"
    left = np.array([int(p[1:]) >= 40 or int(p[1:]) % 8 > 0 for p in people])
    rest = [p for p, stays in zip(people, left, strict=True) if stays]
    fresh = TunedRegressor(**parts, **options).fit(X[left], y[left], rest)
    assert ours.alpha_ == fresh.alpha_


@pytest.mark.parametrize("seed", range(6))
def test_random_removals_stay_within_their_radius(seed: int, tmp_path: Path) -> None:
    """Three hundred in all, by person and by content, against the oracle."""
    rng = np.random.default_rng([seed, 3])
    X, y, people = problem(240, seed)
    weight = rng.uniform(0.3, 2.0, len(X))
    scaling: Any = ("mean", "sum")[seed % 2]
    alpha, penalised = float(10.0 ** rng.uniform(-3, -1)), seed % 3 == 0
    ours = model(
        alpha=alpha,
        scaling=scaling,
        penalize_intercept=penalised,
        keep_data="encoded" if seed % 3 == 1 else True,
        budget=Budget(sigma=0.5),
    )
    ours.fit(X, y, people, sample_weight=weight)
    aim = Aim(Loss("visits"), alpha, scaling=scaling, free=not penalised)
    Z, left = FOURIER.encode(X), np.ones(len(X), bool)
    first = Sample(Z, y, weight).total
    for count, person in enumerate(rng.permutation(len(X) // 2)[:50]):
        rows = np.array([2 * person, 2 * person + 1])
        if count % 2:
            ours.forget([f"p{person}"])
        else:
            ours.forget(X=X[rows], y=y[rows], sample_weight=weight[rows])
        if count == 20:
            ours.save(tmp_path)
            ours = load(tmp_path)
        left[rows] = False
        answer = private_model(ours).answer
        sample = Sample(Z, y, weight).take(left)
        truth = minimise(aim, sample, first, answer.draft.theta)
        distance = truth.distance(answer.draft.theta)
        assert truth.error <= 1e-8
        assert distance <= answer.radius.value * (1.0 + 1e-9) + truth.error
        assert ours.certificate_.status == "certified"
