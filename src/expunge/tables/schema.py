# SPDX-License-Identifier: Apache-2.0
"""Schemas: what each column of a table is and what is done with it, in a JSON file.

A schema is fixed when a model is fitted and stays as it is when people leave, so it
holds no value from the rows: categories and classes are learnt, and unlearnt, unless
you declare them. What you declare is part of the budget and needs no unlearning.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..exceptions import InvalidInput
from ..preprocessing.bins import MOST_BINS
from ..preprocessing.description import DATE_PARTS, Bins, DatePart
from .columns import MISSING_CATEGORY
from .files import format_names, shorten

FORMAT = "expunge schema 1"
RARE_BELOW = 10  # pairs in fewer rows share a column
MOST_BESIDE = 2**12  # columns of a text beside others, whose rows are dense
TEXT, LEFT_OUT = "text", "left out"
IMPUTE = ("mean", "median", "most_frequent")
SCALE = ("standard", "robust", "minmax", "maxabs", "none")
ENCODE = ("one-hot", "ordinal")
ROLES = ("subject", "weight", "exposure", "offset", "time")
FUNCTIONS = ("arcsinh", "log", "log1p", "sqrt", "square")
TASKS = ("classification", "regression")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """What a column is, and what is done with it.

    Attributes
    ----------
    name
        Name of the column.
    kind
        "number", "date" (days since 1970), "boolean" (0 and 1), "category", "text" or
        "left out".
    map
        A function of each number before everything else: "log1p", "log", "sqrt",
        "square" or "arcsinh"; None for none.
    impute
        What a missing number becomes: "mean", "median", "most_frequent", or a number.
    indicator
        Whether a column of 0 and 1 says which numbers were missing.
    scale
        "standard", "robust" (median and quartiles), "minmax", "maxabs" or "none".
    bins
        Into how many parts quantiles divide a number into bins, each a feature beside
        the number itself; None makes none.
    quantum
        What ends of bins are rounded to.
    parts
        What of a date is a category beside the number: "month", "weekday", "hour".
    range
        Lowest and highest number that may occur, declared; others are refused. With
        "minmax" they are also the scale, which then needs no unlearning.
    encode
        "one-hot", or "ordinal" for declared categories in their order.
    categories
        All categories, declared; None learns them from the rows.
    rare_below
        Categories with fewer rows than this share one column.
    width
        Into how many columns the words of a text are hashed.
    why
        Why the column is left out.
    """

    name: str
    kind: str
    map: str | None = None
    impute: str | float | None = None
    indicator: bool = False
    scale: str | None = None
    bins: int | None = None
    quantum: float | None = None
    parts: tuple[str, ...] | None = None
    range: tuple[float, float] | None = None
    encode: str | None = None
    categories: tuple[str, ...] | None = None
    rare_below: int | None = None
    width: int | None = None
    why: str | None = None

    @property
    def is_used(self) -> bool:
        """Whether the model sees the column."""
        return self.kind != LEFT_OUT

    @property
    def is_number(self) -> bool:
        """Whether the model sees the column as numbers."""
        return self.kind in ("number", "date", "boolean")

    def describe(self) -> str:
        """Return in words what is done with the column."""
        if not self.is_used:
            return self.why or "as you asked"
        parts = {"date": ["days since 1970"], "boolean": ["0 and 1"]}.get(self.kind, [])
        if self.is_number:
            word = str(self.impute).replace("_", " ")
            named = word if self.impute in IMPUTE[1:] else f"the {word}"
            filled = named if isinstance(self.impute, str) else f"{self.impute:g}"
            parts += [f"its {self.map}"] * (self.map is not None)
            parts.append(f"missing becomes {filled}")
            parts += ["a column says where"] * self.indicator
            scales = {
                "standard": "scaled to mean 0 and variance 1",
                "robust": "scaled by median and quartiles",
                "none": "",
            }
            parts.append(scales.get(str(self.scale), f"scaled by {self.scale}"))
            if self.bins is not None:
                parts.append(f"in {self.bins} bins rounded to {self.quantum:g}")
            parts += [f"its {part}" for part in self.parts or ()]
            if self.range is not None:
                parts.append(f"from {self.range[0]:g} to {self.range[1]:g}")
            return ", ".join(filter(None, parts))
        if self.kind == TEXT:
            return f"its words hashed into {self.width} columns"
        declared = "learnt" if self.categories is None else "declared"
        parts += [f"{self.encode}, categories {declared}"]
        if self.rare_below is not None:
            parts.append(f"those in fewer than {self.rare_below} rows together")
        return ", ".join(parts)


# The fields that a column of each kind may have, beside its name and kind.
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "number": ("map", "impute", "indicator", "scale", "bins", "quantum", "range"),
        "date": ("impute", "indicator", "scale", "bins", "quantum", "parts"),
        "boolean": ("impute", "indicator", "scale"),
        "category": ("encode", "categories", "rare_below"),
        TEXT: ("width",),
        LEFT_OUT: ("why",),
    }
)
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "number": {"impute": "mean", "scale": "standard"},
        "date": {"impute": "mean", "scale": "standard"},
        "boolean": {"impute": "most_frequent", "scale": "none"},
        "category": {"encode": "one-hot"},
        TEXT: {"width": 2**16},  # alone; beside others 2**8
        LEFT_OUT: {},
    }
)


def make_column(name: str, kind: str, **settings: Any) -> ColumnSchema:
    """Return a column of a kind, treated as usual but for these settings."""
    return ColumnSchema(name=name, kind=kind, **{**DEFAULTS[kind], **settings})


@dataclass(frozen=True, slots=True)
class Schema:
    """What the columns of a table are: the target, and all others in their order.

    Attributes
    ----------
    target
        Name of the column to predict.
    task
        "classification" or "regression".
    classes
        All classes, declared; None learns them from the rows.
    columns
        The other columns, without those of ids and weights.
    pairs
        Columns of categories that are one category more together.
    """

    target: str
    task: str
    columns: tuple[ColumnSchema, ...]
    classes: tuple[str | int | float, ...] | None = None
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def used(self) -> tuple[ColumnSchema, ...]:
        """The columns that the model sees."""
        return tuple(one for one in self.columns if one.is_used)

    @property
    def left_out(self) -> tuple[ColumnSchema, ...]:
        """The columns that the model does not see."""
        return tuple(one for one in self.columns if not one.is_used)

    def to_json(self) -> str:
        """Return the schema as JSON, one line a column."""
        classes = None if self.classes is None else list(self.classes)
        about = {"name": self.target, "task": self.task, "classes": classes}
        lines = ",\n".join(f"  {_write(_describe(one))}" for one in self.columns)
        pairs = f',\n "pairs": {_write(self.pairs)}' if self.pairs else ""
        return (
            f'{{\n "format": {_write(FORMAT)},\n "target": {_write(about)},\n'
            f' "columns": [\n{lines}\n ]{pairs}\n}}\n'
        )


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A schema, and the columns beside features, as a registry keeps them.

    Attributes
    ----------
    schema
        What the columns are.
    subject, weight, exposure, offset, time
        The columns of ids, weights, exposures, offsets and times, if there are such.
    """

    schema: Schema
    subject: str | None = None
    weight: str | None = None
    exposure: str | None = None
    offset: str | None = None
    time: str | None = None

    @property
    def roles(self) -> dict[str, str | None]:
        """The columns beside features, by what they are."""
        return {name: getattr(self, name) for name in ROLES}

    def to_json(self) -> str:
        """Return it as JSON."""
        return _write({**self.roles, "schema": json.loads(self.schema.to_json())})

    @classmethod
    def from_json(cls, text: str) -> "TableSchema":
        """Return what ``to_json`` wrote."""
        data = json.loads(text)
        return cls(parse_schema(data["schema"]), *(data.get(name) for name in ROLES))


