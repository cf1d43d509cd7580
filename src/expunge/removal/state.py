# SPDX-License-Identifier: Apache-2.0
r"""State and draft: what a removal keeps, what it answers, and what mechanisms share.

Let theta_hat be the anchor and S\U the rows as they are now: those at the anchor, less
what left since, with what came. A request minimises

    G_U(theta) = sum_{S\U} w_i loss_i(theta) + P (quadratic + alpha kink),

P the weight of S\U under "mean" scaling and that of the anchor under "sum".

A ``State`` holds the ``Sums`` of S\U at the anchor, and beside them what a mechanism
keeps for itself, its cache, on which nothing sound may rest. A ``Draft`` is the
noise-free answer. Both are private: their reprs show no figure, and neither may leave
the process.

A ``Mechanism`` turns one into the other:

    state = mechanism.init(state)               # all that depends on the fit alone
    state = mechanism.update(state, removed)    # cheap, without training rows
    state = mechanism.update(state, added=rows) # or both in one change
    state, draft = mechanism.step(state)        # read the model

Updates commute, and a batch equals a stream, because sums are. ``step`` looks at the
sums, not at earlier answers, so you may call it as often as you like.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn

import numpy as np

from ..core.arrays import Vector, norm
from ..core.feature_map import FeatureMap
from ..core.linalg import NOT_IN_TRAINING_DATA, Inverse, Symmetric
from ..core.objective import Objective, add_quadratic
from ..core.prox import Minimum
from ..core.rows import Rows, RowSource, block_sums
from ..core.solver import Solution, StepRule, proximal_step, scaled_kink
from ..core.sums import Term, loss_slopes, move_term, slope_term
from ..core.values import LARGEST, NOT_STORED, Private, replace_fields, stored
from ..exceptions import (
    CannotRemove,
    InvalidInput,
    NotPositiveDefinite,
    RowsRequired,
)
from .sums import Magnitude, Sums, sum_rows

# A prox that leaves more than this of the gradient has no minimum to find.
UNSETTLED = 1e-6
# The gradient of a row at zero over the smallest curvature is shorter than this.
LARGEST_ANSWER = LARGEST**3


class Cache(Private):
    """What a mechanism keeps beside the sums; no bound may rest on it."""

    @property
    def preconditioner(self) -> Symmetric | Inverse | None:
        """About the inverse of H_U, if it is at hand."""
        return None

    def mapped(self, features: FeatureMap) -> "Cache":
        """Return what is kept for features that changed since the anchor."""
        raise NotImplementedError


@stored
@dataclass(frozen=True, repr=False, eq=False)
class State(Private):
    r"""The sums over the rows as they are, at the anchor.

    Attributes
    ----------
    objective
        What the anchor minimises on its rows.
    sums
        Over S\U, at the anchor.
    anchor_weight
        The weight of the rows at the anchor.
    last
        The last answer, where the next proximal step or iteration starts.
    cache
        What the mechanism keeps beside the sums; None before ``init``.
    missed
        What q(s) was seen to miss of the gradient at the last look, where the next
        answer starts from there; None where nobody looked. No bound rests on it.
    features, offset
        Where the features are not those of the anchor: how they follow from them, and
        A anchor less the anchor there. The sums' moment and kinks are those of the
        anchor's features then. None in a state that rows are subtracted from or added
        to.
    """

    objective: Objective
    sums: Sums
    anchor_weight: float
    last: Vector
    cache: Cache | None
    missed: Vector | None = None
    features: FeatureMap | None = field(default=None, metadata=NOT_STORED)
    offset: Vector | None = field(default=None, metadata=NOT_STORED)

    replace = replace_fields

    def __getattr__(self, name: str) -> NoReturn:
        # Only reached for what is missing: a field emptied by ``update``.
        if name in State.__dataclass_fields__:
            raise InvalidInput(
                "this state was overwritten by an update: go on with the state that "
                "the update returned"
            )
        raise AttributeError(name)

    @property
    def anchor(self) -> Vector:
        """theta_hat: where the sums are taken."""
        return self.sums.theta

    @property
    def magnitude(self) -> Magnitude:
        """The sizes of all that was ever summed."""
        return self.sums.sizes

    @property
    def preconditioner(self) -> Symmetric | Inverse | None:
        """About the inverse of H_U, if the mechanism has it at hand."""
        return None if self.cache is None else self.cache.preconditioner

    @property
    def row_growth(self) -> float:
        """kappa: how much longer a row may be than the row that was summed."""
        return 1.0 if self.features is None else self.features.row_growth

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
        return self.sums.weight / self.anchor_weight

    @property
    def penalty_weight(self) -> float:
        """P: the factor of quadratic and kink in G_U."""
        mean = self.objective.scaling == "mean"
        return self.sums.weight if mean else self.anchor_weight

    @property
    def smooth_gradient(self) -> Vector:
        """c_U: gradient of the smooth part of G_U at the anchor.

        The solver's residual is in it; it is never assumed to be zero.
        """
        sums = self.sums
        quadratic = self.objective.quadratic_gradient(
            sums.theta, scale=self.penalty_weight
        )
        quadratic += sums.gradient
        return quadratic

    @property
    def step_gradient(self) -> Vector:
        """What steps start from: c_U, and what it was seen to miss."""
        gradient, missed = self.smooth_gradient, self.missed
        # It may have been seen of features that have gone, or come back, since.
        if missed is not None and missed.size == gradient.size:
            gradient += missed
        return gradient

    def smooth_hessian(self) -> Symmetric:
        """Return H_U: the Hessian of the smooth part of G_U at the anchor."""
        hessian = self.sums.loss_hessian
        return add_quadratic(self.objective, hessian, scale=self.penalty_weight)

    def hessian_operator(self) -> Callable[[Vector], Vector]:
        """Return the map s -> H_U s, without forming H_U."""
        hessian, objective = self.sums.loss_hessian, self.objective
        scale = self.penalty_weight

        def product(s: Vector) -> Vector:
            image: Vector = hessian @ s
            image += objective.quadratic_gradient(s, scale=scale)
            return image

        return product

    def weighing(self, weight: float) -> "State":
        """Return the state with the weight of its rows, known exactly."""
        return self.replace(sums=self.sums.replace(weight=weight))


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Draft(Private):
    """A noise-free answer. It has no way out: only a release is public.

    Attributes
    ----------
    theta
        The parameters, (d k,).
    subgradient
        A subgradient of P alpha kink at theta; zero if smooth.
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


