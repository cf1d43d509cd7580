# SPDX-License-Identifier: Apache-2.0
"""The application: all commands, and how each one is run and fails.

A command is a value whose fields are its options. Typer builds it from the command line
and ``perform`` runs it, so all commands fail in the same way. ``COMMANDS`` lists them;
a command is imported when it is called, and imports what it needs when it runs, which
keeps ``expunge --help`` quick.
"""

import json
import sys
from importlib import import_module
from typing import Annotated, Any, Protocol

import typer
from typer.core import TyperGroup

from .common import INTERRUPTED, MEANINGS, WRONG_INPUT, explain, find_exit_code

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
    """Commands by name; a wrong command line is reported in one line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, imported now, and what is left to read."""
        if args[:1] == ["plan"] and not ctx.parent:
            raise USAGE_ERROR(
                "plan is gone; call expunge advise TABLE with data like the model's: "
                "it says how many may leave, and which sigma to take",
                ctx,
            )
        name, command, rest = super().resolve_command(ctx, args)
        words = f"{ctx.info_name} {name}" if ctx.parent else name
        return name, build_command(words) if words in COMMANDS else command, rest

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
        if isinstance(error, typer.BadParameter):
            error.message = describe_bad_value(error)
        message = error.format_message()
        if message.startswith("Usage:"):
            typer.echo(message, err=True)
            return
        where = error.ctx.command_path if error.ctx else self.name
        message = message.replace("Value error, ", "")  # a word for programmers
        text = message[:1].lower() + message[1:].rstrip(".")
        print_error(f"{text}; see {where} --help", WRONG_INPUT, as_json=as_json)


def describe_bad_value(error: typer.BadParameter) -> str:
    """Return what is wrong with the value of an option, and what to give.

    Typer reads numbers by Pydantic, whose words leave out the value.
    """
    problems: list[Any] = getattr(error.__cause__, "errors", list)()
    for problem in problems:
        value, limits = problem["input"], problem.get("ctx", {})
        if "ge" in limits:
            return f"{value!r} is too small; give at least {limits['ge']:g}"
        if "le" in limits:
            return f"{value!r} is too large; give at most {limits['le']:g}"
        for kind, noun in (("int", "a whole number"), ("float", "a number")):
            if problem["type"].startswith(kind):
                return f"{value!r} is not {noun}; give {noun}"
    return error.message


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


# Every command, with the first sentence of its help, which ``expunge --help`` shows.
COMMANDS = {
    "init": "Create a registry.",
    "advise": "Say which sigma to take, and how many people may leave.",
    "fit": "Fit a model to a table, and keep it so that it can forget.",
    "add": "Add the rows of a table to a model, and release it.",
    "schema": "Print the schema of a model: what the columns of its table are.",
    "forget": "Forget people in every model that holds them.",
    "request": (
        "Exercise a right of people: erase, object, restrict, lift, hold or end-hold."
    ),
    "rectify": "Replace the rows of a person in a model by those of a table.",
    "cancel": "Take back a request that waits.",
    "exact": "State that a request means whom it names, and nobody else.",
    "refuse": "Answer a request that waits with a refusal, and print the receipt.",
    "extend": "Extend the deadline of a request, once, as its law allows.",
    "alias import": "Import aliases of people from a table, all of them or none.",
    "alias find": "Print the id that each alias leads to, one per line.",
    "alias count": "Print how many aliases there are.",
    "alias remove": "Delete aliases, for instance of a number that changed hands.",
    "lake status": "Show whether a model's files still hold people who left it.",
    "lake rewrite": "Rewrite a model's files without the people who left.",
    "status": "Show models, requests and outdated releases.",
    "clock confirm": (
        "Say that the machine's clock is right, so that what is due may end."
    ),
    "log": "Print the ledger, or export it to a file that anyone can verify.",
    "release": "Write a release to a file, or withdraw one.",
    "remove": "Retire a model, and destroy its rows and keys.",
    "verify": "Check whether a receipt, ledger export or certificate is valid.",
    "audit": "Open the private record behind a model's release, for an auditor.",
    "rotate": "Replace a key.",
    "reanchor": "Rebuild a model's private state from the remaining rows.",
    "restore": "Restore the store from a backup, and forget again.",
    "serve": (
        "Serve a registry: an API, a dashboard, and the protocols of privacy desks."
    ),
    "token create": "Make a token, and print it.",
    "token list": "List the tokens that have not expired.",
    "token revoke": "Revoke a token, so that it no longer works.",
    "webhook add": (
        "Let a service call an address when something happens; print the secret."
    ),
    "webhook list": "List the addresses that a service calls.",
    "webhook remove": "Stop calling an address; calls that still wait are given up.",
    "webhook deliveries": (
        "List what was told to others, newest first: webhooks and callbacks."
    ),
    "webhook replay": (
        "Deliver something again, for instance after a receiver was repaired."
    ),
    "demo": (
        "Forget 150 people on bundled data, check the receipts, and write a report."
    ),
}
GROUPS = {
    "alias": "Manage aliases: other names of people, such as addresses.",
    "clock": "Settle doubts about the machine's clock.",
    "lake": "Manage the files that models read their rows from.",
    "token": "Manage the tokens with which others call a service.",
    "webhook": "Manage webhooks: whom a service calls when something happens.",
}
# Where each one is: ``alias find`` is the class ``AliasFindCommand`` of ``aliases``.
MODULES = {
    "admin": "init restore rotate log",
    "aliases": "alias",
    "demo": "demo",
    "estimators": "advise",
    "fit": "fit",
    "lake": "lake",
    "models": "schema release reanchor remove",
    "requests": "forget request cancel exact refuse extend",
    "rows": "add rectify",
    "service": "serve token webhook",
    "status": "status clock",
    "verify": "verify audit",
}


def import_command(words: str) -> type[Command]:
    """Import a command, and return its class."""
    first, *_ = words.split()
    (module,) = [home for home, names in MODULES.items() if first in names.split()]
    name = words.title().replace(" ", "") + "Command"
    found: type[Command] = getattr(import_module(f".{module}", __package__), name)
    return found


def build_command(words: str) -> Any:
    """Return a command as Typer runs it, with its options."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(words.split()[-1])(import_command(words))
    return typer.main.get_command(alone)


def register_commands() -> None:
    """Let the application know what it can be asked, without importing a command."""
    groups = {
        name: typer.Typer(
            help=text, cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None
        )
        for name, text in GROUPS.items()
    }
    for name, group in groups.items():
        app.add_typer(group, name=name)
    for words, text in COMMANDS.items():
        *above, name = words.split()
        # Lists show the name and the text; ``resolve_command`` finds the rest.
        (groups[above[0]] if above else app).command(name, help=text)(lambda: None)


register_commands()
