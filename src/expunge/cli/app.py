# SPDX-License-Identifier: Apache-2.0
"""The application: all commands, and how each one is run and fails.

A command is a function whose parameters are its options, and which returns a
``Result``. Options that several commands share are a dataclass, whose fields stand on
the command line like any other. ``COMMANDS`` lists the commands; a command is imported
when it is called, and imports what it needs when it runs, which keeps ``expunge
--help`` quick.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .options import ACTING, Actor, Debug, Json, Why
from .output import (
    INTERRUPTED,
    MEANINGS,
    WRONG_INPUT,
    Result,
    explain,
    find_exit_code,
    print_error,
    print_result,
)

# Typer has no public name for its usage errors; a bad parameter is one of them.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def perform(command: Callable[[], Result], *, as_json: bool, debug: bool) -> None:
    """Run a command, print its answer, and exit; print one line if it fails."""
    try:
        result = command()
        print_result(result, as_json=as_json)
        if result.error is not None:
            raise result.error
        code = result.code
    except BrokenPipeError:
        raise  # The reader has closed the pipe; typer ends quietly.
    except KeyboardInterrupt:
        code = INTERRUPTED
        print_error(MEANINGS[code], code, as_json=as_json)
    except Exception as error:
        if debug:
            raise
        code = find_exit_code(error)
        print_error(explain(error), code, as_json=as_json)
    raise typer.Exit(code)


def build_command(words: str) -> Any:
    """Import a command, and return it as Typer runs it, with its options."""
    home, _ = COMMANDS[words]
    module = import_module(f".{home}", __package__)
    function = getattr(module, words.replace(" ", "_"))
    declared = signature(function, eval_str=True).parameters
    groups: dict[str, tuple[Any, Mapping[str, Parameter]]] = {}
    for parameter in declared.values():
        if is_dataclass(kind := parameter.annotation) and isinstance(kind, type):
            inside = signature(kind, eval_str=True).parameters
            groups[parameter.name] = kind, inside
    # The printer's own options stand before that of the registry.
    options: dict[str, Any] = {}
    shared = {
        "as_json": Parameter(
            "as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json
        ),
        "debug": Parameter(
            "debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug
        ),
    }
    acting = {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default="", annotation=kind)
        for name, kind in (("actor", Actor), ("why", Why))
    }
    for name, parameter in declared.items():
        _, fields = groups.get(name, (None, {name: parameter}))
        for field, option in fields.items():
            options |= acting | shared if field == "registry" else {}
            options[field] = option.replace(kind=Parameter.KEYWORD_ONLY)
    options |= shared

    def run(
        *, as_json: bool, debug: bool, actor: str = "", why: str = "", **given: Any
    ) -> None:
        ACTING.name, ACTING.why = actor, why
        for group, (kind, fields) in groups.items():
            given[group] = kind(**{field: given.pop(field) for field in fields})
        perform(partial(function, **given), as_json=as_json, debug=debug)

    run.__doc__ = function.__doc__
    run.__signature__ = Signature(list(options.values()))  # type: ignore[attr-defined]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(words.split()[-1])(run)
    return typer.main.get_command(alone)


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
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Certified machine unlearning of regularised convex models."""


