# SPDX-License-Identifier: Apache-2.0
"""Encoders: maps of rows that learn nothing, and what they must keep to.

What an encoder makes of a row depends on that row and on declared parameters alone.
The row that is subtracted must be, to the last bit, the row that was summed, and BLAS
rounds a row alone otherwise than the same row in a block. So ``encode_rows`` encodes
rows one at a time, but for an encoder that says of itself that it rounds alike.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any, Protocol, TypeGuard

import numpy as np

from ..core.arrays import Matrix
from ..core.values import dumps
from ..exceptions import InvalidInput

# How far a row alone may be from the same row in a block, relative to its size.
ROUNDING = 1e-6
PROBES = 3
CHECKED = 16  # rows that are encoded together, to refuse a map that learns


class Encoder(Protocol):
    """A map of rows that learns nothing: make it a frozen dataclass.

    Its name and fields, the seed included, are stated in certificates. Mark it with
    ``expunge.core.values.stored`` to save models with it.

    An attribute ``by_block`` that is true says that a row in a block gets the very bits
    that it gets alone, as where each number of the result is computed from the row by
    itself. Then rows are encoded together, which is faster. An attribute
    ``takes_values`` that is true says that columns are given as the table has them,
    such as words; then ``names`` says what the columns that it makes are called.
    """

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows, (rows, features), finite and float64.

        Row i depends on row i of X and on the fields of this object alone.
        """


def is_encoder(value: Any) -> TypeGuard[Encoder]:
    """Whether a value is a map of rows, and neither a class nor a description."""
    has_fields = is_dataclass(value) and not isinstance(value, type)
    return has_fields and callable(getattr(value, "encode", None))


def by_block(encoder: Encoder) -> bool:
    """Whether a row in a block gets the bits that it gets alone."""
    return bool(getattr(encoder, "by_block", False))


def keeps_gaps(encoder: Encoder) -> bool:
    """Whether it makes one number of each, and minds none that is missing."""
    return bool(getattr(encoder, "keeps_gaps", False))


def takes_values(encoder: Encoder) -> bool:
    """Whether it takes columns as the table has them, not as numbers."""
    return bool(getattr(encoder, "takes_values", False))


def title_of(encoder: Encoder) -> str:
    """Return what an encoder is called in errors and in names of features."""
    return str(getattr(encoder, "title", type(encoder).__name__))


def count_features(encoder: Encoder, rows: Matrix, *, n_columns: int) -> int:
    """Return how many features a map makes of columns, of which some rows are given."""
    if takes_values(encoder):
        return len(name_features(encoder, [""] * n_columns, n_features=0))
    row = rows[:1] if len(rows) else np.full((1, n_columns), 0.5)
    return int(require_features(encoder, row).shape[1])


def name_features(
    encoder: Encoder, columns: Sequence[str], *, n_features: int
) -> list[str]:
    """Return the names of the features that an encoder makes of columns."""
    own = getattr(encoder, "names", None)
    if own is not None:  # the number of a column is no number of a feature
        named = [f"x{one}" if one.isdigit() else one for one in columns]
        return list(own(named))
    return [f"{title_of(encoder).lower()}{index}" for index in range(n_features)]


def require_bits(encoder: Encoder, bits: bytes, *, n_columns: int) -> None:
    """Raise InvalidInput if a map rounds otherwise than it did when rows were kept."""
    if bits != find_bits(encoder, n_columns):
        raise InvalidInput(
            f"{title_of(encoder)}.encode rounds otherwise than at the fit, so that no "
            "row can be found by its content; forget people by their ids, or fit "
            "again; nothing was changed"
        )


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
    name, given = title_of(encoder), X.copy()
    if X.ndim != 2 or len(X) < 2:
        raise InvalidInput(f"X has shape {X.shape}; give at least two rows, (n, d)")
    describe_encoder(encoder)
    block, alone = require_features(encoder, X), _encode_alone(encoder, X)
    if not np.array_equal(X, given):
        raise InvalidInput(f"{name}.encode changes the rows it is given; copy them")
    if _encode_alone(encoder, X).tobytes() != alone.tobytes():
        raise InvalidInput(
            f"{name}.encode gives other numbers for the same row when it is asked "
            "again; draw random parameters from a seed that is one of its fields"
        )
    size = ROUNDING * (1.0 + np.abs(alone).max(axis=1, initial=0.0))[:, None]
    turned = require_features(encoder, X[::-1].copy())[::-1]
    same = block.shape == alone.shape == turned.shape
    if not same or not (
        (np.abs(block - alone) <= size).all() and (np.abs(turned - alone) <= size).all()
    ):
        raise InvalidInput(
            f"{name}.encode makes something else of a row alone than of the same row "
            "among others: it learns from the rows it is given, and that would not be "
            "forgotten; let each row depend on itself and on the fields alone"
        )
    bits = {made.tobytes() for made in (block, alone, turned)}
    if by_block(encoder) and len(bits) > 1:
        raise InvalidInput(
            f"{name}.encode says by_block, and rounds a row in a block otherwise than "
            "alone; leave by_block out"
        )


