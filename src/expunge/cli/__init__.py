# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, one call, print."""

__all__ = ["main"]


def main() -> None:
    """Run the command ``expunge``."""
    try:
        from .app import app
    except ImportError as error:
        raise SystemExit(
            f"expunge: the command line needs {error.name}, which is not installed; "
            "run pip install expunge[cli]"
        ) from None
    app()
