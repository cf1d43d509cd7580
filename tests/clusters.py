# SPDX-License-Identifier: Apache-2.0
"""A small Dask cluster for tests, at ports of its own that nobody else can see."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def local_client(n_workers: int, **options: Any) -> Iterator[Any]:
    """Yield a client of a cluster on this machine, which ends with it."""
    distributed: Any = import_module("distributed")
    # Any free port: at the usual one another test's cluster may be.
    at = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
    cluster = distributed.LocalCluster(n_workers=n_workers, **at, **options)
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client
