# SPDX-License-Identifier: Apache-2.0
"""Parts of dates: months, weekdays and hours as categories, whoever made the table."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from expunge import Bins, Budget, LogisticRegression, ship
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import public_model
from expunge.preprocessing.columns import take_part
from expunge.preprocessing.description import DatePart
from tests.attack.pipelines import is_near
from tests.test_shipping_tables import run

DATES = pd.Series(pd.date_range("1958-03-01", periods=400, freq="41D7h13min59s"))
DAYS = (DATES - pd.Timestamp("1970")) / pd.Timedelta("1D")


def test_parts_are_those_of_the_calendar() -> None:
    wanted: dict[str, Any] = {
        "month": DATES.dt.month,
        "weekday": DATES.dt.day_of_week,
        "hour": DATES.dt.hour,
        "day": DAYS,
    }
    python = np.array([one.to_pydatetime() for one in DATES], dtype=object)
    spellings = [DAYS.to_numpy(), DATES.to_numpy(), python, DATES.to_numpy("M8[s]")]
    for part, expected in wanted.items():
        for values in spellings:
            found = take_part(values, "since", part=part)
            assert is_near(found, expected.to_numpy(float))


def test_zones_are_taken_to_utc_and_gaps_stay() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=5))
    values = np.array([None, datetime.datetime(2024, 1, 1, 3, tzinfo=zone)], object)
    assert take_part(values, "since", part="hour").tolist()[1] == 22.0
    assert np.isnan(take_part(values, "since", part="month")[0])
    later = np.array([1e300, np.nan, 0.0])
    assert np.isnan(take_part(later, "since", part="weekday")[:2]).all()


def fitted(dates: Any) -> Any:
    rng = np.random.default_rng(0)
    y = (DATES.dt.month.to_numpy() > 6) ^ (rng.random(len(DATES)) < 0.2)
    steps = make_column_transformer(
        (SimpleImputer(), ["size"]),
        (DatePart("month"), ["since"]),
        (DatePart("weekday"), ["since"]),
        (DatePart("hour"), ["since"]),
        (Bins(4, 100.0), ["size"]),
    )
    frame = pd.DataFrame({"since": dates, "size": np.arange(400.0)})
    model = LogisticRegression(preprocessing=steps, alpha=1e-3, budget=Budget())
    return model.fit(frame, y, subjects=[str(i) for i in range(400)]), frame


def test_models_forget_them_and_take_any_dates() -> None:
    model, frame = fitted(DATES)
    other = frame.assign(since=DAYS)
    assert is_near(model.predict_proba(frame), model.predict_proba(other))
    names = public_model(model).preprocessing.names  # type: ignore[union-attr]
    assert "since month_3" in names and "since weekday_6" in names
    model.forget(["3", "4"])
    assert model.certificate_.status == "certified"
    with pytest.raises(TypeError):  # a plain pipeline knows no dates
        model.to_sklearn().predict(frame)


def test_graphs_and_pipelines_take_them_of_days(tmp_path: Path) -> None:
    days = DAYS.copy()
    days[5], days[6], days[7] = 31.0, 365.0, -1.0  # where months begin and end
    days[8] = np.nan
    model, frame = fitted(days)
    expected = model.predict_proba(frame)
    assert is_near(model.to_sklearn().predict_proba(frame), expected)
    # Single precision rounds a time to minutes, and a day not at all.
    rows = {"float64": frame, "float32": frame.assign(since=np.floor(days))}
    for dtype, off in (("float32", 1e-4), ("float64", 1e-12)):
        ship(model, tmp_path / f"{dtype}.onnx", dtype=dtype)
        expected = model.predict_proba(rows[dtype])
        for runtime in ("reference", "onnxruntime"):
            found = run(tmp_path / f"{dtype}.onnx", rows[dtype], runtime)
            assert np.abs(found["probabilities"] - expected).max() < off


def test_what_is_no_part_is_refused() -> None:
    frame = pd.DataFrame({"since": DAYS})
    with pytest.raises(InvalidInput, match="'month', 'weekday' or 'hour'"):
        LogisticRegression(preprocessing=DatePart("week")).fit(frame, DAYS > 0)  # type: ignore[arg-type]
    steps = make_pipeline(SimpleImputer(), DatePart("month"))
    with pytest.raises(Unsupported, match="at this place"):
        LogisticRegression(preprocessing=steps).fit(frame, DAYS > 0)
