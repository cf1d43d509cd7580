# SPDX-License-Identifier: Apache-2.0
"""Pages: the documents of a ledger, of which every byte counts.

A page is a document that is read from its canonical bytes alone, since its hash is what
the tree and the signatures speak of: no space, no other order, no newline at the end.
A page may hold other documents; they become part of its JSON, not text within it.

Spelling: pages are read from their canonical bytes, nearly all at a glance.

A page has one spelling, and for most kinds that is a regular language: fields in order,
hexadecimal words, days, whole numbers. One match of a regular expression, made from the
checks of the fields, proves such a page canonical and takes it apart. Whatever does not
match is read by ``Page.from_json``, which knows every spelling that there is and says
what is wrong with the others: so a glance may be too narrow, never too wide.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self, TypeVar

from ..exceptions import InvalidInput
from ..promise.canonical import Check, Document, Spelled, dumps, hexadecimal, loads
from ..promise.schemas import json_schema

DAY = 24 * 60 * 60 * 1000  # in milliseconds
EPOCH = date(1970, 1, 1)
FIRST_DAY, LAST_DAY = EPOCH.isoformat(), date.max.isoformat()

# SHA-256 in hexadecimal: of a certificate, of a tree, of a key.
digest = hexadecimal(32)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Page(Document):
    """A document with one spelling, which alone is read."""

    __slots__ = ()

    def parts(self) -> dict[str, Any]:
        """Return the fields by name, documents within the page as mappings."""
        return {field.name: _shown(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the page that these bytes spell; refuse any other spelling of it."""
        try:
            page = super().from_json(text)
        except RecursionError:
            raise InvalidInput(f"{cls.__name__}: nested too deep to be one") from None
        given = (
            text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        )
        if page.to_json().encode() != given:
            raise InvalidInput(
                f"{cls.__name__}: not in canonical spelling; hand over the bytes as "
                "they were written, without a newline at the end"
            )
        return page


def within(kind: type[Document]) -> Check:
    """Return a check for a document inside a page.

    Of a document that is published itself, the schema refers to its own.
    """

    def normalise(value: Any) -> Document:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"it must be a {kind.__name__}")
        return kind.from_json(dumps(value))

    if issubclass(kind, Page):
        return Check(normalise, json_schema(kind))
    return Check(normalise, {"$ref": f"{kind.__name__.lower()}.json"})


def by_model(check: Check) -> Check:
    """Return a check for a mapping from names of models to checked values."""

    def checked(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("it must map names of models")
        return MappingProxyType({name(key): check(value[key]) for key in value})

    schema = {
        "type": "object",
        "propertyNames": name.schema,
        "additionalProperties": check.schema,
    }
    if not isinstance(check, Spelled):
        return Check(checked, schema)
    pair = re.compile(f"{name.group}:{check.group}")

    def read(text: str) -> Mapping[str, Any]:
        pairs = pair.findall(text)
        names = [key for key, _ in pairs]
        if len(pairs) > 1 and names != sorted(set(names)):
            raise ValueError("it must have its names in order, each once")
        return MappingProxyType({key: check.read(item) for key, item in pairs})

    pairs = _repeated(f"{name.whole}:{check.whole}")
    return Spelled(checked, schema, rf"\{{{pairs}\}}", read)


def several(check: Check) -> Check:
    """Return a check for a list of checked values."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError("it must be a list")
        return tuple(check(item) for item in value)

    schema = {"type": "array", "items": check.schema}
    if not isinstance(check, Spelled):
        return Check(checked, schema)
    item = re.compile(check.group)

    def read(text: str) -> tuple[Any, ...]:
        return tuple(map(check.read, item.findall(text)))

    return Spelled(checked, schema, rf"\[{_repeated(check.whole)}\]", read)


def _name(value: Any) -> str:
    """Check for the name of a model: letters, digits, dots, dashes; no address fits."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            "it must be 1 to 64 ASCII letters, digits, dots, dashes or underscores, "
            "and begin with a letter or a digit"
        )
    return value


