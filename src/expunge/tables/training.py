# SPDX-License-Identifier: Apache-2.0
"""Read the table that a model is fitted to: features, targets, people and weights."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..exceptions import InvalidInput
from ..preprocessing.description import FitRange, Group, Preprocessing
from .columns import FILL_IN, REPLACE, VALUE_MISSING, Content, TableColumn
from .files import INDEX, MISSING, TableFile, format_names, locate_rows, open_table
from .kinds import infer_category, infer_column
from .people import take_ids
from .schema import (
    LEFT_OUT,
    TEXT,
    ColumnSchema,
    Schema,
    build_transformer,
    make_column,
    parse_pairs,
)

if TYPE_CHECKING:
    from ..preprocessing.hashed import HashedTexts

# A target with more distinct values than this is not guessed to be classes.
MOST_CLASSES = 50
ENCODE = (
    "correct it, declare the column a category in the schema, or drop it with --drop"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """What columns are, beside features.

    Attributes
    ----------
    target
        The column to predict.
    subject
        The column of ids that say whose row it is; None if the rows are nobody's.
    weight
        The column of weights.
    exposure, offset
        The column of exposures of counts or amounts, or of offsets.
    time
        The column of times until which people were seen.
    drop
        Columns to leave out; they are not read.
    category
        Columns to take as words, whatever they look like.
    text
        The column of texts that the model reads, and no other then.
    pairs
        Columns of words that are one category more together.
    task
        "classification" or "regression"; None lets the target decide.
    bins
        Whether numbers may be binned: not for a model that keeps no rows.
    more
        Whether these are more rows for a model that is fitted: they may then be of one
        class or of one person.
    """

    target: str
    subject: str | None = None
    weight: str | None = None
    exposure: str | None = None
    offset: str | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    text: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    task: str | None = None
    bins: bool = True
    more: bool = False

    @property
    def named(self) -> list[str]:
        """The columns that are read but are no features."""
        beside = (self.weight, self.exposure, self.offset, self.time)
        named = (self.target, self.subject, *beside)
        return [name for name in named if name is not None]

    @property
    def spelled(self) -> set[str]:
        """The columns of a CSV file to take as it spells them: 007 is not a number."""
        named = filter(None, [self.subject, self.text])
        return {self.target, *self.category, *named}


@dataclass(frozen=True, slots=True, eq=False)
class TrainingTable:
    """Training data as an estimator takes them, and how they were read.

    Attributes
    ----------
    X
        The features as a pyarrow table: floats, NaN where one is missing, and words.
    y
        Targets (n,): integers, floats or words.
    subjects
        Whose row each one is, if a column says so.
    weight, exposure, offset, time
        Those of each row, if a column gives them.
    schema
        What each column is.
    n_without_target
        How many rows were left out because their target is missing.
    guessed
        Whether the schema was guessed from the rows, not given.
    file, rows
        The file, and where each row is in it.
    """

    X: Any
    y: NDArray[Any]
    subjects: list[str] | None
    weight: Vector | None
    schema: Schema
    n_without_target: int = 0
    guessed: bool = False
    exposure: Vector | None = None
    offset: Vector | None = None
    time: Vector | None = None
    file: TableFile | None = None
    rows: Index | None = None

    def take(self, places: Index, **others: Any) -> "TrainingTable":
        """Return the rows at these places, with other fields where they are given."""
        vectors = ("y", "weight", "exposure", "offset", "time", "rows")
        taken: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[places]
            for name in vectors
        }
        if self.subjects is not None:
            taken["subjects"] = [self.subjects[place] for place in places.tolist()]
        if "X" not in others:
            taken["X"] = self.X.take(places)
        return replace(self, **taken | others)

    def locate(self, places: Sequence[int]) -> str:
        """Return where rows of this table are in its file."""
        assert self.file is not None and self.rows is not None
        return locate_rows(self.file, self.rows[list(places)].tolist())


def read_table(
    path: str | PathLike[str], roles: Roles, *, schema: Schema | None = None
) -> TrainingTable:
    """Return the rows of a file; every column without a role is a feature.

    Rows without a target are left out, since nothing can be learnt from them; rows
    without a person are refused.

    Parameters
    ----------
    path
        A CSV file (.csv, .tsv, also .gz), .parquet, .arrow or .feather.
    roles
        Which columns are the target, the ids and the weights.
    schema
        What the columns are; None decides it from the rows.
    """
    file = open_table(Path(path))
    features = _find_features(file, roles, schema=schema)
    text = roles.spelled
    if schema is not None:
        text |= {one.name for one in schema.used if not one.is_number}
    names = [*features, *roles.named]
    table = file.read_columns(names, text)
    columns = {name: TableColumn.of(file, table, name=name) for name in names}
    targets = find_targets(columns[roles.target])
    keep = ~targets.find_missing()
    _require_targets(targets, keep)
    kept = {name: column.take(keep) for name, column in columns.items()}
    y = take_targets(targets.take(keep))
    subjects = None if roles.subject is None else take_ids(kept[roles.subject])
    weight = None if roles.weight is None else take_weights(kept[roles.weight])
    exposure = offset = None
    if roles.exposure is not None:
        exposure = take_exposures(kept[roles.exposure])
    if roles.offset is not None:
        offset = _take_present(kept[roles.offset], "give numbers as offsets")
    time = None if roles.time is None else take_times(kept[roles.time])
    if not roles.more:
        _require_variety(file, roles, y=y, subjects=subjects)
    clean = {name: kept[name].clean() for name in features}
    clean |= {name: clean[name].parse() for name in features if name not in text}
    guessed = schema is None
    if schema is None:
        schema = _infer_schema(file, roles, columns=clean, y=y, subjects=subjects)
    _require_task(targets.take(keep), schema, y=y, events=roles.time is not None)
    X = file.arrow.table({one.name: _take(clean, one) for one in schema.used})
    return TrainingTable(
        X,
        y,
        subjects,
        weight,
        schema,
        n_without_target=int((~keep).sum()),
        guessed=guessed,
        exposure=exposure,
        offset=offset,
        time=time,
        file=file,
        rows=np.flatnonzero(keep),
    )


def read_features(
    path: str | PathLike[str], schema: Schema, *, beside: Sequence[str] = ()
) -> tuple[Any, list[list[Any]]]:
    """Return the features of every row of a file, as ``read_table`` returns them.

    Columns that the schema does not use are not read, the target and ids among them.

    Parameters
    ----------
    path, schema
        As for ``read_table``.
    beside
        Columns to return too, as the text that they are.
    """
    file, used = open_table(Path(path)), schema.used
    names = [one.name for one in used]
    text = {one.name for one in used if not one.is_number}
    read = file.read_columns(names, text)
    columns = {name: TableColumn.of(file, read, name=name).clean() for name in names}
    columns |= {name: columns[name].parse() for name in names if name not in text}
    X = file.arrow.table({one.name: _take(columns, one) for one in used})
    if not beside:
        return X, []
    kept = file.read_columns(list(beside), set(beside))
    texts = [kept[name].cast(file.arrow.string()).fill_null("") for name in beside]
    return X, [column.to_pylist() for column in texts]


def describe_preprocessing(table: TrainingTable) -> "Preprocessing | HashedTexts":
    """Return what a model does with the columns of a table, for ``preprocessing=``.

    Beside what ``build_transformer`` says it says whether that was guessed from the
    rows, and certificates of the model say so too.
    """
    from ..preprocessing.hashed import HashedTexts
    from ..preprocessing.sklearn_steps import describe

    first, *others = table.schema.used
    if first.kind == TEXT and first.width is not None and not others:
        return HashedTexts(n_features=first.width)
    described = describe(build_transformer(table.schema), table.X)
    ranges = {one.name: one.range for one in table.schema.used}
    groups = [part for group in described.groups for part in _declare(group, ranges)]
    binned = any(one.bins is not None for one in table.schema.used)
    return replace(
        described,
        groups=tuple(groups),
        guessed=table.guessed,
        quanta_guessed=table.guessed and binned,
    )


def _declare(group: Group, ranges: Mapping[Any, Any]) -> list[Group]:
    """Return a group with declared ranges as its scales: they need no unlearning."""
    scale = group.scale
    declared = [name for name in group.columns if ranges.get(name) is not None]
    if not isinstance(scale, FitRange) or not declared:
        return [group]
    return [
        replace(group, columns=(name,), scale=replace(scale, ends=ranges[name]))
        for name in group.columns
    ]


def guess_task(y: NDArray[Any]) -> str:
    """Return what to do with a target: "classification" or "regression".

    Two distinct values are classes, whatever they are, and so are up to 50 words or
    whole numbers. Other numbers are amounts.
    """
    n_classes = len(set(y.tolist()))
    if n_classes <= 2:
        return "classification"
    if y.dtype.kind == "f" or (y.dtype.kind in "iu" and n_classes > MOST_CLASSES):
        return "regression"
    if n_classes > MOST_CLASSES:
        raise InvalidInput(
            f"the target has {n_classes} different words, more than {MOST_CLASSES}; "
            "choose another column with --target, or insist with --task classification"
        )
    return "classification"


def find_targets(column: TableColumn) -> TableColumn:
    """Return the column of targets as integers, numbers, booleans or words."""
    words = column.clean(MISSING)
    parsed = words.parse()
    # A day is a class like any other word.
    return words if parsed.content is Content.dates else parsed


def take_targets(column: TableColumn) -> NDArray[Any]:
    """Return targets, none of them missing: integers, floats or words."""
    arrow = column.file.arrow
    if column.content is Content.text:
        return np.array(column.values.to_pylist(), dtype=np.str_)
    if column.content not in (Content.integers, Content.numbers, Content.booleans):
        what = f"it holds {column.values.type}"
        raise column.make_error(what, advice="give numbers or words to predict")
    numbers = column.to_floats("give numbers or words to predict")
    if column.content is not Content.numbers:
        with suppress(arrow.ArrowInvalid):  # integers beyond 64 bits stay floats
            return np.asarray(column.values.cast(arrow.int64()).to_numpy())
    return numbers


def take_weights(column: TableColumn) -> Vector:
    """Return weights: finite, not negative, and not all zero."""
    weights = _take_present(column, "give numbers as weights")
    negative = weights < 0.0
    if negative.any():
        what, advice = "a negative weight", "give zero or more"
        raise column.make_error(what, at=negative, advice=advice)
    if not weights.any():
        raise column.make_error("every weight is zero", advice=REPLACE)
    return weights


def take_exposures(column: TableColumn) -> Vector:
    """Return exposures: positive numbers."""
    exposures = _take_present(column, "give numbers as exposures")
    none = ~(exposures > 0.0)
    if none.any():
        what = "an exposure that is not positive"
        advice = "correct it, or remove the row: of no exposure it tells nothing"
        raise column.make_error(what, at=none, advice=advice)
    return exposures


def take_times(column: TableColumn) -> Vector:
    """Return times until which people were seen: positive numbers."""
    times = _take_present(column, "give numbers as times")
    early = ~(times > 0.0)
    if early.any():
        what = "a time that is not positive"
        advice = "count from when somebody is first seen, or remove the row"
        raise column.make_error(what, at=early, advice=advice)
    return times


def _take_present(column: TableColumn, advice: str) -> Vector:
    """Return numbers, none of them missing."""
    numbers = column.clean().parse().to_floats(advice)
    absent = np.isnan(numbers)
    if absent.any():
        raise column.make_error(VALUE_MISSING, at=absent, advice=FILL_IN)
    return numbers


def _find_features(
    file: TableFile, roles: Roles, *, schema: Schema | None
) -> tuple[str, ...]:
    """Return the columns to read as features; refuse names that do not fit."""
    named = [*roles.named, *roles.drop]
    words = [*roles.category, *filter(None, [roles.text])]
    for name in (*roles.named, *words):
        file.require_column(name)
    for name in roles.drop:
        if name not in file.names:
            file.require_column(name)
    for name in (*roles.named, *words):
        if (*named, *words).count(name) > 1:
            raise InvalidInput(
                f"{file.path}: column {name!r} is used twice; give different columns "
                "as target, subject, weight and exposure, and drop none of them"
            )
    features = tuple(name for name in file.names if name not in named)
    if schema is not None:
        return _match_schema(file, roles, schema=schema, features=features)
    if not features:
        raise InvalidInput(f"{file.path}: no column is left as a feature; drop fewer")
    # Several columns without a name are left out together.
    return tuple(name for name in features if name or features.count("") == 1)


def _match_schema(
    file: TableFile, roles: Roles, *, schema: Schema, features: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that a schema uses; refuse what it does not describe."""
    if schema.target != roles.target:
        raise InvalidInput(
            f"the schema is about the target {schema.target!r}, not {roles.target!r}; "
            "give that as --target, or another schema"
        )
    if roles.task not in (None, schema.task):
        raise InvalidInput(
            f"the schema says {schema.task}, not {roles.task}; write the task into it"
        )
    if roles.category:
        raise InvalidInput(
            "--category with a schema; write the kind of the column into the schema"
        )
    if roles.pairs:
        raise InvalidInput('--pair with a schema; write "pairs" into the schema')
    used = [one.name for one in schema.used]
    for name in used:
        if name in roles.named or name in roles.drop:
            raise InvalidInput(
                f"the schema uses column {name!r}, which has another role or is "
                'dropped; change its kind to "left out"'
            )
        file.require_column(name)
    known = {one.name for one in schema.columns}
    new = [name for name in features if name not in known and not INDEX.fullmatch(name)]
    if new:
        raise InvalidInput(
            f"{file.path} has columns that the schema does not describe, "
            f"{format_names(new)}; add them to it, or leave them out with --drop"
        )
    if not used:
        raise InvalidInput("the schema uses no column; change the kind of some")
    return tuple(used)


