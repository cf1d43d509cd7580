# SPDX-License-Identifier: Apache-2.0
"""Estimators whose passes run elsewhere: on a Dask cluster, or on a device of torch."""

import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from expunge import (
    L2,
    Budget,
    LinearRegression,
    Logistic,
    LogisticRegression,
    Objective,
    SoftmaxRegression,
    TunedClassifier,
    engines,
    load,
)
from expunge.audit import AuditOptions, Case, audit_each
from expunge.core.arrays import norm
from expunge.core.rows import RowSource
from expunge.core.solver import minimise
from expunge.engines import DeviceEngine, Unreachable, Workers, read_engine
from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    MissingExtra,
    Unsupported,
)
from expunge.gpu import DeviceRows
from expunge.gpu import device as devices
from expunge.gpu import rows as device_rows
from expunge.linear_model.base import private_model
from expunge.long import StoredRows, open_parquet
from expunge.private_model.training_rows import MirroredRows
from expunge.promise.noise import make_noise
from tests.clusters import local_client
from tests.long_tables import NAMES, Columns, make_columns, write_files

BUDGET = Budget(epsilon=2.0, delta=1e-6, sigma=0.1, releases=20)
MODELS = [
    (LogisticRegression, "signs"),
    (SoftmaxRegression, "classes"),
    (LinearRegression, "score"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A worker with two threads, in this process."""
    pytest.importorskip("distributed")
    with local_client(1, threads_per_worker=2, processes=False) as client:
        yield client


def _open(lake: Path, columns: Columns, target: Any) -> Any:
    write_files(lake, columns, target)
    named = {"target": "label", "subject": "id", "weight": "weight"}
    return open_parquet(lake, features=NAMES, **named)  # type: ignore[arg-type]


def _theta(model: Any) -> Any:
    return private_model(model).answer.draft.theta


def _refuse_passes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: StoredRows, term: Callable[[Any], Any]) -> Any:
        raise AssertionError("a pass ran in this process")

    monkeypatch.setattr(RowSource, "sum_blocks", refuse)


@pytest.mark.parametrize(
    "kind, target, mechanism",
    [
        (LogisticRegression, "signs", "auto"),
        (LogisticRegression, "words", "matrix-free"),
        (SoftmaxRegression, "classes", "auto"),
        (LinearRegression, "score", "retrain"),
    ],
)
def test_a_cluster_gives_the_bits_of_this_process(
    kind: Any, target: str, mechanism: str, client: Any, tmp_path: Path
) -> None:
    columns = make_columns(40_001)
    y = getattr(columns, target)
    thetas: list[list[Any]] = []
    for engine in (None, client):
        lake = tmp_path / type(engine).__name__
        with _open(lake, columns, y) as table, pytest.MonkeyPatch.context() as patch:
            if engine is not None:
                _refuse_passes_here(patch)
            model = kind(alpha=0.01, mechanism=mechanism)
            model.fit(table, engine=engine)
            found = [_theta(model)]
            for people in (["person 7"], ["person 0", "person 3000"]):
                model.forget(subjects=people)
                found.append(_theta(model))
            private = private_model(model)
            left: Any = private.remaining_rows()
            assert isinstance(left, StoredRows)
            assert (left.workers is None) == (engine is None)
            found.append(private.reanchor(left).answer.draft.theta)
        thetas.append(found)
    for ours, theirs in zip(*thetas, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_a_pool_of_processes_gives_the_bits_of_this_process(tmp_path: Path) -> None:
    columns, found = make_columns(40_001), []
    X, y, people = _problem()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for engine in (None, pool):
            lake = tmp_path / type(engine).__name__
            with _open(lake, columns, columns.signs) as table:
                model = LogisticRegression(alpha=0.01, mechanism="retrain")
                model.fit(table, engine=engine)
                model.forget(subjects=["person 7"])
                found.append(_theta(model).tobytes())
            tuned = TunedClassifier(alphas=(0.1, 0.01), folds=3, fold_key="key")
            tuned.fit(X, y, subjects=people, engine=engine)
            found.append(_theta(tuned).tobytes())
    assert found[:2] == found[2:]


def test_an_address_stands_for_a_cluster(client: Any, tmp_path: Path) -> None:
    columns = make_columns(3000)
    address = client.scheduler.address.replace("tcp://", "dask://")
    with _open(tmp_path / "lake", columns, columns.signs) as table:
        model = LogisticRegression(alpha=0.01, budget=BUDGET).fit(table, engine=address)
        assert model.certificate_.status == "certified"
        left: Any = private_model(model).remaining_rows()
        assert isinstance(left.workers, Workers)


def test_a_file_that_changed_ends_a_pass_on_a_cluster(
    client: Any, tmp_path: Path
) -> None:
    columns, lake = make_columns(3000), tmp_path / "lake"
    write_files(lake, columns, columns.signs)
    with open_parquet(
        lake, target="label", subject="id", features=NAMES, cache=False
    ) as table:
        model = LogisticRegression(alpha=0.01, mechanism="retrain")
        model.fit(table, engine=client)
        before, file = _theta(model), sorted(lake.iterdir())[-1]
        file.write_bytes(file.read_bytes() + b"more")
        with pytest.raises(InvalidInput, match="changed"):
            model.forget(subjects=["person 8"])
        assert _theta(model) is before
        assert len(table) == 3000


def test_no_scheduler_is_an_error_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "PATIENCE", 1)
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    model = LogisticRegression(alpha=0.1).fit(X, y)
    before = vars(model).copy()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        engine = f"dask://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(Unreachable, match="no scheduler answers"):
            model.fit(X, y, engine=engine)
    assert vars(model) == before


def test_a_cluster_takes_rows_of_files_alone(client: Any) -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(Unsupported, match="rows are in memory"):
        LogisticRegression(alpha=0.1).fit(X, y, engine=client)


@pytest.mark.parametrize("engine", ["", "gpu", "spark://host", "dask:/host", 7, "cpus"])
def test_what_is_no_engine_is_refused(engine: Any) -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(InvalidInput, match="engine="):
        LogisticRegression(alpha=0.1).fit(X, y, engine=engine)


def test_an_engine_is_no_parameter_of_an_estimator() -> None:
    model = LogisticRegression(alpha=0.1)
    assert "engine" not in clone(model).get_params()
    assert read_engine(None) is None


def test_engines_stand_for_themselves(client: Any) -> None:
    engine = read_engine(client)
    assert isinstance(engine, Workers) and read_engine(engine) is engine
    assert repr(engine) == "Workers()"


def test_a_device_without_torch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    devices.load_torch.cache_clear()
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(MissingExtra, match=r"expunge\[gpu\]"):
        LogisticRegression(alpha=0.1).fit(X, y, engine="cuda")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mechanism", ["auto", "matrix-free"])
@pytest.mark.parametrize("kind, target", MODELS)
def test_a_model_on_a_device_forgets_there(
    kind: Any, target: str, mechanism: str, dtype: str, device: str
) -> None:
    columns = make_columns(3001, dtype)
    y = getattr(columns, target)
    model = kind(alpha=0.01, mechanism=mechanism, budget=BUDGET)
    options = {"subjects": columns.subjects, "sample_weight": columns.weight}
    model.fit(columns.X, y, engine=device, **options)
    gone = [*range(21, 24), 0, 1, 2, *range(300, 303)]
    for people in (["person 7"], ["person 0", "person 100"]):
        model.forget(subjects=people)
        assert model.certificate_.status == "certified"
    private = private_model(model)
    kept, left = private.training_rows, private.remaining_rows()
    assert isinstance(kept, MirroredRows) and isinstance(left, DeviceRows)
    assert len(left) == 3001 - 9
    assert str(left._X.dtype) == f"torch.{dtype}"
    for part in (left._X, left._y, left._weight):
        there = part.cpu().numpy()
        assert not there[gone].any()
        assert np.count_nonzero(there) > 0
    _require_radius(private, columns, y, gone=gone, like=kind)


def _require_radius(
    private: Any, columns: Columns, y: Any, *, gone: list[int], like: Any
) -> None:
    """Hold the answer to its radius, by a solver on the remaining rows in memory."""
    stay = np.ones(len(y), dtype=bool)
    stay[gone] = False
    fresh = like(alpha=0.01).fit(
        columns.X[stay], y[stay], sample_weight=columns.weight[stay]
    )
    rows: Any = private_model(fresh).remaining_rows()
    target = minimise(private.objective, rows).theta
    apart = norm(private.answer.draft.theta - target)
    assert apart <= private.answer.radius.value + 1e-12


def test_rows_that_come_go_to_the_device_too(device: str) -> None:
    columns = make_columns(3000, np.float32)
    model = LogisticRegression(alpha=0.01, mechanism="retrain", budget=BUDGET)
    model.fit(columns.X, columns.signs, subjects=columns.subjects, engine=device)
    more = columns.X[:4] + 0.1  # not numbers of float32
    model.add(more, columns.signs[:4], subjects=["new"] * 4)
    left: Any = private_model(model).remaining_rows()
    assert isinstance(left, DeviceRows) and len(left) == 3004
    model.forget(subjects=["new"])
    fresh = LogisticRegression(alpha=0.01).fit(columns.X, columns.signs)
    np.testing.assert_allclose(_theta(model), _theta(fresh), atol=1e-9)


def test_a_model_of_a_device_is_saved_with_its_rows(
    device: str, tmp_path: Path
) -> None:
    columns = make_columns(300)
    model = LogisticRegression(alpha=0.05, budget=BUDGET)
    model.fit(columns.X, columns.signs, subjects=columns.subjects, engine=device)
    model.forget(subjects=["person 3"])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for one in (model, again):
        one.forget(subjects=["person 4"])
    assert isinstance(private_model(model).remaining_rows(), DeviceRows)
    left: Any = private_model(again).remaining_rows()
    assert len(left) == 294
    np.testing.assert_array_equal(_theta(model), _theta(again))


def test_a_card_that_is_not_there_is_an_error_that_changes_nothing(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    columns = make_columns(300)
    model = LogisticRegression(alpha=0.05)
    model.fit(columns.X, columns.signs, engine=device)
    before = _theta(model)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Unsupported, match="finds no CUDA device"):
        model.fit(columns.X, columns.signs, engine="cuda:0")
    assert _theta(model) is before


def test_too_little_memory_is_an_error_that_changes_nothing(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns(300)
    model = LogisticRegression(alpha=0.05)
    model.fit(columns.X, columns.signs, engine=device)
    before = _theta(model)

    def refuse(device: Any, n_bytes: int) -> None:
        raise Unsupported(f"{n_bytes} bytes are not free; use rows in memory")

    monkeypatch.setattr(device_rows, "require_memory", refuse)
    with pytest.raises(Unsupported, match="21600 bytes are not free"):
        model.fit(columns.X, columns.signs, engine=device)
    assert _theta(model) is before


def test_rows_on_a_device_need_not_be_kept(device: str) -> None:
    columns = make_columns(300)
    model = LogisticRegression(alpha=0.05, budget=BUDGET, keep_data=False)
    model.fit(columns.X, columns.signs, engine=device)
    model.forget(X=columns.X[:1], y=columns.signs[:1])
    assert private_model(model).remaining_rows() is None


def test_what_a_device_cannot_hold_is_refused(device: str, tmp_path: Path) -> None:
    columns = make_columns(300)
    X, y = columns.X, columns.signs
    with pytest.raises(Unsupported, match="X is sparse"):
        LogisticRegression(alpha=0.1).fit(sparse.csr_array(X), y, engine=device)
    with pytest.raises(Unsupported, match="preprocessing"):
        model = LogisticRegression(alpha=0.1, preprocessing=StandardScaler())
        model.fit(X, y, engine=device)
    with (
        _open(tmp_path / "lake", columns, y) as table,
        pytest.raises(Unsupported, match="the rows lie in files"),
    ):
        LogisticRegression(alpha=0.1).fit(table, engine=device)
    engine = read_engine(device)
    assert isinstance(engine, DeviceEngine)
    assert repr(engine) == f"DeviceEngine('{DeviceEngine(device)._device}')"


def _problem(n_rows: int = 400) -> tuple[Any, Any, list[str]]:
    columns = make_columns(n_rows)
    return columns.X, columns.signs, columns.subjects


@pytest.mark.parametrize(
    "options",
    [
        {"folds": 4},
        {"folds": 3, "preprocessing": StandardScaler()},
        {"folds": 3, "mechanism": "matrix-free", "l1_ratios": (0.0, 0.3)},
    ],
    ids=["folds", "preprocessing", "wide"],
)
def test_tuning_on_a_cluster_gives_the_bits_of_this_process(
    options: dict[str, Any], client: Any
) -> None:
    X, y, people = _problem()
    found = []
    for engine in (None, client):
        given: dict[str, Any] = {"alphas": (0.1, 0.01, 0.001), "fold_key": "key"}
        model = TunedClassifier(**given, **options)
        model.fit(X, y, subjects=people, engine=engine)
        parts = [_theta(model), model.curve_.errors, model.curve_.low]
        model.forget(subjects=["person 3"])
        parts += [_theta(model), model.curve_.high]
        found.append((model.alpha_, [part.tobytes() for part in parts]))
    assert found[0] == found[1]


def test_the_folds_of_a_tuned_fit_run_on_the_workers(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, people = _problem()
    engine, jobs, real = read_engine(client), [], Workers.map

    def count(self: Workers, work: Any, given: Any) -> Any:
        given = list(given)
        jobs.append(len(given))
        return real(self, work, given)

    monkeypatch.setattr(Workers, "map", count)
    model = TunedClassifier(alphas=(0.1, 0.01), folds=3, fold_key="key")
    model.fit(X, y, subjects=people, engine=engine)
    assert jobs == [3]  # one for each fold, with a model for each alpha


def test_an_error_of_a_fold_is_raised_here(client: Any) -> None:
    X, y = np.array([[-1.0], [1.0]] * 30), np.array([0, 1] * 30)
    said = []
    for engine in (None, client):
        model = TunedClassifier(alphas=(1e-300,), folds=3, fold_key="key")
        with pytest.raises(ExpungeError) as error:
            model.fit(X, y, engine=engine)
        said.append((type(error.value), str(error.value)))
    assert said[0] == said[1]


def test_a_device_runs_no_jobs(device: str) -> None:
    X, y, _ = _problem()
    with pytest.raises(Unsupported, match="runs one fit at a time"):
        TunedClassifier().fit(X, y, engine=device)
    with pytest.raises(Unsupported, match="runs one fit at a time"):
        audit_each([], engine=device)


def test_audits_on_a_cluster_find_what_they_find_here(client: Any) -> None:
    X, y, _ = _problem()
    objective = Objective(Logistic(), L2(), alpha=0.05)
    rows, budget = objective.rows(X, y), Budget(sigma=0.1)

    def cases() -> list[tuple[Case, AuditOptions]]:
        return [
            (
                Case(objective, rows, np.array([place])),
                AuditOptions(budget, make_noise(budget, place), n_draws=1000),
            )
            for place in (3, 5, 8)
        ]

    assert audit_each(cases(), engine=client) == audit_each(cases())
