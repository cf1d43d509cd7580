# SPDX-License-Identifier: Apache-2.0
"""Exclusions: people whom lists of others keep out of every later fit.

Such a list has numbers and hashed identifiers, and nobody's id. Whom the registry knows
by one is asked for like anybody. The identifiers stay, of those who are not known too,
under the tags that aliases have: a fit refuses rows of people whose ids, read as an
identifier, or whose aliases have such a tag. What a list asked for is a line of the log
before anything is done about it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..ledger.keys import TagKey, alias_seal_key, alias_tags, main_tags
from ..rights.drop import EMAIL, kind_of, list_forms, second_kind
from ..rights.identifiers import Identifier
from .aliases import find_aliases
from .comparing import Excluded
from .context import RegistryPart
from .fits import ForgottenTags, read_forgotten_tags
from .keys import read_tag_keys
from .storage import exclusions_table
from .storage.engine import chunks
from .storage.exclusions_table import SEVERAL, ExcludedLine
from .storage.keystore import unseal

PLAIN = "email"  # the kind of an address that others import
KIND = "exclusions"
AT_ONCE = 10_000  # lines of a list in one line of the log


class Listed(NamedTuple):
    """An identifier of a list: its number, the list, and the hash in hexadecimal."""

    item: str
    name: str
    digest: str


class FoundPeople(NamedTuple):
    """The ids of those whom a listed identifier leads to.

    ``is_shared`` says that they are several people; otherwise all ids are one person's.
    """

    ids: tuple[str, ...]
    is_shared: bool


@dataclass(frozen=True, slots=True, repr=False)
class Exclusions:
    """Who may be in no fit, as a file carries it to where there is no registry.

    Parameters
    ----------
    keys
        Under which people become tags: with them one can test a guess, so the file
        is as secret as the registry's folder of keys.
    forgotten
        The tags.
    """

    keys: tuple[TagKey, ...]
    forgotten: ForgottenTags

    def find(self, subjects: Iterable[str], *, exact: bool = False) -> dict[str, str]:
        """Return who may be in no fit: "same", or "near" by another spelling."""
        answers = (
            (one, self.forgotten.find(one, self.keys, exact=exact))
            for one in dict.fromkeys(subjects)
        )
        return {one: answer for one, answer in answers if answer}

    def count_bare(self, subjects: Iterable[str]) -> int:
        """Return how many ids cannot be compared with lists of others."""
        if self.forgotten.excluded is None:
            return 0
        return sum(next(list_forms(one), None) is None for one in {*subjects})

    def to_json(self) -> str:
        """Return it as the text of a file."""
        listed = self.forgotten.excluded
        said = {
            "kind": KIND,
            "version": 1,
            "keys": [key.secret.hex() for key in self.keys],
            "tags": sorted(self.forgotten.tags),
            "near": sorted(self.forgotten.near),
            "listed": None if listed is None else sorted(listed.tags),
        }
        return json.dumps(said) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return what a file holds; refuse another one."""
        try:
            said: dict[str, Any] = json.loads(text)
            if (said["kind"], said["version"]) != (KIND, 1):
                raise ValueError
            listed = said["listed"]
            return cls(
                tuple(TagKey(bytes.fromhex(one)) for one in said["keys"]),
                ForgottenTags(
                    {*said["tags"]},
                    {*said["near"]},
                    excluded=None if listed is None else Excluded({*listed}),
                ),
            )
        except (LookupError, ValueError, TypeError):
            raise InvalidInput(
                "this is no file of exclusions; write one with expunge exclusions"
            ) from None


