# SPDX-License-Identifier: Apache-2.0
r"""Fit every candidate to what each fold trains on, and judge it on the fold's rows.

A fold model is a model like any other: it has a state, an answer and a radius. From the
radius follows an interval that holds the loss which the exact minimiser has on the
fold's rows. With V the sum of that loss, g its gradient at the answer, k1 and k2 the
loss's bounds on slope and curvature and r the radius, convexity gives

    -\|g\| r  <=  V(theta*) - V(theta)  <=  \|g\| r + (k2/2) r^2 sum w \|x\|^2

and \|V(theta*) - V(theta)\| <= k1 r sum w \|x\|. Where a loss has no k2, its growth nu
gives (e^(nu R r) - 1) / (nu R) tr H in place of k2 r sum w \|x\|^2, R the longest row
and H the Hessian of V at theta. The gradient of the sum is much shorter than the sum of
the gradients, which cancel where a model fits. In the norm of the Hessian that the
model trains with, the way, the gradient and the rows are far shorter (``metric``).

``tune`` keeps these models between requests. ``tune_folds`` does not: where each fold
learns its own preprocessing, a removal changes every row of every fold; and a model too
wide for matrices has no sums that rows could be subtracted from.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf, isfinite, sqrt
from typing import NamedTuple, TypeVar

import numpy as np

from ..core.arrays import (
    SAFETY,
    UNIT_ROUNDOFF,
    Vector,
    norm,
    row_norms,
    row_squares,
)
from ..core.objective import Objective
from ..core.rows import Rows, in_memory
from ..core.sums import lift_slopes, predict
from ..core.values import UNDERFLOW, Private, stored
from ..engines import Workers
from ..exceptions import ExpungeError, InvalidInput, NotConverged, Unsupported
from ..private_model.answers import FitTerms, retrain_answer
from ..private_model.composition import UNCHANGED, Encoding
from ..promise.floor import NumberFloor
from ..promise.rounding import Rounding, Shift
from ..removal import Draft, Mechanism, State
from ..removal.matrix_free import choose_mechanism
from ..removal.sums import Magnitude
from .choice import Choice, ErrorInterval, Rule, Split, choose, pool_intervals
from .metric import Metric

Task = TypeVar("Task")
Result = TypeVar("Result")


class Held(NamedTuple):
    """The rows of a fold, by which models are judged, and how long they are."""

    rows: Rows
    norms: Vector

    @classmethod
    def of(cls, rows: Rows) -> "Held":
        """Return these rows, measured."""
        return cls(rows, rows.norms())


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FoldModel(Private):
    """One candidate's model on what one fold trains on.

    Attributes
    ----------
    state, draft
        The removal's state and its answer, with the gradient measured on the rows.
    radius, way
        How far the answer may be from the exact minimiser, and the same in the norm of
        the Hessian.
    metric
        How long rows are in that norm.
    loss
        Holds the sum of losses that the exact minimiser has on the fold's own rows.
    solved
        Whether the answer is as good as the solver can make it.
    """

    state: State
    draft: Draft
    radius: float
    way: float
    metric: Metric
    loss: ErrorInterval
    solved: bool = False

    def judged_on(self, held: Held) -> "FoldModel":
        """Return the model with the loss that it has on these rows."""
        loss = bound_loss(
            self.state,
            self.draft,
            radius=self.radius,
            way=self.way,
            metric=self.metric,
            held=held,
        )
        return replace(self, loss=loss)

    def kept(self) -> "FoldModel":
        """Return what a request needs of the model: one matrix."""
        draft = replace(self.draft, residual=None, moved=None)
        return replace(self, state=self.state.replace(cache=None), draft=draft)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ChosenByFolds(Private):
    """The choice, without models: they are fitted again at each request."""

    choice: Choice

    @property
    def start(self) -> Vector | None:
        """Where the fit to all rows starts: nowhere in particular."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class FoldRunner:
    """What fits the folds: the workers of an engine or, without one, this process.

    ``on_fitted`` is called when a candidate has been fitted to a fold, from any thread.
    """

    engine: Workers | None = None
    on_fitted: Callable[[], None] = lambda: None

    def fit_each(
        self, fit: Callable[..., list[Result]], folds: range, *, at_once: bool
    ) -> list[list[Result]]:
        """Return what ``fit(fold=, on_fitted=)`` makes of each fold.

        In this process they are fitted ``at_once``, by threads, or one by one: then
        only one of them holds a copy of its rows.
        """
        if self.engine is None:
            run = run_in_threads if at_once else map
            return list(
                run(lambda fold: fit(fold=fold, on_fitted=self.on_fitted), folds)
            )
        models = self.engine.map(lambda fold: fit(fold=fold), folds)
        for _ in chain(*models):
            self.on_fitted()
        return models


