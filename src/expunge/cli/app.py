# SPDX-License-Identifier: Apache-2.0
"""The application: all commands, and how each one is run and fails.

A command is a value whose fields are its options. Typer builds it from the command line
and ``perform`` runs it, so all commands fail in the same way. A command imports what it
needs when it runs, which keeps ``expunge --help`` quick.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, Protocol

import typer
from typer.core import TyperGroup

from .admin import InitCommand, LogCommand, RestoreCommand, RotateCommand, StatusCommand
from .aliases import (
    AliasCountCommand,
    AliasFindCommand,
    AliasImportCommand,
    AliasRemoveCommand,
)
from .common import INTERRUPTED, MEANINGS, WRONG_INPUT, explain, find_exit_code
from .demo import BenchCommand, DemoCommand
from .estimators import AdviseCommand
from .fit import FitCommand
from .lake import LakeRewriteCommand, LakeStatusCommand
from .models import PlanCommand, ReanchorCommand, ReleaseCommand, RemoveCommand
from .requests import (
    CancelCommand,
    ExtendCommand,
    ForgetCommand,
    RefuseCommand,
    RequestCommand,
)
from .rows import AddCommand, RectifyCommand
from .service import (
    ServeCommand,
    TokenCreateCommand,
    TokenListCommand,
    TokenRevokeCommand,
    WebhookAddCommand,
    WebhookDeliveriesCommand,
    WebhookListCommand,
    WebhookRemoveCommand,
    WebhookReplayCommand,
)
from .verify import AuditCommand, VerifyCommand

# Typer has no public name for its usage errors; a bad parameter is one of them.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class Command(Protocol):
    """Something to run once, after the command line was read."""

    @property
    def as_json(self) -> bool:
        """Whether answers and errors are JSON."""

    @property
    def debug(self) -> bool:
        """Whether a failure shows its traceback."""

    def perform(self) -> int:
        """Run it and return the exit code."""


def perform(command: Command) -> None:
    """Run a command; print one line if it fails."""
    try:
        code = command.perform()
    except BrokenPipeError:
        raise  # The reader has closed the pipe; typer ends quietly.
    except KeyboardInterrupt:
        code = INTERRUPTED
        print_error(MEANINGS[code], code, as_json=command.as_json)
    except Exception as error:
        if command.debug:
            raise
        code = find_exit_code(error)
        print_error(explain(error), code, as_json=command.as_json)
    raise typer.Exit(code)


def print_error(text: str, code: int, *, as_json: bool) -> None:
    """Print to stderr what went wrong."""
    as_data = json.dumps({"error": text, "code": code})
    typer.echo(as_data if as_json else f"expunge: {text}", err=True)


class CommandGroup(TyperGroup):
    """All commands; a wrong command line is reported in one line."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Read the command line, run the command, and exit."""
        try:
            code = super().main(*args, **settings | {"standalone_mode": False})
        except USAGE_ERROR as error:
            code = WRONG_INPUT
            as_json = "--json" in (settings.get("args") or sys.argv)
            self._report(error, as_json=as_json)
        sys.exit(code)

    def _report(self, error: Any, *, as_json: bool) -> None:
        """Print what is wrong with the command line; print help if it is empty."""
        message = error.format_message()
        if message.startswith("Usage:"):
            typer.echo(message, err=True)
            return
        where = error.ctx.command_path if error.ctx else self.name
        message = message.replace("Value error, ", "")  # a word for programmers
        text = message[:1].lower() + message[1:].rstrip(".")
        print_error(f"{text}; see {where} --help", WRONG_INPUT, as_json=as_json)


CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
HELP = f"""Certified machine unlearning of regularised convex models.

Start with demo, or with init, fit and forget; check a receipt with verify.

\b
Exit codes:
{CODES}
"""

app = typer.Typer(
    name="expunge",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help is quick, and the same in a terminal, a pipe and the manual.
    rich_markup_mode=None,
    result_callback=perform,
)


def print_version(asked: bool) -> None:
    """Print the version and end, if that was asked for."""
    if asked:
        typer.echo(f"expunge {import_module('expunge').__version__}")
        raise typer.Exit


@app.callback(help=HELP)
def expunge(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=print_version,
            is_eager=True,
            expose_value=False,  # or ``perform`` would be given it
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Certified machine unlearning of regularised convex models."""


COMMANDS: dict[str, Callable[..., Command]] = {
    "init": InitCommand,
    "advise": AdviseCommand,
    "fit": FitCommand,
    "add": AddCommand,
    "plan": PlanCommand,
    "forget": ForgetCommand,
    "request": RequestCommand,
    "rectify": RectifyCommand,
    "cancel": CancelCommand,
    "refuse": RefuseCommand,
    "extend": ExtendCommand,
    "alias import": AliasImportCommand,
    "alias find": AliasFindCommand,
    "alias count": AliasCountCommand,
    "alias remove": AliasRemoveCommand,
    "lake status": LakeStatusCommand,
    "lake rewrite": LakeRewriteCommand,
    "status": StatusCommand,
    "log": LogCommand,
    "release": ReleaseCommand,
    "remove": RemoveCommand,
    "verify": VerifyCommand,
    "audit": AuditCommand,
    "rotate": RotateCommand,
    "reanchor": ReanchorCommand,
    "restore": RestoreCommand,
    "serve": ServeCommand,
    "token create": TokenCreateCommand,
    "token list": TokenListCommand,
    "token revoke": TokenRevokeCommand,
    "webhook add": WebhookAddCommand,
    "webhook list": WebhookListCommand,
    "webhook remove": WebhookRemoveCommand,
    "webhook deliveries": WebhookDeliveriesCommand,
    "webhook replay": WebhookReplayCommand,
    "demo": DemoCommand,
    "bench": BenchCommand,
}
GROUPS = {
    "alias": "Look after addresses, numbers and other names of people.",
    "lake": "Look after files that models read their rows from.",
    "token": "Look after the tokens by which others call a service.",
    "webhook": "Look after whom a service calls when something happens.",
}

groups = {
    name: typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)
    for name, text in GROUPS.items()
}
for name, group in groups.items():
    app.add_typer(group, name=name)
for words, command in COMMANDS.items():
    *above, name = words.split()
    (groups[above[0]] if above else app).command(name)(command)
