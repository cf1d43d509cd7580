# SPDX-License-Identifier: Apache-2.0
"""The defaults: what noise of the default size gives up, and what it costs.

One default serves targets in any unit: the same regression, its targets multiplied.

Two releases, before and after one person left, told somebody who knows the rest of the
person's row how much the label is worth: the two candidates for the step between them
differ by H^-1 x (the slopes of the two labels differ by one), and each release has
noise of its own, so the likelier label is right with probability Phi(|H^-1 x| /
(2 sqrt(2) sigma)).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.special import expit, ndtr
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LinearRegression

from .data import adult
from .report import Section, Table, Target
from .timing import progress

C = 1.0
UNITS, DRAWS = (1.0, 1e3, 1e6, 1e-3), 20
# Of the noise, and how often a label is guessed right, as documents say.
GUESSED = {0.1: 0.54, 0.01: 0.72, 0.001: 0.985}


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield how often the label of one leaver is guessed, and scores by unit."""
    yield guess_labels(data_dir)
    yield score_units()


def score_units() -> Section:
    """Return the scores of a regression whose targets are in other units."""
    progress(f"diabetes, targets times {', '.join(f'{by:g}' for by in UNITS)}")
    X, y = load_diabetes(return_X_y=True)
    scores = {}
    for by in UNITS:
        found = []
        for _ in range(DRAWS):
            model = LinearRegression(
                preprocessing=StandardScaler(), budget=Budget()
            ).fit(X, by * y)
            model.forget(rows=[0])
            found.append(model.score(X, by * y))
        scores[by] = float(np.mean(found))
    spread = max(scores.values()) - min(scores.values())
    plain = StandardScaler().fit_transform(X)
    best = float(Ridge(alpha=1e-4 * len(y)).fit(plain, y).score(plain, y))
    return Section(
        f"diabetes ({len(y)} x {X.shape[1]}), Budget(): R2 by the unit of the targets",
        [
            Table(
                ("targets times", "R2"),
                [(f"{by:g}", f"{score:.4f}") for by, score in scores.items()],
            )
        ],
        [
            Target("largest difference", spread, high=0.01),
            Target(
                "R2 lost to scikit-learn's Ridge",
                best - min(scores.values()),
                high=0.01,
            ),
        ],
        [f"after one person left; mean of {DRAWS} draws of the noise"],
    )


def guess_labels(data_dir: Path | None) -> Section:
    """Return how often the label of one leaver is guessed from two releases."""
    train, _ = adult(data_dir)
    progress(f"the label of each of {len(train)} people, guessed from two releases")
    X = np.column_stack([train.X, np.ones(len(train))])
    fitted = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8)
    fitted.fit(train.X, train.y)
    chance = expit(fitted.decision_function(train.X))
    bend = chance * (1.0 - chance)
    hessian = (X * bend[:, None]).T @ X
    hessian[:-1, :-1] += np.eye(X.shape[1] - 1) / C
    steps = np.linalg.solve(hessian, X.T)
    leverage = bend * np.einsum("ij,ji->i", X, steps)
    apart = np.linalg.norm(steps, axis=0) / (1.0 - leverage)  # without the leaver
    shares = {
        sigma: float(np.mean(ndtr(apart / (2.0 * np.sqrt(2.0) * sigma))))
        for sigma in GUESSED
    }
    return Section(
        f"Adult ({len(train)} x {train.X.shape[1]}), C={C:g}: one label, two releases",
        [
            Table(
                ("sigma", "label guessed right"),
                [(f"{sigma:g}", f"{share:.3f}") for sigma, share in shares.items()],
            )
        ],
        [
            Target(f"sigma {sigma:g}", shares[sigma], told - 0.005, told + 0.005)
            for sigma, told in GUESSED.items()
        ],
        ["mean over everybody; retraining without noise gives it away always"],
    )
