# SPDX-License-Identifier: Apache-2.0
"""A process apart, for what breaks the package on purpose, forks, or is killed."""

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

# Each begins as a copy of one that has imported everything and has no threads.
_CLEAN = get_context("forkserver")
_CLEAN.set_forkserver_preload(
    ["tests.attack.mutants", "tests.crash.__main__", "tests.service_load.serving"]
)


def apart(
    work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs
) -> Answer:
    """Return what a function returns in a process that does nothing else."""
    with ProcessPoolExecutor(1, _CLEAN) as pool:
        return pool.submit(work, *given, **named).result()


class Forked:
    """A process that has imported everything, and is spoken to as one of subprocess.

    For tests of what a program does, and not of how it starts: that takes seconds.

    Parameters
    ----------
    work
        What it does; it is given what follows.
    stderr
        The file that it writes to.
    """

    def __init__(
        self,
        work: Callable[Given, object],
        stderr: Path,
        *given: Given.args,
        **named: Given.kwargs,
    ) -> None:
        self._process = _CLEAN.Process(
            target=_work, args=(work, stderr, given, named), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return how it ended, if it did."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return how it ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def _work(
    work: Callable[..., object],
    stderr: Path,
    given: tuple[object, ...],
    named: dict[str, object],
) -> None:
    with stderr.open("ab") as file:
        os.dup2(file.fileno(), 2)
    work(*given, **named)
