# SPDX-License-Identifier: Apache-2.0
"""Dense linear algebra on d x d matrices: factor once, solve many."""

from ..magnitude import norm
from .iterative import NOT_THERE, CgSolution, conjugate_gradients
from .prox import Kink, Minimum, scaled_prox
from .symmetric import Cholesky, Symmetric

__all__ = [
    "NOT_THERE",
    "CgSolution",
    "Cholesky",
    "Kink",
    "Minimum",
    "Symmetric",
    "conjugate_gradients",
    "norm",
    "scaled_prox",
]
