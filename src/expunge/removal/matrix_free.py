# SPDX-License-Identifier: Apache-2.0
r"""MatrixFree: removal for models too wide for a Hessian, with the rows at hand.

Its state is O(d k): the last answer, which is the anchor, and the gradient of the
remaining rows there. Removing or adding rows changes it by their gradients, exactly and
without a pass, so how far the anchor is from retraining is known at once. Where that is
near enough the answer stays where it is. Otherwise ``step`` moves it: first by the
preconditioner alone, then by Newton steps whose systems are solved by products over the
rows, or on the support where the penalty has a kink. Each new answer is measured by one
pass, and becomes the anchor.

So there is no third-order term and nothing to trust: the gradient that a radius rests
on is the gradient at the answer.

Where nobody names a mechanism, a rule chooses between ``Newton`` and this one, and is
part of what is promised. With matrices a request takes microseconds to milliseconds and
can be certified without the rows; a fit must build and factor them. Without matrices a
fit is a few passes and a request another pass or two. Matrices pay while they are
small, or where there are so many rows that a pass costs more:

- a block is d k wide, or d if outputs do not interact; it may be 1024 wide, and all
  blocks of a state take at most 256 MiB;
- dense rows, 64 or more for each of its columns, allow a block of 4096 and 1 GiB.

The rule knows the shape of the first fit and constants, no machine and no clock. It is
applied once, at the first fit, and a refit keeps the mechanism: what a certificate says
of it depends on nobody who leaves.

A matrix-free answer is certified by the penalty's curvature. Where there is none (L1
without ridge), or nothing holds a free intercept (a loss with kinks), it cannot be, and
the rule keeps to matrices.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import ClassVar

from scipy import sparse

from ..core.arrays import SAFETY, norm, row_squares
from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..core.solver import LARGEST_HESSIAN, hessian_bytes
from ..core.sums import overview
from ..core.values import stored
from ..exceptions import InvalidInput
from ..wide.measurement import Measurement, measure
from ..wide.preconditioner import Near, ShortCut
from ..wide.solver import minimise_wide, residual_norm
from .changes import SignedRows, apply_rows, change_gradient
from .mechanisms import measure_weight, require_rows
from .newton import Newton
from .state import Draft, Mechanism, State, initial_state, succeed
from .summary import Summary, summarise_measured

SMALLEST_GRADIENT = 1e-9  # to which answers are solved where no budget says
SMALL_BLOCK, SMALL_STATE = 1024, 2**28
LARGE_BLOCK, LARGE_STATE = 4096, 2**30
LONG = 64
AUTO = " (auto)"  # after the name of what the rule chose
MATRICES = 2  # a state's Hessian and inverse; its moment is one block more


@stored
@dataclass(frozen=True, slots=True)
class MatrixFree:
    """Removal without matrices: passes over the rows where the last answer is too far.

    For models of many columns and outputs. It needs the rows, because nothing about
    such a model can be certified without them.
    """

    name: ClassVar[str] = "matrix-free"
    needs_rows: ClassVar[bool] = True
    matrix_free: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Keep the gradient at the anchor, and how predictors are curved there."""
        state = initial_state(summary)
        return state.replace(curvature=summary.curvature, lever=summary.lever)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Change the gradient and the curvature."""
        apply = partial(_apply, spend=spend)
        return apply_rows(state, removed, added=added, apply=apply)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return an answer whose gradient is at most ``enough``, and its state."""
        here = stand_still(state)
        assert here.measured is not None
        goal = enough if enough > 0.0 else SMALLEST_GRADIENT
        if norm(here.measured) <= goal:
            return state, here
        rows = require_rows(state, remaining)
        moved = _move(measure_weight(state, rows), rows, goal=goal)
        return moved, stand_still(moved)


def _apply(state: State, change: SignedRows, *, spend: bool) -> State:
    """Return the state after rows leave or come."""
    after, unit = change_gradient(state, change), change.sign / state.anchor_weight
    sums = overview(
        state.objective.loss,
        change.rows,
        theta=state.anchor,
        lever=state.lever is not None,
    )
    assert state.curvature is not None
    lever = state.lever
    if lever is not None and sums.lever is not None:
        lever = lever + unit * sums.lever
    largest = state.gram_norm
    if change.sign > 0:  # it gains at most the trace of what comes
        trace = float(change.rows.weight @ row_squares(change.rows.X))
        largest = (largest + unit * trace) * SAFETY
    after = after.replace(
        n_updates=state.n_updates + 1,
        curvature=state.curvature + unit * sums.curvature,
        lever=lever,
        gram_norm=largest,
    )
    return succeed(after, state, spend=spend)


