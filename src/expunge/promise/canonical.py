# SPDX-License-Identifier: Apache-2.0
"""Documents with one spelling, so that a hash or a signature of them means something.

A document is a frozen dataclass whose fields are checked when it is made. Its JSON is
the canonical form of RFC 8785 (JSON Canonicalization Scheme): UTF-8, no spaces, keys
sorted by their UTF-16 code units, numbers as ECMAScript prints a double, neither NaN
nor infinity. Any language that has this standard can therefore check our signatures.

JSON does not tell 1 from 1.0, so the *check* of a field decides its type: ``number``
always returns a float, ``count`` always an integer. Integers beyond 2^53 - 1, which a
double cannot hold exactly, are refused; write longer ones as strings.

Reading is strict: a field that is missing, unknown, given twice or of the wrong kind is
refused, as is another version. What is read and written again has the same bytes.

A ``Check`` turns a value into its immutable normal form, or raises ValueError with the
words "it must be ...". It also states the JSON Schema of what passes, from which
``json_schema`` describes whole documents for readers in other languages: in the order
of the class, with the words of its docstring. The files in ``expunge/schemas`` ship
with the package; a test compares them with what is generated here, and
``python -m tests.schemas`` renews them.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from hashlib import sha256
from importlib import resources
from json.encoder import encode_basestring
from math import inf, isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

from ..core.values import LARGEST_INTEGER, dumps, loads
from ..exceptions import InvalidInput

Schema: TypeAlias = Mapping[str, Any]

# Beyond it neighbouring integers are the same double (RFC 7493, section 2.2).


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one field's values.

    Parameters
    ----------
    normalise
        Returns the value in its normal form, or raises ValueError.
    schema
        JSON Schema of the values that pass, as JSON spells them.
    spell
        Returns the canonical JSON of a value in its normal form; by default ``dumps``.
        Those of parts make up that of the whole, so a document is joined from them.
    """

    normalise: Callable[[Any], Any]
    schema: Schema
    spell: Callable[[Any], str] = field(
        default_factory=lambda: dumps, kw_only=True, repr=False
    )

    def __call__(self, value: Any) -> Any:
        """Return the value in its normal form, or raise ValueError."""
        return self.normalise(value)


@dataclass(frozen=True, slots=True)
class Spelled(Check):
    """A check that also says how the values that pass it are spelled.

    Parameters
    ----------
    pattern
        Regular expression without groups, of the text within the quotes if it has any.
    read
        Returns the value that a matching text spells, or raises ValueError. What it
        returns passes the check as it is, and has no other spelling.
    quote
        What stands on both sides of the text: a quotation mark, or nothing.
    spell
        By default ``str`` between the quotes.
    """

    pattern: str
    read: Callable[[str], Any]
    quote: str = ""

    def __post_init__(self) -> None:
        """Spell values by their text, unless told otherwise."""
        if self.spell is dumps:
            spell = _quote if self.quote else str
            object.__setattr__(self, "spell", spell)

    @property
    def whole(self) -> str:
        """The pattern with its quotes."""
        return f"{self.quote}(?:{self.pattern}){self.quote}"

    @property
    def group(self) -> str:
        """The pattern with its quotes, and a group for what ``read`` takes."""
        return f"{self.quote}({self.pattern}){self.quote}"


class SpelledOnce:
    """What keeps its JSON: a head stands in thousands of receipts."""

    __slots__ = ("_text",)

    _text: str


