# SPDX-License-Identifier: Apache-2.0
"""Models of a registry: fitted, shipped, anchored again, and shown to their operator.

**Fitting.** A model comes under the registry with the rows of its people.

**Shipping.** A release leaves the registry. That is recorded in the journal and in the
store before the file exists: a release that is out there must be known when somebody
whom it contains is forgotten.

**Anchoring again.** A state is sums around an anchor that was fitted with everybody.
Anyone who opens it can learn of removed rows (docs/state.md), and only new sums over
the remaining rows end that. They cost passes over all rows, so this happens when the
operator asks for it, and whenever an answer reads the rows anyway. Nothing is released.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sqlalchemy import Connection

from ..core.values import loads
from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput
from ..ledger import TagKey
from ..ledger.documents import model_name
from ..promise.certificate import Certificate
from ..promise.scope import Scope
from ..promise.verification import Record
from ..rights.identifiers import ID, require_kind
from .aliases import write_spellings
from .completion import (
    finish_committed,
    state_releases,
    state_removal,
    state_withdrawal,
)
from .context import WAIT, Context, RegistryPart, give_up_keys
from .deciding import NOBODY, Decider, require_act
from .decisions import REMOVE, WITHDRAW, removing, withdrawing
from .fits import FitOptions, LeftOut, choose_tags, leave_out_forgotten
from .keys import read_tag_keys, write_tag_key_ids
from .now import now
from .statements import delete_model
from .storage import people_table, releases_table
from .storage.keystore import count_made, mark_dead
from .storage.releases_table import ReleaseStatus
from .worker import recover

if TYPE_CHECKING:  # they take half a second to import
    from ..audit import Case
    from ..private_model.snapshot import Snapshot
    from ..private_model.training_rows import TrainingRows
    from .lake import LakeRows


def require_name(name: object) -> str:
    """Return the name of a model; refuse what the ledger would not take."""
    try:
        word: str = model_name(name)
    except ValueError as error:
        raise InvalidInput(
            f"model {str(name)[:80]!r}: {error}; the name is in the public ledger, so "
            "it should say nothing about a person"
        ) from None
    return word


FIT_STEPS = ("looking for people who left", "fitting", "storing", "erasing")
"""What ``Registry.fit`` does, in order; it reports how many of them are done."""


def fit_estimator(
    model: Any,
    X: Any,
    y: Any,
    given: FitOptions,
    *,
    again: bool,
    rows: "LakeRows | None" = None,
) -> "Snapshot":
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
    rows
        Where the rows lie, if they stay in files.
    """
    from ..linear_model.fitting import fit_copy  # scikit-learn takes a second to import
    from ..private_model.snapshot import name_of

    subjects, sample_weight, search = given[:3]
    if not getattr(model, "keep_data", True):
        raise InvalidInput(
            "keep_data=False; a registry keeps the rows, sealed, since certified "
            "answers may need them; leave keep_data=True"
        )
    scope = Scope(
        in_registry=True,
        has_people=subjects is not None,
        counted_apart=again,
        declared=() if search is None else (name_of(search),),
    )
    of_rows: dict[str, Any] = {"subjects": subjects, "sample_weight": sample_weight}
    if rows is not None:
        scope, of_rows["engine"] = rows.state_in(scope), rows.lake.engine
    return fit_copy(model, X, y, scope=scope, **of_rows)


def recommend_items(
    context: Context, name: str, *, user_items: Any, k: int
) -> list[str]:
    """Return what a recommender recommends; the matrix stays with the private model."""
    from ..linear_model.recommenders import recommender_of

    with context.hold_lock(WAIT):
        model = recommender_of(context.load_model(name).snapshot)
        found: list[str] = model.recommend(user_items, k).tolist()
        return found


def fit_model(
    context: Context,
    name: str,
    *,
    model: Any,
    X: Any,
    y: Any,
    options: FitOptions,
    replaces: bool,
) -> LeftOut:
    """Fit an estimator and store it, as a new model or in the place of one."""
    from ..long import LongTable

    require_name(name)
    require_kind(options.subject_kind)
    is_long = isinstance(getattr(X, "table", X), LongTable)
    if y is None and not is_long and getattr(model, "needs_targets", True):
        raise InvalidInput("y is missing; only a long table brings its own labels")
    with context.hold_lock(WAIT):
        _require_place(context, name, replaces=replaces)
        recover(context, WAIT)
        steps, n_steps = options.on_progress, len(FIT_STEPS)
        steps(0, n_steps)
        rows = None
        with ExitStack() as opened:
            if is_long:
                from .lake import open_lake

                X, y, options, left_out, rows = opened.enter_context(
                    open_lake(context, X, y, given=options, name=name)
                )
            else:
                X, y, options, left_out = leave_out_forgotten(context, X, y, options)
            steps(1, n_steps)
            fitted = fit_estimator(model, X, y, options, again=replaces, rows=rows)
            steps(2, n_steps)
            store_model(
                context,
                name,
                snapshot=fitted,
                rows=rows,
                kind=options.subject_kind,
                columns=options.columns,
            )
        steps(3, n_steps)
        finish_committed(context, WAIT)
        steps(n_steps, n_steps)
    return left_out


