# SPDX-License-Identifier: Apache-2.0
"""Files: a model goes on where it was saved, and nothing in the folder is believed."""

import copy
import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from benchmarks.rescaled import Rescaled
from expunge import L1, HalfSquared, Newton, SquaredHinge
from expunge.adopt import from_sklearn
from expunge.core.linalg import Symmetric
from expunge.core.packing import pack, unpack
from expunge.core.penalties import ElasticNet, GroupLasso, NuclearNorm
from expunge.core.values import dumps
from expunge.exceptions import (
    CapacityExceeded,
    InvalidInput,
    MissingExtra,
    NoPrivateState,
    ScheduleExhausted,
    UnknownRows,
    UnknownSubject,
    Unsupported,
)
from expunge.files import folder
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model
from expunge.linear_model.fitting import load, read_shipped, ship
from expunge.promise.budget import Budget
from expunge.promise.verification import verify

FILES = ["private.json", "private.safetensors", "release.json", "release.safetensors"]
SEEDED = Budget(sigma=5.0, releases=3, allow_seeded=True)


def scaled(loader: Any) -> tuple[Any, Any]:
    X, y = loader(return_X_y=True)
    return StandardScaler().fit_transform(X)[:200], y[:200]


CANCER = scaled(load_breast_cancer)
WORDS = (CANCER[0], np.array(["benign", "malign"])[CANCER[1]])
SPARSE = (sparse.csr_array(CANCER[0] * (np.abs(CANCER[0]) > 0.7)), CANCER[1])
IRIS = scaled(load_iris)
DIABETES = scaled(load_diabetes)
TWO = (DIABETES[0], np.asfortranarray(np.c_[DIABETES[1], np.sqrt(DIABETES[1])]))

MODELS: list[tuple[Any, tuple[Any, Any]]] = [
    (LogisticRegression(), WORDS),
    (LogisticRegression(mechanism="jackknife", scaling="sum"), CANCER),
    (LogisticRegression(mechanism=Rescaled(), l1_ratio=0.5, alpha=1e-2), CANCER),
    (LogisticRegression(mechanism="retrain", fit_intercept=False), CANCER),
    (LogisticRegression(mechanism=Newton(), loss=SquaredHinge()), CANCER),
    (LogisticRegression(penalty=L1(), ridge=1e-3), SPARSE),
    (LogisticRegression(mechanism="jackknife", l1_ratio=1.0, ridge=0.1), CANCER),
    (LogisticRegression(), IRIS),
    (LogisticRegression(loss=HalfSquared()), IRIS),
    (LogisticRegression(alpha=1e-3, budget=SEEDED, random_state=7), CANCER),
    (SoftmaxRegression(penalty=NuclearNorm(), ridge=1e-2), IRIS),
    (SoftmaxRegression(penalize_intercept=True), IRIS),
    (LinearRegression(penalty=GroupLasso([0] * 5 + [1] * 5)), DIABETES),
    (LinearRegression(penalty=ElasticNet(0.3)), DIABETES),
    (LinearRegression(), TWO),
]


def fitted(estimator: Any, data: tuple[Any, Any], keep: bool) -> Any:
    """Return a copy of the estimator, fitted, with two rows forgotten."""
    X, y = data
    model = copy.deepcopy(estimator).set_params(keep_data=keep).fit(X, y)
    return forget(model, data, [3, 50])


def forget(model: Any, data: tuple[Any, Any], places: list[int]) -> Any:
    if model.keep_data:
        return model.forget(rows=places)
    return model.forget(X=data[0][places], y=data[1][places])


def draft(model: Any) -> Any:
    return private_model(model).answer.draft.theta


