# SPDX-License-Identifier: Apache-2.0
"""Bad input of long tables: each is refused, with its place and without a name."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge import L2, Logistic, Objective
from expunge.exceptions import InvalidInput
from expunge.long import LongTable, open_npy, open_parquet
from expunge.long.parquet import Identity
from tests.long_tables import NAMES, make_columns, make_table, write_files

OBJECTIVE = Objective(Logistic(), L2(), 0.01, intercept=True)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    columns = make_columns(9_000)
    return write_files(tmp_path / "lake", columns, columns.signs)


def _open(lake: Path, **options: Any) -> LongTable:
    named: Any = {"target": "label", "subject": "id", "weight": "weight"} | options
    return open_parquet(lake, **named)


def _set(lake: Path, name: str, *, row: int, value: Any) -> None:
    """Change a value of the second file."""
    path = lake / "1.parquet"
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[row] = value
    column = pa.array(values, type=table.schema.field(name).type, from_pandas=False)
    place = table.schema.names.index(name)
    table = table.set_column(place, table.schema.field(name), column)
    pq.write_table(table, path, row_group_size=1000)


BAD_VALUES = [
    ("f2", float("nan"), r"column 'f2' holds NaN.* in file 1, row 1234 "),
    ("f2", float("inf"), r"column 'f2' holds NaN.* in file 1, row 1234 "),
    ("f2", None, r"column 'f2' holds NaN.* in file 1, row 1234 "),
    ("f2", 1e60, r"a row is longer than 1e\+50, in file 1, row 1234 "),
    ("label", None, r"the target is NaN.* in file 1, row 1234 "),
    ("weight", -1.0, r"sample_weight must be .* in file 1, row 1234 "),
    ("weight", float("nan"), r"sample_weight must be .* in file 1, row 1234 "),
    ("id", None, r"the subject in file 1, row 1234 .* it is missing"),
    ("id", "", r"the subject in file 1, row 1234 "),
]


@pytest.mark.parametrize("name, value, message", BAD_VALUES)
def test_a_bad_value_is_refused_by_its_place(
    name: str, value: Any, message: str, lake: Path
) -> None:
    _set(lake, name, row=1234, value=value)
    with pytest.raises(InvalidInput, match=message) as caught:
        _open(lake)
    assert "person" not in str(caught.value).replace("of a person", "")
    assert str(lake) not in str(caught.value)


def test_missing_and_repeated_columns_are_refused(lake: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no column 'labels' in the table"):
        _open(lake, target="labels")
    with pytest.raises(InvalidInput, match=r"no column 'g' in the table"):
        _open(lake, features=["f0", "g"])
    with pytest.raises(InvalidInput, match=r"column 'weight' is named twice"):
        _open(lake, features=["f0", "weight"])
    with pytest.raises(InvalidInput, match=r"no features are left"):
        _open(lake, features=[])


def test_words_are_no_features(lake: Path) -> None:
    with pytest.raises(InvalidInput, match=r"column 'id' holds .*string"):
        _open(lake, subject=None)


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (pa.array([1, 2], pa.timestamp("ns")), "times finer than a microsecond"),
        (pa.array([[1], [2]]), "lists or structs"),
        (pa.array([{"a": 1}, {"a": 2}]), "lists or structs"),
    ],
)
def test_owners_that_no_request_could_name_are_refused(
    tmp_path: Path, ids: Any, what: str
) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": [0, 1], "id": ids})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=f"subjects holds {what}"):
        open_parquet(tmp_path / "a.parquet", target="y", subject="id")


def test_a_file_that_may_not_be_read_is_not_named(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: Path) -> Identity:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Identity, "of", deny)
    with pytest.raises(InvalidInput, match="file 0 cannot be read") as refused:
        _open(lake)
    assert str(lake) not in str(refused.value)


def test_a_file_counts_once(lake: Path) -> None:
    for twice in ([lake, lake / "0.parquet"], [lake / "1.parquet"] * 2):
        with pytest.raises(InvalidInput, match="given twice"):
            open_parquet(twice, target="label", subject="id")


def test_mixed_schemas_are_refused(lake: Path) -> None:
    table = pq.read_table(lake / "1.parquet")
    narrow = table.set_column(0, NAMES[0], table[NAMES[0]].cast(pa.float32()))
    pq.write_table(narrow, lake / "1.parquet")
    with pytest.raises(InvalidInput, match=r"file 1 has other columns.* than file 0"):
        _open(lake)


def test_files_that_are_none_are_refused(lake: Path, tmp_path: Path) -> None:
    (lake / "2.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InvalidInput, match=r"file 2 is not a Parquet file"):
        _open(lake)
    with pytest.raises(InvalidInput, match=r"file 0 does not exist"):
        _open(tmp_path / "nowhere.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"a folder holds no file"):
        _open(tmp_path / "empty")
    columns = make_columns(30)
    none = make_table(columns, columns.signs).slice(0, 0)
    pq.write_table(none, tmp_path / "none.parquet")
    with pytest.raises(InvalidInput, match="the table has no rows"):
        _open(tmp_path / "none.parquet")


def _touch(path: Path) -> None:
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now, now + 1))


def _swap_footer(path: Path) -> None:
    """Write other rows of the same size, at the same time."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("spoil", [_touch, _swap_footer, Path.unlink])
