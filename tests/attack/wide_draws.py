# SPDX-License-Identifier: Apache-2.0
"""Random problems for models without matrices, as awkward as they come."""

from dataclasses import replace

import numpy as np

from . import draws
from .draws import Generator, Task, chance, pick
from .losses import Array, Loss
from .oracle import Aim, Sample

LOSSES = {
    "logistic": 0.22,
    "softmax": 0.28,
    "one-vs-rest": 0.18,
    "rest-squared": 0.06,
    "squared": 0.16,
    "huber": 0.05,
    "hinge": 0.05,
}
CODED = ("softmax", "one-vs-rest", "rest-squared")


def task(rng: Generator, *, nuclear: bool = False) -> Task:
    """Return a problem: small enough for the oracle, of any shape."""
    n, d = int(rng.integers(6, 70)), int(rng.integers(1, 7))
    if chance(rng, 0.08):  # more columns than rows
        n, d = int(rng.integers(6, 20)), int(rng.integers(12, 28))
    aim = _aim(rng, d, nuclear=nuclear)
    X = _design(rng, n, d)
    if chance(rng, draws.EXTREMES):
        size = 10.0 ** (rng.choice([-1.0, 1.0]) * rng.uniform(3.0, 20.0))
        X = X * size
        if chance(rng, 0.7):
            square = size * size
            aim = replace(aim, alpha=aim.alpha * square, ridge=aim.ridge * square)
    y = _labels(rng, aim.loss, X)
    return Task(aim, Sample(X, y, draws.weights(rng, n)), draws.owners(rng, n))


def _aim(rng: Generator, d: int, *, nuclear: bool) -> Aim:
    """Return an objective with a ridge, nearly always."""
    names = [name for name in LOSSES if not nuclear or name in (*CODED, "squared")]
    share = np.array([LOSSES[name] for name in names])
    name = pick(rng, *names, p=list(share / share.sum()))
    k = int(rng.integers(2, 5)) if name in CODED else 1
    if name == "squared" and (nuclear or chance(rng, 0.5)):
        k = int(rng.integers(2, 4))
    intercept = chance(rng, 0.85)
    free = intercept and chance(rng, 0.05 if name in ("huber", "hinge") else 0.75)
    drawn = Aim(
        Loss(name, k),
        alpha=float(10.0 ** rng.uniform(-5.0, 0.5)),
        ridge=float(10.0 ** rng.uniform(-5.0, 0.0)) if chance(rng, 0.3) else 0.0,
        scaling="sum" if chance(rng, 0.5) else "mean",
        intercept=intercept,
        free=free,
    )
    penalty = pick(rng, "l2", "l1", "net", "group", p=[0.6, 0.12, 0.16, 0.12])
    if nuclear or penalty in ("l1", "group"):
        ridge = float(10.0 ** rng.uniform(-4.0, 0.0)) if chance(rng, 0.97) else 0.0
        drawn = replace(drawn, ridge=ridge)
    if nuclear:
        return replace(drawn, alpha=float(10.0 ** rng.uniform(-4.0, -0.5)))
    if penalty == "group":
        width = d + (intercept and not free)
        groups = rng.integers(0, max(1, width // 2), width)
        codes = np.unique(groups, return_inverse=True)[1]
        return replace(drawn, groups=tuple(int(code) for code in codes))
    ratio = {"l2": 0.0, "l1": 1.0, "net": float(rng.uniform(0.05, 0.95))}[penalty]
    return replace(drawn, l1_ratio=ratio)


def _design(rng: Generator, n: int, d: int) -> Array:
    """Return features; some with a constant column, a far one, or one far row."""
    X = draws.design(rng, n, d)
    if chance(rng, 0.15):
        X[:, -1] = rng.choice([0.0, 1.0, 40.0])
    if chance(rng, 0.15):  # the intercept's column, nearly
        X[:, 0] = 10.0 ** rng.uniform(0.0, 4.0) + 1e-3 * X[:, 0]
    if chance(rng, 0.15):
        X[rng.integers(0, n)] *= 10.0 ** rng.uniform(1.0, 3.0)
    return X


def _labels(rng: Generator, loss: Loss, X: Array) -> Array:
    """Return labels: as the features have them, nearly separable, or a class of one."""
    n, k = len(X), loss.outputs
    if loss.name == "squared" and k > 1:
        eta = X @ rng.standard_normal((X.shape[1], k)) / (np.abs(X).mean() or 1.0)
        return np.asarray(eta + rng.standard_t(2.0, size=(n, k)))
    if loss.name in ("squared", "huber"):
        return draws.labels(rng, loss, X)
    coded = loss.name in CODED
    classes = k if coded else 2
    kind = pick(rng, "plain", "separable", "rare", "blind", p=[0.4, 0.25, 0.25, 0.1])
    if kind == "plain":
        given = replace(loss, name="softmax") if coded else loss
        return draws.labels(rng, given, X)
    if kind == "blind":
        y = rng.integers(0, classes, n)
    else:
        eta = X @ rng.standard_normal((X.shape[1], classes))
        y = np.argmax(eta - eta.mean(axis=0), axis=1)
        if kind == "rare":  # all but a few rows are of one class
            y = np.where(rng.random(n) < 0.85, 0, y)
    y[rng.permutation(n)[:classes]] = np.arange(classes)
    return np.asarray(y, float) if coded else np.asarray(2.0 * y - 1.0)
