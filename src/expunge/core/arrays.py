# SPDX-License-Identifier: Apache-2.0
"""Arrays: the types that travel between modules, their namespace, and their norms.

Terms of passes and losses take the functions that they call from the namespace of the
arrays they are given, as the Python array API has it: in memory that is NumPy, for a
tensor on a device what array-api-compat makes of torch.

The square of 1e-163 is zero in floating point, so a bound made of such squares would be
zero too, and wrong. Norms are therefore scaled before squaring where that matters, and
rows, factors and weights beyond 1e-50 and 1e50 are refused. Inside that range, every
product in a bound stays far from the ends of the range of floats, or ``UNDERFLOW`` pays
for what it can lose there. Derived in docs/decisions/0009-range-of-numbers.md.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csc_array, csr_array

from ..exceptions import NotConverged, needing
from .split import Index as Index
from .split import Matrix as Matrix
from .split import SplitMatrix
from .split import Vector as Vector

# Designs that are kept. What passes see may be ``SplitMatrix``, or lie on a device.
Design: TypeAlias = NDArray[np.float64] | csr_array[Any, tuple[int, int]]
UNIT_ROUNDOFF = 2.0**-53
# A bound times this is not lowered by the few roundings in computing it.
SAFETY = 1.0 + 1e-12
# Squares in between were computed without an underflow or overflow that matters.
LEAST_SQUARE, LARGEST_SQUARE = 1e-200, 1e200
# Arrays of NumPy, and what it makes of single numbers.
HOST = (np.ndarray, np.generic, float, int)
# Sparse rows whose entries are squared together.
SQUARED_AT_ONCE = 4096


def namespace(array: Any) -> Any:
    """Return the functions for an array: NumPy's, or those of the library it is of."""
    if isinstance(array, HOST) or is_compressed(array):
        return np
    with needing("gpu", "rows on a device"):
        from array_api_compat import array_namespace
    return array_namespace(array)


def is_compressed(X: Any) -> bool:
    """Whether a design has no zeros, or few: it is neither an array nor a tensor."""
    return isinstance(X, SplitMatrix) or sparse.issparse(X)


def beside(array: Any, host: Any) -> Any:
    """Return numbers in memory where an array lies: as they are if that is here."""
    xp = namespace(array)
    if xp is np:
        return host
    # A copy from ordinary memory is complete when the call returns: do not wait for
    # what the device has yet to compute.
    return xp.asarray(host).to(array.device, non_blocking=True)


def largest(sizes: Any, axis: int | None = None) -> Any:
    """Return the largest of sizes, zero if there are none; NaN if one is."""
    if isinstance(sizes, np.ndarray):
        return np.max(sizes, axis=axis, initial=0.0)
    return namespace(sizes).max(sizes, axis=axis)


def row_dots(a: Any, b: Any) -> Any:
    """Return the product of each row of one matrix with that row of the other."""
    if isinstance(a, np.ndarray):
        return np.einsum("ij,ij->i", a, b)
    return namespace(a).vecdot(a, b)


def write_lock(shared: Any) -> threading.RLock:
    """Return the lock to hold while changing an object that threads share."""
    # One call that no thread can divide: two first users get the same lock.
    lock: threading.RLock = shared.__dict__.setdefault("_lock", threading.RLock())
    return lock


def norm(v: Vector) -> float:
    """Return |v| rounded up: never zero unless v is, infinite where v is not finite."""
    square = float(np.vdot(v, v))
    if LEAST_SQUARE < square < LARGEST_SQUARE:
        return sqrt(square) * (1.0 + (v.size + 4) * UNIT_ROUNDOFF)
    if square == 0.0 and not v.any():
        return 0.0
    largest = float(np.max(np.abs(v)))
    return largest * norm(v / largest) if largest < inf else inf


def row_norms(X: Any) -> Vector:
    """Return the norm of each row, also where its square is no float."""
    squares = row_squares(X)
    norms: Vector = namespace(squares).sqrt(squares)
    if len(norms) == 1 and LEAST_SQUARE < float(squares[0]) < LARGEST_SQUARE:
        return norms  # most requests are one row: faster than by the arrays below
    odd = (squares <= LEAST_SQUARE) | ~(squares < LARGEST_SQUARE)
    if odd.any():
        norms[odd] = _scaled_norms(X[odd])
    return norms