@dataclass(frozen=True, slots=True, eq=False)
class Document(SpelledOnce):
    """A frozen record of checked fields with canonical JSON.

    Subclasses are frozen dataclasses with ``eq=False`` that give every field a check
    in ``checks``, "version" included. Documents with the same JSON are equal.
    """

    checks: ClassVar[Mapping[str, Check]]
    private: ClassVar[bool] = False
    """Whether error messages must leave values out."""

    def __post_init__(self) -> None:
        """Put every field into its normal form, or refuse it."""
        self._normalise({name: getattr(self, name) for name in self.checks})
        self.require_consistent()

    def replace(self, **changes: Any) -> Self:
        """Return the document with these fields changed; only they are checked."""
        changed = object.__new__(type(self))
        for name in self.checks:
            if name not in changes:
                object.__setattr__(changed, name, getattr(self, name))
        changed._normalise(changes)
        changed.require_consistent()
        return changed

    def _normalise(self, given: Mapping[str, Any]) -> None:
        """Give fields these values in their normal form, or refuse them."""
        put, name, value = object.__setattr__, "", None
        try:
            for name, value in given.items():
                put(self, name, self.checks[name].normalise(value))
        except ValueError as error:
            found = "" if self.private else f"={value!r}"
            raise InvalidInput(
                f"{type(self).__name__}: {name}{found}; {error}"
            ) from None

    def require_consistent(self) -> None:
        """Refuse fields that pass alone but contradict one another."""

    @classmethod
    def schema_rules(cls) -> Schema:
        """Return what its JSON Schema says of fields beside one another."""
        return {}

    def to_json(self) -> str:
        """Return the only spelling of this document."""
        try:
            return self._text
        except AttributeError:
            pass  # spelled now, for the first time
        kind: Any = type(self)
        spelled = [
            f'"{name}":{check.spell(getattr(self, name))}'
            for name, check in _sorted_checks(kind)
        ]
        object.__setattr__(self, "_text", f"{{{','.join(spelled)}}}")
        return self._text

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
        return sha256(self.to_json().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return NotImplemented
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Callable[[str], Self], tuple[str]]:
        return type(self).from_json, (self.to_json(),)


@cache
def _sorted_checks(kind: Any) -> list[tuple[str, Check]]:
    """Return the checks of a kind of document, in the order of its JSON."""
    return sorted((one.name, kind.checks[one.name]) for one in fields(kind))


def freeze(value: Any) -> Any:
    """Return plain JSON data as an immutable value, or raise ValueError.

    Mappings become read-only ones, sequences tuples, numbers int and finite float.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _freeze_text(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("it must have strings as keys")
        return MappingProxyType({_freeze_text(k): freeze(value[k]) for k in value})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, Integral):
        if abs(int(value)) > LARGEST_INTEGER:
            raise ValueError("it must hold no integer beyond 2^53 - 1")
        return int(value)
    if isinstance(value, Real):
        return number()(value)
    raise ValueError(f"it must be plain JSON data, and {type(value).__name__} is not")


def exactly(wanted: int) -> Spelled:
    """Return a check for one integer."""

    def normalise(value: Any) -> int:
        if isinstance(value, bool) or value != wanted or not isinstance(value, int):
            raise ValueError(f"it must be {wanted}")
        return wanted

    return Spelled(normalise, {"const": wanted}, str(wanted), int)


def one_of(*words: str) -> Spelled:
    """Return a check for one of these words."""

    def normalise(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"it must be one of {', '.join(map(repr, words))}")
        return value

    schema = {"enum": list(words)} if len(words) > 1 else {"const": words[0]}
    spelled = {dumps(word)[1:-1]: word for word in words}
    pattern = "|".join(map(re.escape, spelled))
    return Spelled(
        normalise, schema, pattern, spelled.__getitem__, '"', spell=encode_basestring
    )


def optional(check: Check) -> Check:
    """Return the check with None (null) let through."""

    def normalise(value: Any) -> Any:
        return None if value is None else check(value)

    schema = dict(check.schema)
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    else:
        schema["type"] = [schema["type"], "null"]

    def spell(value: Any) -> str:
        return "null" if value is None else check.spell(value)

    return Check(normalise, schema, spell=spell)


def count(least: int) -> Spelled:
    """Return a check for an integer that is at least ``least``."""

    def normalise(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"it must be an integer, at least {least}")
        if int(value) > LARGEST_INTEGER:
            raise ValueError("it must be an integer, at most 2^53 - 1")
        return int(value)

    def read(text: str) -> int:
        return normalise(int(text))

    schema = {"type": "integer", "minimum": least, "maximum": LARGEST_INTEGER}
    # All of these are in range and none is below zero. Longer ones are spelled too,
    # but not read at a glance.
    pattern = "0|[1-9][0-9]{0,14}"
    return Spelled(normalise, schema, pattern, int if least <= 0 else read)


def number(above: float = -inf, below: float = inf, *, closed: bool = False) -> Check:
    """Return a check for a finite number in an interval; ``closed`` below."""
    bound = f"{'at least' if closed else 'above'} {above:g} and below {below:g}"

    def normalise(value: Any) -> float:
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

    schema: dict[str, Any] = {"type": "number"}
    if isfinite(above):
        schema["minimum" if closed else "exclusiveMinimum"] = above
    if isfinite(below):
        schema["exclusiveMaximum"] = below
    return Check(normalise, schema)


def hexadecimal(n_bytes: int) -> Spelled:
    """Return a check for this many bytes in lower-case hexadecimal."""
    pattern = re.compile(rf"[0-9a-f]{{{2 * n_bytes}}}")

    def normalise(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"it must be {n_bytes} bytes in lower-case hexadecimal")
        return value

    schema = {"type": "string", "pattern": f"^{pattern.pattern}$"}
    return Spelled(normalise, schema, pattern.pattern, str, '"')


def _quote(text: str) -> str:
    """Return the JSON of text in which nothing needs an escape."""
    return f'"{text}"'


def _freeze_text(text: str) -> str:
    """Return text that UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it must hold no lone surrogates") from None
    return text