def describe_encoder(encoder: Encoder, bits: bytes | None = None) -> str:
    """Return name and parameters of a map as canonical JSON.

    ``bits``, if given, are what ``find_bits`` gives; the digest begins as they do.
    """
    digest = {} if bits is None else {"digest": bits[:8]}
    try:
        return dumps(digest | _state(encoder))
    except InvalidInput:
        raise InvalidInput(
            f"{type(encoder).__name__} has fields that a certificate cannot state; "
            "make it a frozen dataclass of plain numbers, words and tuples"
        ) from None


def _state(encoder: Any) -> Any:
    """Return name and parameters of a map, and of the maps that it is made of."""
    if isinstance(encoder, list | tuple):
        return [_state(one) for one in encoder]
    if not is_encoder(encoder):
        return encoder
    given: Any = fields(encoder)  # type: ignore[arg-type]
    stated = {one.name: _state(getattr(encoder, one.name)) for one in given}
    return {"name": type(encoder).__name__} | stated


def encode_rows(
    encoder: Encoder, X: Matrix, *, n_features: int | None = None
) -> Matrix:
    """Return the features of rows, with the bits that each gets alone."""
    if by_block(encoder):
        made = require_features(encoder, np.ascontiguousarray(X))
        if n_features not in (None, made.shape[1]):
            raise InvalidInput(
                f"{title_of(encoder)}.encode gives {made.shape[1]} features, and gave "
                f"{n_features} at the fit; every row must have as many"
            )
        return made
    return _encode_alone(encoder, X, n_features=n_features)


def _encode_alone(
    encoder: Encoder, X: Matrix, *, n_features: int | None = None
) -> Matrix:
    """Return the features of rows, each encoded alone."""
    made = [require_features(encoder, row[None, :].copy()) for row in X]
    wanted = made[0].shape[1] if n_features is None else n_features
    if any(one.shape[1] != wanted for one in made):
        raise InvalidInput(
            f"{title_of(encoder)}.encode gives rows of different lengths; every "
            "row must have as many features"
        )
    return np.vstack(made)


def require_features(encoder: Encoder, X: Matrix) -> Matrix:
    """Return what a map makes of rows, or refuse it."""
    made = np.asarray(encoder.encode(X), dtype=np.float64)
    name = title_of(encoder)
    if made.ndim != 2 or len(made) != len(X) or not made.shape[1]:
        raise InvalidInput(
            f"{name}.encode makes {made.shape} of {X.shape}; it must return a matrix "
            "with a row for each row"
        )
    good = np.isfinite(made)
    if not good.all():
        of = f" of {X[~good][0]:g}" if keeps_gaps(encoder) else ""
        raise InvalidInput(
            f"{name}.encode gives a number that is infinite or missing{of}; bound what "
            "it computes, or leave such rows out"
        )
    return made


def find_bits(encoder: Encoder, n_columns: int) -> bytes:
    """Return a digest of what a map makes of rows that are known to everybody."""
    numbers = np.arange(PROBES * n_columns).reshape(PROBES, n_columns)
    probes = getattr(encoder, "probes", ((7.0 * numbers) % 29.0 - 14.0) / 8.0)
    digest = sha256()
    for row in probes:
        try:
            with np.errstate(all="ignore"):
                made = np.asarray(encoder.encode(row[None, :].copy()), np.float64)
            digest.update(made.tobytes())
        except Exception as error:  # a map may refuse such rows
            digest.update(type(error).__name__.encode())
    return digest.digest()