class Mechanism:
    """A way to answer a request; see the module docstring.

    Attributes
    ----------
    needs_rows
        Whether ``step`` looks at the remaining rows.
    keeps_matrices
        Whether models are solved and summed with a Hessian, which this keeps or steps
        by; False for what is solved by passes over the rows alone.
    retrains
        Whether the answer is a fit to the remaining rows.
    follows_features
        Whether its cache can follow features that change, without rows.
    """

    __slots__ = ()
    needs_rows: ClassVar[bool] = False
    keeps_matrices: ClassVar[bool] = True
    retrains: ClassVar[bool] = False
    follows_features: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What certificates call it."""
        return type(self).__name__.lower()

    def init(self, state: State) -> State:
        """Return the state with nobody removed, with a cache, in memory of its own."""
        raise NotImplementedError

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        overwrite: bool = False,
    ) -> State:
        """Return the state without some rows and with others; raise if that is bad.

        Rows that come are added first: the Hessian then stays positive definite on the
        way, and the last row of a model can be replaced. The old state stays as it is.
        With ``overwrite`` its matrices may be used up and it is emptied: what it knew
        of the removed rows is gone, and using it raises.
        """
        width = state.anchor.size // state.objective.loss.outputs
        for rows, leaving in ((added, False), (removed, True)):
            if rows is None or not len(rows):
                continue
            if rows.n_columns != width:
                raise InvalidInput(
                    f"the rows to {'remove' if leaving else 'add'} have "
                    f"{rows.n_columns} columns (intercept included); the model has "
                    f"{width}"
                )
            change = state.sums.over(rows, leaving=leaving)
            if leaving:
                require_rest(state, change)
            before = state
            state = self.apply(before, change, leaving=leaving, overwrite=overwrite)
            if overwrite:
                # Nothing else reaches into a frozen value: a caller that overwrites a
                # state gave it up, and must not mix old and new.
                vars(before).clear()
        return state

    def apply(
        self, state: State, change: Sums, *, leaving: bool, overwrite: bool
    ) -> State:
        """Return the state after rows with these sums leave or come.

        What is kept beside the sums stays as it was.
        """
        combine = state.sums.minus if leaving else state.sums.plus
        return state.replace(sums=combine(change, overwrite=overwrite))

    def after_look(self, state: State, draft: Draft) -> State:
        """Return the state whose next step starts from an answer that was looked at."""
        if state.sums.hessian is None:
            return state.replace(last=draft.theta)
        modelled = residual(state, replace(draft, residual=None))
        assert draft.measured is not None
        return state.replace(last=draft.theta, missed=draft.measured - modelled)

    def answer_at_anchor(self, state: State) -> Draft | None:
        """Return the anchor as the answer, if its gradient is kept; None if not."""
        del state
        return None

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the answer, and the state with it as the next start.

        A residual below ``enough`` need not be reduced any further.
        """
        raise NotImplementedError


