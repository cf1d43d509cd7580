# SPDX-License-Identifier: Apache-2.0
"""The commands, and what becomes of them.

A command is a value: its fields are the options. The application makes it from the
command line and then performs it, so that all of them fail in the same way. What a
command needs is imported when it is performed: ``expunge --help`` stays quick.
"""

from collections.abc import Callable
from typing import Protocol

import typer

from .bench import Bench
from .exits import INTERRUPTED, UNEXPECTED, Failed


class Command(Protocol):
    """Something to perform once, after the command line was read."""

    @property
    def debug(self) -> bool:
        """Whether a failure may show where it came from."""

    def perform(self) -> int:
        """Do it and return the exit code."""


def perform(command: Command) -> None:
    """Perform a command; say in one line why it could not be."""
    try:
        code = command.perform()
    except Failed as failure:
        if command.debug:
            raise
        typer.echo(f"expunge: {failure}", err=True)
        code = failure.code
    except KeyboardInterrupt:
        typer.echo("expunge: interrupted; what is finished is kept", err=True)
        code = INTERRUPTED
    except Exception as error:
        if command.debug:
            raise
        kind = type(error).__name__
        typer.echo(
            f"expunge: {kind}: {error}\nThis is a defect of expunge; --debug shows "
            "where it happened",
            err=True,
        )
        code = UNEXPECTED
    raise typer.Exit(code)


app = typer.Typer(
    name="expunge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    result_callback=perform,
)


@app.callback()
def expunge() -> None:
    """Certified machine unlearning of regularised convex models.

    Exit codes: 0 done; 1 a defect; 2 the command line is wrong; 3 data are missing;
    4 an extra or a checkout is missing; 130 interrupted.
    """


COMMANDS: dict[str, Callable[..., Command]] = {"bench": Bench}
for word, command in COMMANDS.items():
    app.command(word)(command)