def _require_place(context: Context, name: str, *, replaces: bool) -> None:
    """Refuse a name that no model can have, or that another one has already."""
    with context.store.read() as connection:
        exists = name in releases_table.model_names(connection)
        if releases_table.is_removed(connection, name):
            raise InvalidInput(
                f"there was a model {name!r}, and it was removed for good; "
                "give this one another name"
            )
    if exists and not replaces:
        raise InvalidInput(
            f"there is already a model {name!r}; give this one another name, or "
            "replace the old one (refit, or --replace)"
        )
    if replaces and not exists:
        raise InvalidInput(f"there is no model {name!r} to replace; fit it")


def store_model(
    context: Context,
    name: str,
    *,
    snapshot: "Snapshot",
    rows: "LakeRows | None",
    kind: str = ID,
    columns: str = "",
) -> None:
    """Write a fitted model into the store, in the place of one of that name.

    ``rows`` says where they lie, if they stay in files, ``kind`` what kind of
    identifier the ids of its people are, and ``columns`` what its table has.
    """
    from ..private_model.training_rows import require_in_memory
    from .changes import write_release
    from .loaded_model import dump_checkpoint

    private = snapshot.private
    assert private is not None and private.training_rows is not None
    kept = None if rows is not None else require_in_memory(private.training_rows)
    files = None
    made: list[int] = []
    with give_up_keys(context, made) as is_done, context.log.batch() as connection:
        _clear_model(connection, name)
        write_tag_key_ids(connection, context.paths)  # a killed rotation did not
        keys = read_tag_keys(context.paths)
        named: list[tuple[str, str]] = []
        if kept is not None:
            named, dumped = _dump_people(connection, kept=kept, keys=keys)
            people: Iterable[tuple[str, bytes]] = dumped
        elif rows is not None:
            people = rows.dump_people()
        (fits,) = people_table.count_fits(connection, [name]).values()
        numbers = people_table.insert_people(
            connection, context.keystore, model=name, fit=fits + 1, people=people
        )
        made += numbers
        if rows is None:
            write_spellings(connection, named, kind=kind, keys=keys)
        elif rows.people is not None:
            for some in rows.people.spellings():
                people_table.write_near(connection, some)
        if rows is not None:
            files = rows.describe(end=max(numbers, default=-1) + 1)
        data = dump_checkpoint(snapshot, files=files)
        number = releases_table.newest_number(connection, name) + 1
        before = releases_table.read_keys(connection)[name]
        written = context.checkpoints.write(name, data)
        made.append(written)
        after: dict[str, object] = {"key": written, "number": number, "fits": fits + 1}
        after |= {"subject_kind": kind, "columns": columns}
        mark_dead(connection, [before])
        releases_table.advance_model(connection, name, before=before, after=after)
        write_release(connection, name, number=number, public=snapshot.public)
        state_releases(connection, [name])
        count_made(connection, made)
        is_done()
    context.cache.pop(name, None)


def _clear_model(connection: Connection, name: str) -> None:
    """Delete the people of a model, or make a new one without any."""
    if name in releases_table.model_names(connection):
        people_table.delete_all_people(connection, name)
        return
    new = {"name": name, "created": now(), "number": 0, "key": 0}
    releases_table.insert_model(connection, new)


def _dump_people(
    connection: Connection, *, kept: "TrainingRows", keys: Sequence[TagKey]
) -> tuple[list[tuple[str, str]], list[tuple[str, bytes]]]:
    """Return people with their tags, old or new, and these with their rows."""
    from .loaded_model import dump_by_person

    members = list(dump_by_person(kept.rows, kept.owners))
    owners = [owner for owner, _ in members]
    tags = choose_tags(connection, owners, keys=keys)
    dumped = [(tag, data) for tag, (_, data) in zip(tags, members, strict=True)]
    return list(zip(owners, tags, strict=True)), dumped


