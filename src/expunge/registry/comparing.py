# SPDX-License-Identifier: Apache-2.0
"""Comparing: whether rows may be of people whom lists of others keep out.

Such lists have hashed identifiers, see ``exclusions``. A person is recognised by an id
that is an identifier itself, or by an alias of theirs; a bare id says nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..ledger.keys import TagKey, alias_tags
from ..rights.drop import KNOWN, list_forms
from ..rights.identifiers import Identifier
from .context import Context
from .keys import read_tag_keys
from .storage import exclusions_table


class Excluded(NamedTuple):
    """The tags of identifiers that keep people out of fits."""

    tags: set[str]

    def has(self, owner: str, keys: Sequence[TagKey]) -> bool:
        """Return whether a person is kept out by the very id that rows have."""
        return any(
            not self.tags.isdisjoint(alias_tags(form, keys))
            for _, form in list_forms(owner)
        )


def read_excluded(connection: Connection) -> tuple[Excluded | None, set[str]]:
    """Return what keeps people out, and the tags of those who have such an alias."""
    if not exclusions_table.has_excluded(connection):
        return None, set()
    tags = exclusions_table.read_excluded_tags(connection)
    return Excluded(tags), exclusions_table.find_excluded_people(connection)


def require_comparable(
    context: Context, owners: Iterable[str], *, unchecked: bool
) -> None:
    """Refuse people who cannot be compared with lists of others, if there are any.

    An id can be compared if it is an address, a number with a plus sign or the id of a
    device itself, or if the person's identifiers were imported for the lists.
    """
    if unchecked:
        return
    with context.store.read(snapshot=False) as connection:
        if not exclusions_table.has_excluded(connection):
            return
        keys = read_tag_keys(context.paths)
        every = dict.fromkeys(owners)
        bare = [one for one in every if next(list_forms(one), None) is None]
        tags = {
            tag: one for one in bare for tag in alias_tags(Identifier(KNOWN, one), keys)
        }
        there = exclusions_table.find_alias_tags(connection, [*tags])
    left = len(bare) - len({tags[tag] for tag in there})
    if left:
        raise InvalidInput(
            f"{left} people in the data have bare ids that cannot be compared with the "
            "hashed identifiers on deletion lists, so people who asked there may be "
            "among them; import their identifiers (expunge drop import), or state that "
            "you compared them yourself (unchecked=True, --unchecked)"
        )
