# SPDX-License-Identifier: Apache-2.0
r"""State and Draft: what a removal keeps, and what it answers.

With S the rows at the anchor theta_hat, U those removed since, W0 the weight of S,
kept = W_{S\U}/W0 and f = kept under "mean" scaling or 1 under "sum", the removal
minimises

    G_U(theta) = (1/W0) sum_{S\U} w_i loss_i(theta) + f quadratic + f alpha kink .

A state holds the derivatives of G_U at the anchor, d- and d x d-sized arrays that
removed rows are subtracted from; it never holds rows. Both types are private and
noise-free: their reprs show no figure, and neither may leave the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NoReturn

import numpy as np

from .._typing import Vector
from ..blocks import loss_slopes
from ..exceptions import InvalidInput, Unsupported
from ..linalg import Symmetric
from ..objective import Objective
from ..private import Private
from ..rows import Rows
from ..solvers import with_quadratic
from ..summary import Scales

SPENT = ("gradient", "hessian", "moment", "inverse", "metric", "tilted", "last")
"""What an emptied state has lost."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class State(Private):
    """Derivatives of the leave-U-out objective at the anchor.

    Attributes
    ----------
    objective
        The objective that the anchor minimises on all rows.
    anchor
        theta_hat, (d k,).
    gradient
        (1/W0) sum over the remaining rows of w grad loss, at the anchor.
    pull
        Gradient of the objective's quadratic at the anchor.
    anchor_weight, weight, n_rows
        W0; weight and number of the rows that remain.
    last
        The last answer: where the next proximal step or iteration starts.
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
        What bounds the rounding of these sums: their sizes at the anchor and how
        often they were updated.
    tilted
        Rescaled's own version of ``gradient``.
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
    hessian: Symmetric | None = None
    moment: Symmetric | None = None
    inverse: Symmetric | None = None
    metric: Symmetric | None = None
    tilted: Vector | None = None
    kinks: Vector | None = None
    n_updates: int = 0

    def having(self, **changes: object) -> "State":
        """Return the state with these attributes changed.

        What ``dataclasses.replace`` does, at a third of the time: a removal is as fast
        as the few microseconds around its one product.
        """
        new, put = object.__new__(State), object.__setattr__
        for name, value in zip(State.__slots__, _everything(self), strict=True):
            put(new, name, value)
        for name in changes:
            put(new, name, changes[name])
        return new

    def __getattr__(self, name: str) -> NoReturn:
        # Only reached for what is missing: a slot emptied by ``successor``.
        if name in SPENT:
            raise InvalidInput(
                "this state was spent by an update: go on with the state that the "
                "update returned"
            )
        raise AttributeError(name)

    @property
    def kept(self) -> float:
        """The share of the anchor's weight that remains."""
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

    def smooth_hessian(self) -> Symmetric:
        """Return H_U: the Hessian of the smooth part of G_U at the anchor."""
        return with_quadratic(self.objective, self.loss_hessian, self.scale)

    @property
    def loss_hessian(self) -> Symmetric:
        """The loss's part of H_U, which this state must have kept."""
        if self.hessian is None:
            raise Unsupported(
                "this state keeps no Hessian; use a mechanism with certified=True"
            )
        return self.hessian

    def hessian_operator(self) -> Callable[[Vector], Vector]:
        """Return the map s -> H_U s, without forming H_U."""
        hessian, scale = self.loss_hessian, self.scale
        diagonal, gauge = self.objective.quadratic_form(self.anchor.size)
        diagonal *= scale

        def product(s: Vector) -> Vector:
            image = hessian @ s + diagonal * s
            return image if gauge is None else image + scale * (gauge @ s) * gauge

        return product


_everything = attrgetter(*State.__slots__)


def successor(new: State, old: State, *, spend: bool) -> State:
    """Return the new state; empty the old one if its matrices were overwritten.

    The one place that reaches into a frozen value: whoever spends a state has
    given it up, and a later use must fail rather than mix old and new.
    """
    if spend:
        for name in SPENT:
            object.__delattr__(old, name)
    return new


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
    """

    theta: Vector
    subgradient: Vector
    measured: Vector | None = None


def residual(state: State, draft: Draft) -> Vector:
    """Return q(s) = c_U + H_U s + f alpha nu for s = theta - anchor.

    The gradient of G_U at the draft is q(s) plus a third-order term, whatever
    mechanism made the step and however inexactly. Computed, never assumed.
    """
    s = draft.theta - state.anchor
    return state.smooth_gradient + state.hessian_operator()(s) + draft.subgradient


def look(state: State, draft: Draft, remaining: Rows) -> Draft:
    """Return the draft with the gradient of G_U measured on the remaining rows."""
    slopes = loss_slopes(state.objective.loss, remaining, draft.theta)
    quadratic = state.scale * state.objective.quadratic_gradient(draft.theta)
    gradient = slopes / state.anchor_weight + quadratic
    return replace(draft, measured=gradient + draft.subgradient)


def state_size(state: State) -> int:
    """Return how many float64 numbers the arrays of a state hold."""
    parts = (getattr(state, name) for name in State.__slots__)
    arrays = (part.lower if isinstance(part, Symmetric) else part for part in parts)
    return sum(array.size for array in arrays if isinstance(array, np.ndarray))
