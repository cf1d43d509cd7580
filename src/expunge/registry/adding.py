# SPDX-License-Identifier: Apache-2.0
"""Adding: a model takes in more rows, of new people or of those it has.

It is then what ``fit`` would make of the data as they now are, and has a new release.
The rows are sealed like those of the fit. People who were forgotten, or whose rows are
restricted, are refused as a fit refuses them.
"""

from collections.abc import Iterable
from functools import partial

from sqlalchemy import Connection

from ..core.rows import Rows
from ..display.progress import be_silent
from ..exceptions import InvalidInput
from ..private_model.people_model import PeopleModel
from ..private_model.subjects import owners_of
from .aliases import write_spellings
from .changes import Move, make_changes, read_moves, require_release
from .completion import finish_committed
from .context import WAIT, Context
from .fits import FitOptions, LeftOut, NewRows, choose_tags, leave_out_forgotten
from .keys import read_tag_keys, write_tag_key_ids
from .loaded_model import dump_by_person
from .recovery.losses import ADDED
from .storage import people_table, releases_table
from .storage.people_table import PersonRows
from .worker import commit_changes, recover


def add_rows(
    context: Context, name: str, *, new: NewRows, options: FitOptions
) -> LeftOut:
    """Add rows to a model, and release it; return what was left out."""
    with context.hold_lock(WAIT):
        recover(context, WAIT)
        with context.store.read() as connection:
            kind = releases_table.read_subject_kind(connection, name)
        options = options._replace(subject_kind=kind)
        X, y, options, left_out = leave_out_forgotten(context, new.X, new.y, options)
        kept = NewRows(X, y, options.sample_weight)
        rows = code_rows(context, name, new=kept, subjects=options.subjects)
        _add_coded(context, name, rows=rows, given=options)
        finish_committed(context, WAIT)
    return left_out


def code_rows(
    context: Context,
    name: str,
    *,
    new: NewRows,
    subjects: Iterable[object] | str | None = None,
) -> Rows:
    """Return rows as a model keeps its own; the lock is held."""
    from ..linear_model.fitting import read_rows  # scikit-learn takes a second

    snapshot = context.load_model(name).snapshot
    X, names = new.X, snapshot.public.feature_names
    if new.columns:
        known = [] if names is None else names.tolist()
        if "time" in new.beside:  # columns of intervals come after its own
            known = known[: X.shape[1]]
        if sorted(new.columns) != sorted(known):
            raise InvalidInput(
                f"columns={list(new.columns)}, which are not those of model {name!r}; "
                "name each of its columns once (expunge schema prints them)"
            )
        X = X[:, [new.columns.index(one) for one in known]]
    return read_rows(
        snapshot,
        X,
        new.y,
        sample_weight=new.sample_weight,
        subjects=subjects,
        beside=new.beside,
    )


def _add_coded(context: Context, name: str, *, rows: Rows, given: FitOptions) -> None:
    """Add rows as they are kept; the lock is held."""
    loaded = require_release(context, name)
    owners = _require_owners(loaded.private, rows, given=given)
    first = loaded.private.n_samples
    members = list(dump_by_person(rows, owners))
    keys = read_tag_keys(context.paths)
    with context.store.read() as connection:
        tags = choose_tags(
            connection, [owner for owner, _ in members], keys=keys, first=first
        )
        (fit,) = people_table.count_fits(connection, [name]).values()
    new = [
        PersonRows(0, name, 0, tag, fit, new=data)
        for tag, (_, data) in zip(tags, members, strict=True)
    ]
    reading = read_moves(context, moves={name: Move([(None, one) for one in new])})
    changes = make_changes(context, reading, on_progress=be_silent)
    named = [(owner, tag) for tag, (owner, _) in zip(tags, members, strict=True)]
    added: dict[str, object] = {"model": name, "number": loaded.number + 1}

    def record(connection: Connection) -> None:
        write_spellings(connection, named, kind=given.subject_kind, keys=keys)

    commit_changes(
        context,
        changes,
        before=partial(write_tag_key_ids, paths=context.paths),
        after=record,
        note={ADDED: added},
    )


def _require_owners(
    private: PeopleModel, rows: Rows, *, given: FitOptions
) -> list[str]:
    """Return whose row each is; refuse a table that differs in it from the fit's."""
    if private.scope.has_people and given.subjects is None:
        raise InvalidInput(
            "the model was fitted with subjects, and these rows have none; say whose "
            "each row is"
        )
    if not private.scope.has_people and given.subjects is not None:
        raise InvalidInput(
            "the model was fitted without subjects, and these rows have some; leave "
            "them out, or fit the model again with subjects"
        )
    return owners_of(given.subjects, len(rows))
