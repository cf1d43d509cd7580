# SPDX-License-Identifier: Apache-2.0
"""DeviceArray: a tensor that NumPy functions take for an array.

Losses and terms of passes are written in NumPy. NumPy asks its arguments who computes
(``__array_ufunc__`` and ``__array_function__``, NEP 13 and NEP 18), so that the same
functions run where the block lies, and what runs in memory stays as it is. Host arrays
that meet a DeviceArray are copied to its device; scalars become float64
or integers.

A function that is not in the tables is refused by name: nothing falls back to the host
silently, except where somebody asks for an array (``np.asarray``).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from ..core.values import Private
from ..exceptions import Unsupported
from .device import load_torch
from .functions import FUNCTIONS, UFUNCS, largest, smallest, total, weighted_gram


class DeviceArray(NDArrayOperatorsMixin, Private):
    """A tensor on a device, with the manners of an array. Private."""

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
