# SPDX-License-Identifier: Apache-2.0
"""The one spelling of a word that stands for a person: NFC, without white space around.

Ids of people and most identifiers share it. Letters that differ in meaning stay apart,
and so do upper and lower case, since ids that differ in case alone do exist.
"""

import re
import unicodedata

SPELLING = "NFC, stripped"
"""The rule by name. A registry records it, because its tags depend on it."""
LONGEST = 1024  # bytes of a word
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # Unicode's Cc and Cs

# Printable ASCII without white space around: spelled already, and no objection to it.
_PLAIN = re.compile(f"[!-~](?:[ -~]{{0,{LONGEST - 2}}}[!-~])?")


def is_plain(word: str) -> bool:
    """Whether a word is so simple that its spelling is itself: most are."""
    return _PLAIN.fullmatch(word) is not None


def spell(word: str) -> str:
    """Return a word in its one spelling."""
    return unicodedata.normalize("NFC", word).strip()


def word_objection(word: str) -> str | None:
    """Return why a word cannot stand for a person and what to do; do not quote it."""
    if not word:
        return "it is empty; fill it in, or remove the row"
    if _UNPRINTABLE.search(word):
        return "it holds control characters; check the file it was read from"
    size = len(word.encode())
    if size > LONGEST:
        return f"it has {size} bytes; use at most {LONGEST}"
    return None