def _freeze_sentence(value: Any) -> str:
    """Return a sentence that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("it must be a sentence")
    return _freeze_text(value)


def _freeze_sentences(value: Any) -> tuple[str, ...]:
    """Return a sequence of sentences."""
    if not isinstance(value, list | tuple):
        raise ValueError("it must be a list of sentences")
    return tuple(map(_freeze_sentence, value))


sentence = Check(_freeze_sentence, {"type": "string", "pattern": "\\S"})
sentences = Check(_freeze_sentences, {"type": "array", "items": sentence.schema})


DIALECT = "https://json-schema.org/draft/2020-12/schema"
SPELLING = (
    "Signatures and hashes are of its canonical JSON by RFC 8785. A document of this "
    "shape may still contradict itself or be forged: that is for expunge to check."
)


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema that ships for "certificate" or "receipt"."""
    file = resources.files("expunge") / "schemas" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def publish_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, as it is to be shipped."""
    name, version = kind.__name__.lower(), kind.checks["version"].schema["const"]
    return {
        "$schema": DIALECT,
        "title": f"expunge {name}, version {version}",
        **json_schema(kind),
        "description": f"{_summary(kind)} {SPELLING}",
    }


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, to stand within another."""
    words = {name: text for base in kind.__mro__[::-1] for name, text in _words(base)}
    names = [field.name for field in fields(kind)]
    return {
        "description": _summary(kind),
        "type": "object",
        "additionalProperties": False,
        "required": sorted(names),
        "properties": {
            # What the field means comes before what its type is in general.
            name: _describe(kind.checks[name].schema, words.get(name, ""))
            for name in sorted(names)
        },
        **kind.schema_rules(),
    }


def _describe(schema: Schema, text: str) -> dict[str, Any]:
    """Return the schema of a field with its description first, if there is one."""
    described = {"description": text} if text else {}
    return {**described, **schema, **described}


def _summary(kind: type) -> str:
    """Return the first paragraph of a class's docstring."""
    return _plain(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0])


def _words(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a class with what its docstring says of each."""
    text = inspect.cleandoc(kind.__doc__ or "")
    _, _, section = text.partition("Parameters\n----------\n")
    names: list[str] = []
    said: list[str] = []
    for line in [*section.splitlines(), "end"]:
        if line.startswith(" "):
            said.append(line.strip())
        elif line:
            yield from ((name, _plain(" ".join(said))) for name in names)
            names, said = line.split(", "), []


def _plain(text: str) -> str:
    """Return a docstring's text on one line and without its markup."""
    return " ".join(text.replace("``", "").split())
