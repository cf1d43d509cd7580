# SPDX-License-Identifier: Apache-2.0
"""What each column of a table is, decided from all of its rows.

Numbers, dates, booleans, short lists of words and free text become features. Left out,
with the reason, are columns that would teach the model nothing, or would teach it who
somebody is: empty and constant columns, ids, and whatever names the person. A column
that is half numbers and half words is refused, as one of the two is a mistake.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Index
from ..preprocessing.bins import guess_quantum
from ..preprocessing.columns import take_part
from ..preprocessing.description import DATE_PARTS, Bins
from .columns import NUMBER, Content, TableColumn
from .files import INDEX
from .schema import LEFT_OUT, RARE_BELOW, TEXT, ColumnSchema, make_column

# With fewer different values than this, nothing is called an id.
LEAST_IDS = 10
# Categories that share a column, where there are many of them.
FEW_CATEGORIES, MOST_CATEGORIES = 20, 200
WORDS_OF_TEXT, LENGTH_OF_TEXT = 4.0, 60.0
DATE = r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?"
OTHER_DATE = r"\d{1,4}[./]\d{1,2}[./]\d{1,4}( .*)?"
ID_NAME = re.compile(
    r"(^|[_\s.-])(?i:id|uuid|guid|key|nr|no|number)$|[a-z0-9](ID|Id|Nr|No)$"
)
MEND = "correct it, take the column as words (--category), or leave it out (--drop)"


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one look at a column counts.

    Attributes
    ----------
    codes
        A code for each value, -1 where it is missing.
    n_values
        How many values are there, the missing ones aside.
    n_distinct
        How many of them are different.
    n_pairs
        How many pairs of person and value occur; zero if there are too few values to
        tell people apart.
    n_people
        How many people there are; zero without people.
    """

    codes: Index
    n_values: int
    n_distinct: int
    n_pairs: int
    n_people: int

    @property
    def names_people(self) -> bool:
        """Whether a value tells, almost always, whose row it is."""
        return (
            self.n_distinct >= max(LEAST_IDS, self.n_people / 2)
            and 0 < self.n_pairs <= 1.1 * self.n_distinct
        )

    @property
    def is_one_a_person(self) -> bool:
        """Whether each person with several rows has one value, and nobody else has."""
        return (
            self.n_distinct >= LEAST_IDS
            and self.n_pairs == self.n_distinct == self.n_people
            and self.n_values >= 1.2 * self.n_people
        )

    @property
    def is_distinct(self) -> bool:
        """Whether almost every row has a value of its own."""
        return self.n_distinct >= max(LEAST_IDS, 0.9 * self.n_values)


def infer_column(
    column: TableColumn, people: Index | None, *, bins: bool = True
) -> ColumnSchema:
    """Return what a column is, from all of its values.

    Parameters
    ----------
    column
        The column, cleaned and parsed.
    people
        A code for whose row each one is; None if the rows belong to nobody.
    bins
        Whether numbers are binned beside being scaled, which takes rows that are kept.
    """
    if INDEX.fullmatch(column.name):
        return _leave_out(column, "an index, or a column without a name")
    if column.content is Content.other:
        return _leave_out(column, f"it holds {column.values.type}")
    survey = _survey(column, people)
    if survey.n_values == 0:
        return _leave_out(column, "it is empty in every row")
    if column.content is Content.text:
        return _infer_text(column, survey)
    if survey.n_distinct == 1:
        return _leave_out(column, "it is constant")
    if column.content is Content.integers:
        reason = _explain_integers(column, survey)
        if reason is not None:
            return _leave_out(column, reason)
    if column.content is Content.booleans:
        return make_column(column.name, "boolean")
    settings: dict[str, Any] = {}
    numbers = column.to_floats(MEND)
    numbers = numbers[~np.isnan(numbers)]
    if bins and survey.n_distinct > 2:
        quantum = guess_quantum(numbers, Bins().n_bins)
        settings |= {"bins": Bins().n_bins, "quantum": quantum}
    if column.content is not Content.dates:
        return make_column(column.name, "number", **settings)
    parts = [
        part
        for part in DATE_PARTS
        if len(np.unique(take_part(numbers, column.name, part=part))) > 1
    ]
    settings |= {"parts": tuple(parts)} if parts else {}
    return make_column(column.name, "date", **settings)


