# SPDX-License-Identifier: Apache-2.0
"""Aliases: what people are known by elsewhere leads to the ids that models know.

A request often comes by an e-mail address, a phone number or the id of another system,
raw or hashed (``rights.identifiers``). Aliases are imported beforehand. They turn such
a request into ids before it is accepted, so all that follows knows ids alone.

    alias tag -> tag of the person, id of the person sealed

The sealing key takes the identifier as well as the tag key: who has database and keys
can test a guess, and cannot list the ids. An alias belongs to one person. When a person
is erased, their aliases are deleted in the transaction that deletes their rows.
"""

from collections.abc import Iterable, Sequence, Set
from functools import cache
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import Connection

from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput
from ..ledger.keys import TagKey, alias_seal_key, alias_tags, subject_tags
from ..private_model.subjects import person
from ..rights.identifiers import ID, Identifier, parse_identifier
from .answering.returning import ERASED, find_forgotten_rows
from .answering.worker import recover
from .context import WAIT, Context
from .keys import read_tag_keys, write_tag_key_ids
from .storage import aliases_table, people_table, requests_table
from .storage.aliases_table import AliasLine
from .storage.tables import overtaken_error
from .storage.vault import new_key, seal, unseal

SHOWN = 10  # pairs in an error
STEP = 10_000  # pairs between two reports
NO_ALIAS = AliasLine("", "", b"")


