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

from dataclasses import dataclass, field, replace
from math import inf, isfinite, sqrt
from typing import ClassVar

import numpy as np
from scipy import sparse

from ..core.arrays import SAFETY, norm
from ..core.feature_map import FeatureMap
from ..core.losses import Loss
from ..core.measurement import Point, measure
from ..core.objective import Objective
from ..core.preconditioner import Curved
from ..core.rows import Rows, RowSource
from ..core.solver import LARGEST_HESSIAN, ShortCut, hessian_bytes, minimise_wide
from ..core.sums import gram_bound, most_entries, norm_sums
from ..core.values import NOT_STORED, stored
from ..exceptions import InvalidInput
from .newton import Newton
from .state import Cache, Draft, Mechanism, State, anchor_state, require_rows
from .sums import Magnitude, Sums

SMALLEST_GRADIENT = 1e-9  # to which answers are solved where no budget says
SMALL_BLOCK, SMALL_STATE = 1024, 2**28
LARGE_BLOCK, LARGE_STATE = 4096, 2**30
LONG = 64
AUTO = " (auto)"  # after the name of what the rule chose
MATRICES = 2  # a state's Hessian and inverse; its moment is one block more


@stored
@dataclass(frozen=True, repr=False, eq=False)
class MatrixFreeCache(Cache):
    """What leads to the next answer; never stored."""

    short_cut: ShortCut | None = field(default=None, metadata=NOT_STORED)

    def mapped(self, features: FeatureMap) -> "MatrixFreeCache":
        """Return nothing: every request of other features reads the rows again."""
        del features
        return MatrixFreeCache()


@stored
@dataclass(frozen=True, slots=True)
class MatrixFree(Mechanism):
    """Removal without matrices: passes over the rows where the last answer is too far.

    For models of many columns and outputs. It needs the rows, because nothing about
    such a model can be certified without them.
    """

    needs_rows: ClassVar[bool] = True
    keeps_matrices: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What certificates call it."""
        return "matrix-free"

    def init(self, state: State) -> State:
        """Keep the gradient at the anchor, and how predictors are curved there."""
        sums = state.sums.keeping(curvature=True)
        return state.replace(sums=sums, cache=MatrixFreeCache())

    def apply(
        self, state: State, change: Sums, *, leaving: bool, overwrite: bool
    ) -> State:
        """Return the state after rows with these sums leave or come."""
        after = Mechanism.apply(
            self, state, change, leaving=leaving, overwrite=overwrite
        )
        sizes = _bound(after.magnitude, state.objective.loss)
        return after.replace(sums=after.sums.replace(magnitude=sizes))

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return an answer whose gradient is at most ``enough``, and its state."""
        here = self.answer_at_anchor(state)
        assert here.measured is not None
        goal = enough if enough > 0.0 else SMALLEST_GRADIENT * state.sums.weight
        if norm(here.measured) <= goal:
            return state, here
        rows = require_rows(state, remaining)
        moved = _move(state.weighing(rows.total_weight), rows, goal=goal)
        return moved, self.answer_at_anchor(moved)

    def answer_at_anchor(self, state: State) -> Draft:
        """Return the anchor as the answer, with the gradient of the remaining rows."""
        gradient, scale = state.smooth_gradient, state.penalty_weight
        nearest = state.objective.nearest_subgradient(state.anchor, gradient / scale)
        measured = gradient + scale * nearest
        return Draft(state.anchor, scale * nearest, measured, measured)


@np.errstate(over="ignore", invalid="ignore")  # of steps that are not taken
def _move(state: State, rows: RowSource, *, goal: float) -> State:
    """Return the state anchored at a nearer answer, measured on the rows."""
    objective = state.objective.after(state.kept)
    cut = _short_cut(state)
    at = _take_short_cut(state, rows, objective=objective)
    if at is None:
        at = measure(objective, rows, theta=state.anchor)
    solution = minimise_wide(
        objective, rows, start=at, goal=goal / rows.total_weight, short_cut=cut
    )
    there = solution.at if np.isfinite(solution.theta).all() else at
    moved = anchor_measured(objective, rows, at=there, before=state.sums)
    if cut is None:
        return keep_short_cut(moved, solution.short_cut)
    # It was made from other rows: it leads on, and tells nothing of these.
    return moved.replace(cache=MatrixFreeCache(solution.short_cut))


