# SPDX-License-Identifier: Apache-2.0
r"""Lift: the state for features that changed since the anchor, from the state kept.

With rows x = A'e, the state kept in the features e of the anchor and theta_0 its
anchor, the loss of the remaining rows has at theta the gradient

    A'(c + H (A theta - theta_0)) + third order,    and at the anchor the Hessian A'HA.

Penalty, ridge and gauge act on theta itself and are added afterwards, unchanged: in the
features of the anchor they would not factor. The new anchor a is S theta_0; where A a
is not theta_0 (an imputed mean moves only the rows with a gap) the difference is the
``offset``, and the third-order term is about A s + offset (docs/paper.md,
"Preprocessing").

Rounding: terms are at most kappa, kappa^2, kappa^3 times as large as in e, and the rows
of retraining agree with A'e up to a few roundings of their entries.
"""

from dataclasses import replace
from math import inf

from ..core.feature_map import FeatureMap
from .state import State
from .summary import Scales


def lift_state(base: State, features: FeatureMap) -> State:
    """Return the state of the present features; ``base`` stays as it is."""
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
