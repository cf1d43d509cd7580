# SPDX-License-Identifier: Apache-2.0
"""Mapped: rows encoded by a map that learns nothing, such as random Fourier features.

An ``Encoder`` is a map of rows whose result depends, for each row, on that row and on
declared parameters alone. Then what the model sees of a person says nothing about
others, and a row that leaves takes all of its own along. scikit-learn has some
(``sklearn_maps``), and anybody can write one:

    @stored
    @dataclass(frozen=True)
    class Squares:
        def encode(self, X):
            return np.hstack([X, X**2])

    LogisticRegression(preprocessing=Squares(), ...)

The row that is subtracted must be, to the last bit, the row that was summed. Kept and
hashed are raw rows; with ``keep_data="encoded"`` those that the map gives: rows are
then encoded once, for a map that is slow.

The map may come after steps that learn, and may be learnt itself (``learnt_maps``). It
is no linear map of sums, so that the rows are read at every request.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from ..core.arrays import Matrix
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import NOT_STORED, stored
from ..exceptions import InvalidInput, Unsupported
from ..private_model.composition import EncodedRequest, Encoding
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from .description import Preprocessing
from .encoder import (
    CHECKED,
    Encoder,
    check_encoder,
    describe_encoder,
    encode_rows,
    find_bits,
    is_encoder,
    name_features,
    require_bits,
    require_features,
    title_of,
)
from .features import FittedPreprocessing
from .learned import Learned, replace_rows, without_gaps
from .learnt_maps import LearntStep, Taught, check_maps, join_maps, publish
from .sklearn_maps import chain, learns, read_map, unfold
from .target_means import Answers, key_of, require_means


def split_encoder(preprocessing: Any) -> tuple[Any, Encoder | None]:
    """Return the steps that learn, None if there are none, and the map after them.

    Maps of some columns alone, or of all of them before others, are left among the
    steps: they make columns of a table.
    """
    if isinstance(preprocessing, Preprocessing):
        return replace(preprocessing, last=None), preprocessing.last
    steps = unfold(preprocessing)
    maps: list[Encoder] = []
    while steps and (found := read_map(steps[-1])) is not None:
        maps.insert(0, found)
        steps.pop()
    if not maps or (steps and not any(map(learns, steps))):
        return preprocessing, None
    named = [(f"step{index}", step) for index, step in enumerate(steps)]
    return (Pipeline(named) if steps else None), chain(maps)


@stored
@dataclass(frozen=True, slots=True, eq=False)
class PublicMap:
    """A map of rows, with what was learned before it, as predictions need them.

    Attributes
    ----------
    encoder, n_features
        The map, and how many features it gives.
    first
        What comes before it, fitted; None if nothing does.
    n_columns, columns
        How many columns the map takes, and their names if they have any.
    """

    encoder: Any
    n_features: int
    first: FittedPreprocessing | None = None
    n_columns: int = 0
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        columns = self.columns or [f"x{index}" for index in range(self.n_columns)]
        columns = columns if self.first is None else self.first.names
        return tuple(name_features(self.encoder, columns, n_features=self.n_features))

    @property
    def takes_inputs(self) -> bool:
        """False: it takes numbers."""
        return False

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the head sees them."""
        if self.first is not None:
            X = self.first.encode(X)
        try:
            rows = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"X must hold numbers: {error}") from error
        if not len(rows):
            return np.empty((0, self.n_features))
        return require_features(self.encoder, rows)

    def require_consistent(self, columns: Collection[Any]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together."""
        if not is_encoder(self.encoder) or type(self.n_features) is not int:
            raise ValueError("the parts of this preprocessing do not go together")
        if self.first is not None:
            self.first.require_consistent(columns)

    def __repr__(self) -> str:
        return f"PublicMap({title_of(self.encoder)}, {self.n_features} features)"


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mapped(Encoding):
    """Rows encoded by a map that learns nothing; steps that learn may precede it.

    Attributes
    ----------
    encoder, n_columns, n_features
        The map, and how many columns it takes and features it gives.
    bits
        A digest of what it makes of rows that everybody knows: another computer, or
        another library, may round otherwise, and then sums must be made again.
    keeps_encoded
        Whether rows are kept as the map gives them.
    first
        What is learnt from the rows before it; None if nothing is.
    columns
        The names of the columns, if they have any and nothing comes before.
    crossed
        What maps the rows of the model where that is another map: one that is learnt
        from labels, by person.
    classes
        Whether labels are codes of classes.
    checked
        Whether the bits were compared in this process.
    """

    encoder: Any
    n_columns: int
    n_features: int
    bits: bytes
    keeps_encoded: bool = False
    first: Learned | None = None
    columns: tuple[str, ...] = ()
    crossed: Any = None
    classes: bool = False
    checked: bool = field(default=False, metadata=NOT_STORED)

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        X: Matrix,
        *,
        keeps_encoded: bool = False,
        columns: Sequence[str] = (),
    ) -> Self:
        """Return the encoding of a fit to these rows, as they are given.

        Some of them are encoded together, to refuse a map that learns.
        """
        some = _require_dense(encoder, X)[:CHECKED]
        if len(some) > 1:
            check_encoder(encoder, some)
        width = some.shape[1]
        n_features = encode_rows(encoder, some[:1]).shape[1]
        bits = find_bits(encoder, width)
        return cls(
            encoder,
            width,
            n_features,
            bits,
            keeps_encoded=keeps_encoded,
            columns=tuple(columns),
            checked=True,
        )

    @classmethod
    def behind(
        cls, first: Learned, rows: Rows, *, objective: Objective, classes: bool
    ) -> Self:
        """Return the maps after steps that have learnt from these raw rows."""
        encoding = cls(None, 0, 0, b"", first=first, classes=classes, checked=True)
        encoding = encoding._after(first, rows, objective=objective)
        some = first.features.encode(rows.dense()[:CHECKED])
        if len(some) > 1:
            check_maps(encoding.encoder, some)
        if not first.recipe.described.looks:
            bits = find_bits(encoding.encoder, encoding.n_columns)
            encoding = replace(encoding, bits=bits)
        return encoding

    @property
    def raw(self) -> bool:
        """Whether rows are kept as something else than what the head sees."""
        return not self.keeps_encoded

    @property
    def changes(self) -> bool:
        """Whether what the head sees of a row depends on the other rows."""
        return self.first is not None

    @property
    def learned(self) -> Encoding | None:
        """What comes before the map."""
        return self.first

    def with_learned(self, learned: Encoding) -> Self:
        """Return the map after another such part."""
        assert isinstance(learned, Learned)
        return replace(self, first=learned)

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return checked features and labels as the rows that are kept."""
        X = np.ascontiguousarray(_require_dense(self.encoder, X), dtype=np.float64)
        if self.keeps_encoded:
            if not self.checked:
                require_bits(self.encoder, self.bits, n_columns=X.shape[1])
            return objective.rows(self._encode(X, self.encoder), y, weight)
        return Encoding.keep(self, X, y, weight, objective=objective)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same map, with what is learnt before it from these rows alone."""
        if self.first is None:
            return self
        raw = in_memory(without_gaps(rows))
        first = self.first.fit_again(rows, objective)
        return self._after(first, raw, objective=objective)

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the head sees them."""
        if self.keeps_encoded:
            return rows
        held = in_memory(without_gaps(rows), "a map of rows as preprocessing")
        X, encoder = held.dense(), self.encoder
        if self.first is not None:
            people = X[:, -1:]
            X = self.first.features.encode(X)
            if self.crossed is not None:
                X, encoder = np.hstack([X, people]), self.crossed
        return objective.rows(self._encode(X, encoder), held.y, held.weight)

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of kept rows leads to."""
        if self.first is not None:
            first = self.first.after(change, objective).encoding
            assert isinstance(first, Learned)
            # What is learnt from labels is learnt from all rows again.
            by_label = self.crossed is not None
            given = change.removed if change.added is None else change.added
            if by_label and rows is not None:
                given = in_memory(without_gaps(rows()))
            if given is None or (by_label and rows is None):
                return EncodedRequest(replace(self, first=first), None)
            return EncodedRequest(self._after(first, given, objective=objective), None)
        if self.keeps_encoded:
            return EncodedRequest(self, change)
        after = self.anchored(objective)
        if after.bits != self.bits:  # the sums are of rows that were rounded otherwise
            return EncodedRequest(after, None)

        def encode(rows: Rows) -> Rows:
            return in_memory(self.encode(rows, objective))

        return EncodedRequest(after, replace_rows(change, encode))

    def _after(self, first: Learned, rows: Rows, *, objective: Objective) -> Self:
        """Return the maps after what was learnt; a raw row says how wide they are.

        ``rows`` are all rows where something is learnt from their labels.
        """
        width, described = len(first.features), first.recipe.described
        encoder, crossed = self.encoder, self.crossed
        if encoder is None or described.looks:
            outputs, answers = objective.loss.outputs, None
            if key_of(described) is not None:
                require_means(rows.y, outputs=outputs, classes=self.classes)
                n_classes = max(2, outputs) if self.classes else 0
                answers = Answers(rows.dense(), rows.y, n_classes)
            parts = (first.recipe, first.statistics, first.features)
            encoder, crossed = join_maps(Taught(*parts, answers))
        elif width == self.n_columns or not len(rows):
            return replace(self, first=first)
        made = encode_rows(encoder, first.features.encode(rows.dense()[:1]))
        return replace(
            self,
            encoder=encoder,
            crossed=crossed,
            first=first,
            n_columns=width,
            n_features=int(made.shape[1]),
        )

    def anchored(self, objective: Objective) -> Self:
        """Return the encoding of sums that are made in this process."""
        if self.first is not None:  # nothing stays of what was learnt before
            return replace(self, first=self.first.anchored(objective))
        if self.checked or self.keeps_encoded:
            return self
        bits = find_bits(self.encoder, self.n_columns)
        return replace(self, bits=bits, checked=True)

    @property
    def unweighted(self) -> "Encoding":
        """The same for rows that are tested, which taught nothing."""
        return self if self.crossed is None else replace(self, crossed=None)

    def _encode(self, X: Matrix, encoder: Encoder) -> Matrix:
        """Return the features of rows, each encoded alone."""
        if not len(X):
            return np.empty((0, self.n_features))
        return encode_rows(encoder, X, n_features=self.n_features)

    @property
    def public(self) -> PublicMap:
        """The map, as predictions need it."""
        first, encoder = self.first, self.encoder
        fitted = None if first is None else first.public
        if first is not None and self.crossed is not None:
            fitted, encoder = publish(
                first.public, first.recipe.columns, encoder=encoder
            )
        return PublicMap(encoder, self.n_features, fitted, self.n_columns, self.columns)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, the map included."""
        if self.first is None or not self.first.recipe.described.looks:
            stated = [describe_encoder(self.encoder, self.bits)]
        else:  # what is learnt is stated as preprocessing is
            described = self.first.recipe.described
            maps = [one for group in described.groups for one in group.then]
            maps += [] if described.last is None else [described.last]
            fixed = [one for one in maps if not isinstance(one, LearntStep)]
            stated = [describe_encoder(one) for one in fixed]
        if self.first is not None:
            scope = self.first.state_in(scope)
        return replace(scope, encoder=", ".join(filter(None, [scope.encoder, *stated])))


def _require_dense(encoder: Encoder, X: Any) -> Any:
    """Return a dense design, or refuse a sparse one."""
    if sparse.issparse(X):
        raise Unsupported(
            f"preprocessing={title_of(encoder)} takes dense rows; pass X.toarray()"
        )
    return X
