# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, one call, print."""

import sys

from .options import NOT_INSTALLED

__all__ = ["main"]


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
