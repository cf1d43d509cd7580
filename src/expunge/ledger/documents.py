# SPDX-License-Identifier: Apache-2.0
"""Documents of a ledger, of which every byte counts.

Each is read from its canonical bytes alone, because its hash is what the tree and the
signatures are computed from: no extra space, no other order, no newline at the end. A
document may hold others; they become part of its JSON, not text within it.

For most kinds the canonical spelling is a regular language: fields in order,
hexadecimal words, days, whole numbers. One match of a regular expression, built from
the checks of the fields, proves such a document canonical and takes it apart. What does
not match is read by ``CanonicalDocument.from_json``, which knows every valid spelling
and says what is wrong with the others. So the fast path may be too narrow, but never
too wide.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self, TypeVar

from ..core.values import dumps, loads
from ..exceptions import InvalidInput
from ..promise.canonical import (
    Check,
    Document,
    Spelled,
    hexadecimal,
    json_schema,
)

DAY = 24 * 60 * 60 * 1000  # in milliseconds
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = EPOCH.isoformat(), date.max.isoformat()

# SHA-256 in hexadecimal: of a certificate, of a tree, of a key.
digest = hexadecimal(32)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class CanonicalDocument(Document):
    """A document with one valid spelling; any other is refused."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the document in these bytes; refuse any but the canonical spelling."""
        try:
            document = super().from_json(text)
        except RecursionError:
            raise InvalidInput(f"{cls.__name__}: nested too deeply") from None
        given = (
            text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        )
        if document.to_json().encode() != given:
            raise InvalidInput(
                f"{cls.__name__}: not in canonical spelling; pass the bytes as they "
                "were written, without a newline at the end"
            )
        return document


def document_of(kind: type[Document]) -> Check:
    """Return a check for a document inside another.

    Of a document that is published itself, the schema refers to its own.
    """

    def normalise(value: Any) -> Document:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"it must be a {kind.__name__}")
        return kind.from_json(dumps(value))

    schema: Mapping[str, Any] = {"$ref": f"{kind.__name__.lower()}.json"}
    if issubclass(kind, CanonicalDocument):
        schema = json_schema(kind)
    return Check(normalise, schema, spell=lambda document: str(document.to_json()))


def by_model(check: Check) -> Check:
    """Return a check for a mapping from names of models to checked values."""

    def checked(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("it must map names of models")
        return MappingProxyType({model_name(key): check(value[key]) for key in value})

    schema = {
        "type": "object",
        "propertyNames": model_name.schema,
        "additionalProperties": check.schema,
    }

    def spell(value: Mapping[str, Any]) -> str:
        inner = [f'"{name}":{check.spell(value[name])}' for name in sorted(value)]
        return f"{{{','.join(inner)}}}"

    if not isinstance(check, Spelled):
        return Check(checked, schema, spell=spell)
    pair = re.compile(f"{model_name.group}:{check.group}")

    def read(text: str) -> Mapping[str, Any]:
        pairs = pair.findall(text)
        names = [key for key, _ in pairs]
        if len(pairs) > 1 and names != sorted(set(names)):
            raise ValueError("it must have its names in order, each once")
        return MappingProxyType({key: check.read(item) for key, item in pairs})

    pairs = _repeated(f"{model_name.whole}:{check.whole}")
    return Spelled(checked, schema, rf"\{{{pairs}\}}", read, spell=spell)


def list_of(check: Check) -> Check:
    """Return a check for a list of checked values."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError("it must be a list")
        return tuple(check(item) for item in value)

    schema = {"type": "array", "items": check.schema}

    def spell(value: Sequence[Any]) -> str:
        return f"[{','.join(map(check.spell, value))}]"

    if not isinstance(check, Spelled):
        return Check(checked, schema, spell=spell)
    item = re.compile(check.group)

    def read(text: str) -> tuple[Any, ...]:
        return tuple(map(check.read, item.findall(text)))

    return Spelled(checked, schema, rf"\[{_repeated(check.whole)}\]", read, spell=spell)


def _name(value: Any) -> str:
    """Check the name of a model: letters, digits, dots, dashes; no address fits."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            "it must be 1 to 64 ASCII letters, digits, dots, dashes or underscores, "
            "and begin with a letter or a digit"
        )
    return value


def _utc_day(value: Any) -> str:
    """Check a day in UTC, as YYYY-MM-DD; the earlier of two sorts first."""
    try:
        spelled = date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        spelled = ""
    if spelled != value or spelled < FIRST_DAY:
        raise ValueError(f"it must be a day from {FIRST_DAY} on, as YYYY-MM-DD")
    return spelled