def build_transformer(schema: Schema) -> Any:
    """Return scikit-learn's unfitted ``ColumnTransformer`` for the columns used.

    Columns that are treated alike share a transformer: numbers are filled in and
    scaled, categories encoded. Unknown categories become zeros, or the rare category.
    Bins of numbers and parts of dates come after, by descriptions of our own, and texts
    last.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from ..preprocessing.pairs import Pair

    groups: dict[str, list[ColumnSchema]] = {}
    for feature in schema.used:
        if feature.kind == TEXT:
            continue
        settings = {**asdict(feature), "name": None}
        # What is declared differs from column to column; the treatment does not.
        declared = settings.pop("categories") is not None
        for name in ("range", "bins", "quantum", "parts"):
            settings.pop(name)
        groups.setdefault(f"{settings} {declared}", []).append(feature)
    parts: list[tuple[str, Any, list[str]]] = []
    for alike in groups.values():
        build = _build_numbers if alike[0].is_number else _build_categories
        label = f"{alike[0].kind}-{len(parts) + 1}"
        parts.append((label, build(alike), [one.name for one in alike]))
    binned = [one for one in schema.used if one.bins is not None]
    for n_bins in sorted({one.bins for one in binned if one.bins is not None}):
        own = [one for one in binned if one.bins == n_bins]
        quanta = tuple(one.quantum for one in own if one.quantum is not None)
        step = Bins(n_bins, quanta)
        parts.append((f"bins-{len(parts) + 1}", step, [one.name for one in own]))
    for part in DATE_PARTS:
        named = [one.name for one in schema.used if part in (one.parts or ())]
        if named:
            parts.append((f"{part}-{len(parts) + 1}", DatePart(part), named))
    for pair in schema.pairs:
        rare = OneHotEncoder(
            handle_unknown="infrequent_if_exist", min_frequency=RARE_BELOW
        )
        step = make_pipeline(Pair(), rare)
        parts.append((f"pair-{len(parts) + 1}", step, [*pair]))
    for one in schema.used:
        if one.kind == TEXT and one.width is not None:
            hashing = HashingVectorizer(n_features=one.width)
            parts.append((f"text-{len(parts) + 1}", hashing, one.name))  # type: ignore[arg-type]
    return ColumnTransformer(parts, verbose_feature_names_out=False)


def _build_numbers(alike: Sequence[ColumnSchema]) -> Any:
    """Return the transformer of columns of numbers."""
    import numpy
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        FunctionTransformer,
        MaxAbsScaler,
        MinMaxScaler,
        RobustScaler,
        StandardScaler,
    )

    impute, scale = alike[0].impute, alike[0].scale
    filled: dict[str, Any] = {"strategy": impute}
    if not isinstance(impute, str):
        filled = {"strategy": "constant", "fill_value": impute}
    imputer = SimpleImputer(**filled, add_indicator=alike[0].indicator)
    scalers: dict[str | None, Callable[[], Any]] = {
        "standard": StandardScaler,
        "robust": RobustScaler,
        "minmax": MinMaxScaler,
        "maxabs": MaxAbsScaler,
    }
    steps = [imputer, *([scalers[scale]()] if scale in scalers else [])]
    if alike[0].map is not None:
        steps.insert(0, FunctionTransformer(getattr(numpy, alike[0].map)))
    return make_pipeline(*steps) if steps[1:] else imputer


def _build_categories(alike: Sequence[ColumnSchema]) -> Any:
    """Return the transformer of columns of categories."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    if alike[0].encode == "ordinal":
        return OrdinalEncoder(
            categories=[list(one.categories or ()) for one in alike],
            handle_unknown="use_encoded_value",
            unknown_value=-1,
        )
    declared: Any = "auto"
    if alike[0].categories is not None:
        # A value may be missing whatever is declared.
        declared = [
            list(dict.fromkeys((*(one.categories or ()), MISSING_CATEGORY)))
            for one in alike
        ]
    rare = alike[0].rare_below
    encoder = OneHotEncoder(
        categories=declared,
        handle_unknown="ignore" if rare is None else "infrequent_if_exist",
        min_frequency=rare,
    )
    fill = SimpleImputer(strategy="constant", fill_value=MISSING_CATEGORY)
    return make_pipeline(fill, encoder)


