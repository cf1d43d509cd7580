# SPDX-License-Identifier: Apache-2.0
"""Preprocessing as steps of an ONNX graph: from raw columns to the rows X.

A number goes through the formula of ``preprocessing.features``. Of a category the graph
finds the place among the column's keys (0 for one that is unknown, the last for a
missing value) and takes that line from a table, which is computed here as predictions
compute it. A graph cannot refuse a row: an unknown category has none of the flags, and
a value that is missing where none may be is NaN.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Matrix
from ..exceptions import Unsupported
from ..preprocessing.columns import UNKNOWN, Column
from ..preprocessing.description import Source
from ..preprocessing.features import FittedPreprocessing

# An operator, what it takes, what it gives, and its attributes.
Step: TypeAlias = tuple[str, tuple[str, ...], str, dict[str, Any]]
Constants: TypeAlias = dict[str, NDArray[Any]]
ELSEWHERE = "ship as .safetensors"


@dataclass(slots=True)
class EncodeSteps:
    """Steps that encode rows, while they are collected.

    Attributes
    ----------
    inputs
        What users call each input, and whether it is text.
    steps, constants
        What is computed, and from which constants.
    """

    inputs: dict[str, tuple[str, bool]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    constants: Constants = field(default_factory=dict)


def encode_steps(
    fitted: FittedPreprocessing, onnx: Any, *, kind: np.dtype[Any]
) -> EncodeSteps:
    """Return the steps from raw columns to X, the rows that the model sees.

    They take the constant ``axis``, [1], from the rest of the graph.
    """
    return _Encoding(fitted, onnx, kind).collect()


def round_numbers(
    numbers: NDArray[np.float64], kind: np.dtype[Any], *, what: str
) -> NDArray[Any]:
    """Return numbers in this precision; refuse those that it cannot hold."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = numbers.astype(kind)
    if np.isinf(rounded).any():
        raise Unsupported(
            f"{what}: a number is too large for {kind}; ship with dtype='float64'"
        )
    return rounded


