# SPDX-License-Identifier: Apache-2.0
"""Nothing of preprocessing that leaves the process tells of those who left it."""

import copy
import gc
import pickle
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)

from expunge import LinearRegression, load
from expunge.exceptions import NoPrivateState
from expunge.linear_model.base import private_model, public_model
from expunge.registry import Registry

N_ROWS = 60
MARK = 4321.0987654321
GONE = [5, 9, 17]


def table() -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return a table in which three rows are unlike all others."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 12.0, N_ROWS),
            "income": np.exp(rng.normal(8.0, 1.0, N_ROWS)),
            "city": rng.choice(["bonn", "jena", "ulm"], N_ROWS).astype(object),
            "job": rng.choice(["baker", "nurse"], N_ROWS).astype(object),
        }
    )
    frame.loc[5, "age"] = MARK
    frame.loc[5, "city"] = "carthage"
    frame.loc[9, "age"] = np.nan
    frame.loc[17, "job"] = np.nan
    return frame, rng.normal(size=N_ROWS)


def model(**settings: Any) -> Any:
    """Return a model whose features change with each of the three rows."""
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["age"]),
        (MinMaxScaler(), ["income"]),
        (OneHotEncoder(), ["city"]),
        (
            make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()),
            ["job"],
        ),
    )
    return LinearRegression(alpha=1e-2, preprocessing=steps, **settings)


def reachable(root: object) -> Iterator[object]:
    """Yield every object that can be reached from this one, short of code."""
    seen: set[int] = set()
    queue: list[object] = [root]
    while queue:
        here = queue.pop()
        if id(here) in seen or isinstance(here, type | types.ModuleType):
            continue
        if isinstance(here, types.FunctionType | types.BuiltinFunctionType):
            continue
        seen.add(id(here))
        yield here
        queue += gc.get_referents(here)
        if isinstance(here, np.ndarray) and here.base is not None:
            queue.append(here.base)


def holds(root: object) -> bool:
    """Whether the number or the city of the marked row is anywhere in the object."""
    needle = np.float64(MARK).tobytes()
    for found in reachable(root):
        if isinstance(found, np.ndarray) and found.dtype != object:
            if needle in found.tobytes():
                return True
        if isinstance(found, float) and found == MARK:
            return True
        if isinstance(found, str) and "carthage" in found:
            return True
    return False


@pytest.fixture
def forgotten() -> Any:
    frame, y = table()
    ours = model().fit(frame, y, subjects=range(N_ROWS))
    assert holds(ours)
    return ours.forget(GONE)


def test_a_person_is_gone_from_the_whole_object(forgotten: Any) -> None:
    assert not holds(forgotten)


def test_the_public_part_is_that_of_a_fit_to_the_rest(forgotten: Any) -> None:
    """Even codes: those of the first fit would have gaps where a category was."""
    frame, y = table()
    fresh = clone(forgotten).fit(frame.drop(GONE), np.delete(y, GONE))
    ours, theirs = public_model(forgotten), public_model(fresh)
    assert ours is not None and theirs is not None
    assert pickle.dumps(ours.preprocessing) == pickle.dumps(theirs.preprocessing)
    assert repr(ours.preprocessing) == repr(theirs.preprocessing)
    assert "4 columns" in repr(ours.preprocessing)


def test_copies_carry_the_release_alone(forgotten: Any) -> None:
    frame, _ = table()
    left = frame.drop(GONE)
    fitted = model().fit(*table())
    for ours in (fitted, forgotten):
        for travelled in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
            np.testing.assert_array_equal(travelled.predict(left), ours.predict(left))
            names = {type(found).__name__ for found in reachable(travelled)}
            assert not names & {"Statistics", "PrivateModel", "TrainingRows"}
            with pytest.raises(NoPrivateState):
                travelled.forget([1])
    public: Any = public_model(fitted)
    assert "carthage" in str(public.preprocessing.names)


def test_reprs_show_no_statistic(forgotten: Any) -> None:
    private: Any = private_model(forgotten)
    for part in (
        private,
        private.encoding,
        private.encoding.statistics,
        private.encoding.statistics.sums,
        private.encoding.reference,
        private.answer.state,
    ):
        assert not any(figure.isdigit() for figure in repr(part))


def test_files_forget(tmp_path: Path, forgotten: Any) -> None:
    forgotten.save(tmp_path / "model")
    frame, y = table()
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", model(), frame, y, subjects=[f"p{i}" for i in range(60)])
        registry.forget([f"p{i}" for i in GONE])
        registry.forget(["p1"])
        shown = registry.model("model").predict(frame.drop(GONE))
    gone = [1, *GONE]
    fresh = model().fit(frame.drop(gone), np.delete(y, gone))
    np.testing.assert_allclose(shown, fresh.predict(frame.drop(GONE)), atol=1e-9)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()
        assert b"carthage" not in content, file
        assert np.float64(MARK).tobytes() not in content, file
        assert repr(MARK).encode() not in content, file
    loaded = load(tmp_path / "model")
    assert not holds(loaded)
    loaded.forget([1])


def test_a_saved_model_goes_on(tmp_path: Path) -> None:
    frame, y = table()
    ours = model().fit(frame, y, subjects=range(N_ROWS))
    for person in GONE:
        ours.save(tmp_path / "model")
        ours = load(tmp_path / "model").forget([person])
    fresh = model().fit(frame.drop(GONE), np.delete(y, GONE))
    left = frame.drop(GONE)
    np.testing.assert_allclose(ours.predict(left), fresh.predict(left), atol=1e-8)
    again = clone(ours).fit(left, np.delete(y, GONE))
    np.testing.assert_array_equal(again.coef_, fresh.coef_)


@pytest.mark.parametrize(
    ("step", "place"),
    [
        (MinMaxScaler(), 0),
        (MinMaxScaler(), -1),
        (MaxAbsScaler(), -1),
        (SimpleImputer(strategy="median"), 30),
    ],
    ids=["smallest", "largest", "longest", "median"],
)
def test_extremes_and_medians_leave_with_the_last_who_has_them(
    step: Any, place: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    X = np.sort(rng.uniform(1.0, 2.0, (61, 1)), axis=0)  # an odd number: a true median
    X[3 if place == 30 else 30] = 1.5 if place != 30 else np.nan
    values = X[~np.isnan(X)]
    if place == 30:
        X, values = X[~np.isnan(X)][:-1, None], values[:-1]
        place = len(values) // 2
    y = X[:, 0] + rng.normal(size=len(X))
    secret = values[place].tobytes()
    fitted = LinearRegression(alpha=0.1, preprocessing=step).fit(X, y)
    fitted.save(tmp_path / "model")
    files = list((tmp_path / "model").iterdir())
    assert any(secret in file.read_bytes() for file in files)
    fitted.forget(rows=[int(np.flatnonzero(X[:, 0] == values[place])[0])])
    fitted.save(tmp_path / "model")
    assert not any(secret in file.read_bytes() for file in files)
