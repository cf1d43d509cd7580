# SPDX-License-Identifier: Apache-2.0
"""Mapped: rows encoded by a map that learns nothing, such as random Fourier features.

An ``Encoder`` is a map of rows whose result depends, for each row, on that row and on
declared parameters alone. Then what the model sees of a person says nothing about
others, and a row that leaves takes all of its own along. Anybody can write one:

    @stored
    @dataclass(frozen=True)
    class Squares:
        def encode(self, X):
            return np.hstack([X, X**2])

    LogisticRegression(preprocessing=Squares(), ...)

The row that is subtracted must be, to the last bit, the row that was summed, and BLAS
rounds a row alone otherwise than the same row in a block. So rows are always encoded
one at a time. Kept and hashed are raw rows; with ``keep_data="encoded"`` those that the
map gives: rows are then encoded once, for a map that is slow.

The map may come after steps that learn. It is no linear map of sums, so that the rows
are read at every request.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from typing import Any, Protocol, Self, TypeGuard

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from ..core.arrays import Matrix
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import NOT_STORED, dumps, stored
from ..exceptions import InvalidInput, Unsupported
from ..private_model.composition import EncodedRequest, Encoding
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from .features import FittedPreprocessing
from .learned import Learned, replace_rows, without_gaps

# How far a row alone may be from the same row in a block, relative to its size.
ROUNDING = 1e-6
PROBES, CHECKED = 3, 16


class Encoder(Protocol):
    """A map of rows that learns nothing: make it a frozen dataclass.

    Its name and fields, the seed included, are stated in certificates. Mark it with
    ``expunge.core.values.stored`` to save models with it.
    """

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows, (rows, features), finite and float64.

        Row i depends on row i of X and on the fields of this object alone.
        """


def is_encoder(value: Any) -> TypeGuard[Encoder]:
    """Whether a value is a map of rows, and neither a class nor a description."""
    has_fields = is_dataclass(value) and not isinstance(value, type)
    return has_fields and callable(getattr(value, "encode", None))


def split_encoder(preprocessing: Any) -> tuple[Any, Encoder | None]:
    """Return the steps that learn, None if there are none, and the map after them."""
    if is_encoder(preprocessing):
        return None, preprocessing
    if type(preprocessing) is not Pipeline or not preprocessing.steps:
        return preprocessing, None
    *first, (_, last) = preprocessing.steps
    if not is_encoder(last):
        return preprocessing, None
    return (Pipeline(first) if first else None), last


def check_encoder(encoder: Encoder, X: Any) -> None:
    """Raise InvalidInput if a map of rows is seen to break what ``Encoder`` asks for.

    It encodes the rows as a block, one at a time, in another order and twice, and
    compares. No finite number of rows proves that a map learns nothing.

    Parameters
    ----------
    encoder
        The map.
    X
        Rows such as it will be given, at least two that differ.
    """
    X = np.array(X, dtype=np.float64, order="C")
    name, given = type(encoder).__name__, X.copy()
    if X.ndim != 2 or len(X) < 2:
        raise InvalidInput(f"X has shape {X.shape}; give at least two rows, (n, d)")
    describe_encoder(encoder)
    block, alone = _require_features(encoder, X), encode_rows(encoder, X)
    if not np.array_equal(X, given):
        raise InvalidInput(f"{name}.encode changes the rows it is given; copy them")
    if encode_rows(encoder, X).tobytes() != alone.tobytes():
        raise InvalidInput(
            f"{name}.encode gives other numbers for the same row when it is asked "
            "again; draw random parameters from a seed that is one of its fields"
        )
    size = ROUNDING * (1.0 + np.abs(alone).max(axis=1, initial=0.0))[:, None]
    turned = _require_features(encoder, X[::-1].copy())[::-1]
    same = block.shape == alone.shape == turned.shape
    if not same or not (
        (np.abs(block - alone) <= size).all() and (np.abs(turned - alone) <= size).all()
    ):
        raise InvalidInput(
            f"{name}.encode makes something else of a row alone than of the same row "
            "among others: it learns from the rows it is given, and that would not be "
            "forgotten; let each row depend on itself and on the fields alone"
        )


def describe_encoder(encoder: Encoder) -> str:
    """Return name and parameters of a map as canonical JSON."""
    stated = {one.name: getattr(encoder, one.name) for one in fields(encoder)}  # type: ignore[arg-type]
    try:
        return dumps({"name": type(encoder).__name__} | stated)
    except InvalidInput:
        raise InvalidInput(
            f"{type(encoder).__name__} has fields that a certificate cannot state; "
            "make it a frozen dataclass of plain numbers, words and tuples"
        ) from None


def encode_rows(
    encoder: Encoder, X: Matrix, *, n_features: int | None = None
) -> Matrix:
    """Return the features of rows, each encoded alone: always to the same bits."""
    made = [_require_features(encoder, row[None, :].copy()) for row in X]
    wanted = made[0].shape[1] if n_features is None else n_features
    if any(one.shape[1] != wanted for one in made):
        raise InvalidInput(
            f"{type(encoder).__name__}.encode gives rows of different lengths; every "
            "row must have as many features"
        )
    return np.vstack(made)