def stand_still(state: State) -> Draft:
    """Return the anchor as the answer, with the gradient of the remaining rows."""
    gradient, scale = state.smooth_gradient, state.scale
    nearest = state.objective.nearest_subgradient(state.anchor, gradient / scale)
    measured = gradient + scale * nearest
    return Draft(state.anchor, scale * nearest, measured, measured)


def _move(state: State, rows: RowSource, *, goal: float) -> State:
    """Return the state anchored at a nearer answer, measured on the rows."""
    objective, kept = state.objective.after(state.kept), state.kept
    at = _take_short_cut(state, rows, objective=objective)
    if at is None:
        at = measure(objective, rows, theta=state.anchor)
    # G_U is kept times the objective of the remaining rows.
    solution = minimise_wide(
        objective, rows, start=at, goal=goal / kept, short_cut=state.short_cut
    )
    scales = replace(
        state.scales,
        square_norm=state.scales.square_norm / kept,
        moment=state.scales.moment / kept,
        weight=state.scales.weight / kept,
    )
    summary = summarise_measured(objective, rows, at=solution.at, scales=scales)
    moved = MatrixFree().init(summary)
    moved = moved.replace(
        n_updates=state.n_updates + 1, gram_norm=state.gram_norm / kept
    )
    if solution.short_cut is state.short_cut:  # made from other rows, of other weight
        return moved.replace(short_cut=state.short_cut)
    return keep_short_cut(moved, solution.short_cut)


def keep_short_cut(state: State, made: ShortCut | None) -> State:
    """Return the state with a short cut made from its rows, and what that tells."""
    if made is None:
        return state
    known = min(state.gram_norm, made.largest_eigenvalue)
    return state.replace(short_cut=made, gram_norm=known)


def _take_short_cut(
    state: State, rows: RowSource, *, objective: Objective
) -> Measurement | None:
    """Return the measurement after a short cut; None if none leads nearer.

    A product with the Hessian costs as much as a measurement, so that from near the
    minimiser this is the cheapest step there is.
    """
    if state.short_cut is None:
        return None
    assert state.curvature is not None
    gradient, kept = state.smooth_gradient / state.kept, state.kept
    near = Near(state.anchor, gradient, state.curvature / kept)
    at = measure(objective, rows, theta=state.short_cut.advance(objective, near))
    before = stand_still(state).measured
    assert before is not None
    # Measuring the anchor again costs a pass, which a start a little off does not.
    return at if residual_norm(objective, at) <= 3.0 * norm(before) / kept else None


def choose_mechanism(objective: Objective, rows: RowSource) -> Mechanism:
    """Return Newton or MatrixFree by the rule of this module."""
    n_rows, width = len(rows), rows.n_columns
    block = width if objective.loss.independent else width * objective.loss.outputs
    size = MATRICES * hessian_bytes(objective, width)
    is_sparse = isinstance(rows, Rows) and sparse.issparse(rows.X)
    long = n_rows >= LONG * block and not is_sparse
    small = block <= SMALL_BLOCK and size <= SMALL_STATE
    pays = small or (long and block <= LARGE_BLOCK and size <= LARGE_STATE)
    return Newton() if pays or not _can_certify(objective) else MatrixFree()


def mechanism_name(mechanism: Mechanism) -> str:
    """Return what certificates call a mechanism."""
    return str(getattr(mechanism, "name", type(mechanism).__name__.lower()))


def settle_mechanism(
    given: Mechanism | None, objective: Objective, *, rows: RowSource
) -> tuple[Mechanism, str]:
    """Return the mechanism given, or the rule's own, and what certificates call it."""
    if given is not None:
        return given, mechanism_name(given)
    chosen = choose_mechanism(objective, rows)
    return chosen, mechanism_name(chosen) + AUTO


def require_matrices(objective: Objective, n_columns: int) -> None:
    """Refuse a model whose rows are not kept if its matrices would be too large."""
    size = hessian_bytes(objective, n_columns)
    if size > LARGEST_HESSIAN:
        raise InvalidInput(
            f"keep_data=False with {n_columns} columns and {objective.loss.outputs} "
            f"outputs: without rows every removal is certified by matrices, and one "
            f"would take {size / 1e9:.1f} GB (the limit is {LARGEST_HESSIAN / 1e9:.1f} "
            "GB); set keep_data=True, or reduce the features"
        )


def _can_certify(objective: Objective) -> bool:
    """Whether the penalty holds every coefficient, and the loss a free intercept."""
    held = not objective.n_free or isfinite(objective.loss.self_concordance)
    return objective.quadratic > 0.0 and held
