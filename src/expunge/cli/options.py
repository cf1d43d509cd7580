# SPDX-License-Identifier: Apache-2.0
"""Options that commands share, and the registry that most of them open."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .exits import DATA_MISSING, WRONG_INPUT, Failed

if TYPE_CHECKING:
    from ..registry import Registry

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
