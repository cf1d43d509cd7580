# SPDX-License-Identifier: Apache-2.0
"""Background: work that goes on in a thread of its own until the service ends."""

from abc import ABC, abstractmethod
from threading import Event, Thread


class BackgroundThread(ABC):
    """A thread that works until it is told to stop.

    Parameters
    ----------
    name
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with what was left to do."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it works."""
        return self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """Finish what is at hand, and end; wait no longer than this."""
        self._stop.set()
        self._thread.join(seconds)

    @abstractmethod
    def _run(self) -> None:
        """Work until ``_stop`` is set."""
