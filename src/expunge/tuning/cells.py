# SPDX-License-Identifier: Apache-2.0
r"""Cells: one removable model for each candidate, on one set of training rows.

All candidates of a fold are looked at together: one product with the rows gives the
gradients of all of them. How far a cell's answer may be from the exact minimiser on
the rows that remain is not known until the rows have been looked at, for without
them bounds at a small alpha say nothing.

Between requests a cell keeps one d x d matrix, the Hessian of the remaining rows.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Literal, TypeAlias

import numpy as np

from .._typing import Vector
from ..blocks import largest_moves, slopes_at_each
from ..linalg import Cholesky, Minimum
from ..mechanisms import Draft, State
from ..mechanisms.base import answer, at_kinkless, kinked_model
from ..mechanisms.downdate import (
    drop_gradient,
    drop_matrices,
    initial_state,
    what_remains,
    with_sums,
)
from ..objective import Objective
from ..private import Private
from ..radius.ingredients import gradient_error, strong_convexity
from ..rows import Rows
from ..solvers import Model, minimise, require_converged
from ..summary import Summary, summarise
from ..unlearn import REFUSALS
from .yardstick import (
    UNKNOWN,
    Reach,
    Sight,
    Yardstick,
    largest_step,
    reach_of,
    shrinkage,
)

# A step that leaves more than this of the gradient calls for a dearer one.
CONTRACTION = 0.3
# Below this a bound on the largest move of a predictor is as good as a look at it.
SMALL_MOVE = 0.5


Anchorage: TypeAlias = Literal["before", "shared", "own", "solved"]
"""Where a cell's Hessian was taken, the dearer the later.

Before the request; at a point amid the answers of all folds; at an answer of its own;
at the minimiser, by the solver.
"""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Cell(Private):
    """One candidate's model on one set of rows.

    Attributes
    ----------
    state, draft
        The removal's state, and its answer.
    reach
        How far the minimiser on the rows that remain may be.
    factor
        Of H_U; None between requests.
    kappa
        With H_U >= kappa H_A for the yardstick's H_A; None until it is looked for.
    anchorage
        Where the anchor comes from in this request, see ``Anchorage``.
    """

    state: State
    draft: Draft
    reach: Reach = UNKNOWN
    factor: Cholesky | None = None
    kappa: float | None = None
    anchorage: Anchorage = "before"

    @property
    def solved(self) -> bool:
        """Whether the answer is as good as the solver gets it."""
        return self.anchorage == "solved"

    @property
    def steepness(self) -> float:
        """Norm of the measured gradient, in units of the rows that remain."""
        assert self.draft.measured is not None
        return float(np.linalg.norm(self.draft.measured)) / self.state.kept


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Training(Private):
    """The rows that a row of cells is trained on: views, and a way to copy them."""

    parts: tuple[Rows, ...]
    gathered: Callable[[], Rows]


def solved_cell(objective: Objective, rows: Rows, start: Vector | None) -> Cell:
    """Return the cell anchored at the minimiser on these rows; its reach is unknown."""
    solution = minimise(objective, rows, start)
    require_converged(objective, rows, solution)
    theta, subgradient = solution.theta, solution.subgradient
    summary = summarise(objective, rows, theta, subgradient, moment=False)
    measured = solution.gradient + solution.subgradient
    draft = Draft(summary.theta, subgradient, measured)
    return Cell(anchored(summary), draft, anchorage="solved")


def anchored(summary: Summary) -> State:
    """Return the state of a summary, with a Hessian and no moment."""
    return with_sums(initial_state(summary), summary, moment=False)


def without(cell: Cell, removed: Rows, rows: Training) -> Cell:
    """Return the cell without these rows, with its answer, not yet looked at.

    A cell that cannot answer is solved anew on what remains, as retraining would.
    """
    try:
        return stepped(dropped(cell.state, removed))
    except REFUSALS:
        return solved(cell, rows)


def dropped(state: State, removed: Rows) -> State:
    """Return the state without these rows; the old one stands."""
    if not len(removed):
        return state
    weight, n_rows = what_remains(state, removed)
    gradient = drop_gradient(state, removed)
    lighter = state.having(weight=weight, n_rows=n_rows, gradient=gradient)
    return drop_matrices(lighter, removed, spend=False)


def stepped(state: State) -> Cell:
    """Return the cell whose answer minimises the state's model around its anchor."""
    factor = state.smooth_hessian().cholesky()
    minimum = _model(state, factor)(state.anchor, state.smooth_gradient)
    state, draft = answer(state, minimum)
    return Cell(state, draft, factor=factor)


