# SPDX-License-Identifier: Apache-2.0
"""The errors that callers may want to catch.

A message says what was wrong, the value, and what to do next. It never holds a figure
computed from a removed row: an error is as public as a release. Errors of one module
alone, such as a corrupt file or an unusable key, are defined there and derive from
``ExpungeError`` too.
"""

from collections.abc import Iterator
from contextlib import contextmanager

# Optional packages come with these; pyproject.toml says which.
EXTRAS = (
    "cli",
    "dask",
    "files",
    "gpu",
    "onnx",
    "plots",
    "registry",
    "service",
    "tables",
)


class ExpungeError(Exception):
    """Anything expunge refuses to do; the message says what to do instead."""


class InvalidInput(ExpungeError, ValueError):
    """An argument is outside its domain; nothing was changed."""


class Unsupported(ExpungeError, ValueError):
    """These parts do not fit together, such as a mechanism and a penalty."""


class CannotRemove(ExpungeError, ValueError):
    """The request asks for more than is left; nothing was removed."""


class EmptyClass(InvalidInput):
    """A class has no rows with weight, and the model needs them; nothing changed."""


class RowsRequired(ExpungeError, ValueError):
    """The mechanism needs the remaining rows, and they were not passed."""


class CannotFit(ExpungeError):
    """The data, the objective and the budget do not go together.

    Attributes
    ----------
    change
        A parameter and a value of it with which a first fit was tried and certified;
        None where nothing was tried, or nothing helped.
    """

    change: tuple[str, object] | None = None


class NotPositiveDefinite(CannotFit, ArithmeticError):
    """A Hessian has no Cholesky factor: some direction has no curvature."""


class NotConverged(CannotFit, ArithmeticError):
    """The solver stopped before its residual was small enough."""


class NotCertifiable(CannotFit, ValueError):
    """The budget promises more than this model or release can keep."""


class ScheduleExhausted(ExpungeError, RuntimeError):
    """All planned releases have been made; this depends on the schedule alone."""


class CapacityExceeded(ExpungeError, RuntimeError):
    """The budget is exhausted; the message has no figures, as they would leak."""


class MissingExtra(ExpungeError, ImportError):
    """An optional dependency is not installed; the message says which extra."""


@contextmanager
def needing(extras: str, purpose: str) -> Iterator[None]:
    """Turn a failed import in the block into MissingExtra.

    Parameters
    ----------
    extras
        Everything that the purpose needs, with commas, so that one command installs it.
    purpose
        What cannot be done without it, as the subject of a sentence.
    """
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        package = (error.name or "a package").partition(".")[0]
        raise MissingExtra(
            f"{purpose} needs {package}, which is not installed; run pip install "
            f'"expunge[{extras}]" (the extras are {", ".join(EXTRAS)})'
        ) from error


class UnknownSubject(ExpungeError, KeyError):
    """A person who is not, or no longer, in the model; nothing was removed."""

    def __str__(self) -> str:
        """Return the message as it is: KeyError would quote it."""
        return str(self.args[0])


class UnknownRows(ExpungeError, ValueError):
    """Rows that are not, or no longer, in the model; nothing was removed."""


class NoPrivateState(ExpungeError, RuntimeError, AttributeError):
    """The copy has only the release; removal needs the private state.

    An AttributeError too: a copy has no ``record_``, and a notebook that shows it goes
    through its attributes.
    """


class UnknownRequest(ExpungeError, KeyError):
    """A request that was never accepted by this registry."""

    def __str__(self) -> str:
        """Return the message as it is: KeyError would quote it."""
        return str(self.args[0])


class RequestConflict(InvalidInput):
    """What is asked does not fit the request of that id; nothing was changed."""


class NothingSaved(ExpungeError, FileNotFoundError):
    """No folder or file of a saved model is at this path; nothing was read."""


class NoRegistry(ExpungeError, FileNotFoundError):
    """A folder holds no registry."""


class Busy(ExpungeError, TimeoutError):
    """Another process is working; what was accepted stays accepted."""


class WindowOpen(ExpungeError):
    """An earlier request about the same people waits for its window; so does this."""


class NeedsDecision(ExpungeError):
    """Operators must decide first: one must approve, or a second person must agree."""


class OneAgreed(NeedsDecision):
    """It is noted that the caller agrees; nothing is done until a second does, too."""


class Unforeseen(ExpungeError):
    """An error that nobody foresaw stopped a request, which waits; others went on.

    The message is always the same: what was raised may tell about the person.
    """


class StoreFailed(ExpungeError, OSError):
    """The store is full, read-only, damaged or gone; nothing accepted was lost."""


class JournalDamaged(StoreFailed):
    """The journal is missing, cut short or altered; nothing was done."""


class OtherSchema(ExpungeError, RuntimeError):
    """The store was made by another version of expunge; nothing was read."""


class NeedsRestore(ExpungeError, RuntimeError):
    """The store is older than the files around it: it was put back from a backup."""


class LedgerCorrupt(ExpungeError, ValueError):
    """The ledger in a store is not the one that was signed."""
