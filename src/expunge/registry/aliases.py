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

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, select

from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput
from ..ledger.keys import (
    MAIN,
    TagKey,
    alias_seal_key,
    alias_tags,
    main_tags,
    near_tag,
    subject_tags,
)
from ..private_model.subjects import is_row_name, person
from ..rights.identifiers import (
    ADDRESSES,
    ID,
    Identifier,
    normal_form,
    parse_identifier,
)
from .context import WAIT, Context, RegistryPart
from .fits import ERASED, find_forgotten_rows
from .keys import read_tag_keys, write_tag_key_ids
from .recovery.losses import ALIASED, UNALIASED
from .request import find_waiting_tags
from .storage import people_table, releases_table
from .storage.engine import chunks, insert_lines
from .storage.exclusions_table import renew_excluded
from .storage.keystore import new_key, seal, unseal
from .storage.tables import aliases as alias_table
from .storage.tables import overtaken_error
from .worker import recover

SHOWN = 10  # pairs in an error
STEP = 10_000  # pairs between two reports
SHORT = 32  # digits of a hash: no longer than ids are, and so as quick to be tagged


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


class AliasLine(NamedTuple):
    """An alias as the table holds it."""

    tag: str
    person: str
    sealed: bytes
    near: str | None = None


NO_ALIAS = AliasLine("", "", b"")


