# SPDX-License-Identifier: Apache-2.0
"""Shipping: one file predicts what the model predicts, and tells nothing private."""

import copy
import json
import os
import stat
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from expunge.exceptions import (
    InvalidInput,
    MissingExtra,
    NoPrivateState,
    NothingSaved,
    Unsupported,
)
from expunge.files import CorruptFiles
from expunge.files.export import seal, split
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import snapshot_of
from expunge.linear_model.fitting import read_shipped, ship
from expunge.linear_model.tuned import TunedClassifier, TunedRegressor
from expunge.promise.budget import Budget
from expunge.promise.certificate import Certificate
from tests.test_files import CANCER, DIABETES, IRIS, MODELS, TWO, WORDS, Mine, draft
from tests.test_folder import stop

ONE_COLUMN = (DIABETES[0], DIABETES[1][:, None])
SHIPPED: list[tuple[Any, tuple[Any, Any]]] = [
    *MODELS,
    (LogisticRegression(fit_intercept=False), IRIS),
    (LogisticRegression(loss="squared_hinge"), IRIS),
    (SoftmaxRegression(), WORDS),
    (LinearRegression(fit_intercept=False), TWO),
    (LinearRegression(), ONE_COLUMN),
    (TunedClassifier(folds=2).set_params(alphas=np.array([0.1, 0.01])), WORDS),
    (TunedRegressor(alphas=(0.1, 0.01), folds=2), DIABETES),
]
ENDS = ["safetensors", "onnx"]


def fitted(estimator: Any, data: tuple[Any, Any]) -> Any:
    return copy.deepcopy(estimator).fit(*data)


def shipped(model: Any, folder: Path, end: str = "safetensors") -> Path:
    path = folder / f"model.{end}"
    ship(model, path)
    return path


def others(rng: np.random.Generator, model: Any) -> Any:
    return 3.0 * rng.normal(size=(200, model.n_features_in_))


def words_of(path: Path) -> dict[str, str]:
    """Return the words that anybody finds in the file."""
    if path.suffix == ".onnx":
        onnx = import_module("onnx")
        return {prop.key: prop.value for prop in onnx.load(path).metadata_props}
    with safe_open(path, "numpy") as file:
        return dict(file.metadata())


