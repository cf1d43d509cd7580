# SPDX-License-Identifier: Apache-2.0
"""Folders of models with preprocessing: they go on, and emptied categories are gone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge.core.packing import pack
from expunge.core.values import dumps
from expunge.exceptions import (
    CapacityExceeded,
    NoPrivateState,
    UnknownRows,
    UnknownSubject,
)
from expunge.files import CorruptFiles
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model, snapshot_of
from expunge.linear_model.fitting import load, ship
from expunge.promise.budget import Budget
from expunge.promise.verification import verify
from tests.raw_tables import (
    EVERYTHING,
    LABELS,
    LENIENT,
    N_ROWS,
    NEW,
    STRICT,
    TABLE,
    make_labels,
    rows_for,
)
from tests.test_files import FILES, contents

PEOPLE = [f"person-{place // 2}" for place in range(N_ROWS)]
SEEDED = Budget(sigma=50.0, releases=9, allow_seeded=True)
# Extremes, medians and the most frequent number take the rows.
KEEPS = {"everything", "range", "size", "constant last", "no mean", "quantiles"}
KEEPS |= {"unit variance"}
KEEPS |= {"grades", "unknown is missing"}


def marked() -> pd.DataFrame:
    """Return the table with one person who alone has a city, a ward and an age."""
    table = TABLE.astype({"ward": int})
    table.loc[[10, 11], "city"] = "Atlantis"
    table.loc[[10, 11], "ward"] = 915_915_915
    table.loc[[10, 11], "age"] = 77.125
    return table


def fitted(preprocessing: Any, table: pd.DataFrame = TABLE, **options: Any) -> Any:
    # Columns of 1e4 that are not scaled have no certificate.
    certified = preprocessing is not LENIENT["no deviation"]
    model = LogisticRegression(preprocessing=preprocessing, alpha=1e-2, random_state=3)
    model.set_params(**{"budget": SEEDED if certified else None} | options)
    return model.fit(table, LABELS, subjects=PEOPLE)


def learned(model: Any) -> tuple[str, dict[str, bytes]]:
    """Return what preprocessing has learned, as files hold it."""
    arrays: dict[str, Any] = {}
    packed = pack(snapshot_of(model).public.preprocessing, "p", arrays=arrays)
    return dumps(packed), {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("name", LENIENT | STRICT)
def test_model_goes_on_to_the_last_bit(name: str, tmp_path: Path) -> None:
    model = fitted((LENIENT | STRICT)[name]).forget(["person-3"])
    model.save(tmp_path)
    loaded: Any = load(tmp_path)
    rows = rows_for(name)
    assert loaded.certificate_ == model.certificate_
    assert loaded.record_ == model.record_
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    place = [20, 21]
    for one in (model, loaded):
        one.forget(["person-7", "person-40"])
        one.forget(X=TABLE.iloc[place], y=LABELS[place])
    np.testing.assert_array_equal(loaded.coef_, model.coef_)  # seeded noise too
    assert learned(loaded) == learned(model)
    assert loaded.record_.radius == model.record_.radius
    assert verify(loaded.certificate_, loaded.record_).valid
    for known in ("person-3", "person-10"):
        with pytest.raises(UnknownSubject):
            loaded.forget([known])
    with pytest.raises(UnknownRows):
        loaded.forget(X=TABLE.iloc[place], y=LABELS[place])


@pytest.mark.parametrize("name", sorted((LENIENT | STRICT).keys() - KEEPS))
def test_model_without_its_rows_goes_on(name: str, tmp_path: Path) -> None:
    model = fitted((LENIENT | STRICT)[name], keep_data=False, budget=None)
    model.save(tmp_path)
    loaded: Any = load(tmp_path)
    place = [20, 21]
    for one in (model, loaded):
        one.forget(X=TABLE.iloc[place], y=LABELS[place])
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert learned(loaded) == learned(model)


@pytest.mark.parametrize(
    "estimator", [LinearRegression(), SoftmaxRegression(), LogisticRegression()]
)
def test_every_model_is_saved(estimator: Any, tmp_path: Path) -> None:
    y = make_labels(TABLE, 3)
    model = estimator.set_params(preprocessing=EVERYTHING).fit(TABLE, y)
    model.save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    for one in (model, loaded):
        one.forget(rows=[4, 90])
    np.testing.assert_array_equal(
        private_model(loaded).answer.draft.theta,
        private_model(model).answer.draft.theta,
    )


def test_release_travels_alone(tmp_path: Path) -> None:
    model = fitted(EVERYTHING)
    model.save(tmp_path)
    for name in FILES[:2]:
        (tmp_path / name).unlink()
    served: Any = load(tmp_path)
    np.testing.assert_array_equal(served.predict_proba(NEW), model.predict_proba(NEW))
    assert list(served.feature_names_in_) == list(TABLE.columns)
    with pytest.raises(NoPrivateState):
        served.forget(["person-3"])


def test_features_that_left_without_a_release(tmp_path: Path) -> None:
    """The release still has the feature that the model has no more."""
    budget = Budget(sigma=0.02, tau=1e-6, allow_seeded=True)
    table, leaving = marked(), np.arange(0, 60)
    model = fitted(
        LENIENT["ignored"], table, budget=budget, keep_data=False, mechanism="newton"
    )
    shown = model.coef_
    with pytest.raises(CapacityExceeded):
        model.forget(X=table.iloc[leaving], y=LABELS[leaving])
    private = private_model(model)
    assert private.released is None
    assert private.answer.draft.theta.size < shown.size + 1
    model.save(tmp_path)
    loaded: Any = load(tmp_path)
    np.testing.assert_array_equal(loaded.coef_, shown)
    assert private_model(loaded).n_removed == 60


@pytest.mark.parametrize("name", FILES)
def test_altered_file_is_refused(name: str, tmp_path: Path) -> None:
    fitted(EVERYTHING).save(tmp_path)
    good = (tmp_path / name).read_bytes()
    for at in range(0, len(good), max(1, len(good) // 50)):
        bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(CorruptFiles):
            load(tmp_path)


@pytest.mark.parametrize("name", sorted((LENIENT | STRICT).keys() - {"declared"}))
@pytest.mark.parametrize("loads", [False, True])
def test_emptied_category_leaves_no_bytes(
    name: str, loads: bool, tmp_path: Path
) -> None:
    model = fitted((LENIENT | STRICT)[name], marked())
    model.save(tmp_path)
    traces = [b"Atlantis", b"915915915", np.float64(915_915_915).tobytes()]
    traces += [np.float64(77.125).tobytes()]
    before = b"".join(contents(tmp_path).values())
    seen = [trace for trace in traces if trace in before]
    assert seen or name in ("grades", "unknown is missing", "refused grade")
    if loads:
        model = load(tmp_path)
    model.forget(["person-5"])
    model.save(tmp_path)
    for end in ("safetensors", "onnx"):
        ship(model, tmp_path / f"model.{end}")
    after = b"".join(contents(tmp_path).values())
    assert not any(trace in after for trace in traces)


@pytest.mark.parametrize("name", sorted((LENIENT | STRICT).keys() - {"declared"}))
def test_what_is_published_is_what_the_others_give(name: str) -> None:
    """Nothing in it says that somebody has left, not even the numbers of codes."""
    table, left = marked(), np.array([person != "person-5" for person in PEOPLE])
    model = fitted((LENIENT | STRICT)[name], table)
    model.forget(["person-5"])
    fresh = LogisticRegression(preprocessing=(LENIENT | STRICT)[name])
    fresh.fit(table[left], LABELS[left])
    assert learned(model) == learned(fresh)
