# SPDX-License-Identifier: Apache-2.0
"""Hashed words weighed by how few rows have them, as TfidfTransformer does.

    x_j (ln((1 + n) / (1 + n_j)) + 1),    n_j of n rows have something in column j,

and then each row over its norm. Counts are kept as they were hashed. The numbers n_j
are exact, but the norm of a row moves with all weights at once, so that every request
weighs and reads all remaining rows again.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import Pipeline

from ..core.arrays import Design, Vector
from ..core.exact_sums import NOBODY_LEFT, STRANGERS
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import dumps, stored
from ..exceptions import CannotRemove, InvalidInput, UnknownRows, Unsupported
from ..private_model.composition import EncodedRequest, raw_rows
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from .inputs import InputMap, InputRows, PublicInputs, encode_inputs
from .learned import without_gaps

Counts = NDArray[np.int64]


@stored
@dataclass(frozen=True, eq=False)
class WeighedTerms(InputMap):
    """A map that hashes inputs, and weights that are learnt of what it gives.

    Attributes
    ----------
    hashed
        The map.
    norm
        What each row is divided by: "l1", "l2", or None.
    """

    hashed: Any
    norm: str | None

    def make_rows(
        self, inputs: Sequence[Any], *, owners: Sequence[str] | None, shown: bool
    ) -> Design:
        """Return a row of counts for each input."""
        made: Design = self.hashed.make_rows(inputs, owners=owners, shown=shown)
        return made

    def noted(self) -> Self:
        """Return the map with a digest of what it makes of what everybody knows."""
        return replace(self, hashed=self.hashed.noted())

    def to_sklearn(self) -> Any:
        """Return what makes the counts."""
        return self.hashed.to_sklearn()

    @property
    def stated(self) -> str:
        """Its name and parameters as canonical JSON, for certificates."""
        hashed = json.loads(self.hashed.stated)
        return dumps({"name": "WeighedTerms", "hashed": hashed, "norm": self.norm})

    def encoding(self, width: int) -> InputRows:
        """Return the encoding of rows that this map makes, which has learnt nothing."""
        return TermRows(self, width)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TermRows(InputRows):
    """Rows of counts that were made of inputs, weighed as the rows teach. Private.

    Attributes
    ----------
    n_rows, n_with
        How many rows there are, and how many have something in each column.
    """

    n_rows: int = 0
    n_with: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def raw(self) -> bool:
        """True."""
        return True

    @property
    def changes(self) -> bool:
        """True."""
        return True

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return inputs and coded labels as the rows that are kept."""
        rows = encode_inputs(self.made_by, X).rows
        return raw_rows(rows, y, weight, objective=objective)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the encoding with weights learnt from these rows."""
        del objective
        held = in_memory(without_gaps(rows))
        return replace(self, n_rows=len(held), n_with=_count(held))

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the head sees them."""
        held = in_memory(without_gaps(rows))
        X = weigh(held.X, self._weights, norm=self.made_by.norm)
        return objective.rows(X, held.y, held.weight)

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of kept rows leads to: all rows are read again."""
        del objective, rows
        n_rows, n_with = self.n_rows, self.n_with
        for given, sign in ((change.added, 1), (change.removed, -1)):
            if given is not None and len(given):
                n_rows += sign * len(given)
                n_with = n_with + sign * _count(given)
        if not n_rows:
            raise CannotRemove(NOBODY_LEFT)
        if (n_with < 0).any() or (n_with > n_rows).any():
            raise UnknownRows(STRANGERS)
        return EncodedRequest(replace(self, n_rows=n_rows, n_with=n_with), None)

    @property
    def _weights(self) -> Vector:
        weights: Vector = np.log((self.n_rows + 1.0) / (self.n_with + 1.0)) + 1.0
        return weights

    @property
    def public(self) -> "PublicTerms":
        """The map and its weights, as predictions need them."""
        return PublicTerms(self.made_by, self.n_features, self._weights)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, the map included."""
        made_by: InputMap = self.made_by
        return replace(made_by.state_in(scope), preprocessed=True)


@stored
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublicTerms(PublicInputs):
    """The same for predictions.

    Attributes
    ----------
    weights
        Of each column.
    """

    weights: Vector

    def encode(self, X: Any) -> Any:
        """Return the rows of inputs as the head sees them."""
        made = PublicInputs.encode(self, X)
        return weigh(made, self.weights, norm=self.made_by.norm)

    def require_consistent(self, columns: Collection[Any]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together."""
        PublicInputs.require_consistent(self, columns)
        if self.weights.shape != (self.n_features,):
            raise ValueError("the parts of this preprocessing do not go together")

    def to_sklearn(self) -> Any:
        """Return scikit-learn's transformers."""
        weighing = TfidfTransformer(norm=self.made_by.norm)
        weighing.fit(sparse.csr_array((1, self.n_features)))
        weighing.idf_ = self.weights.copy()
        hashing = self.made_by.to_sklearn()
        return Pipeline([("hashed", hashing), ("weighed", weighing)])


def weigh(X: Any, weights: Vector, *, norm: str | None) -> Any:
    """Return sparse rows of counts times weights, each over its norm."""
    X = sparse.csr_array(X)
    data = X.data * weights[X.indices]
    if norm is not None:
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        sizes = np.abs(data) if norm == "l1" else data * data
        norms = np.bincount(row, sizes, X.shape[0])
        norms = norms if norm == "l1" else np.sqrt(norms)
        norms[norms == 0.0] = 1.0
        data = data / norms[row]
    return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _count(rows: Rows) -> Counts:
    """Return how many rows have something in each column."""
    X: Any = sparse.csr_array(rows.X)
    found = np.bincount(X.indices[X.data != 0.0], minlength=X.shape[1])
    return found.astype(np.int64)


def read_weighed(hashed: InputMap, step: TfidfTransformer) -> WeighedTerms:
    """Return hashed inputs with weights of terms after them."""
    if getattr(hashed, "alternate_sign", False):
        raise Unsupported(
            "TfidfTransformer after hashing with alternate_sign=True, where counts of "
            "words cancel; hash with alternate_sign=False"
        )
    wanted = {"use_idf": True, "smooth_idf": True, "sublinear_tf": False}
    for name, value in wanted.items():
        if getattr(step, name) != value:
            raise Unsupported(
                f"TfidfTransformer({name}={getattr(step, name)}) after hashing; leave "
                f"{name} at its default"
            )
    if step.norm not in (None, "l1", "l2"):
        raise InvalidInput(
            f"TfidfTransformer(norm={step.norm!r}); use 'l1', 'l2' or None"
        )
    return WeighedTerms(hashed, step.norm)
