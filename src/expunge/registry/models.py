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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sqlalchemy import Connection

from ..audit import Case
from ..exceptions import InvalidInput
from ..files.export import file_of, put_in_place
from ..ledger import TagKey, subject_tags
from ..ledger.documents import name as model_name
from ..plan import PlanReport, plan
from ..private_model.model import require_rows
from ..private_model.snapshot import Snapshot, name_of
from ..private_model.subjects import is_row_name
from ..private_model.training_rows import TrainingRows
from ..promise.budget import Budget
from ..promise.certificate import Scope
from ..promise.record import Record
from .context import WAIT, Context, now
from .folder import write_tag_key_ids
from .loaded_model import dump_by_person, dump_checkpoint, load_public
from .requests import require_nobody_returns
from .statements import append_line
from .status import shipped_releases
from .storage import people_table, releases_table, requests_table
from .storage.people_table import PageKeys
from .values import ReleaseStatus
from .worker import finish_committed, recover, write_release


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


class FitOptions(NamedTuple):
    """What ``Registry.fit`` is told beside the estimator and its rows."""

    subjects: Iterable[object] | None
    sample_weight: ArrayLike | None
    search: object


def fit_estimator(
    model: Any, X: Any, y: Any, given: FitOptions, *, again: bool
) -> Snapshot:
    """Return the fit of an estimator, its certificate saying what is not covered.

    The caller's object stays as it is: a fitted one would hold the rows, and could make
    releases that the registry does not count. What was declared of it is declared of
    the fit.

    Parameters
    ----------
    model, X, y, given
        As ``Registry.fit`` takes them.
    again
        Whether a model of that name was fitted before, under a budget of its own.
    """
    from ..linear_model.fitting import fit_copy  # scikit-learn, which others need not

    subjects, sample_weight, search = given
    if not getattr(model, "keep_data", True):
        raise InvalidInput(
            "keep_data=False; a registry keeps the rows, sealed, since certified "
            "answers may need them: leave keep_data alone"
        )
    scope = Scope(
        in_registry=True,
        has_people=subjects is not None,
        counted_apart=again,
        declared=() if search is None else (name_of(search),),
    )
    return fit_copy(
        model, X, y, subjects=subjects, sample_weight=sample_weight, scope=scope
    )


def store_model(context: Context, name: str, snapshot: Snapshot, wait: float) -> None:
    """Write a fitted model into the store, in the place of one of that name."""
    assert snapshot.private is not None and snapshot.private.training_rows is not None
    kept = snapshot.private.training_rows
    people = [owner for owner in kept.owners if not is_row_name(owner)]
    require_nobody_returns(context, people)
    generation = context.checkpoints.vault.create_keys(name).generation + 1
    with context.write_in_turn() as connection:
        _clear_model(connection, name, generation - 1)
        write_tag_key_ids(connection, context.paths.keys)  # a killed rotation did not
        page_keys = _insert_people(connection, name, kept, keys=context.tag_keys())
        data = dump_checkpoint(snapshot, page_keys)
        number = releases_table.newest_number(connection, name) + 1
        written = context.checkpoints.write(name, generation, data)
        after = {"checkpoint": written, "number": number}
        releases_table.advance_model(connection, name, generation - 1, after)
        write_release(connection, name, number, snapshot.public)
    context.cache.pop(name, None)
    finish_committed(context, wait)


def _clear_model(connection: Connection, name: str, generation: int) -> None:
    """Delete the people of a model, or make a new one without any."""
    if name in releases_table.model_names(connection):
        people_table.delete_all_people(connection, name)
        return
    releases_table.insert_model(
        connection,
        {
            "name": name,
            "created": now(),
            "number": 0,
            "generation": generation,
            "checkpoint": "",
        },
    )


def _insert_people(
    connection: Connection, name: str, kept: TrainingRows, *, keys: Sequence[TagKey]
) -> PageKeys:
    """Insert people under the tags they have already, or under new ones."""
    members = list(dump_by_person(kept.rows, kept.owners))
    possible = {
        owner: subject_tags(owner, keys)
        for owner, _ in members
        if not is_row_name(owner)
    }
    every = [tag for tags in possible.values() for tag in tags]
    # Those whom a waiting request names must be found under the tag that it names.
    there = {
        *people_table.models_by_tag(connection, every),
        *requests_table.find_waiting_tags(connection, every),
    }
    tagged = []
    for place, (owner, data) in enumerate(members):
        tags = possible.get(owner, (people_table.row_tag(place),))
        known = next((tag for tag in tags if tag in there), tags[0])
        tagged.append((known, data))
    return people_table.insert_people(connection, name, tagged)


