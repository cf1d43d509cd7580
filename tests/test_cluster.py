# SPDX-License-Identifier: Apache-2.0
"""Workers of a Dask cluster or a pool: the bits of one process, whatever happens."""

import os
import pickle
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, cast

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge import L1, L2, Objective, Rows, engines
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import HalfSquared, Huber, Logistic
from expunge.core.rows import block_max, block_sum
from expunge.core.sums import loss_slopes
from expunge.engines import Unreachable, Workers, read_engine
from expunge.exceptions import InvalidInput, Unsupported
from expunge.long import StoredRows, open_parquet, stored_rows
from expunge.long.parquet import Columns, ParquetTable
from expunge.removal import State
from expunge.removal.retrain import learn
from tests.clusters import local_client

pytest.importorskip("distributed")
SQUARED = Objective(HalfSquared(), L2(), 1.0)


def store(rows: Rows, folder: Path) -> Any:
    """Return the rows in a Parquet file, which any process can read."""
    names = [f"x{place}" for place in range(rows.n_columns)]
    columns = dict(zip(names, np.asarray(rows.X).T, strict=True))
    table = pa.table(columns | {"y": rows.y, "w": rows.weight})
    pq.write_table(table, folder / "rows.parquet", row_group_size=9000)
    schema = Columns("y", None, "w", names)
    read = ParquetTable([folder / "rows.parquet"], schema, memory=1 << 26)
    total = rows.total_weight
    return StoredRows(read, np.asarray, False, np.empty(0, np.intp), total)


def on(rows: Any, client: Any) -> Any:
    """Return rows whose passes run on the workers of a client."""
    workers = read_engine(client)
    assert isinstance(workers, Workers)
    return workers.put(rows)


def map_jobs(work: Any, jobs: Any, *, client: Any) -> Any:
    workers = read_engine(client)
    assert isinstance(workers, Workers)
    return workers.map(work, jobs)


def draw(objective: Objective, n_rows: int, n_features: int = 5) -> Rows:
    rng = np.random.default_rng(n_rows)
    X: Matrix = rng.normal(size=(n_rows, n_features))
    y: Vector = X @ rng.normal(size=n_features) + rng.normal(size=n_rows)
    labels = np.sign(y) if objective.loss.margin else y
    return objective.rows(X, labels, rng.random(n_rows) + 0.5)


def same(a: State, b: State) -> bool:
    ours, theirs = (
        (s.theta, s.gradient, s.curvature, s.hessian.dense(), s.moment.dense())
        for s in (cast(Any, a.sums), cast(Any, b.sums))
    )
    same_bits = (x.tobytes() == y.tobytes() for x, y in zip(ours, theirs, strict=True))
    return a.magnitude == b.magnitude and all(same_bits)


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
    far: Any = on(store(rows, tmp_path), client)
    assert (len(far), far.n_columns) == (n_rows, rows.n_columns)
    assert same(learn(objective, far), learn(objective, rows))


@pytest.mark.parametrize("size", [1, 4, 64])
def test_bits_do_not_depend_on_the_size_of_tasks(
    client: Any, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = draw(SQUARED, 60_000)
    monkeypatch.setattr(stored_rows, "GROUP", size)
    far: Any = on(store(rows, tmp_path), client)
    assert same(learn(SQUARED, far), learn(SQUARED, rows))


def test_groups_have_a_power_of_two_of_blocks() -> None:
    for n_blocks in (1, 16, 100, 9766, 10**6):
        size = stored_rows.group_size(n_blocks)
        assert size & (size - 1) == 0
        assert stored_rows.GROUP <= size <= stored_rows.LARGEST_GROUP
    assert stored_rows.group_size(9766) == 64


def test_workers_read_parquet(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 70_000)
    columns = dict(zip("abcde", np.asarray(rows.X).T, strict=True))
    table = pa.table(columns | {"y": rows.y, "w": rows.weight})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=9000)
    with open_parquet(tmp_path / "rows.parquet", target="y", weight="w") as opened:
        stored: Any = opened.rows(SQUARED)
        assert same(learn(SQUARED, on(stored, client)), learn(SQUARED, rows))


def test_values_of_blocks_come_in_order(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 100_000)
    far = on(store(rows, tmp_path), client)
    firsts = list(far.map_blocks(lambda block: float(block.y[0])))
    assert firsts == list(rows.map_blocks(lambda block: float(block.y[0])))
    assert block_max(lambda block: float(block.y.max()), far) == rows.y.max()


def test_labels_are_coded_where_they_lie(client: Any, tmp_path: Path) -> None:
    rows = draw(SQUARED, 5000)
    far = on(store(rows, tmp_path), client).recode(np.sign)
    assert block_max(lambda block: float(block.y.max()), far) == 1.0


def test_rows_that_come_follow_those_of_files(client: Any, tmp_path: Path) -> None:
    objective = Objective(Logistic(), L2(), 1e-3, intercept=True)
    rows, come = draw(objective, 70_000), draw(objective, 300)
    both = store(rows, tmp_path).followed_by(come.take(slice(200)))
    both = both.followed_by(come.take(slice(200, None))).followed_by(
        come.take(slice(0))
    )
    assert len(both) == 70_300
    assert both.total_weight == rows.total_weight + come.total_weight
    assert same(learn(objective, on(both, client)), learn(objective, both))
    assert block_max(lambda block: float(len(block)), both) == 2048.0
    turned = both.recode(np.negative)
    there = turned.convert(_double, n_columns=turned.n_columns)
    far, near = (on(there, client), rows.followed_by(come))
    for theta in np.eye(rows.n_columns)[:2]:
        slopes = (loss_slopes(objective.loss, one, theta=theta) for one in (there, far))
        ours, theirs = slopes
        assert ours.tobytes() == theirs.tobytes()
        plain = replace(near, X=2.0 * np.asarray(near.X), y=-near.y)
        expected = loss_slopes(objective.loss, plain, theta=theta)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


