# SPDX-License-Identifier: Apache-2.0
"""Attack adopted models: scikit-learn's own objective on the remaining rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from expunge import from_sklearn

from . import draws
from .core import MECHANISMS
from .draws import Generator, chance, pick
from .estimators import WORDS, balance, budget_of, check_against_fit
from .judge import Checker
from .losses import Array, Loss
from .oracle import LONG, Aim, Sample

# Enough to start with: the package solves again from where scikit-learn stopped.
STEPS = 30


@dataclass(frozen=True, eq=False)
class Given:
    """An estimator, what it minimises, and its rows for the oracle.

    Attributes
    ----------
    estimator
        Not fitted yet.
    aim
        Its objective, alpha as it is at the weight of all rows.
    sample, labels
        The rows, and the labels that the estimator is given.
    handed
        Weights passed to fit, without those of classes.
    balanced
        Whether its weights follow from the labels of the rows that are left.
    """

    estimator: Any
    aim: Aim
    sample: Sample
    labels: Array
    handed: Array | None = None
    balanced: bool = False

    def remaining(self, stay: Array) -> Sample:
        """Return the remaining rows, with the weights that a fit to them has."""
        rest = self.sample.take(stay)
        if not self.balanced:
            return rest
        weight = balance(self.labels[stay], np.ones(len(rest.y)))
        return replace(rest, weight=weight)


def attack(rng: Generator, checker: Checker) -> None:
    """Adopt a model, remove people, and check every release."""
    n, d = int(rng.integers(10, 80)), int(rng.integers(1, 6))
    X, owners = draws.design(rng, n, d), draws.owners(rng, n)
    given = READERS[pick(rng, *READERS)](rng, X)
    with checker.note_refusals() as refusal:
        model = adopt_model(rng, given, owners)
    if refusal:
        return
    task = draws.Task(given.aim, given.sample, owners)
    stay = np.ones(n, dtype=bool)
    check_release(checker, model, given, stay)
    for people in draws.requests(rng, task, 5):
        after = stay & ~task.rows_of(people)
        kept = given.labels[after]
        if not given.sample.weight[after].any() or (
            given.labels.dtype.kind == "U"
            and len(np.unique(kept)) < len(np.unique(given.labels))
        ):
            continue
        with checker.note_refusals() as refusal:
            model.forget(people)
        if not refusal:
            stay = after
            check_release(checker, model, given, stay)


def adopt_model(rng: Generator, given: Given, owners: Array) -> Any:
    """Fit an estimator by scikit-learn, and adopt it under some budget."""
    X = given.sample.X
    mechanism = pick(rng, *MECHANISMS)
    given.estimator.fit(X, given.labels, **_fit_weights(given))
    return from_sklearn(
        given.estimator,
        X,
        given.labels,
        owners.tolist(),
        sample_weight=given.handed,
        mechanism=MECHANISMS[mechanism],
        budget=budget_of(rng),
        random_state=1,
    )


def check_release(checker: Checker, model: Any, given: Given, stay: Array) -> None:
    """Check one release."""
    words = given.labels.dtype.kind == "U"
    classes = np.unique(given.labels[stay]) if words else np.array([])
    rest = given.aim, given.remaining(stay), classes
    name = type(given.estimator).__name__
    check_against_fit(checker, model, rest, given.sample.total, f"{name}: ")


def _fit_weights(given: Given) -> dict[str, Any]:
    """Return the weights for an estimator's fit, if there are any."""
    return {} if given.handed is None else {"sample_weight": given.handed}


def _binary(rng: Generator, X: Array) -> Array:
    return draws.labels(rng, Loss("logistic"), X)


def _codes(rng: Generator, X: Array, k: int) -> Array:
    return draws.labels(rng, Loss("softmax", k), X)


def _some_weights(rng: Generator, n: int) -> Array:
    weight = draws.weights(rng, n)
    return np.maximum(weight, 1e-6)


