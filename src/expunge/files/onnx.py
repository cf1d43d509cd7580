# SPDX-License-Identifier: Apache-2.0
"""A release as an ONNX graph: from rows to predictions, in standard operators.

Without preprocessing the graph takes rows X, (n, d). With it, the graph takes each raw
column by its name, (n, 1), and encodes the rows itself. A number goes through the
formula of ``preprocessing.features``. Of a category the graph finds the place among the
column's keys (0 for one that is unknown, the last for a missing value) and takes that
line from a table, which is computed here as predictions compute it. Maps of rows make
columns of others first, or rows of rows last (``onnx_maps``). A graph cannot
refuse a row: an unknown category has none of the flags, and a value that is missing
where none may be is NaN.

Nothing else imports this module: ``export`` does, when a file ends in .onnx.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Matrix
from ..core.losses import LogLink, Loss
from ..core.values import stored_kinds
from ..exceptions import Unsupported, needing
from ..preprocessing.columns import UNKNOWN, Column, find_turns
from ..preprocessing.description import Source
from ..preprocessing.encoder import takes_values, title_of
from ..preprocessing.features import FittedPreprocessing
from ..preprocessing.mapped import PublicMap
from ..private_model.snapshot import PublicModel
from .onnx_maps import add_map

# Of 2020: Softmax along one axis, in every runtime since; and the file format with it.
OPSET, IR_VERSION = 13, 7
# Of 2018: LabelEncoder from strings to integers.
ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 2
# An operator, what it takes, what it gives, and its attributes.
Step: TypeAlias = tuple[str, tuple[str, ...], str, dict[str, Any]]
ELSEWHERE = "ship as .safetensors"


@dataclass(slots=True)
class Outline:
    """A graph before names are settled, while it is collected.

    Attributes
    ----------
    inputs
        What users call each input, whether it is text, and its width.
    steps, constants
        What is computed, and from which constants.
    shapes
        Of each output, by its name.
    """

    inputs: dict[str, tuple[str, bool, int]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    shapes: dict[str, list[int | None]] = field(default_factory=dict)


# Of these every class has a score, also where there is one class.
ONE_SCORE_EACH = ("MultinomialNB", "ComplementNB", "BernoulliNB", "NearestCentroid")


def make_onnx(public: PublicModel, words: Mapping[str, str], *, dtype: str) -> bytes:
    """Return a release as the bytes of an ONNX file.

    Parameters
    ----------
    public
        The release.
    words
        Metadata of the file.
    dtype
        Precision of the numbers in the graph and of its inputs.
    """
    with needing("onnx", "shipping as .onnx"):
        onnx = import_module("onnx")
    kind = np.dtype(dtype)
    outline = _outline(public, onnx, kind=kind)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    if any("domain" in attributes for *_, attributes in outline.steps):
        opsets.append(onnx.helper.make_opsetid(ML_DOMAIN, ML_OPSET))
    graph = onnx.helper.make_model(
        _assemble_graph(onnx, outline, kind=kind),
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="expunge",
    )
    onnx.helper.set_model_props(graph, dict(words))
    data: bytes = graph.SerializeToString(deterministic=True)
    return data


def _outline(public: PublicModel, onnx: Any, *, kind: np.dtype[Any]) -> Outline:
    """Return the graph of eta = X coef' + intercept and of predictions from it."""
    coef, intercept = public.coefficients
    outline = Outline()
    fitted, loss = public.preprocessing, public.release.certificate.objective["loss"]
    if len(coef) == 1 and loss["name"] in ONE_SCORE_EACH:
        raise Unsupported(
            "this model has one class, and its graph would have nothing to choose "
            "from; ship it as .safetensors"
        )
    if loss["name"] == "NearestCentroid":  # |x - c|^2 = |x|^2 - (2 x c - |c|^2)
        coef, intercept = 2.0 * coef, -(coef**2).sum(axis=1)
    threshold = loss.get("binarize")
    if threshold is not None:
        outline.inputs["rows"] = ("X", False, coef.shape[1])
        outline.constants["threshold"] = np.array(threshold, dtype=kind)
        to = onnx.helper.np_dtype_to_tensor_dtype(kind)
        outline.steps += [
            ("Greater", ("rows", "threshold"), "above", {}),
            ("Cast", ("above",), "X", {"to": to}),
        ]
    elif fitted is None:
        outline.inputs["X"] = ("X", False, coef.shape[1])
    elif isinstance(fitted, FittedPreprocessing):
        _Encoding(fitted, onnx, kind, outline=outline).collect(gives="X")
    elif isinstance(fitted, PublicMap):
        graph, taken = _Graph(onnx, kind, outline), "rows"
        if fitted.first is None:
            outline.inputs[taken] = ("X", False, public.n_features)
        else:
            encoding = _Encoding(fitted.first, onnx, kind, outline=outline)
            encoding.collect(gives=taken)
        width = fitted.n_columns
        add_map(graph, fitted.encoder, taking=taken, n_columns=width, gives="X")
    else:
        raise Unsupported(
            "ONNX has no operators for inputs that are no numbers; ship the model as "
            ".safetensors, or encode the inputs before they reach the graph"
        )
    constants, steps, shapes = outline.constants, outline.steps, outline.shapes
    constants |= {
        "coef": _round_numbers(
            np.ascontiguousarray(coef.T), kind, what="the coefficients"
        ),
        "intercept": _round_numbers(intercept, kind, what="the intercept"),
        "axis": np.array([1]),
        "zero": np.array(0.0, dtype=kind),
        "one": np.array(1.0, dtype=kind),
    }
    steps += [
        ("MatMul", ("X", "coef"), "products", {}),
        ("Add", ("products", "intercept"), "eta", {}),
    ]
    if public.classes is None:
        one = public.n_targets is None
        found = "predictor" if _is_log_link(public) else "predictions"
        steps.append(_squeeze_eta(found) if one else _copy_eta(found))
        if found == "predictor":
            steps.append(("Exp", (found,), "predictions", {}))
        shapes["predictions"] = [None] if one else [None, len(coef)]
    else:
        constants["classes"] = _convert_classes(public.classes)
        steps += _label_steps(len(coef), onnx) + _score_steps(public, len(coef))
        last = steps[-1][2]
        shapes |= {"label": [None], last: [None]}
        if last == "probabilities" or len(coef) > 1:
            shapes[last].append(len(public.classes))
    return outline


