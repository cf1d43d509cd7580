# SPDX-License-Identifier: Apache-2.0
r"""Sums of whole numbers: what is added and what is subtracted cancel to the last bit.

A sum is an array of integers, or of numbers that are wider than 64 bits:

    S = sum_l 2^(32 l) parts_l ,   0 <= parts_l < 2^32 for all but the highest l .

Every integer has one such spelling, so that the sums after a removal are, byte for
byte, those of the rows that are left. A highest part that does not fit is refused:
nothing ever wraps around.

Numbers with decimals become whole ones on a *grid* that is declared in advance: x is
rounded to a multiple of 10^-decimals, each number by itself. ``products`` adds up
products of such numbers. It cuts them into digits of 16 bits, whose products doubles
add exactly as long as there are at most 2^20 rows in a block: every partial sum is an
integer of at most 2^52, in whatever order BLAS adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InvalidInput
from .arrays import Design, Matrix, Vector
from .values import Private, stored

PART_BITS = 32
DIGIT_BITS = 16
BLOCK_ROWS = 2**20
LARGEST = 2**53  # up to which doubles hold every integer
MOST_DECIMALS = 15
Whole = NDArray[np.int64]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class WholeSums(Private):
    """Integer sums over rows, by name. A vector space: ``plus`` and ``minus``.

    Attributes
    ----------
    parts
        For each name an array (l, ...) of parts, lowest first.
    """

    parts: Mapping[str, Whole]

    def plus(self, other: "WholeSums") -> "WholeSums":
        """Return the sums over these rows and those."""
        return self._combine(other, 1)

    def minus(self, other: "WholeSums") -> "WholeSums":
        """Return the sums over these rows but those."""
        return self._combine(other, -1)

    def _combine(self, other: "WholeSums", sign: int) -> "WholeSums":
        combined = {}
        for name, mine in self.parts.items():
            theirs = other.parts[name]
            shape = tuple(map(max, mine.shape, theirs.shape))
            combined[name] = _carry(
                _widen(mine, shape), sign * _widen(theirs, shape), name=name
            )
        return WholeSums(combined)

    def equals(self, other: "WholeSums") -> bool:
        """Whether these are the same numbers; where one has no entry, zero."""
        if self.parts.keys() != other.parts.keys():
            return False
        return not any(part.any() for part in other.minus(self).parts.values())

    def narrow(self, name: str) -> Whole:
        """Return sums that fit 64 bits."""
        only: Whole
        (only,) = self.parts[name]
        return only


def _widen(parts: Whole, shape: tuple[int, ...]) -> Whole:
    """Return an array with zeros where another one has more entries."""
    if parts.shape == shape:
        return parts
    wide = np.zeros(shape, dtype=np.int64)
    wide[tuple(slice(length) for length in parts.shape)] = parts
    return wide


def _carry(a: Whole, b: Whole, *, name: str) -> Whole:
    """Return a + b in the one spelling; refuse what does not fit."""
    total = a + b
    for low in range(len(total) - 1):
        total[low + 1] += total[low] >> PART_BITS
        total[low] &= (1 << PART_BITS) - 1
    # Below 2^62 neither the sum nor a carry can have wrapped around.
    bound = 1 << 62
    if any(np.abs(top[-1]).max(initial=0) >= bound for top in (a, b, total)):
        raise too_large(name)
    return total


def too_large(what: str) -> InvalidInput:
    """Return the error that a sum does not fit."""
    return InvalidInput(
        f"the sums of {what} would not fit 62 bits, and exact sums must not wrap "
        "around; nothing was changed; give smaller numbers, or fewer decimals"
    )


def whole_numbers(X: Design, decimals: int | None, *, name: str = "X") -> Any:
    """Return numbers on the grid of 10^-decimals, as integers in doubles.

    Each is rounded by itself: the result is a function of the number alone. With None
    they must be whole already.
    """
    data = entries_of(X)
    scaled = np.rint(data if decimals is None else data * 10.0**decimals)
    if decimals is None and not np.array_equal(scaled, data):
        first = float(np.asarray(data)[scaled != data].flat[0])
        raise InvalidInput(
            f"{name} holds {first:g}, and this model counts whole numbers; round them, "
            "or declare the grid that they lie on, such as decimals=3"
        )
    size = np.abs(scaled).max(initial=0.0)
    if not size < LARGEST:
        most = LARGEST / 10.0 ** (decimals or 0)
        raise InvalidInput(
            f"{name} holds {size / 10.0 ** (decimals or 0):g}, and with "
            f"decimals={decimals or 0} numbers up to {most:.2g} are carried exactly; "
            "take smaller units, or fewer decimals"
        )
    return with_entries(X, scaled + 0.0)  # no negative zeros


def entries_of(X: Any) -> NDArray[Any]:
    """Return the numbers of a design: of a sparse one, those that it stores."""
    return np.asarray(X if isinstance(X, np.ndarray) else X.data)


def with_entries(X: Any, entries: NDArray[Any]) -> Any:
    """Return a design with other numbers in the same places."""
    if isinstance(X, np.ndarray):
        return entries
    return sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape)


def check_decimals(decimals: Any) -> None:
    """Raise InvalidInput unless the grid is one that can be declared."""
    if decimals is None:
        return
    is_count = type(decimals) is not bool and isinstance(decimals, Integral)
    if not (is_count and 0 <= decimals <= MOST_DECIMALS):
        raise InvalidInput(
            f"decimals={decimals!r}; give a whole number from 0 to {MOST_DECIMALS}"
        )


def sum_by_group(X: Design, group: NDArray[np.intp], *, n_groups: int) -> Whole:
    """Return the sums (1, n_groups, d) of whole rows, one line for each group.

    Raises InvalidInput where they might not fit 62 bits.
    """
    n_rows = X.shape[0]
    data = entries_of(X)
    if float(np.abs(data).max(initial=0.0)) * max(n_rows, 1) >= 2.0**62:
        raise too_large("the columns")
    ones = np.ones(n_rows, dtype=np.int64)
    of_group = sparse.csr_array(
        (ones, (group, np.arange(n_rows))), shape=(n_groups, n_rows)
    )
    numbers: Any = X.astype(np.int64)
    summed: Any = of_group @ numbers
    dense: Any = np.asarray(summed.toarray() if sparse.issparse(X) else summed)
    return np.ascontiguousarray(dense, dtype=np.int64)[None]


def count_by_group(weight: Vector, group: NDArray[np.intp], *, n_groups: int) -> Whole:
    """Return the sums (1, n_groups) of whole weights."""
    return sum_by_group(weight[:, None], group, n_groups=n_groups)[:, :, 0]


def products(A: Matrix, B: Matrix, *, n_parts: int = 5) -> Whole:
    """Return the sums of products A' B of whole numbers below 2^53, in parts.

    Five parts carry more rows than there will ever be: 2^53 2^53 n < 2^(4 32 + 62).
    """
    total = np.zeros((n_parts, A.shape[1], B.shape[1]), dtype=np.int64)
    for begin in range(0, len(A), BLOCK_ROWS):
        block = slice(begin, begin + BLOCK_ROWS)
        left = _digits(A[block])
        right = left if B is A else _digits(B[block])
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                _add_shifted(total, (a.T @ b).astype(np.int64), digit=i + j)
        total = _carry(total, np.zeros_like(total), name="products")
    return total


def _digits(numbers: Matrix) -> list[Matrix]:
    """Return digits of 16 bits, lowest first, the highest one signed."""
    left = numbers.astype(np.int64)
    digits = []
    while True:
        if np.abs(left).max(initial=0) < 1 << DIGIT_BITS:
            digits.append(left.astype(np.float64))
            return digits
        digits.append((left & ((1 << DIGIT_BITS) - 1)).astype(np.float64))
        left >>= DIGIT_BITS


def _add_shifted(total: Whole, term: Whole, *, digit: int) -> None:
    """Add a term times 2^(16 digit) to parts of 32 bits."""
    part, odd = divmod(digit, 2)
    if not odd:
        total[part] += term
        return
    total[part] += (term & ((1 << DIGIT_BITS) - 1)) << DIGIT_BITS
    total[part + 1] += term >> DIGIT_BITS


def to_integers(parts: Whole) -> NDArray[Any]:
    """Return parts as an array of Python's integers."""
    total: NDArray[Any] = parts[-1].astype(object)
    for part in parts[-2::-1]:
        total = (total << PART_BITS) + part
    return total


def from_integers(numbers: NDArray[Any], n_parts: int) -> Whole:
    """Return Python's integers as parts."""
    parts, left = [], numbers
    for _ in range(n_parts - 1):
        parts.append((left & ((1 << PART_BITS) - 1)).astype(np.int64))
        left = left >> PART_BITS
    return np.stack([*parts, left.astype(np.int64)])