def require_rest(state: State, leaving: Sums) -> None:
    """Raise CannotRemove if rows that leave cannot all have been there, and some stay.

    Weights that sum to the rest up to rounding leave no weight to fit.
    """
    sums, least = state.sums, 1e-12 * state.magnitude.weight
    if sums.n_rows <= leaving.n_rows or sums.weight - leaving.weight <= least:
        raise CannotRemove(
            "these rows cannot be removed: no row with weight would be left, and a "
            "model needs at least one; delete the model instead"
        )


def summarise(
    objective: Objective, rows: RowSource, *, theta: Vector, moment: bool = True
) -> State:
    """Return the state of these rows with theta as the anchor: T(S) of the paper.

    Without the ``moment``, which certificates without rows rest on, it takes half the
    time.
    """
    if not rows.total_weight > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to sum")
    intercept_columns = objective.n_free > 0 and objective.loss.independent
    sums = sum_rows(
        objective.loss,
        rows,
        theta=theta,
        moment=moment,
        intercept_columns=intercept_columns,
    )
    return anchor_state(objective, sums)


def anchor_state(objective: Objective, sums: Sums) -> State:
    """Return the state of rows with these sums, from which nobody was removed."""
    return State(objective, sums, sums.weight, sums.theta, cache=None)


def require_rows(state: State, remaining: RowSource | None) -> RowSource:
    """Return the remaining rows, or raise if they are not what must remain."""
    if remaining is None:
        raise RowsRequired(
            "this mechanism looks at the remaining rows: pass step(state, remaining)"
        )
    # The state's weight was found by sums: it is as exact as all that was ever summed.
    doubt = abs(remaining.total_weight - state.sums.weight)
    summed = state.magnitude.weight
    if len(remaining) != state.sums.n_rows or doubt > 1e-9 * summed:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones, and those that were added, with their weights"
        )
    return remaining


def draft_of(solution: Solution, rows: RowSource) -> Draft:
    """Return a solution on the remaining rows as a draft: sums, where it has means."""
    weight = rows.total_weight
    measured = weight * (solution.gradient + solution.subgradient)
    return Draft(solution.theta, weight * solution.subgradient, measured)


def residual(state: State, draft: Draft) -> Vector:
    """Return q(s) = c_U + H_U s + P alpha nu for s = theta - anchor.

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
    objective, moved = state.objective, None
    if remaining.keeps_terms or state.features is not None:
        slopes = loss_slopes(objective.loss, remaining, theta=draft.theta)
    else:
        step = draft.theta - state.anchor
        terms: list[Term] = [
            slope_term(objective.loss, theta=draft.theta),
            move_term(objective.loss, step=step),
        ]
        (slopes,), (largest,) = block_sums(terms, remaining)
        moved = step, largest.value
    quadratic = objective.quadratic_gradient(draft.theta, scale=state.penalty_weight)
    return replace(draft, measured=slopes + quadratic + draft.subgradient, moved=moved)


def state_size(state: State) -> int:
    """Return how many float64 numbers the arrays of a state hold."""
    cache = () if state.cache is None else vars(state.cache).values()
    parts = [*vars(state).values(), *vars(state.sums).values(), *cache]
    arrays = (part for part in parts if isinstance(part, np.ndarray | Symmetric))
    return sum(getattr(array, "n_numbers", array.size) for array in arrays)


def lift_state(base: State, features: FeatureMap) -> State:
    """Return the state for features that changed since the anchor, from that kept.

    Penalty, ridge and gauge act on theta itself and are added afterwards, unchanged: in
    the features of the anchor they would not factor. Where A a is not theta_0, a the
    new anchor (an imputed mean moves only the rows with a gap), the difference is the
    ``offset`` (docs/radii.md, "Features that
    change").
    """
    sums = base.sums.mapped(features)
    return base.replace(
        sums=sums,
        last=features.back(base.last),
        cache=None if base.cache is None else base.cache.mapped(features),
        features=features,
        offset=features.lift(sums.theta) - base.anchor,
    )


def invert(matrix: Symmetric) -> Symmetric:
    """Return the inverse of a matrix, whose memory it takes over."""
    return matrix.cholesky(overwrite=True).inverse(overwrite=True)


def smooth_minimum(theta: Vector) -> Minimum:
    """Return a minimum of a smooth objective: the subgradient is zero."""
    return Minimum(theta, np.zeros(theta.size))


def kink_step(state: State, B: Symmetric) -> StepRule:
    """Return the proximal step for G_U in the norm of B, started at the last answer."""
    kink = scaled_kink(state.objective, state.penalty_weight)
    prox = proximal_step(B, kink, start=state.last)

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
    return state.replace(last=minimum.x), make_draft(minimum)
