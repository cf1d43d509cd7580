# SPDX-License-Identifier: Apache-2.0
"""Pages: the documents of a ledger, of which every byte counts.

A page is a document that is read from its canonical bytes alone, since its hash is what
the tree and the signatures speak of: no space, no other order, no newline at the end.
A page may hold other documents; they become part of its JSON, not text within it.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Self, TypeVar

from ..canonical import Check, Document, count, dumps, hexadecimal, loads
from ..exceptions import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The first millisecond of the year 10000, which no calendar of Python reaches.
LAST_MILLISECOND = 253_402_300_800_000

# SHA-256 in hexadecimal: of a certificate, of a tree, of a key.
digest = hexadecimal(32)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Page(Document):
    """A document with one spelling, which alone is read."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the only spelling of this page, documents within it included."""
        return dumps(self.parts())

    def parts(self) -> dict[str, Any]:
        """Return the fields by name, as the JSON shows them."""
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
        if page.to_json().encode("ascii") != given:
            raise InvalidInput(
                f"{cls.__name__}: not in canonical spelling; hand over the bytes as "
                "they were written, without a newline at the end"
            )
        return page


AnyPage = TypeVar("AnyPage", bound=Page)


def read_page(text: str | bytes, kinds: Mapping[str, type[AnyPage]]) -> AnyPage:
    """Return the page that these bytes spell; refuse a kind that is not known."""
    kind = loads(text, "Page").get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidInput(
            f"Page: kind {kind!r}; it must be one of {', '.join(map(repr, kinds))}; "
            "a newer expunge may know more"
        )
    return kinds[kind].from_json(text)


def within(kind: type[Document]) -> Check:
    """Return a check for a document inside a page."""

    def check(value: Any) -> Document:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"it must be a {kind.__name__}")
        return kind.from_json(dumps(value))

    return check


def by_model(check: Check) -> Check:
    """Return a check for a mapping from names of models to checked values."""

    def checked(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("it must map names of models")
        return MappingProxyType({name(key): check(value[key]) for key in value})

    return checked


def several(check: Check) -> Check:
    """Return a check for a list of checked values."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError("it must be a list")
        return tuple(check(item) for item in value)

    return checked


def name(value: Any) -> str:
    """Check for the name of a model: letters, digits, dots, dashes; no address fits."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            "it must be 1 to 64 ASCII letters, digits, dots, dashes or underscores, "
            "and begin with a letter or a digit"
        )
    return value


def milliseconds(value: Any) -> int:
    """Check for a time: milliseconds since 1970 in UTC, leap seconds left out."""
    since: int = count(0)(value)
    if since >= LAST_MILLISECOND:
        raise ValueError("it must be a time in milliseconds, before the year 10000")
    return since


def date(time: int) -> str:
    """Return a time for people to read, to the second."""
    return f"{EPOCH + timedelta(seconds=time // 1000):%Y-%m-%d %H:%M:%S} UTC"


def _shown(value: Any) -> Any:
    """Return a value with the documents in it as plain mappings."""
    if isinstance(value, Page):
        return value.parts()
    if isinstance(value, Document):
        return loads(value.to_json(), type(value).__name__)
    if isinstance(value, Mapping):
        return {key: _shown(value[key]) for key in value}
    return value