def anchor_measured(
    objective: Objective, rows: RowSource, *, at: Point, before: Sums | None
) -> State:
    """Return a state anchored at a measured point of rows, without a further pass.

    ``before`` are sums over these rows, and perhaps more, at another point, whose sizes
    still hold; without them the rows are read for their sizes.
    """
    seen, weight = at.seen, rows.total_weight
    assert seen is not None
    if before is None:
        square, longest = norm_sums(rows)
        gram, total = square, weight
        joint = objective.n_free > 0 and not objective.loss.independent
        if joint and isinstance(rows, Rows) and sparse.issparse(rows.X):
            gram = min(square, gram_bound(rows, free=True))  # nothing tells it exactly
        n_entries, roundings = float(most_entries(rows)), float(rows.n_additions)
    else:
        sizes = before.sizes
        square, longest = sizes.square_norm, sizes.row_norm
        gram, total, n_entries = sizes.gram, sizes.weight, sizes.n_entries
        roundings = max(before.roundings, float(rows.n_additions)) + 1.0
    magnitude = Magnitude(
        row_norm=longest,
        slope=inf,
        steepness=seen.steepness,
        square_norm=square,
        curvature=float(np.trace(seen.curvature)),
        hessian=inf,
        moment=inf,
        gram=gram,
        weight=total,
        n_entries=n_entries,
    )
    sums = Sums(
        loss=objective.loss,
        theta=at.theta,
        weight=weight,
        n_rows=len(rows),
        gradient=seen.gradient,
        magnitude=_bound(magnitude, objective.loss),
        roundings=roundings,
        curvature=seen.curvature,
        intercept_columns=seen.intercept_columns,
    )
    return anchor_state(objective, sums).replace(cache=MatrixFreeCache())


def _bound(sizes: Magnitude, loss: Loss) -> Magnitude:
    """Return the sizes with bounds on those that no pass sums.

    By Cauchy and Schwarz, and by the longest row: of more rows they are larger, and of
    the same rows as large as a fit finds them.
    """
    square, longest = sizes.square_norm, sizes.row_norm
    hessian = sizes.curvature * longest * longest
    if isfinite(loss.curvature_bound):
        hessian = min(hessian, loss.curvature_bound * square)
    return replace(
        sizes,
        slope=sqrt(sizes.steepness * square) * SAFETY,
        hessian=hessian * SAFETY,
        moment=sqrt(sizes.weight * square) * longest * longest * SAFETY,
    )


def keep_short_cut(state: State, made: ShortCut | None) -> State:
    """Return the state with a short cut made from its rows, and what that tells."""
    if made is None:
        return state
    sizes = state.magnitude
    gram = min(sizes.gram, made.largest_eigenvalue * state.sums.weight * SAFETY)
    sums = state.sums.replace(magnitude=replace(sizes, gram=gram))
    return state.replace(sums=sums, cache=MatrixFreeCache(made))


def _short_cut(state: State) -> ShortCut | None:
    return state.cache.short_cut if isinstance(state.cache, MatrixFreeCache) else None


def _take_short_cut(
    state: State, rows: RowSource, *, objective: Objective
) -> Point | None:
    """Return the measurement after a short cut; None if none leads nearer.

    A product with the Hessian costs as much as a measurement, so that from near the
    minimiser this is the cheapest step there is.
    """
    cut, sums = _short_cut(state), state.sums
    if cut is None:
        return None
    assert sums.curvature is not None
    weight = sums.weight
    theta = cut.advance(
        objective,
        state.anchor,
        gradient=state.smooth_gradient / weight,
        curved=Curved.of(sums, weight),
    )
    if not np.isfinite(theta).all():  # the anchor had no curvature
        return None
    at = measure(objective, rows, theta=theta).with_subgradient(objective)
    before = MatrixFree().answer_at_anchor(state).measured
    assert before is not None
    # Measuring the anchor again costs a pass, which a start a little off does not.
    nearer = at.residual <= 3.0 * norm(before) / weight
    return at if nearer else None


def choose_mechanism(objective: Objective, rows: RowSource) -> Mechanism:
    """Return Newton or MatrixFree by the rule of this module."""
    is_sparse = isinstance(rows, Rows) and sparse.issparse(rows.X)
    n_rows = 0 if is_sparse else len(rows)
    pays = has_small_matrices(objective, rows.n_columns, n_rows=n_rows)
    return Newton() if pays or _mend(objective) else MatrixFree()


def has_small_matrices(objective: Objective, width: int, *, n_rows: int) -> bool:
    """Return whether matrices are small, or pay for so many dense rows."""
    block = width if objective.loss.independent else width * objective.loss.outputs
    size = MATRICES * hessian_bytes(objective, width)
    small = block <= SMALL_BLOCK and size <= SMALL_STATE
    long = n_rows >= LONG * block
    return small or (long and block <= LARGE_BLOCK and size <= LARGE_STATE)


def _mend(objective: Objective) -> str:
    """Return what must change for answers without matrices to be certified.

    Without them the penalty must hold each coefficient, the loss an intercept.
    """
    if not objective.quadratic > 0.0:
        return "ridge=0.001" if objective.C is None else "mechanism='auto'"
    if objective.n_free and not isfinite(objective.loss.self_concordance):
        return "penalize_intercept=True"
    return ""


def require_certifiable(objective: Objective) -> None:
    """Refuse, before any pass, what no answer without matrices can certify."""
    mend = _mend(objective)
    if mend:
        raise InvalidInput(
            f"mechanism='matrix-free' with the loss {type(objective.loss).__name__} "
            f"and the penalty {type(objective.penalty).__name__}: without matrices "
            "certificates need an L2 share of the penalty, and beside a free intercept "
            f"a loss that is self-concordant; set {mend}"
        )


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
