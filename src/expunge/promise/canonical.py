# SPDX-License-Identifier: Apache-2.0
"""Documents with one spelling, so that a hash or a signature of them means something.

A document is a frozen dataclass, and the annotation of a field is all that is said of
its values:

    epsilon: NotNegative | None
    certificates: Mapping[ModelName, Digest]

``check_of`` reads an annotation and returns a ``Check``, which puts a value into its
immutable normal form or refuses it, and states the JSON Schema of what passes. What a
field means is in the docstring of the class. From both ``json_schema`` describes
documents for readers in other languages. The files in ``expunge/schemas`` ship with the
package; a test compares them with what is generated, and ``python -m tests.schemas``
renews them.

The JSON of a document is the canonical form of RFC 8785 (JSON Canonicalization Scheme):
UTF-8, no spaces, keys sorted by their UTF-16 code units, numbers as ECMAScript prints a
double, neither NaN nor infinity. Any language that has this standard can therefore
check our signatures. JSON does not tell 1 from 1.0, so the check of a field decides its
type. Integers beyond 2^53 - 1, which a double cannot hold exactly, are refused (RFC
7493, section 2.2); write longer ones as strings.

Reading is strict: a field that is missing, unknown, given twice or of the wrong kind is
refused, as is another version. What is read and written again has the same bytes.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from importlib import resources
from math import inf, isfinite
from numbers import Integral, Real
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ..core.values import LARGEST_INTEGER, Spelled, loads, spell
from ..exceptions import InvalidInput

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A check of one field's values.

    Parameters
    ----------
    normalise
        Returns the value in its normal form, or raises ValueError with the words "it
        must be ...".
    schema
        JSON Schema of the values that pass, as JSON spells them.
    """

    normalise: Callable[[Any], Any]
    schema: Schema

    def __call__(self, value: Any) -> Any:
        """Return the value in its normal form, or raise ValueError."""
        return self.normalise(value)


def check_of(stated: Any) -> Check:
    """Return the check that an annotation states."""
    origin, parts = get_origin(stated), get_args(stated)
    if origin is Annotated and isinstance(parts[1], Check):
        return parts[1]
    if origin is Literal:
        return one_of(*parts)
    if origin in (Union, UnionType) and len(parts) == 2 and parts[1] is NoneType:
        return optional(check_of(parts[0]))
    if origin is tuple and parts[-1] is Ellipsis:
        return list_of(check_of(parts[0]))
    if origin is tuple:
        return tuple_of(*map(check_of, parts))
    if origin is Mapping:
        return mapping_of(*map(check_of, parts))
    if isinstance(stated, type) and issubclass(stated, Document):
        return document_of(stated)
    raise TypeError(f"{stated} states no check of the values of a document")


_CHECKS: dict[type, Mapping[str, Check]] = {}


def checks_of(kind: Any) -> Mapping[str, Check]:
    """Return the checks of a kind of document by field, in the order of its JSON."""
    if kind not in _CHECKS:
        stated = get_type_hints(kind, include_extras=True)
        names = sorted(field.name for field in fields(kind))
        _CHECKS[kind] = {name: check_of(stated[name]) for name in names}
    return _CHECKS[kind]


@dataclass(frozen=True, slots=True, eq=False)
class Document(Spelled):
    """A frozen record of checked fields with canonical JSON.

    Subclasses are frozen dataclasses with ``eq=False``, of whose fields "version" is
    one. Documents with the same JSON are equal.
    """

    private: ClassVar[bool] = False
    """Whether error messages must leave values out."""

    def __post_init__(self) -> None:
        """Put every field into its normal form, or refuse it."""
        self._put({name: getattr(self, name) for name in checks_of(type(self))})

    def replace(self, **changes: Any) -> Self:
        """Return the document with these fields changed; only they are checked."""
        changed = object.__new__(type(self))
        for name in checks_of(type(self)).keys() - changes.keys():
            object.__setattr__(changed, name, getattr(self, name))
        changed._put(changes)
        return changed

    def _put(self, given: Mapping[str, Any]) -> None:
        """Give fields these values in their normal form, or refuse them."""
        put, checks, name, value = object.__setattr__, checks_of(type(self)), "", None
        try:
            for name, value in given.items():
                put(self, name, checks[name].normalise(value))
        except ValueError as error:
            shown = "" if self.private else f"={value!r}"
            raise InvalidInput(
                f"{type(self).__name__}: {name}{shown}; {error}"
            ) from None
        self.require_consistent()

    def require_consistent(self) -> None:
        """Refuse fields that pass alone but contradict one another."""

    @classmethod
    def schema_rules(cls) -> Schema:
        """Return what its JSON Schema says of fields beside one another."""
        return {}

    def to_json(self) -> str:
        """Return the only spelling of this document."""
        text: str = getattr(self, "_text", "")
        if not text:
            stated = [f'"{n}":{spell(getattr(self, n))}' for n in checks_of(type(self))]
            text = f"{{{','.join(stated)}}}"
            object.__setattr__(self, "_text", text)
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the document that the text spells; refuse anything in doubt.

        Spaces and the order of keys do not matter, so that a person may lay a
        document out for reading; ``digest`` speaks of the canonical spelling.
        """
        return cls.from_fields(loads(text, cls.__name__))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the document with these fields, as JSON has them."""
        checks = checks_of(cls)
        try:
            checks["version"].normalise(fields.get("version"))
        except ValueError as error:
            raise InvalidInput(
                f"{cls.__name__}: version {fields.get('version')!r}; {error}; read it "
                "with the expunge that wrote it, or a newer one"
            ) from None
        if fields.keys() != checks.keys():
            missing = sorted(checks.keys() - fields.keys())
            unknown = sorted(fields.keys() - checks.keys())
            raise InvalidInput(
                f"{cls.__name__}: missing fields {missing}, unknown fields {unknown}; "
                "a document holds exactly the fields of its version"
            )
        document = object.__new__(cls)
        document._put(fields)
        return document

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


