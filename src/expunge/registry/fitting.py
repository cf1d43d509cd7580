# SPDX-License-Identifier: Apache-2.0
"""Fitting: a model comes under the registry, with the rows of its people."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import ArrayLike
from sklearn.base import clone
from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..files.contents import require_known
from ..ids import is_row_name
from ..ledger import TagKey, subject_tags
from ..ledger.pages import name as model_name
from ..linear_model.owners import owners_of
from ..linear_model.snapshot import Snapshot, carry, require_weights
from ..stores import people, publications, requests
from ..stores.people import PageKeys
from ..unlearn import Custody
from .applying import write_release
from .completing import complete
from .held import by_person, checkpoint
from .keys import note_tag_keys
from .returning import require_nobody_returns
from .site import Site, now

# Each follows "It says nothing about ...".
NOT_COVERED = (
    "copies of earlier releases that left the registry: they are marked as superseded, "
    "and whoever holds one must stop using it",
    "backups, replicas and archived logs of the database, and copies of the key file",
    "the keyed hash of a person's id that the journal keeps, so that a restored backup "
    "brings nobody back",
)

# Of a model that nobody's rows are in.
NO_PEOPLE = (
    "the removal of anybody: the model was fitted without saying whose rows these are, "
    "so nobody can be found in it",
)


def require_name(name: object) -> str:
    """Return the name of a model; refuse what the ledger would not take."""
    try:
        word: str = model_name(name)
    except ValueError as error:
        raise InvalidInput(
            f"model {str(name)[:80]!r}: {error}; it stands in the public ledger, so it "
            "should tell nothing of a person"
        ) from None
    return word


class Given(NamedTuple):
    """What ``Registry.fit`` is told beside the estimator and its rows."""

    subjects: Iterable[object] | None
    sample_weight: ArrayLike | None
    search: object


def fitted(model: Any, X: Any, y: Any, given: Given, *, again: bool) -> Any:
    """Return the fit of an estimator, its certificate saying what is not covered.

    The caller's object stays as it is: a fitted one would hold the rows, and could make
    releases that the registry does not count. What was declared of it is declared of
    the fit.

    Parameters
    ----------
    model, X, y, given
        As ``Registry.fit`` takes them.
    again
        Whether a model of that name was fitted before, under a contract of its own.
    """
    subjects, sample_weight, search = given
    require_known(model)
    if not getattr(model, "keep_data", True):
        raise InvalidInput(
            "keep_data=False; a registry keeps the rows, sealed, since certified "
            "answers may need them: leave keep_data alone"
        )
    before: Snapshot | None = getattr(model, "_snapshot", None)
    require_weights(before, sample_weight)
    fresh = clone(model)
    prepared = fresh._prepare(X, y, sample_weight)
    prepared = prepared.with_pair(None if before is None else before.shown.pair)
    notes = NOT_COVERED if subjects is not None else (*NOT_COVERED, *NO_PEOPLE)

    def stated(custody: Custody) -> Custody:
        custody = carry(custody, before, search)
        scope = custody.scope
        said = tuple(dict.fromkeys((*scope.not_covered, *notes)))
        apart = scope.counted_apart or again
        return replace(
            custody, scope=replace(scope, counted_apart=apart, not_covered=said)
        )

    fresh._hold(prepared, owners_of(subjects, len(prepared.rows)), adjust=stated)
    return fresh


def take_in(site: Site, name: str, model: Any, wait: float) -> None:
    """Write a fitted model into the store, in the place of one of that name."""
    owners = model._private_state().kept.owners
    require_nobody_returns(site, [one for one in owners if not is_row_name(one)])
    generation = site.checkpoints.vault.prepare(name).generation + 1
    with site.changing() as connection:
        _make_room(connection, name, generation - 1)
        note_tag_keys(connection, site.places.keys)  # a killed rotation did not
        page_keys = _enrolled(connection, name, model, site.tag_keys())
        data = checkpoint(model, model._snapshot, page_keys)
        number = publications.number(connection, name) + 1
        written = site.checkpoints.write(name, generation, data)
        after = {"checkpoint": written, "number": number}
        publications.move_on(connection, name, generation - 1, after)
        write_release(connection, name, number, (model, model._shown))
    site.cache.pop(name, None)
    complete(site, wait)


def _make_room(connection: Connection, name: str, generation: int) -> None:
    """Delete the people of a model, or make a new one without any."""
    if name in publications.names(connection):
        people.clear(connection, name)
        return
    publications.add_model(
        connection,
        {
            "name": name,
            "created": now(),
            "number": 0,
            "generation": generation,
            "checkpoint": "",
        },
    )


def _enrolled(
    connection: Connection, name: str, model: Any, keys: Sequence[TagKey]
) -> PageKeys:
    """Take people in, under the tags they have already or under new ones."""
    kept = model._private_state().kept
    members = list(by_person(kept.rows, kept.owners))
    possible = {
        owner: subject_tags(owner, keys)
        for owner, _ in members
        if not is_row_name(owner)
    }
    every = [tag for tags in possible.values() for tag in tags]
    # Those whom a waiting request names must be found under the tag that it names.
    there = {*people.holders(connection, every), *requests.named(connection, every)}
    tagged = []
    for place, (owner, data) in enumerate(members):
        tags = possible.get(owner, (people.row_tag(place),))
        known = next((tag for tag in tags if tag in there), tags[0])
        tagged.append((known, data))
    return people.enrol(connection, name, tagged)