class _Encoding:
    """The steps of one fitted preprocessing."""

    def __init__(
        self, fitted: FittedPreprocessing, onnx: Any, kind: np.dtype[Any]
    ) -> None:
        self.fitted, self.onnx, self.kind = fitted, onnx, kind
        self.features, self.layout = fitted.features, fitted.features.layout
        self.found = EncodeSteps()
        # Nothing is needed of a column that has no feature.
        self.places = np.unique(self.layout.columns).tolist()
        self.real = onnx.helper.np_dtype_to_tensor_dtype(kind)

    def collect(self) -> EncodeSteps:
        """Return all steps; the last one gives X."""
        self._add_inputs()
        columns = self.fitted.columns
        raw = {
            place: self._add_code(place)
            if columns[place].kind == "ordinal"
            else self._name_input(place)
            for place in self.places
            if columns[place].kind != "category"
        }
        blocks = [self._add_numbers(raw), self._add_gaps(raw)]
        for place in self.places:
            if columns[place].kind == "category":
                at = np.flatnonzero(self.layout.columns == place)
                table = _table_of_flags(self.fitted, place)[:, at]
                blocks.append((self._add_table(place, table), at.tolist()))
        parts = [block for block in blocks if block[1]]
        order = np.argsort([at for _, places in parts for at in places])
        self._add("Concat", [name for name, _ in parts], gives="encoded", axis=1)
        self.found.constants["order"] = order.astype(np.int64)
        self._add("Gather", ["encoded", "order"], gives="X", axis=1)
        return self.found

    def _add(
        self, operator: str, inputs: list[str], *, gives: str, **attributes: Any
    ) -> str:
        """Add a step; return what it gives."""
        self.found.steps.append((operator, tuple(inputs), gives, attributes))
        return gives

    def _add_constant(
        self, name: str, numbers: NDArray[np.float64], *, what: str
    ) -> None:
        """Add numbers in the precision of the graph."""
        self.found.constants[name] = round_numbers(numbers, self.kind, what=what)

    def _add_inputs(self) -> None:
        """Add an input for each column of the table that has a feature."""
        text: dict[Source, set[bool]] = {}
        for place in self.places:
            column = self.fitted.columns[place]
            text.setdefault(column.source, set()).update(_kinds_of_keys(column))
        for place, (source, kinds) in enumerate(text.items()):
            if len(kinds) > 1:
                raise Unsupported(
                    f"column {source!r} has both text and numbers as categories, and "
                    f"an input of a graph is one or the other; {ELSEWHERE}"
                )
            user = source if isinstance(source, str) else f"x{source}"
            self.found.inputs[f"input{place}"] = (user, True in kinds)
        self.sources = list(text)

    def _name_input(self, place: int) -> str:
        return f"input{self.sources.index(self.fitted.columns[place].source)}"

    def _add_numbers(self, raw: dict[int, str]) -> tuple[str, list[int]]:
        """Add the features that are numbers; return their name and positions."""
        features, at = self.features, self.layout.numbers
        if not at.size:
            return "", []
        names = [raw[place] for place in self.layout.columns[at].tolist()]
        centre = self._round_row("centre", features.centre[at])
        scale = self._round_row("scale", features.scale[at])
        if not scale.all():
            raise Unsupported(
                f"a scale is too small for {self.kind}; ship with dtype='float64'"
            )
        # What rounding takes from the centre goes to the offset, where it is small:
        # a number less a centre nearby has no rounding of its own.
        offset = features.offset[at] - (features.centre[at] - centre) / scale
        self._round_row("offset", offset)
        self._round_row("filled", features.missing[at])
        self._add("Concat", names, gives="numbers", axis=1)
        self._add("Sub", ["numbers", "centre"], gives="centred")
        self._add("Div", ["centred", "scale"], gives="scaled")
        self._add("Add", ["scaled", "offset"], gives="shifted")
        self._add("IsNaN", ["numbers"], gives="missing")
        self._add("Where", ["missing", "filled", "shifted"], gives="numeric")
        return "numeric", at.tolist()

    def _round_row(self, name: str, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add a row of numbers; return it as it was rounded."""
        self._add_constant(name, row, what=f"the {name} of a column")
        return self.found.constants[name].astype(np.float64)

    def _add_gaps(self, raw: dict[int, str]) -> tuple[str, list[int]]:
        """Add the indicators of missing numbers; return their name and positions."""
        features, at = self.features, self.layout.indicators
        if not at.size:
            return "", []
        names = [raw[place] for place in self.layout.columns[at].tolist()]
        self._round_row("gap", 1.0 / features.scale[at] + features.offset[at])
        self._round_row("no_gap", 0.0 / features.scale[at] + features.offset[at])
        self._add("Concat", names, gives="checked", axis=1)
        self._add("IsNaN", ["checked"], gives="gaps")
        self._add("Where", ["gaps", "gap", "no_gap"], gives="indicators")
        return "indicators", at.tolist()

    def _add_code(self, place: int) -> str:
        """Add the number of an ordinal category; return its name."""
        codes = _codes(self.fitted.columns[place])
        return self._add_table(place, codes[:, None])

    def _add_table(self, place: int, table: Matrix) -> str:
        """Add the line of a table that a category has; return its name."""
        keys = _keys(self.fitted.columns[place])
        source = self.fitted.columns[place].source
        name = f"table{place}"
        self._add_constant(name, table, what=f"column {source!r}")
        if self.found.inputs[self._name_input(place)][1]:
            line = self._add_text(place, keys)
        else:
            line = self._add_number_keys(place, keys)
        return self._add("Gather", [name, line], gives=f"encoded{place}", axis=0)

    def _add_text(self, place: int, keys: list[Any]) -> str:
        """Add the place of a text among the keys; the empty text is a missing value."""
        lines = {"": len(keys) + 1}
        lines |= {key: line for line, key in enumerate(keys, start=1)}
        text, line = f"text{place}", f"line{place}"
        self._add("Squeeze", [self._name_input(place), "axis"], gives=text)
        return self._add(
            "LabelEncoder",
            [text],
            gives=line,
            domain="ai.onnx.ml",
            keys_strings=list(lines),
            values_int64s=list(lines.values()),
            default_int64=0,
        )

    def _add_number_keys(self, place: int, keys: list[Any]) -> str:
        """Add the place of a number among the keys; NaN is a missing value."""
        value, line = self._name_input(place), f"line{place}"
        self.found.constants[f"keys{place}"] = self._round_keys(place, keys)
        lines = np.arange(1.0, len(keys) + 2.0)
        self._add_constant(f"lines{place}", lines, what="categories")
        self._add("Equal", [value, f"keys{place}"], gives=f"equal{place}")
        self._add("IsNaN", [value], gives=f"empty{place}")
        self._add(
            "Concat", [f"equal{place}", f"empty{place}"], gives=f"hits{place}", axis=1
        )
        self._add("Cast", [f"hits{place}"], gives=f"hit{place}", to=self.real)
        self._add("MatMul", [f"hit{place}", f"lines{place}"], gives=f"found{place}")
        whole = self.onnx.TensorProto.INT64
        return self._add("Cast", [f"found{place}"], gives=line, to=whole)

    def _round_keys(self, place: int, keys: list[Any]) -> NDArray[Any]:
        """Return keys as a row of numbers; refuse those that rounding makes equal."""
        rounded = np.array([keys], dtype=np.float64).astype(self.kind)
        whole = [k for k in keys if isinstance(k, int)]
        exact = all(int(self.kind.type(key)) == key for key in whole)
        if not exact or len(np.unique(rounded)) < len(keys):
            raise Unsupported(
                f"column {self.fitted.columns[place].source!r} has numbers as "
                f"categories that are no longer the same in {self.kind}; make them "
                f"text, or {ELSEWHERE}"
            )
        return rounded


def _keys(column: Column) -> list[Any]:
    """Return the categories, but for a missing value."""
    return [key for key in column.categories if key is not None]


def _kinds_of_keys(column: Column) -> Iterator[bool]:
    """Yield whether each category is text; a number is none."""
    if column.kind == "number":
        yield False
    for key in _keys(column):
        if not isinstance(key, str | int | float):
            raise Unsupported(
                f"column {column.source!r} has {type(key).__name__} as a category, "
                "which has no counterpart in ONNX; make it text"
            )
        yield isinstance(key, str)


def _codes(column: Column) -> NDArray[np.float64]:
    """Return the code of an unknown category, of each key, and of a missing value."""
    unknown = column.unknown
    if unknown is None:
        unknown = float("nan") if column.kind == "ordinal" else float(UNKNOWN)
    table = np.empty((len(_keys(column)) + 1, 1), dtype=object)
    table[:, 0] = [*_keys(column), None]
    known = replace(column, source=0, unknown=unknown, gaps=True).read(table)
    return np.array([unknown, *known])


def _table_of_flags(fitted: FittedPreprocessing, place: int) -> Matrix:
    """Return the features of rows that differ in one column of categories alone."""
    codes = _codes(fitted.columns[place])
    raw = np.zeros((len(codes), len(fitted.columns)))
    raw[:, place] = codes
    return fitted.features.encode(raw)
