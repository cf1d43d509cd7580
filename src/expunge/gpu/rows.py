# SPDX-License-Identifier: Apache-2.0
r"""DeviceRows: rows on a device of torch, in float32 or float64, summed in float64.

A pass takes a block at a time to float64, so that products and sums lose nothing that
the rows did not lose before. Partial sums and the curvatures that products of a Hessian
need stay on the device; what comes back are the sums.

Blocks are longer than in memory, and a device adds in an order of its own. Nothing here
is equal to the bit to a pass in memory, or to itself. ``n_additions`` bounds what any
order within blocks can lose, and radii are computed with it (docs/radii.md,
"Rounding").
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..core.arrays import Index, Vector
from ..core.linalg import algebra_by
from ..core.objective import Objective, check_weights
from ..core.rows import Largest, Rows, RowSource, Terms, Value, pairwise_sum
from ..core.values import Private
from ..exceptions import InvalidInput, Unsupported
from .device import (
    DeviceAlgebra,
    explain_errors,
    load_torch,
    require_device,
    require_memory,
)

Precision: TypeAlias = Literal["float32", "float64"]
# Rows of a block, unless that has more numbers than the second says: 512 MiB.
DEVICE_BLOCK_ROWS = 2**15
BLOCK_NUMBERS = 2**26
SPARSE = (
    "X is sparse, and rows on a device are dense; use rows in memory, or X.toarray() "
    "if that is small enough"
)
NO_PLACES: Index = np.array([], dtype=np.intp)


class DeviceRows(Private, RowSource):
    """Rows, labels and weights on a device. Private.

    Made by ``to_device``. ``without`` and ``take`` answer a request: what remains on
    the device, and the rows that leave as they are kept there.
    """

    __slots__ = ("_X", "_absent", "_total_weight", "_weight", "_y")

    keeps_terms: ClassVar[bool] = True

    def __init__(
        self, X: Any, y: Any, weight: Any, *, absent: Index = NO_PLACES
    ) -> None:
        self._X, self._y, self._weight = X, y, weight
        self._absent = absent
        parts = [block.sum() for block in weight.split(self.block_rows)]
        sums: list[float] = load_torch().stack(parts).tolist()
        (self._total_weight,) = pairwise_sum((one,) for one in sums)

    def __len__(self) -> int:
        return int(self._X.shape[0]) - len(self._absent)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return int(self._X.shape[1])

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights, never the row count."""
        return self._total_weight

    @property
    def device(self) -> str:
        """Where the rows lie."""
        return str(self._X.device)

    @property
    def block_rows(self) -> int:
        """How many rows a block has: never fewer than in memory."""
        width = 1 << (self.n_columns - 1).bit_length()
        return max(super().block_rows, min(DEVICE_BLOCK_ROWS, BLOCK_NUMBERS // width))

    @property
    def n_positions(self) -> int:
        """How many rows the blocks have, those that are absent included."""
        return int(self._X.shape[0])

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block in float64, on the device."""
        torch, size = load_torch(), self.block_rows
        with explain_errors(self._X.device):
            for begin in range(0, self._X.shape[0], size):
                part = slice(begin, begin + size)
                design = self._X[part].to(torch.float64)
                yield term(Rows(design, self._y[part], self._weight[part]))

    def sum_blocks(self, term: Callable[[Rows], Terms]) -> Terms:
        """Return the sum over blocks, added on the device, as host arrays."""
        with explain_errors(self._X.device):
            total = pairwise_sum(self.map_blocks(term))
            return type(total)(map(_to_host, total))

    def algebra(self) -> AbstractContextManager[None]:
        """Return a context in which wide matrices are factored on the device."""
        return algebra_by(DeviceAlgebra(self._X.device))

    def recode(self, code: Callable[[Vector], Vector]) -> "DeviceRows":
        """Return the rows with what ``code`` makes of their labels, in memory."""
        before = self._y.cpu().numpy()
        after = code(before)
        if after is before:
            return self
        after[self._absent] = 0.0  # what was overwritten is no label
        y = load_torch().as_tensor(after, device=self._X.device)
        return DeviceRows(self._X, y, self._weight, absent=self._absent)

    def without(self, gone: Index) -> "DeviceRows":
        """Return all rows but those at these positions, in the same memory.

        Positions stay what they were: those of rows that left are empty.
        """
        weight = self._weight.clone()
        weight[self._present(gone)] = 0.0
        absent = np.union1d(self._absent, gone)
        return DeviceRows(self._X, self._y, weight, absent=absent)

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions in memory, in float64."""
        index = self._present(positions)
        X, y, weight = (
            part[index].cpu().numpy().astype(np.float64)
            for part in (self._X, self._y, self._weight)
        )
        return Rows(np.ascontiguousarray(X), y, weight)

    def erase(self) -> None:
        """Overwrite the rows that ``without`` left out, once the request counts.

        They are gone from the rows that they were taken from as well.
        """
        index = load_torch().as_tensor(self._absent, device=self._X.device)
        for part in (self._X, self._y):
            part[index] = 0.0

    def erase_rows(self, gone: Index) -> "DeviceRows":
        """Return all rows but those at these positions, and overwrite these at once.

        Nobody may use the rows that it is called on afterwards. After an interrupt you
        can call it again, with the same effect.
        """
        index = load_torch().as_tensor(gone, device=self._X.device)
        for part in (self._X, self._y, self._weight):
            part[index] = 0.0
        absent = np.union1d(self._absent, gone)
        return DeviceRows(self._X, self._y, self._weight, absent=absent)

    def followed_by(self, added: Rows) -> "DeviceRows":
        """Return the rows, and after them these, all in memory of their own."""
        torch, device = load_torch(), self._X.device
        with explain_errors(device):
            more = copy_rows(added, device=str(device))
            kind = torch.promote_types(self._X.dtype, more._X.dtype)
            X = torch.cat([self._X.to(kind), more._X.to(kind)])
            y = torch.cat([self._y, more._y])
            weight = torch.cat([self._weight, more._weight])
        return DeviceRows(X, y, weight, absent=self._absent)

    def _present(self, positions: Index) -> Any:
        """Return positions on the device; each must hold a row, and be named once."""
        named = np.asarray(positions, dtype=np.intp)
        unique, n_positions = np.unique(named), int(self._X.shape[0])
        if unique.size != named.size:
            raise InvalidInput("a position is given twice; give each row once")
        if unique.size and not 0 <= unique[0] <= unique[-1] < n_positions:
            raise InvalidInput(
                f"a position is outside 0 to {n_positions - 1}; nothing was changed; "
                "check the positions"
            )
        if np.isin(unique, self._absent).any():
            raise InvalidInput(
                "a position holds no row any more; nothing was changed; check them"
            )
        return load_torch().as_tensor(named, device=self._X.device)


def _to_host(part: Any) -> Any:
    """Return a part of a sum, or several together, with host arrays and floats."""
    if isinstance(part, tuple):
        return type(part)(map(_to_host, part))
    if isinstance(part, Largest):
        return Largest(_to_host(part.value))
    if not isinstance(part, load_torch().Tensor):
        return part
    return part.cpu().numpy() if part.ndim else float(part)


def to_device(
    objective: Objective,
    X: Any,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    device: str = "cuda",
    dtype: Precision | None = None,
) -> DeviceRows:
    """Return rows on a device, checked as ``Objective.rows`` checks them.

    They are checked and copied a block at a time: no second copy in memory.

    Parameters
    ----------
    objective
        What will be fitted: it says which labels it takes and whether there is an
        intercept.
    X, y, sample_weight
        Dense design, (n, d), an array or a tensor; labels; weights, one if not given.
    device
        "cuda", "cuda:1", ..., or "cpu".
    dtype
        In which precision rows are kept: by default that of X. "float32" takes half
        the memory, and is refused for numbers that it would change: the model would
        be one of other rows than those that ask to leave.
    """
    if sparse.issparse(X):
        raise Unsupported(SPARSE)
    design = X if hasattr(X, "shape") and hasattr(X, "dtype") else np.asarray(X)
    if dtype is None:
        dtype = "float32" if str(design.dtype).endswith("float32") else "float64"
    if dtype not in ("float32", "float64"):
        raise InvalidInput(f"dtype={dtype!r}; it must be 'float32' or 'float64'")
    labels = objective.loss.labels(y)
    if len(design.shape) != 2 or len(labels) != design.shape[0] or not len(labels):
        raise InvalidInput(
            f"X has shape {tuple(design.shape)} and y has {len(labels)} labels; give "
            "rows of features, at least one, and one label for each"
        )
    weight = check_weights(sample_weight, len(labels))
    found = require_device(device)
    return _copy_rows(objective, Rows(design, labels, weight), to=found, dtype=dtype)


def _copy_rows(
    objective: Objective, given: Rows, *, to: Any, dtype: Precision
) -> DeviceRows:
    """Return the rows on the device, with the column of ones if there is one."""
    width = int(given.X.shape[1]) + objective.intercept
    there = _make_room(given, width, to=to, dtype=dtype)
    for part in _parts(given):
        some: Any = given.X[part]
        host = some.cpu().numpy() if hasattr(some, "cpu") else some
        block = objective.rows(host, given.y[part], given.weight[part]).dense()
        there._X[part] = load_torch().as_tensor(_narrow(block, dtype), device=to)
    return there


def copy_rows(rows: Rows, *, device: str) -> DeviceRows:
    """Return a copy of checked rows on a device, in float32 if that loses nothing."""
    if sparse.issparse(rows.X):
        raise Unsupported(SPARSE)
    to, X = require_device(device), np.asarray(rows.X)
    with np.errstate(over="ignore"):
        exact = ((X[part].astype(np.float32) == X[part]).all() for part in _parts(rows))
        dtype: Precision = "float32" if all(exact) else "float64"
    there = _make_room(rows, rows.n_columns, to=to, dtype=dtype)
    for part in _parts(rows):
        block = X[part].astype(dtype)
        there._X[part] = load_torch().as_tensor(block, device=to)
    return there


def _parts(rows: Rows) -> Iterator[slice]:
    """Yield the positions of so many rows as are copied at a time."""
    for begin in range(0, rows.X.shape[0], DEVICE_BLOCK_ROWS):
        yield slice(begin, begin + DEVICE_BLOCK_ROWS)


def _make_room(rows: Rows, width: int, *, to: Any, dtype: Precision) -> DeviceRows:
    """Return labels and weights on a device, and room for the rows."""
    torch, n_rows = load_torch(), int(rows.X.shape[0])
    numbers = width * (4 if dtype == "float32" else 8) + 8 + rows.y[0].size * 8
    require_memory(to, n_rows * numbers)
    with explain_errors(to):
        X = torch.empty((n_rows, width), dtype=getattr(torch, dtype), device=to)
        y, weight = (torch.as_tensor(part, device=to) for part in (rows.y, rows.weight))
        if to.type == "cpu":  # nobody else may write to them
            y, weight = y.clone(), weight.clone()
    absent = NO_PLACES if rows.absent is None else rows.absent
    return DeviceRows(X, y, weight, absent=absent)


def _narrow(block: NDArray[np.float64], dtype: Precision) -> NDArray[Any]:
    """Return the numbers in this precision, which must hold them as they are."""
    with np.errstate(over="ignore"):
        narrow = block.astype(dtype)
    if not (narrow == block).all():
        raise InvalidInput(
            "X holds numbers that float32 would change; round them before the fit and "
            "before every request (X.astype(numpy.float32)), or keep dtype='float64'"
        )
    return narrow
