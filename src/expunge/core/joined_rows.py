# SPDX-License-Identifier: Apache-2.0
"""JoinedRows: rows from one source followed by those of another, as one source.

Passes go over the blocks of the first source and then over those of the second; blocks
are not cut again where the one ends and the other begins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from .arrays import Vector
from .rows import Rows, RowSource

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class JoinedRows(RowSource):
    """Rows followed by others.

    Attributes
    ----------
    first, second
        The rows, with the same columns.
    """

    first: RowSource
    second: RowSource

    def __repr__(self) -> str:
        return f"JoinedRows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return self.first.n_columns

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights of both."""
        return self.first.total_weight + self.second.total_weight

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, those of the first source first."""
        return chain(self.first.map_blocks(term), self.second.map_blocks(term))

    def recode(self, code: Callable[[Vector], Vector]) -> "JoinedRows":
        """Return the rows with what ``code`` makes of their labels."""
        return JoinedRows(self.first.recode(code), self.second.recode(code))
