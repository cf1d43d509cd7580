# SPDX-License-Identifier: Apache-2.0
"""The five mechanisms: each answers a removal with one step, or with many.

``Newton`` takes one step with the Hessian of the *remaining* rows: see ``newton``.

``Jackknife`` takes one step with the Hessian of *all* rows, factored once at the fit,

    s = -H^-1 c_U,    or the prox of f alpha kink in the norm of H.

Removing a row costs O(d), and reading the model one product with H^-1. This is the
paper's Algorithm 1 with its regulariser and its proximal start corrected
(docs/paper.md).

``Rescaled`` divides the gradient of each removed row by 1 - its leverage first. For one
row under "sum" scaling that is the Newton step, by Woodbury's identity: (H - x c x')^-1
x g = H^-1 x (1 - c x'H^-1 x)^-1 g. With k outputs the leverage is the k x k matrix C_i
X_i H^-1 X_i'. A row that comes is divided by 1 + its leverage, by the same identity.
Rows are corrected one by one, so a batch is still a sum; what their interplay leaves
over shows in the residual, and so does a row that came and left again.

``Retrain`` solves again on the remaining rows, from the last answer. It is the target
of every other mechanism and the only one that always has an answer. Its state knows how
much is left and where to start, and holds no matrix.

``Polish`` improves another mechanism's answer on the remaining rows,

    theta <- argmin of the base's model around theta with the *true* gradient,

a chord step of O(n d) each. The solver searches along every step, computes a new
Hessian when the base's no longer contracts, and stops after ``steps``. Undamped chord
steps fail on heavy-tailed rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from ..core.arrays import Index, Matrix, Vector, catch_lapack_errors
from ..core.blocks import SymmetricMatrix
from ..core.linalg import Symmetric
from ..core.losses import Loss
from ..core.objective import Objective, add_quadratic
from ..core.prox import Minimum
from ..core.rows import Rows, RowSource, block_sum
from ..core.solver import (
    NOT_BEFORE_THE_END,
    Model,
    Solution,
    Stop,
    minimise,
    require_converged,
)
from ..core.sums import curvature_columns, lift_slopes, predict
from ..core.values import stored
from ..exceptions import (
    CannotRemove,
    InvalidInput,
    NotConverged,
    NotPositiveDefinite,
    RowsRequired,
    Unsupported,
)
from .changes import (
    LEVERAGE_MARGIN,
    SignedRows,
    apply_rows,
    change_gradient,
    change_matrices,
    count_after,
    grow_scales,
)
from .newton import Newton
from .state import (
    Draft,
    Mechanism,
    State,
    initial_state,
    inverse_model,
    invert,
    keep_sums,
    kink_model,
    make_answer,
    make_draft,
    succeed,
)
from .summary import Summary, find_minimiser


@stored
@dataclass(frozen=True, slots=True)
class Jackknife:
    """Infinitesimal jackknife (IJ), smooth and proximal.

    Parameters
    ----------
    certified
        Keep the remaining rows' Hessian and norm moment, which the residual and
        every certificate need, at O(d^2) an update. Without them an update is
        O(d) and the answer can only be certified with the rows at hand.
    """

    certified: bool = True
    needs_rows: ClassVar[bool] = False

    def init(self, summary: Summary) -> State:
        """Factor the Hessian at the anchor."""
        state = initial_state(summary)
        H = add_quadratic(summary.objective, summary.loss_hessian)
        if summary.objective.smooth:
            state = state.replace(inverse=invert(H))
        else:
            state = state.replace(metric=H)
        if self.certified:
            state = keep_sums(state, summary, moment=True)
        return state

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Change the gradient, and the Hessian if certified."""
        apply = partial(_apply_plainly, spend=spend)
        return apply_rows(state, removed, added=added, apply=apply)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the model with the anchor's Hessian."""
        del remaining, enough  # there is nothing to iterate
        minimum = self.model(state)(state.anchor, state.smooth_gradient)
        if state.metric is None:  # a product needs no start
            return state, make_draft(minimum)
        return make_answer(state, minimum)

    def model(self, state: State) -> Model:
        """Return the quadratic model: H as it was at the anchor."""
        if state.metric is not None:
            return kink_model(state, state.metric)
        assert state.inverse is not None
        return inverse_model(state.inverse)


def _apply_plainly(state: State, change: SignedRows, *, spend: bool) -> State:
    """Return the state after rows leave or come, the factor of the step as it was."""
    after = change_gradient(state, change)
    if state.hessian is not None:
        after = change_matrices(after, change, spend=spend)
    return succeed(after, state, spend=spend)


