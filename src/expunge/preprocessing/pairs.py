# SPDX-License-Identifier: Apache-2.0
"""Pairs: a category of two columns, as of a profession and a region.

What a row has in one column and in the other is one category more. A linear model then
has a coefficient for each combination, which the two columns alone do not give it.
Nothing is learnt here: which pairs there are is learnt, counted and forgotten by the
encoder that follows, as with any column.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from .columns import find_categories

BETWEEN, GAP = " & ", "nan"


@stored
@dataclass(frozen=True, slots=True)
class Pair:
    """A column that says what a row has in two others: "nurse & north".

    Put it before ``OneHotEncoder`` in a pipeline of two columns.
    """

    by_block: ClassVar[bool] = True
    takes_values: ClassVar[bool] = True

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the name of the column."""
        if len(columns) != 2:
            raise InvalidInput(
                f"Pair of {len(columns)} columns; give it two, and list it once more "
                "for each further pair"
            )
        return [BETWEEN.join(columns)]

    def encode(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the pair of each row as a word."""
        first, second = (_spell(column) for column in X.T)
        pairs = np.empty((len(X), 1), dtype=object)
        pairs[:, 0] = [a + BETWEEN + b for a, b in zip(first, second, strict=True)]
        return pairs

    def make_plain(self, columns: Any) -> Any:
        """Refuse: scikit-learn has no such transformer."""
        del columns
        raise Unsupported(
            "Pair has no counterpart in scikit-learn; ship the model as .safetensors"
        )


def _spell(column: NDArray[Any]) -> list[str]:
    """Return values as words that do not hold what stands between the two."""
    keys, codes = find_categories(column, "of a pair")
    words = [GAP if key is None else str(key).replace("&", "&&") for key in keys]
    return [words[code] for code in codes.tolist()]
