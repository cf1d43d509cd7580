# SPDX-License-Identifier: Apache-2.0
"""What preprocessing is to do, as plain values that files and certificates can hold.

A ``Preprocessing`` is a list of groups of columns. Each group goes through the same
steps: fill gaps, encode categories, scale. scikit-learn's transformers are read into
these values (``expunge.preprocessing.sklearn_steps``); nothing here is learned yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..core.values import stored

Source: TypeAlias = str | int
"""How a column of X is found: by its name, or by its position."""

Strategy: TypeAlias = Literal["mean", "median", "most_frequent", "constant"]
PartName: TypeAlias = Literal["month", "weekday", "hour"]
Part: TypeAlias = Literal["day"] | PartName
DATE_PARTS: tuple[PartName, ...] = ("month", "weekday", "hour")
Unknown: TypeAlias = Literal["error", "ignore", "infrequent_if_exist", "warn"]


@stored
@dataclass(frozen=True, slots=True)
class FillGaps:
    """Fill missing values (scikit-learn's SimpleImputer).

    Parameters
    ----------
    strategy
        What to fill in: a statistic of the observed values of the column, or
        "constant".
    value
        The constant.
    indicator
        Whether to add a feature that says where a value was missing, for columns in
        which one is.
    """

    strategy: Strategy = "mean"
    value: Any = None
    indicator: bool = False


@stored
@dataclass(frozen=True, slots=True)
class Standardise:
    """Subtract the mean, divide by the standard deviation (StandardScaler)."""

    with_mean: bool = True
    with_std: bool = True


@stored
@dataclass(frozen=True, slots=True)
class FitRange:
    """Map the smallest value to ``low`` and the largest to ``high`` (MinMaxScaler).

    ``ends`` declares these two values in advance, so that nothing is learned; None
    learns them from the rows.
    """

    low: float = 0.0
    high: float = 1.0
    ends: tuple[float, float] | None = None


@stored
@dataclass(frozen=True, slots=True)
class FitSize:
    """Divide by the largest absolute value (MaxAbsScaler)."""


@stored
@dataclass(frozen=True, slots=True)
class FitQuantiles:
    """Subtract the median, divide by the distance of two quantiles (RobustScaler).

    Parameters
    ----------
    with_median, with_range
        Whether to do the one and the other.
    low, high
        The quantiles, in percent.
    unit
        What the distance is divided by: that of a normal distribution, or one.
    """

    with_median: bool = True
    with_range: bool = True
    low: float = 25.0
    high: float = 75.0
    unit: float = 1.0


@stored
@dataclass(frozen=True, slots=True)
class WeighTerms:
    """Multiply the counts of a term by ln((1 + n) / (1 + df)) + 1 (TfidfTransformer).

    Of n rows df have the term.
    """


@stored
@dataclass(frozen=True, slots=True)
class OneHot:
    """One feature for each category (OneHotEncoder).

    Parameters
    ----------
    categories
        The declared categories of each column, which stay no matter who leaves; None
        learns them from the rows.
    unknown
        What to do with a category that was not learned.
    least
        Categories with fewer rows share a feature: a number of rows, or a share of
        them.
    most
        At most so many features for a column.
    drop
        "first", "if_binary", or None.
    """

    categories: tuple[tuple[Any, ...], ...] | None = None
    unknown: Unknown = "error"
    least: int | float | None = None
    most: int | None = None
    drop: Literal["first", "if_binary"] | None = None


@stored
@dataclass(frozen=True, slots=True)
class Ordinal:
    """Number the declared categories 0, 1, ... (OrdinalEncoder).

    Parameters
    ----------
    categories
        The declared categories of each column, in order.
    unknown
        The number for any other; None refuses it.
    """

    categories: tuple[tuple[Any, ...], ...]
    unknown: float | None = None


@stored
@dataclass(frozen=True, slots=True)
class Bins:
    """One feature for each range of numbers, learnt from the rows, one for gaps.

    Ranges end at quantiles of the different values, and where values come again and
    again at quantiles of the rows too, rounded to a quantum. A value that more than one
    row in ``n_bins`` has is a range of its own.

    Parameters
    ----------
    n_bins
        Into how many parts quantiles divide a column, from 2 to 10,000.
    quantum
        What ends of ranges are rounded to: one number, or one for each column. It is
        declared, as people who leave do not change it; None guesses it from the rows
        of the first fit.
    """

    n_bins: int = 32
    quantum: float | tuple[float, ...] | None = None


@stored
@dataclass(frozen=True, slots=True)
class DatePart:
    """One feature for each month, weekday or hour of dates, and one for gaps.

    Dates are NumPy's or Python's, or numbers of days since 1970, in UTC.

    Parameters
    ----------
    part
        "month" (from 1), "weekday" (Monday is 0) or "hour".
    """

    part: PartName

    def one_hot(self, n_columns: int) -> OneHot:
        """Return the categories that there can be: declared, so nothing is learnt."""
        first, last = {"month": (1, 12), "weekday": (0, 6), "hour": (0, 23)}[self.part]
        return OneHot(((*range(first, last + 1), None),) * n_columns, "ignore")


@dataclass(frozen=True, slots=True)
class Automatic:
    """What ``preprocessing="auto"`` does, with pairs of categories beside it.

    Parameters
    ----------
    pairs
        Two columns each, such as ``[("profession", "region")]``: what a row has in both
        is one category more.
    """

    pairs: Sequence[tuple[Source, Source]] = ()


def read_automatic(preprocessing: Any) -> Automatic | None:
    """Return how the columns of a table are to be guessed; None if they are not."""
    if isinstance(preprocessing, str) and preprocessing == "auto":
        return Automatic()
    return preprocessing if isinstance(preprocessing, Automatic) else None


@stored
@dataclass(frozen=True, slots=True)
class TargetMeans:
    """One feature for a column of categories: what people who have one answered.

    It is the share of each class, or the mean of y in deviations of y; a category that
    too few people have, or nobody, has the mean of all rows. Rows of the model are
    encoded by the means of other people: they lie in folds, by a hash of their ids.

    Parameters
    ----------
    least
        How many people must have a category for a mean of its own, which is public; 2
        or more.
    smooth
        How many rows of the mean of all are added to a category; "auto" goes by how
        much categories vary, as scikit-learn's TargetEncoder does.
    folds
        Into how many folds people are put; 2 or more.
    key
        A whole number, hashed with the ids of people.
    """

    least: int = 10
    smooth: float | Literal["auto"] = "auto"
    folds: int = 5
    key: int = 0


Encode: TypeAlias = OneHot | Ordinal | Bins | TargetMeans
Scale: TypeAlias = Standardise | FitRange | FitSize | FitQuantiles | WeighTerms


@stored
@dataclass(frozen=True, slots=True)
class Group:
    """Columns that go through the same steps.

    Attributes
    ----------
    columns
        Where to find them.
    fill, encode, scale
        The steps, in this order; None leaves one out.
    scale_first
        Whether gaps are filled after scaling.
    part
        What is taken of dates, which are numbers of days since 1970 or NumPy's; None
        takes the columns as they are.
    then
        Maps of rows that come after these steps, one after the other, for these columns
        alone. The first may be learnt from the rows (``learnt_maps``).
    """

    columns: tuple[Source, ...]
    fill: FillGaps | None = None
    encode: Encode | None = None
    scale: Scale | None = None
    scale_first: bool = False
    part: Part | None = None
    then: tuple[Any, ...] = ()


def learns_extremes(scale: Scale | None) -> bool:
    """Whether a scaler takes the extremes of its columns."""
    if isinstance(scale, FitRange):
        return scale.ends is None
    return isinstance(scale, FitSize)


def learns_ranks(scale: Scale | None) -> bool:
    """Whether a scaler takes values by their rank: extremes, a median, quantiles."""
    return learns_extremes(scale) or isinstance(scale, FitQuantiles)


@stored
@dataclass(frozen=True, slots=True)
class MadeColumns:
    """Columns that a map of rows makes of others, before anything is learned.

    Attributes
    ----------
    encoder
        The map (``encoder.Encoder``).
    columns, names
        The columns that it takes, of the table or made before, and those that it makes.
    bits
        A digest of what it makes of rows that everybody knows.
    """

    encoder: Any
    columns: tuple[Source, ...]
    names: tuple[str, ...]
    bits: bytes


@stored
@dataclass(frozen=True, slots=True)
class Preprocessing:
    """What preprocessing is to do with each column.

    Attributes
    ----------
    groups
        In the order of their features. Columns in none of them are left out.
    guessed
        Whether the groups were guessed from the rows, which removals do not undo.
    quanta_guessed
        Whether some quanta of bins were.
    made
        Columns that maps make of those of the table, in this order.
    last
        The map of rows after everything else; None without one.
    """

    groups: tuple[Group, ...]
    guessed: bool = False
    quanta_guessed: bool = False
    made: tuple[MadeColumns, ...] = ()
    last: Any = None

    @property
    def looks(self) -> bool:
        """Whether what becomes of some columns is told by no sums."""
        return any(
            group.then or isinstance(group.encode, TargetMeans) for group in self.groups
        )