@stored
@dataclass(frozen=True, slots=True)
class Rescaled:
    """Rescaled influence function (RIF), smooth and for separable penalties.

    Parameters
    ----------
    certified
        As for Jackknife.
    """

    certified: bool = True
    needs_rows: ClassVar[bool] = False

    def init(self, summary: Summary) -> State:
        """Factor the Hessian at the anchor, on the support if there is a kink."""
        require_separable(summary.objective)
        state = Jackknife(self.certified).init(summary)
        if state.inverse is None:
            H = add_quadratic(summary.objective, summary.loss_hessian)
            support = np.flatnonzero(summary.theta)
            state = state.replace(inverse=support_inverse(H, support))
        return state.replace(tilted=state.gradient)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Change the rescaled gradient beside the plain one."""

        def apply(state: State, change: SignedRows) -> State:
            count_after(state, change)
            tilted = _change_tilted(state, change)
            after = _apply_plainly(state, change, spend=spend)
            return after.replace(tilted=tilted)

        return apply_rows(state, removed, added=added, apply=apply)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the jackknife's model at the rescaled gradient."""
        del remaining, enough  # there is nothing to iterate
        assert state.tilted is not None
        gradient = state.tilted + state.scale * state.pull
        return make_answer(state, self.model(state)(state.anchor, gradient))

    def model(self, state: State) -> Model:
        """Return the jackknife's model."""
        return Jackknife(self.certified).model(state)


def require_separable(objective: Objective) -> None:
    """Raise Unsupported for a penalty under which a row has no leverage."""
    if not objective.penalty.separable:
        raise Unsupported(
            f"Rescaled cannot serve {type(objective.penalty).__name__}: a row's "
            "leverage is defined on a fixed support, and this penalty is curved on "
            "its support; use Newton or Jackknife"
        )


def support_inverse(H: SymmetricMatrix, support: Index) -> SymmetricMatrix:
    """Return the inverse of H on a support, zero elsewhere."""
    inside = np.zeros(H.size, dtype=bool)
    inside[support] = True
    blocks = zip(H.per_output, H.split(inside), strict=True)
    return H.rebuild(
        [_pad_inverse(block, np.flatnonzero(own)) for block, own in blocks]
    )


def _pad_inverse(H: Symmetric, support: Index) -> Symmetric:
    padded = np.zeros((H.size, H.size))
    if support.size:
        inverse = invert(H.submatrix(support)).dense()
        padded[np.ix_(support, support)] = inverse
    return Symmetric.from_dense(padded)


def tilted_slopes(
    loss: Loss,
    rows: RowSource,
    *,
    theta: Vector,
    spreads: Callable[[Matrix], Matrix],
    limit: float,
) -> tuple[Vector, float]:
    """Return sum w x slope / (1 - leverage), and how many leverages exceed limit.

    ``spreads`` maps rows x to X H^-1 X' for the Hessian H of sum w loss + quadratic, X
    a row's (k, d k) design. With C its curvature, w C X H^-1 X' is the row's leverage:
    (k, k), or a number for each output if they do not interact. Rows beyond the limit
    contribute their plain slope. For rows that are added, ``spreads`` is negative.
    """

    def term(block: Rows) -> tuple[Vector, float]:
        eta, k = predict(loss, block, theta=theta), loss.outputs
        spread, slope = spreads(block.dense()), loss.slope(block.y, eta)
        if spread.ndim == 2:
            curvature = curvature_columns(loss, block.y, eta)
            leverage = block.weight[:, None] * curvature * spread
            beyond = leverage.max(axis=1) >= limit
            tilted = slope / (1.0 - np.where(beyond[:, None], 0.0, leverage))
            return lift_slopes(block, tilted), float(beyond.sum())
        curvature = loss.curvature(block.y, eta).reshape(-1, k, k)
        leverage = block.weight[:, None, None] * (curvature @ spread)
        with catch_lapack_errors():
            beyond = np.linalg.eigvals(leverage).real.max(axis=1) >= limit
            core = np.eye(k) - np.where(beyond[:, None, None], 0.0, leverage)
            tilted = np.asarray(np.linalg.solve(core, slope.reshape(-1, k, 1)), float)
        return lift_slopes(block, tilted.reshape(slope.shape)), float(beyond.sum())

    return block_sum(term, rows)


def _change_tilted(state: State, change: SignedRows) -> Vector:
    """Return the rescaled gradient after the change."""
    assert state.tilted is not None
    slopes, beyond = tilted_slopes(
        state.objective.loss,
        change.rows,
        theta=state.anchor,
        spreads=_sum_spreads(state, sign=change.sign),
        limit=1.0 - LEVERAGE_MARGIN,
    )
    if beyond:
        raise CannotRemove(
            "a row to remove determines the model alone in some direction (leverage "
            "one): Rescaled cannot divide by what is left; use Newton or Retrain"
        )
    return state.tilted + change.sign * slopes / state.anchor_weight


