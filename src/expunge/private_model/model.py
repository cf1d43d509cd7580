# SPDX-License-Identifier: Apache-2.0
"""PrivateModel: everything that must stay secret between requests, as one value.

Its methods are the life of a model. Each returns a new value, so a request that fails
changes nothing, and noise is added in one place only:

    fit        solve, and certify that the solver's error is within tau, or fail
    forget     subtract the rows, and make the answer fit the budget
    refit      solve again on the remaining rows, where an update is not possible
    reanchor   rebuild the sums from the remaining rows
    release    radius + tau <= radius budget? then round, add noise, certify

Without the remaining rows an answer that does not fit stays as it is, and ``release``
refuses it. People can see that refusal, and it promises nothing.

Tuned models and models with preprocessing are other implementations. Training rows and
digests are too large to copy for each request: ``pending`` notes what a request takes
out of them, and ``apply_pending`` does it once the new model counts.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from time import perf_counter
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from ..core.arrays import Index, Private, Vector, replace_fields
from ..core.objective import Objective, Rows
from ..core.packing import NOT_STORED, stored
from ..exceptions import CapacityExceeded, InvalidInput, ScheduleExhausted
from ..promise.accountant import Accountant, Fitted, Removed, TunedOnData, release_event
from ..promise.budget import Budget
from ..promise.certificate import certify
from ..promise.noise import (
    SECRET_BYTES,
    Noise,
    SecureNoise,
    Source,
    make_noise,
    noise_for,
    random_bytes,
    round_to_grid,
)
from ..promise.scope import Scope
from ..promise.verification import Record, Release, Scored
from ..removal import Mechanism
from ..removal.choosing import settle_mechanism
from .answers import (
    MEASURED,
    REFUSALS,
    Adoption,
    Agreement,
    Answer,
    anchor_answer,
    fit_answer,
    improve_answer,
    remove_rows,
    retrain_answer,
)
from .labels import Labels, has_fewer_classes
from .training_rows import PendingErasure, RowDigests, TrainingRows

Remaining: TypeAlias = Rows | Callable[[], Rows]
Fetch: TypeAlias = Callable[[Index], Rows]
"""Takes the positions of rows to remove, and returns all the others."""
AnyModel = TypeVar("AnyModel", bound="PrivateModel")
NO_ROWS: Index = np.array([], dtype=np.intp)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class PrivateModel(Private):
    """A fitted model with its rows, its noise and its account. Private.

    Attributes
    ----------
    agreement, answer
        What was fixed at the fit, and what was computed last.
    seconds
        How long the last request took.
    n_samples, n_removed
        Rows at the first fit, and rows removed since.
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
        What is still to be taken out of rows and digests.
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
    training_rows: TrainingRows | None = field(default=None, metadata=NOT_STORED)
    digests: RowDigests | None = field(default=None, metadata=NOT_STORED)
    fetch: Fetch | None = field(default=None, metadata=NOT_STORED)
    pending: PendingErasure | None = field(default=None, metadata=NOT_STORED)
    released: tuple[Release, Record] | None = field(default=None, metadata=NOT_STORED)
    process: int = field(default_factory=os.getpid, metadata=NOT_STORED)

    needs_training_rows: ClassVar[bool] = False
    keeps_raw_rows: ClassVar[bool] = False

    @classmethod
    def fit(
        cls,
        objective: Objective,
        rows: Rows,
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

    def forget(
        self,
        removed: Rows,
        *,
        gone: Index | None = None,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        spend: bool = False,
    ) -> Self:
        """Return the model without these rows, its answer made to fit the budget.

        Rows and digests are left alone: see ``pending``.

        Parameters
        ----------
        removed
            The rows to remove, as they are kept.
        gone
            Their positions among the rows that the model keeps or can fetch.
        remaining
            All other rows, or a function that returns them, if the caller keeps them.
            With the remaining rows the answer always fits.
        n_subjects
            How many people the rows belong to.
        spend
            Overwrite the old state instead of copying it; the old model is lost, even
            if this raises.
        """
        if not len(removed):
            return self
        labels = self._labels_without(removed, gone)
        if has_fewer_classes(labels, self.labels):
            assert gone is not None
            fewer = with_fewer_classes(replace(self, labels=labels))
            left = require_rows(fewer, gone)
            return fewer.refit(fewer.objective, left, n_subjects=n_subjects)
        if remaining is None and gone is not None:
            remaining = partial(require_rows, self, gone)
        clock = perf_counter()
        counted = count_request(self, len(removed), n_subjects=n_subjects)
        rows = None if remaining is None else cache(partial(counted._fetch, remaining))
        try:
            answer = remove_rows(
                self.agreement,
                self.answer,
                removed=self._with_current_labels(removed),
                remaining=rows,
                spend=spend,
            )
        except REFUSALS:
            if rows is None or spend:
                raise
            # Retraining does not refuse, so with the rows at hand we must not either.
            start = self.answer.draft.theta
            answer = retrain_answer(self.agreement, rows(), start=start)
        if rows is not None and not answer.fits(self.budget):
            again = MEASURED in self.answer.decisions
            answer = improve_answer(
                self.agreement, answer, remaining=rows(), again=again
            )
        seconds = perf_counter() - clock
        return replace_fields(counted, answer=answer, labels=labels, seconds=seconds)

    def refit(
        self,
        objective: Objective,
        remaining: Rows,
        *,
        n_subjects: int,
        start: Vector | None = None,
    ) -> Self:
        """Return the model of a full fit to the rows that remain, on the same account.

        Used where the old sums cannot be updated: a tuned choice moves, or a class is
        dropped. It is solved fully and certified like a first fit.

        Parameters
        ----------
        objective
            What retraining minimises, stated as of the first fit.
        remaining
            All rows but the removed ones; they may have other columns and labels now.
        n_subjects
            How many people were removed.
        start
            Where the solver starts.
        """
        clock = perf_counter()
        objective.require_columns(remaining.X.shape[1])
        n_removed = self.n_samples - self.n_removed - len(remaining)
        size = remaining.X.shape[1] * objective.loss.outputs
        counted = count_request(self, n_removed, n_subjects=n_subjects)
        agreement = replace(self.agreement, objective=objective)
        counted._require_count(remaining)
        return replace(
            resize_account(counted, size),
            agreement=agreement,
            answer=retrain_answer(agreement, remaining, start=start),
            seconds=perf_counter() - clock,
        )

    def reanchor(self, remaining: Rows) -> Self:
        """Return the model with its sums rebuilt from the remaining rows.

        The old anchor, which was fitted to the removed rows too, is gone with the old
        model, and so is every sum that they were subtracted from.
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
        accountant = self.accountant.compose(release_event(budget, source))
        record = self._make_record()
        certificate = certify(
            accountant,
            self.objective,
            scope=scope,
            noise_source=source,
            commitment=record.commitment(),
        )
        if budget is not None and noise is not None:
            theta = round_to_grid(theta, budget.grid) + noise.draw(theta.size)
        made = (Release(theta.copy(), certificate), record)
        after = replace_fields(
            self,
            accountant=accountant,
            certified=accountant,
            scope=scope,
            released=made,
        )
        return (after, *made)

    def charge(self, n_releases: int) -> Self:
        """Return the model charged for releases that are not in its account.

        It gets fresh noise. They supersede its own last release: it can release again.
        """
        account = self.accountant
        for _ in range(n_releases):
            account = self._charge_choice(account)
            account = account.compose(release_event(self.budget, self._noise_source))
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

    def remaining_rows(self, gone: Index = NO_ROWS) -> Rows | None:
        """Return the remaining rows but these; None if nobody keeps them."""
        kept = self.training_rows
        fetch = self.fetch if kept is None else kept.remaining
        return None if fetch is None else self._with_current_labels(fetch(gone))

    def encode(self, rows: Rows) -> Rows:
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

    @property
    def _noise_source(self) -> Source | None:
        return None if self.noise is None else self.noise.source

    def _charge_choice(self, account: Accountant) -> Accountant:
        """Return the account charged for a choice, if releases depend on one."""
        return account

    def _scores(self) -> tuple[Scored, ...]:
        """Return the interval of each candidate's error, if there are candidates."""
        return ()

    def _with_current_labels(self, rows: Rows) -> Rows:
        """Return rows with their labels coded for the present objective."""
        if self.labels is None:
            return rows
        y = self.labels.recode(rows.y, self.objective.loss)
        return rows if y is rows.y else replace(rows, y=y)

    def _labels_without(self, removed: Rows, gone: Index | None) -> Labels | None:
        """Return the classes without these rows, or refuse the request."""
        if self.labels is None:
            return None
        kept = gone is not None and (self.training_rows or self.fetch) is not None
        return self.labels.after(removed, self.objective, kept=kept)

    def _fetch(self, remaining: Remaining) -> Rows:
        """Return the remaining rows, read once a request, if their number is right."""
        rows = remaining() if callable(remaining) else remaining
        self._require_count(rows)
        return rows

    def _require_count(self, rows: Rows) -> None:
        """Raise InvalidInput if these cannot be the remaining rows."""
        if len(rows) != self.n_samples - self.n_removed:
            raise InvalidInput(
                "these are not the remaining rows; pass all training rows except the "
                "removed ones"
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


def count_request(model: AnyModel, n_removed: int, *, n_subjects: int) -> AnyModel:
    """Return the model with a request counted, before anything is removed."""
    return replace_fields(
        model,
        n_removed=model.n_removed + n_removed,
        accountant=model.accountant.compose(Removed(n_subjects)),
        released=None,
    )


def resize_account(model: AnyModel, n_parameters: int) -> AnyModel:
    """Return the model with its account told of a release of another length."""
    account = model.accountant
    if account.n_parameters == n_parameters:
        return model
    account = account.compose(Fitted(n_parameters)).compose(
        Removed(account.n_subjects_removed)
    )
    return replace_fields(model, accountant=account)


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


def require_rows(model: PrivateModel, gone: Index = NO_ROWS) -> Rows:
    """Return the remaining rows but these, of a model that has access to them."""
    rows = model.remaining_rows(gone)
    assert rows is not None
    return rows


def apply_pending(model: AnyModel) -> AnyModel:
    """Erase what a request took out of rows and digests; return the model after it.

    You can call it again after an interrupt, with the same effect.
    """
    pending = model.pending
    if pending is None:
        return model
    if model.digests is not None:
        model.digests.apply(pending.digests)
    if model.training_rows is not None and pending.gone is not None:
        model.training_rows.erase(pending.gone)
    return replace_fields(model, pending=None)
