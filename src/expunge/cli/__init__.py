# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, call the library once, print."""

import sys

from ..exceptions import MissingExtra, needing

__all__ = ["main"]

# The same as in ``common``, which cannot be imported without typer.
NOT_INSTALLED = 4


def main() -> None:
    """Run the command ``expunge``."""
    try:
        with needing("cli,registry,files", "the command line"):
            from .app import app
    except MissingExtra as error:
        sys.stderr.write(f"expunge: {error}\n")
        sys.exit(NOT_INSTALLED)
    app()