def read_schema(path: str | PathLike[str]) -> Schema:
    """Return the schema in a file, or raise at the first thing wrong in it."""
    place = Path(path)
    try:
        data = json.loads(place.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"{place} cannot be read ({error}); check it") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{place}, line {error.lineno}: not JSON ({error.msg}); correct it, or let "
            "fit write it again"
        ) from None
    try:
        return parse_schema(data)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


def parse_schema(data: Any) -> Schema:
    """Return the schema that JSON data describe; every key and value is checked."""
    keys = ("format", "target", "columns", "pairs")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInput(f'it is not a schema; it needs "format": "{FORMAT}"')
    _require_keys(data, keys, where="the schema")
    about = data.get("target")
    if not isinstance(about, dict) or not isinstance(data.get("columns"), list):
        raise InvalidInput('"target" must be an object, and "columns" a list')
    _require_keys(about, ("name", "task", "classes"), where='"target"')
    if not isinstance(about.get("name"), str):
        raise InvalidInput('"target" needs the "name" of a column')
    _require_choice(about.get("task"), TASKS, where='"task" of "target"')
    classes = _parse_list(about.get("classes"), str | int | float, where='"classes"')
    if classes is not None and len(classes) < 2:
        raise InvalidInput('"classes" needs at least two, or null to learn them')
    columns = tuple(_parse_column(one) for one in data["columns"])
    names = [one.name for one in columns]
    for name in names:
        if names.count(name) > 1 or name == about["name"]:
            raise InvalidInput(f"column {name!r} is described twice; keep one of them")
    schema = Schema(about["name"], about["task"], columns, classes=classes)
    schema = replace(schema, pairs=parse_pairs(data.get("pairs", []), schema))
    for one in schema.used:
        if one.kind == TEXT and len(schema.used) > 1 and (one.width or 0) > MOST_BESIDE:
            raise InvalidInput(
                f'column {one.name!r}: "width" is {one.width}, and beside other '
                f"columns at most {MOST_BESIDE}; give 256, or give the other columns "
                'the kind "left out"'
            )
    return schema


