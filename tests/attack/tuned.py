# SPDX-License-Identifier: Apache-2.0
"""Attack tuned models: the choice, its intervals and the radius, by brute force."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf, isfinite
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from expunge.linear_model.tuned import TunedClassifier, TunedRegressor

from . import draws
from .core import MECHANISMS, penalty_of
from .draws import Generator, Task, chance, pick
from .estimators import (
    budget_of,
    check_against_fit,
    empties_a_class,
    labels_of,
    retraining_problem,
)
from .judge import Checker
from .losses import Array
from .oracle import LONG, Aim, Problem, Sample, minimise
from .raw_tables import standardise

KEY = b"fixed beforehand"
LOSSES = ("logistic", "one-vs-rest", "squared", "huber", "hinge")


@dataclass(frozen=True, eq=False)
class Rule:
    """How a model is tuned.

    Attributes
    ----------
    pairs
        Candidates in order of preference.
    n_folds
        How many folds.
    scaled
        Whether a scaler comes first, learned again in every fold.
    """

    pairs: list[tuple[float, float]]
    n_folds: int
    scaled: bool = False

    def prepare(self, sample: Sample, rows: Array | None = None) -> Sample:
        """Return rows as the model sees them, scaled by what other rows teach."""
        if not self.scaled:
            return sample
        return replace(sample, X=standardise(sample.X, rows))


@dataclass(frozen=True)
class Scored:
    """A candidate's cross-validation error, and how far the truth may be from it."""

    value: float
    error: float


def attack(rng: Generator, checker: Checker) -> None:
    """Tune a model, remove people, and check every choice."""
    task, rule = draw_rule(rng)
    model = tuner(rng, task, rule)
    sample = task.sample
    weight = None if (sample.weight == 1.0).all() else sample.weight
    with checker.note_refusals() as refusal:
        model.fit(sample.X, labels_of(task), task.owners.tolist(), weight)
    if refusal:
        return
    stay = np.ones(len(sample.y), dtype=bool)
    check_release(checker, model, (task, rule), stay)
    for people in draws.requests(rng, task, 6):
        after = stay & ~task.rows_of(people)
        emptied = empties_a_class(task, after) and chance(rng, 0.8)
        if not sample.weight[after].any() or emptied:
            continue
        with checker.note_refusals() as refusal:
            model.forget(people)
        if not refusal:
            stay = after
            check_release(checker, model, (task, rule), stay)


def draw_rule(rng: Generator) -> tuple[Task, Rule]:
    """Return a small problem and the candidates for it."""
    n, d = int(rng.integers(10, 50)), int(rng.integers(1, 4))
    aim = draws.aim(rng, LOSSES, d)
    free = aim.free and chance(rng, 0.3)  # a fold may lack a class
    aim = replace(aim, scaling="mean", free=free)
    if aim.groups is not None and len(aim.groups) != d + (aim.intercept and not free):
        aim = replace(aim, groups=None)
    X = draws.design(rng, n, d)
    sample = Sample(X, draws.labels(rng, aim.loss, X), draws.weights(rng, n))
    alphas = sorted(10.0 ** rng.uniform(-4.0, 0.5, int(rng.integers(2, 5))))
    ratios = [0.0]
    if aim.groups is None and aim.l1_ratio > 0.0:
        ratios = [0.0, aim.l1_ratio] if chance(rng, 0.5) else [aim.l1_ratio]
    pairs = sorted(((float(a), r) for a in alphas for r in ratios), reverse=True)
    scaled = aim.groups is None and chance(rng, 0.3)
    rule = Rule(pairs, int(rng.integers(2, 5)), scaled)
    return Task(aim, sample, draws.owners(rng, n)), rule


def tuner(rng: Generator, task: Task, rule: Rule) -> Any:
    """Return the estimator that tunes by a rule."""
    aim = task.aim
    words = {"hinge": "squared_hinge", "huber": "huber"}
    settings: dict[str, Any] = {
        "alphas": sorted({alpha for alpha, _ in rule.pairs}),
        "folds": rule.n_folds,
        "method": pick(rng, "certified", "recomputed", p=[0.8, 0.2]),
        "fold_key": KEY,
        "ridge": aim.ridge,
        "fit_intercept": aim.intercept,
        "penalize_intercept": aim.intercept and not aim.free,
        "mechanism": MECHANISMS[pick(rng, "newton", "jackknife", "retrain")],
        "budget": budget_of(rng),
        "random_state": 1,
        "loss": words.get(aim.loss.name),
    }
    if rule.scaled:
        settings["preprocessing"] = StandardScaler()
    if aim.groups is None:
        settings["l1_ratios"] = sorted({ratio for _, ratio in rule.pairs})
    else:
        settings["penalty"] = penalty_of(aim)
    face = TunedClassifier if task.classes else TunedRegressor
    return face(**settings)


