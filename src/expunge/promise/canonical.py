# SPDX-License-Identifier: Apache-2.0
"""Canonical: documents with one spelling, so that a hash of them means something.

A document is a frozen dataclass whose fields are checked when it is made, and whose
JSON is unique: keys sorted, no spaces, ASCII alone, each number as its shortest decimal
that reads back the same, neither NaN nor infinity. Reading is strict: a field missing,
unknown, given twice or of the wrong kind is refused, as is another version. What is
read and written again has the same bytes.

A field's check turns a value into its normal form, which is immutable, or raises
ValueError with the words "it must be ...".
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from math import inf, isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

from ..exceptions import InvalidInput

Check: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Spelled:
    """A check that says how the values that pass it are spelled in canonical JSON.

    Parameters
    ----------
    check
        The check.
    pattern
        Regular expression without groups, of the text within the quotes if it has any.
    read
        Returns the value that a matching text spells, or raises ValueError. What it
        returns passes the check as it is, and has no other spelling.
    quote
        What stands on both sides of the text: a quotation mark, or nothing.
    """

    check: Check
    pattern: str
    read: Callable[[str], Any]
    quote: str = ""

    @property
    def whole(self) -> str:
        """The pattern with its quotes."""
        return f"{self.quote}(?:{self.pattern}){self.quote}"

    @property
    def group(self) -> str:
        """The pattern with its quotes, and a group for what ``read`` takes."""
        return f"{self.quote}({self.pattern}){self.quote}"

    def __call__(self, value: Any) -> Any:
        """Return the value in its normal form, or raise ValueError."""
        return self.check(value)


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A frozen record of checked fields with canonical JSON.

    Subclasses are frozen dataclasses with ``eq=False`` that give every field a check
    in ``checks``, "version" included. Documents with the same JSON are equal.
    """

    checks: ClassVar[Mapping[str, Check]]
    private: ClassVar[bool] = False
    """Whether error messages must leave values out."""

    def __post_init__(self) -> None:
        """Put every field into its normal form, or refuse it."""
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                normal = self.checks[field.name](value)
            except ValueError as error:
                found = "" if self.private else f"={value!r}"
                raise InvalidInput(
                    f"{type(self).__name__}: {field.name}{found}; {error}"
                ) from None
            object.__setattr__(self, field.name, normal)
        self.require_consistent()

    def require_consistent(self) -> None:
        """Refuse fields that pass by themselves and not beside one another."""

    def to_json(self) -> str:
        """Return the only spelling of this document."""
        return dumps({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the document that the text spells; refuse anything in doubt.

        Spaces and the order of keys do not matter, so that a person may lay a
        document out for reading; ``digest`` speaks of the canonical spelling.
        """
        found = loads(text, cls.__name__)
        names = [field.name for field in fields(cls)]
        try:
            cls.checks["version"](found.get("version"))
        except ValueError as error:
            raise InvalidInput(
                f"{cls.__name__}: version {found.get('version')!r}; {error}; read it "
                "with the expunge that wrote it, or a newer one"
            ) from None
        missing = sorted(set(names) - set(found))
        unknown = sorted(set(found) - set(names))
        if missing or unknown:
            raise InvalidInput(
                f"{cls.__name__}: missing fields {missing}, unknown fields {unknown}; "
                "a document holds exactly the fields of its version"
            )
        return cls(**found)

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON, in hexadecimal."""
        return sha256(self.to_json().encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return NotImplemented
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Callable[[str], Self], tuple[str]]:
        return type(self).from_json, (self.to_json(),)


def dumps(value: object) -> str:
    """Return the canonical JSON of mappings, sequences and plain values."""
    return _ENCODER.encode(value)


def loads(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the one JSON object in the text, or raise InvalidInput."""
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        # The error of the parser quotes positions, never the text.
        raise InvalidInput(f"{name}: not a JSON document: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{name}: the JSON must be an object with named fields")
    return found


def frozen(value: Any) -> Any:
    """Return plain JSON data as an immutable value.

    Mappings become read-only ones, sequences tuples, numbers int and finite float.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("it must have words as keys")
        return MappingProxyType({key: frozen(value[key]) for key in value})
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return number()(value)
    raise ValueError(f"it must be plain JSON data, and {type(value).__name__} is not")


def exactly(wanted: int) -> Spelled:
    """Return a check for one integer."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or value != wanted or not isinstance(value, int):
            raise ValueError(f"it must be {wanted}")
        return wanted

    return Spelled(check, str(wanted), int)


def one_of(*words: str) -> Spelled:
    """Return a check for one of these words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"it must be one of {', '.join(map(repr, words))}")
        return value

    spelled = {dumps(word)[1:-1]: word for word in words}
    return Spelled(check, "|".join(map(re.escape, spelled)), spelled.__getitem__, '"')


def optional(check: Check) -> Check:
    """Return the check with None (null) let through."""

    def checked(value: Any) -> Any:
        return None if value is None else check(value)

    return checked


def count(least: int) -> Spelled:
    """Return a check for an integer that is at least so large."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"it must be an integer, at least {least}")
        return int(value)

    def read(text: str) -> int:
        return check(int(text))

    # None below zero is spelled so. Longer ones are not read at a glance.
    return Spelled(check, "0|[1-9][0-9]{0,17}", int if least <= 0 else read)


def number(above: float = -inf, below: float = inf, *, closed: bool = False) -> Check:
    """Return a check for a finite number in an interval; ``closed`` below."""
    bound = f"{'at least' if closed else 'above'} {above:g} and below {below:g}"

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"it must be a number {bound}")
        try:
            real = float(value)
        except OverflowError:
            real = inf
        inside = above <= real < below and (closed or real != above)
        if not (isfinite(real) and inside):
            raise ValueError(f"it must be a finite number {bound}")
        return real + 0.0  # minus zero has no spelling of its own

    return check


def sentences(value: Any) -> tuple[str, ...]:
    """Check for a sequence of sentences, none empty."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item.strip() for item in value
    ):
        raise ValueError("it must be a list of sentences")
    return tuple(value)


def hexadecimal(n_bytes: int) -> Spelled:
    """Return a check for the lower-case hexadecimal of so many bytes."""
    pattern = re.compile(rf"[0-9a-f]{{{2 * n_bytes}}}")

    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"it must be {n_bytes} bytes in lower-case hexadecimal")
        return value

    return Spelled(check, pattern.pattern, str, '"')


def _plain(value: Any) -> Any:
    """Return what the JSON library does not know as something that it does."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} is not plain JSON data")


_ENCODER = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=True,
    allow_nan=False,
    default=_plain,
)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key given twice: readers would differ on which one counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
