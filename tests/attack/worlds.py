# SPDX-License-Identifier: Apache-2.0
"""Attack what two worlds show: classes without weight, and who it was that left.

*Balanced* classes, of which one (mostly the first) has no weight, or loses it: a
request is answered or refused as a fit to the remaining rows is, and both answers are
within their radii. Without a budget nothing is promised: a request may then be answered
from the last answer where rounding stops a fit from nothing.

*Cards*: a model is fitted with one person or with another, who leaves. Nothing that the
estimator shows afterwards, noise aside, may tell which of the two it was.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
)
from expunge.exceptions import NotConverged, NotPositiveDefinite
from expunge.linear_model.base import private_model
from tests.test_cards import shown_without_noise, used_budget

from . import draws
from .draws import Generator, chance, pick
from .estimators import WORDS
from .judge import Checker
from .peek import draft_of

REQUESTS = 5
ROUNDED = (NotConverged, NotPositiveDefinite)


def attack_balanced(rng: Generator, checker: Checker) -> None:
    """Fit balanced classes, let people leave, and fit again to compare."""
    n, n_classes = int(rng.integers(12, 50)), int(rng.integers(2, 4))
    X = draws.design(rng, n, int(rng.integers(1, 5)))
    codes = rng.integers(0, n_classes, n)
    words, weight, owners = WORDS[codes], draws.weights(rng, n), draws.owners(rng, n)
    light = 0 if chance(rng, 0.6) else int(rng.integers(0, n_classes))
    spared = rng.random(n) < float(rng.choice([0.0, 0.1, 0.5]))
    weight[(codes == light) & ~spared] = 0.0
    face = LogisticRegression if n_classes == 2 else SoftmaxRegression
    estimator = face(
        alpha=float(10.0 ** rng.uniform(-4.0, 0.0)),
        class_weight="balanced",
        penalize_intercept=True,
        mechanism=pick(rng, "newton", "retrain", "jackknife"),
        classes=WORDS[:n_classes].tolist() if chance(rng, 0.5) else None,
        preprocessing=StandardScaler() if chance(rng, 0.3) else None,
        budget=_budget(rng),
        random_state=0,
    )
    stay = np.ones(n, dtype=bool)

    def fit(rows: Any) -> Any:
        model = clone(estimator)
        return model.fit(X[rows], words[rows], owners[rows], sample_weight=weight[rows])

    with checker.note_refusals() as refusal:
        model = fit(stay)
    if refusal:
        return
    for _ in range(REQUESTS):
        people = np.unique(owners[stay])
        gone = rng.choice(people, min(len(people), int(rng.integers(1, 4))), False)
        after = stay & ~np.isin(owners, gone)
        if not weight[after].any():
            return
        ours = _outcome(checker, partial(model.forget, gone.tolist()))
        fresh = _outcome(checker, partial(fit, after))
        both = isinstance(ours, Exception) == isinstance(fresh, Exception)
        both = both or (model.budget is None and isinstance(fresh, ROUNDED))
        checker.check(both, f"{_name(ours)} where a fit gives {_name(fresh)}")
        if isinstance(ours, Exception) or isinstance(fresh, Exception):
            return
        stay, same = after, np.array_equal(model.classes_, fresh.classes_)
        checker.check(same, f"classes {model.classes_}, a fit has {fresh.classes_}")
        if same:
            ours, theirs = draft_of(model), draft_of(fresh)
            allowed = sum(
                private_model(each).answer.radius.value for each in (model, fresh)
            )
            distance = float(np.linalg.norm(ours - theirs))
            said = f"{distance:.3g} from a fit, of {allowed:.3g}"
            checker.check(distance <= allowed + 1e-12, said)


def attack_cards(rng: Generator, checker: Checker) -> None:
    """Fit two models that differ in who will leave, and compare what both show."""
    n, d = int(rng.integers(12, 40)), int(rng.integers(1, 5))
    X, kind = rng.standard_normal((n, d)), pick(rng, "labels", "classes", "targets")
    outputs = {"labels": 2, "classes": 3, "targets": 0}[kind]
    y: Any = rng.standard_normal(n)
    if outputs:
        y = np.append(np.arange(outputs), rng.integers(0, outputs, n - outputs))
    who = [f"person {i // 2}" for i in range(n)]
    face = {
        "labels": LogisticRegression,
        "classes": SoftmaxRegression,
        "targets": LinearRegression,
    }[kind]
    steps = pick(rng, "none", "scaled", "both", p=[0.5, 0.3, 0.2])
    settings: dict[str, Any] = {
        "alpha": float(10.0 ** rng.uniform(-3.0, -1.0)),
        "penalize_intercept": chance(rng, 0.7),
        "mechanism": pick(rng, "auto", "newton", "jackknife", "retrain", "matrix-free"),
        "random_state": 1,
    }
    if steps != "none":
        scaler: Any = StandardScaler()
        both = make_pipeline(MaxAbsScaler(), StandardScaler())
        settings["preprocessing"] = scaler if steps == "scaled" else both
    if outputs and chance(rng, 0.3):
        settings["classes"] = list(range(outputs + 1))
    sigma, shown = float(10.0 ** rng.uniform(-3.0, 1.0)), []
    for odd in (False, True):
        row = X[0] * (10.0 ** rng.uniform(0.5, 2.0) if odd else 1.0)
        label = y[0] if not outputs else outputs if odd else int(y[0])
        settings["budget"] = replace(used_budget(), sigma=sigma)
        with checker.note_refusals() as refusal:
            model: Any = face(**settings).fit(
                np.vstack([X, row]), [*y, label], [*who, "leaver"]
            )
            shown.append(shown_without_noise(model.forget(["leaver"])))
        if refusal:
            return
    for name, one in shown[0].items():
        checker.check(one == shown[1][name], f"{name} tells who left a {face.__name__}")


def _budget(rng: Generator) -> Budget | None:
    if chance(rng, 0.3):
        return None
    return Budget(sigma=float(10.0 ** rng.uniform(-4.0, 1.0)), allow_seeded=True)


def _outcome(checker: Checker, make: Callable[[], Any]) -> Any:
    """Return what was made, or the error that came instead."""
    with checker.note_refusals() as refusal:
        return make()
    return refusal.error


def _name(outcome: object) -> str:
    return type(outcome).__name__ if isinstance(outcome, Exception) else "an answer"
