# SPDX-License-Identifier: Apache-2.0
"""The inside of a registry, for this package alone."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from expunge.registry import Registry
from expunge.registry.context import Context, Paths, read_settings

Place: TypeAlias = Registry | Path
"""A registry that is open, or the folder of one that nobody need open for a look."""


@contextmanager
def inside(at: Place) -> Iterator[Context]:
    """Give the inside of a registry; from a folder, without what opening one does."""
    if isinstance(at, Registry):
        yield at._context
        return
    paths = Paths(at)
    with closing(Context.in_folder(paths, read_settings(paths))) as context:
        yield context