def _must(holds: object, words: str) -> None:
    """Raise ValueError unless a value is as it must be."""
    if not holds:
        raise ValueError(f"it must {words}")


def one_of(*words: str | int) -> Check:
    """Return a check for one of these words, or for one integer."""
    listed = ", ".join(map(repr, words))
    must = f"be one of {listed}" if len(words) > 1 else f"be {listed}"
    kind = type(words[0])

    def normalise(value: Any) -> Any:
        _must(isinstance(value, kind) and not isinstance(value, bool), must)
        _must(value in words, must)
        return value

    schema = {"enum": list(words)} if len(words) > 1 else {"const": words[0]}
    return Check(normalise, schema)


def optional(check: Check) -> Check:
    """Return the check with None (null) let through."""
    schema = dict(check.schema)
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    else:
        schema["type"] = [schema["type"], "null"]
    return Check(lambda value: None if value is None else check(value), schema)


def count(least: int) -> Check:
    """Return a check for an integer that is at least ``least``."""
    must = f"be an integer from {least} to 2^53 - 1"

    def normalise(value: Any) -> int:
        _must(isinstance(value, Integral) and not isinstance(value, bool), must)
        _must(least <= value <= LARGEST_INTEGER, must)
        return int(value)

    schema = {"type": "integer", "minimum": least, "maximum": LARGEST_INTEGER}
    return Check(normalise, schema)


def number(above: float = -inf, below: float = inf, *, closed: bool = False) -> Check:
    """Return a check for a finite number in an interval; ``closed`` below."""
    bound = f"{'at least' if closed else 'above'} {above:g} and below {below:g}"

    def normalise(value: Any) -> float:
        real = isinstance(value, Real) and not isinstance(value, bool)
        _must(real, f"be a number {bound}")
        try:
            real_value = float(value)
        except OverflowError:
            real_value = inf
        inside = above <= real_value < below and (closed or real_value != above)
        _must(isfinite(real_value) and inside, f"be a finite number {bound}")
        return real_value + 0.0  # minus zero has no spelling of its own

    schema: dict[str, Any] = {"type": "number"}
    if isfinite(above):
        schema["minimum" if closed else "exclusiveMinimum"] = above
    if isfinite(below):
        schema["exclusiveMaximum"] = below
    return Check(normalise, schema)


def matching(pattern: str, must: str) -> Check:
    """Return a check for text that matches a pattern: it must be such and such."""
    whole = re.compile(pattern)

    def normalise(value: Any) -> str:
        _must(isinstance(value, str) and whole.fullmatch(value), f"be {must}")
        return str(value)

    return Check(normalise, {"type": "string", "pattern": f"^{pattern}$"})


def hexadecimal(n_bytes: int) -> Check:
    """Return a check for this many bytes in lower-case hexadecimal."""
    must = f"{n_bytes} bytes in lower-case hexadecimal"
    return matching(f"[0-9a-f]{{{2 * n_bytes}}}", must)


def list_of(check: Check) -> Check:
    """Return a check for a list of checked values."""

    def normalise(value: Any) -> tuple[Any, ...]:
        _must(isinstance(value, list | tuple), "be a list")
        return tuple(map(check.normalise, value))

    return Check(normalise, {"type": "array", "items": check.schema})


def tuple_of(*checks: Check) -> Check:
    """Return a check for a list of so many values, each with a check of its own."""
    size = len(checks)

    def normalise(value: Any) -> tuple[Any, ...]:
        fits = isinstance(value, list | tuple) and len(value) == size
        _must(fits, f"be a list of {size} values")
        return tuple(check(part) for check, part in zip(checks, value, strict=True))

    return Check(normalise, {"prefixItems": [check.schema for check in checks]})