def moved(cell: Cell, state: State) -> Cell:
    """Return the cell at another anchor, a state of the same rows, with its answer."""
    # G_U is in units of the weight at the anchor, and so are its derivatives.
    unit, draft = 1.0 / cell.state.kept, cell.draft
    measured = None if draft.measured is None else unit * draft.measured
    answer = Draft(draft.theta, unit * draft.subgradient, measured)
    factor = state.smooth_hessian().cholesky()
    return Cell(state.having(last=draft.theta), answer, factor=factor)


def looked(
    cells: Sequence[Cell],
    which: Collection[int],
    yardsticks: Sequence[Yardstick],
    rows: Training,
) -> list[Cell]:
    """Return the cells, those at these places with gradient and reach measured."""
    seen, places = list(cells), sorted(which)
    if not places:
        return seen
    chosen = [cells[place] for place in places]
    loss = chosen[0].state.objective.loss
    thetas = np.array([cell.draft.theta for cell in chosen])
    slopes = np.sum([slopes_at_each(loss, part, thetas) for part in rows.parts], axis=0)
    moves = _moves(chosen, [yardsticks[place] for place in places], rows)
    for place, cell, slope, move in zip(places, chosen, slopes, moves, strict=True):
        measured = replace(cell, draft=_measured(cell, slope))
        seen[place] = _reaching(measured, yardsticks[place], float(move))
    return seen


def _reaching(cell: Cell, yardstick: Yardstick, move: float) -> Cell:
    """Return a cell that has looked at the rows with its reach."""
    state, factor, kappa = cell.state, cell.factor, cell.kappa
    if factor is None:
        factor = state.smooth_hessian().cholesky()
    if kappa is None:
        kappa = shrinkage(yardstick, state)
    floor = max(strong_convexity(state), kappa * yardstick.floor)
    sight = Sight(factor, move, floor, yardstick.spread / sqrt(kappa) if kappa else inf)
    reach = reach_of(state, cell.draft, sight)
    return replace(cell, reach=reach, factor=factor, kappa=kappa)


def sharpened(
    cells: Sequence[Cell],
    which: Collection[int],
    yardsticks: Sequence[Yardstick],
    rows: Training,
) -> list[Cell]:
    """Return the cells, those at these places a chord step further.

    A cell whose gradient does not shrink enough comes back as it was.
    """
    return _kept_if_shrunk(cells, which, yardsticks, rows, _chord)


def renewed_alone(
    cells: Sequence[Cell],
    which: Collection[int],
    yardsticks: Sequence[Yardstick],
    rows: Training,
) -> list[Cell]:
    """Return the cells, those at these places a step further by a Hessian of their own.

    A cell whose gradient does not shrink is solved, by steps that are searched; after
    that it is left alone, so that sharpening ends.
    """

    def renew(cell: Cell) -> Cell:
        objective = cell.state.objective.after(cell.state.kept)
        theta = cell.draft.theta
        summary = summarise(objective, rows.gathered(), theta, moment=False)
        return replace(stepped(anchored(summary)), anchorage="own")

    tried = _kept_if_shrunk(cells, which, yardsticks, rows, renew)
    stuck = [place for place in which if tried[place] is cells[place]]
    for place in stuck:
        tried[place] = solved(cells[place], rows)
    return looked(tried, stuck, yardsticks, rows)


