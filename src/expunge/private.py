# SPDX-License-Identifier: Apache-2.0
"""Private: what noise-free values have in common.

They show no figure when printed and cannot be pickled or deep-copied, so that none
travels by accident in a log line, an error, a cache or a queue.
"""

from typing import NoReturn, SupportsIndex


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
