# SPDX-License-Identifier: Apache-2.0
"""Insurance claims: frequency by Poisson, severity by Gamma, and a driver who leaves.

The policies are drawn at random to the shape of well-known French motor data: exposures
below a year, four claims in a hundred policies, amounts with a heavy tail. They are
nobody's. If you give a folder as the first argument, calibration and lift of the
frequency are drawn there (needs matplotlib).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expunge import Budget, GammaRegressor, PoissonRegressor, TweedieRegressor, verify

POLICIES = 60_000
REGIONS = ("coast", "city", "hills", "plain")
Array = np.ndarray[Any, np.dtype[Any]]


def main() -> None:
    """Fit three models, forget a driver, and show what they say."""
    X, years, claims, amounts, drivers = draw_policies(np.random.default_rng(0))
    train = np.arange(POLICIES) % 5 != 0

    frequency = PoissonRegressor(alpha=1e-4, preprocessing=encoder(), budget=Budget())
    frequency.fit(
        X[train], claims[train], subjects=drivers[train], exposure=years[train]
    )
    rest = {"X": X[~train], "y": claims[~train], "exposure": years[~train]}
    print(f"claims a year, D2 on other policies: {frequency.score(**rest):.3f}")

    had = train & (claims > 0)
    severity = GammaRegressor(alpha=1e-2, preprocessing=encoder(), budget=Budget())
    severity.fit(
        X[had],
        amounts[had] / claims[had],
        subjects=drivers[had],
        sample_weight=claims[had],
    )
    cost = TweedieRegressor(
        power=1.6, alpha=1e-2, preprocessing=encoder(), budget=Budget()
    )
    cost.fit(X[train], amounts[train], subjects=drivers[train], exposure=years[train])
    by_parts = frequency.predict(X[~train]) * severity.predict(X[~train])
    at_once = cost.predict(X[~train])
    seen = amounts[~train].sum() / years[~train].sum()
    print(f"cost of a year: {seen:.0f} seen on other policies, ", end="")
    print(
        f"{np.average(by_parts, weights=years[~train]):.0f} by frequency and ", end=""
    )
    print(f"severity, {np.average(at_once, weights=years[~train]):.0f} by Tweedie")

    leaver = str(drivers[had][0])
    for name, model in (
        ("frequency", frequency),
        ("severity", severity),
        ("cost", cost),
    ):
        model.forget([leaver])
        sound = verify(model.certificate_, model.record_).valid
        print(f"{name}: {leaver} left, {model.certificate_.status}, valid: {sound}")
    if len(sys.argv) > 1:
        frequency.plot_means(**rest, path=Path(sys.argv[1]) / "claims.png")


def encoder() -> ColumnTransformer:
    """Return what scales numbers and encodes regions; it forgets with its model."""
    return ColumnTransformer(
        [("numbers", StandardScaler(), [0, 1, 2]), ("region", OneHotEncoder(), [3])]
    )


def draw_policies(
    rng: np.random.Generator,
) -> tuple[Array, Array, Array, Array, Array]:
    """Return features, years of exposure, claims, their amounts, and the drivers."""
    age, power = rng.uniform(18.0, 85.0, POLICIES), rng.integers(4, 13, POLICIES)
    bonus = np.clip(rng.normal(60.0, 20.0, POLICIES), 50.0, 200.0)
    region = rng.choice(len(REGIONS), POLICIES, p=[0.2, 0.4, 0.1, 0.3])
    years = np.clip(rng.beta(0.9, 0.8, POLICIES), 0.003, 1.0)
    level = np.array([0.0, 0.35, -0.2, 0.1])[region]
    rate = 0.07 * np.exp(
        0.8 * (age < 25.0) + 0.012 * (bonus - 60.0) + 0.03 * (power - 7.0) + level
    )
    claims = rng.poisson(rate * years).astype(float)
    mean = 1500.0 * np.exp(0.04 * (power - 7.0) - 0.3 * level)
    amounts = np.where(
        claims > 0.0, rng.gamma(0.8 * np.maximum(claims, 1.0), mean / 0.8), 0.0
    )
    amounts = np.where(claims > 0.0, np.maximum(amounts, 1.0), 0.0)
    X = np.column_stack([age, power, bonus, region]).astype(float)
    drivers = np.array([f"driver {i // 2}" for i in range(POLICIES)])
    return X, years, claims, amounts, drivers


if __name__ == "__main__":
    main()
