# SPDX-License-Identifier: Apache-2.0
"""Shipping with preprocessing: one file takes raw columns and predicts as the model."""

import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from expunge.exceptions import InvalidInput, NoPrivateState, Unsupported
from expunge.files import CorruptFiles
from expunge.files.export import seal, split
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.fitting import read_shipped, ship
from tests.raw_tables import (
    EVERYTHING,
    LABELS,
    LENIENT,
    NEW,
    STRICT,
    TABLE,
    make_labels,
    make_table,
    one_hot,
    ordinal,
    rows_for,
)

THREE = make_labels(TABLE, 3)
MODELS: dict[str, tuple[Any, Any]] = {
    "binary": (LogisticRegression(), np.array(["no", "yes"])[LABELS]),
    "no intercept": (LogisticRegression(fit_intercept=False), LABELS),
    "hinge": (LogisticRegression(loss="squared_hinge"), LABELS),
    "one against the rest": (LogisticRegression(), THREE),
    "hinges": (LogisticRegression(loss="squared_hinge"), THREE),
    "softmax": (SoftmaxRegression(), np.array(["a", "b", "c"])[THREE]),
    "regression": (LinearRegression(), THREE + 0.5),
    "two targets": (LinearRegression(), np.c_[THREE, LABELS].astype(float)),
}


def fitted(preprocessing: Any, estimator: Any = None, y: Any = LABELS) -> Any:
    model = copy.deepcopy(LogisticRegression() if estimator is None else estimator)
    return model.set_params(preprocessing=preprocessing, alpha=1e-2).fit(TABLE, y)


def feed(path: Path, rows: Any) -> dict[str, Any]:
    """Return the columns that a graph takes: text, or numbers of its precision."""
    onnx, found = import_module("onnx"), {}
    for one in onnx.load(path).graph.input:
        values = (
            rows[one.name] if hasattr(rows, "columns") else rows[:, int(one.name[1:])]
        )
        kind = one.type.tensor_type.elem_type
        if kind == onnx.TensorProto.STRING:
            words = ["" if pd.isna(value) else value for value in values]
            found[one.name] = np.array(words, dtype=object)[:, None]
        else:
            numbers = np.array(values, dtype=onnx.helper.tensor_dtype_to_np_dtype(kind))
            found[one.name] = numbers[:, None]
    return found


def run(path: Path, rows: Any, runtime: str = "reference") -> dict[str, Any]:
    """Return what a runtime makes of the rows."""
    columns = rows if isinstance(rows, dict) else feed(path, rows)
    if runtime == "reference":
        session = import_module("onnx.reference").ReferenceEvaluator(str(path))
        names = session.output_names
    else:
        session = pytest.importorskip(runtime).InferenceSession(str(path))
        names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, columns), strict=True))


def predictions(model: Any, rows: Any) -> dict[str, Any]:
    """Return what a graph of the model should give."""
    if isinstance(model, LinearRegression):
        return {"predictions": model.predict(rows)}
    if model.loss is not None:
        return {"label": model.predict(rows), "scores": model.decision_function(rows)}
    return {"label": model.predict(rows), "probabilities": model.predict_proba(rows)}


def require_same(found: dict[str, Any], wanted: dict[str, Any], rtol: float) -> None:
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert found[name].shape == values.shape
        if name == "label":
            np.testing.assert_array_equal(found[name], values)
        else:
            np.testing.assert_allclose(found[name], values, rtol=rtol, atol=rtol)


@pytest.fixture(params=["reference", "onnxruntime"])
def runtime(request: pytest.FixtureRequest) -> str:
    import_module("onnx")
    name = str(request.param)
    if name != "reference":
        pytest.importorskip(name)
    return name


