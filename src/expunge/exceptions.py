# SPDX-License-Identifier: Apache-2.0
"""The errors that callers may want to catch.

A message says what was wrong, the value, and what to do next. It never holds a figure
computed from a removed row: an error is as public as a release. Errors of one module
alone, such as a corrupt file or an unusable key, are defined there and derive from
``ExpungeError`` too.
"""


class ExpungeError(Exception):
    """Anything expunge refuses to do, with the way out in its message."""


class InvalidInput(ExpungeError, ValueError):
    """An argument is outside its domain; nothing was changed."""


class Unsupported(ExpungeError, ValueError):
    """These parts do not fit together, such as a mechanism and a penalty."""


class CannotRemove(ExpungeError, ValueError):
    """The request asks for more than is left; nothing was removed."""


class EmptyClass(InvalidInput):
    """A class has no rows with weight, and the model needs them; nothing changed."""


class RowsRequired(ExpungeError, ValueError):
    """The mechanism looks at the remaining rows and was not handed them."""


class NotPositiveDefinite(ExpungeError, ArithmeticError):
    """A Hessian has no Cholesky factor: some direction has no curvature."""


class NotConverged(ExpungeError, ArithmeticError):
    """The solver stopped above the residual it promises."""


class NotCertifiable(ExpungeError, ValueError):
    """The budget promises more than this model or release can keep."""


class ScheduleExhausted(ExpungeError, RuntimeError):
    """Every release that the budget planned is made; the schedule alone says so."""


class CapacityExceeded(ExpungeError, RuntimeError):
    """The budget is exhausted; the message holds no figure, since each would leak."""


class MissingExtra(ExpungeError, ImportError):
    """An optional dependency is not installed; the message says which extra."""


class UnknownSubject(ExpungeError, KeyError):
    """A person who is not, or no longer, in the model; nothing was removed."""

    def __str__(self) -> str:
        """Return the message as it is: KeyError would quote it."""
        return str(self.args[0])


class UnknownRows(ExpungeError, ValueError):
    """Rows that are not, or no longer, in the model; nothing was removed."""


class NoPrivateState(ExpungeError, RuntimeError):
    """The model carries the release alone; removal needs the private state."""


class UnknownRequest(ExpungeError, KeyError):
    """A request that was never accepted by this registry."""

    def __str__(self) -> str:
        """Return the message as it is: KeyError would quote it."""
        return str(self.args[0])


class NoRegistry(ExpungeError, FileNotFoundError):
    """A folder holds no registry."""


class Busy(ExpungeError, TimeoutError):
    """Another process is working; what was accepted stays accepted."""


class StoreFailed(ExpungeError, OSError):
    """The store is full, read-only, damaged or gone; nothing accepted was lost."""


class JournalDamaged(StoreFailed):
    """The journal is missing, cut short or not the same one; nothing was done."""


class OlderSchema(ExpungeError, RuntimeError):
    """The store was made by another version of expunge; nothing was read."""


class NeedsRestore(ExpungeError, RuntimeError):
    """The store is older than the files beside it: it was restored from a backup."""


class LedgerCorrupt(ExpungeError, ValueError):
    """The ledger in a store is not the one that was signed."""
