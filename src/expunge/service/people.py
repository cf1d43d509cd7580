# SPDX-License-Identifier: Apache-2.0
"""People as callers name them: by identifiers of one or several kinds.

A person is a set of identifiers, such as an address and a customer's number. All of
them are looked up at once, and the same work is done for known and unknown ones. Where
an identifier leads nowhere, its hash stands for a person of whom nothing is held, so
that a request about a stranger is stored like any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ..exceptions import InvalidInput
from ..registry import Registry
from ..rights.identifiers import HASHED, ID, Identifier, read_identifier

Person: TypeAlias = tuple[Identifier, ...]
"""What one person is known by."""

MOST_PEOPLE = 1000
MOST_IDENTIFIERS = 20
SHORT = 32  # digits of a hash: no longer than ids are, and so as quick to be tagged


def read_person(named: Mapping[str, str], id_kinds: Sequence[str]) -> Person:
    """Return the person whom a mapping from kinds to values names.

    A value is raw, or "sha256:" and a hash. Raw values of ``id_kinds`` are ids.
    """
    if not 1 <= len(named) <= MOST_IDENTIFIERS:
        raise InvalidInput(
            f"a person with {len(named)} identifiers; give 1 to {MOST_IDENTIFIERS}"
        )
    return tuple(
        read_identifier(ID if _is_id(kind, text, id_kinds=id_kinds) else kind, text)
        for kind, text in named.items()
    )


def _is_id(kind: str, text: str, *, id_kinds: Sequence[str]) -> bool:
    hashed = text.strip()[: len(HASHED)].lower() == HASHED
    return kind in id_kinds and (kind == ID or not hashed)


def find_subjects(
    registry: Registry, people: Sequence[Person]
) -> list[tuple[str, ...]]:
    """Return the ids under which each person is asked for; blocks for one look-up."""
    every = [one for person in people for one in person]
    found = registry.aliases.find(every)
    return [tuple(name_subjects(person, found)) for person in people]


def name_subjects(person: Person, found: Mapping[Identifier, str]) -> Iterable[str]:
    """Yield the id behind each identifier of a person, each once."""
    known = (found.get(one, f"{one.kind}:{one.digest()[:SHORT]}") for one in person)
    return dict.fromkeys(known)
