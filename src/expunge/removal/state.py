# SPDX-License-Identifier: Apache-2.0
r"""State and draft: what a removal keeps, what it answers, and what mechanisms share.

Let S be the rows at the anchor theta_hat, W0 their weight, and U what changed since:
rows that left, and rows that came. With S\U for the rows as they are now, let kept =
W_{S\U}/W0, above one where more came than left, and f = kept under "mean" scaling or 1
under "sum". A request minimises

    G_U(theta) = (1/W0) sum_{S\U} w_i loss_i(theta) + f quadratic + f alpha kink .

A ``State`` holds the derivatives of G_U at the anchor: d- and d x d-sized arrays that
rows are subtracted from and added to (``changes``), never rows. A ``Draft`` is the
noise-free answer. Both are private: their reprs show no figure, and neither may leave
the process.

A ``Mechanism`` turns one into the other:

    state = mechanism.init(summary)             # all that depends on the fit alone
    state = mechanism.update(state, removed)    # cheap, without training rows
    state = mechanism.update(state, added=rows) # or both in one change
    state, draft = mechanism.step(state)        # read the model

Updates commute, and a batch equals a stream, because a state is a sum. ``step`` looks
at the sums, not at earlier answers, so you may call it as often as you like.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import NoReturn, Protocol

import numpy as np

from ..core.arrays import Matrix, Vector, norm
from ..core.blocks import Blocks, SymmetricMatrix
from ..core.feature_map import FeatureMap
from ..core.linalg import NOT_IN_TRAINING_DATA, Symmetric
from ..core.objective import Objective, add_quadratic
from ..core.prox import Minimum
from ..core.rows import Rows, RowSource, block_sums
from ..core.solver import Model, proximal_model, scaled_kink
from ..core.sums import Term, loss_slopes, move_term, slope_term
from ..core.values import LARGEST, NOT_STORED, Private, replace_fields, stored
from ..exceptions import InvalidInput, NotPositiveDefinite, Unsupported
from ..wide.preconditioner import ShortCut
from .summary import Scales, Summary

# A prox that leaves more than this of the gradient has no minimum to find.
UNSETTLED = 1e-6
# The gradient of a row at zero over the smallest curvature is shorter than this.
LARGEST_ANSWER = LARGEST**3


@stored
@dataclass(frozen=True, repr=False, eq=False)
class State(Private):
    """Derivatives of the leave-U-out objective at the anchor.

    Attributes
    ----------
    objective
        The objective that the anchor minimises on its rows.
    anchor
        theta_hat, (d k,).
    gradient
        (1/W0) sum over the remaining rows of w grad loss, at the anchor.
    pull
        Gradient of the objective's quadratic at the anchor.
    anchor_weight, weight, n_rows
        W0; weight and number of the rows that remain.
    last, unsolved
        The last answer, where the next proximal step or iteration starts, and about its
        residual after what changed since; None if nobody knows.
    hessian
        Hessian of the loss over the remaining rows, if the mechanism needs it.
    moment
        (1/W0) sum over the remaining rows of w |x| x x', for certificates.
    inverse
        H^-1 as it was at the anchor, or Newton's preconditioner.
    metric
        H as it was at the anchor: the norm of a proximal step.
    kinks
        The remaining rows' mass near jumps of the curvature, for certificates.
    scales, n_updates
        What bounds the rounding of these sums: the sizes of all that was ever summed,
        and how often they were updated.
    tilted
        Rescaled's own version of ``gradient``.
    curvature, lever, gram_norm, short_cut
        What ``MatrixFree`` keeps instead of matrices: sums over the remaining rows as a
        ``Measurement`` has them, in units of W0; a bound on the largest eigenvalue of
        (1/W0) sum w x x' over the penalised columns; what leads to the next answer.
    features, offset
        Where the features are not those of the sums: how they follow from them, and
        A anchor less the anchor of the sums. ``moment`` and ``kinks`` stay as they
        are then. None in a state that rows are subtracted from or added to.
    """

    objective: Objective
    anchor: Vector
    gradient: Vector
    pull: Vector
    anchor_weight: float
    weight: float
    n_rows: int
    scales: Scales
    last: Vector
    hessian: SymmetricMatrix | None = None
    moment: Symmetric | None = None
    inverse: SymmetricMatrix | None = None
    metric: SymmetricMatrix | None = None
    tilted: Vector | None = None
    kinks: Vector | None = None
    n_updates: int = 0
    unsolved: Vector | None = None
    curvature: Matrix | None = None
    lever: Matrix | None = None
    gram_norm: float = inf
    short_cut: ShortCut | None = field(default=None, metadata=NOT_STORED)
    features: FeatureMap | None = field(default=None, metadata=NOT_STORED)
    offset: Vector | None = field(default=None, metadata=NOT_STORED)

    replace = replace_fields

    def answered(self, theta: Vector, residual: Vector | None = None) -> "State":
        """Return the state with an answer, and its residual if that is known."""
        return self.replace(last=theta, unsolved=residual)

    def __getattr__(self, name: str) -> NoReturn:
        # Only reached for what is missing: a field emptied by ``succeed``.
        if name in _FIELDS:
            raise InvalidInput(
                "this state was spent by an update: go on with the state that the "
                "update returned"
            )
        raise AttributeError(name)

    @property
    def stretch(self) -> float:
        """kappa: how much longer a row may be than the row that was summed."""
        return 1.0 if self.features is None else self.features.stretch

    def lift(self, s: Vector) -> Vector:
        """Return a step from the anchor as one of the features that were summed."""
        if self.features is None:
            return s
        assert self.offset is not None
        return self.features.lift(s) + self.offset

    @property
    def block_size(self) -> int:
        """The size of a matrix, or of its blocks if the outputs do not interact."""
        loss, size = self.objective.loss, self.anchor.size
        return size // loss.outputs if loss.independent else size

    @property
    def kept(self) -> float:
        """The present weight over the anchor's; above one where more came than left."""
        return self.weight / self.anchor_weight

    @property
    def scale(self) -> float:
        """f: the factor of quadratic and kink in G_U."""
        return self.objective.scale(self.kept)

    @property
    def smooth_gradient(self) -> Vector:
        """c_U: gradient of the smooth part of G_U at the anchor.

        The solver's residual is in it; it is never assumed to be zero.
        """
        return self.gradient + self.scale * self.pull

    def smooth_hessian(self) -> SymmetricMatrix:
        """Return H_U: the Hessian of the smooth part of G_U at the anchor."""
        return add_quadratic(self.objective, self.loss_hessian, scale=self.scale)

    @property
    def loss_hessian(self) -> SymmetricMatrix:
        """The loss's part of H_U, which this state must have kept."""
        if self.hessian is None:
            raise Unsupported(
                "this state keeps no Hessian; use a mechanism with certified=True"
            )
        return self.hessian

    def hessian_operator(self) -> Callable[[Vector], Vector]:
        """Return the map s -> H_U s, without forming H_U."""
        hessian, objective, scale = self.loss_hessian, self.objective, self.scale

        def product(s: Vector) -> Vector:
            image: Vector = hessian @ s
            image += objective.quadratic_gradient(s, scale=scale)
            return image

        return product


