# SPDX-License-Identifier: Apache-2.0
"""DeviceArray: a tensor that NumPy functions take for an array.

Losses and terms of passes are written in NumPy. NumPy asks its arguments who computes
(``__array_ufunc__`` and ``__array_function__``, NEP 13 and NEP 18), so that the same
functions run where the block lies, and what runs in memory stays as it is. Host arrays
that meet a DeviceArray are copied to its device; scalars become float64
or integers.

Below are those functions by torch: they take tensors of one device, and scalars. All
are of float64 and round as IEEE arithmetic does, in an order of their own. A function
that is not in the tables is refused by name: nothing falls back to the host
silently, except where somebody asks for an array (``np.asarray``).
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ..core.values import Private
from ..exceptions import Unsupported
from .device import load_torch

Tensor: TypeAlias = Any

# Columns of a panel: of 1024 columns, four panels take 10/16 of the products.
PANEL = 256

# By the names of NumPy, or SciPy, and of torch.
UFUNCS = {
    "absolute": "abs",
    "add": "add",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "divide": "div",
    "equal": "eq",
    "exp": "exp",
    "expit": "sigmoid",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "isfinite": "isfinite",
    "isnan": "isnan",
    "less": "lt",
    "less_equal": "le",
    "log": "log",
    "log1p": "log1p",
    "logaddexp": "logaddexp",
    "matmul": "matmul",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "sub",
    "tanh": "tanh",
}


class DeviceArray(NDArrayOperatorsMixin, Private):
    """A tensor on a device that behaves like an array. Private."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Compute a function of NumPy, element by element or a matrix product."""
        name = UFUNCS.get(ufunc.__name__)
        if name is None or method != "__call__" or options:
            raise _unsupported(ufunc.__name__)
        device = self.tensor.device
        if name == "pow" and not np.ndim(inputs[1]):  # squares are products there
            found = _to_tensor(inputs[0], device) ** float(inputs[1])
        else:
            operands = (_to_tensor(value, device) for value in inputs)
            found = getattr(load_torch(), name)(*operands)
        if out is None:
            return DeviceArray(found)
        (target,) = out
        target.tensor.copy_(found)
        return target

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Compute any other function of NumPy that is in the table."""
        del types
        known = FUNCTIONS.get(function)
        if known is None:
            raise _unsupported(function.__name__)
        device = self.tensor.device
        tensors = [_to_tensors(value, device) for value in args]
        options = {name: _to_tensors(value, device) for name, value in kwargs.items()}
        return DeviceArray(known(*tensors, **options))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a host array."""
        del copy
        host = self.tensor.cpu().numpy()
        return np.asarray(host, dtype=dtype)

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator["DeviceArray"]:
        return map(DeviceArray, self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __getitem__(self, index: Any) -> "DeviceArray":
        return DeviceArray(self.tensor[_to_index(index, self.tensor.device)])

    def __setitem__(self, index: Any, value: Any) -> None:
        device = self.tensor.device
        self.tensor[_to_index(index, device)] = _to_tensor(value, device)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """As of an array."""
        return int(self.tensor.ndim)

    def _turn(self) -> "DeviceArray":
        """Return the transpose, in the same memory."""
        return self.transpose(*reversed(range(self.ndim)))

    T = property(_turn)

    def transpose(self, *axes: int) -> "DeviceArray":
        """Return the axes in another order, in the same memory."""
        return DeviceArray(self.tensor.permute(axes))

    def reshape(self, *shape: Any) -> "DeviceArray":
        """Return the same numbers in another shape."""
        return DeviceArray(self.tensor.reshape(*shape))

    def ravel(self) -> "DeviceArray":
        """Return the numbers in one row."""
        return self.reshape(-1)

    def astype(self, dtype: Any) -> "DeviceArray":
        """Return the numbers as float64, integers or truth values."""
        kind = np.dtype(dtype).kind
        torch = load_torch()
        kinds = {"f": torch.float64, "i": torch.int64, "b": torch.bool}
        return DeviceArray(self.tensor.to(kinds[kind]))

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> "DeviceArray":
        """Return the largest, of all or along an axis."""
        return DeviceArray(largest(self.tensor, axis, keepdims=keepdims))

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> "DeviceArray":
        """Return the smallest, of all or along an axis."""
        return DeviceArray(smallest(self.tensor, axis, keepdims=keepdims))

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> "DeviceArray":
        """Return the sum, of all or along an axis."""
        return DeviceArray(total(self.tensor, axis, keepdims=keepdims))

    def dot(self, other: Any) -> "DeviceArray":
        """Return the matrix product."""
        product: DeviceArray = self @ other
        return product

    def weighted_gram(self, scale: "DeviceArray") -> "DeviceArray":
        """Return X' diag(scale) X of these rows."""
        return DeviceArray(weighted_gram(self.tensor, scale.tensor))

    def any(self) -> "DeviceArray":
        """Return whether one is true."""
        return DeviceArray(self.tensor.any())

    def all(self) -> "DeviceArray":
        """Return whether all are true."""
        return DeviceArray(self.tensor.all())


def _to_tensor(value: Any, device: Any) -> Any:
    """Return a tensor on the device."""
    if isinstance(value, DeviceArray):
        return value.tensor
    torch = load_torch()
    if np.ndim(value) == 0:  # filled there: a copy would wait for the device
        whole = isinstance(value, int | np.integer)
        kind = torch.int64 if whole else torch.float64
        return torch.full((), value, dtype=kind, device=device)
    # Copied from ordinary memory before the call returns, but not waited for.
    return torch.as_tensor(np.asarray(value)).to(device, non_blocking=True)


def _to_tensors(value: Any, device: Any) -> Any:
    """Return an argument with its arrays as tensors, and all else as it is."""
    if isinstance(value, DeviceArray | np.ndarray):
        return _to_tensor(value, device)
    if isinstance(value, list):
        return [_to_tensors(one, device) for one in value]
    return value


def _to_index(index: Any, device: Any) -> Any:
    """Return an index with its arrays as tensors."""
    if isinstance(index, tuple):
        return tuple(_to_tensors(part, device) for part in index)
    return _to_tensors(index, device)


def _unsupported(name: str) -> Unsupported:
    return Unsupported(
        f"numpy's {name} is not available on a device; write the loss with functions "
        "that expunge's own losses use, or use rows in memory"
    )


def largest(
    x: Tensor,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Return the largest, and no less than ``initial``; NaN if there is one."""
    if initial is not None and not x.numel():
        shape = x.shape[:axis] if axis is not None else ()
        return x.new_full(shape, initial)
    found = x.amax() if axis is None else x.amax(dim=axis, keepdim=keepdims)
    return found if initial is None else found.clamp(min=initial)


def smallest(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the smallest."""
    return x.amin() if axis is None else x.amin(dim=axis, keepdim=keepdims)


def total(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Return the sum."""
    return x.sum() if axis is None else x.sum(dim=axis, keepdim=keepdims)


def weighted_gram(X: Tensor, scale: Tensor, *, panel: int = PANEL) -> Tensor:
    """Return X' diag(scale) X by panels of columns.

    What lies above the diagonal is copied from below: the product is symmetric.
    """
    scaled, width = X * scale[:, None], int(X.shape[1])
    product = X.new_empty((width, width))
    for begin in range(0, width, panel):
        end = min(begin + panel, width)
        part = X[:, begin:].T @ scaled[:, begin:end]
        top = part[: end - begin].tril()
        product[begin:end, begin:end] = top + top.tril(-1).T
        product[end:, begin:end] = part[end - begin :]
        product[begin:end, end:] = part[end - begin :].T
    return product


def _einsum(subscripts: str, *operands: Tensor) -> Tensor:
    if subscripts == "ij,ij->i":  # torch would call a product for each row
        if operands[0] is operands[1]:  # squares that are nowhere written down
            return load_torch().linalg.vector_norm(operands[0], dim=1).square()
        return (operands[0] * operands[1]).sum(dim=1)
    return load_torch().einsum(subscripts, *operands)


def _where(condition: Tensor, x: Any, y: Any) -> Tensor:
    def fill(value: Any) -> Tensor:
        if np.ndim(value):
            return value
        kind = load_torch().float64
        return condition.new_full((), float(value), dtype=kind)

    return load_torch().where(condition, fill(x), fill(y))


def _ones_like(x: Tensor) -> Tensor:
    return x.new_ones(x.shape)


def _zeros_like(x: Tensor, *, shape: Any = None) -> Tensor:
    return x.new_zeros(x.shape if shape is None else shape)


def _bincount(x: Tensor, *, weights: Tensor, minlength: int) -> Tensor:
    return x.bincount(weights, minlength)


def _searchsorted(edges: Tensor, x: Tensor, *, side: str) -> Tensor:
    return load_torch().searchsorted(edges, x.contiguous(), side=side)


FUNCTIONS: dict[Callable[..., Any], Callable[..., Tensor]] = {
    np.atleast_1d: lambda x: x.reshape(1) if not x.ndim else x,
    np.bincount: _bincount,
    np.clip: lambda x, low, high: x.clamp(low, high),
    np.concatenate: lambda parts: load_torch().cat(parts),
    np.diag: lambda x: x.diag(),
    np.einsum: _einsum,
    np.max: largest,
    np.min: smallest,
    np.ones_like: _ones_like,
    np.searchsorted: _searchsorted,
    np.stack: lambda parts: load_torch().stack(parts),
    np.sum: total,
    np.vdot: lambda a, b: a.reshape(-1) @ b.reshape(-1),
    np.where: _where,
    np.zeros_like: _zeros_like,
}