def mapping_of(names: Check, check: Check) -> Check:
    """Return a check for a mapping from checked names to checked values."""

    def normalise(value: Any) -> Mapping[str, Any]:
        _must(isinstance(value, Mapping), "be a mapping from names")
        return MappingProxyType({names(key): check(value[key]) for key in value})

    schema = {
        "type": "object",
        "propertyNames": names.schema,
        "additionalProperties": check.schema,
    }
    return Check(normalise, schema)


def document_of(kind: type[Document]) -> Check:
    """Return a check for a document inside another, whose schema is its own."""

    def normalise(value: Any) -> Document:
        if isinstance(value, kind):
            return value
        _must(isinstance(value, Mapping), f"be a {kind.__name__}")
        return kind.from_fields(value)

    return Check(normalise, {"$ref": f"{kind.__name__.lower()}.json"})


def freeze(value: Any) -> Any:
    """Return plain JSON data as an immutable value, or raise ValueError.

    Mappings become read-only ones, sequences tuples, numbers int and finite float.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _freeze_text(value)
    if isinstance(value, Mapping):
        _must(all(isinstance(key, str) for key in value), "have strings as keys")
        return MappingProxyType({_freeze_text(k): freeze(value[k]) for k in value})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, Integral):
        beyond = abs(int(value)) > LARGEST_INTEGER
        _must(not beyond, "hold no integer beyond 2^53 - 1")
        return int(value)
    if isinstance(value, Real):
        return _NUMBER(value)
    raise ValueError(f"it must be plain JSON data, and {type(value).__name__} is not")


def _freeze_text(value: Any) -> str:
    """Return text that UTF-8 can hold."""
    _must(isinstance(value, str), "be text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("it must hold no lone surrogates") from None
    return str(value)


def _freeze_sentence(value: Any) -> str:
    """Return a sentence that is not empty."""
    _must(isinstance(value, str) and value.strip(), "be a sentence")
    return _freeze_text(value)


_NUMBER = number()

Count: TypeAlias = Annotated[int, count(0)]
OneOrMore: TypeAlias = Annotated[int, count(1)]
NotNegative: TypeAlias = Annotated[float, number(0.0, closed=True)]
Positive: TypeAlias = Annotated[float, number(0.0)]
Share: TypeAlias = Annotated[float, number(0.0, 1.0)]
Text: TypeAlias = Annotated[str, Check(_freeze_text, {"type": "string"})]
Sentence: TypeAlias = Annotated[
    str, Check(_freeze_sentence, {"type": "string", "pattern": "\\S"})
]
# SHA-256 in hexadecimal: of a document, of a tree, of a key.
Digest: TypeAlias = Annotated[str, hexadecimal(32)]


DIALECT = "https://json-schema.org/draft/2020-12/schema"
SPELLING = (
    "Signatures and hashes are of its canonical JSON by RFC 8785. A document of this "
    "shape may still contradict itself or be forged: that is for expunge to check."
)


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema that ships for "certificate" or "receipt"."""
    file = resources.files("expunge") / "schemas" / f"{name}.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def publish_schema(kind: type, schema: Schema) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, as it is to be shipped."""
    name, version = kind.__name__.lower(), schema["properties"]["version"]["const"]
    return {
        "$schema": DIALECT,
        "title": f"expunge {name}, version {version}",
        **schema,
        "description": f"{schema['description']} {SPELLING}",
    }


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, for use within another."""
    rules = {name: check.schema for name, check in checks_of(kind).items()}
    return describe(kind, rules) | dict(kind.schema_rules())


def describe(kind: type, rules: Mapping[str, Schema]) -> dict[str, Any]:
    """Return a JSON Schema by those of the fields, with the words of the docstrings."""
    words = {name: text for base in kind.__mro__[::-1] for name, text in _words(base)}
    properties: dict[str, Any] = {}
    for name in sorted(rules):
        # What the field means comes before what its type is in general.
        described = {"description": words[name]} if name in words else {}
        properties[name] = {**described, **rules[name], **described}
    return {
        "description": _plain(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]),
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _words(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a class with what its docstring says of each."""
    text = inspect.cleandoc(kind.__doc__ or "")
    _, _, section = text.partition("Parameters\n----------\n")
    names: list[str] = []
    texts: list[str] = []
    for line in [*section.splitlines(), "end"]:
        if line.startswith(" "):
            texts.append(line.strip())
        elif line:
            yield from ((name, _plain(" ".join(texts))) for name in names)
            names, texts = line.split(", "), []


def _plain(text: str) -> str:
    """Return a docstring's text on one line and without its markup."""
    return " ".join(text.replace("``", "").split())
