# SPDX-License-Identifier: Apache-2.0
"""Rows in files: the same blocks, sums and fits as in memory, under a ceiling."""

import pickle
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from expunge import (
    L1,
    L2,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    Objective,
    OneVsRest,
    SquaredHinge,
)
from expunge.core.losses import Loss
from expunge.core.rows import Rows
from expunge.core.solver import minimise
from expunge.exceptions import InvalidInput
from expunge.long import LongTable, StoredRows, open_npy, open_parquet
from expunge.private_model.model import PrivateModel
from tests.long_tables import NAMES, Columns, make_columns, write_files

FITS: list[tuple[Loss, str]] = [
    (Logistic(), "signs"),
    (SquaredHinge(), "signs"),
    (HalfSquared(), "score"),
    (Huber(), "score"),
    (Multinomial(3), "classes"),
    (OneVsRest(3, Logistic()), "classes"),
]


def _open(lake: Path, **options: Any) -> LongTable:
    named: Any = {"target": "label", "subject": "id", "weight": "weight"} | options
    return open_parquet(lake, **({"features": NAMES} | named))


def _objective(loss: Loss) -> Objective:
    return Objective(loss, L2(), 0.01, intercept=True)


def _equal(one: Rows, other: Rows) -> bool:
    pairs: list[tuple[Any, Any]] = [(one.X, other.X), (one.y, other.y)]
    pairs.append((one.weight, other.weight))
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_are_those_in_memory_in_any_order(
    cache: bool, dtype: Any, tmp_path: Path
) -> None:
    columns = make_columns(10_001, dtype)
    write_files(tmp_path / "lake", columns, columns.signs)
    objective = _objective(Logistic())
    held = objective.rows(columns.X, columns.signs, columns.weight)
    with _open(tmp_path / "lake", cache=cache) as table:
        rows = table.rows(objective)
        assert (len(rows), rows.n_columns) == (10_001, 7)
        assert rows.total_weight == held.total_weight
        blocks = list(held.blocks(rows.block_rows))
        assert rows.n_blocks == len(blocks) == 5
        for number in (4, 0, 1, 3, 2, 2):
            assert _equal(rows.read_block(number), blocks[number])
        assert list(rows.map_blocks(len)) == [2048] * 4 + [10_001 - 4 * 2048]
        places = np.array([9_000, 3, 4, 9_000])
        assert _equal(rows.take(places), held.take(places))


@pytest.mark.parametrize("cache", [True, False])
def test_a_pickle_holds_no_row_and_reads_the_same_blocks(
    cache: bool, tmp_path: Path
) -> None:
    columns = make_columns(5_000)
    write_files(tmp_path / "lake", columns, columns.signs)
    with _open(tmp_path / "lake", cache=cache) as table:
        rows = table.rows(_objective(Logistic()))
        first = rows.read_block(0)
        data = pickle.dumps(rows)
        assert len(data) < 5_000
        copy: StoredRows = pickle.loads(data)
        assert _equal(copy.read_block(0), first)
        assert _equal(copy.read_block(2), rows.read_block(2))


@pytest.mark.parametrize("loss, target", FITS, ids=lambda v: getattr(v, "name", v))
def test_a_fit_has_the_bits_of_one_in_memory(
    loss: Loss, target: str, tmp_path: Path
) -> None:
    columns = make_columns(100_003)
    y = getattr(columns, target)
    write_files(tmp_path / "lake", columns, y)
    objective = _objective(loss)
    held = objective.rows(columns.X, y, columns.weight)
    with _open(tmp_path / "lake") as table:
        found = PrivateModel.fit(objective, table.rows(objective)).answer
    known = PrivateModel.fit(objective, held).answer
    assert np.array_equal(found.draft.theta, known.draft.theta)
    assert found.radius == known.radius
    assert found.state.sums.hessian is not None and known.state.sums.hessian is not None
    assert np.array_equal(
        found.state.sums.hessian.dense(), known.state.sums.hessian.dense()
    )


def test_a_kink_and_no_intercept_have_the_bits_of_memory_too(tmp_path: Path) -> None:
    columns = make_columns(30_001)
    write_files(tmp_path / "lake", columns, columns.score)
    objective = Objective(HalfSquared(), L1(), 0.05, ridge=0.01)
    held = objective.rows(columns.X, columns.score)
    with _open(tmp_path / "lake", weight=None, features=NAMES) as table:
        rows = table.rows(objective)
        found = PrivateModel.fit(objective, rows).answer
    known = PrivateModel.fit(objective, held).answer
    assert np.array_equal(found.draft.theta, known.draft.theta)