def _sum_spreads(state: State, *, sign: int) -> Callable[[Matrix], Matrix]:
    """Return x'H^-1 x of rows, H in units of sums, not means; negative if they come.

    1 - leverage then is 1 + leverage.
    """
    inverse, weight = state.inverse, -sign * state.anchor_weight
    assert inverse is not None
    return lambda X: inverse.spreads(X, weight=weight)


@stored
@dataclass(frozen=True, slots=True)
class Retrain:
    """Retraining on the remaining rows (RT), warm-started."""

    needs_rows: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Remember the weight and the start."""
        return initial_state(summary)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Count the rows off and in; all that are left come with ``step``."""
        del spend  # there is nothing to overwrite
        return apply_rows(state, removed, added=added, apply=_apply_counts)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser over the remaining rows."""
        del enough  # the solver's tolerance holds
        rows = require_rows(state, remaining)
        state = measure_weight(state, rows)
        objective = state.objective.after(state.kept)
        return make_measured_answer(state, retrain(objective, rows, start=state.last))


def _apply_counts(state: State, change: SignedRows) -> State:
    """Return the state with its counts, and the sizes of what comes, after a change."""
    weight, n_rows = count_after(state, change)
    scales = grow_scales(state, change)
    return state.replace(weight=weight, n_rows=n_rows, scales=scales)


def require_rows(state: State, remaining: RowSource | None) -> RowSource:
    """Return the remaining rows, or raise if they are not what must remain."""
    if remaining is None:
        raise RowsRequired(
            "this mechanism looks at the remaining rows: pass step(state, remaining)"
        )
    # The state's weight was found by sums: it is as exact as all that was ever summed.
    doubt = abs(remaining.total_weight - state.weight)
    summed = state.anchor_weight * state.scales.weight
    if len(remaining) != state.n_rows or doubt > 1e-9 * summed:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones, and those that were added, with their weights"
        )
    return remaining


def measure_weight(state: State, rows: RowSource) -> State:
    """Return the state with the weight of its remaining rows, exactly."""
    return state.replace(weight=rows.total_weight)


def retrain(objective: Objective, rows: RowSource, *, start: Vector | None) -> Solution:
    """Return the minimiser over the remaining rows, or raise NotConverged.

    From the start given and, should that lead nowhere, from nothing.
    """
    try:
        solution = find_minimiser(objective, rows, start=start)
        require_converged(objective, rows, solution=solution)
    except (NotConverged, NotPositiveDefinite):
        solution = find_minimiser(objective, rows)
        require_converged(objective, rows, solution=solution)
    return solution


def resolve(
    state: State,
    rows: RowSource,
    *,
    chord: Model | None = None,
    stop: Stop = NOT_BEFORE_THE_END,
) -> Solution:
    """Minimise the objective of the remaining rows, from the last answer."""
    objective = state.objective.after(state.kept)
    return minimise(objective, rows, start=state.last, chord=chord, stop=stop)


def make_measured_answer(state: State, solution: Solution) -> tuple[State, Draft]:
    """Return a solution on the remaining rows as a draft in units of G_U."""
    kept = state.kept  # G_U is kept times the objective of the remaining rows
    measured = kept * (solution.gradient + solution.subgradient)
    draft = Draft(solution.theta, kept * solution.subgradient, measured)
    return state.answered(solution.theta), draft


class ModelMechanism(Mechanism, Protocol):
    """A mechanism that steps to the minimiser of a quadratic model."""

    def model(self, state: State) -> Model:
        """Return the model of G_U."""


@stored
@dataclass(frozen=True, slots=True)
class Polish:
    """Another mechanism's step, then at most ``steps`` measured ones.

    Parameters
    ----------
    base
        Newton or Jackknife: its step is the start, its model the chord.
    steps
        How many passes over the remaining rows to spend at most.
    """

    base: ModelMechanism = field(default_factory=Newton)
    steps: int = 3
    needs_rows: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Return the base's state."""
        return self.base.init(summary)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Return the base's update."""
        return self.base.update(state, removed, added=added, spend=spend)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the base's answer, polished on the remaining rows."""
        rows = require_rows(state, remaining)
        state, _ = self.base.step(measure_weight(state, rows), enough=enough)
        chord = rescale_model(self.base.model(state), state.kept)
        solution = resolve(state, rows, chord=chord, stop=Stop(self.steps))
        return make_measured_answer(state, solution)


def rescale_model(model: Model, kept: float) -> Model:
    """Return a model of G_U as one of the remaining rows' own objective.

    G_U is ``kept`` times that objective: gradients go in times kept, subgradients
    come out over kept, and the minimiser is the same.
    """

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = model(theta, kept * gradient)
        return Minimum(minimum.x, minimum.subgradient / kept)

    return argmin
