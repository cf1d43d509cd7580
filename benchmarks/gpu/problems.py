# SPDX-License-Identifier: Apache-2.0
"""Problems on a device: rows made there, and a clock that waits for it."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from expunge import L2, Logistic, Multinomial, Objective, Rows
from expunge.core.rows import RowSource
from expunge.gpu import DeviceRows
from expunge.gpu.device import load_torch, require_device

from ..timing import Measurement
from .sizes import Shape

SEED = 20
Result = TypeVar("Result")


def make_objective(shape: Shape) -> Objective:
    """Return a logistic model, or a softmax head, without an intercept."""
    loss = Logistic() if shape.n_classes == 1 else Multinomial(shape.n_classes)
    return Objective(loss, L2(), alpha=1e-3, intercept=False)


def make_rows(shape: Shape, device: str) -> DeviceRows:
    """Return rows in float32 whose labels a linear model half explains."""
    torch, place = load_torch(), require_device(device)
    chance = torch.Generator(device=place).manual_seed(SEED)
    n, d, k = shape.n_rows, shape.n_features, shape.n_classes

    def normal(*size: int) -> Any:
        return torch.randn(size, generator=chance, device=place)

    X = normal(n, d) / float(np.sqrt(d))
    eta = 4.0 * X @ normal(d, k) + normal(n, k)
    if k == 1:
        y = torch.where(eta[:, 0] > 0.0, 1.0, -1.0).to(torch.float64)
    else:
        y = eta.argmax(dim=1).to(torch.float64)
    return DeviceRows(X, y, torch.ones(n, dtype=torch.float64, device=place))


def in_memory(rows: DeviceRows, share: int) -> Rows:
    """Return the first of so many parts of the rows, in memory."""
    return rows.take(np.arange(len(rows) // share))


def wait(rows: RowSource) -> None:
    """Wait until a device has done what was asked of it."""
    if isinstance(rows, DeviceRows) and rows.device.startswith("cuda"):
        load_torch().cuda.synchronize()


def timed(action: Callable[[], Result], rows: RowSource) -> tuple[Result, float]:
    """Return a result and how many seconds it took."""
    wait(rows)
    clock = perf_counter()
    result = action()
    wait(rows)
    return result, perf_counter() - clock


def repeat(
    name: str, action: Callable[[], object], rows: RowSource, *, n: int
) -> Measurement:
    """Return how long something takes, after once without a clock."""
    action()
    return Measurement.of(name, [timed(action, rows)[1] for _ in range(n)])


def peak_memory(rows: RowSource) -> float:
    """Return the most GiB that tensors took on the device since last asked."""
    if not (isinstance(rows, DeviceRows) and rows.device.startswith("cuda")):
        return float("nan")
    cuda = load_torch().cuda
    found = float(cuda.max_memory_allocated()) / 2**30
    cuda.reset_peak_memory_stats()
    return found
