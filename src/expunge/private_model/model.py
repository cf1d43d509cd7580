# SPDX-License-Identifier: Apache-2.0
"""PrivateModel: everything that must stay secret between requests, as one value.

Its methods are the life of a model. Each returns a new value, so a request that fails
changes nothing, and noise is added in one place only:

    fit        solve, and certify that the solver's error is within tau, or fail
    change     subtract rows and add others (``forget``, ``add``: one of the two), and
               make the answer fit the budget
    refit      solve again on the remaining rows, where an update is not possible
    reanchor   rebuild the sums from the remaining rows
    release    radius + tau <= radius budget? then round, add noise, certify

Without the remaining rows an answer that does not fit stays as it is, and ``release``
refuses it: people can see that, and it promises nothing.

Tuned models and models with preprocessing are other implementations. Training rows and
digests are too large to copy for each request: ``pending`` notes what a request takes
out of them and puts in, and ``apply_pending`` does it once the new model counts.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from time import perf_counter
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from ..core.arrays import Index, Vector
from ..core.objective import Objective
from ..core.rows import AnyRows, RowSource
from ..core.values import NOT_STORED, Private, replace_fields, stored
from ..exceptions import CapacityExceeded, InvalidInput, ScheduleExhausted
from ..promise.accountant import Accountant, Fitted, TunedOnData, release_event
from ..promise.budget import Budget
from ..promise.certificate import certify
from ..promise.noise import (
    SECRET_BYTES,
    Noise,
    SecureNoise,
    make_noise,
    noise_for,
    random_bytes,
    round_to_grid,
)
from ..promise.scope import Scope
from ..promise.verification import Record, Release, Scored
from ..removal import Mechanism
from ..removal.matrix_free import settle_mechanism
from .answers import (
    MEASURED,
    REFUSALS,
    Adoption,
    Agreement,
    Answer,
    anchor_answer,
    change_rows,
    fit_answer,
    improve_answer,
    retrain_answer,
)
from .labels import Labels, has_fewer_classes, recode_change
from .row_digests import PendingChange, RowDigests
from .training_rows import (
    NO_ROWS,
    ChangesRows,
    KeptRows,
    Remaining,
    RowChange,
    require_in_memory,
)

# Takes the places of rows to remove, and returns all the others.
Fetch: TypeAlias = Callable[[Index], RowSource]
AnyModel = TypeVar("AnyModel", bound="PrivateModel")


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PrivateModel(ChangesRows, Private):
    """A fitted model with its rows, its noise and its account. Private.

    Attributes
    ----------
    agreement, answer
        What was fixed at the fit, and what was computed last.
    seconds
        How long the last request took.
    n_samples, n_removed
        Rows at the first fit and added since, and rows removed since.
    accountant, certified
        The account of events so far, and as it was at the last release.
    scope
        What certificates state about the model besides budget and objective.
    labels
        The classes of a classifier.
    seed, noise
        A seed for tests, and the source of noise; None without a budget.
    adoption
        Of a model adopted from scikit-learn, how far that moved it.
    training_rows, digests, fetch
        The rows with their owners, if they are kept here; digests of the rows; how to
        get the remaining rows if they are kept elsewhere.
    pending
        What is still to be taken out of rows and digests, and put in.
    released
        The release of exactly this state, once there is one.
    process
        The process that counts releases; another process may make more.
    """

    agreement: Agreement
    answer: Answer
    seconds: float
    n_samples: int
    n_removed: int
    accountant: Accountant
    certified: Accountant
    scope: Scope
    labels: Labels | None = None
    seed: int | None = None
    adoption: Adoption | None = None
    noise: Noise | None = field(default=None, metadata=NOT_STORED)
    training_rows: KeptRows | None = field(default=None, metadata=NOT_STORED)
    digests: RowDigests | None = field(default=None, metadata=NOT_STORED)
    fetch: Fetch | None = field(default=None, metadata=NOT_STORED)
    pending: PendingChange | None = field(default=None, metadata=NOT_STORED)
    released: tuple[Release, Record] | None = field(default=None, metadata=NOT_STORED)
    process: int = field(default_factory=os.getpid, metadata=NOT_STORED)

    needs_training_rows: ClassVar[bool] = False
    keeps_raw_rows: ClassVar[bool] = False

    @classmethod
    def fit(
        cls,
        objective: Objective,
        rows: RowSource,
        *,
        mechanism: Mechanism | None = None,
        budget: Budget | None = None,
        start: Vector | None = None,
    ) -> "PrivateModel":
        """Fit the objective to the rows, by the mechanism given or the rule's own.

        Raises NotCertifiable if the solver's error cannot be certified to be within
        the budget's tau, and InvalidInput if a row is longer than the budget allows.
        """
        clock = perf_counter()
        mechanism, name = settle_mechanism(mechanism, objective, rows=rows)
        agreement = Agreement(objective, mechanism, budget, rows.total_weight)
        answer = fit_answer(agreement, rows, start=start)
        account = Accountant(budget).compose(Fitted(answer.draft.theta.size))
        return PrivateModel(
            agreement=agreement,
            answer=answer,
            seconds=perf_counter() - clock,
            n_samples=len(rows),
            n_removed=0,
            accountant=account,
            certified=account,
            scope=Scope(mechanism=name),
        )

    def with_scope(self, scope: Scope) -> Self:
        """Return the fitted model with more for its certificates to state."""
        account = self.accountant
        for name in scope.declared:
            account = account.compose(TunedOnData(name))
        scope = replace(scope, mechanism=self.scope.mechanism)
        return replace(self, accountant=account, certified=account, scope=scope)

    @property
    def objective(self) -> Objective:
        """What is minimised, stated as of the first fit."""
        return self.agreement.objective

    @property
    def budget(self) -> Budget | None:
        """What is promised; None promises nothing."""
        return self.agreement.budget

    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        spend: bool = False,
    ) -> Self:
        """Return the model after a request; see ``pending`` for rows and digests.

        Parameters
        ----------
        change
            The rows that leave and those that come, as they are kept.
        remaining
            All rows after the request, or a function that returns them, if the caller
            keeps them. With them the answer always fits.
        spend
            Overwrite the old state instead of copying it; the old model is lost, even
            if this raises.
        """
        if not (change.n_removed or change.n_added):
            return self
        change.require_lengths(self.agreement.row_norm)
        labels = self._labels_after(change)
        if has_fewer_classes(labels, self.labels):
            fewer = with_fewer_classes(replace(self, labels=labels))
            left = require_rows_after(fewer, change)
            return fewer.refit(fewer.objective, left, change=change)
        clock = perf_counter()
        if remaining is None and self._has_rows(change):
            remaining = partial(require_rows_after, self, change)
        counted = count_request(self, change)
        rows = None if remaining is None else cache(partial(counted._fetch, remaining))
        try:
            answer = change_rows(
                self.agreement,
                self.answer,
                change=recode_change(change, self.labels, loss=self.objective.loss),
                remaining=rows,
                spend=spend,
            )
        except REFUSALS:
            if rows is None or spend:
                raise
            # Retraining does not refuse, so with the rows at hand we must not either.
            theta = self.answer.draft.theta
            answer = retrain_answer(self.agreement, rows(), start=theta)
        if rows is not None and not answer.fits(self.budget):
            again, rest = MEASURED in self.answer.decisions, rows()
            answer = improve_answer(self.agreement, answer, remaining=rest, again=again)
        seconds = perf_counter() - clock
        return replace_fields(counted, answer=answer, labels=labels, seconds=seconds)

    def refit(
        self,
        objective: Objective,
        remaining: RowSource,
        *,
        change: RowChange,
        start: Vector | None = None,
    ) -> Self:
        """Return the model of a full fit to the rows that remain, on the same account.

        Where old sums cannot be updated: a tuned choice moves, or a class is dropped.
        It is solved fully and certified like a first fit.

        Parameters
        ----------
        objective
            What retraining minimises, stated as of the first fit.
        remaining
            All rows after the request; they may have other columns and labels now.
        change
            The request.
        start
            Where the solver starts.
        """
        clock = perf_counter()
        objective.require_columns(remaining.n_columns)
        size = remaining.n_columns * objective.loss.outputs
        counted = count_request(self, change)
        agreement = replace(self.agreement, objective=objective)
        counted._require_count(remaining)
        return replace(
            resize_account(counted, size),
            agreement=agreement,
            answer=retrain_answer(agreement, remaining, start=start),
            seconds=perf_counter() - clock,
        )

    def reanchor(self, remaining: RowSource) -> Self:
        """Return the model with its sums rebuilt from the remaining rows.

        The old anchor, fitted to the removed rows too, is gone with the old model, and
        so is every sum that they were subtracted from.
        """
        answer = anchor_answer(self.agreement, self.answer, remaining=remaining)
        return replace(self, answer=answer)

    def release(self, noise: Noise | None = None) -> tuple[Self, Release, Record]:
        """Return the model with its release, and the private record behind it.

        A state is released once: asking again returns the same release. Raises
        CapacityExceeded if the answer does not fit the budget, and ScheduleExhausted
        if all planned releases are made.

        Parameters
        ----------
        noise
            Where the noise comes from; by default the model's own.
        """
        if self.released is not None:
            return (self, *self.released)
        if not self.answer.fits(self.budget):
            raise CapacityExceeded(
                "the budget is exhausted: without the remaining rows this model cannot "
                "be certified any further; pass the remaining rows, or fit again (a "
                "model with keep_data=True has them)"
            )
        budget, theta, scope = self.budget, self.answer.draft.theta, self.scope
        if noise is None:
            noise = noise_for(self.noise, self.accountant.n_releases + 1)
        if (budget is None) != (noise is None):
            raise InvalidInput("noise and budget go together: pass both, or neither")
        if self.process != os.getpid():
            scope = replace(scope, counted_apart=True)
        source = None if noise is None else noise.source
        account = self.accountant.compose(release_event(budget, source))
        record = self._make_record()
        certificate = certify(
            account,
            self.objective,
            scope=scope,
            noise_source=source,
            commitment=record.commitment(),
        )
        if budget is not None and noise is not None:
            theta = round_to_grid(theta, budget.grid) + noise.draw(theta.size)
        made = (Release(theta.copy(), certificate), record)
        after = replace_fields(
            self, accountant=account, certified=account, scope=scope, released=made
        )
        return (after, *made)

    def charge(self, n_releases: int) -> Self:
        """Return the model charged for releases that are not in its account.

        It gets fresh noise. They supersede its own last release: it can release again.
        """
        account, noise = self.accountant, self.noise
        source = None if noise is None else noise.source
        for _ in range(n_releases):
            account = self._charge_choice(account)
            account = account.compose(release_event(self.budget, source))
        released = None if n_releases else self.released
        return replace(self, accountant=account, released=released).with_noise()

    def with_noise(self) -> Self:
        """Return the model with noise that no release of its account has used."""
        return replace(self, noise=self._fresh_noise())

    def compact(self) -> Self:
        """Return the model with its training rows gathered, without gaps."""
        if self.training_rows is None:
            return self
        return replace(self, training_rows=self.training_rows.compact())

    def remaining_rows(self, gone: Index = NO_ROWS) -> RowSource | None:
        """Return the remaining rows but these; None if nobody keeps them."""
        kept = self.training_rows
        fetch = self.fetch if kept is None else kept.remaining
        return None if fetch is None else self._with_current_labels(fetch(gone))

    def encode(self, rows: RowSource) -> RowSource:
        """Return kept rows as the model sees them."""
        return rows

    @property
    def public_parts(self) -> dict[str, Any]:
        """What the public model shows of this one, besides the release."""
        classes = None if self.labels is None else self.labels.classes
        return {"classes": classes, "declared": self.scope.declared}

    def interchangeable(self, places: Sequence[int]) -> bool:
        """Whether removing any one of the equal rows at these places does the same."""
        del places
        return True

    def _charge_choice(self, account: Accountant) -> Accountant:
        """Return the account charged for a choice, if releases depend on one."""
        return account

    def _scores(self) -> tuple[Scored, ...]:
        """Return the interval of each candidate's error, if there are candidates."""
        return ()

    def _with_current_labels(self, rows: AnyRows) -> AnyRows:
        """Return rows with their labels coded for the present objective."""
        if self.labels is None:
            return rows
        return rows.recode(self.labels.recoding(self.objective.loss))

    def _has_rows(self, change: RowChange) -> bool:
        """Whether all rows after a request can be had."""
        kept = (self.training_rows or self.fetch) is not None
        return kept and change.places is not None

    def _labels_after(self, change: RowChange) -> Labels | None:
        """Return the classes after a request, or refuse it."""
        if self.labels is None:
            return None
        return self.labels.after(change, self.objective, kept=self._has_rows(change))

    def _fetch(self, remaining: Remaining) -> RowSource:
        """Return the remaining rows, read once a request, if their number is right."""
        rows = remaining() if callable(remaining) else remaining
        self._require_count(rows)
        return rows

    def _require_count(self, rows: RowSource) -> None:
        """Raise InvalidInput if these cannot be the remaining rows."""
        if len(rows) != self.n_samples - self.n_removed:
            raise InvalidInput(
                "these are not the rows after the request; pass all that it keeps and "
                "those that it adds"
            )

    def _make_record(self) -> Record:
        """Return the private facts behind the release."""
        return Record(
            radius=self.answer.radius.value,
            radius_kind=self.answer.radius.kind,
            decisions=self.answer.decisions,
            n_samples=self.n_samples,
            n_removed=self.n_removed,
            timings={"request": self.seconds},
            salt=random_bytes(SECRET_BYTES),
            choice=self._scores(),
            selection=self.accountant.selection,
        )

    def _fresh_noise(self) -> Noise | None:
        """Return noise for releases; None without a budget."""
        if self.budget is None:
            return None
        noise = make_noise(self.budget, self.seed)
        if isinstance(noise, SecureNoise):
            noise.prepare(self.accountant.n_parameters)
        return noise