def _infer_schema(
    file: TableFile,
    roles: Roles,
    *,
    columns: dict[str, TableColumn],
    y: NDArray[Any],
    subjects: list[str] | None,
) -> Schema:
    """Decide from all rows what each column is."""
    people = None if subjects is None else _code_people(subjects)
    found = []
    for name in dict.fromkeys(file.names):
        if name in roles.drop:
            found.append(make_column(name, LEFT_OUT, why="as you asked"))
        elif name in columns and name == roles.text:
            if columns[name].find_missing().all():
                what, advice = "no text in any row", "choose another with --text"
                raise columns[name].make_error(what, advice=advice)
            found.append(make_column(name, TEXT))
        elif name in columns and roles.text is not None:
            found.append(make_column(name, LEFT_OUT, why="the model reads a text"))
        elif name in roles.category:
            found.append(infer_category(columns[name]))
        elif name in columns:
            found.append(infer_column(columns[name], people, bins=roles.bins))
        elif name not in roles.named:
            found.append(make_column(name, LEFT_OUT, why="columns without a name"))
    task = roles.task or guess_task(y)
    schema = Schema(roles.target, task, tuple(_share_width(found)))
    schema = replace(schema, pairs=parse_pairs(roles.pairs, schema))
    if not schema.used:
        reasons = ", ".join(f"{one.name!r} ({one.why})" for one in found[:3])
        raise InvalidInput(
            f"{file.path}: no column is left as a feature; left out are {reasons}; "
            "give other columns, or say in a schema what they are"
        )
    return schema