def test_a_file_that_changes_between_passes_is_an_error(
    spoil: Callable[[Path], None], lake: Path
) -> None:
    with _open(lake, cache=False) as table:
        rows = table.rows(OBJECTIVE)
        assert sum(rows.map_blocks(len)) == 9_000
        spoil(lake / "1.parquet")
        with pytest.raises(InvalidInput, match=r"file 1 changed, or is gone"):
            list(rows.map_blocks(len))
        with pytest.raises(InvalidInput, match=r"file 1 changed, or is gone"):
            rows.read_block(2)


def test_a_file_that_changes_during_a_pass_is_an_error(lake: Path) -> None:
    with _open(lake, cache=False) as table:
        blocks = table.rows(OBJECTIVE).map_blocks(len)
        next(blocks)
        _touch(lake / "0.parquet")
        with pytest.raises(InvalidInput, match=r"file 0 changed"):
            list(blocks)


def test_decoded_rows_outlive_their_files(lake: Path) -> None:
    with _open(lake) as table:
        rows = table.rows(OBJECTIVE)
        for path in lake.iterdir():
            path.unlink()
        assert sum(rows.map_blocks(len)) == 9_000


def test_numpy_files_are_checked_too(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    path = tmp_path / "X.npy"
    np.save(path, columns.X)
    np.save(tmp_path / "y.npy", columns.signs)
    with pytest.raises(InvalidInput, match=r"target has shape \(5,\)"):
        open_npy(path, target=np.ones(5))
    with pytest.raises(InvalidInput, match=r"features have shape \(3000,\)"):
        open_npy(tmp_path / "y.npy", target=columns.signs)
    np.save(tmp_path / "turned.npy", np.asfortranarray(columns.X))
    with pytest.raises(InvalidInput, match="C-ordered"):
        open_npy(tmp_path / "turned.npy", target=columns.signs)
    (tmp_path / "no.npy").write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidInput, match=r"is not a \.npy file"):
        open_npy(tmp_path / "no.npy", target=columns.signs)
    with open_npy(path, target=columns.signs) as table:
        rows = table.rows(OBJECTIVE)
        _touch(path)
        with pytest.raises(InvalidInput, match="a file changed"):
            list(rows.map_blocks(len))


def test_labels_outside_the_loss_are_refused(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    lake = write_files(tmp_path / "lake", columns, columns.score)
    with _open(lake) as table, pytest.raises(InvalidInput):
        list(table.rows(OBJECTIVE).map_blocks(len))


def test_a_short_row_needs_an_intercept(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    columns.X[7] = 1e-60
    lake = write_files(tmp_path / "lake", columns, columns.signs)
    with _open(lake) as table:
        table.rows(OBJECTIVE)
        with pytest.raises(InvalidInput, match="too short for a fit without"):
            table.rows(Objective(Logistic(), L2(), 0.01))
