# SPDX-License-Identifier: Apache-2.0
"""Categories encoded by the mean of what people who have them answered.

``TargetMeans`` gives each category of a column the mean of y, drawn towards the mean of
all rows where a category has few (scikit-learn's TargetEncoder has the formula):

    l m_c + (1 - l) m,   l = n_c v / (n_c v + v_c)      smooth="auto"
    (n_c m_c + s m) / (n_c + s)                         smooth=s

with n_c rows of mean m_c and variance v_c, and m and v of all rows. Of numbers it is
that less m over the root of v, as a penalty wants columns of ordinary size. Sums are
exact, and each mean and variance is rounded once: the rows that remain have, to the
last bit, the encodings that a fit to them has.

The rows of the model itself must not see their own y. So people lie in folds, and the
rows of a fold have the encodings that the other folds teach. In which fold somebody is
follows from their id and a key, never from where their rows are. A category that too
few people have, whether of all or of the other folds, has the mean of all rows.

All remaining rows are read at every request, so nothing is kept but whose each raw row
is: a number beside its columns, the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_union
from sklearn.preprocessing import FunctionTransformer

from ..core.arrays import Index, Matrix, Vector
from ..core.exact_sums import UNIT, exact_sums
from ..core.rows import Rows
from ..core.values import stored
from ..exceptions import InvalidInput, Unsupported
from ..private_model.subjects import is_row_name
from .columns import Column
from .description import FillGaps, Group, Ordinal, Preprocessing, TargetMeans
from .features import FittedPreprocessing

PERSON_BITS = 52  # of the number of a person, which a double holds


class Answers(NamedTuple):
    """Raw rows with the number of their person last, and what they answered.

    ``n_classes`` is zero where that is a number, and else says how many codes there
    are.
    """

    raw: Matrix
    y: Vector
    n_classes: int


@stored
@dataclass(frozen=True, eq=False)
class CodeMeans:
    """A number, or one for each class, in place of the code of a category.

    Attributes
    ----------
    values
        A line for each code, and last that of every other category.
    known
        The codes that have a mean of their own.
    """

    values: Matrix
    known: tuple[int, ...]
    by_block: ClassVar[bool] = True

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features that it makes of a column."""
        (column,), width = columns, self.values.shape[1]
        if width == 1:
            return [f"mean({column})"]
        return [f"mean({column}, class {k})" for k in range(width)]

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows; -1 is the code of an unknown category."""
        return np.asarray(self.values[X[:, 0].astype(np.intp)])

    def make_plain(self, columns: Sequence[str] | int) -> Any:
        """Return scikit-learn's transformers, which interpolate between codes."""
        del columns
        codes = np.arange(-1.0, len(self.values) - 1)
        means = np.roll(self.values, 1, axis=0)
        parts = [
            FunctionTransformer(
                np.interp,
                kw_args={"xp": codes, "fp": own},
                feature_names_out="one-to-one",
            )
            for own in means.T
        ]
        return parts[0] if len(parts) == 1 else make_union(*parts)


@stored
@dataclass(frozen=True, eq=False)
class CrossMeans:
    """The same for rows of the model: by code and the number of a person. Private.

    Attributes
    ----------
    values
        Of each fold, what the others teach, as ``CodeMeans`` has it.
    """

    values: NDArray[np.float64]
    by_block: ClassVar[bool] = True

    def encode(self, X: Matrix) -> Matrix:
        """Return the features of rows."""
        folds = np.mod(X[:, 1], len(self.values)).astype(np.intp)
        return np.asarray(self.values[folds, X[:, 0].astype(np.intp)])


def key_of(described: Preprocessing) -> int | None:
    """Return the key of people's folds; None if nothing is learnt by person."""
    keys = {
        group.encode.key
        for group in described.groups
        if isinstance(group.encode, TargetMeans)
    }
    if len(keys) > 1:
        raise InvalidInput(
            f"TargetMeans with keys {', '.join(map(str, sorted(keys)))}; a person has "
            "one number: give them the same key"
        )
    return min(keys, default=None)


def with_people(rows: Rows, owners: Sequence[str], *, described: Preprocessing) -> Rows:
    """Return raw rows with the number of their person beside, where that is asked for.

    Raises InvalidInput if rows have no people.
    """
    key = key_of(described)
    if key is None:
        return rows
    if not len(owners) or is_row_name(owners[0]):
        raise InvalidInput(
            "TargetMeans learns in folds of people, and these rows have none; say "
            "whose they are: subjects=[...]"
        )
    numbers = {
        owner: int.from_bytes(sha256(f"{key}:{owner}".encode()).digest()[:8])
        >> (64 - PERSON_BITS)
        for owner in set(owners)
    }
    column = np.array([float(numbers[owner]) for owner in owners])
    return replace(rows, X=np.column_stack([rows.dense(), column]))


def require_means(y: Vector, *, outputs: int, classes: bool) -> None:
    """Raise Unsupported for labels that have no means by category."""
    if y.ndim != 1 or (outputs > 1 and not classes):
        raise Unsupported(
            "TargetMeans of several targets, or of targets with offsets; encode the "
            "categories with OneHotEncoder(handle_unknown='ignore', min_frequency=10)"
        )