# Every command: the module where it is the function of its name (``alias find`` is
# ``alias_find``), and the first sentence of its help, which lists show.
COMMANDS = {
    "init": ("admin", "Create a registry."),
    "advise": ("estimators", "Say which sigma to take, and what each sigma does."),
    "fit": ("fit", "Fit a model to a table, and keep it so that it can forget."),
    "add": ("rows", "Add the rows of a table to a model, and release it."),
    "schema": (
        "models",
        "Print the schema of a model: what the columns of its table are.",
    ),
    "predict": (
        "models",
        "Predict the rows of a table with the newest release of a model.",
    ),
    "recommend": (
        "exact",
        "Recommend items to somebody who has these, by the newest release of a model.",
    ),
    "who": ("people", "Say what is known of people, before they are answered."),
    "export": (
        "people",
        "Write all that is held of one person to a file, with their rows.",
    ),
    "forget": ("requests", "Forget people in every model that holds them."),
    "request": (
        "requests",
        "Exercise a right of people: erase, object, restrict, lift, hold or end-hold.",
    ),
    "rectify": ("rows", "Replace the rows of a person in a model by those of a table."),
    "cancel": ("requests", "Take back a request that waits."),
    "exact": ("requests", "State that a request means whom it names, and nobody else."),
    "approve": (
        "requests",
        "Approve a request that waits for it, or state that it was checked who asks.",
    ),
    "wait": ("requests", "Let a request wait."),
    "proceed": (
        "requests",
        "Let a request go on that waits for its operator, or was extended.",
    ),
    "remark": (
        "requests",
        "Write a reference and a note beside a request, in place of what is there.",
    ),
    "outcomes": (
        "requests",
        "Print what became of requests as CSV, for a ticket system.",
    ),
    "rules": (
        "admin",
        "Show or set what requests pass before they are applied, by right.",
    ),
    "refuse": (
        "requests",
        "Answer a request that waits with a refusal, and print the receipt.",
    ),
    "extend": (
        "requests",
        "Extend the deadline of a request, once, as its law allows.",
    ),
    "letter": (
        "letters",
        "Write a letter about a request, as one HTML file for a screen and for print.",
    ),
    "evidence": (
        "evidence",
        "Put together what shows an authority how requests were answered.",
    ),
    "exclusions": (
        "exclusions",
        "Write the tags that every later fit is checked against to a file.",
    ),
    "check": (
        "exclusions",
        "Check whether a table holds people who may be in no fit.",
    ),
    "expire": (
        "expiry",
        "Destroy records that were kept long enough, and enter it in the ledger.",
    ),
    "calendar": (
        "reports",
        "Write the days that must not be missed as a file for calendars (.ics).",
    ),
    "holds": (
        "reports",
        "List what is held or restricted, with reason and end.",
    ),
    "report": (
        "reports",
        "Count requests by kind, law, outcome and month, and how long answers took.",
    ),
    "processing": (
        "reports",
        "Write what a record of processing and a privacy notice can say of a model.",
    ),
    "alias import": (
        "aliases",
        "Import aliases of people from a table, all of them or none.",
    ),
    "alias find": ("aliases", "Print the id that each alias leads to, one per line."),
    "alias count": ("aliases", "Print how many aliases there are."),
    "alias remove": (
        "aliases",
        "Delete aliases, for instance of a number that changed hands.",
    ),
    "lake status": (
        "lake",
        "Show whether a model's files still hold people who left it.",
    ),
    "lake rewrite": ("lake", "Rewrite a model's files without the people who left."),
    "status": ("status", "Show models, requests and outdated releases."),
    "clock confirm": (
        "status",
        "Say that the machine's clock is right, so that what is due may end.",
    ),
    "trail": ("admin", "Print who looked and who acted, the newest first."),
    "log": (
        "admin",
        "Print the ledger, or export it to a file that anyone can verify.",
    ),
    "release": ("models", "Write a release to a file, or withdraw one."),
    "remove": ("models", "Retire a model, and destroy its rows and keys."),
    "verify": (
        "verify",
        "Check whether a receipt, ledger export or certificate is valid.",
    ),
    "audit": (
        "verify",
        "Open the private record behind a model's release, for an auditor.",
    ),
    "compact": (
        "admin",
        "Shorten the journal to what backups that still exist may need.",
    ),
    "rotate": ("admin", "Replace a key."),
    "reanchor": ("models", "Rebuild a model's private state from the remaining rows."),
    "restore": ("admin", "Restore the store from a backup, and forget again."),
    "serve": (
        "service",
        "Serve a registry: an API, a dashboard, and the protocols of privacy desks.",
    ),
    "token create": ("service", "Make a token, and print it."),
    "token trust": (
        "service",
        "Let a new token count where two people must decide; two must do this.",
    ),
    "token list": ("service", "List the tokens that have not expired."),
    "token revoke": ("service", "Revoke a token, so that it no longer works."),
    "webhook add": (
        "service",
        "Let a service call an address when something happens; print the secret.",
    ),
    "webhook list": ("service", "List the addresses that a service calls."),
    "webhook remove": (
        "service",
        "Stop calling an address; calls that still wait are given up.",
    ),
    "webhook deliveries": (
        "service",
        "List what was told to others, newest first: webhooks and callbacks.",
    ),
    "webhook replay": (
        "service",
        "Deliver something again, for instance after a receiver was repaired.",
    ),
    "drop import": (
        "drop",
        "Let people be found by the hashed identifiers of California's lists.",
    ),
    "drop match": (
        "drop",
        "Erase the people on deletion lists as one batch, and write the answers.",
    ),
    "drop download": ("drop", "Fetch the next deletion lists from the platform."),
    "drop upload": ("drop", "Send answers to deletion lists to the platform."),
    "drop status": ("drop", "Show by when lists must be answered and fetched."),
    "demo": (
        "demo",
        "Forget 20 of 50,000 people, check the receipts, and write a report.",
    ),
}
GROUPS = {
    "alias": "Manage aliases: other names of people, such as addresses.",
    "clock": "Settle doubts about the machine's clock.",
    "drop": "Answer California's deletion lists for data brokers (DROP).",
    "lake": "Manage the files that models read their rows from.",
    "token": "Manage the tokens with which others call a service.",
    "webhook": "Manage webhooks: whom a service calls when something happens.",
}


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
    for words, (_, text) in COMMANDS.items():
        *above, name = words.split()
        # Lists show the name and the text; ``resolve_command`` finds the rest.
        (groups[above[0]] if above else app).command(name, help=text)(lambda: None)


register_commands()