model_name = Spelled(
    _name, {"type": "string", "pattern": f"^{_NAME.pattern}$"}, _NAME.pattern, str, '"'
)
# Many documents are of one day.
utc_day = Spelled(
    _utc_day,
    {
        "type": "string",
        "format": "date",
        "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-"
        "(0[1-9]|[12][0-9]|3[01])$",
    },
    "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    lru_cache(4096)(_utc_day),
    '"',
)


def _optional_day(value: Any) -> str:
    """Check a day, or an empty text where there is none."""
    return "" if value == "" else _utc_day(value)


optional_day = Spelled(
    _optional_day,
    {"type": "string", "pattern": f"{utc_day.schema['pattern']}|^$"},
    "(?:[0-9]{4}-[0-9]{2}-[0-9]{2})?",
    lru_cache(4096)(_optional_day),
    '"',
)


def day_of(time: int) -> str:
    """Return the day in UTC of a time in milliseconds since 1970.

    Documents hold days alone: a finer time would tell how long an answer took, and so
    whether the rows of the others were needed for it.
    """
    if not 0 <= time < midnight(LAST_DAY) + DAY:
        raise InvalidInput(
            f"the time is {time} ms since 1970, which is not a day from {FIRST_DAY} to "
            f"{LAST_DAY}; set the clock"
        )
    return (EPOCH + timedelta(days=time // DAY)).isoformat()


def midnight(day: str) -> int:
    """Return the start of a day, in milliseconds since 1970."""
    return DAY * days_between(FIRST_DAY, day)


def days_between(first: str, last: str) -> int:
    """Return how many days the last day is after the first."""
    return (date.fromisoformat(last) - date.fromisoformat(first)).days


def _repeated(item: str) -> str:
    """Return the pattern of any number of items, with commas between them."""
    return f"(?:{item}(?:,{item})*)?"


AnyDocument = TypeVar("AnyDocument", bound=CanonicalDocument)

_KIND = '"kind":"'


def read_document(
    text: str | bytes, kinds: Mapping[str, type[AnyDocument]]
) -> AnyDocument:
    """Return the document in these bytes; refuse an unknown kind."""
    document = read_fast(text, kinds)
    if document is not None:
        return document
    kind = loads(text, "Document").get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidInput(
            f"kind {kind!r}; it must be one of {', '.join(map(repr, kinds))}; "
            "a newer expunge may know more"
        )
    return kinds[kind].from_json(text)


def read_fast(
    text: str | bytes, kinds: Mapping[str, type[AnyDocument]]
) -> AnyDocument | None:
    """Return the document in these bytes; None if the fast path cannot tell."""
    try:
        decoded = text if isinstance(text, str) else text.decode("ascii")
    except UnicodeDecodeError:
        return None
    # A guess at the kind: the pattern then says whether it is right.
    start = decoded.find(_KIND) + len(_KIND)
    kind = kinds.get(decoded[start : decoded.find('"', start)])
    if kind is None:
        return None
    if kind not in _SPELLINGS:
        _SPELLINGS[kind] = _spelling(kind)
    spelling = _SPELLINGS[kind]
    match = None if spelling is None else spelling.pattern.fullmatch(decoded)
    if spelling is None or match is None:
        return None
    document = object.__new__(kind)
    try:
        words = match.groups()
        for set_field, read, part in zip(
            spelling.setters, spelling.readers, words, strict=True
        ):
            set_field(document, read(part))
        document.require_consistent()
    except ValueError:
        return None
    return document


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A pattern with a group for each field, and how to read and set each field."""

    pattern: re.Pattern[str]
    readers: Sequence[Callable[[str], Any]]
    setters: Sequence[Callable[[CanonicalDocument, Any], None]]


# By kind, each made once.
_SPELLINGS: dict[type[CanonicalDocument], _Spelling | None] = {}


def _spelling(kind: type[CanonicalDocument]) -> _Spelling | None:
    """Return how a kind is spelled; None if the check of a field cannot say."""
    written, readers, setters = [], [], []
    for name in sorted(field.name for field in fields(kind)):
        check = kind.checks[name]
        if not isinstance(check, Spelled):
            return None
        written.append(f'"{name}":{check.group}')
        # A frozen document has slots, which are filled here as by its constructor.
        slot: Any = getattr(kind, name)
        readers.append(check.read)
        setters.append(slot.__set__)
    return _Spelling(re.compile(rf"\{{{','.join(written)}\}}"), readers, setters)
