# SPDX-License-Identifier: Apache-2.0
"""Tune by fitting every candidate to every fold from the start, at each request.

Where preprocessing is learned in each fold from the rows that the fold trains on, a
removal changes every row of every fold; and a model too wide for matrices has no sums
that rows could be subtracted from. Then only the choice is kept between requests.

A candidate's error is bounded from the certified distance r of its fit to the exact
minimiser: for a row x with weight w, the loss there changes by at most
w (|slope| |x| r + k2 |x|^2 r^2 / 2), k2 the bound on the curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Vector, norm
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.sums import loss_gradient, row_sizes
from ..core.values import Private, stored
from ..engines import DaskEngine
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import Recipe
from ..preprocessing.learning import learn
from ..preprocessing.pipeline_model import balance_of
from ..private_model.answers import Agreement, retrain_answer
from ..promise.radius import Radius
from ..removal import Draft
from ..removal.matrix_free import choose_mechanism
from .choice import Choice, Chooser, ErrorInterval, Rule, Split, pool_intervals
from .tune import require_training


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ChosenByFolds(Private):
    """The choice, without models: they are fitted again at each request."""

    choice: Choice

    def start_of(self, chosen: int) -> Vector | None:
        """Return where the model of a candidate starts: nowhere in particular."""
        del chosen
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Crew:
    """Who fits the folds: the workers of an engine or, without one, this process.

    ``tick`` is called when a candidate has been fitted to a fold.
    """

    engine: DaskEngine | None = None
    tick: Callable[[], None] = lambda: None


ALONE = Crew()


def tune_folds(
    rule: Rule,
    split: Split,
    *,
    choose: Chooser,
    recipe: Recipe | None = None,
    crew: Crew = ALONE,
) -> ChosenByFolds:
    """Return the choice among the candidates, every fold fitted from the start.

    Parameters
    ----------
    rule
        Candidates and folds.
    split
        Rows by fold, raw if there is preprocessing; those of weight zero are gone.
    choose
        Makes the choice from intervals.
    recipe
        What preprocessing does; each fold learns its own.
    crew
        Who fits the folds.
    """
    if rule.n_folds is None:
        raise Unsupported(
            "folds='loo' with preprocessing, or for a model too wide for matrices: it "
            "would be fitted again without each row; give a number of folds"
        )
    require_training(split, InvalidInput)
    folds, fit = range(split.n_folds), partial(_fit_fold, rule, split, recipe=recipe)
    if crew.engine is None:
        found = [fit(fold=fold, tick=crew.tick) for fold in folds]
    else:
        found = crew.engine.map(lambda fold: fit(fold=fold), folds)
        for _ in chain(*found):
            crew.tick()
    total = split.rows.total_weight
    sums = map(list, zip(*found, strict=True))
    pooled = [pool_intervals(parts, weight=total) for parts in sums]
    return ChosenByFolds(choose(pooled, [False] * len(pooled)))


def _fit_fold(
    rule: Rule,
    split: Split,
    *,
    recipe: Recipe | None,
    fold: int,
    tick: Callable[[], None] = lambda: None,
) -> list[ErrorInterval]:
    """Return the sum of losses of each candidate on a fold that it was not fitted to.

    Each candidate starts from the one before it.
    """
    held = split.validation(fold)
    training, held = split.training(fold), held.take(held.weight > 0.0)
    if recipe is not None:
        first = rule.objectives[0]
        training, held = _encode(recipe, training, held=held, objective=first)
    start, tested, sums = None, held if len(held) else None, []
    for objective in rule.objectives:
        draft, radius = _fit_candidate(objective, training, start=start)
        start = draft.theta
        sums.append(bound_loss(objective, tested, draft=draft, radius=radius))
        tick()
    return sums


def _encode(
    recipe: Recipe, training: Rows, *, held: Rows, objective: Objective
) -> tuple[Rows, Rows]:
    """Return raw rows as the features that preprocessing learns from the first."""
    X, (_, _, features) = np.asarray(training.X), learn(recipe, training)
    balance = balance_of(recipe, training, loss=objective.loss)
    weight = training.weight if balance is None else balance.weigh(training).weight
    rows = objective.rows(features.encode(X), training.y, weight)
    if not len(held):
        return rows, held
    seen = features.encode(np.asarray(held.X))
    return rows, objective.rows(seen, held.y, held.weight)


def _fit_candidate(
    objective: Objective, rows: Rows, *, start: Vector | None
) -> tuple[Draft, Radius]:
    """Return the fit of a candidate, and how far it may be from the minimiser."""
    mechanism = choose_mechanism(objective, rows)
    agreement = Agreement(objective, mechanism, None, rows.total_weight)
    answer = retrain_answer(agreement, rows, start=start)
    return answer.draft, answer.radius


def bound_loss(
    objective: Objective, rows: Rows | None, *, draft: Draft, radius: Radius
) -> ErrorInterval:
    """Return bounds on the sum of losses that the exact minimiser has on these rows."""
    if rows is None:
        return ErrorInterval(0.0, 0.0, 0.0)
    loss, theta, r = objective.loss, draft.theta, radius.value
    value, _ = loss_gradient(loss, rows, theta=theta)
    slope, square, _, _ = row_sizes(loss, rows, theta=theta)
    width = slope * r + 0.5 * loss.curvature_bound * square * r * r
    count = len(rows) + theta.size + 16
    # Of the sum, and of every predictor in it.
    rounding = 4.0 * UNIT_ROUNDOFF * count * (value + slope * norm(theta) + slope)
    width = (width + rounding) * SAFETY
    return ErrorInterval(max(value - width, 0.0), value, value + width)
