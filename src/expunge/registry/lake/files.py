# SPDX-License-Identifier: Apache-2.0
"""The files of sources, as ``Registry.lake``: who is still in them, and rewriting."""

from dataclasses import dataclass

from ...display.progress import OnProgress, be_silent
from ..answering.worker import recover
from ..context import WAIT, Context


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The files behind a model. No person is in it, and no path.

    Parameters
    ----------
    source
        The public name of the files.
    n_files, n_to_rewrite
        How many files there are, and how many of them still hold people who left.
    """

    source: str
    n_files: int
    n_to_rewrite: int


class RegistryLake:
    """The files that models read their rows from, as ``Registry.lake``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def status(self, name: str) -> SourceStatus:
        """Return how many files of a model still hold people who left it."""
        from .rewriting import count_holding, require_source  # they import SciPy

        with self._context.hold_lock(WAIT):
            source = require_source(self._context.load_model(name))
            n_left = count_holding(self._context, name)
        return SourceStatus(source.name, len(source.files), n_left)

    def rewrite(self, name: str, *, on_progress: OnProgress = be_silent) -> int:
        """Rewrite the files that hold people who left a model; return how many.

        Each file is replaced at once by one without the rows of those of whom the
        registry holds nothing any more, unless another of its models still reads them.
        All models of this registry follow.

        Parameters
        ----------
        name
            Of the model.
        on_progress
            Called with how many files are done, of how many.
        """
        from .rewriting import rewrite_source

        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            return rewrite_source(self._context, name, on_progress=on_progress)
