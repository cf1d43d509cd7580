# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the command line, and the failures that end with them."""

DONE = 0
UNEXPECTED = 1
DATA_MISSING = 3
NOT_INSTALLED = 4
INTERRUPTED = 130


class Failed(Exception):
    """A command could not be performed, for a reason that the user can mend."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
