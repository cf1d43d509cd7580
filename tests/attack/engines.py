# SPDX-License-Identifier: Apache-2.0
"""Attack estimators whose rows lie elsewhere: in files, on a cluster, on a device.

Blocks are short, so that small problems have many. Models of files, here or on a
cluster, must also have the bits of the same model in memory.
"""

import atexit
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from sklearn.base import clone

from expunge.core import rows as core_rows
from expunge.gpu import rows as device_rows
from expunge.long import open_parquet, stored_rows
from tests.clusters import local_client

from . import draws
from .crowds import Crowd
from .draws import Generator, Task, chance, pick
from .estimators import (
    RequestMaker,
    check_release,
    empties_a_class,
    estimator,
    labels_of,
    make_request,
)
from .judge import Checker, Refusal
from .peek import draft_of, erased_on_device

# Rows of a block here and on a device, and blocks of a task.
SHORT, SHORT_THERE, GROUP = 8, 16, 4
REQUESTS = 5
PERSON = RequestMaker("person")
OPEN = ExitStack()
atexit.register(OPEN.close)
NEEDS = {"device": "torch", "dask": "distributed"}


def available(kind: str) -> bool:
    """Whether what a kind needs is installed."""
    return kind not in NEEDS or importlib.util.find_spec(NEEDS[kind]) is not None


def attack_long(rng: Generator, checker: Checker) -> None:
    """Fit an estimator to files, let people leave, and check every release."""
    _attack_files(rng, checker, draws.task(rng))


def attack_dask(rng: Generator, checker: Checker) -> None:
    """The same, with passes on the workers of a cluster."""
    _attack_cluster(rng, checker, draws.task(rng))


def attack_device(rng: Generator, checker: Checker) -> None:
    """Fit an estimator on a device, let people leave and come, and check releases."""
    task = draws.task(rng)
    narrow = task.sample.X.astype(np.float32).astype(np.float64)
    if chance(rng, 0.5) and np.isfinite(narrow).all():
        task.sample.X[:] = narrow
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    model = _estimator(rng, task)
    crowd = Crowd(rng, checker, task, maker)
    with _short_blocks():
        if not crowd.fit(model, task.sample.X, engine="cpu"):
            return
        crowd.check(model, "fit ")
        for _ in range(REQUESTS):
            leaving, coming = crowd.draw()
            if not crowd.possible(leaving, coming):
                continue
            if not crowd.ask(model, leaving, coming) and not crowd.behind:
                crowd.check(model)
            checker.check(erased_on_device(model), "rows that left are on the device")


def _attack_files(rng: Generator, checker: Checker, task: Task) -> None:
    """Check the releases of a model of files; its fit has the bits of one in memory."""
    model, sample = _estimator(rng, task), task.sample
    held, stay = clone(model), np.ones(len(task.owners), dtype=bool)
    with _short_blocks(), _table(rng, task) as table:
        with checker.note_refusals() as refusal:
            model.fit(table)
        if refusal:
            return
        held.fit(sample.X, labels_of(task), task.owners.tolist(), sample.weight)
        equal = np.array_equal(draft_of(model), draft_of(held))
        checker.check(equal, "other bits than in memory")
        check_release(checker, model, task, stay, "fit ")
        for people in _requests(rng, task):
            request = (task, people, stay)
            stay, refusal = make_request(checker, model, PERSON, request)
            if refusal:
                return
            check_release(checker, model, task, stay)


def _attack_cluster(rng: Generator, checker: Checker, task: Task) -> None:
    """Check a model on a cluster; it must have the bits of one in this process."""
    model, stay = _estimator(rng, task), np.ones(len(task.owners), dtype=bool)
    held = clone(model)
    with _short_blocks(), _table(rng, task) as table, _table(rng, task) as other:
        refusals = [
            _try(checker, lambda: model.fit(table, engine=_client())),
            _try(checker, lambda: held.fit(other)),
        ]
        for people in _requests(rng, task, 2):
            same = type(refusals[0].error) is type(refusals[1].error)
            checker.check(same, f"there and here: {[one.error for one in refusals]}")
            if any(refusals):
                return
            check_release(checker, model, task, stay)
            equal = np.array_equal(draft_of(model), draft_of(held))
            checker.check(equal, "other bits than in this process")
            stay &= ~task.rows_of(people)
            refusals = [
                _try(checker, partial(one.forget, people)) for one in (model, held)
            ]


def _try(checker: Checker, action: Callable[[], object]) -> Refusal:
    with checker.note_refusals() as refusal:
        action()
    return refusal


def _requests(rng: Generator, task: Task, n: int = REQUESTS) -> Iterator[list[str]]:
    """Yield whom to forget, while weight and every class are left; then nobody."""
    stay = np.ones(len(task.owners), dtype=bool)
    for people in draws.requests(rng, task, n):
        after = stay & ~task.rows_of(people)
        if not task.sample.weight[after].any() or empties_a_class(task, after):
            break
        stay = after
        yield people
    yield []


def _estimator(rng: Generator, task: Task) -> Any:
    """Return an estimator that may do without matrices."""
    model = estimator(rng, task)
    if chance(rng, 0.3):
        model.set_params(mechanism="matrix-free")
    return model


@contextmanager
def _short_blocks() -> Iterator[None]:
    with (
        patch.object(core_rows, "BLOCK_ROWS", SHORT),
        patch.object(stored_rows, "BLOCK_ROWS", SHORT),
        patch.object(device_rows, "DEVICE_BLOCK_ROWS", SHORT_THERE),
        patch.object(stored_rows, "GROUP", GROUP),
    ):
        yield


@contextmanager
def _table(rng: Generator, task: Task) -> Iterator[Any]:
    """Write a problem into two files, and open them as a long table."""
    names = [f"f{column}" for column in range(task.sample.X.shape[1])]
    columns = dict(zip(names, task.sample.X.T, strict=True))
    more = {"y": labels_of(task), "w": task.sample.weight, "id": task.owners}
    whole, middle = pa.table(columns | more), len(task.owners) // 3
    with tempfile.TemporaryDirectory(prefix="expunge-attack-") as folder:
        lake = Path(folder) / "lake"
        lake.mkdir()
        for number, part in enumerate((whole[:middle], whole[middle:])):
            pq.write_table(part, lake / f"{number}.parquet", row_group_size=7)
        options: Any = {"subject": "id", "weight": "w", "cache": chance(rng, 0.5)}
        with open_parquet(lake, target="y", features=names, **options) as table:
            yield table


@cache
def _client() -> Any:
    """Return a client of a cluster in this process, which ends with it."""
    options = {"threads_per_worker": 2, "processes": False, "silence_logs": 50}
    return OPEN.enter_context(local_client(1, **options))