def infer_category(column: TableColumn) -> ColumnSchema:
    """Return a column as a category, because somebody said that it is one."""
    survey = _survey(column, None)
    return _make_category(column, survey)


def _survey(column: TableColumn, people: Index | None) -> Survey:
    codes, n_distinct = column.to_codes()
    there = codes >= 0
    n_people = 0 if people is None else int(people.max()) + 1
    n_pairs = 0
    # Counting pairs takes most of the time of a look, and few columns need it.
    if people is not None and n_distinct >= max(LEAST_IDS, n_people / 2):
        pairs = people[there] * n_distinct + codes[there]
        arrow = column.file.arrow
        n_pairs = arrow.compute.count_distinct(arrow.array(pairs)).as_py()
    return Survey(codes, int(there.sum()), n_distinct, n_pairs, n_people)


def _infer_text(column: TableColumn, survey: Survey) -> ColumnSchema:
    """Return what a column of text is."""
    if survey.n_distinct == 1 and survey.n_values == len(survey.codes):
        return _leave_out(column, "it is constant")
    for pattern, noun in ((NUMBER, "number"), (DATE, "date")):
        matches = column.match(pattern)
        alike = int(matches.sum())
        if alike == survey.n_values:
            if survey.n_distinct > FEW_CATEGORIES:
                return _leave_out(column, f"its {noun}s are stored as text")
        elif alike >= survey.n_values / 2:
            odd = ~matches & (survey.codes >= 0)
            what = f"it is not a {noun}, as most of the column is"
            raise column.make_error(what, at=odd, advice=MEND)
    if column.match(OTHER_DATE).sum() > survey.n_values / 2:
        return _leave_out(column, "dates that may be misread; write them as 2025-12-31")
    words, length = _measure_text(column)
    if survey.n_distinct > survey.n_values / 5 and (
        words >= WORDS_OF_TEXT or length > LENGTH_OF_TEXT
    ):
        return make_column(column.name, TEXT)
    if survey.names_people:
        return _leave_out(column, "it tells whose row it is")
    if survey.is_distinct:
        return _leave_out(column, "it looks like an id: almost every row has its own")
    reason = _explain_categories(survey)
    if reason is not None:
        return _leave_out(column, reason)
    return _make_category(column, survey)


def _make_category(column: TableColumn, survey: Survey) -> ColumnSchema:
    rare = RARE_BELOW if survey.n_distinct > FEW_CATEGORIES else None
    return make_column(column.name, "category", rare_below=rare)


def _explain_categories(survey: Survey) -> str | None:
    """Return why there are too many categories; None if there are not."""
    if survey.n_distinct <= FEW_CATEGORIES:
        return None
    counts = np.bincount(survey.codes[survey.codes >= 0])
    often = counts >= RARE_BELOW
    if often.sum() > MOST_CATEGORIES:
        return f"it has more than {MOST_CATEGORIES} categories"
    if counts[often].sum() < survey.n_values / 2:
        return f"most rows have a category of fewer than {RARE_BELOW} rows"
    return None


def _explain_integers(column: TableColumn, survey: Survey) -> str | None:
    """Return why a column of integers is an id; None if it is not."""
    if survey.is_one_a_person:
        return "it tells whose row it is"
    if survey.n_distinct < max(LEAST_IDS, survey.n_values / 2):
        return None
    if ID_NAME.search(column.name):
        return "it looks like an id, by its name and its many values"
    bounds = column.file.arrow.compute.min_max(column.values).as_py()
    steps = bounds["max"] - bounds["min"] + 1
    if survey.n_distinct == survey.n_values == steps:
        return "it counts the rows"
    return None


def _measure_text(column: TableColumn) -> tuple[float, float]:
    """Return how many words, and how many characters, a value has on average."""
    compute = column.file.arrow.compute
    words = compute.mean(compute.count_substring(column.values, " ")).as_py()
    length = compute.mean(compute.utf8_length(column.values)).as_py()
    return words + 1.0, length


def _leave_out(column: TableColumn, why: str) -> ColumnSchema:
    return make_column(column.name, LEFT_OUT, why=why)
