# SPDX-License-Identifier: Apache-2.0
"""A Dask cluster: the bits of one process, whatever happens to its workers."""

import os
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge import L1, L2, Objective, Rows
from expunge.cluster import (
    DaskRows,
    Unreachable,
    connect,
    dask_rows,
    map_jobs,
    on_cluster,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import HalfSquared, Huber, Logistic
from expunge.core.rows import block_max, block_sum
from expunge.exceptions import InvalidInput, Unsupported
from expunge.long import open_parquet
from expunge.removal.summary import Summary, learn
from tests.clusters import local_client

pytest.importorskip("distributed")
SQUARED = Objective(HalfSquared(), L2(), 1.0)


@dataclass(frozen=True)
class NumberedRows:
    """Rows in files of numpy, which any process can read."""

    folder: Path
    length: int
    n_columns: int
    total_weight: float
    size: int

    def __len__(self) -> int:
        return self.length

    @property
    def n_blocks(self) -> int:
        return -(-self.length // self.size)

    def read_block(self, number: int) -> Rows:
        part = slice(number * self.size, (number + 1) * self.size)
        X, y, weight = (
            np.array(np.load(self.folder / f"{name}.npy", mmap_mode="r")[part])
            for name in ("X", "y", "weight")
        )
        return Rows(X, y, weight)

    def require_unchanged(self) -> None:
        if (self.folder / "changed").exists():
            raise InvalidInput("a file changed; open it again")

    def recode(self, code: Callable[[Vector], Vector]) -> "NumberedRows":
        np.save(self.folder / "y.npy", code(np.load(self.folder / "y.npy")))
        return self


def store(rows: Rows, folder: Path) -> NumberedRows:
    for name in ("X", "y", "weight"):
        np.save(folder / f"{name}.npy", getattr(rows, name))
    return NumberedRows(
        folder, len(rows), rows.n_columns, rows.total_weight, rows.block_rows
    )


def draw(objective: Objective, n_rows: int, n_features: int = 5) -> Rows:
    rng = np.random.default_rng(n_rows)
    X: Matrix = rng.normal(size=(n_rows, n_features))
    y: Vector = X @ rng.normal(size=n_features) + rng.normal(size=n_rows)
    labels = np.sign(y) if objective.loss.margin else y
    return objective.rows(X, labels, rng.random(n_rows) + 0.5)


def same(a: Summary, b: Summary) -> bool:
    pairs = [(a.theta, b.theta), (a.gradient, b.gradient), (a.curvature, b.curvature)]
    pairs += [(a.loss_hessian.dense(), b.loss_hessian.dense())]
    assert a.moment is not None and b.moment is not None
    pairs += [(a.moment.dense(), b.moment.dense())]
    return a.scales == b.scales and all(x.tobytes() == y.tobytes() for x, y in pairs)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers in processes of their own."""
    with local_client(2, threads_per_worker=1) as client:
        yield client


@pytest.mark.parametrize("n_rows", [2049, 80_000])
@pytest.mark.parametrize(
    "objective",
    [
        Objective(Logistic(), L2(), 1e-3, intercept=True),
        Objective(HalfSquared(), L1(), 1e-2, ridge=1e-3),
        Objective(Huber(), L2(), 1e-2, intercept=True),
    ],
    ids=["logistic", "lasso", "huber"],
)
def test_the_same_bits_as_in_this_process(
    client: Any, tmp_path: Path, objective: Objective, n_rows: int
) -> None:
    rows = draw(objective, n_rows)
    far: Any = on_cluster(store(rows, tmp_path), client)
    assert (len(far), far.n_columns) == (n_rows, rows.n_columns)
    assert same(learn(objective, far), learn(objective, rows))


@pytest.mark.parametrize("size", [1, 4, 64])
def test_bits_do_not_depend_on_the_size_of_tasks(
    client: Any, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = draw(SQUARED, 60_000)
    monkeypatch.setattr(dask_rows, "GROUP", size)
    far: Any = on_cluster(store(rows, tmp_path), client)
    assert same(learn(SQUARED, far), learn(SQUARED, rows))


def test_tasks_have_a_power_of_two_of_blocks() -> None:
    for n_blocks in (1, 16, 100, 9766, 10**6):
        for n_tasks in (2, 8, 64):
            size = dask_rows._group_size(n_blocks, n_tasks)
            assert size & (size - 1) == 0
            assert dask_rows.GROUP <= size <= dask_rows.LARGEST_GROUP
    assert dask_rows._group_size(9766, 64) == 128


def test_workers_read_parquet(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 70_000)
    columns = dict(zip("abcde", np.asarray(rows.X).T, strict=True))
    table = pa.table(columns | {"y": rows.y, "w": rows.weight})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=9000)
    with open_parquet(tmp_path / "rows.parquet", target="y", weight="w") as opened:
        stored: Any = opened.rows(SQUARED)
        assert same(learn(SQUARED, on_cluster(stored, client)), learn(SQUARED, rows))


def test_values_of_blocks_come_in_order(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 100_000)
    far = on_cluster(store(rows, tmp_path), client)
    firsts = list(far.map_blocks(lambda block: float(block.y[0])))
    assert firsts == list(rows.map_blocks(lambda block: float(block.y[0])))
    assert block_max(lambda block: float(block.y.max()), far) == rows.y.max()


def test_labels_are_coded_where_they_lie(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 5000)
    far = on_cluster(store(rows, tmp_path), client).recode(np.sign)
    assert block_max(lambda block: float(block.y.max()), far) == 1.0


def test_a_killed_worker_costs_a_retry(client: Any, tmp_path: Path) -> None:
    objective = Objective(Logistic(), L2(), 1e-3)
    rows = draw(objective, 300_000)
    far = on_cluster(store(rows, tmp_path), client)
    mark, victim = tmp_path / "mark", tmp_path / "victim"

    def term(block: Rows) -> tuple[Vector]:
        # The first worker that gets here in the middle of the pass kills itself.
        if block.y.tobytes() == middle and not mark.exists():
            mark.touch()
            victim.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return (block.weight @ block.X,)

    number = store(rows, tmp_path).n_blocks // 2
    middle = store(rows, tmp_path).read_block(number).y.tobytes()
    (found,) = block_sum(term, far)
    assert int(victim.read_text()) != os.getpid()
    (expected,) = block_sum(lambda block: (block.weight @ block.X,), rows)
    assert found.tobytes() == expected.tobytes()


def test_an_error_of_a_worker_is_raised_here(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 5000)
    stored = store(rows, tmp_path)

    def refuse(block: Rows) -> tuple[float]:
        raise InvalidInput("the file changed; open it again")

    with pytest.raises(InvalidInput, match="the file changed"):
        block_sum(refuse, on_cluster(stored, client))


def test_a_file_that_changes_in_the_middle_of_a_pass_ends_it(
    client: Any, tmp_path: Path
) -> None:
    far = on_cluster(store(draw(SQUARED, 5000), tmp_path), client)

    def change(block: Rows) -> tuple[float]:
        (tmp_path / "changed").touch()
        return (float(block.y.sum()),)

    with pytest.raises(InvalidInput, match="a file changed"):
        block_sum(change, far)


def test_jobs_give_the_bits_of_this_process_in_order(client: Any) -> None:
    rows = draw(SQUARED, 4000)
    X, folds = np.asarray(rows.X), range(7)

    def work(fold: int) -> Matrix:
        return np.asarray(np.linalg.inv(X[fold::7].T @ X[fold::7]))

    found = map_jobs(work, folds, client=client)
    assert [one.tobytes() for one in found] == [work(fold).tobytes() for fold in folds]
    with pytest.raises(InvalidInput, match="no such fold"):
        map_jobs(_refuse, folds, client=client)


def _refuse(fold: int) -> None:
    raise InvalidInput("no such fold; give another")


def test_arrays_arrive_aligned_whatever_lies_before_them(client: Any) -> None:
    rows = draw(SQUARED, 500)
    for length in range(9):
        word, X = "x" * length, np.asarray(rows.X)

        def work(fold: Matrix, word: str = word, X: Matrix = X) -> Any:
            aligned = fold.flags.aligned and X.flags.aligned
            return word, aligned, X[::2]

        for _, aligned, found in map_jobs(work, [X[1:], X[2:4]], client=client):
            assert aligned and found.flags.aligned
            np.testing.assert_array_equal(found, X[::2])


def test_private_values_travel_to_workers_and_nowhere_else(client: Any) -> None:
    rows = draw(SQUARED, 300)
    found = learn(SQUARED, rows)
    with pytest.raises(TypeError, match="is private"):
        pickle.dumps(found)

    def work(scale: float) -> Summary:
        return replace(found, gradient=scale * found.gradient)

    (there,) = map_jobs(work, [1.0], client=client)
    assert same(there, found)
    assert there.objective == found.objective


def test_a_killed_worker_costs_a_job_a_retry(client: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def work(fold: int) -> int:
        if fold == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return fold * fold

    assert map_jobs(work, range(6), client=client) == [0, 1, 4, 9, 16, 25]
    assert mark.exists()


def test_a_worker_of_another_version_is_told(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = on_cluster(store(draw(SQUARED, 5000), tmp_path), client)
    monkeypatch.setattr(dask_rows, "own_version", lambda: "0.0.0")
    with pytest.raises(Unsupported, match=r"client 0\.0\.0; install the same version"):
        block_sum(lambda block: (float(block.y.sum()),), far)
    with pytest.raises(Unsupported, match=r"client 0\.0\.0; install the same version"):
        map_jobs(_refuse, range(2), client=client)


def test_a_worker_without_our_module_is_told(client: Any, tmp_path: Path) -> None:
    far = on_cluster(store(draw(SQUARED, 5000), tmp_path), client)

    def term(block: Rows) -> tuple[float]:
        import no_such_module  # type: ignore[import-not-found]

        return (float(no_such_module.sum(block.y)),)

    with pytest.raises(Unsupported, match="a worker has no no_such_module"):
        block_sum(term, far)


@pytest.mark.parametrize("engine", ["dask://", "tcp://127.0.0.1:1", "127.0.0.1:8786"])
def test_an_address_that_is_none(engine: str) -> None:
    with pytest.raises(InvalidInput, match="give dask://HOST:PORT"):
        connect(engine)


def test_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_rows, "PATIENCE", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        with pytest.raises(Unreachable, match="no scheduler answers"):
            connect(f"dask://127.0.0.1:{port}")


def test_repr_shows_no_rows(client: Any, tmp_path: Path) -> None:
    far = on_cluster(store(draw(SQUARED, 3000), tmp_path), client)
    assert isinstance(far, DaskRows)
    assert repr(far) == "DaskRows(3000 x 5)"