def _is_log_link(public: PublicModel) -> bool:
    """Return whether predictions are exponentials of the predictors.

    Raises Unsupported for those that are neither these nor the predictors.
    """
    kind: Any = stored_kinds().get(public.loss, Loss)
    if kind.mean is LogLink.mean:
        return True
    if kind.mean is not Loss.mean:
        raise Unsupported(
            f"predictions of {public.loss} are not the predictors, and ONNX has no "
            "operator for them; ship the model as .safetensors"
        )
    return False


def _label_steps(n_outputs: int, onnx: Any) -> list[Step]:
    """Return the steps to the class of the positive side or of the largest eta."""
    if n_outputs == 1:
        places: list[Step] = [
            _squeeze_eta("column"),
            ("Greater", ("column", "zero"), "positive", {}),
            ("Cast", ("positive",), "place", {"to": onnx.TensorProto.INT64}),
        ]
    else:
        places = [("ArgMax", ("eta",), "place", {"axis": 1, "keepdims": 0})]
    return [*places, ("Gather", ("classes", "place"), "label", {})]


def _score_steps(public: PublicModel, n_outputs: int) -> list[Step]:
    """Return the steps to probabilities or, if the loss has none, to scores."""
    if public.loss == "Multinomial":
        return [("Softmax", ("eta",), "probabilities", {"axis": 1})]
    if not public.gives_log_odds:
        return [_squeeze_eta("scores") if n_outputs == 1 else _copy_eta("scores")]
    sigmoid: Step = ("Sigmoid", ("eta",), "second", {})
    if n_outputs == 1:
        return [
            sigmoid,
            ("Sub", ("one", "second"), "first", {}),
            ("Concat", ("first", "second"), "probabilities", {"axis": 1}),
        ]
    return [
        sigmoid,
        ("ReduceSum", ("second", "axis"), "total", {"keepdims": 1}),
        ("Div", ("second", "total"), "probabilities", {}),
    ]


def _squeeze_eta(output: str) -> Step:
    """Return the step that turns eta of shape (n, 1) into (n,)."""
    return "Squeeze", ("eta", "axis"), output, {}


def _copy_eta(output: str) -> Step:
    """Return the step that copies eta to an output."""
    return "Identity", ("eta",), output, {}