class RegistryAliases(RegistryPart):
    """The aliases of a registry, as ``Registry.aliases``."""

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
        """Return the ids that words mean, in order: mostly one each.

        ``email:ada@example.org`` is an alias, if there is one, and the id of a person
        if a model has it: both, where two models know the person by different ids.
        ``id:7`` is the id 7. Any other word is an id, as it is or in the normal form of
        a kind that a model declares for its ids. Raises AmbiguousAlias if a word is, as
        a whole, the id of one person and leads to another.

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
        each = self.resolve_each(words, strangers=strangers)
        return [id_ for ids in each for id_ in ids]

    def resolve_each(
        self, words: Iterable[object], *, strangers: bool = False
    ) -> list[tuple[str, ...]]:
        """Return the ids that each word means; see ``resolve``."""
        ids = [person(word) for word in words]
        return resolve_words(self._context, ids, strangers=strangers)

    def find_meant(
        self, named: Sequence[tuple[Identifier, ...]]
    ) -> list[tuple[str, ...]]:
        """Return the ids that a sender's words ask for, known or not.

        Each word is a tuple of what it may be, in the order in which it is tried. The
        steps, and how many ids there are, are the same for known and unknown people.
        """
        keys = read_tag_keys(self._context.paths)
        with self._context.store.read() as connection:
            return find_meant(connection, named, keys=keys)

    def choose_holders(
        self, ids: Sequence[str], models: Collection[str]
    ) -> tuple[str, ...]:
        """Return the ids by which models hold a person, for new rows of these models.

        Each model has one: the first that it holds. In the place of every other id is
        one that nobody has, so that there are as many for strangers, in as many steps.
        If no model holds any, the first stays.
        """
        keys = read_tag_keys(self._context.paths)
        tags = {one: subject_tags(one, keys) for one in ids}
        every = [tag for some in tags.values() for tag in some]
        with self._context.store.read() as connection:
            nearest = people_table.find_nearest(connection, every)
            there = people_table.models_by_tag(connection, [*nearest.values()])
        held = {
            one: {
                name
                for tag in some
                if nearest.get(tag) == tag
                for name in there.get(tag, ())
            }
            for one, some in tags.items()
        }
        chosen: list[str] = []
        served: set[str] = set()
        for one in ids:
            wanted = held[one].intersection(models)
            # Rows of two ids in one model may be two people's.
            if wanted and served.isdisjoint(wanted):
                chosen.append(one)
                served |= wanted
        stays = chosen or ids[:1]
        return tuple(
            one if one in stays else f"nobody:{Identifier('nobody', one).digest()}"
            for one in ids
        )

    def remove(self, identifiers: Iterable[Identifier]) -> int:
        """Delete aliases, from disk too; return how many there were."""
        context = self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)
            keys = read_tag_keys(context.paths)
            tags = [tag for one in identifiers for tag in alias_tags(one, keys)]
            note: dict[str, Any] = {}
            with context.log.record(note, in_turn=True) as connection:
                n_removed = sum(
                    connection.execute(
                        delete(alias_table).where(alias_table.c.tag.in_(chunk))
                    ).rowcount
                    for chunk in chunks(tags)
                )
                if n_removed:
                    note[UNALIASED] = n_removed
            context.store.erase_deleted(WAIT)
        return n_removed

    def count(self) -> int:
        """Return how many aliases there are; an id that leads to itself is none."""
        query = select(func.count()).where(alias_table.c.tag.not_like(f"{MAIN}%"))
        with self._context.store.read(snapshot=False) as connection:
            return int(connection.scalar(query) or 0)


class _NewAlias(NamedTuple):
    """An alias to add: its tags and those of its person, newest key first."""

    tags: tuple[str, ...]
    people: tuple[str, ...]
    sealed: bytes
    near: str | None
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
        gone = set(_find_erased_rows(context, owners))
        stays = (one for one in new if one.position not in gone)
        new = sorted(stays, key=_first_tag)
        single = _require_one_person(new)
        with context.store.read() as connection:
            absent = _select_absent(connection, single)
        # As short as can be: on SQLite nobody else can write meanwhile.
        note = {ALIASED: len(absent)} if absent else {}
        with context.log.record(note, in_turn=True) as connection:
            write_tag_key_ids(connection, context.paths)  # a killed rotation did not
            used = _find_used_tags(connection, absent)
            renew_excluded(connection, [one.tags for one in absent])
            for start in range(0, len(absent), STEP):
                on_progress(len(pairs) + start, 2 * len(pairs))
                lines = [_make_line(one, used) for one in absent[start : start + STEP]]
                # Quickest in the order of their tags.
                insert_lines(connection, alias_table, lines=lines)
    on_progress(2 * len(pairs), 2 * len(pairs))
    return AliasesAdded(len(absent), len(new) - len(absent), len(gone))


def _find_erased_rows(context: Context, owners: Sequence[str]) -> list[int]:
    """Return the positions of people who were erased, by their very ids."""
    return find_forgotten_rows(context, owners, rights=ERASED, exact=True).rows


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
        near = None if one.hashed else near_tag(f"{one.kind}:{one.value}", keys[0])
        found.append(_NewAlias(tags, tagged[owner], sealed, near, position))
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


def find_aliases(connection: Connection, tags: Sequence[str]) -> dict[str, AliasLine]:
    """Return those aliases that exist, by tag."""
    return {
        line.tag: AliasLine(*line)
        for chunk in chunks(tags)
        for line in connection.execute(
            select(alias_table).where(alias_table.c.tag.in_(chunk))
        )
    }


def _select_absent(
    connection: Connection, single: Sequence[_NewAlias]
) -> list[_NewAlias]:
    """Return the aliases that the store lacks; refuse one that another person has."""
    if connection.scalar(select(alias_table.c.tag).limit(1)) is None:
        return list(single)
    every = [tag for one in single for tag in one.tags]
    there = find_aliases(connection, every)
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
    return used | find_waiting_tags(connection, sorted(several))


def _make_line(one: _NewAlias, used: Set[str]) -> AliasLine:
    """Return an alias as a line, under a tag that any request of its person names.

    A request names every tag that its person had by then. Under a key that came later
    the alias would stay behind, so a tag that is in use already is taken, as by a fit.
    """
    known = (tag for tag in one.people if tag in used)
    return AliasLine(one.tags[0], next(known, one.people[0]), one.sealed, one.near)


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
    connection: Connection,
    identifiers: Sequence[Identifier],
    *,
    keys: Sequence[TagKey],
    tagged: Callable[[Identifier, Sequence[TagKey]], tuple[str, ...]] = alias_tags,
) -> dict[Identifier, str]:
    """Return the id behind each identifier that is known.

    Known and unknown ones take the same steps, so that the time does not tell them
    apart: the store looks up the nearest alias, and where it is another one, a decoy is
    opened in its place. Measured in turns, the medians are 229 and 228 microseconds.
    """
    wanted = dict.fromkeys(identifiers)
    tags = {one: tagged(one, keys) for one in wanted if one.kind != ID}
    every = [tag for some in tags.values() for tag in some]
    # For each tag the alias that has it, or else the next one in order. The store takes
    # the same steps, and returns as much, whether an alias is known or not.
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    nearest: dict[str, AliasLine] = {}
    for chunk in chunks(every):
        marks = ", ".join([f"({mark})"] * len(chunk))
        rows = connection.exec_driver_sql(
            f"WITH wanted (place) AS (VALUES {marks}) "
            "SELECT place, tag, person, sealed FROM wanted JOIN aliases "
            "ON tag = (SELECT min(tag) FROM aliases WHERE tag >= place)",
            tuple(chunk),
        )
        nearest |= {place: AliasLine(*line) for place, *line in rows}
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
) -> list[tuple[str, ...]]:
    """Return the ids that each word means; see ``RegistryAliases.resolve``."""
    keys = read_tag_keys(context.paths)
    with context.store.read() as connection:
        kinds = releases_table.read_subject_kinds(connection)
        # With a colon a word may be an alias, and without one an id of a kind.
        forms = dict.fromkeys(word for word in words if ":" in word or kinds)
        own = set() if strangers else find_held(connection, list(forms), keys=keys)
        parsed = {word: _parse(word, is_id=word in own) for word in forms}
        known = [one for one in parsed.values() if one is not None and one.kind != ID]
        behind = _find_ids(connection, known, keys=keys)
        mains = _find_ids(connection, known, keys=keys, tagged=main_tags)
        spelled = {
            word: [form for kind in kinds if (form := normal_form(kind, word))]
            for word, one in parsed.items()
            if one is None and word not in own and not strangers
        }
        # As many for known words as for unknown ones.
        every = [form for some in spelled.values() for form in some]
        for named in known:
            is_id = _is_address(named) or (named.kind in kinds and not named.hashed)
            word = named.value if is_id else named.digest()
            every += [word, behind.get(named, word), mains.get(named, word)]
        held = set() if strangers else find_held(connection, every, keys=keys)
    meant: dict[str, tuple[str, ...]] = {}
    for word, one in parsed.items():
        if one is None:
            known_as = [form for form in spelled.get(word, ()) if form in held]
            meant[word] = tuple(dict.fromkeys(known_as)) or (word,)
            continue
        if one.kind == ID:
            meant[word] = (one.value,)
        else:
            ids = [found[one] for found in (mains, behind) if one in found]
            if one not in mains and not one.hashed and one.value in held:
                ids.insert(0, one.value)
            if len(ids) > 1:  # a model that had one of them may be gone
                ids = [id_ for id_ in ids if id_ in held] or ids
            # Of a stranger, the id that a model of this kind would have.
            is_id = one.kind in kinds and not one.hashed
            meant[word] = tuple(dict.fromkeys(ids)) or (one.value if is_id else word,)
        if word in own and meant[word] != (word,):
            raise AmbiguousAlias(
                f"a word with the kind {one.kind} is the id of one person and leads to "
                "another; write id: before it if you mean the id, or remove the alias"
            )
    return [meant.get(word, (word,)) for word in words]


def _is_address(one: Identifier) -> bool:
    """Whether an identifier is a person's wherever it stands, so as an id too."""
    return one.kind in ADDRESSES and not one.hashed