def row_squares(X: Any) -> Vector:
    """Return the sum of squares of each row, as it comes out."""
    if sparse.issparse(X):
        return _sparse_row_squares(X)
    if isinstance(X, SplitMatrix):
        with np.errstate(over="ignore"):  # callers look for what is not finite
            return X.map(np.square) @ np.ones(X.shape[1])
    if not isinstance(X, np.ndarray):  # squares that are nowhere written down
        squares: Vector = namespace(X).linalg.vector_norm(X, axis=1) ** 2
    elif len(X) == 1:  # a quarter of the time
        squares = np.array([np.vdot(X, X)])
    else:
        squares = row_dots(X, X)
    return squares


def slice_rows(X: Design, part: slice) -> Design:
    """Return consecutive rows of X, in the same memory.

    SciPy adds up entries given twice in place: such a matrix is copied.
    """
    if not sparse.issparse(X):
        rows: Matrix = X[part]
        return rows
    if not X.has_canonical_format:
        return X[part]
    begin, end, _ = part.indices(X.shape[0])
    pointers = X.indptr[begin : max(begin, end) + 1]
    view: csr_array[Any, tuple[int, int]] = csr_array((len(pointers) - 1, X.shape[1]))
    # Given to the constructor, or to X[part], the entries would be copied.
    entries = slice(pointers[0], pointers[-1])
    view.data, view.indices = X.data[entries], X.indices[entries]
    view.indptr = pointers - pointers[0]
    view.has_canonical_format = True
    return view


def transpose(X: Design) -> Any:
    """Return the transpose of X in the same memory, for products from the left."""
    if not sparse.issparse(X):
        return X.T
    turned: Any = csc_array(X.shape[::-1])
    # X.T copies the entries of a slice: SciPy takes it for waste of a larger array.
    turned.data, turned.indices, turned.indptr = X.data, X.indices, X.indptr
    return turned


def may_share_memory(X: Any, other: Any) -> bool:
    """Whether writing to one of two designs may change the other."""
    pairs = ((a, b) for a in _memory_of(X) for b in _memory_of(other))
    return any(np.may_share_memory(a, b) for a, b in pairs)


def _memory_of(X: Any) -> tuple[Any, ...]:
    return (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)


@contextmanager
def catch_lapack_errors() -> Iterator[None]:
    """Raise NotConverged where LAPACK gives up: numbers have left their range."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise NotConverged(
            "a matrix could not be decomposed: its numbers differ too much in size; "
            "scale the columns to similar ranges, or penalise more"
        ) from error


def _sparse_row_squares(X: Any) -> Vector:
    """Return the sum of squares of each row, a few rows at a time to save memory."""
    squares, ones = np.empty(X.shape[0]), np.ones(X.shape[1])
    for begin in range(0, X.shape[0], SQUARED_AT_ONCE):
        part = slice(begin, begin + SQUARED_AT_ONCE)
        view: Any = slice_rows(X, part)
        with np.errstate(over="ignore"):  # callers look for what is not finite
            view.data = view.data * view.data
        squares[part] = view @ ones
    return squares


def _scaled_norms(X: Any) -> Vector:
    """Return the norm of each row, divided by its largest entry before squaring."""
    size: Any = abs(X.toarray() if isinstance(X, SplitMatrix) else X)
    longest = size.max(axis=1).toarray() if sparse.issparse(X) else largest(size, 1)
    xp = namespace(longest)
    longest = xp.where(longest < inf, longest, inf)  # NaN is no number to divide by
    unit = xp.where((longest > 0.0) & (longest < inf), longest, 1.0)
    if sparse.issparse(X):
        size.data /= np.repeat(unit, np.diff(size.indptr))
    else:
        size /= unit[:, None]
    norms: Vector = unit * xp.sqrt(row_squares(size))
    norms = xp.where(longest < inf, norms, inf)
    return norms