class TestBothKinds:
    @pytest.mark.parametrize("end", ENDS)
    def test_same_release_is_the_same_bytes(self, end: str, tmp_path: Path) -> None:
        frame = pd.DataFrame(WORDS[0], columns=[f"\u00e9{i}" for i in range(30)])
        model = fitted(LogisticRegression(), (frame, WORDS[1]))
        first = shipped(model, tmp_path, end).read_bytes()
        assert shipped(copy.deepcopy(model), tmp_path, end).read_bytes() == first
        served = read_shipped(shipped(model, tmp_path))
        assert shipped(served, tmp_path, end).read_bytes() == first
        model.forget(rows=[3])
        assert shipped(model, tmp_path, end).read_bytes() != first

    @pytest.mark.parametrize("end", ENDS)
    def test_words_say_what_it_is(self, end: str, tmp_path: Path) -> None:
        frame = pd.DataFrame(WORDS[0], columns=[f"\u00e9{i}" for i in range(30)])
        model = fitted(LogisticRegression(), (frame, WORDS[1]))
        words = words_of(shipped(model, tmp_path, end))
        assert Certificate.from_json(words["certificate"]) == model.certificate_
        assert words["estimator"] == "LogisticRegression"
        assert json.loads(words["classes"]) == ["benign", "malign"]
        assert json.loads(words["features"]) == list(frame.columns)

    @pytest.mark.parametrize("end", ENDS)
    def test_nothing_private_is_written(self, end: str, tmp_path: Path) -> None:
        X, y = CANCER
        budget = Budget(sigma=5.0, allow_seeded=True)
        model = LogisticRegression(budget=budget, random_state=987654321)
        model.fit(X, y, subjects=[f"ada{i}" for i in range(len(X))])
        data = shipped(model, tmp_path, end).read_bytes()
        noiseless = [value.tobytes() for value in draft(model)]
        secrets = [
            b"987654321",
            b"ada17",
            model.record_.salt.hex().encode(),
            *noiseless,
        ]
        assert not any(secret in data for secret in secrets)
        assert all(value.tobytes() in data for value in model.coef_[0])

    @pytest.mark.parametrize("end", ENDS)
    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o600), (0o277, 0o400)])
    def test_file_is_for_its_owner_alone(
        self, end: str, umask: int, mode: int, tmp_path: Path
    ) -> None:
        model = fitted(LogisticRegression(), CANCER)
        old = os.umask(umask)
        try:
            path = shipped(model, tmp_path, end)
            assert stat.S_IMODE(path.stat().st_mode) == mode
            path.chmod(0o644)
            shipped(model, tmp_path, end)  # a new file, whatever was there
        finally:
            os.umask(old)
        assert stat.S_IMODE(path.stat().st_mode) == mode

    def test_refusals_write_nothing(self, tmp_path: Path) -> None:
        model = fitted(LogisticRegression(), CANCER)
        (tmp_path / "folder.onnx").mkdir()
        before = os.listdir(tmp_path)
        for name in ("model.pkl", "model", "safetensors"):
            with pytest.raises(InvalidInput, match=r"in \.safetensors or \.onnx"):
                ship(model, tmp_path / name)
        for name in ("no/model.onnx", "folder.onnx"):
            with pytest.raises(InvalidInput, match="in a folder that exists"):
                ship(model, tmp_path / name)
        with pytest.raises(Unsupported, match="Mine'> cannot be saved"):
            ship(fitted(Mine(), CANCER), tmp_path / "model.onnx")
        with pytest.raises(NotFittedError):
            ship(LogisticRegression(), tmp_path / "model.safetensors")
        assert os.listdir(tmp_path) == before

    def test_missing_library_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = fitted(LogisticRegression(), CANCER)
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(MissingExtra, match=r"expunge\[onnx\]"):
            ship(model, tmp_path / "model.onnx")
        assert os.listdir(tmp_path) == []
        monkeypatch.setitem(sys.modules, "safetensors", None)
        ship(model, tmp_path / "model.safetensors")  # which needs no library to write
        with pytest.raises(MissingExtra, match=r"expunge\[files\]"):
            read_shipped(tmp_path / "model.safetensors")