def _kept_if_shrunk(
    cells: Sequence[Cell],
    which: Collection[int],
    yardsticks: Sequence[Yardstick],
    rows: Training,
    step: Callable[[Cell], Cell],
) -> list[Cell]:
    """Return the cells, those at these places stepped on where it shrinks the gradient.

    In units of the rows that remain: those of G_U change with the anchor.
    """
    tried = list(cells)
    for place in which:
        with suppress(*REFUSALS):
            tried[place] = step(cells[place])
    moved = [place for place in which if tried[place] is not cells[place]]
    tried = looked(tried, moved, yardsticks, rows)
    for place in moved:
        if not tried[place].steepness <= CONTRACTION * cells[place].steepness:
            tried[place] = cells[place]
    return tried


def solved(cell: Cell, rows: Training) -> Cell:
    """Return the cell solved on the rows that remain, by steps that are searched."""
    objective = cell.state.objective.after(cell.state.kept)
    try:
        return solved_cell(objective, rows.gathered(), cell.draft.theta)
    except REFUSALS:
        return solved_cell(objective, rows.gathered(), None)


def at_rest(cell: Cell) -> Cell:
    """Return the cell as it waits for the next request, without its factor."""
    return Cell(cell.state, cell.draft)


def vanishes(cell: Cell) -> bool:
    """Whether every penalised coefficient of the minimiser is certified to be zero.

    Then it is the model of the intercept alone, the same for every alpha. A
    coefficient that is not zero has a gradient of exactly the penalty's slope, and
    within the radius the gradient of this one cannot grow that large.
    """
    state, draft, radius = cell.state, cell.draft, cell.reach.radius
    objective, end = state.objective, draft.theta.size - state.objective.n_free
    if objective.smooth or not objective.penalty.separable or not isfinite(radius):
        return False
    if draft.measured is None or draft.theta[:end].any():
        return False
    gradient = draft.measured - draft.subgradient
    steepness = objective.loss.curvature_bound * state.scales.square_norm
    moved = float(np.linalg.norm(draft.theta - state.anchor))
    slack = (steepness + objective.quadratic) * radius
    slack += gradient_error(state, draft, moved)
    worst = np.sign(gradient) * (np.abs(gradient) + slack)
    return not objective.shrink(worst, state.scale)[:end].any()


def _chord(cell: Cell) -> Cell:
    """Return the cell a step further by the Hessian that it has."""
    draft, factor = cell.draft, cell.factor
    assert draft.measured is not None and factor is not None
    gradient = draft.measured - draft.subgradient
    minimum = _model(cell.state, factor)(draft.theta, gradient)
    return replace(cell, draft=Draft(minimum.x, minimum.subgradient), reach=UNKNOWN)


def _model(state: State, factor: Cholesky) -> Model:
    """Return the quadratic model of G_U with the Hessian H_U."""
    if not state.objective.smooth:
        return kinked_model(state, state.smooth_hessian())

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return at_kinkless(theta - factor.solve(gradient))

    return argmin


def _moves(
    cells: Sequence[Cell], yardsticks: Sequence[Yardstick], rows: Training
) -> Vector:
    """Return how far each cell's step from its anchor moves a training predictor."""
    steps = np.array([cell.draft.theta - cell.state.anchor for cell in cells])
    moves = np.array(list(map(largest_step, yardsticks, steps)))
    large = np.flatnonzero(moves > SMALL_MOVE)
    if large.size:
        loss = cells[0].state.objective.loss
        found = [largest_moves(loss, part, steps[large]) for part in rows.parts]
        moves[large] = np.max(found, axis=0)
    return moves


def _measured(cell: Cell, slopes: Vector) -> Draft:
    """Return the draft with the gradient of G_U there, from sum w grad loss."""
    state, draft = cell.state, cell.draft
    quadratic = state.scale * state.objective.quadratic_gradient(draft.theta)
    gradient = slopes / state.anchor_weight + quadratic
    return replace(draft, measured=gradient + draft.subgradient)
