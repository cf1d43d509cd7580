# SPDX-License-Identifier: Apache-2.0
"""Known: what the registry holds of a person, for the eyes of operators.

A *look* says in which models somebody is, by which ids, whether their rows are in use,
restricted or held, and what waits. It is for the moment before an answer. An *account*
holds the rows too: it is what a person gets who asks for their data, and it is kept
nowhere. Both are written into the trail before anything is handed out, without saying
who was looked up.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from sqlalchemy import func, select

from ..core.values import Private
from ..exceptions import UnknownSubject
from ..ledger import subject_tags
from ..ledger.documents import day_of
from ..private_model.subjects import people
from .context import WAIT, Context, RegistryPart
from .deciding import NOBODY, Decider, name_actor
from .keys import read_tag_keys
from .now import today
from .request import ACCEPTED, find_requests, find_requests_about
from .requests import RegistryRequests, find_tags
from .storage import people_table, releases_table
from .storage.people_table import PersonRows
from .storage.tables import aliases, models
from .trail import Note
from .worker import recover

FORMAT = "expunge account 1"


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of a person in one fit of a model, and where they are.

    Parameters
    ----------
    model
        Of which model.
    place
        "in use", "restricted" or "held".
    request, reason, until
        Which request set them aside, why, and until which day; empty if none did.
    """

    model: str
    place: str
    request: str = ""
    reason: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class KnownPerson(Private):
    """What is known under one word.

    Parameters
    ----------
    word
        As it was typed.
    ids
        The ids that it means.
    rows
        Where rows are.
    requests
        Requests that name the person and wait.
    n_aliases
        How many aliases lead there.
    forgotten
        Whether somebody of such an id was forgotten, and did not come back.
    near
        The id of somebody else who is spelled almost so: empty if that cannot be told,
        None if there is nobody.
    """

    word: str
    ids: tuple[str, ...]
    rows: tuple[HeldRows, ...]
    requests: tuple[str, ...]
    n_aliases: int
    forgotten: bool
    near: str | None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class Look(Private):
    """What is known under some words, and which kinds of identifier were tried."""

    people: tuple[KnownPerson, ...]
    tried: tuple[str, ...]


class RegistryPeople(RegistryPart):
    """What is known of people, as ``Registry.people``."""

    def look(self, words: Iterable[object], *, by: Decider = NOBODY) -> Look:
        """Return what is known under words, as ``requests.look_up`` reads them.

        Parameters
        ----------
        words
            As on a command line.
        by
            Who looks, and why: for the access log.
        """
        every = people(words)
        self._note(by, "look up people", n_words=len(every))
        return look(self._context, every)

    def account(self, words: Iterable[object], *, by: Decider = NOBODY) -> str:
        """Return all that is held of one person, with their rows, as JSON.

        It is for the person who asks for their data, and is kept nowhere. Rows are as
        models keep them: the columns that a model uses, before it scales or encodes.
        Raises UnknownSubject if nothing is held.

        Parameters
        ----------
        words
            What the person is known by; all of it is of one person.
        by
            Who takes it out, and why: for the access log.
        """
        every, context = people(words), self._context
        self._note(by, "export a person", n_words=len(every))
        found = look(context, every)
        ids = list(dict.fromkeys(one for some in found.people for one in some.ids))
        with context.hold_lock(WAIT):  # what is read of a model must be of one moment
            recover(context, WAIT)
            rows = _read_rows(context, ids)
            if not rows:
                raise UnknownSubject(
                    "we found nothing under what was given, looked for as "
                    f"{', '.join(found.tried)}; check it, or give what else the person "
                    "is known by"
                )
            held = [_describe_rows(context, one) for one in rows]
        waiting = {id_ for one in found.people for id_ in one.requests}
        with context.store.read() as connection:
            asked = find_requests(connection, sorted(waiting)).values()
        said = {
            "format": FORMAT,
            "made": today().isoformat(),
            "given": list(every),
            "looked_for_as": list(found.tried),
            "models": held,
            "requests": [
                {
                    "request": one.request,
                    "right": one.right,
                    "submitted": one.submitted,
                    "deadline": day_of(one.deadline),
                }
                for one in asked
            ],
            "aliases": sum(one.n_aliases for one in found.people),
        }
        return json.dumps(said, indent=1, ensure_ascii=False)

    def _note(self, by: Decider, action: str, *, n_words: int) -> None:
        """Write into the trail that somebody looked, and not at whom."""
        from .access import RegistryAccess

        actor = name_actor(self._context, by)
        note = Note(actor, action, f"{n_words} named", by.via, by.reason)
        RegistryAccess(self._context).record([note])