def _share_width(found: list[ColumnSchema]) -> list[ColumnSchema]:
    """Return columns with texts that stand beside others hashed into fewer."""
    used = [one for one in found if one.is_used]
    n_texts = sum(one.kind == TEXT for one in used)
    if len(used) < 2 or not n_texts:
        return found
    from ..preprocessing.hashed import choose_width

    width = choose_width(n_texts)
    return [replace(one, width=width) if one.kind == TEXT else one for one in found]


def _require_targets(targets: TableColumn, keep: NDArray[np.bool]) -> None:
    """Raise if so many targets are missing that this is likely another column."""
    if keep.sum() * 2 < len(keep):
        n_missing = int((~keep).sum())
        raise targets.make_error(
            f"{n_missing} of {len(keep)} rows have no target",
            advice="choose another column with --target, or remove these rows",
        )


def _require_task(
    targets: TableColumn, schema: Schema, *, y: NDArray[Any], events: bool
) -> None:
    """Raise if targets do not fit the task, or are none of the declared classes."""
    if schema.task == "regression" and y.dtype.kind == "U":
        what = "words, which a regression cannot predict"
        advice = "choose another column, or --task classification"
        if events:
            advice = "give 1 if the event happened at that time, or 0"
        raise targets.make_error(what, advice=advice)
    if schema.classes is not None:
        declared = set(schema.classes)
        other = np.array([value not in declared for value in y.tolist()])
        if other.any():
            what, advice = "none of the declared classes", "correct it, or declare it"
            raise targets.make_error(what, at=other, advice=advice)


