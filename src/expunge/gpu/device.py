# SPDX-License-Identifier: Apache-2.0
"""Devices: find torch and a device, and refuse one whose sums nobody can bound.

A certificate pays for rounding by the rules of IEEE arithmetic in float64. A device
without float64 has none of it, and cuBLAS can be told to make up products of float64
from shorter numbers, which obey other bounds. Both are refused, and one product whose
result must be exact is tried before any row is copied.

``DeviceAlgebra`` factors and inverts wide matrices there. They shape steps and
precondition solves, and no certificate trusts them: the residual that is measured
afterwards decides.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ..core.arrays import Matrix
from ..core.linalg import NOT_DEFINITE
from ..exceptions import InvalidInput, NotPositiveDefinite, Unsupported, needing

EMULATION = "CUBLAS_EMULATE_DOUBLE_PRECISION"
PROBE = 64
# Matrices with fewer columns are factored in memory before a copy is there.
SMALLEST = 512


@cache
def load_torch() -> Any:
    """Return the torch library, or raise MissingExtra."""
    with needing("gpu", "rows on a device"):
        import torch
    return torch


def require_device(name: str) -> Any:
    """Return the device of this name, or raise if its sums cannot be certified."""
    torch = load_torch()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(
            f"device={name!r} is not a torch device; give 'cuda', 'cuda:1' or 'cpu'"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Unsupported(
            f"device={name!r}, and torch {torch.__version__} finds no CUDA device; "
            "check the driver and that torch was built for CUDA, or use rows in memory"
        )
    if os.environ.get(EMULATION, "0") not in ("", "0"):
        raise Unsupported(
            f"{EMULATION} is set: products would be made up of shorter numbers, whose "
            "rounding no certificate covers; unset it"
        )
    try:
        exact = _multiplies_exactly(torch, device)
    except (RuntimeError, TypeError) as error:
        raise Unsupported(
            f"device={name!r} cannot compute in float64, and certificates rest on sums "
            "in float64; use another device, or rows in memory"
        ) from error
    if not exact:
        raise Unsupported(
            f"device={name!r} multiplies float64 less exactly than IEEE arithmetic; "
            "certificates rest on that, so use another device, or rows in memory"
        )
    return device


def require_memory(device: Any, n_bytes: int) -> None:
    """Raise Unsupported if a CUDA device has no room for so many bytes."""
    if device.type != "cuda":
        return
    free, whole = load_torch().cuda.mem_get_info(device)
    if n_bytes > free:
        raise Unsupported(
            f"the rows take {n_bytes / 2**30:.2f} GiB, and {free / 2**30:.2f} of "
            f"{whole / 2**30:.2f} GiB are free on {device}; keep them in float32, use "
            "another device, or rows in memory"
        )


@contextmanager
def explain_errors(device: Any) -> Iterator[None]:
    """Raise Unsupported where memory runs out, or a function cannot work there."""
    try:
        yield
    except load_torch().cuda.OutOfMemoryError as error:
        raise Unsupported(
            f"there is no memory left on {device} for the blocks of a pass; nothing "
            "was changed; free some of it, keep the rows in float32, or use rows in "
            "memory"
        ) from error
    except TypeError as error:
        if "numpy" not in str(error):
            raise
        raise Unsupported(
            f"a function of NumPy was given rows on {device}: write the loss with the "
            "functions of expunge.core.arrays.namespace(eta), or use rows in memory"
        ) from error


class DeviceAlgebra:
    """Cholesky factors by a device of torch."""

    __slots__ = ("_device",)

    def __init__(self, device: Any) -> None:
        self._device = device

    def factor(self, lower: Matrix) -> Matrix | None:
        """Return the factor of a matrix given by its lower triangle; None if small."""
        if len(lower) < SMALLEST:
            return None
        with explain_errors(self._device):
            factor, info = load_torch().linalg.cholesky_ex(self._copy(lower))
            if int(info):
                raise NotPositiveDefinite(NOT_DEFINITE)
            return _to_host(factor)

    def invert(self, factor: Matrix) -> Matrix | None:
        """Return the lower triangle of the inverse, from a factor; None if small."""
        if len(factor) < SMALLEST:
            return None
        with explain_errors(self._device):
            return _to_host(load_torch().cholesky_inverse(self._copy(factor)))

    def _copy(self, lower: Matrix) -> Any:
        """Return a triangle in Fortran order as a tensor."""
        return load_torch().as_tensor(lower.T, device=self._device).mT


def _to_host(matrix: Any) -> Matrix:
    """Return the lower triangle as a host array in Fortran order."""
    host: Matrix = matrix.tril().mT.contiguous().cpu().numpy().T
    return host


def _multiplies_exactly(torch: Any, device: Any) -> bool:
    """Whether a product of integers far apart in scale is what it must be.

    A column of the first factor is multiplied, and the row of the second divided, by a
    power of two. In float64 nothing is rounded, whatever the order of the additions.
    """
    numbers = np.arange(PROBE)
    powers = 2.0 ** (numbers % 31 - 15)
    left = np.asarray((numbers[:, None] * 37 + numbers * 101) % 1021, dtype=np.float64)
    right = np.asarray((numbers[:, None] * 53 + numbers * 11) % 1019, dtype=np.float64)
    first, second = (
        torch.as_tensor(part, device=device)
        for part in (left * powers, right / powers[:, None])
    )
    return bool(((first @ second).cpu().numpy() == left @ right).all())
