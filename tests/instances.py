# SPDX-License-Identifier: Apache-2.0
"""Every implementation of every protocol, and which of them fit together.

A new loss, penalty or mechanism is one row here, and every law runs against it: with
each value of each other part once, or with all combinations where that is asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import combinations as choose

import numpy as np

from benchmarks.rescaled import Rescaled
from expunge import (
    L1,
    L2,
    ElasticNet,
    Gamma,
    GroupLasso,
    HalfSquared,
    Huber,
    Jackknife,
    Logistic,
    MatrixFree,
    Multinomial,
    NegativeBinomial,
    Newton,
    NuclearNorm,
    Objective,
    OneVsRest,
    Pinball,
    Poisson,
    Retrain,
    Rows,
    SquaredHinge,
    State,
    Tweedie,
    learn,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import Loss
from expunge.core.objective import Scaling
from expunge.core.penalties import Penalty
from expunge.removal import Mechanism
from tests.strangers.visits import Visits
from tests.thorough import THOROUGH

N_SAMPLES = 160
N_FEATURES = 6

Labels = Callable[[np.random.Generator, Matrix], Vector]


def _signs(rng: np.random.Generator, eta: Matrix) -> Vector:
    noisy = eta[:, 0] + rng.logistic(size=len(eta))
    return np.asarray(np.where(noisy > 0.0, 1.0, -1.0))


def _codes(rng: np.random.Generator, eta: Matrix) -> Vector:
    codes = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)
    return np.asarray(codes, dtype=np.float64)


def _targets(rng: np.random.Generator, eta: Matrix) -> Vector:
    # Student noise: some rows lie beyond Huber's threshold.
    noisy: Vector = eta + rng.standard_t(3.0, size=eta.shape)
    return noisy[:, 0] if eta.shape[1] == 1 else noisy


def _counts(rng: np.random.Generator, eta: Matrix) -> Vector:
    expected = np.exp(np.clip(0.4 * eta[:, 0] + 0.5, -3.0, 3.0))
    return np.asarray(rng.poisson(expected), dtype=np.float64)


def _few(rng: np.random.Generator, eta: Matrix) -> Vector:
    """Counts of at most three, which some rows have whatever is expected."""
    most = rng.random(len(eta)) < 0.03
    return np.where(most, 3.0, np.minimum(_counts(rng, eta), 3.0))


def _amounts(rng: np.random.Generator, eta: Matrix) -> Vector:
    expected = np.exp(np.clip(0.4 * eta[:, 0] + 0.5, -3.0, 3.0))
    return np.asarray(expected * rng.gamma(2.0, 0.5, size=len(eta)))


def _claims(rng: np.random.Generator, eta: Matrix) -> Vector:
    """Mostly zero, otherwise amounts."""
    return _amounts(rng, eta) * (rng.random(len(eta)) < 0.4)


def _with_exposure(labels: Labels) -> Labels:
    def beside(rng: np.random.Generator, eta: Matrix) -> Vector:
        exposure = 10.0 ** rng.uniform(-0.5, 0.5, size=len(eta))
        # Labels expect the exponential of 0.4 of what they are given.
        expected = eta + 2.5 * np.log(exposure)[:, None]
        return np.column_stack([labels(rng, expected), exposure])

    return beside


LOSSES: dict[str, tuple[Loss, Labels]] = {
    "logistic": (Logistic(), _signs),
    "half_squared": (HalfSquared(), _targets),
    "huber": (Huber(), _targets),
    "squared_hinge": (SquaredHinge(), _signs),
    "multinomial": (Multinomial(3), _codes),
    "multi_output": (HalfSquared(outputs=2), _targets),
    "one_vs_rest": (OneVsRest(3), _codes),
    "squared_classes": (OneVsRest(3, HalfSquared()), _codes),
    "hinge_classes": (OneVsRest(3, SquaredHinge()), _codes),
    "visits": (Visits(), _counts),
    "poisson": (Poisson(), _counts),
    "poisson_offset": (Poisson(offset=True), _with_exposure(_counts)),
    "gamma": (Gamma(), _amounts),
    "gamma_offset": (Gamma(offset=True), _with_exposure(_amounts)),
    "tweedie": (Tweedie(1.4), _claims),
    "tweedie_offset": (Tweedie(1.7, offset=True), _with_exposure(_claims)),
    "negative_binomial": (NegativeBinomial(0.5), _counts),
    "binomial_offset": (NegativeBinomial(0.5, True, largest=3.0), _with_exposure(_few)),
    "pinball": (Pinball(0.3, 1.0), _targets),
}

PENALTIES: dict[str, Penalty] = {
    "l2": L2(),
    "l1": L1(),
    "elastic_net": ElasticNet(0.5),
    "group_lasso": GroupLasso([0, 0, 1, 1, 2, 2]),
    "nuclear_norm": NuclearNorm(),
}

MECHANISMS: dict[str, Mechanism] = {
    "jackknife": Jackknife(),
    "newton": Newton(),
    "rescaled": Rescaled(),
    "retrain": Retrain(),
    "matrix_free": MatrixFree(),
}

SCALINGS: tuple[Scaling, ...] = ("mean", "sum")


@dataclass(frozen=True)
class Combination:
    """A loss, a penalty, a mechanism and a scaling, by name."""

    loss: str
    penalty: str
    mechanism: str
    scaling: Scaling

    def __str__(self) -> str:
        return f"{self.loss}-{self.penalty}-{self.mechanism}-{self.scaling}"

    @property
    def reason(self) -> str:
        """Why the parts do not fit together; empty if they do."""
        outputs = LOSSES[self.loss][0].outputs
        if self.penalty == "nuclear_norm" and outputs == 1:
            return "NuclearNorm needs a matrix of coefficients"
        if self.mechanism == "rescaled" and not PENALTIES[self.penalty].separable:
            return "leverage is defined on a fixed support"
        return ""


def combinations() -> Iterator[Combination]:
    """Yield all of them, the excluded ones too."""
    for loss in LOSSES:
        for penalty in PENALTIES:
            for mechanism in MECHANISMS:
                for scaling in SCALINGS:
                    yield Combination(loss, penalty, mechanism, scaling)


FITTING = [each for each in combinations() if not each.reason]
EXCLUDED = [each for each in combinations() if each.reason]

Pair = tuple[tuple[int, str], tuple[int, str]]


def pairs_of(each: Combination) -> set[Pair]:
    """Return the pairs of values that occur together in a combination."""
    return set(choose(enumerate(astuple(each)), 2))


def cover_pairs(those: Sequence[Combination]) -> list[Combination]:
    """Return few of these combinations that have every pair of values they all have.

    Each next one has the most pairs that are still missing, the first of several.
    """
    left = {each: pairs_of(each) for each in those}
    found = []
    while left:
        best = max(left, key=lambda each: len(left[each]))
        covered = left[best]
        left = {each: rest for each, pairs in left.items() if (rest := pairs - covered)}
        found.append(best)
    return found


def lawful(those: Sequence[Combination]) -> Sequence[Combination]:
    """Return the combinations to hold a law against, of those that it is about."""
    return those if THOROUGH else cover_pairs(those)


def design(rng: np.random.Generator, n_samples: int = N_SAMPLES) -> Matrix:
    """Return correlated features."""
    X = rng.normal(size=(n_samples, N_FEATURES))
    X[:, 1] += 0.5 * X[:, 0]
    return X


def labelled(
    loss: str, rng: np.random.Generator, n_samples: int = N_SAMPLES
) -> tuple[Matrix, Vector]:
    """Return a design and labels that a linear model half explains."""
    X = design(rng, n_samples)
    truth = rng.normal(size=(N_FEATURES, LOSSES[loss][0].outputs))
    truth[2:4] = 0.0
    return X, LOSSES[loss][1](rng, X @ truth)


def objective_of(loss: str, penalty: str, scaling: Scaling = "mean") -> Objective:
    """Return an objective with an unpenalised intercept and a small ridge."""
    return Objective(
        LOSSES[loss][0],
        PENALTIES[penalty],
        alpha=0.02,
        ridge=0.01,
        scaling=scaling,
        intercept=True,
    )


@cache
def learned(loss: str, penalty: str, scaling: Scaling) -> tuple[Rows, State]:
    """Return training rows and their summary, the same for every law."""
    objective = objective_of(loss, penalty, scaling)
    rows = objective.rows(*labelled(loss, np.random.default_rng(7)))
    return rows, learn(objective, rows)


def retrained(summary: State, remaining: Rows) -> Vector:
    """Return the oracle: a fit of the remaining rows from cold."""
    kept = remaining.total_weight / summary.sums.weight
    return learn(summary.objective.after(kept), remaining).anchor
