# SPDX-License-Identifier: Apache-2.0
"""Engines: where the passes over rows run, if not in this process.

Workers, the processes of a Dask cluster or of a pool, read rows from files, and run
jobs that do not depend on each other. A device of torch holds rows that lie in memory.
An engine changes where and how fast sums are computed, never what is promised: workers
give the bits of this process, on the same kind of processor with the same BLAS, and
radii pay for the order in which a device adds.

Each job uses one BLAS thread: the order of additions within a block depends on their
number. Dask runs a job again whose worker was lost; a pool of processes is broken then.

Values travel as parcels, the bytes of one pickle. Dask would send arrays beside it and
leave them wherever they arrive in a message; NumPy multiplies what is not aligned by
other loops than BLAS, with other bits. From a parcel, arrays are read into memory of
their own. Private values refuse to be pickled, so that nobody writes them into a file
by mistake; here they are meant to travel.

Workers see the rows and the parameters before noise is added: they belong to those whom
you would trust with both, as do the disks and the wires between them.
"""

import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from .core.linalg import one_thread
from .core.rows import Rows, RowSource
from .core.values import Private
from .exceptions import ExpungeError, InvalidInput, Unsupported, needing
from .gpu import DeviceRows, copy_rows
from .gpu.device import require_device

Job = TypeVar("Job")
Result = TypeVar("Result")

PREFIX = "dask://"
PATIENCE = 10  # seconds until a scheduler must have answered
# Jobs that wait or run at a time: results are held until those before them are used.
AT_ONCE = 128


class Unreachable(ExpungeError, OSError):
    """Workers do not answer, or were lost; nothing was changed."""


