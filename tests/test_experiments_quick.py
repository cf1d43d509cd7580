# SPDX-License-Identifier: Apache-2.0
"""The quick run again: its tables are those that are stored, within their errors.

Digits come with scikit-learn; Warfarin is compared with the stored figures too where
its data are at hand.
"""

import json
import math
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from benchmarks.data import DataNotFound
from benchmarks.experiments import page, run
from benchmarks.experiments.figures import Spread
from benchmarks.experiments.pieces import measure
from benchmarks.experiments.plan import Bench, errata_piece, pieces
from benchmarks.experiments.results import Line, Results
from benchmarks.experiments.scale import QUICK
from benchmarks.experiments.settings import SETTINGS, Source

STORED = page.quick_spreads(json.loads((page.DOCS / "results-quick.json").read_text()))
# Below this a figure is rounding: another build of the BLAS has another one.
ROUNDING = 1e-6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a quick run on the digits."""
    out = tmp_path_factory.mktemp("bench")
    run.run(run.Request("digits", "quick", out), lambda name, done, total: None)
    return out


def agrees(line: Line, new: Spread, old: Spread) -> bool:
    """Whether a figure is the stored one; of times only the order is asked."""
    if "seconds" in line.quantity:
        return not line.quantity.startswith("p50") or 0.1 < new.mean / old.mean < 10.0
    if not math.isfinite(old.mean):
        return new.mean == old.mean
    error = 0.0 if math.isnan(old.error) else old.error
    return abs(new.mean - old.mean) <= error + ROUNDING * (1.0 + abs(old.mean))


def differing(results: Results) -> list[str]:
    """Return the lines whose last figure is not the stored one."""
    found = [
        (line, points[max(points)], STORED[line])
        for line, points in results.lines.items()
    ]
    return [
        f"{line}: {new.mean:g}, stored {old.mean:g} +- {old.error:g}"
        for line, new, old in found
        if not agrees(line, new, old)
    ]


@pytest.mark.parametrize(
    ("quantity", "new", "same"),
    [
        ("accuracy", 0.94, True),
        ("accuracy", 0.92, False),
        ("seconds", 1e3, True),
        ("p50 seconds", 5.0, True),
        ("p50 seconds", 10.0, False),
        ("noise", math.inf, False),
    ],
)
def test_comparison_can_fail(quantity: str, new: float, same: bool) -> None:
    line = Line("comparison", "digits", 1e-3, "random", "IJ", quantity)
    old = Spread(0.95, 0.02, 3)
    assert agrees(line, Spread(new, 0.02, 3), old) is same


def test_digits_give_the_stored_tables(folder: Path) -> None:
    measured, _ = run.read(folder / "results.json")
    results = Results.of(measured)
    assert len(results.lines) > 200
    assert differing(results) == []


def test_every_stored_line_of_the_digits_is_measured_again(folder: Path) -> None:
    measured, _ = run.read(folder / "results.json")
    stored = {line for line in STORED if line.setting in ("digits", "")}
    assert set(Results.of(measured).lines) == stored


def test_warfarin_gives_the_stored_curves(tmp_path: Path) -> None:
    bench = Bench(SETTINGS["warfarin"], QUICK, Source(None, tmp_path))
    try:
        assert len(bench.split[0]) == QUICK.rows
    except DataNotFound as missing:
        pytest.skip(f"the stored curves of Warfarin were not compared: {missing}")
    wanted = [item for item in pieces(bench, 0) if "curves-0.001-random" in item.name]
    with threadpool_limits(limits=1):
        results = Results.of(measure(wanted, tmp_path))
    assert len(results.lines) > 20
    assert differing(results) == []


def test_run_writes_everything(folder: Path) -> None:
    for name in ("results.json", "results.csv", "report.html"):
        assert (folder / name).stat().st_size > 1000
    plots = sorted(path.name for path in (folder / "plots").iterdir())
    assert plots == [
        "curves-digits.png",
        "curves-digits.svg",
        "promise-digits.png",
        "promise-digits.svg",
    ]
    report = (folder / "report.html").read_text()
    assert report.count("<svg") == 2
    assert "<script" not in report
    raw = json.loads((folder / "results.json").read_text())
    for item in raw["pieces"]:
        assert item["machine"]["versions"]["numpy"]
        assert all(figure["repetitions"] >= 1 for figure in item["figures"])


def test_second_run_measures_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    for name in ("curves", "compare", "problem"):
        monkeypatch.setattr(Bench, name, refuse)
    asked = run.Request("digits", "quick", folder)
    outcome = run.run(asked, lambda name, done, total: None)
    assert outcome.missing == []
    assert outcome.targets == []


def test_page_has_no_figure_but_the_runs(folder: Path, tmp_path: Path) -> None:
    measured, _ = run.read(folder / "results.json")
    text = page.markdown(measured, "full", ["a.svg", "b.svg"])
    for part in ("# Results", "## Milliseconds a request", "| E23 |", "images/a.svg"):
        assert part in text
    written = page.main(folder, tmp_path)
    assert written.name == "results-quick.json"
    again = page.quick_spreads(json.loads(written.read_text()))
    assert set(again) == set(Results.of(measured).lines)


def test_full_page_comes_with_its_plots(folder: Path, tmp_path: Path) -> None:
    raw = json.loads((folder / "results.json").read_text()) | {"scale": "full"}
    (tmp_path / "results.json").write_text(json.dumps(raw))
    written = page.main(tmp_path, tmp_path / "docs")
    text = written.read_text()
    for image in (tmp_path / "docs/images").glob("*.svg"):
        assert f"images/{image.name}" in text


def test_errata_fail_as_printed_and_hold_as_corrected(folder: Path) -> None:
    (measured,) = measure([errata_piece()], folder)
    pairs: dict[str, dict[str, float]] = {}
    for figure in measured.figures:
        place = figure.place
        pairs.setdefault(place.quantity, {})[place.contender] = figure.value
    assert len(pairs) == 18
    for quantity, pair in pairs.items():
        if "promise" in quantity or quantity.startswith("E6"):
            assert pair["ours"] <= 1e-5 < pair["printed"], quantity
        if "how far the model moves" in quantity:
            assert pair["ours"] < 0.5 < 1.0 < pair["printed"], quantity