THIS_PROCESS = FoldRunner()


def run_in_threads(
    work: Callable[[Task], Result], tasks: Iterable[Task]
) -> list[Result]:
    """Return the result of each task, in order, computed in threads.

    For work of milliseconds: a thread takes a tenth of one to start.
    """
    tasks = list(tasks)
    if len(tasks) < 2:
        return list(map(work, tasks))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))


def tune_folds(
    rule: Rule,
    split: Split,
    *,
    encoding: Encoding = UNCHANGED,
    runner: FoldRunner = THIS_PROCESS,
) -> ChosenByFolds:
    """Return the choice among the candidates, every fold fitted from the start.

    Parameters
    ----------
    rule
        Candidates and folds.
    split
        Rows by fold, as they are kept; those of weight zero are gone.
    encoding
        What models see of them; each fold learns its own.
    runner
        What fits the folds.
    """
    require_training(split, InvalidInput)
    require_bounded(rule.objectives)
    fit = partial(_judge_fold, rule.objectives, split, encoding=encoding)
    by_fold = runner.fit_each(fit, range(split.n_folds), at_once=False)
    total = split.rows.total_weight
    sums = map(list, zip(*by_fold, strict=True))
    pooled = [pool_intervals(parts, weight=total) for parts in sums]
    return ChosenByFolds(choose(pooled, [False] * len(pooled)))


def _judge_fold(
    objectives: Sequence[Objective],
    split: Split,
    *,
    encoding: Encoding,
    fold: int,
    on_fitted: Callable[[], None] = lambda: None,
) -> list[ErrorInterval]:
    """Return the sum of losses of each candidate on a fold, without the models."""
    models = fit_fold(
        objectives, split, encoding=encoding, fold=fold, on_fitted=on_fitted
    )
    return [model.loss for model in models]


def fit_fold(
    objectives: Sequence[Objective],
    split: Split,
    *,
    encoding: Encoding = UNCHANGED,
    mechanism: Mechanism | None = None,
    fold: int,
    on_fitted: Callable[[], None] = lambda: None,
) -> list[FoldModel]:
    """Return each candidate on what a fold trains on, one started from the other."""
    held = split.validation(fold)
    training, held = split.training(fold), held.take(held.weight > 0.0)
    encoding = encoding.fit_again(training, objectives[0])
    training = in_memory(encoding.encode(training, objectives[0]))
    if len(held):
        held = in_memory(encoding.unweighted.encode(held, objectives[0]))
    models: list[FoldModel] = []
    measured = Held.of(held)
    for objective in objectives:
        start = models[-1].draft.theta if models else None
        try:
            model = fit_model(
                objective, training, held=measured, mechanism=mechanism, start=start
            )
        except NotConverged as error:
            raise NotConverged(
                f"without fold {fold + 1}, at alpha={objective.alpha:g}: {error}; "
                "fewer folds leave more to train on"
            ) from error
        models.append(model)
        on_fitted()
    return models


def fit_model(
    objective: Objective,
    rows: Rows,
    *,
    held: Held,
    mechanism: Mechanism | None,
    start: Vector | None,
) -> FoldModel:
    """Return the model solved on these rows; ``held`` are those of its fold.

    With a ``mechanism``, it can be kept and lose rows.
    """
    kept = mechanism is not None
    mechanism = mechanism or choose_mechanism(objective, rows)
    terms = FitTerms(objective, mechanism, None, rows.total_weight)
    answer = retrain_answer(terms, rows, start=start)
    state, draft, radius = answer.state, answer.draft, answer.radius.value
    loss = bound_loss(state, draft, radius=radius, held=held)
    metric = Metric.measure(state, rows, held=held.rows) if kept else Metric(0.0)
    return FoldModel(state, draft, radius, inf, metric, loss, solved=True)