def _utc_day(value: Any) -> str:
    """Check for a day in UTC, as YYYY-MM-DD; the earlier of two is the smaller word."""
    try:
        spelled = date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        spelled = ""
    if spelled != value or spelled < FIRST_DAY:
        raise ValueError(f"it must be a day from {FIRST_DAY} on, as YYYY-MM-DD")
    return spelled


name = Spelled(
    _name, {"type": "string", "pattern": f"^{_NAME.pattern}$"}, _NAME.pattern, str, '"'
)
# Many pages are of one day.
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


def day_of(time: int) -> str:
    """Return the day in UTC of a time in milliseconds since 1970.

    Pages hold days alone: with a finer time they would tell how long an answer took,
    and so whether the rows of the others were needed for it.
    """
    if not 0 <= time < midnight(LAST_DAY) + DAY:
        raise InvalidInput(
            f"the time is {time} ms since 1970, which is no day from {FIRST_DAY} to "
            f"{LAST_DAY}; set the clock"
        )
    return (EPOCH + timedelta(days=time // DAY)).isoformat()


def midnight(day: str) -> int:
    """Return when a day begins, in milliseconds since 1970."""
    return DAY * days_between(FIRST_DAY, day)


def days_between(first: str, last: str) -> int:
    """Return by how many days one day comes after another."""
    return (date.fromisoformat(last) - date.fromisoformat(first)).days


def _repeated(item: str) -> str:
    """Return the pattern of any number of items, with commas between them."""
    return f"(?:{item}(?:,{item})*)?"


def _shown(value: Any) -> Any:
    """Return a value with the documents in it as plain mappings."""
    if isinstance(value, Document):
        return value.parts()
    if isinstance(value, Mapping):
        return {key: _shown(value[key]) for key in value}
    return value


AnyPage = TypeVar("AnyPage", bound=Page)

_KIND = '"kind":"'


def read_page(text: str | bytes, kinds: Mapping[str, type[AnyPage]]) -> AnyPage:
    """Return the page that these bytes spell; refuse a kind that is not known."""
    page = glance(text, kinds)
    if page is not None:
        return page
    kind = loads(text, "Page").get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidInput(
            f"Page: kind {kind!r}; it must be one of {', '.join(map(repr, kinds))}; "
            "a newer expunge may know more"
        )
    return kinds[kind].from_json(text)


def glance(text: str | bytes, kinds: Mapping[str, type[AnyPage]]) -> AnyPage | None:
    """Return the page that these bytes spell; None if a glance does not tell."""
    try:
        word = text if isinstance(text, str) else text.decode("ascii")
    except UnicodeDecodeError:
        return None
    # A guess at the kind: the pattern says whether that is what stands there.
    start = word.find(_KIND) + len(_KIND)
    kind = kinds.get(word[start : word.find('"', start)])
    if kind is None:
        return None
    if kind not in _SPELLINGS:
        _SPELLINGS[kind] = _spelling(kind)
    spelling = _SPELLINGS[kind]
    match = None if spelling is None else spelling.pattern.fullmatch(word)
    if spelling is None or match is None:
        return None
    page = object.__new__(kind)
    try:
        words = match.groups()
        for put, read, part in zip(spelling.puts, spelling.reads, words, strict=True):
            put(page, read(part))
        page.require_consistent()
    except ValueError:
        return None
    return page


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A pattern with a group for each field; for each how to read it and put it."""

    pattern: re.Pattern[str]
    reads: Sequence[Callable[[str], Any]]
    puts: Sequence[Callable[[Page, Any], None]]


# By kind, each made once.
_SPELLINGS: dict[type[Page], _Spelling | None] = {}


def _spelling(kind: type[Page]) -> _Spelling | None:
    """Return how a kind of page is spelled; None if the check of a field cannot say."""
    written, reads, puts = [], [], []
    for name in sorted(field.name for field in fields(kind)):
        check = kind.checks[name]
        if not isinstance(check, Spelled):
            return None
        written.append(f'"{name}":{check.group}')
        # A frozen page has slots, which are filled here as in its own making.
        slot: Any = getattr(kind, name)
        reads.append(check.read)
        puts.append(slot.__set__)
    return _Spelling(re.compile(rf"\{{{','.join(written)}\}}"), reads, puts)
