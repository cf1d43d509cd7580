# SPDX-License-Identifier: Apache-2.0
"""Which mechanism a model gets where nobody names one: part of what is promised.

With matrices (``Newton``) a request takes microseconds to milliseconds and can be
certified without the rows; a fit must build and factor them. Without matrices
(``MatrixFree``) a fit is a few passes and a request another pass or two. Matrices pay
while they are small, or where there are so many rows that a pass costs more:

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

from math import isfinite

from scipy import sparse

from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..core.solver import LARGEST_HESSIAN, hessian_bytes
from ..exceptions import InvalidInput
from .matrix_free import MatrixFree
from .newton import Newton
from .state import Mechanism

SMALL_BLOCK, SMALL_STATE = 1024, 2**28
LARGE_BLOCK, LARGE_STATE = 4096, 2**30
LONG = 64
AUTO = " (auto)"  # after the name of what the rule chose
MATRICES = 2  # a state's Hessian and inverse; its moment is one block more


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