def learn_means(
    step: TargetMeans, answers: Answers, *, column: int
) -> tuple[CodeMeans, CrossMeans]:
    """Return what the rows teach of a column: for predictions, and for themselves."""
    raw, y, n_classes = answers
    codes, people = raw[:, column].astype(np.intp), raw[:, -1]
    n_codes = int(codes.max(initial=-1)) + 1
    folds = np.mod(people, step.folds).astype(np.intp)
    shape = (step.folds, n_codes)
    place = folds * n_codes + codes
    size = step.folds * n_codes
    n = np.bincount(place, minlength=size).reshape(shape)
    order = np.lexsort((people, codes))
    first = np.ones(len(codes), dtype=bool)  # of the rows of a person in a category
    first[1:] = (np.diff(codes[order]) != 0) | (np.diff(people[order]) != 0)
    own = np.bincount(place[order][first], minlength=size).reshape(shape)
    if n_classes:
        known = np.maximum(y, 0.0).astype(np.intp)
        kinds = [1] if n_classes == 2 else range(n_classes)
        hits = [np.bincount(place[known == k], minlength=size) for k in kinds]
        sums = [[[h << p * UNIT for h in k.tolist()] for p in (1, 2)] for k in hits]
    else:
        sums = [[exact_sums([y] * p, place, n_bins=size) for p in (1, 2)]]
    values = []
    for powers in sums:
        first_sum, second_sum = (np.array(p, object).reshape(shape) for p in powers)
        parts = _Sums(n, own, first_sum, second_sum)
        worlds = [parts.of(np.ones(step.folds, dtype=bool))]
        worlds += [parts.of(np.arange(step.folds) != k) for k in range(step.folds)]
        every = _encode(step, worlds[0], otherwise=0.0)
        rest = [_encode(step, one, otherwise=every[-1]) for one in worlds[1:]]
        values.append([every, *rest])
    table = np.moveaxis(np.array(values), 0, -1)  # folds and all, codes and others
    if not n_classes:
        total = [sum(map(int, part.ravel())) for part in parts]
        mean, variance = _moments(total[0], total[2], second=total[3])
        table = (table - mean) / (sqrt(variance) or 1.0)
    enough = own.sum(axis=0) >= step.least
    known_codes = tuple(np.flatnonzero(enough).tolist())
    return CodeMeans(table[0], known_codes), CrossMeans(table[1:])


class _Sums(NamedTuple):
    """Of each fold and code: rows, people, and exact sums of y and of its square."""

    n_rows: Index
    n_people: Index
    first: NDArray[Any]
    second: NDArray[Any]

    def of(self, folds: NDArray[np.bool]) -> tuple[list[Any], ...]:
        """Return the same of some folds together."""
        return tuple(part[folds].sum(axis=0).tolist() for part in self)


def _encode(
    step: TargetMeans, sums: Sequence[Sequence[int]], *, otherwise: float
) -> Vector:
    """Return the encoding of each code by the formula above; last that of others.

    ``sums`` are those of some folds together; ``otherwise`` is what all have where
    nobody has answered.
    """
    n_rows, n_people, first, second = sums
    total = sum(n_rows)
    if not total:
        return np.full(len(n_rows) + 1, otherwise)
    overall, spread = _moments(total, sum(first), second=sum(second))
    found = np.full(len(n_rows) + 1, overall)
    for code, n in enumerate(n_rows):
        if n_people[code] < step.least:
            continue
        mean, variance = _moments(n, first[code], second=second[code])
        if step.smooth == "auto":
            weight = n * spread + variance
            share = n * spread / weight if weight else 0.0
            found[code] = share * mean + (1.0 - share) * overall
        else:
            found[code] = (n * mean + step.smooth * overall) / (n + step.smooth)
    return found


def _moments(n: int, first: int, *, second: int) -> tuple[float, float]:
    """Return mean and variance of n numbers from exact sums, each rounded once."""
    return first / (n << UNIT), (second * n - first**2) / (n * n << 2 * UNIT)


def publish_means(
    fitted: FittedPreprocessing,
    columns: Sequence[Column],
    *,
    means: Mapping[int, CodeMeans],
) -> tuple[FittedPreprocessing, dict[int, CodeMeans]]:
    """Return public preprocessing with the codes that predictions need, and means.

    A category that too few people have is not named: it is read as one that nobody
    has. Public codes are the numbers of those that are named.

    Parameters
    ----------
    fitted, columns
        Preprocessing, and its columns with the codes that means are by.
    means
        By the place of the feature that is a code.
    """
    groups: list[Group] = []
    features, told = fitted.features, dict[int, CodeMeans]()
    published, missing = list(fitted.columns), features.missing.copy()
    places = {column: j for j, column in enumerate(features.layout.columns.tolist())}
    index = 0
    for group in fitted.described.groups:
        if not isinstance(group.encode, TargetMeans):
            groups.append(group)
            index += len(group.columns)
            continue
        for source in group.columns:
            j, column = places[index], columns[index]
            pairs = zip(column.categories, column.codes, strict=True)
            known = [pair for pair in pairs if pair[1] in means[j].known]
            if not known:  # graphs want one: it is read as any other
                text = any(isinstance(key, str) for key in column.categories)
                known = [("" if text else 0, -1)]
            keys = tuple(key for key, _ in known)
            codes = tuple(range(len(keys)))
            fill = None
            if None in keys:
                missing[j] = keys.index(None)
                fill = FillGaps("constant", int(missing[j]))
            gaps = fill is not None
            published[index] = Column(
                column.source, "ordinal", keys, codes, unknown=-1.0, gaps=gaps
            )
            groups.append(Group((source,), fill=fill, encode=Ordinal((keys,), -1.0)))
            lines = [*(code for _, code in known), -1]
            told[j] = CodeMeans(means[j].values[lines], codes)
            index += 1
    described = replace(fitted.described, groups=tuple(groups))
    features = replace(features, missing=missing)
    return FittedPreprocessing(described, tuple(published), features), told