class AmbiguousAlias(InvalidInput):
    """An alias would lead to two people; nothing was changed.

    Attributes
    ----------
    positions
        Of the pairs, from 0.
    """

    def __init__(self, message: str, positions: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.positions = tuple(positions)


class AliasesAdded(NamedTuple):
    """What became of pairs of people and aliases.

    ``n_known`` were there before or came twice, ``n_left_out`` are of people who were
    forgotten.
    """

    n_added: int
    n_known: int
    n_left_out: int


class RegistryAliases:
    """The aliases of a registry, as ``Registry.aliases``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def add(
        self,
        pairs: Iterable[tuple[object, Identifier]],
        *,
        on_progress: OnProgress = be_silent,
    ) -> AliasesAdded:
        """Add aliases, all or none: pairs of a person's id and an identifier.

        A pair that is there already changes nothing. The person need not be in a model
        yet. Aliases of people who were forgotten, and not readmitted, are left out.
        Raises AmbiguousAlias if an alias would lead to two people.
        """
        return add_aliases(self._context, list(pairs), on_progress=on_progress)

    def find(self, identifiers: Iterable[Identifier]) -> dict[Identifier, str]:
        """Return the id that each identifier leads to; unknown ones are left out.

        An identifier of kind ``id`` is an id itself, known or not.
        """
        keys = read_tag_keys(self._context.paths)
        with self._context.store.read() as connection:
            return _find_ids(connection, list(identifiers), keys=keys)

    def resolve(self, words: Iterable[object], *, strangers: bool = False) -> list[str]:
        """Return the id that each word means, in order.

        ``email:ada@example.org`` is an alias, if there is one, and ``id:7`` is the id
        7. Any other word is an id, and so is one that a model holds as it is. Raises
        AmbiguousAlias if a word is the id of one person and leads to another.

        Parameters
        ----------
        words
            As on a command line.
        strangers
            Look into no model, for senders who must not learn who is known: a word with
            a kind is an alias, or else an id that nobody has. What is refused is then
            refused for its spelling alone, and all that is spelled well takes the same
            steps. An id that looks like an alias needs ``id:`` before it.
        """
        ids = [person(word) for word in words]
        return resolve_words(self._context, ids, strangers=strangers)

    def remove(self, identifiers: Iterable[Identifier]) -> int:
        """Delete aliases, from disk too; return how many there were."""
        context = self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)
            keys = read_tag_keys(context.paths)
            tags = [tag for one in identifiers for tag in alias_tags(one, keys)]
            with context.write_in_turn() as connection:
                n_removed = aliases_table.delete_aliases(connection, tags)
            context.store.erase_deleted(WAIT)
        return n_removed

    def count(self) -> int:
        """Return how many aliases there are."""
        with self._context.store.read(snapshot=False) as connection:
            return aliases_table.count_aliases(connection)


class _NewAlias(NamedTuple):
    """An alias to add: its tags and those of its person, newest key first."""

    tags: tuple[str, ...]
    people: tuple[str, ...]
    sealed: bytes
    position: int


def _first_tag(one: _NewAlias) -> str:
    return one.tags[0]


def add_aliases(
    context: Context,
    pairs: Sequence[tuple[object, Identifier]],
    *,
    on_progress: OnProgress,
) -> AliasesAdded:
    """Add pairs of a person and an identifier, all or none."""
    owners = [person(one) for one, _ in pairs]
    keys = read_tag_keys(context.paths)
    # Before the lock is taken: for a million of them it takes a while.
    new = _prepare(owners, [one for _, one in pairs], keys=keys, report=on_progress)
    with context.hold_lock(WAIT):
        # What is applied must be completed: the journal names those who are forgotten.
        recover(context, WAIT)
        if read_tag_keys(context.paths) != keys:
            raise overtaken_error()
        gone = set(find_forgotten_rows(context, owners, rights=ERASED)[0])
        stays = (one for one in new if one.position not in gone)
        new = sorted(stays, key=_first_tag)
        single = _require_one_person(new)
        with context.store.read() as connection:
            absent = _select_absent(connection, single)
        # As short as can be: on SQLite nobody else can write meanwhile.
        with context.write_in_turn() as connection:
            write_tag_key_ids(connection, context.paths)  # a killed rotation did not
            used = _find_used_tags(connection, absent)
            for start in range(0, len(absent), STEP):
                on_progress(len(pairs) + start, 2 * len(pairs))
                lines = [_make_line(one, used) for one in absent[start : start + STEP]]
                aliases_table.insert_aliases(connection, lines)
    on_progress(2 * len(pairs), 2 * len(pairs))
    return AliasesAdded(len(absent), len(new) - len(absent), len(gone))


def _prepare(
    owners: Sequence[str],
    identifiers: Sequence[Identifier],
    *,
    keys: Sequence[TagKey],
    report: OnProgress,
) -> list[_NewAlias]:
    """Return pairs as the store will hold them; nothing is read or written."""
    tagged: dict[str, tuple[str, ...]] = {}
    found = []
    for position, (owner, one) in enumerate(zip(owners, identifiers, strict=True)):
        if one.kind == ID:
            raise InvalidInput(
                f"pair {position}, counted from 0, is of kind {ID}, which needs no "
                "alias; give the kind that other systems use"
            )
        if owner not in tagged:
            tagged[owner] = subject_tags(owner, keys)
        tags = alias_tags(one, keys)
        sealed = _seal_id(owner, one, tag=tags[0], key=keys[0])
        found.append(_NewAlias(tags, tagged[owner], sealed, position))
        if position % STEP == 0:
            report(position, 2 * len(owners))
    return found


def _seal_id(owner: str, one: Identifier, *, tag: str, key: TagKey) -> bytes:
    """Return a person's id sealed for an alias."""
    return seal(owner.encode(), alias_seal_key(one, key), place=f"alias {tag}")


def _require_one_person(new: Sequence[_NewAlias]) -> list[_NewAlias]:
    """Return sorted aliases, each once; refuse one that two people have."""
    single, wrong = [], []
    for _, group in groupby(new, key=_first_tag):
        first, *others = group
        single.append(first)
        if any(one.people != first.people for one in others):
            wrong += [first.position, *(one.position for one in others)]
    if wrong:
        raise _ambiguous(wrong, "give an alias to different people")
    return single


def _select_absent(
    connection: Connection, single: Sequence[_NewAlias]
) -> list[_NewAlias]:
    """Return the aliases that the store lacks; refuse one that another person has."""
    if not aliases_table.has_aliases(connection):
        return list(single)
    every = [tag for one in single for tag in one.tags]
    there = aliases_table.find_aliases(connection, every)
    absent, wrong = [], []
    for one in single:
        held = [there[tag].person for tag in one.tags if tag in there]
        if not held:
            absent.append(one)
        elif held[0] not in one.people:
            wrong.append(one.position)
    if wrong:
        raise _ambiguous(wrong, "give an alias that leads to somebody else already")
    return absent


def _find_used_tags(connection: Connection, new: Sequence[_NewAlias]) -> set[str]:
    """Return which of several tags of a person models or waiting requests use."""
    several = {tag for one in new if len(one.people) > 1 for tag in one.people}
    used = set(people_table.models_by_tag(connection, sorted(several)))
    return used | requests_table.find_waiting_tags(connection, sorted(several))


def _make_line(one: _NewAlias, used: Set[str]) -> AliasLine:
    """Return an alias as a line, under a tag that any request of its person names.

    A request names every tag that its person had by then. Under a key that came later
    the alias would stay behind, so a tag that is in use already is taken, as by a fit.
    """
    known = (tag for tag in one.people if tag in used)
    return AliasLine(one.tags[0], next(known, one.people[0]), one.sealed)


def _ambiguous(wrong: Sequence[int], what: str) -> AmbiguousAlias:
    """Return the error about pairs, which names nobody."""
    shown = ", ".join(map(str, sorted(wrong)[:SHOWN]))
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return AmbiguousAlias(
        f"{len(wrong)} pairs {what}: {shown}{more}, counted from 0; nothing was added; "
        "let each alias lead to one person, or remove the old one first",
        sorted(wrong),
    )


def _find_ids(
    connection: Connection, identifiers: Sequence[Identifier], *, keys: Sequence[TagKey]
) -> dict[Identifier, str]:
    """Return the id behind each identifier that is known.

    Known and unknown ones take the same steps, so that the time does not tell them
    apart: the store looks up the nearest alias, and where it is another one, a decoy is
    opened in its place. Measured in turns, the medians are 229 and 228 microseconds.
    """
    wanted = dict.fromkeys(identifiers)
    tags = {one: alias_tags(one, keys) for one in wanted if one.kind != ID}
    every = [tag for some in tags.values() for tag in some]
    nearest = aliases_table.find_nearest(connection, every)
    found = {one: one.value for one in wanted if one.kind == ID}
    nobody: dict[Identifier, str] = {}
    for one, some in tags.items():
        places = range(len(some))
        lines = [nearest.get(tag, NO_ALIAS) for tag in some]
        known = [place for place in places if lines[place].tag == some[place]]
        place = known[0] if known else 0
        sealing = alias_seal_key(one, keys[place])
        sealed, key, where = lines[place].sealed, sealing, f"alias {some[place]}"
        if not known:
            sealed, key, where = _make_decoy()
        owner = unseal(sealed, key, place=where).decode()
        # Half a microsecond, which a request about a thousand people would show.
        (found if known else nobody)[one] = owner
    return found


@cache
def _make_decoy() -> tuple[bytes, bytes, str]:
    """Return what is opened where an alias is unknown, its key, and its place."""
    key, place = new_key(), "alias of nobody"
    return seal(b"nobody", key, place=place), key, place


def resolve_words(
    context: Context, words: Sequence[str], *, strangers: bool
) -> list[str]:
    """Return the id that each word means; see ``RegistryAliases.resolve``."""
    keys = read_tag_keys(context.paths)
    # Only these can be anything but an id.
    forms = dict.fromkeys(word for word in words if ":" in word)
    with context.store.read() as connection:
        own = set() if strangers else _find_own(connection, list(forms), keys=keys)
        parsed = {word: _parse(word, is_id=word in own) for word in forms}
        known = [one for one in parsed.values() if one is not None]
        behind = _find_ids(connection, known, keys=keys)
    meant = {}
    for word, one in parsed.items():
        meant[word] = word if one is None else behind.get(one, word)
        if word in own and meant[word] != word:
            raise AmbiguousAlias(
                f"a word with the kind {one.kind if one else ''} is the id of one "
                "person and leads to another; write id: before it if you mean the id, "
                "or remove the alias"
            )
    return [meant.get(word, word) for word in words]


def _find_own(
    connection: Connection, words: Sequence[str], *, keys: Sequence[TagKey]
) -> set[str]:
    """Return the words that a model holds as ids."""
    tags = {word: subject_tags(word, keys) for word in words}
    every = [tag for some in tags.values() for tag in some]
    held = people_table.models_by_tag(connection, every)
    return {word for word in words if not held.keys().isdisjoint(tags[word])}


def _parse(word: str, *, is_id: bool) -> Identifier | None:
    """Return the identifier that a word spells; None if it can only be an id."""
    try:
        return parse_identifier(word)
    except InvalidInput:
        if is_id:
            return None
        raise