def contents(place: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    files = [file for file in sorted(place.rglob("*")) if file.is_file()]
    return {str(file.relative_to(place)): file.read_bytes() for file in files}


def cases() -> list[tuple[Any, tuple[Any, Any], bool]]:
    """Return every model with its rows, and without where they are not needed."""
    without = [(e, data, False) for e, data in MODELS if e.mechanism != "retrain"]
    return [(e, data, True) for e, data in MODELS] + without


@pytest.mark.parametrize(("estimator", "data", "keep"), cases())
def test_model_goes_on_to_the_last_bit(
    estimator: Any, data: tuple[Any, Any], keep: bool, tmp_path: Path
) -> None:
    model = fitted(estimator, data, keep)
    model.save(tmp_path)
    loaded: Any = load(tmp_path)
    assert type(loaded) is type(model)
    assert repr(loaded.get_params()) == repr(model.get_params())
    assert loaded.certificate_ == model.certificate_
    assert loaded.record_ == model.record_
    np.testing.assert_array_equal(loaded.predict(data[0]), model.predict(data[0]))
    for places in ([7], [8, 9, 10, 11, 60, 61]):
        if model.certificate_.releases == model.certificate_.n_releases:
            break
        np.testing.assert_array_equal(draft(loaded), draft(model))
        forget(model, data, places)
        forget(loaded, data, places)
    np.testing.assert_array_equal(draft(loaded), draft(model))
    np.testing.assert_array_equal(loaded.coef_, model.coef_)  # seeded noise too
    assert loaded.record_.radius == model.record_.radius
    assert loaded.record_.decisions == model.record_.decisions
    assert verify(loaded.certificate_, loaded.record_).valid


def test_same_model_is_the_same_bytes(tmp_path: Path) -> None:
    model = fitted(LogisticRegression(), WORDS, True)
    model.save(tmp_path / "a")
    # From the first copy on: there may be others, and a copy says so.
    load(tmp_path / "a").save(tmp_path / "b")
    load(tmp_path / "b").save(tmp_path / "c")
    for name in FILES:
        a, b, c = (tmp_path / place / name for place in "abc")
        assert b.read_bytes() == c.read_bytes()
        assert name.startswith("private") or a.read_bytes() == b.read_bytes()


def test_folder_holds_four_files_and_private_ones_are_closed(tmp_path: Path) -> None:
    model = LogisticRegression().fit(*CANCER)
    old = os.umask(0)
    try:
        model.save(tmp_path / "deep" / "down")
    finally:
        os.umask(old)
    place = tmp_path / "deep" / "down"
    assert sorted(os.listdir(place)) == FILES
    modes = {name: stat.S_IMODE((place / name).stat().st_mode) for name in FILES}
    assert modes == {
        "private.json": 0o600,
        "private.safetensors": 0o600,
        "release.json": 0o666,
        "release.safetensors": 0o666,
    }


def test_release_travels_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame(CANCER[0], columns=[f"c{i}" for i in range(30)])
    model = LogisticRegression(budget=SEEDED, random_state=7).fit(frame, WORDS[1])
    model.save(tmp_path)
    for name in FILES[:2]:
        (tmp_path / name).unlink()
    served: Any = load(tmp_path)
    np.testing.assert_array_equal(
        served.predict_proba(frame), model.predict_proba(frame)
    )
    np.testing.assert_array_equal(served.classes_, model.classes_)
    assert list(served.feature_names_in_) == list(frame.columns)
    assert served.certificate_ == model.certificate_
    with pytest.raises(NoPrivateState):
        served.forget(rows=[0])
    with pytest.raises(NoPrivateState):
        _ = served.record_
    served.save(tmp_path / "again")
    assert sorted(os.listdir(tmp_path / "again")) == FILES[2:]
    np.testing.assert_array_equal(load(tmp_path / "again").coef_, model.coef_)


def test_release_tells_nothing_private(tmp_path: Path) -> None:
    X, y = CANCER
    model = LogisticRegression(
        budget=Budget(sigma=5.0, allow_seeded=True), random_state=987654321
    ).fit(X, y, subjects=[f"ada{i}" for i in range(len(X))])
    model.save(tmp_path)
    shown = b"".join((tmp_path / name).read_bytes() for name in FILES[2:])
    hidden = b"".join((tmp_path / name).read_bytes() for name in FILES[:2])
    private = {
        name: folder.digest((tmp_path / name).read_bytes()) for name in FILES[:2]
    }
    secrets = [
        b"987654321",
        b"ada17",
        model.record_.salt.hex().encode(),
        draft(model).tobytes(),
    ]
    assert all(secret in hidden for secret in secrets)
    secrets += [value.encode() for value in private.values()]
    assert not any(secret in shown for secret in secrets)


def test_copy_without_secrets_does_not_orphan_them(tmp_path: Path) -> None:
    model = LogisticRegression().fit(*CANCER)
    model.save(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InvalidInput, match="into another folder"):
        copy.deepcopy(model).save(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("thin", [False, True])
def test_removed_rows_leave_no_bytes(kind: type, thin: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(60, 5)).astype(kind)
    y = np.where(X[:, 0] + rng.logistic(size=60) > 0, 1, 0)
    people = [f"person-{i:02d}" for i in range(60)]
    design = sparse.csr_array(X) if thin else X
    model = LogisticRegression(alpha=1e-2).fit(design, y, subjects=people)
    model.save(tmp_path)
    traces = [
        np.array([value], dtype=width).tobytes()
        for value in X[[5, 6]].ravel()
        for width in (np.float64, np.float32)
    ]
    kept = [np.array([value], dtype=np.float64).tobytes() for value in X[7]]
    everything = b"".join(contents(tmp_path).values())
    assert all(trace in everything for trace in traces[::2])
    assert b"person-05" in everything
    opened = [open(tmp_path / name, "rb") for name in FILES[:2]]
    model.forget(["person-05", "person-06"])
    model.save(tmp_path)
    everything = b"".join(contents(tmp_path).values())
    assert all(value in everything for value in kept)
    for old in opened:  # the replaced files, which a name no longer reaches
        everything += old.read()
        old.close()
    assert not any(trace in everything for trace in traces)
    assert b"person-05" not in everything


def stored_vectors(place: Path, length: int) -> list[Any]:
    """Return the rows, columns and windows of every saved array."""
    found = []
    for file in place.rglob("*.safetensors"):
        for array in load_file(file).values():
            if array.dtype.kind != "f" or array.size < length:
                continue
            if array.ndim == 1:
                found.append(np.lib.stride_tricks.sliding_window_view(array, length))
            else:
                pair = (array, array.T)
                found += [part[:, :length] for part in pair if part.shape[1] >= length]
    return found


def likest(place: Path, row: Any) -> float:
    """Return the largest cosine of a row with anything saved."""
    best = 0.0
    for lines in stored_vectors(place, row.size):
        norms = np.linalg.norm(lines, axis=1) * np.linalg.norm(row)
        cosines = np.abs(lines @ row) / np.where(norms > 0.0, norms, np.inf)
        best = max(best, float(cosines.max(initial=0.0)))
    return best


def test_removed_rows_leave_no_scaled_copy(tmp_path: Path) -> None:
    X, y = CANCER
    X, y = X[:150], y[:150]
    model = LogisticRegression(alpha=0.1).fit(X, y)
    model.save(tmp_path)
    assert likest(tmp_path, X[17]) > 0.99
    model.forget(rows=[17])
    model.save(tmp_path)
    assert likest(tmp_path, X[17]) < 0.99
    save_file({"planted": 3.0 * X[17]}, tmp_path / "leak.safetensors")
    assert likest(tmp_path, X[17]) > 0.99


def test_upper_triangles_stay_behind() -> None:
    matrix = np.asfortranarray([[1.0, 77.0], [2.0, 3.0]])
    arrays: dict[str, Any] = {}
    data = pack(Symmetric(matrix), "m", arrays=arrays)
    assert 77.0 not in arrays["m"]
    back = unpack(data, arrays)
    np.testing.assert_array_equal(back.lower, [[[1.0, 0.0], [2.0, 3.0]]])
    assert back.lower[0].flags.f_contiguous


def test_struck_people_and_rows_stay_struck(tmp_path: Path) -> None:
    model = fitted(LogisticRegression(), CANCER, True)
    model.save(tmp_path)
    loaded = load(tmp_path)
    with pytest.raises(UnknownSubject):
        loaded.forget(rows=[3])
    with pytest.raises(UnknownRows):
        loaded.forget(X=CANCER[0][[3]], y=CANCER[1][[3]])
    loaded.forget(X=CANCER[0][[4]], y=CANCER[1][[4]])


def test_account_of_releases_is_kept(tmp_path: Path) -> None:
    model = fitted(LogisticRegression(budget=SEEDED, random_state=0), CANCER, True)
    assert model.certificate_.n_releases == 2
    model.save(tmp_path)
    loaded = load(tmp_path).forget(rows=[7])
    assert loaded.certificate_.n_releases == 3
    loaded.save(tmp_path)
    with pytest.raises(ScheduleExhausted):
        load(tmp_path).forget(rows=[8])


def test_secure_noise_is_fresh(tmp_path: Path) -> None:
    model = LogisticRegression(budget=Budget(sigma=5.0)).fit(*CANCER)
    model.save(tmp_path)
    first, second = load(tmp_path), load(tmp_path)
    noise = [m.forget(rows=[7]).coef_ - draft(m)[:-1] for m in (model, first, second)]
    assert not any(
        np.isclose(a, b).any() for a, b in ((noise[0], noise[1]), (noise[1], noise[2]))
    )


def test_removal_that_was_not_released_is_kept(tmp_path: Path) -> None:
    budget = Budget(sigma=0.02, tau=1e-6, allow_seeded=True)
    model = LogisticRegression(
        alpha=1e-2, budget=budget, random_state=0, keep_data=False
    ).fit(*CANCER)
    shown = model.coef_
    with pytest.raises(CapacityExceeded):
        model.forget(X=CANCER[0][:60], y=CANCER[1][:60])
    model.save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.coef_, shown)
    assert private_model(loaded).released is None
    assert private_model(loaded).n_removed == 60


def test_declared_tuning_and_adoption_are_kept(tmp_path: Path) -> None:
    X, y = CANCER
    plain = LogisticRegression(alpha=1e-2).fit(X, y).to_sklearn()
    plain.set_params(C=1.0 / (1e-2 * len(X)))
    model: Any = from_sklearn(plain, X, y).declare_tuned(object())
    model.save(tmp_path)
    loaded: Any = load(tmp_path)
    assert loaded.adoption_.shift == model.adoption_.shift
    assert loaded.certificate_.selection == "not covered"
    assert loaded.forget(rows=[7]).certificate_.selection == "not covered"


@dataclass(frozen=True)
class Cubic(SquaredHinge):
    """A loss of the user's own."""


class Mine(LogisticRegression):
    """An estimator of the user's own."""


def test_strangers_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    cases = [
        (LogisticRegression(loss=Cubic()), "Cubic is not part of expunge"),
        (Mine(), "Mine'> cannot be saved"),
    ]
    for estimator, message in cases:
        model = estimator.fit(*CANCER)
        with pytest.raises(Unsupported, match=message):
            model.save(tmp_path)
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")
    model = LogisticRegression().fit(CANCER[0], dates[CANCER[1]])
    with pytest.raises(Unsupported, match="array of datetime64"):
        model.save(tmp_path)
    with pytest.raises(NotFittedError):
        LogisticRegression().save(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([False, True]),
        np.array([-1.0, 2.0], dtype=np.float32),
        np.array([3, 7], dtype=np.int32),
    ],
)
def test_classes_keep_their_type(labels: Any, tmp_path: Path) -> None:
    model = LogisticRegression().fit(CANCER[0], labels[CANCER[1]])
    model.save(tmp_path)
    found = load(tmp_path).predict(CANCER[0])
    assert found.dtype == model.predict(CANCER[0]).dtype
    np.testing.assert_array_equal(found, model.predict(CANCER[0]))


