# SPDX-License-Identifier: Apache-2.0
"""Values: which files may hold, which stay private, and the range of their factors.

``Private`` is the base of noise-free values. They show no figure when printed or
in a notebook, and cannot be pickled or deep-copied, so none slips out in a log line, a
saved notebook, an error, a cache or a queue.

Nothing here needs an array: what only takes requests in does not wait for SciPy.
"""

from collections.abc import Mapping
from typing import Any, NoReturn, SupportsIndex, TypeVar

from ..display.cards import make_private_card
from ..exceptions import InvalidInput

Value = TypeVar("Value")
Class = TypeVar("Class", bound=type)

SMALLEST, LARGEST = 1e-50, 1e50
# The smallest normal number. A product that falls below it is off by 2^-1075 at most,
# so that this pays for 2^53 of them.
UNDERFLOW = 2.0**-1022
# Metadata of a field that is not written, and gets its default when it is read.
NOT_STORED: Mapping[str, Any] = {"stored": False}

_STORED: dict[str, type] = {}


def stored(kind: Class) -> Class:
    """Mark a dataclass, or a document, as one that files may hold."""
    _STORED[kind.__name__] = kind
    return kind


def stored_kinds() -> Mapping[str, type]:
    """Return the classes that files may hold, by name."""
    return _STORED


class Private:
    """A value that stays in the process that made it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"

    def _repr_html_(self) -> str:
        return make_private_card(type(self).__name__).to_html()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError(
            f"{type(self).__name__} is private and noise-free: it cannot be pickled "
            "or copied; only a release may leave"
        )


def replace_fields(value: Value, **changes: object) -> Value:
    """Return a frozen dataclass with these fields changed, for one without checks.

    What ``dataclasses.replace`` does, at a tenth of the time: a removal is as fast as
    the few microseconds around its products. Such a class has no slots, because a
    dictionary of fields is copied at once.
    """
    kind: Any = type(value)
    new: Value = object.__new__(kind)
    object.__setattr__(new, "__dict__", vars(value) | changes)
    return new


def require_magnitude(name: str, value: float) -> None:
    """Raise InvalidInput unless a factor lies in the range of what is taken."""
    if not SMALLEST <= value <= LARGEST:
        raise InvalidInput(
            f"{name}={value}; it must be between {SMALLEST:g} and {LARGEST:g}"
        )