def test_absent_rows_count_for_nothing(tmp_path: Path) -> None:
    columns = make_columns(9_000)
    write_files(tmp_path / "lake", columns, columns.signs)
    objective = _objective(Logistic())
    held = objective.rows(columns.X, columns.signs, columns.weight)
    gone = np.array([0, 5, 2047, 2048, 8_999])
    weight = held.weight.copy()
    weight[gone] = 0.0
    with _open(tmp_path / "lake") as table:
        rows = table.rows(objective, gone=gone)
        left = Rows(held.X, held.y, weight, absent=gone)
        assert len(rows) == len(left) == 8_995
        assert rows.total_weight == left.total_weight
        found, known = (minimise(objective, each).theta for each in (rows, left))
        assert np.array_equal(found, known)


def test_arrays_in_numpy_files_are_tables(tmp_path: Path) -> None:
    columns = make_columns(7_001, np.float32)
    for name, values in (("X", columns.X), ("y", columns.signs)):
        np.save(tmp_path / f"{name}.npy", values)
    objective = _objective(Logistic())
    held = objective.rows(columns.X, columns.signs, columns.weight)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for features in (tmp_path / "X.npy", mapped):
        with open_npy(
            features,
            target=tmp_path / "y.npy",
            weight=columns.weight,
            subject=columns.subjects,
        ) as table:
            rows = table.rows(objective)
            assert _equal(rows.take(np.arange(7_001)), held)
            assert table.people is not None
            assert table.people.find("person 2").tolist() == [6, 7, 8]
    part = slice(2_000, 5_000)
    with open_npy(mapped[part], target=columns.signs[part]) as table:
        rows = table.rows(objective)
        first = objective.rows(columns.X[2000:2001], columns.signs[2000:2001])
        assert _equal(rows.take(np.array([0])), first)


MAPPED = """
import resource
import sys
import numpy as np
from expunge import Budget, LogisticRegression
from expunge.long import open_npy

path, n_rows, width = sys.argv[1], 250_000, 100
open(path, "wb").truncate(8 * n_rows * width)  # 200 MB, of which the disk has 8
X = np.memmap(path, np.float64, "r+", shape=(n_rows, width))
X[:10_000] = np.random.default_rng(0).normal(size=(10_000, width))
X.flush()
y = np.where(X[:, 0] + X[:, 1] > 0.0, 1, 0)
X = np.memmap(path, np.float64, "r", shape=(n_rows, width))
# Of all that the process may write to, which no page of the file is, 134 MB more.
with open("/proc/self/status") as status:
    now = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (1024 * now + 2**27,) * 2)
with open_npy(X, target=y, memory=2**27) as table:
    model = LogisticRegression(alpha=1e-2, budget=Budget(sigma=0.5)).fit(table)
    model.forget(rows=[17, 4_711])
    assert model.certificate_.status == "certified"
try:
    np.ones_like(X)
except MemoryError:
    print("and no more")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no such limit there")
def test_a_mapped_matrix_stays_on_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAPPED, str(tmp_path / "X")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "and no more\n", done.stderr


def test_a_pass_stays_below_the_ceiling(tmp_path: Path) -> None:
    columns = make_columns(200_000)
    write_files(tmp_path / "lake", columns, columns.signs)
    objective, memory = _objective(Logistic()), 16 << 20
    del columns
    usual = pa.default_memory_pool()
    for cache in (True, False):
        pool = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            with _open(tmp_path / "lake", cache=cache, memory=memory) as table:
                PrivateModel.fit(objective, table.rows(objective))
            peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)
        assert memory / 8 < peak < memory
    with pytest.raises(InvalidInput, match=r"memory=1000 bytes is too little"):
        _open(tmp_path / "lake", memory=1000)


def test_the_folder_is_private_and_goes_with_the_table(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    write_files(tmp_path / "lake", columns, columns.signs)
    place = tmp_path / "private"
    place.mkdir()
    table = _open(tmp_path / "lake", folder=place)
    (inside,) = place.iterdir()
    assert stat.S_IMODE(inside.stat().st_mode) == 0o700
    rows = table.rows(_objective(Logistic()))
    gone = np.array([10, 11, 12])
    before = rows.take(gone).dense()[:, 0].tobytes()
    assert all(b"person" not in path.read_bytes() for path in inside.iterdir())
    table.erase(gone)
    assert not rows.table.read(10, 13).X.any()
    assert table.people is not None and not len(table.people.find("person 3")) > 3
    content = b"".join(path.read_bytes() for path in inside.iterdir())
    assert before[:8] not in content
    table.close()
    assert not list(place.iterdir())
    with pytest.raises(InvalidInput, match="the table was closed"):
        table.rows(_objective(Logistic()))


def test_a_failed_opening_leaves_nothing_behind(tmp_path: Path) -> None:
    columns: Columns = make_columns(3_000)
    columns.X[17, 2] = np.nan
    write_files(tmp_path / "lake", columns, columns.signs)
    place = tmp_path / "private"
    place.mkdir()
    with pytest.raises(InvalidInput, match="NaN"):
        _open(tmp_path / "lake", folder=place)
    assert not list(place.iterdir())
