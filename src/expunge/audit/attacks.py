# SPDX-License-Identifier: Apache-2.0
r"""Attacks on earlier releases, which no removal can take back.

A certificate compares two operators who have both forgotten a person. An attacker who
kept a release from before the removal knows more, and two attacks measure how much:

membership      given a release and a person's rows: was the person in the data?
reconstruction  given the releases before and after one person left: who was it? A
                removal moves theta by about H^-1 x times a number, so H (after -
                before) points along the row x.

The same attacks on the two worlds that the certificate does compare are bounded by it.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.special import ndtr

from ..core.arrays import Matrix, Vector
from ..core.linalg import Symmetric
from ..core.objective import Objective, add_quadratic
from ..core.rows import Rows
from ..core.sums import loss_hessian
from ..exceptions import InvalidInput
from .comparison import (
    AuditOptions,
    ModelPair,
    advantage_bound,
    count_best_event,
    draw_releases,
)


@dataclass(frozen=True, slots=True)
class MembershipFinding:
    """How well the loss of a person's rows tells two models apart by one release.

    Attributes
    ----------
    advantage
        P(says "first" | first) - P(says "first" | second), as measured: 0 is
        guessing, 1 is knowing.
    low, high
        Interval that contains the attack's true advantage with ``confidence``.
    covered
        Largest advantage that the budget leaves to any attack on the two worlds it
        compares, 2 Phi(mu/2) - 1. It says nothing about earlier releases.
    n_draws, confidence
        Releases of each model, and how sure the interval is.
    """

    advantage: float
    low: float
    high: float
    covered: float
    n_draws: int
    confidence: float

    def __str__(self) -> str:
        """Return the finding with its limits, for a terminal."""
        return (
            f"membership advantage {self.advantage:.3f} ({self.low:.3f} to "
            f"{self.high:.3f} with {100 * self.confidence:g} % confidence); between "
            f"the worlds of the budget at most {self.covered:.3f}. The certificate "
            "says nothing about a release that contained the person"
        )


@dataclass(frozen=True, slots=True)
class ReconstructionFinding:
    """How well the releases before and after a removal point at the removed row.

    Attributes
    ----------
    exact
        Cosine between the guess and the row if both models leaked without noise.
    noised
        Mean cosine over pairs of releases.
    low, high
        Interval that contains the mean with ``confidence``.
    chance
        Root mean square cosine of a random direction: 1 / sqrt(d).
    n_draws, confidence
        Pairs of releases, and how sure the interval is.
    """

    exact: float
    noised: float
    low: float
    high: float
    chance: float
    n_draws: int
    confidence: float

    def __str__(self) -> str:
        """Return the finding with its limits, for a terminal."""
        return (
            f"cosine with the removed row {self.noised:.3f} ({self.low:.3f} to "
            f"{self.high:.3f}) from two releases, {self.exact:.3f} without noise, "
            f"{self.chance:.3f} by chance. The certificate says nothing about releases "
            "that contained the person"
        )


def attack_membership(
    pair: ModelPair, objective: Objective, *, person: Rows, options: AuditOptions
) -> MembershipFinding:
    """Try to tell which of two models was released, by the loss of a person's rows.

    ``CaseModels.presence`` asks whether a release contained the person, which no
    certificate covers; ``CaseModels.worlds`` asks what the removal left behind.

    Parameters
    ----------
    pair
        The two noise-free models.
    objective
        Its loss is what the attacker computes.
    person
        The person's rows.
    options
        The budget, the noise, how many releases, and the confidence.
    """
    if not len(person):
        raise InvalidInput("no rows to look for: give the person's rows")
    noise, level = options.source, 0.25 * options.error_rate

    def losses(theta: Vector) -> Matrix:
        blocks = draw_releases(theta, options, noise=noise)
        found = [_losses(objective, person, thetas=some) for some in blocks]
        return np.concatenate(found)[None]

    worlds = losses(pair.first), losses(pair.second)
    counts = count_best_event(worlds, advantage_bound, level=level)
    return MembershipFinding(
        advantage=(counts.hits - counts.misses) / counts.n,
        low=max(-1.0, counts.lower(advantage_bound, level)),
        high=min(1.0, counts.upper(advantage_bound, level)),
        covered=float(2.0 * ndtr(0.5 * options.budget.gdp) - 1.0),
        n_draws=options.n_draws,
        confidence=options.confidence,
    )


def reconstruct_direction(
    pair: ModelPair, objective: Objective, *, known: Rows
) -> Vector:
    """Return the direction, up to its sign, of the row removed in between.

    H (after - before), with H the Hessian at the first model on rows that the attacker
    knows, such as a public sample. Of length one, (d k,). The change of the regulariser
    is left out, being of the order of alpha.

    Parameters
    ----------
    pair
        Two models or releases, before and after.
    objective
        What was fitted.
    known
        Rows like those of the training set.
    """
    guess = _hessian(objective, pair.first, known=known) @ (pair.second - pair.first)
    length = float(np.linalg.norm(guess))
    return guess / length if length > 0.0 else guess


def attack_reconstruction(
    pair: ModelPair,
    objective: Objective,
    *,
    person: Rows,
    known: Rows,
    options: AuditOptions,
) -> ReconstructionFinding:
    """Try to find a removed row from the releases before and after.

    Parameters
    ----------
    pair
        ``CaseModels.history``: noise-free models before and after the removal.
    objective
        What was fitted.
    person
        The one row that was removed, including the intercept.
    known
        Rows like those of the training set that the attacker has.
    options
        The budget, the noise, how many pairs of releases, and the confidence.
    """
    if len(person) != 1:
        raise InvalidInput(
            f"{len(person)} rows removed in between; the attack looks for one; audit "
            "the removal of one row"
        )
    x, noise = person.dense()[0], options.source
    H = _hessian(objective, pair.first, known=known)
    cosines = np.concatenate(
        [
            _cosines((H @ (after - before).T).T, x)
            for before, after in zip(
                draw_releases(pair.first, options, noise=noise),
                draw_releases(pair.second, options, noise=noise),
                strict=True,
            )
        ]
    )
    mean = float(np.mean(cosines))
    # Hoeffding: a cosine without its sign lies between 0 and 1.
    room = sqrt(0.5 * log(2.0 / options.error_rate) / len(cosines))
    exact = reconstruct_direction(pair, objective, known=known)
    return ReconstructionFinding(
        exact=float(_cosines(exact[None], x)[0]),
        noised=mean,
        low=max(0.0, mean - room),
        high=min(1.0, mean + room),
        chance=1.0 / sqrt(x.size),
        n_draws=options.n_draws,
        confidence=options.confidence,
    )


def _hessian(objective: Objective, theta: Vector, *, known: Rows) -> Symmetric:
    """Return the Hessian of the objective's smooth part at theta on known rows."""
    total = loss_hessian(objective.loss, known, theta=theta)
    return add_quadratic(objective, total / known.total_weight)


def _losses(objective: Objective, person: Rows, *, thetas: Matrix) -> Vector:
    """Return the weighted loss of a person's rows under each release."""
    loss, outputs = objective.loss, objective.loss.outputs
    n, X = len(thetas), person.dense()
    theta = thetas.reshape(n, X.shape[1], outputs).transpose(1, 0, 2)
    eta = (X @ theta.reshape(X.shape[1], n * outputs)).reshape(len(X) * n, outputs)
    labels = np.repeat(person.y, n, axis=0)
    values = loss.value(labels, eta if outputs > 1 else eta[:, 0])
    return np.asarray(person.weight @ values.reshape(len(X), n))


def _cosines(guesses: Matrix, x: Vector) -> Vector:
    """Return |x' D| / (|x| |D|) of each guess D, (d, k): the cosine if k is 1."""
    D = guesses.reshape(len(guesses), x.size, -1)
    along = np.linalg.norm(np.einsum("i,nik->nk", x, D), axis=1)
    sizes = np.linalg.norm(guesses, axis=1) * np.linalg.norm(x)
    cosines: Vector = along / np.maximum(sizes, np.finfo(np.float64).tiny)
    return cosines
