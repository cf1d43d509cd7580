# SPDX-License-Identifier: Apache-2.0
"""The manual of the command line: what it quotes is what the commands say.

``python -m tests.cli_page`` renews the quotations in docs/commands.md.
"""

import re
from pathlib import Path

from typer.testing import CliRunner

from expunge.cli.app import app

PAGE = Path(__file__).parents[1] / "docs/commands.md"
GUIDE = PAGE.with_name("cli.md")
QUOTED = re.compile(r"^```text\n\$ expunge ([a-z ]*)--help\n.*?^```$", re.M | re.S)


def help_of(words: str) -> str:
    """Return what a command says of itself, in 80 columns."""
    call = [*words.split(), "--help"]
    done = CliRunner().invoke(app, call, env={"COLUMNS": "80"}, prog_name="expunge")
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def renewed(page: str) -> str:
    """Return the page with every quotation as the command says it now."""
    return QUOTED.sub(
        lambda found: f"```text\n$ expunge {found[1]}--help\n{help_of(found[1])}\n```",
        page,
    )


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
