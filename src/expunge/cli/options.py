# SPDX-License-Identifier: Apache-2.0
"""Options that commands share, and the registry that most of them open.

Exit codes of the command line, and which failure ends with which.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..registry import Registry


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


FOLDER = Path("expunge-registry")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every command understands."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, errors included.")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where a failure came from.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class OnRegistry(Options):
    """What every command about a registry understands."""

    registry: Annotated[
        Path,
        typer.Option(
            "--registry",
            "-r",
            metavar="FOLDER",
            envvar="EXPUNGE_REGISTRY",
            help="Folder of the registry.",
        ),
    ] = FOLDER

    def opened(self) -> "Registry":
        """Return the registry, open; close it, or use it in a with statement."""
        from ..registry import Registry

        return Registry.open(self.registry)


def content(path: Path) -> bytes:
    """Return the bytes of a file that the command line names."""
    require_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise Failed(
            f"{path} cannot be read ({error.strerror}); name a file that can be",
            WRONG_INPUT,
        ) from None


def require_file(path: Path) -> None:
    """Refuse a path at which there is nothing."""
    if not path.exists():
        raise Failed(f"{path} is not there; check the path", DATA_MISSING)