def parse_pairs(data: Any, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Return pairs of columns, each of which must be a category that is used."""
    known = {one.name for one in schema.used if one.kind == "category"}
    pairs = []
    for pair in data if isinstance(data, list | tuple) else [None]:
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            raise InvalidInput(
                '"pairs" must be a list of two columns each, such as '
                '[["profession", "region"]]'
            )
        first, second = pair
        for name in pair:
            if name not in known or first == second:
                raise InvalidInput(
                    f'"pairs": {shorten(name)} with {shorten(second)}; give two '
                    "different columns of kind category, which are "
                    f"{format_names(sorted(known)) or 'none here'}"
                )
        pairs.append((first, second))
    return tuple(pairs)


def _parse_column(data: Any) -> ColumnSchema:
    """Return the column that JSON data describe."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InvalidInput('every column needs a "name"')
    where = f"column {data['name']!r}"
    _require_choice(data.get("kind"), tuple(FIELDS), where=f'"kind" of {where}')
    kind = data["kind"]
    _require_keys(data, ("name", "kind", *FIELDS[kind]), where=f"{where}, a {kind}")
    settings = [key for key in FIELDS[kind] if data.get(key) is not None]
    given = {key: data[key] for key in settings}
    if "categories" in given:
        given["categories"] = _parse_list(given["categories"], str, where=where)
    if "parts" in given:
        given["parts"] = _parse_list(given["parts"], str, where=where)
        for part in given["parts"]:
            _require_choice(part, DATE_PARTS, where=f'"parts" of {where}')
    if "range" in given:
        given["range"] = _parse_range(given["range"], where)
    feature = make_column(data["name"], kind, **given)
    _require_settings(feature, where)
    return feature


def _require_settings(feature: ColumnSchema, where: str) -> None:
    """Raise if a setting of a column has no meaning."""
    if feature.is_number:
        _require_choice(feature.scale, SCALE, where=f'"scale" of {where}')
        if feature.map is not None:
            _require_choice(feature.map, FUNCTIONS, where=f'"map" of {where}')
            if feature.range is not None and feature.scale == "minmax":
                raise InvalidInput(
                    f'{where}: "range" is of its numbers before "map", and cannot be '
                    'the scale of those after it; give another "scale"'
                )
        impute: object = feature.impute
        if not _is_number(impute):
            words = f'"impute" of {where}, unless it is a number,'
            _require_choice(impute, IMPUTE, where=words)
        _require_bins(feature, where)
        if not isinstance(feature.indicator, bool):
            raise InvalidInput(f'"indicator" of {where} must be true or false')
    elif feature.kind == TEXT:
        if type(feature.width) is not int or not 2 <= feature.width < 2**31:
            raise InvalidInput(
                f'"width" of {where} must be a number of columns, such as 65536'
            )
    elif feature.is_used:
        _require_choice(feature.encode, ENCODE, where=f'"encode" of {where}')
        if feature.encode == "ordinal" and feature.categories is None:
            raise InvalidInput(
                f'{where} is ordinal; give its "categories" from lowest to highest'
            )
        rare = feature.rare_below
        if rare is not None and (type(rare) is not int or rare < 2):
            raise InvalidInput(f'"rare_below" of {where} must be 2 or more, or null')
        if rare is not None and feature.categories is not None:
            raise InvalidInput(
                f'{where} has declared categories; give "rare_below": null'
            )


def _require_bins(feature: ColumnSchema, where: str) -> None:
    """Raise if bins of a number have no meaning."""
    bins, quantum = feature.bins, feature.quantum
    if bins is not None and (type(bins) is not int or not 2 <= bins <= MOST_BINS):
        raise InvalidInput(f'"bins" of {where} must be 2 to {MOST_BINS:,}, or null')
    if (bins is None) != (quantum is None):
        raise InvalidInput(f'{where}: give "bins" and "quantum" together, or null')
    if quantum is not None and not (_is_number(quantum) and quantum > 0):
        raise InvalidInput(f'"quantum" of {where} must be a positive number, or null')


def _parse_list(value: Any, kinds: Any, *, where: str) -> Any:
    """Return a list of different values as a tuple; None stays None."""
    if value is None:
        return None
    fine = isinstance(value, list) and all(
        isinstance(one, kinds) and not isinstance(one, bool) for one in value
    )
    if not fine or len(set(value)) < len(value) or not value:
        raise InvalidInput(f"{where}: give a list of different values, or null")
    return tuple(value)


def _parse_range(value: Any, where: str) -> tuple[float, float]:
    if isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)):
        low, high = value
        if low < high:
            return float(low), float(high)
    raise InvalidInput(f'"range" of {where} must be [lowest, highest], or null')


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    )


def _require_keys(data: dict[str, Any], known: Sequence[str], *, where: str) -> None:
    for key in data:
        if key not in known:
            raise InvalidInput(
                f"{where} has no {shorten(key)}; it may have {format_names(known)}"
            )


def _require_choice(value: object, choices: Sequence[str], *, where: str) -> None:
    if value not in choices:
        shown = ", ".join(f'"{choice}"' for choice in choices)
        raise InvalidInput(f"{where} is {shorten(value)}; give one of {shown}")


def _describe(feature: ColumnSchema) -> dict[str, Any]:
    """Return the fields that a column of its kind has."""
    known = ("name", "kind", *FIELDS[feature.kind])
    return {
        one.name: getattr(feature, one.name)
        for one in fields(feature)
        if one.name in known
    }


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