def _assemble_graph(onnx: Any, outline: Outline, *, kind: np.dtype[Any]) -> Any:
    """Return the graph, with the constants that it uses and the names users see."""
    real = onnx.helper.np_dtype_to_tensor_dtype(kind)
    described, names = onnx.helper.make_tensor_value_info, _settle_names(outline)
    taken = {name for _, inputs, _, _ in outline.steps for name in inputs}
    tensors = {
        name: onnx.numpy_helper.from_array(array, names[name])
        for name, array in outline.constants.items()
        if name in taken
    }
    kinds = {name: real for name in outline.shapes}
    if "classes" in tensors:
        kinds["label"] = tensors["classes"].data_type
    return onnx.helper.make_graph(
        [
            onnx.helper.make_node(
                operator,
                [names[name] for name in inputs],
                [names[output]],
                name=names[output],
                **attributes,
            )
            for operator, inputs, output, attributes in outline.steps
        ],
        "release",
        [
            described(
                names[place], onnx.TensorProto.STRING if text else real, [None, width]
            )
            for place, (_, text, width) in outline.inputs.items()
        ],
        [described(name, kinds[name], outline.shapes[name]) for name in outline.shapes],
        list(tensors.values()),
    )


def _settle_names(outline: Outline) -> dict[str, str]:
    """Return the name of every value in the graph.

    Outputs keep theirs, inputs have those of the columns, and whatever would have a
    name for the second time gets an underscore.
    """
    names = {name: name for name in outline.shapes}
    wanted = {place: user for place, (user, _, _) in outline.inputs.items()}
    inner = [*outline.constants, *(output for _, _, output, _ in outline.steps)]
    wanted |= {name: name for name in inner if name not in names}
    used = {"", *names}
    for place, name in wanted.items():
        while name in used:
            name += "_"
        used.add(name)
        names[place] = name
    return names


