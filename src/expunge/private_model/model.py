# SPDX-License-Identifier: Apache-2.0
"""PrivateModel: everything that must stay secret between requests, as one value.

A model is an encoding, a head and a chooser (``composition``). Its methods are its
life. Each returns a new value, so a request that fails changes nothing, and noise is
added in one place only:

    fit        solve, and certify that the solver's error is within tau, or fail
    change     subtract rows and add others (``forget``, ``add``: one of the two), and
               make the answer fit the budget; where sums cannot be updated, or another
               objective is chosen, solve again on the remaining rows
    reanchor   rebuild the sums from the remaining rows
    release    radius + tau <= radius budget? then round, add noise, certify

Without the remaining rows an answer that does not fit stays as it is, and ``release``
refuses it: people can see that, and it promises nothing.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from time import perf_counter
from typing import Any, Self

from ..core.arrays import Index, Vector
from ..core.linalg import threads_for
from ..core.objective import Objective
from ..core.rows import AnyRows, Rows, RowSource
from ..core.values import NOT_STORED, replace_fields, stored
from ..exceptions import (
    CannotRemove,
    CapacityExceeded,
    InvalidInput,
)
from ..promise.accountant import Accountant, Fitted, release_event
from ..promise.budget import Budget
from ..promise.certificate import Certificate, certify
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
from ..promise.verification import Record, Release
from ..removal import Mechanism, State
from ..removal.matrix_free import AUTO, choose_mechanism
from .answers import (
    REFUSALS,
    Adoption,
    Answer,
    FitTerms,
    anchor_answer,
    anchor_here,
    answer_removal,
    change_rows,
    fit_answer,
    improve_answer,
    retrain_answer,
)
from .composition import FIXED, UNCHANGED, Chooser, Encoding
from .labels import has_other_classes, recode_change
from .people_model import PeopleModel, count_request, resize_account
from .target_units import TargetUnits, has_free_units
from .training_rows import (
    NO_ROWS,
    Remaining,
    RowChange,
    TrainingRows,
    require_in_memory,
)


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PrivateModel(PeopleModel):
    """A fitted model with its rows, its noise and its account. Private.

    Attributes
    ----------
    terms, answer
        The head: what was fixed at the fit, and what was computed last.
    encoding, chooser
        What the head sees of the rows that are kept, and what chooses its objective.
    seed, noise
        A seed for tests, and the source of noise; None without a budget.
    adoption
        Of a model adopted from scikit-learn, how far that moved it.
    """

    terms: FitTerms
    answer: Answer
    encoding: Encoding = UNCHANGED
    chooser: Chooser = FIXED
    seed: int | None = None
    adoption: Adoption | None = None
    noise: Noise | None = field(default=None, metadata=NOT_STORED)

    @classmethod
    def fit(
        cls,
        objective: Objective,
        rows: RowSource,
        *,
        encoding: Encoding = UNCHANGED,
        mechanism: Mechanism | None = None,
        budget: Budget | None = None,
        rows_kept: bool = False,
        targets: RowSource | None = None,
        start: Vector | None = None,
    ) -> "PrivateModel":
        """Fit the objective to the rows, by the mechanism given or the rule's own.

        Raises NotCertifiable if the solver's error cannot be certified to be within
        the budget's tau, and InvalidInput if a row is longer than the budget allows.

        Parameters
        ----------
        objective, rows
            What is minimised, and on which rows, as they are to be kept.
        encoding
            What the head sees of them, fitted to them; by default the rows themselves.
        mechanism, budget
            How requests are answered, and what is promised.
        rows_kept
            Whether the remaining rows will be at hand at every request.
        targets
            The rows, if the budget is to be counted in deviations of their targets
            where the objective allows it (``target_units``).
        start
            Where the solver starts; used if it has as many parameters as are needed.
        """
        clock = perf_counter()
        encoded = encoding.encode(rows, objective)
        suffix = "" if mechanism else AUTO
        mechanism = mechanism or choose_mechanism(objective, encoded)
        budget = budget and budget.at_fit(rows_kept=rows_kept)
        looks = rows_kept and budget is not None and budget.always_looks
        units = None
        if budget is not None and targets is not None and has_free_units(objective):
            units = TargetUnits.of(targets)
        terms = FitTerms(
            objective,
            mechanism,
            budget,
            encoded.total_weight,
            looks=looks,
            units=units,
        )
        size = encoded.n_columns * objective.loss.outputs
        start = start if start is not None and start.size == size else None
        answer = fit_answer(terms, encoded, start=start)
        encoding, answer = encoding.anchor(terms, answer, rows=rows)
        account = Accountant(budget).compose(Fitted(answer.draft.theta.size))
        return PrivateModel(
            terms=terms,
            encoding=encoding,
            answer=answer,
            seconds=perf_counter() - clock,
            n_samples=len(rows),
            n_removed=0,
            accountant=account,
            certified=account,
            scope=Scope(mechanism=mechanism.name + suffix),
        )

    @property
    def objective(self) -> Objective:
        """What is minimised, stated as of the first fit."""
        return self.terms.objective

    @property
    def budget(self) -> Budget | None:
        """What is promised; None promises nothing."""
        return self.terms.budget

    @property
    def needs_training_rows(self) -> bool:
        """Whether the model looks at its rows at every request."""
        return self.chooser.needs_rows

    @property
    def input_map(self) -> Any:
        """What makes rows of inputs that are no numbers; None if rows are numbers."""
        return self.encoding.input_map

    def interchangeable(self, positions: Sequence[int]) -> bool:
        """Whether it does not matter which of these equal rows goes."""
        return self.chooser.interchangeable(positions)

    def fits_release(self, n_parameters: int, n_outputs: int) -> bool:
        """Whether a release of so many parameters may be one of this model."""
        theta, kept = self.answer.draft.theta, self.training_rows
        # A removal without a release may have left fewer features, or fewer classes.
        if self.released is None:
            return True
        fits = theta.size == n_parameters
        if isinstance(kept, TrainingRows) and not self.encoding.raw:
            fits = fits and kept.rows.X.shape[1] * n_outputs == theta.size
        return fits

    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        overwrite: bool = False,
    ) -> Self:
        """Return the model after a request; see ``PeopleModel``."""
        if not (change.n_removed or change.n_added):
            return self
        if change.n_added:
            self.chooser.require_addable()
            # However it is answered; rows that are encoded cannot have such a promise.
            change.require_lengths(self.terms.row_norm)
        clock = perf_counter()
        labels, objective, loss = self.labels, self.objective, None
        if labels is not None:
            labels = labels.after(change, objective, kept=self._has_rows(change))
        if labels is not None and has_other_classes(labels, self.labels):
            loss = labels.loss_like(objective.loss)
            objective = replace(objective, loss=loss)
        seen = recode_change(change, labels, loss=objective.loss)
        terms = self.terms
        if terms.units is not None:
            terms = replace(terms, units=terms.units.after(change))
        if loss is not None:
            terms = replace(terms, objective=objective)
        counted = count_request(self, change)
        after = replace_fields(counted, terms=terms, labels=labels)
        rows = None
        if remaining is not None or self._has_rows(change):
            rows = cache(partial(after._rows_after, seen, remaining))
        chooser, chosen = self.chooser.after(
            after._rows_before, change.gone, loss=loss, encoding=self.encoding
        )
        after = replace_fields(after, chooser=chooser)
        if loss is not None or chosen is not None:
            # Solved fully, and certified like a first fit.
            assert rows is not None
            if chosen is not None:
                terms = replace(after.terms, objective=chosen)
                after = replace_fields(after, terms=terms)
            encoding = self.encoding.fit_again(rows(), after.objective)
            after = after._solve(encoding, rows())
        else:
            after = after._follow(seen, rows, overwrite=overwrite)
        return replace_fields(
            after,
            accountant=chooser.count_in(after.accountant),
            seconds=perf_counter() - clock,
        )

    def _follow(
        self,
        change: RowChange,
        rows: Callable[[], RowSource] | None,
        *,
        overwrite: bool,
    ) -> Self:
        """Return the counted model after a request that leaves the objective alone.

        ``rows`` returns all rows after it, as they are kept.
        """
        terms, before, objective = self.terms, self.answer, self.objective
        encoding, seen, lift, keeps_sums = self.encoding.after(
            change, objective, rows=rows
        )
        encoded = None
        if rows is not None:
            encoded = cache(lambda: encoding.encode(rows(), objective))
        answered: tuple[State, Answer] | None = None
        try:
            if seen is not None:
                if lift is None:
                    answer = change_rows(
                        terms,
                        before,
                        change=seen,
                        remaining=encoded,
                        overwrite=overwrite,
                    )
                    answered = answer.state, answer
                elif terms.mechanism.follows_features:
                    with threads_for(before.state.block_size):
                        sums = terms.mechanism.update(
                            before.state,
                            seen.removed,
                            added=seen.added,
                            overwrite=overwrite,
                        )
                        state = lift(sums)
                        if state is not None:
                            width = state.anchor.size // objective.loss.outputs
                            objective.require_columns(width)
                            answered = sums, answer_removal(terms, state, rows=encoded)
        except REFUSALS:
            if rows is None or overwrite:
                raise
            # Retraining does not refuse, so with the rows at hand we must not either.
        if answered is None:
            if rows is None:
                raise CannotRemove(
                    "these rows change a column so much that all rows must be read "
                    "again, and they are not kept; nothing was changed; fit with "
                    "keep_data=True, or declare categories"
                )
            return self._solve(encoding, rows())
        sums, answer = answered
        n_looks = before.n_looks
        if encoded is not None and (terms.looks or not answer.fits(self.budget)):
            assert rows is not None
            answer = improve_answer(terms, answer, remaining=encoded())
            if not answer.n_looks:  # it is its own anchor
                return self._anchor(encoding, answer, rows=rows())
            n_looks += answer.n_looks
            if n_looks >= terms.looks_per_anchor:
                (done,), left = answer.decisions, encoded()
                with suppress(*REFUSALS):
                    moved = anchor_here(terms, left, draft=answer.draft, decision=done)
                    if moved.fits(self.budget):
                        return self._anchor(encoding, moved, rows=rows())
        answer = replace(answer, n_looks=n_looks)
        if not keeps_sums:
            last, features = answer.draft.theta, answer.state.features
            last = last if features is None else features.lift(last)
            missed = answer.state.missed
            answer = replace(answer, state=sums.replace(last=last, missed=missed))
        after = resize_account(self, answer.draft.theta.size)
        return replace_fields(after, encoding=encoding, answer=answer)

    def _solve(self, encoding: Encoding, rows: RowSource) -> Self:
        """Return the model of a full fit to these rows, as they are kept."""
        encoded, objective = encoding.encode(rows, self.objective), self.objective
        objective.require_columns(encoded.n_columns)
        outputs = objective.loss.outputs
        start = self.chooser.start
        if start is None:
            last = self.answer.draft.theta
            start = encoding.carry(last, self.encoding, outputs=outputs)
        same = start.size == encoded.n_columns * outputs
        answer = retrain_answer(self.terms, encoded, start=start if same else None)
        return self._anchor(encoding, answer, rows=rows)

    def _anchor(self, encoding: Encoding, answer: Answer, *, rows: RowSource) -> Self:
        """Return the model with an answer anchored at these rows, as they are kept."""
        encoding, answer = encoding.anchor(self.terms, answer, rows=rows)
        after = resize_account(self, answer.draft.theta.size)
        return replace_fields(after, encoding=encoding, answer=answer)

    def reanchor(self, rows: RowSource) -> Self:
        """Return the model with its sums rebuilt from the remaining rows, as kept.

        The old anchor, fitted to the removed rows too, is gone with the old model, and
        so is every sum that they were subtracted from.
        """
        self.chooser.require_anchorable()
        answer, encoded = self.answer, self.encode(rows)
        if not self.encoding.plain:  # the sums are under other weights
            state = answer.state.weighing(encoded.total_weight)
            answer = replace(answer, state=state)
        answer = anchor_answer(self.terms, answer, remaining=encoded)
        return self._anchor(self.encoding, answer, rows=rows)

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
        record = Record(
            radius=self.answer.stated_radius,
            radius_kind=self.answer.radius.kind,
            decisions=self.answer.decisions,
            n_samples=self.n_samples,
            n_removed=self.n_removed,
            timings={"request": self.seconds},
            salt=random_bytes(SECRET_BYTES),
            choice=self.chooser.scores,
            selection=self.accountant.selection,
        )
        after = replace_fields(self, accountant=account, certified=account, scope=scope)
        certificate = after.certify(noise_source=source, commitment=record.commitment())
        if budget is not None and noise is not None:
            units, intercept = self.terms.units, self.objective.intercept
            if units is not None:
                theta = units.scale(theta, intercept=intercept)
            theta = round_to_grid(theta, budget.grid) + noise.draw(theta.size)
            if units is not None:
                theta = units.restore(theta, intercept=intercept)
        made = (Release(theta.copy(), certificate), record)
        return (replace_fields(after, released=made), *made)

    def certify(self, *, noise_source: Source | None, commitment: str) -> Certificate:
        """Return the certificate of the account as it was at the last release."""
        return certify(
            self.certified,
            self.objective,
            scope=self.scope,
            noise_source=noise_source,
            commitment=commitment,
        )

    def charge(self, n_releases: int) -> Self:
        """Return the model charged for releases that are not in its account.

        It gets fresh noise. They supersede its own last release: it can release again.
        """
        account, noise = self.accountant, self.noise
        source = None if noise is None else noise.source
        for _ in range(n_releases):
            account = account.compose(release_event(self.budget, source))
        released = None if n_releases else self.released
        return replace(self, accountant=account, released=released).with_noise()

    def with_noise(self) -> Self:
        """Return the model with noise that no release of its account has used."""
        if self.budget is None:
            return replace(self, noise=None)
        noise = make_noise(self.budget, self.seed)
        if isinstance(noise, SecureNoise):
            noise.prepare(self.accountant.n_parameters)
        return replace(self, noise=noise)

    def compact(self) -> Self:
        """Return the model with its training rows gathered, without gaps."""
        kept, compacted = self.training_rows, super().compact()
        if not isinstance(kept, TrainingRows):
            return compacted
        return replace(compacted, chooser=self.chooser.compact(kept.alive))

    def kept_rows(self, gone: Index = NO_ROWS) -> RowSource | None:
        """Return the remaining rows but these, as they are kept; None if nobody does.

        Their labels are those of the present classes.
        """
        rows = super().kept_rows(gone)
        return None if rows is None else self._with_current_labels(rows)

    def remaining_rows(self) -> RowSource | None:
        """Return the remaining rows as the head sees them; None if nobody has them."""
        rows = self.kept_rows()
        return None if rows is None else self.encode(rows)

    def encode(self, rows: RowSource) -> RowSource:
        """Return kept rows as the head sees them."""
        return self.encoding.encode(rows, self.objective)

    @property
    def public_parts(self) -> dict[str, Any]:
        """What the public model shows of this one, besides the release."""
        units = self.terms.units
        return {
            "target_deviation": None
            if units is None
            else tuple(units.deviation.tolist()),
            "classes": None if self.labels is None else self.labels.classes,
            "declared": self.scope.declared,
            "preprocessing": self.encoding.public,
        }

    def _with_current_labels(self, rows: AnyRows) -> AnyRows:
        """Return rows with their labels coded for the present objective."""
        if self.labels is None:
            return rows
        return rows.recode(self.labels.recoding(self.objective.loss))

    def _has_rows(self, change: RowChange) -> bool:
        """Whether all rows after a request can be had."""
        kept = (self.training_rows or self.fetch) is not None
        return kept and change.positions is not None

    def _rows_before(self) -> Rows:
        """Return the rows in memory before a request, as they are kept."""
        assert self.training_rows is not None
        return self._with_current_labels(require_in_memory(self.training_rows).rows)

    def _rows_after(self, change: RowChange, remaining: Remaining | None) -> RowSource:
        """Return all rows after a request, as they are kept: those given, or our own.

        ``change`` is coded for the present classes.
        """
        if remaining is not None:
            given = remaining() if callable(remaining) else remaining
            rows = self._with_current_labels(given)
        else:
            assert change.positions is not None
            left = self.kept_rows(change.positions)
            assert left is not None
            rows = change.append_to(left)
        if len(rows) != self.n_samples - self.n_removed:
            raise InvalidInput(
                "these are not the rows after the request; pass all that it keeps and "
                "those that it adds"
            )
        return rows


def require_optimised(model: PeopleModel | None) -> PrivateModel:
    """Return a model that minimises an objective, which this one must be."""
    assert isinstance(model, PrivateModel)
    return model
