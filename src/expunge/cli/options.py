# SPDX-License-Identifier: Apache-2.0
"""Options that commands share, and the files and registries that they name."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from pwd import getpwuid
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import ExpungeError
from .output import DATA_MISSING, WRONG_INPUT, CommandFailed, print_note

if TYPE_CHECKING:
    from ..registry import Decider, Registry

FOLDER = Path("expunge-registry")

Folder = Annotated[
    Path,
    typer.Option(
        "--registry",
        "-r",
        metavar="FOLDER",
        envvar="EXPUNGE_REGISTRY",
        help="Folder of the registry.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask no question on a terminal.")
]
# Of every command: see ``app.build_command``.
Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a failure.")
]

# Of every command that works on a registry: see ``app.build_command``.
Actor = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Who you are, for the access log (default: the user of this system).",
    ),
]
Why = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Why you do this, for the access log; name nobody."
    ),
]
SHOWN_IN = "EXPUNGE_TOKEN"  # where somebody shows a token that says whose it is

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="Id of the request.")]


class KeepRows(StrEnum):
    """What the registry keeps of the rows."""

    registry = "registry"
    lake = "lake"
    never = "never"


Target = Annotated[
    str, typer.Option(metavar="COLUMN", help="Column that the model predicts.")
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
]
WithoutForgotten = Annotated[
    bool,
    typer.Option(
        "--without-forgotten",
        help="Leave out the rows of people who were forgotten before.",
    ),
]
OthersIds = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Ids that differ from those of forgotten people only in case, "
        "spacing, width or zeros are other people's.",
    ),
]
Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Take bare ids, which cannot be compared with deletion lists (see drop "
        "import).",
    ),
]


@dataclass
class _Acting:
    """Who calls, as the command line says."""

    name: str = ""
    why: str = ""


ACTING = _Acting()


def operator() -> "Decider":
    """Return who calls: the user of this system, or who they say they are."""
    from ..registry import Decider

    name = ACTING.name
    if not name:
        try:
            name = getpwuid(os.getuid()).pw_name
        except KeyError:  # in a container, whose users have no names
            name = f"user {os.getuid()}"
    shown = os.environ.get(SHOWN_IN, "").strip()
    return Decider(name, shown, "command line", ACTING.why)


def note(registry: "Registry", action: str, *targets: str) -> None:
    """Write into the access log what was done here, a line for each target."""
    by, every = operator(), targets or ("",)
    lines = [(by.name, action, target, by.via, by.reason) for target in every]
    try:
        registry.access.record(lines)
    except ExpungeError as error:  # what was done is done, and its answer is handed out
        print_note(f"the access log could not be written: {error}")


def open_registry(folder: Path) -> "Registry":
    """Return the open registry, for use in a with statement."""
    from ..registry import Registry

    return Registry.open(folder)


def require_file(path: Path) -> None:
    """Raise if nothing is at this path."""
    if not path.exists():
        raise CommandFailed(f"{path} does not exist; check the path", DATA_MISSING)


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
