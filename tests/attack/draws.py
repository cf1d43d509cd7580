# SPDX-License-Identifier: Apache-2.0
"""Random problems and requests, as awkward as real data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .losses import GROWING, Array, Loss
from .oracle import Aim, Sample

Generator = np.random.Generator

LOSSES = ("logistic", "softmax", "one-vs-rest", "squared", "huber", "hinge")
# Responses of which a mean or a quantile is predicted, with offsets or without.
RESPONSES = ("poisson", "gamma", "tweedie", "binomial", "pinball")
# What the core takes too: these, and a loss that the package does not have.
STRANGERS = (*LOSSES, "visits", *RESPONSES)
CLASSIFIERS = ("logistic", "softmax", "one-vs-rest", "hinge")
# How often numbers are near the ends of the allowed range, and how far out.
EXTREMES = 0.04
EXPONENTS = (20.0, 55.0)


@dataclass(frozen=True, eq=False)
class Task:
    """A problem: what is minimised, on which rows, and who owns them."""

    aim: Aim
    sample: Sample
    owners: Array

    @property
    def people(self) -> Array:
        """All people, each once."""
        return np.unique(self.owners)

    def rows_of(self, people: Sequence[str]) -> Array:
        """Return which rows belong to these people, as a mask."""
        return np.isin(self.owners, list(people))

    @property
    def classes(self) -> int:
        """How many classes the labels have; zero for targets."""
        if self.aim.loss.name in ("squared", "huber", "visits", *RESPONSES):
            return 0
        return max(2, self.aim.loss.outputs)


def pick(rng: Generator, *choices: str, p: Sequence[float] | None = None) -> str:
    """Return one of these words."""
    return str(rng.choice(list(choices), p=p))


def one_of(rng: Generator, *choices: Any) -> Any:
    """Return one of these values."""
    return choices[int(rng.integers(0, len(choices)))]


def chance(rng: Generator, probability: float) -> bool:
    """Return true with this probability."""
    return bool(rng.random() < probability)


def design(rng: Generator, n: int, d: int) -> Array:
    """Return features: plain, badly scaled, heavy-tailed, clustered, of few values."""
    kind = pick(rng, "plain", "scaled", "heavy", "clusters", "few", "correlated")
    X = rng.standard_normal((n, d))
    if kind == "scaled":
        X *= 10.0 ** rng.uniform(-3.0, 3.0, size=d)
    elif kind == "heavy":
        X = rng.standard_t(1.2, size=(n, d))
    elif kind == "clusters":
        X = 5.0 * rng.standard_normal((3, d))[rng.integers(0, 3, n)] + 0.3 * X
    elif kind == "few":
        X = rng.integers(-1, 2, size=(n, d)).astype(float)
    elif kind == "correlated":
        X = X[:, :1] + 10.0 ** rng.uniform(-6.0, 0.0) * X
    if chance(rng, 0.3):  # the same row again and again
        X[rng.integers(0, n, n // 3)] = X[rng.integers(0, n)]
    if chance(rng, 0.2):
        X[:, 0] += 10.0 ** rng.uniform(0.0, 3.0)
    if chance(rng, 0.1):  # beside which all others are hardly there
        X[rng.integers(0, n, 1 + n // 10)] *= 10.0 ** rng.uniform(2.0, 7.0)
    return np.asarray(X * 10.0 ** rng.uniform(-1.0, 1.0))


def labels(rng: Generator, loss: Loss, X: Array) -> Array:
    """Return signs, codes or targets that the features partly explain."""
    size = np.abs(X).mean() or 1.0
    eta = X @ rng.standard_normal((X.shape[1], loss.outputs)) / size
    if loss.name in ("softmax", "one-vs-rest"):
        y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1).astype(float)
        y[rng.permutation(len(y))[: loss.outputs]] = np.arange(loss.outputs)
        return np.asarray(y)
    if loss.name in ("logistic", "hinge"):
        y = np.where(eta[:, 0] + rng.logistic(size=len(X)) > 0.0, 1.0, -1.0)
        y[rng.permutation(len(y))[:2]] = (-1.0, 1.0)
        return y
    if loss.offset:
        exposure = 10.0 ** rng.uniform(-1.0, 1.0) * 10.0 ** rng.normal(size=len(X))
        y = labels(rng, replace(loss, offset=False), X)
        return np.column_stack([respond(rng, loss, y, exposure), exposure])
    if loss.name in GROWING:
        if loss.name != "visits" and chance(rng, 0.15):  # explained without an error
            truth = 10.0 ** rng.uniform(-6.0, 0.0) * rng.standard_normal(X.shape[1])
            return np.asarray(np.exp(np.clip(X @ truth, -5.0, 6.0)))
        expected = np.exp(np.clip(eta[:, 0] + rng.uniform(-3.0, 3.0), -5.0, 6.0))
        if loss.name in ("gamma", "tweedie"):
            y = expected * rng.gamma(10.0 ** rng.uniform(-0.5, 1.0), size=len(X))
            y = np.maximum(y, 1e-6)
            there = loss.name == "gamma" or rng.random(len(y)) < 0.5
            return np.asarray(y * there)
        return np.asarray(rng.poisson(expected), dtype=float)
    if chance(rng, 0.2):  # explained without an error, by terms that nearly cancel
        truth = 10.0 ** rng.uniform(0.0, 5.0) * rng.standard_normal(X.shape[1])
        return np.asarray(X @ truth)
    return np.asarray(eta[:, 0] + rng.standard_t(2.0, size=len(X)))


def respond(rng: Generator, loss: Loss, y: Array, exposure: Array) -> Array:
    """Return the responses of rates over an exposure; those of quantiles move."""
    if loss.name == "pinball":
        return np.asarray(y + np.log(exposure))
    if loss.name in ("poisson", "binomial"):
        return np.asarray(rng.poisson(np.minimum(y * exposure, 1e6)), dtype=float)
    return np.asarray(y * exposure)


def weights(rng: Generator, n: int) -> Array:
    """Return weights: mostly ones; or integers, of any size, or one huge weight."""
    kind = pick(rng, "ones", "whole", "wild", "one", p=[0.6, 0.25, 0.13, 0.02])
    if kind == "whole":
        weight = rng.integers(0, 4, n).astype(float)
    elif kind == "wild":
        weight = 10.0 ** rng.uniform(-4.0, 4.0, n)
    elif kind == "one":  # next to which all others round to nothing
        weight = np.ones(n)
        weight[-1] = 10.0 ** rng.uniform(10.0, 17.0)
    else:
        return np.ones(n)
    weight[:2] = np.maximum(weight[:2], 1.0)
    return weight


def owners(rng: Generator, n: int) -> Array:
    """Return the owner of each row: one row each, or several rows per person."""
    if chance(rng, 0.4):
        return np.array([f"p{i}" for i in range(n)])
    return np.array([f"p{i}" for i in rng.integers(0, max(3, n // 2), n)])


def aim(rng: Generator, losses: Sequence[str], d: int, *, kinks: bool = True) -> Aim:
    """Return an objective over d features."""
    name = pick(rng, *losses)
    k = int(rng.integers(3, 5)) if name == "one-vs-rest" else 1
    k = int(rng.integers(2, 5)) if name == "softmax" else k
    intercept = chance(rng, 0.8)
    free = intercept and chance(rng, 0.5)
    penalty = pick(rng, "l2", "l1", "net", "group", p=[0.6, 0.13, 0.17, 0.1])
    # Without curvature softmax has many minimisers, and others may have many.
    bare = kinks and penalty in ("l1", "group")
    ridged = name == "softmax" or chance(rng, 0.7) if bare else chance(rng, 0.3)
    loss = Loss(name, k)
    if name in RESPONSES:
        ends = {"tweedie": (1.005, 1.995), "pinball": (0.02, 0.98)}
        shape = 10.0 ** rng.uniform(-3.0, 1.0)
        if name in ends:
            shape = rng.uniform(*ends[name])
        loss = Loss(name, 1, shape=float(shape), offset=chance(rng, 0.4))
        if name == "pinball":  # which subtracts offsets before it knows of rows
            width = float(10.0 ** rng.uniform(-1.5, 1.0))
            loss = replace(loss, offset=False, width=width)
    drawn = Aim(
        loss,
        alpha=float(10.0 ** rng.uniform(-4.0, 0.5)),
        ridge=float(10.0 ** rng.uniform(-4.0, 0.0)) if ridged else 0.0,
        scaling="sum" if chance(rng, 0.5) else "mean",
        intercept=intercept,
        free=free,
    )
    if not kinks or penalty == "l2":
        return drawn
    if penalty == "group":
        width = d + (intercept and not free)
        groups = np.sort(rng.integers(0, max(1, width // 2), width))
        codes = np.unique(groups, return_inverse=True)[1]
        return replace(drawn, groups=tuple(int(code) for code in codes))
    ratio = 1.0 if penalty == "l1" else float(rng.uniform(0.05, 0.95))
    return replace(drawn, l1_ratio=ratio)


def task(rng: Generator, losses: Sequence[str] = LOSSES, *, kinks: bool = True) -> Task:
    """Return a random problem."""
    n, d = int(rng.integers(8, 100)), int(rng.integers(1, 7))
    drawn = aim(rng, losses, d, kinks=kinks)
    X = design(rng, n, d)
    if chance(rng, EXTREMES):
        drawn, X = _extreme(rng, drawn, X)
    y = labels(rng, drawn.loss, X)
    if drawn.loss.name == "binomial" and chance(rng, 0.6):
        counts = y[:, 0] if drawn.loss.offset else y
        largest = float(max(counts.max(), 1.0))
        drawn = replace(drawn, loss=replace(drawn.loss, largest=largest))
    return Task(drawn, Sample(X, y, weights(rng, n)), owners(rng, n))


def _extreme(rng: Generator, drawn: Aim, X: Array) -> tuple[Aim, Array]:
    """Return an objective and features of extreme size, mostly balanced."""
    factor = 10.0 ** (rng.choice([-1.0, 1.0]) * rng.uniform(*EXPONENTS))
    other = factor if chance(rng, 0.8) else 1.0
    drawn = replace(drawn, alpha=drawn.alpha * other, ridge=drawn.ridge * other)
    if drawn.groups is None and chance(rng, 0.8):
        drawn = replace(drawn, intercept=False, free=False)
    return drawn, X * (factor if chance(rng, 0.8) else 1.0)


def requests(rng: Generator, drawn: Task, n: int = 4) -> Iterator[list[str]]:
    """Yield requests, each naming people who are still in the model.

    Mostly few people; or those of one class, one corner or the largest numbers; nobody;
    or almost everyone, after which there is no further request.
    """
    left = list(drawn.people)
    for _ in range(n):
        if len(left) < 3:
            return
        chosen = _group(rng, drawn, left)
        left = [person for person in left if person not in set(chosen)]
        yield chosen


def _group(rng: Generator, drawn: Task, left: Sequence[str]) -> list[str]:
    """Return some of the people who are left."""
    kind = pick(
        rng, "few", "large", "corner", "class", "many", "nobody",
        p=[0.45, 0.15, 0.15, 0.1, 0.1, 0.05],
    )  # fmt: skip
    if kind == "nobody":
        return []
    sample = drawn.sample
    score = rng.random(len(sample.y))
    if kind == "large":
        score = score - np.linalg.norm(sample.X, axis=1)
    elif kind == "corner":
        score = sample.X[:, 0]
    elif kind == "class":
        y = sample.y.reshape(len(sample.y), -1)[:, 0]
        score = score + (y != rng.choice(y))
    by_person = {p: float(np.min(score[drawn.owners == p])) for p in left}
    order = sorted(left, key=by_person.__getitem__)
    most = max(1, len(left) - 1 if kind == "many" else len(left) // 3)
    return order[: int(rng.integers(1, most + 1))]


def first_people(rng: Generator, drawn: Task) -> list[str]:
    """Return who is in the model from the start: all, or some; the others may come.

    Sometimes those with the shortest rows, or hardly anybody.
    """
    kind = pick(rng, "all", "some", "short", "few", p=[0.4, 0.3, 0.2, 0.1])
    people = list(drawn.people)
    if kind == "all" or len(people) < 4:
        return people
    score = dict(zip(people, rng.random(len(people)), strict=True))
    if kind == "short":
        norms = np.linalg.norm(drawn.sample.X, axis=1)
        score = {p: float(np.max(norms[drawn.owners == p])) for p in people}
    share = rng.uniform(0.05, 0.2) if kind == "few" else rng.uniform(0.3, 0.95)
    order = sorted(people, key=score.__getitem__)
    return order[: max(2, int(share * len(people)))]


def change(
    rng: Generator, drawn: Task, here: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return who leaves and who comes, in one request."""
    away = [person for person in drawn.people if person not in set(here)]
    leaving: list[str] = []
    coming: list[str] = []
    kind = pick(rng, "leave", "come", "replace", p=[0.4, 0.3, 0.3])
    if (kind != "come" or not away) and len(here) >= 3:
        leaving = _group(rng, drawn, here)
    if kind != "leave" and away:
        coming = _group(rng, drawn, away)
    return leaving, coming
