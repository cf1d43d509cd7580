# SPDX-License-Identifier: Apache-2.0
"""Rows whose passes run on the workers of a Dask cluster.

Each task reads a group of blocks where it runs, and returns the sum of their terms: no
rows come to the client. A group is a complete part of the tree in which blocks are
added, so a pass gives the bits that it would give in this process, on the same kind of
processor with the same BLAS. Each task uses one BLAS thread: the order of additions
within a block depends on their number.

Dask runs a task again whose worker was lost. An error in a task, such as a file that
changed, ends the pass and is raised here.

Values travel as parcels, the bytes of one pickle. Dask would send arrays beside it and
leave them wherever they arrive in a message; NumPy multiplies what is not aligned by
other loops than BLAS, with other bits. From a parcel, arrays are read into memory of
their own. Private values refuse to be pickled, so that nobody writes them into a file
by mistake; here they are meant to travel.

The workers see the rows and the parameters before noise is added: a cluster belongs to
those whom you would trust with both, as do the disks and the wires between its parts.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from io import BytesIO
from itertools import islice
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from ..core.arrays import Vector
from ..core.linalg import one_thread
from ..core.rows import Rows, RowSource, Terms, Value, pairwise_sum
from ..core.values import Private
from ..exceptions import ExpungeError, InvalidInput, Unsupported, needing

# The client and the futures of distributed, whose annotations have gaps.
Client: TypeAlias = Any
Future: TypeAlias = Any
Job = TypeVar("Job")
Result = TypeVar("Result")

PREFIX = "dask://"
PATIENCE = 10  # seconds until a scheduler must have answered
# Blocks of a task, powers of two: with fewer the scheduler works more than a worker.
GROUP, LARGEST_GROUP = 16, 256
# Tasks a thread of a worker may have waiting: their sums stay there until they are
# fetched, some at a time.
WAITING = 8


class Unreachable(ExpungeError, OSError):
    """The cluster does not answer, or lost its workers; nothing was changed."""


class ReadsBlocks(Protocol):
    """Rows that any process can read block by block, by the blocks' numbers."""

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        ...

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        ...

    @property
    def total_weight(self) -> float:
        """The sum of the weights."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def read_block(self, number: int) -> Rows:
        """Return one block."""
        ...

    def require_unchanged(self) -> None:
        """Raise InvalidInput if the rows may be others than when they were opened."""
        ...

    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        """Return the rows with what ``code`` makes of their labels."""
        ...


class DaskRows(RowSource):
    """Rows that are read and summed by the workers of a cluster.

    Parameters
    ----------
    rows
        What the workers read; it is sent to them, and must hold no rows itself.
    client
        A client of the cluster.
    """

    def __init__(self, rows: ReadsBlocks, client: Client) -> None:
        self._rows = rows
        self._client = client

    def __repr__(self) -> str:
        return f"DaskRows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return self._rows.n_columns

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights."""
        return self._rows.total_weight

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, in order; workers compute it."""
        for found in self._map_groups(_map_group, term):
            yield from found

    def sum_blocks(self, term: Callable[[Rows], Terms]) -> Terms:
        """Return the sum of a term over the blocks; workers add their groups."""
        groups: Iterator[Terms] = self._map_groups(_sum_group, term)
        return pairwise_sum(groups)

    def recode(self, code: Callable[[Vector], Vector]) -> "DaskRows":
        """Return the rows with what ``code`` makes of their labels."""
        return DaskRows(self._rows.recode(code), self._client)

    def _map_groups(self, work: Callable[..., Any], term: Any) -> Iterator[Any]:
        """Yield what the workers make of each group of blocks, in order."""
        n_blocks, options = self._rows.n_blocks, {"version": own_version()}
        with _clear_errors():
            # Sent once for a pass. What is scattered would be lost with its worker.
            packed = pack_parcel((self._rows, term))
            task = self._client.submit(_Task, packed, pure=False)
            at_once = max(2, WAITING * sum(self._client.nthreads().values()))
            size = _group_size(n_blocks, at_once)
            coming = (
                self._client.submit(work, task, group, **options, pure=False)
                for group in (
                    range(begin, min(begin + size, n_blocks))
                    for begin in range(0, n_blocks, size)
                )
            )
            waiting = deque(islice(coming, at_once))
            while waiting:
                some = [waiting.popleft() for _ in range(-(-len(waiting) // 2))]
                yield from map(open_parcel, self._client.gather(some))
                waiting.extend(islice(coming, len(some)))
        self._rows.require_unchanged()


def _group_size(n_blocks: int, n_tasks: int) -> int:
    """Return how many blocks a task has: a power of two, for about so many tasks."""
    wanted = 1 << max(0, (n_blocks // n_tasks).bit_length() - 1)
    return min(max(GROUP, wanted), LARGEST_GROUP)


def own_version() -> str:
    """Return the version of expunge in this process."""
    return str(import_module("expunge").__version__)


class _Task:
    """What all tasks of a pass, or all jobs, share; each worker opens it once."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    @cached_property
    def parts(self) -> Any:
        """What is in the parcel."""
        return open_parcel(self._packed)

    def __reduce__(self) -> tuple[type["_Task"], tuple[bytes]]:
        return _Task, (self._packed,)


