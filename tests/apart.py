# SPDX-License-Identifier: Apache-2.0
"""A process apart, for what breaks the package on purpose or forks."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

# Each begins as a copy of one that has imported everything and has no threads.
_CLEAN = get_context("forkserver")
_CLEAN.set_forkserver_preload(["tests.attack.mutants", "tests.crash.__main__"])


def apart(
    work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs
) -> Answer:
    """Return what a function returns in a process that does nothing else."""
    with ProcessPoolExecutor(1, _CLEAN) as pool:
        return pool.submit(work, *given, **named).result()
