# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, call the library once, print."""

import sys

__all__ = ["main"]

# The same as in ``options``, which cannot be imported without typer.
NOT_INSTALLED = 4


def main() -> None:
    """Run the command ``expunge``."""
    try:
        from .app import app
    except ImportError as error:
        sys.stderr.write(
            f"expunge: the command line needs {error.name}, which is not installed; "
            "run pip install expunge[cli]\n"
        )
        sys.exit(NOT_INSTALLED)
    app()
