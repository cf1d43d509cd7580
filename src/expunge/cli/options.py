# SPDX-License-Identifier: Apache-2.0
"""Options that commands share, the files they name, and exit codes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..registry import Registry

FOLDER = Path("expunge-registry")

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
        UNEXPECTED: "a bug in expunge",
        WRONG_INPUT: "the command line or its input is wrong",
        DATA_MISSING: "a file, the data or the registry is missing",
        NOT_INSTALLED: "an extra or a checkout is missing",
        BUSY: "busy: accepted requests are kept, but not applied yet",
        DOES_NOT_STAND: "it does not stand (verify, audit, demo)",
        UNKNOWN: "unknown person or request",
        STORE_FAILED: "the store failed: full, read-only, gone, too old or damaged",
        SPENT: "the budget is used up",
        INTERRUPTED: "interrupted; finished work is kept",
    }
)

# Keyed by class name, because importing every error that did not happen would take
# longer than most commands. The nearest base class listed here counts.
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


class CommandFailed(Exception):
    """A command failed for a reason that the user can fix; it has an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_exit_code(error: Exception) -> int:
    """Return the exit code for an error; an unexpected error is a bug."""
    if isinstance(error, CommandFailed):
        return error.code
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((CODES[name] for name in names if name in CODES), UNEXPECTED)


def explain(error: Exception) -> str:
    """Return an error in one line: what happened, the value, what to do."""
    text = " ".join(str(error).split())
    if find_exit_code(error) == UNEXPECTED:
        kind = type(error).__name__
        return f"{kind}: {text}; this is a bug in expunge, --debug shows where"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; fix that and try again"
    if isinstance(error, ModuleNotFoundError):
        extras = "expunge[cli,registry,files]"
        return f"{error.name} is not installed; run pip install {extras}"
    return text


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of every command."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, errors included.")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RegistryOptions(CommonOptions):
    """Options of every command that works on a registry."""

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

    def open_registry(self) -> "Registry":
        """Return the open registry, for use in a with statement."""
        from ..registry import Registry

        return Registry.open(self.registry)


def read_file(path: Path) -> bytes:
    """Return the content of a file named on the command line."""
    require_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandFailed(
            f"{path} cannot be read ({error.strerror}); give another file",
            WRONG_INPUT,
        ) from None


def require_file(path: Path) -> None:
    """Raise if nothing is at this path."""
    if not path.exists():
        raise CommandFailed(f"{path} does not exist; check the path", DATA_MISSING)
