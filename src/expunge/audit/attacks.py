# SPDX-License-Identifier: Apache-2.0
r"""Attacks: what earlier releases tell, which no removal can take back.

A certificate compares two operators who have both forgotten a person. Whoever kept a
release from before the removal holds something else, and these two attacks put a figure
on it:

membership      a release and a person's rows: was the person in the data?
reconstruction  the releases before and after one person left: who was it? A removal
                moves theta by about H^-1 x times a number, so H (after - before) points
                along the row x.

The same attack on the two worlds that the certificate does compare is bounded by it.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.special import ndtr

from ..core.arrays import Matrix, Vector
from ..core.linalg import Symmetric
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.solver import add_quadratic
from ..core.sums import loss_hessian
from ..exceptions import InvalidInput
from .trial import Pair, Trial, difference, judged, releases, source_of


@dataclass(frozen=True, slots=True)
class Membership:
    """How well the loss of a person's rows tells two models apart by one release.

    Attributes
    ----------
    advantage
        P(says "first" | first) - P(says "first" | second), as measured: 0 is
        guessing, 1 is knowing.
    low, high
        Interval that holds the true advantage of this attack with ``confidence``.
    covered
        Largest advantage that the contract leaves to any attack on the two worlds it
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
            f"the worlds of the contract at most {self.covered:.3f}, of a release that "
            "contained the person the certificate says nothing"
        )


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """How well the releases before and after a removal point at the removed row.

    Attributes
    ----------
    exact
        Cosine between the guess and the row if both models leaked without noise.
    noised
        Mean cosine over pairs of releases.
    low, high
        Interval that holds the mean with ``confidence``.
    chance
        Cosine of a direction chosen blindly, root mean square: 1 / sqrt(d).
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
            f"{self.chance:.3f} blindly; the certificate says nothing about releases "
            "that contained the person"
        )


def membership(
    pair: Pair, objective: Objective, person: Rows, trial: Trial
) -> Membership:
    """Try to tell which of two models was released by the loss of a person's rows.

    ``Models.presence`` asks whether a release contained the person, which no
    certificate covers; ``Models.worlds`` asks what the removal left behind.

    Parameters
    ----------
    pair
        The two noise-free models.
    objective
        Whose loss is looked at.
    person
        The candidate's rows.
    trial
        The contract, the noise, how many releases, and the confidence.
    """
    if not len(person):
        raise InvalidInput("no rows to look for: give the person's rows")
    noise, level = source_of(trial), 0.25 * trial.doubt
    losses = [
        np.concatenate(
            [_losses(objective, person, some) for some in releases(theta, trial, noise)]
        )
        for theta in (pair.first, pair.second)
    ]
    tally = judged((losses[0][None], losses[1][None]), difference, level)
    return Membership(
        advantage=(tally.hits - tally.misses) / tally.n,
        low=max(-1.0, tally.lower(difference, level)),
        high=min(1.0, tally.upper(difference, level)),
        covered=float(2.0 * ndtr(0.5 * trial.budget.gdp) - 1.0),
        n_draws=trial.n_draws,
        confidence=trial.confidence,
    )


def reconstruct(objective: Objective, pair: Pair, known: Rows) -> Vector:
    """Return the direction in which the row lies that was removed in between.

    H (after - before) with H the Hessian at the first model on rows that the attacker
    knows, a public sample say. Up to its sign, of length one, (d k,); what the
    regulariser gains by the removal is left out, being of the order of alpha.

    Parameters
    ----------
    objective
        What was fitted.
    pair
        Two models or releases, before and after.
    known
        Rows like those of the training set.
    """
    guess = _metric(objective, pair.first, known) @ (pair.second - pair.first)
    length = float(np.linalg.norm(guess))
    return guess / length if length > 0.0 else guess


def reconstruction(
    pair: Pair, objective: Objective, person: Rows, known: Rows, trial: Trial
) -> Reconstruction:
    """Try to find a removed row from the releases before and after.

    Parameters
    ----------
    pair
        ``Models.history``: noise-free models before and after the removal.
    objective
        What was fitted.
    person
        The one row that was removed, intercept included.
    known
        Rows like those of the training set that the attacker has.
    trial
        The contract, the noise, how many pairs of releases, and the confidence.
    """
    if len(person) != 1:
        raise InvalidInput(
            f"{len(person)} rows removed in between; the attack looks for one"
        )
    x, noise = person.dense()[0], source_of(trial)
    H = _metric(objective, pair.first, known)
    cosines = np.concatenate(
        [
            _cosines((H @ (after - before).T).T, x)
            for before, after in zip(
                releases(pair.first, trial, noise),
                releases(pair.second, trial, noise),
                strict=True,
            )
        ]
    )
    mean = float(np.mean(cosines))
    # Hoeffding: a cosine without its sign lies between 0 and 1.
    room = sqrt(0.5 * log(2.0 / trial.doubt) / len(cosines))
    exact = reconstruct(objective, pair, known)
    return Reconstruction(
        exact=float(_cosines(exact[None], x)[0]),
        noised=mean,
        low=max(0.0, mean - room),
        high=min(1.0, mean + room),
        chance=1.0 / sqrt(x.size),
        n_draws=trial.n_draws,
        confidence=trial.confidence,
    )


def _metric(objective: Objective, theta: Vector, known: Rows) -> Symmetric:
    """Return the Hessian of the objective's smooth part at theta on known rows."""
    total = loss_hessian(objective.loss, known, theta)
    hessian = Symmetric.from_dense(total / known.total_weight)
    return add_quadratic(objective, hessian)


def _losses(objective: Objective, person: Rows, some: Matrix) -> Vector:
    """Return the weighted loss of a person's rows under each of some releases."""
    loss, outputs = objective.loss, objective.loss.outputs
    n, X = len(some), person.dense()
    theta = some.reshape(n, X.shape[1], outputs).transpose(1, 0, 2)
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