def reanchor_model(context: Context, name: str) -> None:
    """Replace the state of a model by one made from the rows that are left."""
    loaded = context.load_model(name)
    rows = require_rows(loaded.private)
    # Twice: the first step begins at an answer of the old state, and of that the second
    # leaves no more than rounding.
    private = loaded.private.reanchor(rows).reanchor(rows)
    data = dump_checkpoint(loaded.snapshot.keep(private), loaded.page_keys)
    written = context.checkpoints.write(name, loaded.generation + 1, data)
    context.cache.pop(name, None)
    with context.write_in_turn() as connection:
        after = {"checkpoint": written, "number": loaded.number}
        releases_table.advance_model(connection, name, loaded.generation, after)
    context.store.erase_deleted(WAIT)
    context.destroy_old_checkpoints()


def ship_release(context: Context, name: str, path: Path) -> ReleaseStatus:
    """Write the newest release of a model to a file; see ``Registry.ship``."""
    with context.hold_lock(WAIT):
        recover(context, WAIT)  # what leaves is in the ledger
        with context.store.read() as connection:
            number = releases_table.newest_number(connection, name)
            line = releases_table.find_release(connection, name, number)
        data = file_of(
            load_public(name, line.content), path
        )  # or refuse, before anything
        # After it was taken back, should the clock be slow: it is out there again.
        time = max(now(), (line.withdrawn or 0) + 1)
        shipment = {"model": name, "number": number, "time": time, "name": path.name}
        with context.write_in_turn() as connection:
            releases_table.insert_shipment(connection, shipment)
            left = _read_shipped(connection, name)
            append_line(context, connection, {"shipped": shipment})
    put_in_place(path, data)
    return left[number]


def withdraw_release(context: Context, name: str, number: int) -> None:
    """State that every copy of a release was taken back."""
    with context.hold_lock(WAIT):
        with context.store.read() as connection:
            releases_table.find_release(connection, name, number)  # or refuse
            left = _read_shipped(connection, name)
        if number not in left:
            raise InvalidInput(
                f"release {number} of model {name!r} never left, so there is nothing "
                "to take back; see status"
            )
        time = max(now(), left[number].shipped[-1][0])
        line = {"model": name, "number": number, "time": time}
        with context.write_in_turn() as connection:
            releases_table.mark_withdrawn(connection, line)
            append_line(context, connection, {"withdrawn": line})


def _read_shipped(connection: Connection, name: str) -> dict[int, ReleaseStatus]:
    """Return the releases of a model that left, by number."""
    left = shipped_releases(releases_table.read_shipments(connection, name))
    return {one.number: one for one in left}


def read_record(context: Context, name: str) -> Record:
    """Return the record behind the newest release of a model."""
    with context.hold_lock(WAIT):
        record = context.load_model(name).snapshot.record
    assert record is not None
    return record


def read_case(context: Context, name: str) -> Case:
    """Return the removal of the first row that is left, to be put on trial."""
    with context.hold_lock(WAIT):
        return _read_case(context, name)[0]


def plan_removals(context: Context, name: str) -> PlanReport:
    """Return how many removals the contract of a model allows, run on its rows."""
    with context.hold_lock(WAIT):
        case, budget = _read_case(context, name)
    if budget is None:
        raise InvalidInput(
            f"model {name!r} was fitted without a contract, so there is nothing to "
            "plan; fit it with a budget"
        )
    return plan(case.objective, case.rows, budget, case.mechanism)


def _read_case(context: Context, name: str) -> tuple[Case, Budget | None]:
    """Return the case of a model, and its contract, with the lock held."""
    private = context.load_model(name).private
    rows, agreement = require_rows(private), private.agreement
    first = np.array([0], dtype=np.intp)
    objective = agreement.objective_for(rows)
    return Case(objective, rows, first, agreement.mechanism), agreement.budget
