# SPDX-License-Identifier: Apache-2.0
"""Spelling: pages are read from their canonical bytes, nearly all at a glance.

A page has one spelling, and for most kinds that is a regular language: fields in order,
hexadecimal words, days, whole numbers. One match of a regular expression, made from the
checks of the fields, proves such a page canonical and takes it apart. Whatever does not
match is read by ``Page.from_json``, which knows every spelling that there is and says
what is wrong with the others: so a glance may be too narrow, never too wide.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ..canonical import Spelled, loads
from ..exceptions import InvalidInput
from .pages import Page

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