def find_meant(
    connection: Connection,
    named: Sequence[tuple[Identifier, ...]],
    *,
    keys: Sequence[TagKey],
) -> list[tuple[str, ...]]:
    """Return the ids under which a sender's words ask for somebody.

    Each of ``named`` is what one word may be, in the order in which it is tried: an id,
    then an alias. How many ids there are, and the steps to find them, follow from the
    words and the kinds that models declare, and not from who is known: where somebody
    is not found, a hash stands for them.
    """
    kinds = {*releases_table.read_subject_kinds(connection)}
    every = [one for some in named for one in some if one.kind != ID]
    behind = _find_ids(connection, every, keys=keys)
    mains = _find_ids(connection, every, keys=keys, tagged=main_tags)
    tried = [one.value for some in named for one in some[:-1] if one.kind == ID]
    held = find_held_or_next(connection, tried, keys=keys)
    meant = []
    for some in named:
        ids: list[str] = []
        is_found = False
        for one in some:
            if one.kind == ID:
                ids.append(one.value)
                ids += [
                    form for kind in kinds if (form := normal_form(kind, one.value))
                ]
                is_found = is_found or one.value in held
                continue
            digest = one.digest()
            nobody = f"{one.kind}:{digest[:SHORT]}"
            alias = behind.get(one, nobody)
            if one.kind in kinds or _is_address(one):
                # An id of that kind, and beside it the alias that another model knows.
                other = f"{one.kind}:{digest[SHORT:]}" if one.hashed else one.value
                main = mains.get(one, other)
                ids += [main, alias if alias != main else nobody]
            else:
                # The alias may be somebody else's, if the word is an id already.
                ids.append(nobody if is_found else alias)
        meant.append(tuple(dict.fromkeys(ids)))
    return meant


