# SPDX-License-Identifier: Apache-2.0
"""What is run at which size: in full, and quickly for a test."""

from dataclasses import dataclass
from typing import NamedTuple

from expunge.promise.budget import Budget

ALPHA, SIGMA = 1e-3, 0.1
# C = 1 at 100,000 rows, which is scikit-learn's own choice; one person moves such a
# model too far for a look to suffice.
WEAK_ALPHA = 1e-5
# What ``expunge fit`` takes where nobody says.
FLIGHTS_ALPHA = 1e-4
# So little noise that a request makes passes at every size here.
SMALL_SIGMA, GROWTH_ALPHA = 1e-2, 1e-4
EMBEDDED_ALPHAS = (1e-3, 1e-4)
L1_ALPHA, L1_RATIO, L1_RIDGE = 1e-4, 0.9, 1e-5


class DenseShape(NamedTuple):
    """Rows, classes and columns of dense data."""

    n_rows: int
    n_classes: int
    n_columns: int

    def __str__(self) -> str:
        return f"n = {self.n_rows}, k = {self.n_classes}, d = {self.n_columns}"


class TextShape(NamedTuple):
    """Rows, columns and entries of a row of sparse data."""

    n_rows: int
    n_columns: int
    n_entries: int

    def __str__(self) -> str:
        return f"n = {self.n_rows}, d = {self.n_columns}, {self.n_entries} a row"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large everything is, and how often it is timed.

    Attributes
    ----------
    softmax, one_vs_rest
        The dense shapes of each.
    text
        The shape of the sparse data.
    turns
        Fits of everything, in turn.
    requests
        Requests to the model of each turn.
    mechanism
        Of the models that should have no matrices: small ones must be told.
    heights, classes
        Rows of the sparse data, and classes of the dense, along which times grow.
    growing
        Dense data of which the classes grow.
    embeddings
        Data with a spectrum like that of embeddings.
    hashed
        Texts, classes, and columns that they are hashed into.
    thinning
        Of real data, every how-manyth row is taken.
    """

    softmax: tuple[DenseShape, ...]
    one_vs_rest: tuple[DenseShape, ...]
    text: TextShape
    turns: int
    requests: int
    mechanism: str
    heights: tuple[int, ...]
    classes: tuple[int, ...]
    growing: DenseShape
    embeddings: DenseShape
    hashed: DenseShape
    thinning: int = 1


FULL = Sizes(
    softmax=(DenseShape(20_000, 10, 384), DenseShape(20_000, 20, 768)),
    one_vs_rest=(
        DenseShape(20_000, 10, 384),
        DenseShape(20_000, 20, 768),
        DenseShape(20_000, 100, 384),
    ),
    text=TextShape(100_000, 50_000, 60),
    turns=3,
    requests=7,
    mechanism="auto",
    heights=(25_000, 50_000, 100_000, 200_000),
    classes=(5, 10, 20, 40, 80),
    growing=DenseShape(10_000, 10, 256),
    embeddings=DenseShape(50_000, 20, 384),
    hashed=DenseShape(100_000, 20, 2**16),
)
QUICK = Sizes(
    softmax=(DenseShape(300, 3, 8),),
    one_vs_rest=(DenseShape(4_000, 3, 8),),
    text=TextShape(400, 50, 6),
    turns=1,
    requests=3,
    mechanism="matrix-free",
    heights=(200, 400),
    classes=(3, 5),
    growing=DenseShape(200, 3, 6),
    embeddings=DenseShape(600, 3, 8),
    hashed=DenseShape(500, 3, 64),
    thinning=20,
)


def make_budget(sigma: float = SIGMA) -> Budget:
    """Return the budget of every model here."""
    return Budget(epsilon=1, delta=1e-5, sigma=sigma)
