# SPDX-License-Identifier: Apache-2.0
"""The infinitesimal jackknife: one step with the Hessian of *all* rows, factored once.

    s = -H^-1 c_U,    or the prox of P alpha kink in the norm of H.

Removing a row costs O(d), and reading the model one product with H^-1. This is the
paper's Algorithm 1 with its regulariser and its proximal start corrected
(docs/paper.md).
"""

from dataclasses import dataclass

from ..core.linalg import Symmetric
from ..core.rows import RowSource
from ..core.values import stored
from .state import (
    Cache,
    Draft,
    Mechanism,
    State,
    invert,
    kink_step,
    make_answer,
    make_draft,
    smooth_minimum,
)


@stored
@dataclass(frozen=True, repr=False, eq=False)
class JackknifeCache(Cache):
    """H as it was at the anchor: its inverse, or where a kink is, itself."""

    inverse: Symmetric | None = None
    metric: Symmetric | None = None

    @property
    def preconditioner(self) -> Symmetric | None:
        """The inverse at the anchor, which rows that leave do not change."""
        return self.inverse


@stored
@dataclass(frozen=True, slots=True)
class Jackknife(Mechanism):
    """Infinitesimal jackknife (IJ), smooth and proximal.

    Parameters
    ----------
    certified
        Keep the remaining rows' Hessian and norm moment, which the residual and
        every certificate need, at O(d^2) an update. Without them an update is
        O(d) and the answer can only be certified with the rows at hand.
    """

    certified: bool = True

    def init(self, state: State) -> State:
        """Factor the Hessian at the anchor."""
        H, certified = state.smooth_hessian(), self.certified
        smooth = state.objective.smooth
        cache = JackknifeCache(invert(H)) if smooth else JackknifeCache(metric=H)
        sums = state.sums.keeping(hessian=certified, moment=certified)
        return state.replace(sums=sums, cache=cache)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the model with the anchor's Hessian."""
        del remaining, enough  # there is nothing to iterate
        cache = state.cache
        assert isinstance(cache, JackknifeCache)
        if cache.inverse is not None:
            s = cache.inverse @ state.step_gradient
            return state, make_draft(smooth_minimum(state.anchor - s))
        assert cache.metric is not None
        step = kink_step(state, cache.metric)
        return make_answer(state, step(state.anchor, state.step_gradient))