class RegistryExclusions(RegistryPart):
    """Whom lists of others keep out of fits, as ``Registry.exclusions``."""

    def find_people(self, listed: Sequence[Listed]) -> dict[str, FoundPeople]:
        """Return whom listed identifiers lead to, by their numbers; none if nobody."""
        keys = read_tag_keys(self._context.paths)
        found: dict[str, FoundPeople] = {}
        with self._context.store.read() as connection:
            for some in chunks(listed, AT_ONCE):
                found |= _find_people(connection, some, keys=keys)
        return found

    def known(self, items: Sequence[str]) -> dict[str, ExcludedLine]:
        """Return what is recorded of numbers of lists."""
        with self._context.store.read(snapshot=False) as connection:
            return exclusions_table.read_excluded(connection, items)

    def record(
        self, listed: Sequence[Listed], requests: Mapping[str, str], *, day: str
    ) -> None:
        """Record what was asked, and which request answers it.

        Parameters
        ----------
        listed
            The identifiers.
        requests
            The request of the person by number; ``SEVERAL`` if an identifier leads to
            several people, whom it does not keep out. Of the others nobody was found.
        day
            Of the list.
        """
        key = read_tag_keys(self._context.paths)[:1]
        lines = []
        for one in listed:
            request, tags = requests.get(one.item, ""), ("", "")
            if request != SEVERAL:
                tags = _make_tags(one, key)
            lines.append(ExcludedLine(one.item, kind_of(one.name), *tags, request, day))
        for some in chunks(lines, AT_ONCE):
            said = {"lines": [[*line] for line in some], "lifted": []}
            with self._context.log.record({"excluded": said}):
                pass

    def lift(self, items: Sequence[str]) -> int:
        """Keep nobody out by these numbers any more; return how many were known."""
        n_known = len(self.known(items))
        for some in chunks(items, AT_ONCE):
            said = {"lines": [], "lifted": [*some]}
            with self._context.log.record({"excluded": said}):
                pass
        return n_known

    def last_day(self) -> str:
        """Return the day of the newest list; empty if there was none."""
        with self._context.store.read(snapshot=False) as connection:
            return exclusions_table.find_last_day(connection)

    def find_kept_out(self, subjects: Iterable[str]) -> dict[str, str]:
        """Return who may be in no fit: "same", or "near" by another spelling.

        This is for the operator alone.
        """
        return self.collect().find(subjects)

    def collect(self) -> Exclusions:
        """Return who may be in no fit now, for a check elsewhere."""
        keys = read_tag_keys(self._context.paths)
        return Exclusions(keys, read_forgotten_tags(self._context))


def _make_tags(one: Listed, keys: Sequence[TagKey]) -> tuple[str, str]:
    """Return the tags of an identifier, as its own kind and as a plain address."""
    own = Identifier(kind_of(one.name), one.digest, hashed=True)
    plain = Identifier(PLAIN, one.digest, hashed=True) if one.name == EMAIL else None
    return alias_tags(own, keys)[0], alias_tags(plain, keys)[0] if plain else ""


def _find_people(
    connection: Connection, listed: Sequence[Listed], *, keys: Sequence[TagKey]
) -> dict[str, FoundPeople]:
    """Return whom listed identifiers lead to, by number."""
    places: dict[str, tuple[Listed, Identifier, TagKey]] = {}
    for one in listed:
        own = Identifier(kind_of(one.name), one.digest, hashed=True)
        tagged = [(own, alias_tags(own, keys))]
        if one.name == EMAIL:
            plain = Identifier(PLAIN, one.digest, hashed=True)
            tagged += [
                (plain, alias_tags(plain, keys)),
                (plain, main_tags(plain, keys)),
            ]
        for who, tags in tagged:
            for tag, key in zip(tags, keys, strict=True):
                places[tag] = one, who, key
    people: dict[str, list[str]] = {}
    known: dict[str, Listed] = {}
    for tag, line in find_aliases(connection, [*places]).items():
        one, who, key = places[tag]
        owner = unseal(line.sealed, alias_seal_key(who, key), place=f"alias {tag}")
        people.setdefault(one.item, []).append(owner.decode())
        known[one.item] = one
    seconds = {
        tag: item
        for item, one in known.items()
        for second in [Identifier(second_kind(one.name), one.digest, hashed=True)]
        for tag in alias_tags(second, keys)
    }
    shared = {seconds[tag] for tag in find_aliases(connection, [*seconds])}
    return {
        item: FoundPeople(tuple(sorted({*ids})), item in shared)
        for item, ids in people.items()
    }