class TestSafetensors:
    @pytest.mark.parametrize("name", LENIENT | STRICT)
    def test_model_is_the_same_to_the_last_bit(self, name: str, tmp_path: Path) -> None:
        model = fitted((LENIENT | STRICT)[name])
        path = tmp_path / "model.safetensors"
        ship(model, path)
        served = read_shipped(path)
        rows = rows_for(name)
        np.testing.assert_array_equal(
            served.predict_proba(rows), model.predict_proba(rows)
        )
        assert served.n_features_in_ == TABLE.shape[1]
        assert list(served.feature_names_in_) == list(TABLE.columns)
        assert served.certificate_ == model.certificate_
        with pytest.raises(NoPrivateState):
            served.forget(rows=[0])

    @pytest.mark.parametrize("end", ["safetensors", "onnx"])
    def test_same_release_is_the_same_bytes(self, end: str, tmp_path: Path) -> None:
        model, path = fitted(EVERYTHING), tmp_path / f"model.{end}"
        ship(model, path)
        first = path.read_bytes()
        ship(copy.deepcopy(model), path)
        assert path.read_bytes() == first
        ship(model, tmp_path / "model.safetensors")
        ship(read_shipped(tmp_path / "model.safetensors"), path)
        assert path.read_bytes() == first
        ship(model.forget(rows=[3]), path)
        assert path.read_bytes() != first

    def test_altered_byte_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        ship(fitted(EVERYTHING), path)
        good = path.read_bytes()
        for at in range(0, len(good), 7):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with pytest.raises(CorruptFiles):
                read_shipped(path)

    @pytest.mark.parametrize(
        "forged",
        [
            {"preprocessing": "5"},
            {"preprocessing": "null"},
            {"preprocessing": '{"class":"Popen","fields":{}}'},
            {"preprocessing": '{"class":"StandardScaler","fields":{}}'},
            {"n_features": "many"},
        ],
    )
    def test_sealed_nonsense_is_refused(
        self, forged: dict[str, str], tmp_path: Path
    ) -> None:
        path = tmp_path / "model.safetensors"
        ship(fitted(EVERYTHING), path)
        header, body = split(path.read_bytes())
        words = header["__metadata__"] | forged
        del words["sha256"]
        path.write_bytes(seal(header | {"__metadata__": words}, body))
        with pytest.raises(CorruptFiles, match="does not contain a model"):
            read_shipped(path)

    def test_features_that_do_not_fit_are_refused(self, tmp_path: Path) -> None:
        path, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
        ship(fitted(LENIENT["ignored"]), path)
        ship(fitted(LENIENT["few"]), other)
        header, body = split(path.read_bytes())
        words = header["__metadata__"]
        words["preprocessing"] = split(other.read_bytes())[0]["__metadata__"][
            "preprocessing"
        ]
        del words["sha256"]
        path.write_bytes(seal(header, body))
        with pytest.raises(CorruptFiles, match="does not contain a model"):
            read_shipped(path)