def _map_group(task: _Task, group: range, *, version: str) -> bytes:
    """Return what the term makes of each block of a group, on a worker."""
    return pack_parcel(_read_group(task, group, version=version))


def _sum_group(task: _Task, group: range, *, version: str) -> bytes:
    """Return the sum of a term over a group of blocks, on a worker."""
    return pack_parcel(pairwise_sum(_read_group(task, group, version=version)))


def _read_group(task: _Task, group: range, *, version: str) -> list[Any]:
    _require_version(version)
    rows, term = task.parts
    with one_thread:
        return [term(rows.read_block(number)) for number in group]


def _require_version(version: str) -> None:
    """Raise Unsupported on a worker that has another version than the client."""
    if version != own_version():
        raise Unsupported(
            f"a worker has expunge {own_version()} and the client {version}; install "
            "the same version on both"
        )


def map_jobs(
    work: Callable[[Job], Result], jobs: Iterable[Job], *, client: Client
) -> list[Result]:
    """Return what the workers make of jobs, in order, each with one BLAS thread.

    What ``work`` refers to is sent once for all jobs.
    """
    with _clear_errors():
        task = client.submit(_Task, pack_parcel(work), pure=False)
        options = {"version": own_version(), "pure": False}
        packed = [pack_parcel(job) for job in jobs]
        coming = [client.submit(_run_job, task, job, **options) for job in packed]
        return [open_parcel(future.result()) for future in coming]


def _run_job(task: _Task, job: bytes, *, version: str) -> bytes:
    """Return what the work makes of a job, on a worker."""
    _require_version(version)
    with one_thread:
        return pack_parcel(task.parts(open_parcel(job)))


def connect(engine: str) -> Client:
    """Return a client of the cluster at an address such as dask://10.0.0.1:8786."""
    with needing("dask", "a Dask cluster"):
        import distributed
    place = engine.removeprefix(PREFIX)
    if not engine.startswith(PREFIX) or not place:
        raise InvalidInput(
            f"engine={engine!r}; give dask://HOST:PORT, the address of a scheduler"
        )
    try:
        make: Any = distributed.Client
        return make(f"tcp://{place}", timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Unreachable(
            f"no scheduler answers at {engine!r} within {PATIENCE} seconds; check the "
            "address, and that the scheduler runs"
        ) from error


def on_cluster(rows: ReadsBlocks, engine: str | Client) -> DaskRows:
    """Return rows whose passes run on a cluster, given by its address or a client."""
    return DaskRows(rows, connect(engine) if isinstance(engine, str) else engine)


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Say plainly what went wrong with the cluster; our own errors pass as they are."""
    with needing("dask", "a Dask cluster"):
        from distributed import CancelledError, KilledWorker
        from distributed.comm.core import CommClosedError

    try:
        yield
    except ExpungeError:
        raise
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"a worker has no {error.name}; install expunge and what reads your files "
            "on every worker"
        ) from error
    except KilledWorker as error:
        raise Unreachable(
            "workers were lost again and again while they ran the same task; look at "
            "their logs, they may need more memory"
        ) from error
    except (CancelledError, CommClosedError, TimeoutError) as error:
        raise Unreachable(
            "the scheduler is gone; start the cluster again, then repeat the call"
        ) from error


def pack_parcel(value: Any) -> bytes:
    """Return a value, or a function with all that it refers to, as bytes."""
    with needing("dask", "a Dask cluster"):
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