def _double(rows: Rows) -> Rows:
    return replace(rows, X=2.0 * np.asarray(rows.X))


def test_a_killed_worker_costs_a_retry(client: Any, tmp_path: Path) -> None:
    objective = Objective(Logistic(), L2(), 1e-3)
    rows = draw(objective, 300_000)
    far = on(store(rows, tmp_path), client)
    mark, victim = tmp_path / "mark", tmp_path / "victim"

    def term(block: Rows) -> tuple[Vector]:
        # The first worker that gets here in the middle of the pass kills itself.
        if block.y.tobytes() == middle and not mark.exists():
            mark.touch()
            victim.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return (block.weight @ block.X,)

    middle = far.read_block(far.n_blocks // 2).y.tobytes()
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
        block_sum(refuse, on(stored, client))


def test_a_file_that_changes_in_the_middle_of_a_pass_ends_it(
    client: Any, tmp_path: Path
) -> None:
    far = on(store(draw(SQUARED, 5000), tmp_path), client)

    def change(block: Rows) -> tuple[float]:
        os.utime(tmp_path / "rows.parquet", (1, 1))
        return (float(block.y.sum()),)

    with pytest.raises(InvalidInput, match="file 0 changed"):
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

    def work(scale: float) -> State:
        return replace(found, last=scale * found.last)

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
    far = on(store(draw(SQUARED, 5000), tmp_path), client)
    monkeypatch.setattr(engines, "own_version", lambda: "0.0.0")
    with pytest.raises(Unsupported, match=r"client 0\.0\.0; install the same version"):
        block_sum(lambda block: (float(block.y.sum()),), far)
    with pytest.raises(Unsupported, match=r"client 0\.0\.0; install the same version"):
        map_jobs(_refuse, range(2), client=client)


def test_a_worker_without_our_module_is_told(client: Any, tmp_path: Path) -> None:
    far = on(store(draw(SQUARED, 5000), tmp_path), client)

    def term(block: Rows) -> tuple[float]:
        import no_such_module  # type: ignore[import-not-found]

        return (float(no_such_module.sum(block.y)),)

    with pytest.raises(Unsupported, match="a worker has no no_such_module"):
        block_sum(term, far)


@pytest.mark.parametrize("engine", ["dask://", "tcp://127.0.0.1:1", "127.0.0.1:8786"])
def test_an_address_that_is_none(engine: str) -> None:
    with pytest.raises(InvalidInput, match="give dask://HOST:PORT"):
        read_engine(engine)


def test_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        with pytest.raises(Unreachable, match="no scheduler answers"):
            read_engine(f"dask://127.0.0.1:{port}")


def test_repr_shows_no_rows(client: Any, tmp_path: Path) -> None:
    far = on(store(draw(SQUARED, 3000), tmp_path), client)
    assert repr(far) == "StoredRows(3000 x 5)" and repr(far.workers) == "Workers()"


@pytest.fixture
def pool() -> Iterator[Executor]:
    """Two processes of a pool, without Dask."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


def test_a_pool_of_processes_gives_the_bits_of_this_one(
    pool: Executor, tmp_path: Path
) -> None:
    objective = Objective(Logistic(), L2(), 1e-3, intercept=True)
    rows = draw(objective, 80_000)
    far = on(store(rows, tmp_path), pool)
    assert same(learn(objective, far), learn(objective, rows))
    found = learn(objective, rows)
    (there,) = map_jobs(lambda scale: replace(found, last=scale), [1.0], client=pool)
    assert same(there, found)


def test_a_killed_process_of_a_pool_is_told(pool: Executor, tmp_path: Path) -> None:
    far = on(store(draw(SQUARED, 80_000), tmp_path), pool)

    def term(block: Rows) -> tuple[float]:
        os.kill(os.getpid(), signal.SIGKILL)
        return (0.0,)

    with pytest.raises(Unreachable, match="workers were lost"):
        block_sum(term, far)
    with pytest.raises(Unreachable, match="a pool of processes must be made again"):
        block_sum(lambda block: (float(block.y.sum()),), far)


def test_a_cluster_that_ends_in_a_pass_is_told(tmp_path: Path) -> None:
    rows = store(draw(SQUARED, 80_000), tmp_path)
    with local_client(1, threads_per_worker=1) as client:
        far, mark = on(rows, client), tmp_path / "mark"

        def term(block: Rows) -> float:
            mark.touch()
            sleep(0.2)
            return float(block.y.sum())

        blocks = far.map_blocks(term)
        closing = Thread(target=_close_after, args=(mark, client))
        closing.start()
        with pytest.raises(Unreachable, match="scheduler is gone"):
            list(blocks)
        closing.join()
        with pytest.raises(Unreachable, match="scheduler is gone"):
            list(far.map_blocks(term))


def _close_after(mark: Path, client: Any) -> None:
    while not mark.exists():
        sleep(0.01)
    client.cluster.close()