_FIELDS = frozenset(each.name for each in fields(State))
# Defaults belong to the constructor alone: what is emptied must be missing.
for _name in _FIELDS & vars(State).keys():
    delattr(State, _name)


def succeed(new: State, old: State, *, spend: bool) -> State:
    """Return the new state; empty the old one if its matrices were overwritten.

    The one place that reaches into a frozen value: a caller who spends a state has
    given it up, and a later use must fail rather than mix old and new.
    """
    if spend:
        vars(old).clear()
    return new


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Draft(Private):
    """A noise-free answer. It has no way out: only a release is public.

    Attributes
    ----------
    theta
        The parameters, (d k,).
    subgradient
        A subgradient of f alpha kink at theta; zero if smooth.
    measured
        The gradient of G_U (kink included) at theta when the remaining rows were
        looked at; None when only the state was.
    residual
        q(s), where the step computed it last of all; else ``residual`` does.
    moved
        The step from an anchor to theta, and how far it moves the predictors of a
        remaining row at most, where one pass measured both; else None.
    """

    theta: Vector
    subgradient: Vector
    measured: Vector | None = None
    residual: Vector | None = field(default=None, metadata=NOT_STORED)
    moved: tuple[Vector, float] | None = field(default=None, metadata=NOT_STORED)


class Mechanism(Protocol):
    """A way to answer a request; see the module docstring."""

    @property
    def needs_rows(self) -> bool:
        """Whether ``step`` looks at the remaining rows."""

    def init(self, summary: Summary) -> State:
        """Return the state with nobody removed."""

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Return the state without some rows and with others; raise if that is bad.

        The old state stays as it is. With ``spend`` its matrices may be overwritten and
        it is emptied: what it knew of the removed rows is gone, and using it raises.
        """

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the answer, and the state with it as the next start.

        A residual below ``enough`` need not be reduced any further.
        """


