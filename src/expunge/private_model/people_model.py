# SPDX-License-Identifier: Apache-2.0
"""PeopleModel: what files, registries and estimators need to know of a private model.

It has rows with their owners, an account and a release, and a request returns the next
one. ``PrivateModel`` minimises an objective, and hides by noise what its answer may
differ from retraining. ``ExactModel`` is a function of exact sums, and has nothing to
hide the difference of. Whoever stores models, or finds the rows of a person, need not
know which of them it has.

Training rows and digests are too large to copy for each request: ``pending`` takes out
of them what a request removed and puts in what it added, once the new model counts
(``finish``).
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias, TypeVar

from ..core.arrays import Index
from ..core.rows import Rows, RowSource
from ..core.values import NOT_STORED, Private, replace_fields
from ..exceptions import ScheduleExhausted
from ..promise.accountant import Accountant, TunedOnData, Untuned
from ..promise.budget import Budget
from ..promise.certificate import Certificate
from ..promise.noise import Source
from ..promise.scope import Scope
from ..promise.verification import Record, Release
from .labels import Labels
from .row_digests import RowDigests
from .training_rows import NO_ROWS, KeptRows, Remaining, RowChange

# Takes the positions of rows to remove, and returns all the others.
Fetch: TypeAlias = Callable[[Index], RowSource]
AnyModel = TypeVar("AnyModel", bound="PeopleModel")


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PeopleModel(Private, ABC):
    """A fitted model with the rows of its people, and its account. Private.

    Attributes
    ----------
    seconds
        How long the last request took.
    n_samples, n_removed
        Rows at the first fit and added since, and rows removed since.
    accountant, certified
        The account of events so far, and as it was at the last release.
    scope
        What certificates state about the model besides what was computed.
    labels
        The classes of a classifier.
    training_rows, digests, fetch
        The rows with their owners, if they are kept here; digests of them if they are
        not; how to get the remaining rows if they are kept elsewhere.
    pending
        What is still to be done to rows or digests; it may be done twice.
    released
        The release of exactly this state, once there is one.
    process
        The process that counts releases; another process may make more.
    """

    seconds: float
    n_samples: int
    n_removed: int
    accountant: Accountant
    certified: Accountant
    scope: Scope
    labels: Labels | None = None
    training_rows: KeptRows | None = field(default=None, metadata=NOT_STORED)
    digests: RowDigests | None = field(default=None, metadata=NOT_STORED)
    fetch: Fetch | None = field(default=None, metadata=NOT_STORED)
    pending: Callable[[], None] | None = field(default=None, metadata=NOT_STORED)
    released: tuple[Release, Record] | None = field(default=None, metadata=NOT_STORED)
    process: int = field(default_factory=os.getpid, metadata=NOT_STORED)

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """What is promised by noise; None if no noise is added."""

    @abstractmethod
    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        overwrite: bool = False,
    ) -> Self:
        """Return the model after a request; see ``pending`` for rows and digests.

        Parameters
        ----------
        change
            The rows that leave and those that come, as they are kept.
        remaining
            All rows after the request, or a function that returns them, if the caller
            keeps them. With them the answer always fits.
        overwrite
            Overwrite the old state instead of copying it; the old model is lost, even
            if this raises.
        """

    @abstractmethod
    def reanchor(self, rows: RowSource) -> Self:
        """Return the model with its sums rebuilt from the remaining rows, as kept."""

    @abstractmethod
    def release(self) -> tuple[Self, Release, Record]:
        """Return the model with its release, and the private record behind it.

        A state is released once: asking again returns the same release.
        """

    @abstractmethod
    def certify(self, *, noise_source: Source | None, commitment: str) -> Certificate:
        """Return the certificate of the account as it was at the last release."""

    @abstractmethod
    def charge(self, n_releases: int) -> Self:
        """Return the model charged for releases that are not in its account."""

    @abstractmethod
    def with_noise(self) -> Self:
        """Return the model with noise that no release of its account has used."""

    @property
    @abstractmethod
    def public_parts(self) -> dict[str, Any]:
        """What the public model shows of this one, besides the release."""

    @property
    def needs_training_rows(self) -> bool:
        """Whether the model looks at its rows at every request."""
        return False

    @property
    def input_map(self) -> Any:
        """What makes rows of inputs that are no numbers; None if rows are numbers."""
        return None

    def interchangeable(self, positions: Sequence[int]) -> bool:
        """Whether it does not matter which of these equal rows goes."""
        del positions
        return True

    def fits_release(self, n_parameters: int, n_outputs: int) -> bool:
        """Whether a release of so many parameters may be one of this model."""
        del n_outputs
        return self.accountant.n_parameters == n_parameters

    def with_scope(self, scope: Scope) -> Self:
        """Return the fitted model with more for its certificates to state."""
        account = self.accountant
        for name in scope.declared:
            account = account.compose(TunedOnData(name))
        if scope.untuned:
            account = account.compose(Untuned())
        scope = replace(scope, mechanism=self.scope.mechanism)
        return replace(self, accountant=account, certified=account, scope=scope)

    def forget(
        self,
        removed: Rows,
        *,
        gone: Index | None = None,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        overwrite: bool = False,
    ) -> Self:
        """Return the model without these rows, as kept; see ``change``.

        ``gone`` is where they are among those that the model keeps or can fetch.
        """
        change = RowChange(removed=removed, gone=gone, n_subjects_removed=n_subjects)
        return self.change(change, remaining=remaining, overwrite=overwrite)

    def add(
        self,
        added: Rows,
        *,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        overwrite: bool = False,
    ) -> Self:
        """Return the model with these rows too, as kept; see ``change``."""
        change = RowChange(added=added, n_subjects_added=n_subjects)
        return self.change(change, remaining=remaining, overwrite=overwrite)

    def finish(self) -> Self:
        """Take out of rows or digests what a request removed; put in what it added.

        After an interrupt you can call it again, with the same effect.
        """
        if self.pending is None:
            return self
        self.pending()
        return replace_fields(self, pending=None)

    def compact(self) -> Self:
        """Return the model with its training rows gathered, without gaps."""
        kept = self.training_rows
        return self if kept is None else replace(self, training_rows=kept.compact())

    def kept_rows(self, gone: Index = NO_ROWS) -> RowSource | None:
        """Return the remaining rows but these, as kept; None if nobody has them."""
        kept = self.training_rows
        fetch = self.fetch if kept is None else kept.remaining
        return None if fetch is None else fetch(gone)


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


def require_release(model: PeopleModel) -> None:
    """Raise ScheduleExhausted if no release may follow a request."""
    if model.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases have been made; fit again under a new budget"
        )