class TestGraph:
    @pytest.mark.parametrize("name", LENIENT | STRICT)
    @pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
    def test_every_preprocessing(
        self, name: str, dtype: str, rtol: float, runtime: str, tmp_path: Path
    ) -> None:
        model, path = fitted((LENIENT | STRICT)[name]), tmp_path / "model.onnx"
        ship(model, path, dtype=dtype)
        rows = rows_for(name)
        found = run(path, rows, runtime)
        assert found["probabilities"].dtype == dtype
        require_same(found, predictions(model, rows), rtol)

    @pytest.mark.parametrize("name", MODELS)
    @pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 1e-4)])
    def test_every_model(
        self, name: str, dtype: str, rtol: float, runtime: str, tmp_path: Path
    ) -> None:
        model, path = fitted(EVERYTHING, *MODELS[name]), tmp_path / "model.onnx"
        ship(model, path, dtype=dtype)
        require_same(run(path, NEW, runtime), predictions(model, NEW), rtol)

    def test_single_precision_without_preprocessing(
        self, runtime: str, tmp_path: Path
    ) -> None:
        X, path = TABLE[["age", "heat"]].to_numpy(), tmp_path / "model.onnx"
        model = LogisticRegression(alpha=1e-2).fit(X / 50.0, LABELS)
        ship(model, path, dtype="float32")
        rows = (X / 50.0).astype(np.float32)
        found = run(path, {"X": rows}, runtime)
        assert found["probabilities"].dtype == np.float32
        require_same(found, predictions(model, rows), 1e-5)

    def test_graph_is_valid_and_names_its_columns(self, tmp_path: Path) -> None:
        onnx, path = import_module("onnx"), tmp_path / "model.onnx"
        ship(fitted(EVERYTHING), path)
        onnx.checker.check_model(str(path), full_check=True)
        graph = onnx.load(path)
        opsets = [(opset.domain, opset.version) for opset in graph.opset_import]
        assert opsets == [("", 13), ("ai.onnx.ml", 2)]
        kinds = {
            one.name: onnx.TensorProto.DataType.Name(one.type.tensor_type.elem_type)
            for one in graph.graph.input
        }
        text = {"city": "STRING", "grade": "STRING"}
        numbers = dict.fromkeys(["age", "pay", "ward", "smokes", "heat"], "DOUBLE")
        assert kinds == text | numbers  # "note" and "spare" are not used
        for one in graph.graph.input:
            first, second = one.type.tensor_type.shape.dim
            assert not first.HasField("dim_value") and second.dim_value == 1
        words = {prop.key: prop.value for prop in graph.metadata_props}
        assert json.loads(words["features"]) == list(TABLE.columns)

    def test_columns_without_names_are_numbered(
        self, runtime: str, tmp_path: Path
    ) -> None:
        path, array = tmp_path / "model.onnx", TABLE.to_numpy(dtype=object)
        table = ColumnTransformer(
            [("text", one_hot(), [3, 5]), ("numbers", StandardScaler(), [8])]
        )
        model = LogisticRegression(preprocessing=table).fit(array, LABELS)
        ship(model, path)
        rows = NEW.to_numpy(dtype=object)
        assert list(feed(path, rows)) == ["x3", "x5", "x8"]
        require_same(run(path, rows, runtime), predictions(model, rows), 1e-12)

    def test_names_do_not_meet(self, runtime: str, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        names = {"age": "label", "pay": "X", "city": "coef", "heat": "eta_"}
        names |= {"ward": "eta", "grade": ""}
        table, rows = TABLE.rename(columns=names), NEW.rename(columns=names)
        scale = make_pipeline(SimpleImputer(), StandardScaler())
        preprocessing = ColumnTransformer(
            [
                ("numbers", scale, ["label", "X", "eta_", "eta"]),
                ("text", one_hot(), ["coef"]),
                ("grades", make_pipeline(ordinal(), SimpleImputer()), [""]),
            ]
        )
        model = LogisticRegression(preprocessing=preprocessing).fit(table, LABELS)
        ship(model, path)
        import_module("onnx").checker.check_model(str(path), full_check=True)
        inputs = rows.rename(columns={"label": "label_", "": "_"})
        require_same(run(path, inputs, runtime), predictions(model, rows), 1e-12)

    def test_column_in_two_groups_is_one_input(
        self, runtime: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "model.onnx"
        preprocessing = ColumnTransformer(
            [
                ("numbers", make_pipeline(SimpleImputer(), MinMaxScaler()), ["ward"]),
                ("flags", one_hot(), ["ward"]),
            ]
        )
        model = fitted(preprocessing)
        ship(model, path)
        assert list(feed(path, NEW)) == ["ward"]
        require_same(run(path, NEW, runtime), predictions(model, NEW), 1e-12)

    def test_empty_text_may_be_a_category(self, runtime: str, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        cities = np.where(TABLE["city"] == "Rome", "", TABLE["city"])
        table = TABLE[["heat"]].assign(city=cities)
        preprocessing = ColumnTransformer(
            [("text", one_hot(), ["city"]), ("number", StandardScaler(), ["heat"])]
        )
        model = LogisticRegression(preprocessing=preprocessing).fit(table, LABELS)
        ship(model, path)
        known = table[table["city"].notna()]
        require_same(run(path, known, runtime), predictions(model, known), 1e-12)

    def test_what_cannot_be_refused_is_stated(
        self, runtime: str, tmp_path: Path
    ) -> None:
        """An unknown category has no flag, and a value that must be there is NaN."""
        path = tmp_path / "model.onnx"
        strict, lenient = STRICT["refused"], LENIENT["ignored"]
        model = fitted(strict)
        with pytest.raises(InvalidInput, match="none of its"):
            model.predict(NEW)
        ship(model, path)
        wanted = fitted(lenient).predict_proba(NEW)
        np.testing.assert_allclose(
            run(path, NEW, runtime)["probabilities"], wanted, rtol=1e-12
        )
        model = fitted(STRICT["refused grade"])
        ship(model, path)
        filled = NEW.assign(grade=NEW["grade"].where(NEW["grade"] != "best", None))
        wanted = model.predict_proba(filled)
        np.testing.assert_allclose(
            run(path, NEW, runtime)["probabilities"], wanted, rtol=1e-12
        )
        gap = NEW.assign(heat=np.nan)
        assert np.isnan(run(path, gap, runtime)["probabilities"]).all()

    def test_emptied_category_is_in_no_graph(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        table = TABLE.copy()
        table.loc[5, "city"] = "Atlantis"
        model = LogisticRegression(preprocessing=EVERYTHING).fit(table, LABELS)
        ship(model, path)
        assert b"Atlantis" in path.read_bytes()
        ship(model.forget(rows=[5]), path)
        assert b"Atlantis" not in path.read_bytes()


class TestSinglePrecision:
    @pytest.mark.parametrize(
        ("centre", "error"), [(0.0, 1e-6), (1e6, 0.05), (1e7, 1.0)]
    )
    def test_numbers_far_from_zero_lose_their_digits(
        self, centre: float, error: float, tmp_path: Path
    ) -> None:
        """A number of 1e6 +- 1 is rounded to 1/16 when it enters the graph."""
        path, rng = tmp_path / "model.onnx", np.random.default_rng(0)
        X = centre + rng.normal(size=(200, 1))
        y = (X[:, 0] > centre).astype(float)
        model = LinearRegression(preprocessing=StandardScaler()).fit(X, y)
        ship(model, path, dtype="float32")
        found = run(path, {"x0": X.astype(np.float32)})["predictions"]
        off = np.abs(found - model.predict(X)).max() / np.abs(model.coef_).max()
        assert off <= error
        # And what loses no digits on its way in loses none inside.
        whole = np.round(X)
        found = run(path, {"x0": whole.astype(np.float32)})["predictions"]
        np.testing.assert_allclose(found, model.predict(whole), rtol=1e-5, atol=1e-5)

    def test_what_it_cannot_hold_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        ids = np.where(TABLE["ward"] == 1, 2**24 + 1, TABLE["ward"])
        table = TABLE[["heat"]].assign(ward=ids)
        preprocessing = ColumnTransformer([("flags", one_hot(), ["ward"])])
        model = LogisticRegression(preprocessing=preprocessing).fit(table, LABELS)
        ship(model, path)
        with pytest.raises(Unsupported, match="no longer the same in float32"):
            ship(model, path, dtype="float32")
        for factor, said in ((1e50, "too large for float32"), (1e-50, "too small")):
            model = LogisticRegression(preprocessing=StandardScaler())
            model.fit(TABLE[["heat"]] * factor, LABELS)
            with pytest.raises(Unsupported, match=said):
                ship(model, path, dtype="float32")

    def test_other_precisions_and_files_are_refused(self, tmp_path: Path) -> None:
        model = fitted(EVERYTHING)
        with pytest.raises(InvalidInput, match="dtype='float16'; use 'float64' or"):
            ship(model, tmp_path / "model.onnx", dtype="float16")
        with pytest.raises(InvalidInput, match=r"is for \.onnx files"):
            ship(model, tmp_path / "model.safetensors", dtype="float32")
        assert not list(tmp_path.iterdir())


def test_mixed_categories_have_no_graph(tmp_path: Path) -> None:
    declared = ColumnTransformer(
        [("flags", one_hot(categories=[["Rome", 1]]), ["city"])], remainder="drop"
    )
    table = make_table(1).assign(city="Rome").astype({"city": object})
    table.loc[:3, "city"] = 1
    model = LogisticRegression(preprocessing=declared).fit(table, LABELS)
    with pytest.raises(Unsupported, match="both text and numbers"):
        ship(model, tmp_path / "model.onnx")