def _require_features(encoder: Encoder, X: Matrix) -> Matrix:
    """Return what a map makes of rows, or refuse it."""
    made = np.asarray(encoder.encode(X), dtype=np.float64)
    name = type(encoder).__name__
    if made.ndim != 2 or len(made) != len(X) or not made.shape[1]:
        raise InvalidInput(
            f"{name}.encode makes {made.shape} of {X.shape}; it must return a matrix "
            "with a row for each row"
        )
    if not np.isfinite(made).all():
        raise InvalidInput(
            f"{name}.encode gives a number that is infinite or missing; bound what it "
            "computes, or leave such rows out"
        )
    return made


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
    """

    encoder: Any
    n_features: int
    first: FittedPreprocessing | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        name = type(self.encoder).__name__.lower()
        return tuple(f"{name}{index}" for index in range(self.n_features))

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
        return _require_features(self.encoder, rows)

    def require_consistent(self, columns: Collection[Any]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together."""
        if not is_encoder(self.encoder) or type(self.n_features) is not int:
            raise ValueError("the parts of this preprocessing do not go together")
        if self.first is not None:
            self.first.require_consistent(columns)

    def __repr__(self) -> str:
        return f"PublicMap({type(self.encoder).__name__}, {self.n_features} features)"


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
    checked
        Whether the bits were compared in this process.
    """

    encoder: Any
    n_columns: int
    n_features: int
    bits: bytes
    keeps_encoded: bool = False
    first: Learned | None = None
    checked: bool = field(default=False, metadata=NOT_STORED)

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        X: Matrix,
        *,
        keeps_encoded: bool = False,
        first: Learned | None = None,
    ) -> Self:
        """Return the encoding of a fit to these rows, as they are given.

        Some of them are encoded together, to refuse a map that learns.
        """
        _require_dense(encoder, X)
        some = X[:CHECKED] if first is None else first.features.encode(X[:CHECKED])
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
            first=first,
            checked=True,
        )

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

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return checked features and labels as the rows that are kept."""
        X = np.ascontiguousarray(_require_dense(self.encoder, X), dtype=np.float64)
        if self.keeps_encoded:
            if not self.checked and self.bits != find_bits(self.encoder, X.shape[1]):
                raise InvalidInput(
                    f"{type(self.encoder).__name__}.encode rounds otherwise than at "
                    "the fit, so that no row can be found by its content; forget "
                    "people by their ids, or fit again; nothing was changed"
                )
            return objective.rows(self._encode(X), y, weight)
        return Encoding.keep(self, X, y, weight, objective=objective)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same map, with what is learnt before it from these rows alone."""
        if self.first is None:
            return self
        return replace(self, first=self.first.fit_again(rows, objective))

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return kept rows as the head sees them."""
        if self.keeps_encoded:
            return rows
        held = in_memory(without_gaps(rows), "a map of rows as preprocessing")
        X = held.dense()
        X = X if self.first is None else self.first.features.encode(X)
        return objective.rows(self._encode(X), held.y, held.weight)

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of kept rows leads to."""
        del rows
        if self.first is not None:
            first = self.first.after(change, objective).encoding
            assert isinstance(first, Learned)
            return EncodedRequest(replace(self, first=first), None)
        if self.keeps_encoded:
            return EncodedRequest(self, change)
        after = self.anchored(objective)
        if after.bits != self.bits:  # the sums are of rows that were rounded otherwise
            return EncodedRequest(after, None)

        def encode(rows: Rows) -> Rows:
            return in_memory(self.encode(rows, objective))

        return EncodedRequest(after, replace_rows(change, encode))

    def anchored(self, objective: Objective) -> Self:
        """Return the encoding of sums that are made in this process."""
        del objective
        if self.checked or self.keeps_encoded:
            return self
        bits = find_bits(self.encoder, self.n_columns)
        return replace(self, bits=bits, checked=True)

    def _encode(self, X: Matrix) -> Matrix:
        """Return the features of rows, each encoded alone."""
        if not len(X):
            return np.empty((0, self.n_features))
        return encode_rows(self.encoder, X, n_features=self.n_features)

    @property
    def public(self) -> PublicMap:
        """The map, as predictions need it."""
        first = None if self.first is None else self.first.public
        return PublicMap(self.encoder, self.n_features, first)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, the map included."""
        scope = scope if self.first is None else self.first.state_in(scope)
        return replace(scope, encoder=describe_encoder(self.encoder))


def _require_dense(encoder: Encoder, X: Any) -> Any:
    """Return a dense design, or refuse a sparse one."""
    if sparse.issparse(X):
        raise Unsupported(
            f"preprocessing={type(encoder).__name__} takes dense rows; pass X.toarray()"
        )
    return X


def find_bits(encoder: Encoder, n_columns: int) -> bytes:
    """Return a digest of what a map makes of rows that are known to everybody."""
    probes = np.arange(PROBES * n_columns).reshape(PROBES, n_columns)
    digest = sha256()
    for row in ((7.0 * probes) % 29.0 - 14.0) / 8.0:
        try:
            with np.errstate(all="ignore"):
                made = np.asarray(encoder.encode(row[None, :].copy()), np.float64)
            digest.update(made.tobytes())
        except Exception as error:  # a map may refuse such rows
            digest.update(type(error).__name__.encode())
    return digest.digest()
