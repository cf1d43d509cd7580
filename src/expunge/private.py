# SPDX-License-Identifier: Apache-2.0
"""Private: what noise-free values, and those who hold them, have in common.

Values show no figure when printed and cannot be pickled or deep-copied, so that none
travels by accident in a log line, an error, a cache or a queue.
"""

import threading
from typing import NoReturn, SupportsIndex


class OneWriter:
    """Something that threads share, and one of them at a time may change."""

    @property
    def _writing(self) -> threading.RLock:
        """The lock to hold while changing anything; it belongs to this object."""
        # One call that no thread can divide: two first users get the same lock.
        lock: threading.RLock = self.__dict__.setdefault("_lock", threading.RLock())
        return lock


class Private:
    """A value that stays in the process that made it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError(
            f"{type(self).__name__} is private and noise-free: it cannot be pickled "
            "or copied; only a release may leave"
        )