def _convert_classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Return classes as strings, 64-bit integers, booleans or doubles."""
    kind = classes.dtype.kind
    if kind == "U" or all(isinstance(word, str) for word in classes):
        return classes.astype(object)
    if kind in "iu" and classes.max() <= np.iinfo(np.int64).max:
        return classes.astype(np.int64)
    if kind == "f":
        return classes.astype(np.float64)
    if kind == "b":
        return classes
    raise Unsupported(
        f"classes of {classes.dtype} have no counterpart in ONNX; use strings, or "
        "integers below 2^63, or ship as .safetensors"
    )


def _round_numbers(
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


class _Graph:
    """Collects steps and constants."""

    def __init__(self, onnx: Any, kind: np.dtype[Any], outline: Outline) -> None:
        self.onnx, self.kind, self.found = onnx, kind, outline
        self.real: int = onnx.helper.np_dtype_to_tensor_dtype(kind)

    def add(
        self, operator: str, inputs: list[str], *, gives: str, **attributes: Any
    ) -> str:
        """Add a step; return what it gives."""
        self.found.steps.append((operator, tuple(inputs), gives, attributes))
        return gives

    def add_constant(
        self, name: str, numbers: NDArray[np.float64], *, what: str
    ) -> str:
        """Add numbers in the precision of the graph; return their name."""
        self.found.constants[name] = _round_numbers(numbers, self.kind, what=what)
        return name

    def add_indices(self, name: str, indices: NDArray[np.intp]) -> str:
        """Add whole numbers; return their name."""
        self.found.constants[name] = np.asarray(indices).astype(np.int64)
        return name


class _Encoding(_Graph):
    """The steps of one fitted preprocessing."""

    def __init__(
        self,
        fitted: FittedPreprocessing,
        onnx: Any,
        kind: np.dtype[Any],
        *,
        outline: Outline,
    ) -> None:
        super().__init__(onnx, kind, outline)
        self.fitted = fitted
        self.features, self.layout = fitted.features, fitted.features.layout
        # Nothing is needed of a column that has no feature.
        self.places = np.unique(self.layout.columns).tolist()

    def collect(self, *, gives: str) -> None:
        """Add all steps.

        They take the constant ``axis``, [1], from the rest of the graph.
        """
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
            binned = str(place) in self.layout.edges
            if columns[place].kind == "category" or binned:
                at = np.flatnonzero(self.layout.columns == place)
                add = self._add_table
                if binned:
                    add = self._add_bins
                elif columns[place].part is not None:
                    add = self._add_part
                table = (_table_of_bins if binned else _table_of_flags)(
                    self.fitted, place
                )
                blocks.append((add(place, table[:, at]), at.tolist()))
        parts = [block for block in blocks if block[1]]
        order = np.argsort([at for _, places in parts for at in places])
        self.add("Concat", [name for name, _ in parts], gives="encoded", axis=1)
        self.found.constants["order"] = order.astype(np.int64)
        self.add("Gather", ["encoded", "order"], gives=gives, axis=1)

    def _add_inputs(self) -> None:
        """Add an input for each column of the table that has a feature."""
        made = self.fitted.described.made
        for one in made:
            if takes_values(one.encoder):
                raise Unsupported(
                    f"{title_of(one.encoder)}: ONNX has no operators for columns that "
                    f"this map makes; {ELSEWHERE}"
                )
        own = {name for one in made for name in one.names}
        text: dict[Source, set[bool]] = {}
        for place in self.places:
            column = self.fitted.columns[place]
            if column.source not in own:
                text.setdefault(column.source, set()).update(_kinds_of_keys(column))
        for source in (source for one in made for source in one.columns):
            if source not in own:
                text.setdefault(source, set()).add(False)
        for place, (source, kinds) in enumerate(text.items()):
            if len(kinds) > 1:
                raise Unsupported(
                    f"column {source!r} has both text and numbers as categories, and "
                    f"an input of a graph is one or the other; {ELSEWHERE}"
                )
            user = source if isinstance(source, str) else f"x{source}"
            self.found.inputs[f"input{place}"] = (user, True in kinds, 1)
        self.values = {source: f"input{place}" for place, source in enumerate(text)}
        for index, one in enumerate(made):
            given = [self.values[source] for source in one.columns]
            rows = self.add("Concat", given, gives=f"given{index}", axis=1)
            width = len(one.columns)
            found = f"made{index}"
            add_map(self, one.encoder, taking=rows, n_columns=width, gives=found)
            for k, name in enumerate(one.names):
                at = self.add_indices(f"place{index}.{k}", np.array([k]))
                column = self.add("Gather", [found, at], gives=f"{at}.made", axis=1)
                self.values[name] = column

    def _name_input(self, place: int) -> str:
        return self.values[self.fitted.columns[place].source]

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
        self.add("Concat", names, gives="numbers", axis=1)
        self.add("Sub", ["numbers", "centre"], gives="centred")
        self.add("Div", ["centred", "scale"], gives="scaled")
        self.add("Add", ["scaled", "offset"], gives="shifted")
        self.add("IsNaN", ["numbers"], gives="missing")
        self.add("Where", ["missing", "filled", "shifted"], gives="numeric")
        return "numeric", at.tolist()

    def _round_row(self, name: str, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add a row of numbers; return it as it was rounded."""
        self.add_constant(name, row, what=f"the {name} of a column")
        return self.found.constants[name].astype(np.float64)

    def _add_gaps(self, raw: dict[int, str]) -> tuple[str, list[int]]:
        """Add the indicators of missing numbers; return their name and positions."""
        features, at = self.features, self.layout.indicators
        if not at.size:
            return "", []
        names = [raw[place] for place in self.layout.columns[at].tolist()]
        self._round_row("gap", 1.0 / features.scale[at] + features.offset[at])
        self._round_row("no_gap", 0.0 / features.scale[at] + features.offset[at])
        self.add("Concat", names, gives="checked", axis=1)
        self.add("IsNaN", ["checked"], gives="gaps")
        self.add("Where", ["gaps", "gap", "no_gap"], gives="indicators")
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
        self.add_constant(name, table, what=f"column {source!r}")
        # What a map makes is a number.
        if self.found.inputs.get(self._name_input(place), ("", False, 1))[1]:
            line = self._add_text(place, keys)
        else:
            line = self._add_number_keys(place, keys)
        return self.add("Gather", [name, line], gives=f"encoded{place}", axis=0)

    def _add_bins(self, place: int, table: Matrix) -> str:
        """Add the line of a table of the bin of a number; NaN has the last."""
        edges = self.layout.edges[str(place)]
        return self._add_ranges(
            place, edges, table=table, value=self._name_input(place)
        )

    def _add_part(self, place: int, table: Matrix) -> str:
        """Add the line of a table of a part of dates, which are numbers of days."""
        column = self.fitted.columns[place]
        assert column.part is not None
        period, starts, parts = find_turns(column.part)
        keys = _keys(column)
        lines = [
            1 + keys.index(int(part)) if int(part) in keys else 0 for part in parts
        ]
        self.add_constant(f"period{place}", np.array([[period]]), what="a period")
        value = self._name_input(place)
        names = [f"{word}{place}" for word in ("share", "whole", "before", "within")]
        self.add("Div", [value, f"period{place}"], gives=names[0])
        self.add("Floor", [names[0]], gives=names[1])
        self.add("Mul", [names[1], f"period{place}"], gives=names[2])
        self.add("Sub", [value, names[2]], gives=names[3])
        starts = np.append(starts[1:], period + starts[0])
        ranges = table[[*lines, lines[0], len(keys) + 1]]
        return self._add_ranges(place, starts, table=ranges, value=names[3])

    def _add_ranges(
        self, place: int, ends: NDArray[np.float64], *, table: Matrix, value: str
    ) -> str:
        """Add the line of a table of the range that a value lies in; NaN has the last.

        An end that rounding makes equal to the next is moved below it.
        """
        edges = ends.astype(self.kind)
        # What lies just below a whole number must stay there.
        lower = np.nextafter(np.rint(edges), self.kind.type(-np.inf))
        edges = np.where((ends < np.rint(ends)) & (edges >= lower), lower, edges)
        for j in reversed(range(len(edges) - 1)):
            lower = np.nextafter(edges[j + 1], self.kind.type(-np.inf))
            edges[j] = min(edges[j], lower)
        if not np.isfinite(edges).all():
            self._round_row(f"edges{place}", edges.astype(np.float64))
        name = f"table{place}"
        source = self.fitted.columns[place].source
        self.add_constant(name, table, what=f"column {source!r}")
        self.found.constants[f"edges{place}"] = edges[None, :]
        lines = np.append(np.ones(len(edges)), len(edges) + 1.0)
        self.add_constant(f"lines{place}", lines, what="ranges")
        self.add("Greater", [value, f"edges{place}"], gives=f"above{place}")
        self.add("IsNaN", [value], gives=f"empty{place}")
        self.add(
            "Concat", [f"above{place}", f"empty{place}"], gives=f"hits{place}", axis=1
        )
        self.add("Cast", [f"hits{place}"], gives=f"hit{place}", to=self.real)
        self.add("MatMul", [f"hit{place}", f"lines{place}"], gives=f"found{place}")
        whole = self.onnx.TensorProto.INT64
        self.add("Cast", [f"found{place}"], gives=f"line{place}", to=whole)
        return self.add(
            "Gather", [name, f"line{place}"], gives=f"encoded{place}", axis=0
        )

    def _add_text(self, place: int, keys: list[Any]) -> str:
        """Add the place of a text among the keys; the empty text is a missing value."""
        lines = {"": len(keys) + 1}
        lines |= {key: line for line, key in enumerate(keys, start=1)}
        text, line = f"text{place}", f"line{place}"
        self.add("Squeeze", [self._name_input(place), "axis"], gives=text)
        return self.add(
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
        self.add_constant(f"lines{place}", lines, what="categories")
        self.add("Equal", [value, f"keys{place}"], gives=f"equal{place}")
        self.add("IsNaN", [value], gives=f"empty{place}")
        self.add(
            "Concat", [f"equal{place}", f"empty{place}"], gives=f"hits{place}", axis=1
        )
        self.add("Cast", [f"hits{place}"], gives=f"hit{place}", to=self.real)
        self.add("MatMul", [f"hit{place}", f"lines{place}"], gives=f"found{place}")
        whole = self.onnx.TensorProto.INT64
        return self.add("Cast", [f"found{place}"], gives=line, to=whole)

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
    plain = replace(column, source=0, unknown=unknown, gaps=True, part=None)
    known = plain.read(table)
    return np.array([unknown, *known])


def _table_of_bins(fitted: FittedPreprocessing, place: int) -> Matrix:
    """Return the features of a row in each range of a column, and of a gap."""
    edges = fitted.features.layout.edges[str(place)]
    x = np.concatenate([edges, [np.inf, np.nan]])
    raw = np.zeros((len(x), len(fitted.columns)))
    raw[:, place] = x
    return fitted.features.encode(raw)


def _table_of_flags(fitted: FittedPreprocessing, place: int) -> Matrix:
    """Return the features of rows that differ in one column of categories alone."""
    codes = _codes(fitted.columns[place])
    raw = np.zeros((len(codes), len(fitted.columns)))
    raw[:, place] = codes
    return fitted.features.encode(raw)