def is_matrix_free(mechanism: Mechanism) -> bool:
    """Return whether a mechanism keeps the gradient at its answer, and no matrix."""
    return getattr(mechanism, "matrix_free", False)


def residual(state: State, draft: Draft) -> Vector:
    """Return q(s) = c_U + H_U s + f alpha nu for s = theta - anchor.

    The gradient of G_U at the draft is q(s) plus a third-order term, whatever
    mechanism made the step and however inexactly. Computed, never assumed.
    """
    if draft.residual is not None:
        return draft.residual
    s = draft.theta - state.anchor
    return state.smooth_gradient + state.hessian_operator()(s) + draft.subgradient


def measure_gradient(state: State, draft: Draft, *, remaining: RowSource) -> Draft:
    """Return the draft with the gradient of G_U measured on the remaining rows.

    Rows that are not in memory are read once for that and for what radii ask next: how
    far the step from the anchor moves their predictors.
    """
    loss, moved = state.objective.loss, None
    if remaining.keeps_terms or state.features is not None:
        slopes = loss_slopes(loss, remaining, theta=draft.theta)
    else:
        step = draft.theta - state.anchor
        terms: list[Term] = [
            slope_term(loss, theta=draft.theta),
            move_term(loss, step=step),
        ]
        (slopes,), (largest,) = block_sums(terms, remaining)
        moved = step, largest.value
    quadratic = state.scale * state.objective.quadratic_gradient(draft.theta)
    gradient = slopes / state.anchor_weight + quadratic
    return replace(draft, measured=gradient + draft.subgradient, moved=moved)


def state_size(state: State) -> int:
    """Return how many float64 numbers the arrays of a state hold."""
    parts = vars(state).values()
    kinds = np.ndarray | Symmetric | Blocks
    arrays = (part for part in parts if isinstance(part, kinds))
    return sum(getattr(array, "n_numbers", array.size) for array in arrays)


def initial_state(summary: Summary) -> State:
    """Return the state with nobody removed and no matrix kept yet."""
    objective, theta = summary.objective, summary.theta
    return State(
        objective=objective,
        anchor=theta,
        gradient=summary.gradient,
        pull=objective.quadratic_gradient(theta),
        anchor_weight=summary.weight,
        weight=summary.weight,
        n_rows=summary.n_rows,
        scales=summary.scales,
        last=theta,
    )


