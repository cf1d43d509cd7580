# SPDX-License-Identifier: Apache-2.0
"""Functions of NumPy by those of torch: what losses and terms of passes call.

They take tensors of one device, and scalars. All are of float64 and round as IEEE
arithmetic does, in an order of their own.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

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
