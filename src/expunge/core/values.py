# SPDX-License-Identifier: Apache-2.0
"""Values: which may be written, in what spelling, and which stay private.

JSON text has one spelling, the canonical form of RFC 8785, and is read strictly. The
spelling of a mapping or a list is made up of the spellings of its parts, so what is
known of them need not be computed again.

``Private`` is the base of noise-free values. They show no figure when printed or
in a notebook, and cannot be pickled or deep-copied, so none slips out in a log line, a
saved notebook, an error, a cache or a queue.

Nothing here needs an array: what only takes requests in does not wait for SciPy.
"""

import json
import re
from collections.abc import Mapping
from importlib import import_module
from json.encoder import encode_basestring
from typing import Any, NoReturn, SupportsIndex, TypeVar

import rfc8785

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

LARGEST_INTEGER = 2**53 - 1  # that a double holds exactly, as JSON numbers are
DEEPEST = 64  # objects and lists inside one another

_STORED: dict[str, type] = {}
STORED_LATER: list[str] = []
"""Modules that take long to import: they are imported for a class that nobody knows."""


def stored(kind: Class) -> Class:
    """Mark a dataclass, or a document, as one that files may hold.

    A file names it by its class alone, so that two classes of one name cannot both be
    read. Import the module that defines a class before you load a file that holds it.
    """
    marked = _STORED.get(kind.__name__, kind)
    if (marked.__module__, marked.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InvalidInput(
            f"a class {kind.__name__} of {marked.__module__} is marked as stored "
            "already; give yours another name"
        )
    _STORED[kind.__name__] = kind
    return kind


def stored_kinds() -> Mapping[str, type]:
    """Return the classes that files may hold, by name."""
    return _STORED


def stored_kind(name: str) -> Any:
    """Return the class of this name, from a module of ``STORED_LATER`` if need be."""
    while name not in _STORED and STORED_LATER:
        import_module(STORED_LATER.pop())
    if name not in _STORED:
        raise LookupError(
            f"no class {name} is marked @expunge.stored; import the module that "
            "defines it, then load the file"
        )
    return _STORED[name]


class Spelled:
    """What knows its own canonical JSON, and keeps it."""

    __slots__ = ("_text",)

    _text: str

    def to_json(self) -> str:
        """Return the only spelling of this value."""
        return self._text


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


def dumps(value: object) -> str:
    """Return the canonical JSON (RFC 8785) of mappings, sequences and plain values.

    Bytes are written in hexadecimal, and what spells itself as it does. Raises
    InvalidInput for what has no spelling.
    """
    try:
        text = spell(value)
        text.encode()
        return text
    except UnicodeEncodeError:
        reason = "it holds text with lone surrogates"
    except rfc8785.IntegerDomainError:
        reason = "an integer is beyond 2^53 - 1; write it as a string"
    except rfc8785.FloatDomainError:
        reason = "a number is NaN or infinite"
    except rfc8785.CanonicalizationError:
        reason = "it holds something that is not JSON"
    # The errors above quote the value, which may be private.
    raise InvalidInput(f"this cannot be written as canonical JSON: {reason}")


def spell(value: Any) -> str:
    """Return the canonical JSON of a value that was checked, see ``dumps``.

    Python's own encoder of strings escapes what RFC 8785 does, and nothing else. The
    package of that name writes numbers, and refuses what is no JSON.
    """
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is int and -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        return str(value)
    if kind is list or kind is tuple:
        return f"[{','.join(map(spell, value))}]"
    if isinstance(value, Spelled):
        return value.to_json()
    if kind is dict or isinstance(value, Mapping):
        # Of ASCII the code units are the letters.
        plain = all(type(name) is str and name.isascii() for name in value)
        names = sorted(value) if plain else sorted(value, key=_utf16)
        inner = [f"{encode_basestring(name)}:{spell(value[name])}" for name in names]
        return f"{{{','.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(spell, value))}]"
    if kind is bytes or isinstance(value, bytes):
        return f'"{value.hex()}"'
    if kind is float and 1e-4 <= abs(value) < 1e16:
        # Digits and a point in both languages, but for a zero after it.
        return repr(value).removesuffix(".0")
    return rfc8785.dumps(value).decode()


def _utf16(name: Any) -> bytes:
    """Return what the names of fields are sorted by: their UTF-16 code units."""
    if not isinstance(name, str):
        raise rfc8785.CanonicalizationError("a name that is not text")
    return name.encode("utf-16-be")


def loads(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the one JSON object in the text, or raise InvalidInput.

    Integers beyond 2^53 - 1 come back as floats: only a float is spelled like that.
    """
    try:
        if not isinstance(text, str):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        require_shallow(text)
        fields = _STRICT.decode(text)
    except ValueError as error:
        # The error of the parser quotes positions, never the text.
        raise InvalidInput(f"{name}: not a JSON document: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidInput(f"{name}: the JSON must be an object with named fields")
    return fields


def require_shallow(text: str) -> None:
    """Raise ValueError if JSON is nested deeper than the checker in a browser reads.

    What Python's own readers take depends on its version, and both must agree.
    """
    if text.count("{") + text.count("[") <= DEEPEST:
        return
    depth = 0
    for one in _BRACKETS.findall(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(one, 0)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key given twice: readers would differ on which one counts."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _read_integer(text: str) -> int | float:
    """Return the number that digits spell: a float where an integer is refused."""
    real = float(text)
    return int(text) if abs(real) <= LARGEST_INTEGER else real


# A bracket, or a whole text, whose brackets are none.
_BRACKETS = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRICT = json.JSONDecoder(
    object_pairs_hook=refuse_duplicates,
    parse_constant=_refuse_constant,
    parse_int=_read_integer,
)
