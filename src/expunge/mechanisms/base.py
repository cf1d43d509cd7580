# SPDX-License-Identifier: Apache-2.0
"""The protocol of a removal mechanism, and what its implementations share.

    state = mechanism.init(summary)             # all that depends on the fit alone
    state = mechanism.update(state, removed)    # cheap, without training rows
    state, draft = mechanism.step(state)        # read the model

Updates commute and a batch equals a stream: a state is a sum. ``step`` looks at
the sums, not at earlier answers, so it may be called as often as one likes.
"""

from typing import Protocol

import numpy as np

from .._typing import Vector
from ..exceptions import NotPositiveDefinite
from ..linalg import NOT_THERE, Minimum, Symmetric, norm
from ..magnitude import LARGEST
from ..rows import Rows
from ..solvers import Model, proximal_model, scaled_kink
from ..summary import Summary
from .state import Draft, State

# A prox that leaves more than this of the gradient has no minimum to find.
UNSETTLED = 1e-6
# The gradient of a row at zero over the smallest curvature is shorter than this.
LARGEST_ANSWER = LARGEST**3


class Mechanism(Protocol):
    """A way to answer a removal; see the module docstring."""

    @property
    def needs_rows(self) -> bool:
        """Whether ``step`` looks at the remaining rows."""

    def init(self, summary: Summary) -> State:
        """Return the state with nobody removed."""

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Return the state without these rows; raise and change nothing if bad.

        With ``spend`` the old state's matrices may be overwritten. It is emptied
        then: what it knew of the removed rows is gone, and using it raises.
        """

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the answer, and the state with it as the next start."""


def at_kinkless(theta: Vector) -> Minimum:
    """Return a minimum of a smooth objective: the subgradient is zero."""
    return Minimum(theta, np.zeros(theta.size))


def inverse_model(inverse: Symmetric) -> Model:
    """Return the model of a smooth objective whose inverse Hessian is at hand."""

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return at_kinkless(theta - inverse @ gradient)

    return argmin


def kinked_model(state: State, B: Symmetric) -> Model:
    """Return the proximal model of G_U in the norm of B, started at the last answer."""
    kink = scaled_kink(state.objective, state.scale)
    prox = proximal_model(B, kink, state.last)

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = prox(theta, gradient)
        left = B @ (minimum.x - theta) + gradient + minimum.subgradient
        if not norm(left) <= UNSETTLED * norm(gradient):
            raise NotPositiveDefinite(NOT_THERE)
        return minimum

    return argmin


def draft(minimum: Minimum) -> Draft:
    """Return a model's minimum as an answer, if it is a finite one."""
    if not norm(minimum.x) < LARGEST_ANSWER:
        raise NotPositiveDefinite(
            "the step has no finite answer: the Hessian is singular to rounding; "
            "set ridge > 0"
        )
    return Draft(minimum.x, minimum.subgradient)


def answer(state: State, minimum: Minimum) -> tuple[State, Draft]:
    """Return the minimum as a draft, remembered as the next start."""
    return state.having(last=minimum.x), draft(minimum)
