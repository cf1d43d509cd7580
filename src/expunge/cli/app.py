# SPDX-License-Identifier: Apache-2.0
"""The commands, and what becomes of them.

A command is a value: its fields are the options. The application makes it from the
command line and then performs it, so that all of them fail in the same way. What a
command needs is imported when it is performed: ``expunge --help`` stays quick.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

import typer
from typer.core import TyperGroup

from .admin import Init, Log, Restore, Rotate, Status
from .demo import Bench, Demo
from .fit import Fit
from .models import Audit, Plan, Reanchor, Release
from .options import INTERRUPTED, MEANINGS, WRONG_INPUT, exit_code, reason
from .requests import Forget
from .verify import Verify

# The library has no public name for what is wrong with a command line; a bad
# parameter is one of its kinds.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class Command(Protocol):
    """Something to perform once, after the command line was read."""

    @property
    def as_json(self) -> bool:
        """Whether answers and errors are JSON."""

    @property
    def debug(self) -> bool:
        """Whether a failure may show where it came from."""

    def perform(self) -> int:
        """Do it and return the exit code."""


def perform(command: Command) -> None:
    """Perform a command; say in one line why it could not be."""
    try:
        code = command.perform()
    except BrokenPipeError:
        raise  # Whoever read the output has seen enough; the library ends quietly.
    except KeyboardInterrupt:
        code = INTERRUPTED
        tell(MEANINGS[code], code, command.as_json)
    except Exception as error:
        if command.debug:
            raise
        code = exit_code(error)
        tell(reason(error), code, command.as_json)
    raise typer.Exit(code)


def tell(words: str, code: int, as_json: bool) -> None:
    """Say on stderr what went wrong."""
    as_data = json.dumps({"error": words, "code": code})
    typer.echo(as_data if as_json else f"expunge: {words}", err=True)


class Commands(TyperGroup):
    """The commands as a group that says in one line what is wrong with a call."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Read the command line, perform, and exit."""
        try:
            code = super().main(*args, **settings | {"standalone_mode": False})
        except USAGE_ERROR as error:
            code = WRONG_INPUT
            self._refuse(error, "--json" in (settings.get("args") or sys.argv))
        sys.exit(code)

    def _refuse(self, error: Any, as_json: bool) -> None:
        """Say what is wrong with the command line; without one, show the help."""
        message = error.format_message()
        if message.startswith("Usage:"):
            typer.echo(message, err=True)
            return
        where = error.ctx.command_path if error.ctx else self.name
        words = message[:1].lower() + message[1:].rstrip(".")
        tell(f"{words}; see {where} --help", WRONG_INPUT, as_json)


CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
HELP = f"""Certified machine unlearning of regularised convex models.

Begin with demo, or with init, fit and forget; check a receipt with verify.

\b
Exit codes:
{CODES}
"""

app = typer.Typer(
    name="expunge",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help is quick, calm and the same in a terminal, a pipe and the manual.
    rich_markup_mode=None,
    result_callback=perform,
)


@app.callback(help=HELP)
def expunge() -> None:
    """Certified machine unlearning of regularised convex models."""


COMMANDS: dict[str, Callable[..., Command]] = {
    "init": Init,
    "fit": Fit,
    "plan": Plan,
    "forget": Forget,
    "status": Status,
    "log": Log,
    "release": Release,
    "verify": Verify,
    "audit": Audit,
    "rotate": Rotate,
    "reanchor": Reanchor,
    "restore": Restore,
    "demo": Demo,
    "bench": Bench,
}
for word, command in COMMANDS.items():
    app.command(word)(command)
