# SPDX-License-Identifier: Apache-2.0
"""What to do with a table that nobody described: ``preprocessing="auto"``.

Numbers are scaled, and binned beside that; dates become days, treated the same way, and
their months, weekdays and hours categories; words are one-hot encoded, and those of
free text hashed. Columns that would teach a model nothing, or who somebody is, are left
out. A warning names these, and free text.

All of that is guessed from the rows of the first fit and stays as it is, which every
certificate of the model says.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InvalidInput
from .bins import guess_quantum
from .columns import (
    find_categories,
    find_missing,
    take_column,
    take_part,
    to_numbers,
)
from .description import (
    DATE_PARTS,
    Bins,
    DatePart,
    FillGaps,
    Group,
    OneHot,
    Part,
    Preprocessing,
    Source,
    Standardise,
)
from .hashed import HashedColumn, choose_width
from .pairs import Pair

# Categories that share a feature, where there are many of them, and when there are too
# many; with fewer different values nothing is called an id.
FEW_CATEGORIES, RARE_BELOW, MOST_CATEGORIES, LEAST_IDS = 20, 10, 200, 10
WORDS_OF_TEXT, LENGTH_OF_TEXT = 4.0, 60.0


class ColumnsWarning(UserWarning):
    """Columns are left out of a model, or are taken for something unusual."""


class _Guess(NamedTuple):
    """What a column is, and what to say of it.

    ``kind`` is "number", "date", "category", "text", or empty for a column that is left
    out.
    """

    kind: str
    said: str = ""
    quantum: float | None = None
    least: int | None = None
    parts: tuple[DatePart, ...] = ()


def guess_preprocessing(
    X: Any,
    sources: Sequence[Source],
    add: Callable[[Any, tuple[Source, ...], Any], Group],
    *,
    rows_kept: bool,
    pairs: Sequence[tuple[Source, Source]] = (),
) -> Preprocessing:
    """Return what to do with the columns of a table.

    Parameters
    ----------
    X, sources
        The table, and how its columns are found.
    add
        Notes that a map makes columns of some of the table, and returns their group.
    rows_kept
        Whether the model keeps its rows, which learnt bins take.
    pairs
        Columns of categories that are a category together.
    """
    guesses = {one: _guess(take_column(X, one), one) for one in sources}
    left_out = [one for one in sources if not guesses[one].kind]
    if len(left_out) == len(guesses):
        reasons = "; ".join(f"{one!r}: {guesses[one].said}" for one in left_out[:4])
        raise InvalidInput(
            f"preprocessing='auto' leaves no column ({reasons}); say what to do with "
            "the columns by a ColumnTransformer"
        )
    texts = [one for one in sources if guesses[one].kind == "text"]
    width = choose_width(len(texts))
    for one in texts:
        said = f"taken for free text, its words hashed into {width} columns"
        guesses[one] = guesses[one]._replace(said=said)
    told = [f"{one!r}: {guess.said}" for one, guess in guesses.items() if guess.said]
    if told:
        warnings.warn(
            f"preprocessing='auto' found columns to look at ({'; '.join(told)}); to "
            "treat them otherwise, say so by a ColumnTransformer",
            ColumnsWarning,
            stacklevel=2,
        )
    groups: list[Group] = []
    days: tuple[tuple[str, Part | None], ...] = (("number", None), ("date", "day"))
    for kind, part in days:
        own = tuple(one for one in sources if guesses[one].kind == kind)
        if own:
            fill = FillGaps("mean")
            groups.append(Group(own, fill, scale=Standardise(), part=part))
        binned = [one for one in own if guesses[one].quantum is not None]
        if binned and rows_kept:
            given = tuple(guesses[one].quantum or 1.0 for one in binned)
            bins = Bins(quantum=given)
            groups.append(Group(tuple(binned), encode=bins, part=part))
    for one in sources:
        guess = guesses[one]
        for taken in guess.parts:
            encode = taken.one_hot(1)
            groups.append(Group((one,), encode=encode, part=taken.part))
        if guess.kind == "category":
            unknown = "ignore" if guess.least is None else "infrequent_if_exist"
            encode = OneHot(unknown=unknown, least=guess.least)  # type: ignore[arg-type]
            groups.append(Group((one,), encode=encode))
    for pair in pairs:
        _require_categories(tuple(pair), guesses)
        rare = OneHot(unknown="infrequent_if_exist", least=RARE_BELOW)
        groups.append(replace(add(Pair(), tuple(pair), X), encode=rare))
    for one in texts:
        groups.append(add(HashedColumn(n_features=width).noted(), (one,), X))
    quanta = any(isinstance(group.encode, Bins) for group in groups)
    return Preprocessing(tuple(groups), guessed=True, quanta_guessed=quanta)


def _require_categories(
    pair: tuple[Source, ...], guesses: Mapping[Source, _Guess]
) -> None:
    """Raise InvalidInput unless two different columns are categories."""
    if len(set(pair)) != 2 or len(pair) != 2:
        raise InvalidInput(f"pairs: {pair!r}; give two different columns")
    for one in pair:
        if one not in guesses or guesses[one].kind != "category":
            what = "no category here" if one in guesses else "not in the table"
            raise InvalidInput(
                f"pairs: column {one!r} is {what}; give columns of words, or put "
                "Pair() before a OneHotEncoder in a ColumnTransformer"
            )


def _guess(values: NDArray[Any], source: Source) -> _Guess:
    """Return what a column is, from all of its values."""
    missing = find_missing(values)
    known = values[~missing]
    if not len(known):
        return _Guess("", "left out, it is empty in every row")
    if _holds(known, "M", classes=date):
        return _guess_date(known, source)
    if _holds(known, "b", classes=bool | np.bool_):
        return _guess_category(known, source, has_gaps=bool(missing.any()))
    if _holds(known, "iufm", classes=Real):
        return _guess_number(to_numbers(known, source), has_gaps=bool(missing.any()))
    return _guess_category(known, source, has_gaps=bool(missing.any()))


def _holds(values: NDArray[Any], kinds: str, *, classes: Any) -> bool:
    """Whether a column holds what these kinds of arrays, or these classes, do."""
    if values.dtype != object:
        return values.dtype.kind in kinds
    if classes is Real and any(isinstance(one, bool) for one in values):
        return False
    return all(isinstance(one, classes) for one in values)


def _guess_number(x: NDArray[np.float64], *, has_gaps: bool) -> _Guess:
    distinct = np.unique(x)
    if len(distinct) == 1 and not has_gaps:
        return _Guess("", "left out, it is constant")
    whole = bool((distinct == np.rint(distinct)).all())
    steps = float(distinct[-1]) - float(distinct[0]) + 1.0
    if whole and LEAST_IDS <= len(distinct) == len(x) == steps:
        return _Guess("", "left out, it counts the rows")
    if len(distinct) == 2:
        return _Guess("number")
    return _Guess("number", quantum=guess_quantum(x, Bins().n_bins))


def _guess_date(known: NDArray[Any], source: Source) -> _Guess:
    days = take_part(known, source, part="day")
    if len(np.unique(days)) == 1:
        return _Guess("", "left out, it is constant")
    parts = tuple(
        DatePart(part)
        for part in DATE_PARTS
        if len(np.unique(take_part(days, source, part=part))) > 1
    )
    return _Guess("date", quantum=guess_quantum(days, Bins().n_bins), parts=parts)


def _guess_category(known: NDArray[Any], source: Source, *, has_gaps: bool) -> _Guess:
    categories, codes = find_categories(known, source)
    counts = dict(zip(categories, np.bincount(codes).tolist(), strict=True))
    n_known, n_distinct = len(known), len(counts)
    if n_distinct == 1 and not has_gaps:
        return _Guess("", "left out, it is constant")
    words = [str(one) for one in counts]
    n_numbers = sum(counts[one] for one in counts if _is_number(one))
    odd = ""
    if n_known / 2 <= n_numbers < n_known:
        odd = "mostly numbers, but not all: taken for categories"
    if n_distinct <= FEW_CATEGORIES:
        return _Guess("category", odd)
    length = sum(map(len, words)) / n_distinct
    spaces = sum(word.count(" ") for word in words) / n_distinct
    if n_distinct > n_known / 5 and (
        spaces + 1.0 >= WORDS_OF_TEXT or length > LENGTH_OF_TEXT
    ):
        return _Guess("text")
    if n_distinct >= 0.9 * n_known:
        return _Guess("", "left out, it looks like an id: almost every row has its own")
    often = [n for n in counts.values() if n >= RARE_BELOW]
    if len(often) > MOST_CATEGORIES:
        return _Guess("", f"left out, it has more than {MOST_CATEGORIES} categories")
    if sum(often) < n_known / 2:
        few = f"left out, most rows have a category of fewer than {RARE_BELOW} rows"
        return _Guess("", few)
    return _Guess("category", odd, least=RARE_BELOW)


def _is_number(word: Any) -> bool:
    try:
        float(word)
    except (TypeError, ValueError):
        return False
    return not isinstance(word, bool)