def logistic(rng: Generator, X: Array) -> Given:
    """Return a LogisticRegression of two classes or more, by some solver."""
    k = int(rng.integers(2, 5))
    y = _binary(rng, X) if k == 2 else _codes(rng, X, k)
    words = WORDS[(y.astype(int) + 1) // 2] if k == 2 else WORDS[y.astype(int)]
    C = float(10.0 ** rng.uniform(-2.0, 2.0))
    class_weight, handed, weight = _class_weights(rng, words)
    solver = pick(rng, "lbfgs", "liblinear", "saga") if k == 2 else "lbfgs"
    ratio = float(rng.choice([0.0, 0.0, 1.0])) if solver != "lbfgs" else 0.0
    if solver == "saga" and ratio:
        ratio = float(rng.uniform(0.1, 1.0))
    fit_intercept = chance(rng, 0.8)
    estimator = linear_model.LogisticRegression(
        C=C, solver=solver, l1_ratio=ratio, fit_intercept=fit_intercept,
        class_weight=class_weight, max_iter=STEPS,
    )  # fmt: skip
    aim = Aim(
        Loss("logistic") if k == 2 else Loss("softmax", k),
        alpha=_inverse(C, weight),
        l1_ratio=ratio,
        scaling="sum",
        intercept=fit_intercept,
        free=fit_intercept and solver != "liblinear",
    )
    sample = Sample(X, y, weight)
    return Given(estimator, aim, sample, words, handed, class_weight == "balanced")


def _class_weights(rng: Generator, words: Array) -> tuple[Any, Array | None, Array]:
    """Return class weights, the weights passed to fit, and their product."""
    n, ones = len(words), np.ones(len(words))
    kind = pick(rng, "none", "numbers", "balanced", p=[0.7, 0.15, 0.15])
    there, codes, counts = np.unique(words, return_inverse=True, return_counts=True)
    if kind == "balanced":
        return "balanced", None, (n / (len(there) * counts))[codes]
    handed = _some_weights(rng, n) if chance(rng, 0.5) else None
    given = ones if handed is None else handed
    if kind == "none":
        return None, handed, given
    factors = rng.uniform(0.5, 3.0, len(there))
    numbers = {str(w): float(f) for w, f in zip(there, factors, strict=True)}
    return numbers, handed, given * factors[codes]


def _inverse(C: float, weight: Array) -> Any:
    """Return 1/(C W) in extended precision."""
    return 1 / (LONG(C) * weight.astype(LONG).sum())


def one_vs_rest(rng: Generator, X: Array) -> Given:
    """Return binary models side by side."""
    k, C = int(rng.integers(3, 5)), float(10.0 ** rng.uniform(-2.0, 2.0))
    y = _codes(rng, X, k)
    inner = linear_model.LogisticRegression(C=C, max_iter=STEPS)
    weight = np.ones(len(X))
    aim = Aim(Loss("one-vs-rest", k), alpha=_inverse(C, weight), scaling="sum")
    sample = Sample(X, y, weight)
    return Given(OneVsRestClassifier(inner), aim, sample, WORDS[y.astype(int)])


def ridge(rng: Generator, X: Array) -> Given:
    """Return a Ridge, of one target or several."""
    k, a = int(rng.integers(1, 4)), float(10.0 ** rng.uniform(-3.0, 2.0))
    y = np.column_stack([draws.labels(rng, Loss("squared"), X) for _ in range(k)])
    y = y[:, 0] if k == 1 else y
    weight = _some_weights(rng, len(X))
    intercept = chance(rng, 0.8)
    aim = Aim(
        Loss("squared", k),
        alpha=LONG(a) / weight.astype(LONG).sum(),
        scaling="sum",
        intercept=intercept,
        free=intercept,
    )
    estimator = linear_model.Ridge(alpha=a, fit_intercept=intercept)
    return Given(estimator, aim, Sample(X, y, weight), y, weight)


def _signs(rng: Generator, X: Array) -> tuple[Array, Array]:
    """Return signs, (n,) for two classes and (n, k) for more, and the classes."""
    k = int(rng.integers(2, 5))
    if k == 2:
        y = _binary(rng, X)
        return y, WORDS[(y.astype(int) + 1) // 2]
    _, codes = np.unique(_codes(rng, X, k), return_inverse=True)
    there = np.arange(codes.max() + 1)
    if len(there) < 3:
        return 2.0 * codes - 1.0, WORDS[codes]
    return np.where(codes[:, None] == there, 1.0, -1.0), WORDS[codes]


def _outputs(y: Array) -> int:
    return 1 if y.ndim == 1 else y.shape[1]


def ridge_classifier(rng: Generator, X: Array) -> Given:
    """Return a RidgeClassifier: squared error of signs."""
    a, (y, words) = float(10.0 ** rng.uniform(-3.0, 2.0)), _signs(rng, X)
    weight = _some_weights(rng, len(X))
    loss = Loss("squared", _outputs(y))
    aim = Aim(loss, LONG(a) / weight.astype(LONG).sum(), scaling="sum")
    sample = Sample(X, y, weight)
    return Given(linear_model.RidgeClassifier(alpha=a), aim, sample, words, weight)


def support_vectors(rng: Generator, X: Array) -> Given:
    """Return a LinearSVC: squared hinge, the intercept penalised."""
    C, (y, words) = float(10.0 ** rng.uniform(-2.0, 1.0)), _signs(rng, X)
    weight, lasso, intercept = (
        _some_weights(rng, len(X)),
        chance(rng, 0.3),
        chance(rng, 0.8),
    )
    aim = Aim(
        Loss("hinge", _outputs(y)),
        alpha=_inverse(C, weight),
        l1_ratio=float(lasso),
        scaling="sum",
        intercept=intercept,
        free=False,
    )
    estimator = LinearSVC(
        C=C, penalty="l1" if lasso else "l2", dual=False, fit_intercept=intercept,
        max_iter=STEPS,
    )  # fmt: skip
    return Given(estimator, aim, Sample(X, y, weight), words, weight)


def elastic_net(rng: Generator, X: Array) -> Given:
    """Return a Lasso or an ElasticNet."""
    a, y = float(10.0 ** rng.uniform(-3.0, 0.5)), draws.labels(rng, Loss("squared"), X)
    ratio = 1.0 if chance(rng, 0.4) else float(rng.uniform(0.1, 0.9))
    weight = _some_weights(rng, len(X))
    aim = Aim(Loss("squared"), a, l1_ratio=ratio)
    estimator: Any = linear_model.ElasticNet(alpha=a, l1_ratio=ratio, max_iter=STEPS)
    if ratio == 1.0:
        estimator = linear_model.Lasso(alpha=a, max_iter=STEPS)
    return Given(estimator, aim, Sample(X, y, weight), y, weight)


def other_descent(rng: Generator, X: Array) -> Given:
    """Return an SGDClassifier of another loss than that of log-odds."""
    a, (y, words) = float(10.0 ** rng.uniform(-3.0, 0.0)), _signs(rng, X)
    theirs = pick(rng, "squared_hinge", "squared_error", "huber")
    name = {"squared_hinge": "hinge", "squared_error": "squared"}.get(theirs, theirs)
    estimator = linear_model.SGDClassifier(
        loss=theirs, alpha=a, epsilon=0.3, max_iter=5, learning_rate="constant",
        eta0=1e-4,
    )  # fmt: skip
    aim = Aim(Loss(name, _outputs(y), 0.3), a)
    return Given(estimator, aim, Sample(X, y, np.ones(len(X))), words)


def regression_descent(rng: Generator, X: Array) -> Given:
    """Return an SGDRegressor."""
    a, y = float(10.0 ** rng.uniform(-3.0, 0.0)), draws.labels(rng, Loss("squared"), X)
    theirs = pick(rng, "squared_error", "huber")
    estimator = linear_model.SGDRegressor(
        loss=theirs, alpha=a, epsilon=0.3, max_iter=5, learning_rate="constant",
        eta0=1e-4,
    )  # fmt: skip
    loss = Loss("squared") if theirs == "squared_error" else Loss("huber", 1, 0.3)
    return Given(estimator, Aim(loss, a), Sample(X, y, np.ones(len(X))), y)


def descent(rng: Generator, X: Array) -> Given:
    """Return an SGDClassifier, of two classes or one-vs-rest."""
    k, a = int(rng.integers(2, 5)), float(10.0 ** rng.uniform(-3.0, 0.0))
    y = _binary(rng, X) if k == 2 else _codes(rng, X, k)
    words = WORDS[(y.astype(int) + 1) // 2] if k == 2 else WORDS[y.astype(int)]
    penalty = pick(rng, "l2", "l1", "elasticnet")
    ratio = {"l2": 0.0, "l1": 1.0}.get(penalty, 0.3)
    estimator = linear_model.SGDClassifier(
        loss="log_loss", penalty=penalty, alpha=a, l1_ratio=0.3, max_iter=5
    )
    loss = Loss("logistic") if k == 2 else Loss("one-vs-rest", k)
    aim = Aim(loss, a, l1_ratio=ratio)
    return Given(estimator, aim, Sample(X, y, np.ones(len(X))), words)


READERS: dict[str, Callable[[Generator, Array], Given]] = {
    "logistic": logistic,
    "one-vs-rest": one_vs_rest,
    "ridge": ridge,
    "ridge-classifier": ridge_classifier,
    "elastic-net": elastic_net,
    "descent": descent,
    "support-vectors": support_vectors,
    "other-descent": other_descent,
    "regression-descent": regression_descent,
}