class Workers:
    """Processes that read rows from files, and run jobs.

    Parameters
    ----------
    executor
        An executor of ``concurrent.futures``: a pool of processes, or what
        ``Client.get_executor`` of Dask returns.
    share
        Puts the parcel that all jobs of a call need where workers find it: Dask sends
        it once to each of them. A pool gets it with every job.
    """

    def __init__(
        self, executor: Executor, share: Callable[[bytes], Any] = lambda parcel: parcel
    ) -> None:
        self._executor = executor
        self._share = share

    def __repr__(self) -> str:
        return "Workers()"

    def put(self, rows: RowSource) -> RowSource:
        """Return rows of files whose passes run on the workers."""
        source: Any = rows
        if not hasattr(source, "on"):
            raise Unsupported(
                "the rows are in memory, and workers read theirs from files; open the "
                "files with expunge.long, or leave engine out"
            )
        on_workers: RowSource = source.on(self)
        return on_workers

    def map(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> list[Result]:
        """Return what the workers make of jobs, in order."""
        return list(self.stream(work, jobs))

    def stream(
        self, work: Callable[[Job], Result], jobs: Iterable[Job]
    ) -> Iterator[Result]:
        """Yield what the workers make of jobs, in order; an error ends it."""
        waiting: deque[Any] = deque()
        with _clear_errors():
            shared, version = self._share(pack_parcel(work)), own_version()
            coming = (
                self._executor.submit(_run, shared, pack_parcel(job), version=version)
                for job in jobs
            )
            try:
                waiting.extend(islice(coming, AT_ONCE))
                while waiting:
                    yield open_parcel(waiting.popleft().result())
                    waiting.extend(islice(coming, 1))
            finally:
                for future in waiting:
                    future.cancel()


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

    def put(self, rows: RowSource) -> DeviceRows:
        """Return a copy of the rows on the device, in float32 if that loses nothing."""
        if not isinstance(rows, Rows):
            raise Unsupported(
                f"the rows lie in files, and engine={self._device!r} holds rows that "
                "are in memory; use engine='dask://HOST:PORT', or leave engine out"
            )
        return copy_rows(rows, device=self._device)


Engine: TypeAlias = Workers | DeviceEngine


def require_jobs(engine: Engine | None) -> Workers | None:
    """Return an engine that runs independent jobs, if one was given at all."""
    if isinstance(engine, DeviceEngine):
        raise Unsupported(
            f"{engine!r} runs one fit at a time; tuned models and audits take "
            "engine='dask://HOST:PORT', an executor, or none"
        )
    return engine


def read_engine(given: Any) -> Engine | None:
    """Return the engine that a text, a client or an executor stands for; None for None.

    Parameters
    ----------
    given
        "dask://HOST:PORT", the address of a scheduler; "cuda", "cuda:1" or "cpu", a
        device of torch; a ``distributed.Client``; a ``concurrent.futures.Executor``,
        such as a ``ProcessPoolExecutor``; or an engine.
    """
    if given is None or isinstance(given, Workers | DeviceEngine):
        return given
    if isinstance(given, Executor):
        return Workers(given)
    if isinstance(given, str):
        if given.startswith(PREFIX):
            given = _connect(given)
        elif given.partition(":")[0] in ("cuda", "cpu"):
            return DeviceEngine(given)
    if hasattr(given, "get_executor"):
        # Equal jobs are run as often as they are asked for: files may change.
        executor = given.get_executor(pure=False)
        return Workers(executor, lambda parcel: given.submit(bytes, parcel, pure=False))
    raise InvalidInput(
        f"engine={given!r}; give dask://HOST:PORT, a Client of Dask or an executor of "
        "concurrent.futures for rows in files, or 'cuda', 'cuda:1', 'cpu' for a device "
        "of torch"
    )


def _connect(engine: str) -> Any:
    """Return a client of the cluster at an address such as dask://10.0.0.1:8786."""
    with needing("dask", "a Dask cluster"):
        import distributed
    address = engine.removeprefix(PREFIX)
    if not address:
        raise InvalidInput(
            f"engine={engine!r}; give dask://HOST:PORT, the address of a scheduler"
        )
    try:
        make: Any = distributed.Client
        return make(f"tcp://{address}", timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"no scheduler answers at {engine!r} within {PATIENCE} seconds; check the "
            "address, and that the scheduler runs"
        ) from error


def own_version() -> str:
    """Return the version of expunge in this process."""
    return str(import_module("expunge").__version__)


def _run(shared: bytes, job: bytes, *, version: str) -> bytes:
    """Return what the work makes of a job, on a worker."""
    if version != own_version():
        raise Unsupported(
            f"a worker has expunge {own_version()} and the client {version}; install "
            "the same version on both"
        )
    with one_thread:
        return pack_parcel(open_parcel(shared)(open_parcel(job)))


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Say plainly what went wrong with workers; our own errors pass as they are."""
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)
    gone: tuple[type[BaseException], ...] = (CancelledError, TimeoutError)
    if "distributed" in sys.modules:
        from distributed import KilledWorker
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError

        lost, gone = (*lost, KilledWorker), (*gone, CommClosedError, ClosedClientError)
    try:
        yield
    except ExpungeError:
        raise
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"a worker has no {error.name}; install expunge and what reads your files "
            "on every worker"
        ) from error
    except lost as error:
        raise Unreachable(
            "workers were lost while they ran a job, on a cluster again and again; "
            "look at their logs, they may need more memory; a pool of processes must "
            "be made again"
        ) from error
    except gone as error:
        raise Unreachable(
            "the scheduler is gone; start the cluster again, then repeat the call"
        ) from error


def pack_parcel(value: Any) -> bytes:
    """Return a value, or a function with all that it refers to, as bytes."""
    with needing("dask", "sending work to other processes"):
        import cloudpickle  # type: ignore[import-untyped]

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        """Packs private values too."""

        def reducer_override(self, obj: Any) -> Any:
            """Return how to pack an object."""
            if isinstance(obj, Private):
                return object.__reduce_ex__(obj, pickle.HIGHEST_PROTOCOL)
            return super().reducer_override(obj)

    packed = BytesIO()
    Packer(packed, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return packed.getvalue()


def open_parcel(packed: bytes) -> Any:
    """Return the value in the bytes, with arrays in memory of their own."""
    return pickle.loads(packed)
