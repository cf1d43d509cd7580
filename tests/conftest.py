# SPDX-License-Identifier: Apache-2.0
"""What every test may ask for: chance that repeats, data, and empty stores."""

import gc
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from tests.browsing import chromium, page, tab
from tests.devices import device
from tests.stores import (
    database_url,
    empty,
    empty_database,
    fitted,
    fitted_on_postgres,
    postgres_url,
    registry,
    registry_url,
    share_statements,
    sqlite_registry,
    store,
    template,
)

__all__ = [
    "cancer",
    "chromium",
    "database_url",
    "device",
    "empty",
    "empty_database",
    "fitted",
    "fitted_on_postgres",
    "page",
    "postgres_url",
    "registry",
    "registry_url",
    "rng",
    "sqlite_registry",
    "store",
    "tab",
    "template",
]

# Tests start hundreds of processes. Each would compile the package again, and each run
# the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Registries flush all the time, and no test means this machine's disk. In memory that
# costs nothing; a test that passed leaves nothing there.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(MEMORY))

share_statements()

# Same examples on every run, and no deadline: two workers share two cores.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Keep twelve thousand tests and their modules out of each search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test see in a certificate what another one fitted under equal budgets."""
    monkeypatch.setattr("expunge.private_model.snapshot._FITTED", {})


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Return a generator seeded by the test's name, parameters included."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture(scope="session")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    """Return the breast cancer data, standardised, with words for labels."""
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), np.array(["benign", "malignant"])[1 - y]