def _require_variety(
    file: TableFile,
    roles: Roles,
    *,
    y: NDArray[Any],
    subjects: list[str] | None,
) -> None:
    """Raise if there is nothing to predict, or nobody would be left."""
    everybody = roles.time is not None and y[0] == 1  # had the event, at some time
    if (y == y[0]).all() and not everybody:
        what, advice = "the same target in every row", "choose another column"
        raise file.make_error(roles.target, what, advice=advice)
    if subjects is not None and len(set(subjects)) == 1:
        what = "every row belongs to the same person, so no row would be left"
        advice = "choose the column that says whose row it is"
        raise file.make_error(str(roles.subject), what, advice=advice)


def _code_people(subjects: list[str]) -> Index:
    """Return a code for each person, in order of appearance."""
    codes: dict[str, int] = {}
    return np.array([codes.setdefault(one, len(codes)) for one in subjects])


def _take(columns: dict[str, TableColumn], feature: ColumnSchema) -> Any:
    """Return a column as the model sees it, within what the schema declares."""
    column = columns[feature.name]
    if feature.kind == TEXT:
        return column.to_texts()
    if not feature.is_number:
        words = column.to_words()
        if feature.categories is not None:
            _refuse_other_words(column, feature.categories, words=words)
        return words
    numbers = column.to_floats(ENCODE)
    if feature.range is not None:
        low, high = feature.range
        outside = (numbers < low) | (numbers > high)
        if outside.any():
            what = f"a number outside the declared range, {low:g} to {high:g}"
            raise column.make_error(what, at=outside, advice=REPLACE)
    return numbers


def _refuse_other_words(
    column: TableColumn, declared: tuple[str, ...], *, words: Any
) -> None:
    """Raise if some words are none of the declared categories, and not missing."""
    arrow = column.file.arrow
    known = arrow.compute.is_in(words, value_set=arrow.array(declared, words.type))
    other = ~np.asarray(known.to_numpy(zero_copy_only=False), dtype=bool)
    other &= ~column.find_missing()
    if other.any():
        what, advice = "none of the declared categories", "correct it, or declare it"
        raise column.make_error(what, at=other, advice=advice)
