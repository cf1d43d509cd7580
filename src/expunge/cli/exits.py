# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the command line, and which failure ends with which."""

from collections.abc import Mapping
from types import MappingProxyType

DONE = 0
UNEXPECTED = 1
WRONG_INPUT = 2
DATA_MISSING = 3
NOT_INSTALLED = 4
BUSY = 5
DOES_NOT_STAND = 6
UNKNOWN = 7
STORE_FAILED = 8
SPENT = 9
INTERRUPTED = 130

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        DONE: "done",
        UNEXPECTED: "a defect of expunge",
        WRONG_INPUT: "the command line or what it was given is wrong",
        DATA_MISSING: "a file, data or the registry are not there",
        NOT_INSTALLED: "an extra or a checkout is missing",
        BUSY: "busy: what was accepted is kept, and not applied yet",
        DOES_NOT_STAND: "it does not stand (verify, audit)",
        UNKNOWN: "nobody knows this person or request",
        STORE_FAILED: "the store failed: full, read-only, gone, too old or damaged",
        SPENT: "the contract is spent",
        INTERRUPTED: "interrupted; what is finished is kept",
    }
)

# By the name of the class: to import every error that did not happen would cost more
# than most commands. The nearest ancestor that is named here counts.
CODES: Mapping[str, int] = MappingProxyType(
    {
        "ExpungeError": WRONG_INPUT,
        "NoRegistry": DATA_MISSING,
        "FileNotFoundError": DATA_MISSING,
        "MissingExtra": NOT_INSTALLED,
        "ModuleNotFoundError": NOT_INSTALLED,
        "Busy": BUSY,
        "UnknownSubject": UNKNOWN,
        "UnknownRequest": UNKNOWN,
        "OSError": STORE_FAILED,
        "OlderSchema": STORE_FAILED,
        "NeedsRestore": STORE_FAILED,
        "StoreFailed": STORE_FAILED,
        "LedgerCorrupt": STORE_FAILED,
        "UnusableKey": STORE_FAILED,
        "CapacityExceeded": SPENT,
        "ScheduleExhausted": SPENT,
    }
)


class Failed(Exception):
    """A command could not be performed, for a reason that the user can mend."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: Exception) -> int:
    """Return the code that an error ends with; what nobody expected is a defect."""
    if isinstance(error, Failed):
        return error.code
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((CODES[name] for name in names if name in CODES), UNEXPECTED)


def reason(error: Exception) -> str:
    """Return why in one line: what, the value, what to do."""
    words = " ".join(str(error).split())
    if exit_code(error) == UNEXPECTED:
        kind = type(error).__name__
        return f"{kind}: {words}; this is a defect of expunge, --debug shows where"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; mend that and try again"
    if isinstance(error, ModuleNotFoundError):
        extras = "expunge[cli,registry,files]"
        return f"{error.name} is not installed; run pip install {extras}"
    return words