def check_release(
    checker: Checker, model: Any, drawn_as: tuple[Task, Rule], stay: Array
) -> None:
    """Compare choice, intervals and radius with tuning again on the rest."""
    task, rule = drawn_as
    aim, rest, classes = retraining_problem(task, stay)
    chosen = (model.alpha_, model.l1_ratio_)
    at_choice = replace(aim, alpha=chosen[0], l1_ratio=chosen[1])
    check_against_fit(
        checker,
        model,
        (at_choice, rule.prepare(rest), classes),
        rest.total,
        f"alpha {chosen[0]:.3g}: ",
    )
    if model.certificate_.selection == "not covered":
        return
    folds = folds_of(task.owners[stay], rule.n_folds)
    scores = [
        score_folds(replace(aim, alpha=alpha, l1_ratio=ratio), rest, folds, rule)
        for alpha, ratio in rule.pairs
    ]
    if not all(isfinite(score.error) for score in scores):
        checker.note_undecided()
        return
    _judge_choice(checker, chosen, rule, scores)
    if model.method == "certified":
        curve = model.curve_
        values = np.array([score.value for score in scores])
        doubts = np.array([score.error for score in scores])
        inside = (curve.low - doubts <= values) & (values <= curve.high + doubts)
        checker.check(
            bool(inside.all()), f"errors {values[~inside]} outside their bars"
        )


def _judge_choice(
    checker: Checker, chosen: tuple[float, float], rule: Rule, scores: list[Scored]
) -> None:
    """Compare the choice with the smallest error; on a tie, the first candidate."""
    place = rule.pairs.index(chosen)
    mine = scores[place]
    for other, score in enumerate(scores):
        doubt = mine.error + score.error
        if score.value < mine.value - doubt:
            checker.check(
                False,
                f"chose {chosen} with {mine.value:.17g}, candidate {other} has "
                f"{score.value:.17g}",
            )
            return
        if other < place and score.value <= mine.value + doubt:
            checker.note_undecided()  # a tie, as far as can be told
            return
    checker.check(True, "")


def folds_of(owners: Array, n_folds: int) -> Array:
    """Return the fold of each row: by a keyed hash of its owner."""
    digests = [
        blake2b(str(owner).encode(), key=KEY, digest_size=8).digest()
        for owner in owners
    ]
    return np.array([int.from_bytes(d, "big") % n_folds for d in digests])


def score_folds(aim: Aim, sample: Sample, folds: Array, rule: Rule) -> Scored:
    """Return the weighted mean of the loss on rows that the model has not seen."""
    total, error = LONG(0), 0.0
    for value, doubt in _parts(aim, sample, folds, rule):
        total, error = total + value, error + doubt
    mean = float(total / sample.total)
    return Scored(mean, error / float(sample.total) + 1e-15 * abs(mean))


def _parts(
    aim: Aim, sample: Sample, folds: Array, rule: Rule
) -> Iterator[tuple[Any, float]]:
    """Yield the loss of each fold with its possible error."""
    start: Array | None = None
    for fold in np.unique(folds):
        inside = (folds == fold) & (sample.weight > 0.0)
        if not inside.any():
            continue
        # In a fold, rows without weight teach preprocessing nothing.
        training = sample.take((folds != fold) & (sample.weight > 0.0))
        if not training.weight.any():
            yield LONG(0), inf
            return
        optimum = minimise(aim, rule.prepare(training), start=start)
        start = optimum.theta  # the next fold's is not far from it
        unseen = rule.prepare(sample.take(inside), training.X)
        held_out = Problem(aim, unseen, sample.total)
        parts = held_out.parts[np.dtype(LONG)]
        eta = parts["X"] @ optimum.theta.reshape(-1, aim.loss.outputs)
        weight = sample.weight[inside].astype(LONG)
        value = weight @ aim.loss.values(parts["coded"], eta)
        slopes = np.sqrt((aim.loss.slopes(parts["coded"], eta) ** 2).sum(axis=1))
        moved = held_out.lengths * optimum.error
        doubt = weight @ (slopes * moved + aim.loss.largest_curvature * moved**2)
        yield value, float(doubt)