def bound_loss(
    state: State,
    draft: Draft,
    *,
    radius: float,
    held: Held,
    way: float = inf,
    metric: Metric | None = None,
    eta: Vector | None = None,
    known: NumberFloor | None = None,
) -> ErrorInterval:
    """Return bounds on the sum of losses that the exact minimiser has on these rows.

    ``way`` is the distance in the norm of the Hessian, which takes a ``metric`` to be
    of use; ``eta`` are the rows' predictors, and ``known`` that norm, if known.
    """
    rows, norms = held
    total = rows.total_weight
    if not total > 0.0:  # nobody is left in this fold
        return ErrorInterval(0.0, 0.0, 0.0)
    loss, theta, r = state.objective.loss, draft.theta, radius
    y, weight = rows.y, rows.weight
    eta = predict(loss, rows, theta=theta) if eta is None else eta
    each, slopes = loss.value(y, eta), loss.slope(y, eta)
    value, steepness = float(weight @ each), row_squares(slopes.reshape(len(y), -1))
    if not (isfinite(r) and isfinite(value) and np.isfinite(steepness).all()):
        return ErrorInterval(-inf, value, inf)
    square = float(weight @ norms**2)
    traces = loss.curvature_parts(y, eta).traces()
    shift = Shift(
        loss,
        Magnitude(
            row_norm=float(norms.max(initial=0.0, where=weight > 0.0)),
            slope=inf,
            steepness=inf,
            square_norm=square,
            curvature=float(weight @ traces),
            hessian=float(weight @ (traces * norms**2)),
            moment=inf,
            gram=square,
            weight=total,
        ),
    )
    # Predictors are off by |x| times this, each in its own direction: nothing cancels.
    if known is None:
        known = (metric or Metric(0.0)).norm_at(state)
    kept = known.rounding or Rounding(state)
    off = kept.predictor(theta)
    ulps = 2.0 * UNIT_ROUNDOFF * (len(rows) + theta.size + 16)
    hidden = UNDERFLOW * (len(rows) + total)
    steep = sqrt(float(weight @ steepness) + hidden) * sqrt(square) * SAFETY
    steep += shift.slopes(off)
    rounding = ulps * float(weight @ np.abs(each)) + steep * off + hidden
    if not loss.independent:  # a logarithm of a sum is exact to a share of one
        rounding += ulps * total
    if not shift.is_bounded:  # terms that nearly cancel
        nu = loss.self_concordance
        terms = np.sqrt(steepness) + (2.0 / nu * traces if nu else 0.0)
        far = 1.0 + row_norms(eta.reshape(len(y), -1))
        rounding += 8.0 * UNIT_ROUNDOFF * float(weight @ (terms * far)) * SAFETY
    v = lift_slopes(rows, slopes)
    doubt = ulps * steep + shift.slopes(off)
    doubt += 8.0 * UNIT_ROUNDOFF * shift.cancelling(off)
    doubt += kept.joint * sqrt(total * square)
    slope, steepest = norm(v) + doubt, inf
    if isfinite(loss.slope_bound):
        steepest = loss.slope_bound * float(weight @ norms)
    fall = min(slope, steepest) * r
    # A slope grows along the way by a convex function of it.
    bent = 0.5 * shift.slopes(r, far=off) * r
    if metric is not None and way < inf:
        along = known.dual_norm(v) + doubt / sqrt(known.smallest)
        fall = min(fall, along * way)
        if isfinite(loss.curvature_bound):
            bent = min(bent, 0.5 * loss.curvature_bound * metric.spread * way * way)
        rise = min(slope * r, along * way) + bent
    else:
        rise = slope * r + bent
    rise = min(rise, steepest * r)
    low = value - (fall + rounding) * SAFETY
    return ErrorInterval(low, value, value + (rise + rounding) * SAFETY)


def require_training(split: Split, error: type[ExpungeError]) -> None:
    """Raise ``error`` if some fold has nobody to train on."""
    total = split.rows.total_weight
    for fold in range(split.n_folds):
        if not total - split.validation(fold).total_weight > 1e-12 * total:
            raise error(
                "everyone is in one fold (as one sample or one person always is), so "
                "that nobody is left to train on; tune on more people, or with another "
                "fold_key"
            )


def require_bounded(objectives: Sequence[Objective]) -> None:
    """Raise Unsupported for a loss whose error no interval here would hold."""
    loss = objectives[0].loss
    if not (isfinite(loss.curvature_bound) or isfinite(loss.self_concordance)):
        raise Unsupported(
            f"neither the curvature of {loss!r} has a bound nor its growth, and the "
            "intervals that prove a choice need one; fit a model with a fixed alpha"
        )