def reanchor_model(context: Context, name: str) -> None:
    """Replace the state of a model by one made from the rows that are left."""
    from .changes import write_unreleased
    from .loaded_model import require_passes

    loaded = context.load_model(name)
    rows = require_passes(loaded)
    # Twice: the first step begins at an answer of the old state, and of that the second
    # leaves no more than rounding.
    private = loaded.private.reanchor(rows).reanchor(rows)
    write_unreleased(context, loaded.keep(private))
    finish_committed(context, WAIT)


def remove_model(context: Context, name: str) -> None:
    """Retire a model; the lock is held."""
    context.cache.pop(name, None)
    with context.log.batch() as connection:
        time = now()
        delete_model(connection, name, time=time)
        state_removal(connection, name, time=time)
    finish_committed(context, WAIT)


def read_record(context: Context, name: str) -> Record:
    """Return the record behind the newest release of a model."""
    with context.hold_lock(WAIT):
        record = context.load_model(name).snapshot.record
    assert record is not None
    return record


def read_case(context: Context, name: str) -> "Case":
    """Return the removal of the first row that is left, to be put on trial."""
    import numpy as np

    from ..audit import Case
    from ..core.rows import in_memory
    from ..private_model.model import require_optimised
    from .loaded_model import require_passes

    with context.hold_lock(WAIT):
        loaded = context.load_model(name)
        kept = require_passes(loaded)
        private = require_optimised(loaded.private)
        rows = in_memory(private.encode(kept)).gather()
    terms, first = private.terms, np.array([0], dtype=np.intp)
    if terms.units is not None:  # in which the budget is counted
        rows = terms.units.scale_targets(rows)
    return Case(terms.objective_for(rows), rows, first, terms.mechanism)


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model as it is released now.

    Parameters
    ----------
    name, estimator
        Its name, and the class of the estimator; empty if the model must be fitted
        again because it could not be released when it was restored.
    certificate
        Of the newest release.
    number, made
        Of the newest release, counted from 1, and when it was made.
    n_people
        How many people it holds; 0 if it was fitted without ``subjects``.
    """

    name: str
    estimator: str
    certificate: Certificate
    number: int
    made: int
    n_people: int


def read_models(connection: Connection, name: str | None = None) -> list[ModelStatus]:
    """Return all models as they are released now, or one; this reads no others."""
    return [
        ModelStatus(
            name=line.name,
            # No content: the budget is spent, and the model must be fitted again.
            estimator=""
            if line.content is None
            else read_estimator(line.name, line.content),
            certificate=Certificate.from_json(line.certificate),
            number=line.number,
            made=line.made,
            n_people=line.n_people,
        )
        for line in releases_table.read_released(connection, name)
    ]


def read_estimator(name: str, content: bytes) -> str:
    """Return the class of a released estimator, without what takes SciPy to load.

    A line of JSON describes the release; arrays follow (``files.folder.frame``).
    """
    line, _, _ = releases_table.check_content(name, content).partition(b"\n")
    return str(loads(line, "a release")["model"]["fields"]["estimator"])


class RegistryModels(RegistryPart):
    """The models of a registry, as ``Registry.models``."""

    def names(self) -> list[str]:
        """Return the names of all models."""
        with self._context.store.read() as connection:
            return releases_table.model_names(connection)

    def status(self, name: str) -> ModelStatus:
        """Return one model as it is released now; this reads nothing of the others."""
        with self._context.store.read() as connection:
            for found in read_models(connection, name):
                return found
            raise releases_table.unknown_model_error(connection, name)

    def outstanding(self, name: str) -> list[ReleaseStatus]:
        """Return superseded releases of a model of which copies must be taken back."""
        with self._context.store.read() as connection:
            shipped = releases_table.shipped_releases(connection, name)
        return [one for one in shipped if one.is_outstanding]

    def subject_kind(self, name: str) -> str:
        """Return what kind of identifier the ids of a model's people are."""
        with self._context.store.read() as connection:
            releases_table.newest_number(connection, name)  # or refuse
            return releases_table.read_subject_kind(connection, name)

    def columns(self, name: str) -> str:
        """Return what ``fit`` was told of the columns of a model's table.

        It does not change when people leave; empty if nothing was said.
        """
        with self._context.store.read() as connection:
            releases_table.newest_number(connection, name)  # or refuse
            return releases_table.read_columns(connection, name)

    def prepare(self) -> None:
        """Import what models are loaded and changed with.

        Otherwise the first request that is applied waits for it.
        """
        import_module(".changes", __package__)

    def refit(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any = None,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        search: object = None,
        without_forgotten: bool = False,
        subject_kind: str = ID,
        exact: bool = False,
        columns: str = "",
        unchecked: bool = False,
        on_progress: OnProgress = be_silent,
    ) -> LeftOut:
        """Fit an estimator in the place of a model, whose people are deleted.

        Parameters and result are those of ``Registry.fit``. Waiting requests are
        applied to the new model.
        """
        choices = search, without_forgotten, on_progress, subject_kind, exact, columns
        options = FitOptions(subjects, sample_weight, *choices, unchecked)
        return fit_model(
            self._context, name, model=model, X=X, y=y, options=options, replaces=True
        )

    def recommend(self, name: str, user_items: Any, *, k: int = 10) -> list[str]:
        """Return the k best items for somebody who has these, the best first.

        They are those of the newest release; the weights stay in the registry. The
        first answer after a request computes these, which takes seconds for thousands
        of items.

        Parameters
        ----------
        name
            Of the model, an ``EASE`` or ``Popularity``.
        user_items
            Ids of items; or ids with ratings, as a mapping.
        k
            How many, if there are so many.
        """
        return recommend_items(self._context, name, user_items=user_items, k=k)

    def ship(
        self, name: str, path: str | PathLike[str], *, dtype: str = "float64"
    ) -> ReleaseStatus:
        """Write the newest release of a model to a file, and record that it left.

        Parameters
        ----------
        name
            Of the model.
        path
            Of the file, ending in .safetensors or .onnx.
        dtype
            Precision of an .onnx file: "float64" or "float32".
        """
        from ..files.export import put_in_place, render_file
        from .loaded_model import load_public

        path, context = Path(path), self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)  # what leaves is in the ledger
            with context.store.read() as connection:
                number = releases_table.newest_number(connection, name)
                line = releases_table.find_release(connection, name, number=number)
            public = load_public(name, line.content)
            data = render_file(public, path, dtype=dtype)  # or refuse
            # Later than it was taken back, even by a slow clock: it is out again.
            time = max(now(), (line.withdrawn or 0) + 1)
            shipment: dict[str, object] = {"model": name, "number": number}
            shipment |= {"time": time, "name": path.name}
            with context.log.record({"shipped": shipment}, in_turn=True) as connection:
                releases_table.insert_shipment(connection, shipment)
                shipped = releases_table.shipped_releases(connection, name)
        put_in_place(path, data)
        return next(one for one in shipped if one.number == number)

    def withdraw(self, name: str, number: int, *, by: Decider = NOBODY) -> None:
        """State in the ledger that every copy of a release was taken back.

        Parameters
        ----------
        name, number
            Of the release.
        by
            Who states it. Where the rule for "withdraw" wants two people, the first of
            them gets OneAgreed.
        """
        context = self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)
            with context.store.read() as connection:
                line = releases_table.find_release(connection, name, number=number)
            about = withdrawing(line.digest)
            require_act(context, WITHDRAW, about=about, by=by)
            state_withdrawal(context, name, number=number)

    def remove(self, name: str, *, by: Decider = NOBODY) -> None:
        """Retire a model: destroy its rows, keys and parameters, and state that.

        Rows of people who are restricted or held stay sealed apart.
        Its certificates stay, since receipts refer to them. Copies of its releases that
        left are listed in the status until they are withdrawn. Requests that wait are
        applied to the other models. The name cannot be used again.

        Parameters
        ----------
        name
            Of the model.
        by
            Who retires it. Where the rule for "remove" wants two people, the first of
            them gets OneAgreed.
        """
        context = self._context
        with context.hold_lock(WAIT):
            recover(context, WAIT)
            with context.store.read() as connection:
                releases_table.newest_number(connection, name)  # or refuse
            require_act(context, REMOVE, about=removing(name), by=by)
            remove_model(context, name)

    def reanchor(self, name: str) -> None:
        """Rebuild the private state of a model from the remaining rows.

        The old state was fitted with everybody, and anyone who opens it could learn of
        removed rows. This takes a pass over all rows, and releases nothing.
        """
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            reanchor_model(self._context, name)

    def record(self, name: str) -> Record:
        """Return the private record behind the newest release, for an auditor."""
        return read_record(self._context, name)

    def case(self, name: str) -> "Case":
        """Return the removal of a model's first row, for an audit. Private.

        The rows are the remaining ones, and the objective is the one for them.
        """
        return read_case(self._context, name)