def count_request(model: AnyModel, change: RowChange) -> AnyModel:
    """Return the model with a request counted, before anything is changed."""
    return replace_fields(
        model,
        n_samples=model.n_samples + change.n_added,
        n_removed=model.n_removed + change.n_removed,
        accountant=change.count_in(model.accountant),
        released=None,
    )


def resize_account(model: AnyModel, n_parameters: int) -> AnyModel:
    """Return the model with its account told of a release of another length."""
    if model.accountant.n_parameters == n_parameters:
        return model
    return replace_fields(model, accountant=model.accountant.resize(n_parameters))


def with_fewer_classes(model: AnyModel) -> AnyModel:
    """Return the model with the objective for the classes that are left."""
    assert model.labels is not None
    loss = model.labels.loss_like(model.objective.loss)
    objective = replace(model.objective, loss=loss)
    return replace(model, agreement=replace(model.agreement, objective=objective))


def require_release(model: PrivateModel) -> None:
    """Raise ScheduleExhausted if no release may follow a request."""
    if model.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases have been made; fit again under a new budget"
        )


def require_rows(model: PrivateModel, gone: Index = NO_ROWS) -> RowSource:
    """Return the remaining rows but these, of a model that has access to them."""
    rows = model.remaining_rows(gone)
    assert rows is not None
    return rows


def require_rows_after(model: PrivateModel, change: RowChange) -> RowSource:
    """Return all rows after a request, of a model that has access to them."""
    assert change.places is not None
    seen = recode_change(change, model.labels, loss=model.objective.loss)
    return seen.append_to(require_rows(model, change.places))


def apply_pending(model: AnyModel) -> AnyModel:
    """Take what a request removed out of rows and digests, and put in what it added.

    After an interrupt you can call it again, with the same effect.
    """
    pending = model.pending
    if pending is None:
        return model
    if model.digests is not None:
        model.digests.apply(pending.digests)
    kept = model.training_rows
    if kept is not None and pending.gone is not None:
        kept.erase(pending.gone)
    if kept is not None and pending.added is not None:
        held = require_in_memory(kept)
        held.append(pending.added, pending.owners, place=pending.place)
    return replace_fields(model, pending=None)
