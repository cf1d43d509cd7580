# SPDX-License-Identifier: Apache-2.0
"""Engines: where the passes over rows run, if not in this process.

A cluster of Dask reads rows from files, and runs jobs that do not depend on each other.
A device of torch holds rows that lie in memory. An engine changes where and how fast
sums are computed, never what is promised: a cluster gives the bits of this process, and
radii pay for the order in which a device adds.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from .cluster import DaskRows, connect, map_jobs
from .cluster.dask_rows import PREFIX
from .core.rows import Rows, RowSource
from .exceptions import InvalidInput, Unsupported
from .gpu import DeviceRows, copy_rows
from .gpu.device import require_device

Job = TypeVar("Job")
Result = TypeVar("Result")


class DaskEngine:
    """The workers of a Dask cluster, which read rows from files.

    Parameters
    ----------
    client
        A client of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __repr__(self) -> str:
        return "DaskEngine()"

    def place(self, rows: RowSource) -> DaskRows:
        """Return rows of files whose passes run on the workers."""
        if isinstance(rows, Rows):
            raise Unsupported(
                "the rows are in memory, and the workers of a cluster read theirs from "
                "files; open the files with expunge.long, or leave engine out"
            )
        source: Any = rows
        return DaskRows(source, self._client)

    def map(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> list[Result]:
        """Return what the workers make of jobs, in order."""
        return map_jobs(work, jobs, client=self._client)


class DeviceEngine:
    """A device of torch, which holds a copy of rows in memory.

    Parameters
    ----------
    device
        "cuda", "cuda:1", ..., or "cpu".
    """

    def __init__(self, device: str) -> None:
        self._device = str(require_device(device))

    def __repr__(self) -> str:
        return f"DeviceEngine({self._device!r})"

    def place(self, rows: RowSource) -> DeviceRows:
        """Return a copy of the rows on the device, in float32 if that loses nothing."""
        if not isinstance(rows, Rows):
            raise Unsupported(
                f"the rows lie in files, and engine={self._device!r} holds rows that "
                "are in memory; use engine='dask://HOST:PORT', or leave engine out"
            )
        return copy_rows(rows, device=self._device)


Engine: TypeAlias = DaskEngine | DeviceEngine


def require_jobs(engine: Engine | None) -> DaskEngine | None:
    """Return an engine that runs independent jobs, if one was given at all."""
    if isinstance(engine, DeviceEngine):
        raise Unsupported(
            f"{engine!r} runs one fit at a time; tuned models and audits take "
            "engine='dask://HOST:PORT', or none"
        )
    return engine


def read_engine(given: Any) -> Engine | None:
    """Return the engine that a text or a client of Dask stands for; None for None.

    Parameters
    ----------
    given
        "dask://HOST:PORT", the address of a scheduler; "cuda", "cuda:1" or "cpu", a
        device of torch; a ``distributed.Client``; or an engine.
    """
    if given is None or isinstance(given, DaskEngine | DeviceEngine):
        return given
    if isinstance(given, str):
        if given.startswith(PREFIX):
            return DaskEngine(connect(given))
        if given.partition(":")[0] in ("cuda", "cpu"):
            return DeviceEngine(given)
    elif hasattr(given, "submit") and hasattr(given, "nthreads"):
        return DaskEngine(given)
    raise InvalidInput(
        f"engine={given!r}; give dask://HOST:PORT or a Client of Dask for rows in "
        "files, or 'cuda', 'cuda:1', 'cpu' for a device of torch"
    )