class TestSafetensors:
    @pytest.mark.parametrize(("estimator", "data"), SHIPPED)
    def test_model_is_the_same_to_the_last_bit(
        self,
        estimator: Any,
        data: tuple[Any, Any],
        tmp_path: Path,
        rng: np.random.Generator,
    ) -> None:
        model = fitted(estimator, data)
        served: Any = read_shipped(shipped(model, tmp_path))
        rows = others(rng, model)
        assert type(served) is type(model)
        assert served.random_state is None
        parameters = model.get_params() | {"random_state": None}
        assert repr(served.get_params()) == repr(parameters)
        assert served.certificate_ == model.certificate_
        np.testing.assert_array_equal(served.predict(rows), model.predict(rows))
        np.testing.assert_array_equal(
            snapshot_of(served).public.release.theta,
            snapshot_of(model).public.release.theta,
        )
        for name in ("n_features_in_", "feature_names_in_", "_n_targets"):
            assert hasattr(served, name) == hasattr(model, name)
            found, wanted = (np.array(getattr(m, name, 0)) for m in (served, model))
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
        with pytest.raises(NoPrivateState):
            served.forget(rows=[0])

    def test_library_alone_is_enough_to_predict(self, tmp_path: Path) -> None:
        X, y = WORDS
        model = fitted(LogisticRegression(), (X, y))
        with safe_open(shipped(model, tmp_path), "numpy") as file:
            eta = X @ file.get_tensor("coef").T + file.get_tensor("intercept")
            classes = np.array(json.loads(file.metadata()["classes"]))
            assert set(file.keys()) == {"coef", "intercept"}
        np.testing.assert_array_equal(classes[(eta[:, 0] > 0) * 1], model.predict(X))
        np.testing.assert_allclose(expit(eta[:, 0]), model.predict_proba(X)[:, 1])

    @pytest.mark.parametrize(
        "labels",
        [
            np.array(["no", "yes"], dtype=object),
            np.array([False, True]),
            np.array([-1.0, 2.0], dtype=np.float32),
            np.array([3, 2**63 + 1], dtype=np.uint64),
        ],
    )
    def test_classes_keep_their_type(self, labels: Any, tmp_path: Path) -> None:
        model = fitted(LogisticRegression(), (CANCER[0], labels[CANCER[1]]))
        classes = read_shipped(shipped(model, tmp_path)).classes_
        assert classes.dtype == labels.dtype
        np.testing.assert_array_equal(classes, labels)

    def test_flipped_byte_is_refused(self, tmp_path: Path) -> None:
        path = shipped(fitted(LogisticRegression(), WORDS), tmp_path)
        good = path.read_bytes()
        for at in range(len(good)):
            bad = bytearray(good)
            bad[at] ^= 1
            path.write_bytes(bad)
            with pytest.raises(CorruptFiles, match=r"model\.safetensors"):
                read_shipped(path)
        path.write_bytes(good)
        read_shipped(path)

    def test_truncated_file_is_refused(self, tmp_path: Path) -> None:
        path = shipped(fitted(LogisticRegression(), WORDS), tmp_path)
        good = path.read_bytes()
        lengths = (0, 1, 8, 9, len(good) // 2, len(good) - 1)
        for bad in [*(good[:length] for length in lengths), good + b"\n"]:
            path.write_bytes(bad)
            with pytest.raises(CorruptFiles):
                read_shipped(path)

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.safetensors"
        with pytest.raises(NothingSaved, match="no such file; check the path"):
            read_shipped(path)
        save_file({"coef": np.ones(3)}, path)
        with pytest.raises(CorruptFiles, match="is not a shipped release"):
            read_shipped(path)
        with pytest.raises(InvalidInput, match=r"pass a \.safetensors file"):
            read_shipped(tmp_path / "model.onnx")

    @pytest.mark.parametrize(
        ("forged", "said"),
        [
            ({"version": "2"}, "has version 2 and this expunge reads 1"),
            ({"estimator": "Popen"}, "does not contain a model"),
            ({"parameters": '{"mapping":{"nothing":1}}'}, "does not contain a model"),
            ({"certificate": "{}"}, "does not contain a model"),
            ({"classes_type": "nonsense"}, "does not contain a model"),
        ],
    )
    def test_sealed_nonsense_is_refused(
        self, forged: dict[str, str], said: str, tmp_path: Path
    ) -> None:
        path = shipped(fitted(LogisticRegression(), WORDS), tmp_path)
        header, body = split(path.read_bytes())
        words = header["__metadata__"] | forged
        del words["sha256"]
        path.write_bytes(seal(header | {"__metadata__": words}, body))
        with pytest.raises(CorruptFiles, match=said):
            read_shipped(path)

    def test_sealed_tensors_that_do_not_fit_are_refused(self, tmp_path: Path) -> None:
        path = shipped(fitted(LogisticRegression(), WORDS), tmp_path)
        header, body = split(path.read_bytes())
        del header["__metadata__"]["sha256"]
        shapes: list[dict[str, Any]] = [
            {"shape": [1, 29], "data_offsets": [0, 232]},
            {"shape": [30, 1]},
            {"shape": [1, 31]},
            {"dtype": "F65"},
        ]
        for shape in shapes:
            forged = header | {"coef": header["coef"] | shape}
            path.write_bytes(seal(forged, body))
            with pytest.raises(CorruptFiles, match="does not contain a model"):
                read_shipped(path)


class TestOnnx:
    @pytest.fixture(autouse=True)
    def onnx(self) -> Any:
        return import_module("onnx")

    def run(self, path: Path, rows: Any) -> dict[str, Any]:
        """Return what the reference implementation of ONNX makes of the rows."""
        reference = import_module("onnx.reference")
        session = reference.ReferenceEvaluator(str(path))
        return dict(
            zip(session.output_names, session.run(None, {"X": rows}), strict=True)
        )

    @pytest.mark.parametrize(("estimator", "data"), SHIPPED)
    def test_graph_predicts_what_the_model_predicts(
        self,
        estimator: Any,
        data: tuple[Any, Any],
        tmp_path: Path,
        rng: np.random.Generator,
    ) -> None:
        model = fitted(estimator, data)
        rows = others(rng, model)
        found = self.run(shipped(model, tmp_path, "onnx"), rows)
        wanted = model.predict(rows)
        if isinstance(model, LinearRegression):
            assert list(found) == ["predictions"]
            assert found["predictions"].shape == wanted.shape
            np.testing.assert_allclose(found["predictions"], wanted, rtol=1e-12)
            return
        np.testing.assert_array_equal(found["label"], wanted)
        if model.loss is not None:
            np.testing.assert_allclose(
                found["scores"], model.decision_function(rows), rtol=1e-12
            )
            return
        assert list(found) == ["label", "probabilities"]
        chances = model.predict_proba(rows)
        assert found["probabilities"].shape == chances.shape
        assert found["probabilities"].dtype == np.float64
        np.testing.assert_allclose(
            found["probabilities"], chances, rtol=1e-12, atol=1e-12
        )

    @pytest.mark.parametrize(("estimator", "data"), SHIPPED)
    def test_graph_is_valid_and_modest(
        self, estimator: Any, data: tuple[Any, Any], onnx: Any, tmp_path: Path
    ) -> None:
        path = shipped(fitted(estimator, data), tmp_path, "onnx")
        onnx.checker.check_model(str(path), full_check=True)
        graph = onnx.load(path)
        assert [(opset.domain, opset.version) for opset in graph.opset_import] == [
            ("", 13)
        ]
        (rows,) = graph.graph.input
        kind = rows.type.tensor_type
        assert (rows.name, kind.elem_type) == ("X", onnx.TensorProto.DOUBLE)
        assert not kind.shape.dim[0].HasField("dim_value")
        assert kind.shape.dim[1].dim_value == data[0].shape[1]

    @pytest.mark.parametrize(
        ("labels", "kind"),
        [
            (np.array(["no", "ja"]), np.object_),
            (np.array(["no", "ja"], dtype=object), np.object_),
            (np.array([-7, 2**40]), np.int64),
            (np.array([3, 7], dtype=np.uint8), np.int64),
            (np.array([False, True]), np.bool),
            (np.array([-1.0, 2.0], dtype=np.float32), np.float64),
        ],
    )
    def test_labels_keep_their_kind(
        self, labels: Any, kind: type, tmp_path: Path
    ) -> None:
        model = fitted(LogisticRegression(), (CANCER[0], labels[CANCER[1]]))
        found = self.run(shipped(model, tmp_path, "onnx"), CANCER[0])["label"]
        assert found.dtype == kind
        np.testing.assert_array_equal(found, model.predict(CANCER[0]))

    def test_classes_without_counterpart_are_refused(self, tmp_path: Path) -> None:
        labels = np.array([0, 2**63 + 1], dtype=np.uint64)
        model = fitted(LogisticRegression(), (CANCER[0], labels[CANCER[1]]))
        with pytest.raises(Unsupported, match="no counterpart in ONNX"):
            ship(model, tmp_path / "model.onnx")
        assert os.listdir(tmp_path) == []


class TestReplacement:
    @pytest.mark.parametrize(("call", "at"), [("fsync", 1), ("replace", 1)])
    def test_interrupted_before_it_is_in_place(
        self, call: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = fitted(LogisticRegression(), CANCER)
        before = shipped(model, tmp_path).read_bytes()
        model.forget(rows=[3])
        stop(monkeypatch, call, at)
        with pytest.raises(KeyboardInterrupt):
            shipped(model, tmp_path)
        assert os.listdir(tmp_path) == ["model.safetensors"]
        assert (tmp_path / "model.safetensors").read_bytes() == before

    def test_interrupted_when_it_is_in_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = fitted(LogisticRegression(), CANCER)
        path = shipped(model, tmp_path)
        model.forget(rows=[3])
        stop(monkeypatch, "fsync", 2)
        with pytest.raises(KeyboardInterrupt):
            ship(model, path)
        assert os.listdir(tmp_path) == ["model.safetensors"]
        np.testing.assert_array_equal(read_shipped(path).coef_, model.coef_)

    def test_reader_of_the_old_file_keeps_it(self, tmp_path: Path) -> None:
        model = fitted(LogisticRegression(), CANCER)
        path = shipped(model, tmp_path)
        before = path.read_bytes()
        with path.open("rb") as opened:
            ship(model.forget(rows=[3]), path)
            assert opened.read() == before
        assert path.read_bytes() != before
