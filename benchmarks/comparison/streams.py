# SPDX-License-Identifier: Apache-2.0
r"""Streams: in which order people ask to be forgotten.

Each is a pure function of a problem, a seed and a count, and returns as many distinct
positions in ``problem.train``. From kind to hostile: at random; mostly one class;
neighbours together; the most influential first; and chosen to exhaust a budget.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from expunge import State, learn
from expunge.core.arrays import Index, Matrix
from expunge.core.linalg import Symmetric
from expunge.core.objective import add_quadratic
from expunge.core.sums import norm_moment, predict
from expunge.exceptions import InvalidInput

from .protocol import Problem

Stream: TypeAlias = Callable[[Problem, int, int], Index]

# Of the requests, how many come from the first class: the paper's 10 % of threes.
MINORITY = 0.1
# Share of the mean curvature that keeps a Hessian definite where nothing else does.
SHIFT = 1e-9


def order_at_random(problem: Problem, seed: int, count: int) -> Index:
    """Return people drawn at random."""
    _require_enough(len(problem.train), count, "people")
    return np.random.default_rng(seed).permutation(len(problem.train))[:count]


def order_biased(problem: Problem, seed: int, count: int) -> Index:
    """Return 10 % of one class and 90 % of the other, in random order.

    The paper's adaptive requests (10 % threes, 90 % eights): the class with the
    smaller label is the minority.
    """
    rng, y = np.random.default_rng(seed), problem.train.y
    labels = np.unique(y)
    if len(labels) != 2:
        raise InvalidInput(
            f"{len(labels)} labels; a biased stream needs two classes, so choose "
            "another stream"
        )
    n_first = round(MINORITY * count)
    drawn = []
    for label, share in zip(labels, (n_first, count - n_first), strict=True):
        people = np.flatnonzero(y == label)
        _require_enough(len(people), share, f"people of class {label:g}")
        drawn.append(rng.permutation(people)[:share])
    return rng.permutation(np.concatenate(drawn))


def order_clustered(problem: Problem, seed: int, count: int) -> Index:
    """Return a random person and then their nearest neighbours."""
    rows = problem.train
    _require_enough(len(rows), count, "people")
    centre = int(np.random.default_rng(seed).integers(len(rows)))
    point = rows.take(slice(centre, centre + 1)).dense()[0]
    squares = rows.norms() ** 2 - 2.0 * (rows.X @ point)
    squares[centre] = -np.inf  # duplicates of the centre come after it
    return np.argsort(squares, kind="stable")[:count]


def order_by_influence(problem: Problem, seed: int, count: int) -> Index:
    """Return people by |H^-1 gradient| at the fit, the largest first."""
    del seed
    _require_enough(len(problem.train), count, "people")
    sizes = np.linalg.norm(influences(problem, fit(problem)), axis=1)
    return np.argsort(-sizes, kind="stable")[:count]


def order_poisoning(problem: Problem, seed: int, count: int) -> Index:
    """Return people chosen one by one so that Newton's radius grows fastest.

    Without rows that radius is governed by s'K s, s the step so far and K the norm
    moment, so each next person is the one whose influence e makes (s + e)'K(s + e)
    largest: chosen in hindsight, knowing all rows. A proxy in three ways: s is
    the sum of the influences at the fit, K and the Hessian are those of all rows, and
    the choice is greedy.
    """
    del seed
    _require_enough(len(problem.train), count, "people")
    summary = fit(problem)
    effects = influences(problem, summary)
    outputs = problem.objective.loss.outputs
    moment = np.kron(norm_moment(problem.train), np.eye(outputs)) / summary.sums.weight
    images = effects @ moment
    gain = np.einsum("ij,ij->i", effects, images)
    chosen = np.empty(count, dtype=np.intp)
    for turn in range(count):
        best = int(np.argmax(gain))
        chosen[turn] = best
        # (s + e)'K(s + e) - s'K s = 2 s'K e + e'K e, and s has just grown.
        gain += 2.0 * (effects @ images[best])
        gain[best] = -np.inf
    return chosen


STREAMS: dict[str, Stream] = {
    "random": order_at_random,
    "biased": order_biased,
    "clustered": order_clustered,
    "largest influence": order_by_influence,
    "poisoning": order_poisoning,
}


def fit(problem: Problem) -> State:
    """Return the sums at the fit of all rows."""
    return learn(problem.objective, problem.train)


def influences(problem: Problem, summary: State) -> Matrix:
    """Return W^-1 H^-1 w_i g_i for each row, (n, d k): how removing it moves the model.

    Under "mean" scaling a row's gradient g_i holds its share of the penalty. With a
    separable kink the model moves on its support alone, and H is taken there.
    """
    objective, rows, theta = problem.objective, problem.train, summary.anchor
    slopes = objective.loss.slope(rows.y, predict(objective.loss, rows, theta=theta))
    lifted = np.einsum("ia,ic->iac", rows.dense(), slopes.reshape(len(rows), -1))
    gradients = lifted.reshape(len(rows), -1)
    if objective.scaling == "mean":
        quadratic = objective.quadratic_gradient(theta)
        smooth = summary.sums.gradient / summary.sums.weight + quadratic
        gradients += quadratic + objective.nearest_subgradient(theta, smooth)
    gradients *= rows.weight[:, None] / summary.sums.weight
    on_support = objective.penalty.separable and not objective.smooth
    support = np.flatnonzero(theta) if on_support else np.arange(theta.size)
    moved: Matrix = np.zeros_like(gradients)
    if support.size:
        mean = summary.sums.loss_hessian / summary.sums.weight
        H = Symmetric.from_dense(add_quadratic(objective, mean).dense())
        moved[:, support] = _solve(H.submatrix(support), gradients[:, support])
    return moved


def _solve(H: Symmetric, gradients: Matrix) -> Matrix:
    """Return H^-1 applied to each row, H held up where it is flat."""
    shift = np.full(H.size, SHIFT * float(H.diagonal.mean()))
    solved: Matrix = H.add_diagonal(shift).cholesky().solve(gradients.T).T
    return solved


def _require_enough(there: int, wanted: int, what: str) -> None:
    """Refuse a stream longer than the people it may name."""
    if not 0 <= wanted <= there:
        raise InvalidInput(
            f"the stream asks for {wanted} of {there} {what}; ask for fewer"
        )