def keep_sums(state: State, summary: Summary, *, moment: bool) -> State:
    """Return the state with Hessian and moment in memory of its own, to be spent."""
    state = state.replace(hessian=summary.loss_hessian.copy())
    if not moment:
        return state
    if summary.moment is None:
        raise InvalidInput("a certified state needs a summary with its moment")
    return state.replace(moment=summary.moment.copy(), kinks=summary.kinks)


def lift_state(base: State, features: FeatureMap) -> State:
    """Return the state for features that changed since the anchor, from that kept.

    With rows x = A'e, the state kept in the features e of the anchor and theta_0 its
    anchor, the loss of the remaining rows has at theta the gradient

        A'(c + H (A theta - theta_0)) + third order,    and at the anchor the Hessian
        A'HA.

    Penalty, ridge and gauge act on theta itself and are added afterwards, unchanged: in
    the features of the anchor they would not factor. The new anchor a is S theta_0;
    where A a is not theta_0 (an imputed mean moves only the rows with a gap) the
    difference is the ``offset``, and the third-order term is about A s + offset
    (docs/paper.md, "Preprocessing").

    Rounding: terms are at most kappa, kappa^2, kappa^3 times as large as in e, and the
    rows of retraining agree with A'e up to a few roundings of their entries.
    """
    anchor = features.back(base.anchor)
    offset = features.lift(anchor) - base.anchor
    gradient = base.gradient + base.loss_hessian @ offset
    inverse = base.inverse
    return base.replace(
        anchor=anchor,
        last=features.back(base.last),
        gradient=features.pull(gradient),
        pull=base.objective.quadratic_gradient(anchor),
        hessian=features.pull_matrix(base.loss_hessian),
        inverse=None if inverse is None else features.back_matrix(inverse),
        scales=_stretch_scales(base.scales, features.stretch),
        unsolved=None,
        features=features,
        offset=offset,
    )


def _stretch_scales(scales: Scales, stretch: float) -> Scales:
    """Return bounds on the sizes of what sums over the present features are made of."""
    square = stretch * stretch
    return replace(
        scales,
        row_norm=stretch * scales.row_norm,
        slope=stretch * scales.slope,
        square_norm=square * scales.square_norm,
        hessian=square * scales.hessian,
        moment=square * stretch * scales.moment,
        n_entries=inf,  # what was zero need not be
    )


def invert(matrix: SymmetricMatrix) -> SymmetricMatrix:
    """Return the inverse, by a Cholesky factor."""
    return matrix.cholesky().inverse()


def smooth_minimum(theta: Vector) -> Minimum:
    """Return a minimum of a smooth objective: the subgradient is zero."""
    return Minimum(theta, np.zeros(theta.size))


def inverse_model(inverse: SymmetricMatrix) -> Model:
    """Return the model of a smooth objective whose inverse Hessian is at hand."""

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return smooth_minimum(theta - inverse @ gradient)

    return argmin


def kink_model(state: State, B: SymmetricMatrix) -> Model:
    """Return the proximal model of G_U in the norm of B, started at the last answer."""
    kink = scaled_kink(state.objective, state.scale)
    prox = proximal_model(B, kink, start=state.last)

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = prox(theta, gradient)
        left = B @ (minimum.x - theta) + gradient + minimum.subgradient
        if not norm(left) <= UNSETTLED * norm(gradient):
            raise NotPositiveDefinite(NOT_IN_TRAINING_DATA)
        return minimum

    return argmin


def make_draft(minimum: Minimum) -> Draft:
    """Return a model's minimum as an answer, if it is a finite one."""
    if not norm(minimum.x) < LARGEST_ANSWER:
        raise NotPositiveDefinite(
            "the step has no finite answer: the Hessian is singular to rounding; "
            "set ridge > 0"
        )
    return Draft(minimum.x, minimum.subgradient)


def make_answer(state: State, minimum: Minimum) -> tuple[State, Draft]:
    """Return the minimum as a draft, remembered as the next start."""
    return state.answered(minimum.x), make_draft(minimum)
