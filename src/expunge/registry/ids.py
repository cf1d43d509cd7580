# SPDX-License-Identifier: Apache-2.0
"""Ids of people and requests, as words that mean the same at every face."""

import re
from collections.abc import Iterable

from ..exceptions import InvalidInput

LONGEST = 1024  # bytes of an id
_REQUEST = re.compile(r"[0-9a-f]{32}")


def person(subject: object) -> str:
    """Return the id of a person as a word; refuse what cannot be one."""
    word = str(subject)
    if not word.strip():
        raise InvalidInput("an id of a person is empty; name the person")
    size = len(word.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise InvalidInput(
            f"an id of a person has {size} bytes, and {LONGEST} are the most; use the "
            "id under which the person was fitted"
        )
    if any(ord(letter) < 32 or 0xD800 <= ord(letter) < 0xE000 for letter in word):
        raise InvalidInput(
            f"an id of a person holds control characters ({word[:40]!r}); check the "
            "file that it was read from"
        )
    return word


def people(subjects: Iterable[object]) -> tuple[str, ...]:
    """Return ids of people as words, each once; refuse none at all."""
    if isinstance(subjects, str | bytes):
        raise InvalidInput("give a list of ids, not a single word")
    words = tuple(dict.fromkeys(person(subject) for subject in subjects))
    if not words:
        raise InvalidInput("nobody is named; say whom to forget")
    return words


def require_request(request: object) -> None:
    """Refuse the id of a request that could not be one."""
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        shown = repr(request)[:60]
        raise InvalidInput(
            f"request {shown}; give 32 hexadecimal digits in lower case, random ones: "
            "a ticket number or an address would stay in the ledger for ever"
        )