def look(context: Context, words: Sequence[str]) -> Look:
    """Return what is known under words."""
    requests = RegistryRequests(context)
    meant = requests.look_up(words)
    forgotten = {*requests.find_forgotten(meant.ids)}
    keys = read_tag_keys(context.paths)
    possible = {one: subject_tags(one, keys) for one in meant.ids}
    with context.store.read() as connection:
        tags = find_tags(connection, possible)
        held: dict[str, list[PersonRows]] = {}
        known = [tag for tag in tags.values() if tag]
        for one in people_table.find_tagged_rows(connection, known):
            held.setdefault(one.tag, []).append(one)
        query = select(aliases.c.person, func.count()).group_by(aliases.c.person)
        led = {
            tag: int(n)
            for tag, n in connection.execute(query.where(aliases.c.person.in_(known)))
        }
        asked = {
            one: find_requests_about(connection, some, stage=ACCEPTED)
            for one, some in possible.items()
        }
    found = []
    for word in words:
        ids = meant.meant[word]
        theirs = [tag for one in ids if (tag := tags[one])]
        rows = [HeldRows(one.model, *one.said) for tag in theirs for one in held[tag]]
        waiting = dict.fromkeys(request for one in ids for request in asked[one])
        found.append(
            KnownPerson(
                word,
                ids,
                tuple(sorted(rows, key=lambda one: (one.model, one.place))),
                tuple(waiting),
                sum(led.get(tag, 0) for tag in theirs),
                not forgotten.isdisjoint(ids),
                meant.near.get(word),
            )
        )
    return Look(tuple(found), meant.tried)


def _read_rows(context: Context, ids: Sequence[str]) -> list[PersonRows]:
    """Return the sealed rows of ids."""
    keys = read_tag_keys(context.paths)
    with context.store.read() as connection:
        tags = [tag for one in ids for tag in subject_tags(one, keys)]
        return people_table.find_tagged_rows(connection, tags)


def _describe_rows(context: Context, one: PersonRows) -> dict[str, Any]:
    """Return the rows of a person in a model, in words and days where it knows them."""
    from .loaded_model import IN_FILES, load_rows

    with context.store.read() as connection:
        query = select(models.c.created).where(models.c.name == one.model)
        created = connection.scalar(query)
        kept = releases_table.read_columns(connection, one.model)
        is_there = not releases_table.is_removed(connection, one.model)
    said: dict[str, Any] = {
        "model": one.model,
        "fitted_since": day_of(created or 0),
        "place": one.place,
        "reason": one.reason,
        "until": one.until,
    }
    (data,) = people_table.unseal_rows(context.keystore, [one])
    if data.startswith(IN_FILES):
        return said | {"rows": None, "note": "the rows are in files of the operator's"}
    rows, _ = load_rows([data])
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
    columns: list[tuple[str, Any]] = [
        (f"column {place}", None) for place in range(X.shape[1])
    ]
    labels = None
    if is_there:  # of one that was removed nothing tells what the columns were
        loaded = context.load_model(one.model)
        columns = _name_columns(loaded, columns)
        labels = loaded.private.labels
    dates = _find_dates(kept)
    table: dict[str, list[Any]] = {}
    for place, (name, codes) in enumerate(columns):
        if name not in table:  # a column may be read twice
            table[name] = [
                _spell(value, codes, is_date=name in dates) for value in X[:, place]
            ]
    targets: list[Any] = np.asarray(rows.y).tolist()
    if labels is not None:
        classes = dict(zip(labels.codes.tolist(), labels.classes.tolist(), strict=True))
        targets = [classes.get((y + 1) / 2 if labels.signed else y, y) for y in targets]
    return said | {"rows": table, "target": targets, "weight": rows.weight.tolist()}


def _name_columns(loaded: Any, columns: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return name and categories of each column that a model keeps."""
    names = loaded.snapshot.public.feature_names
    recipe = getattr(loaded.private.encoding, "recipe", None)
    if recipe is None or len(recipe.columns) != len(columns):
        if names is None or len(names) != len(columns):
            return columns
        return [(str(name), None) for name in names]
    named = []
    for column in recipe.columns:
        where = column.source
        name = where if isinstance(where, str) or names is None else names[where]
        codes = dict(zip(column.codes, column.categories, strict=True))
        label = str(name) if column.part is None else f"{name} {column.part}"
        named.append((label, codes or None))
    return named


def _find_dates(kept: str) -> set[str]:
    """Return the columns of a table that are days, as its schema says."""
    if not kept:
        return set()
    columns = json.loads(kept)["schema"]["columns"]
    return {one["name"] for one in columns if one["kind"] == "date"}


def _spell(value: float, codes: Any, *, is_date: bool) -> Any:
    """Return a value as it was in the table."""
    if np.isnan(value):
        return None
    if codes is not None:
        return codes.get(int(value), None)
    if is_date and float(value).is_integer():
        return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
    return float(value)
