# SPDX-License-Identifier: Apache-2.0
"""Factors and inverses of wide matrices, computed on a device.

They shape steps and precondition solves, and no certificate trusts them: the residual
that is measured afterwards decides.
"""

from typing import Any

from ..core.arrays import Matrix
from ..core.linalg import NOT_DEFINITE
from ..exceptions import NotPositiveDefinite
from .device import load_torch, report_memory

# Matrices with fewer columns are factored in memory before a copy is there.
SMALLEST = 512


class DeviceAlgebra:
    """Cholesky factors by a device of torch."""

    __slots__ = ("_device",)

    def __init__(self, device: Any) -> None:
        self._device = device

    def factor(self, lower: Matrix) -> Matrix | None:
        """Return the factor of a matrix given by its lower triangle; None if small."""
        if len(lower) < SMALLEST:
            return None
        with report_memory(self._device):
            found, info = load_torch().linalg.cholesky_ex(self._copy(lower))
            if int(info):
                raise NotPositiveDefinite(NOT_DEFINITE)
            return _to_host(found)

    def invert(self, factor: Matrix) -> Matrix | None:
        """Return the lower triangle of the inverse, from a factor; None if small."""
        if len(factor) < SMALLEST:
            return None
        with report_memory(self._device):
            return _to_host(load_torch().cholesky_inverse(self._copy(factor)))

    def _copy(self, lower: Matrix) -> Any:
        """Return a triangle in Fortran order as a tensor."""
        return load_torch().as_tensor(lower.T, device=self._device).mT


def _to_host(found: Any) -> Matrix:
    """Return the lower triangle as a host array in Fortran order."""
    host: Matrix = found.tril().mT.contiguous().cpu().numpy().T
    return host
