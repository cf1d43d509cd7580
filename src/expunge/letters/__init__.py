# SPDX-License-Identifier: Apache-2.0
"""Letters: what an operator writes to people and recipients, from templates.

A letter says what the request and its receipt say, and nothing else (``facts``). Its
words are templates in a sandbox, which an operator may replace (``writing``).
"""

from .facts import KINDS, LetterFacts, choose_kind, gather_facts
from .writing import LetterFailed, list_languages, write_letter

__all__ = [
    "KINDS",
    "LetterFacts",
    "LetterFailed",
    "choose_kind",
    "gather_facts",
    "list_languages",
    "write_letter",
]