def find_held(
    connection: Connection, ids: Sequence[str], *, keys: Sequence[TagKey]
) -> set[str]:
    """Return those ids that a model holds, or that are sealed apart."""
    tags = [subject_tags(one, keys) for one in ids]
    held = people_table.models_by_tag(
        connection, [tag for some in tags for tag in some]
    )
    found = zip(ids, tags, strict=True)
    return {one for one, some in found if not held.keys().isdisjoint(some)}


def find_held_or_next(
    connection: Connection, ids: Sequence[str], *, keys: Sequence[TagKey]
) -> set[str]:
    """Return what ``find_held`` does, in steps that are the same for everybody."""
    tags = {one: subject_tags(one, keys) for one in ids}
    every = [tag for some in tags.values() for tag in some]
    nearest = people_table.find_nearest(connection, every)
    return {one for one in ids if any(nearest.get(tag) == tag for tag in tags[one])}


def write_spellings(
    connection: Connection,
    people: Sequence[tuple[str, str]],
    *,
    kind: str,
    keys: Sequence[TagKey],
) -> None:
    """Write how people whose rows just came may be looked for, beside their ids.

    ``people`` are ids and the tags under which they are kept. Each gets the tag of its
    loosest form; an id of a declared kind is found by its hash too.
    """
    named = [(owner, tag) for owner, tag in people if not is_row_name(owner)]
    people_table.write_near(
        connection, {tag: near_tag(owner, keys[0]) for owner, tag in named}
    )
    if kind == ID:
        return
    identifiers = [Identifier(kind, owner) for owner, _ in named]
    tagged = [main_tags(one, keys) for one in identifiers]
    there = find_aliases(connection, [tag for one in tagged for tag in one])
    lines = [
        AliasLine(tags[0], tag, _seal_id(owner, one, tag=tags[0], key=keys[0]))
        for (owner, tag), one, tags in zip(named, identifiers, tagged, strict=True)
        if there.keys().isdisjoint(tags)
    ]
    if lines:
        insert_lines(connection, alias_table, lines=sorted(lines))


def _parse(word: str, *, is_id: bool) -> Identifier | None:
    """Return the identifier that a word spells; None if it can only be an id."""
    try:
        return parse_identifier(word)
    except InvalidInput:
        if is_id:
            return None
        raise