def test_numbers_keep_their_bits() -> None:
    for value in (0.1, -0.0, 5e-324, np.inf, -np.inf, 2**70, None, True, b"\x00"):
        data = json.loads(dumps(pack(value, "v", arrays={})))
        assert repr(unpack(data, {})) == repr(value)
    assert pack(np.float64(0.3), "v", arrays={}) == 0.3


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LogisticRegression().fit(*CANCER)
    model.save(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for action in (lambda: model.save(tmp_path), lambda: load(tmp_path)):
        with pytest.raises(MissingExtra, match=r"expunge\[files\]"):
            action()


@pytest.mark.parametrize("classes", [[0.0, 1.0], [-(2**60), 2**60], [3, 5]])
def test_numbers_come_back_with_their_type(classes: list[Any], tmp_path: Path) -> None:
    X, y = CANCER
    model = LogisticRegression(alpha=1.0, budget=SEEDED, random_state=2**70)
    model.fit(X, np.array(classes)[y])
    model.save(tmp_path / "model")
    ship(model, tmp_path / "model.safetensors")
    loaded: Any = load(tmp_path / "model")
    assert loaded.random_state == 2**70
    shipped: Any = read_shipped(tmp_path / "model.safetensors")
    for read in (loaded, shipped):
        assert repr(read.alpha) == "1.0"
        assert repr(read.budget.sigma) == "5.0"
        assert read.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(read.classes_, model.classes_)
        np.testing.assert_array_equal(read.coef_, model.coef_)
