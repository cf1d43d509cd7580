# SPDX-License-Identifier: Apache-2.0
"""Fitting: a model comes under the registry, with the rows of its people.

Anchoring anew: a private state that has never seen those who left.

A state is sums around an anchor that was fitted with everybody. Who opens it can learn
of removed rows (docs/state.md), and only new sums over the rows that are left end that.
They cost passes over all rows, so it is done when the operator says so, and whenever an
answer looks at the rows anyhow. Nothing is released by it.

Shipping: a release leaves the registry, and that is remembered.

It is written down before the file exists, in the journal and in the store: a release
that is out there must be known when somebody whom it contains is forgotten.

Opening: what is private, for the operator and an auditor to see.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sqlalchemy import Connection

from ..audit import Case
from ..exceptions import InvalidInput, Unsupported
from ..files.export import file_of, put_in_place
from ..files.model import require_known
from ..ledger import TagKey, subject_tags
from ..ledger.documents import name as model_name
from ..plan import PlanReport, plan
from ..private_model.holdings import NOBODY
from ..private_model.snapshot import Snapshot, carry, require_weights
from ..private_model.subjects import is_row_name, owners_of
from ..private_model.unlearn import Custody, reanchor
from ..promise.budget import Budget
from ..promise.record import Record
from ..selection.tuned_model import TunedHoldings
from .context import WAIT, Site, now
from .folder import note_tag_keys
from .held import by_person, checkpoint, released
from .requests import require_nobody_returns
from .statements import record
from .status import releases
from .storage import people_table, releases_table, requests_table
from .storage.people_table import PageKeys
from .values import ReleaseStatus
from .worker import begin, complete, write_release

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
        number = releases_table.number(connection, name) + 1
        written = site.checkpoints.write(name, generation, data)
        after = {"checkpoint": written, "number": number}
        releases_table.move_on(connection, name, generation - 1, after)
        write_release(connection, name, number, (model, model._shown))
    site.cache.pop(name, None)
    complete(site, wait)


def _make_room(connection: Connection, name: str, generation: int) -> None:
    """Delete the people of a model, or make a new one without any."""
    if name in releases_table.names(connection):
        people_table.clear(connection, name)
        return
    releases_table.add_model(
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
    there = {
        *people_table.holders(connection, every),
        *requests_table.named(connection, every),
    }
    tagged = []
    for place, (owner, data) in enumerate(members):
        tags = possible.get(owner, (people_table.row_tag(place),))
        known = next((tag for tag in tags if tag in there), tags[0])
        tagged.append((known, data))
    return people_table.enrol(connection, name, tagged)


def anchor_anew(site: Site, name: str) -> None:
    """Replace the state of a model by one made from the rows that are left."""
    held = site.held(name)
    holdings = held.holdings
    if isinstance(holdings, TunedHoldings):
        raise Unsupported(
            f"model {name!r} is tuned and keeps a state for every candidate and fold; "
            "fit it anew to be rid of their anchors"
        )
    remaining = holdings.remaining(NOBODY)
    # Twice: the first step begins at an answer of the old state, and of that the second
    # leaves no more than rounding.
    custody = reanchor(reanchor(holdings.custody, remaining), remaining)
    snapshot = held.model._snapshot.holding(replace(holdings, custody=custody))
    data = checkpoint(held.model, snapshot, held.page_keys)
    written = site.checkpoints.write(name, held.generation + 1, data)
    site.cache.pop(name, None)
    with site.changing() as connection:
        after = {"checkpoint": written, "number": held.number}
        releases_table.move_on(connection, name, held.generation, after)
    site.store.erase(WAIT)
    site.settle()


def ship(site: Site, name: str, path: Path) -> ReleaseStatus:
    """Write the newest release of a model to a file; see ``Registry.ship``."""
    with site.working(WAIT):
        begin(site, WAIT)  # what leaves is in the ledger
        with site.store.reading() as connection:
            number = releases_table.number(connection, name)
            line = releases_table.release(connection, name, number)
        data = file_of(released(line), path)  # or refuse, before anything
        # After it was taken back, should the clock be slow: it is out there again.
        time = max(now(), (line.withdrawn or 0) + 1)
        shipment = {"model": name, "number": number, "time": time, "name": path.name}
        with site.changing() as connection:
            releases_table.record_shipment(connection, shipment)
            left = _left(connection, name)
            record(site, connection, {"shipped": shipment})
    put_in_place(path, data)
    return left[number]


def withdraw(site: Site, name: str, number: int) -> None:
    """State that every copy of a release was taken back."""
    with site.working(WAIT):
        with site.store.reading() as connection:
            releases_table.release(connection, name, number)  # or refuse
            left = _left(connection, name)
        if number not in left:
            raise InvalidInput(
                f"release {number} of model {name!r} never left, so there is nothing "
                "to take back; see status"
            )
        time = max(now(), left[number].shipped[-1][0])
        line = {"model": name, "number": number, "time": time}
        with site.changing() as connection:
            releases_table.withdraw(connection, line)
            record(site, connection, {"withdrawn": line})


def _left(connection: Connection, name: str) -> dict[int, ReleaseStatus]:
    """Return the releases of a model that left, by number."""
    left = releases(releases_table.shipped(connection, name))
    return {one.number: one for one in left}


def record_of(site: Site, name: str) -> Record:
    """Return the record behind the newest release of a model."""
    with site.working(WAIT):
        record: Record = site.held(name).model.record_
    return record


def case_of(site: Site, name: str) -> Case:
    """Return the removal of the first row that is left, to be put on trial."""
    with site.working(WAIT):
        return _case(site, name)[0]


def plan_of(site: Site, name: str) -> PlanReport:
    """Return how many removals the contract of a model allows, run on its rows."""
    with site.working(WAIT):
        case, budget = _case(site, name)
    if budget is None:
        raise InvalidInput(
            f"model {name!r} was fitted without a contract, so there is nothing to "
            "plan; fit it with a budget"
        )
    return plan(case.objective, case.rows, budget=budget, mechanism=case.mechanism)


def _case(site: Site, name: str) -> tuple[Case, Budget | None]:
    """Return the case of a model, and its contract, with the lock held."""
    holdings = site.held(name).holdings
    rows, custody = holdings.remaining(NOBODY), holdings.custody
    first = np.array([0], dtype=np.intp)
    objective = custody.objective_for(rows)
    return Case(objective, rows, first, custody.mechanism), custody.budget
