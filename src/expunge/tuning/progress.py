# SPDX-License-Identifier: Apache-2.0
"""A bar on the terminal while a grid is fitted."""

import sys
import threading
from typing import TextIO

WIDTH = 30


class Bar:
    """Counts what is done and, if asked to, draws it on standard error.

    Safe to call from several threads.
    """

    def __init__(self, total: int, label: str, *, shown: bool) -> None:
        self.total, self.label, self.shown = total, label, shown
        self.done = 0
        self.lock = threading.Lock()

    def __call__(self) -> None:
        """Count one more."""
        with self.lock:
            self.done += 1
            if self.shown:
                self._draw(sys.stderr)

    def _draw(self, stream: TextIO) -> None:
        """Draw the bar over the last one; end the line when all is done."""
        filled = WIDTH * self.done // self.total
        bar = "#" * filled + "." * (WIDTH - filled)
        end = "\n" if self.done == self.total else ""
        stream.write(f"\r{self.label} [{bar}] {self.done}/{self.total}{end}")
        stream.flush()
