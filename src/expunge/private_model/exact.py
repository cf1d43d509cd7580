# SPDX-License-Identifier: Apache-2.0
"""ExactModel: a private model whose published numbers follow from exact sums alone.

    sums        integers over the rows: removal subtracts, addition adds, and nothing
                rounds, so that they are those of the rows that are left
    formula     what is published of them, as the sums decide (``core.decided``)

So a request gives, to the last bit, what a fit to the rows after it gives. There is no
noise to draw, no budget and no radius. ``ExactRelease`` is where numbers without noise
may leave: they do not hide who left, and its certificate says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Vector
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import NOT_STORED, Private, replace_fields, stored
from ..core.whole_sums import WholeSums
from ..exceptions import CannotRemove, InvalidInput
from ..promise.accountant import Accountant, Fitted, ReleasedExactly
from ..promise.budget import Budget
from ..promise.certificate import Certificate, certify_exact
from ..promise.noise import SECRET_BYTES, Source, random_bytes
from ..promise.scope import Scope
from ..promise.verification import ExactRelease, Record, Release
from .labels import Labels
from .people_model import PeopleModel, count_request, resize_account
from .training_rows import Remaining, RowChange

EXACT_SUMS = "exact sums"  # the mechanism that certificates name


class Formula(Private, ABC):
    """What an exact model computes: sums of rows, and what is published of them.

    A frozen dataclass of what its user chose; ``not_covered`` has what its certificates
    say besides what all exact ones do.
    """

    __slots__ = ()

    not_covered: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return the sums over rows as they are kept, present ones alone."""

    @abstractmethod
    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return what is published: a function of the sums, and of nothing else."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return what was computed as a certificate states it, see ``describe``."""

    def left_by(self, sums: WholeSums) -> Self:
        """Return the formula after a request: without the names of what has gone."""
        del sums
        return self

    def answer(self, sums: WholeSums) -> Any:
        """Return what questions are answered by, where that is not published."""
        raise NotImplementedError

    def public_of(self, sums: WholeSums) -> Mapping[str, Any]:
        """Return fields of the public model that follow from the sums."""
        del sums
        return {}


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ExactModel(PeopleModel):
    """A fitted model of exact sums, with its rows and its account. Private.

    Attributes
    ----------
    formula, sums
        What is computed, and of which sums.
    theta
        What is published of these sums.
    answers
        What questions are answered by, once somebody asked.
    """

    formula: Formula
    sums: WholeSums
    theta: Vector | None = field(default=None, metadata=NOT_STORED)
    answers: list[Any] = field(default_factory=list, metadata=NOT_STORED)

    @classmethod
    def fit(
        cls, formula: Formula, rows: Rows, *, labels: Labels | None
    ) -> "ExactModel":
        """Return the model of these rows, as they are to be kept."""
        clock = perf_counter()
        sums = formula.sums_of(rows, labels)
        theta = formula.publish(sums, labels)
        account = Accountant(None).compose(Fitted(theta.size))
        return ExactModel(
            formula=formula,
            sums=sums,
            theta=theta,
            labels=labels,
            seconds=perf_counter() - clock,
            n_samples=len(rows),
            n_removed=0,
            accountant=account,
            certified=account,
            scope=Scope(mechanism=EXACT_SUMS),
        )

    @property
    def budget(self) -> Budget | None:
        """None: there is no noise."""
        return None

    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        overwrite: bool = False,
    ) -> Self:
        """Return the model after a request; see ``PeopleModel``."""
        del remaining, overwrite  # no row is read again, and nothing is written over
        if not (change.n_removed or change.n_added):
            return self
        clock = perf_counter()
        after = count_request(self, change)
        if after.n_removed == after.n_samples:
            raise CannotRemove("no row would be left; delete the model instead")
        labels, sums = self.labels, self.sums
        grown = labels if labels is None else labels.left_by(change)
        if change.removed is not None:
            sums = sums.minus(self.formula.sums_of(change.removed, labels))
        if change.added is not None:
            sums = sums.plus(self.formula.sums_of(change.added, labels))
        formula = self.formula.left_by(sums)
        theta = formula.publish(sums, grown)
        after = replace_fields(
            after, formula=formula, sums=sums, labels=grown, theta=theta, answers=[]
        )
        after = resize_account(after, theta.size)
        return replace_fields(after, seconds=perf_counter() - clock)

    def reanchor(self, rows: RowSource) -> Self:
        """Return the model with its sums added up again: they are the same."""
        left = in_memory(rows)
        left = left.gather() if left.absent is not None else left
        return replace_fields(self, sums=self.formula.sums_of(left, self.labels))

    def release(self) -> tuple[Self, Release, Record]:
        """Return the model with its release, and the private record behind it."""
        if self.released is not None:
            return (self, *self.released)
        theta = self.published()
        account = self.accountant.compose(ReleasedExactly())
        record = Record(
            radius=0.0,
            radius_kind="exact",
            decisions=("summed",),
            n_samples=self.n_samples,
            n_removed=self.n_removed,
            timings={"request": self.seconds},
            salt=random_bytes(SECRET_BYTES),
            selection=account.selection,
        )
        after = replace_fields(self, accountant=account, certified=account)
        certificate = after.certify(noise_source=None, commitment=record.commitment())
        made = (ExactRelease(theta.copy(), certificate), record)
        return (replace_fields(after, released=made), *made)

    def published(self) -> Vector:
        """Return what is published of the sums, computed now if it is not at hand."""
        if self.theta is not None:
            return self.theta
        return self.formula.publish(self.sums, self.labels)

    def answer(self) -> Any:
        """Return what questions are answered by, computed at the first of them."""
        if not self.answers:
            self.answers.append(self.formula.answer(self.sums))
        return self.answers[0]

    def certify(self, *, noise_source: Source | None, commitment: str) -> Certificate:
        """Return the certificate of the account as it was at the last release."""
        del noise_source
        return certify_exact(
            self.certified,
            self.formula.describe(),
            scope=self.scope,
            not_covered=self.formula.not_covered,
            commitment=commitment,
        )

    def charge(self, n_releases: int) -> Self:
        """Return the model charged for releases that are not in its account."""
        account = self.accountant
        for _ in range(n_releases):
            account = account.compose(ReleasedExactly())
        released = None if n_releases else self.released
        return replace(self, accountant=account, released=released)

    def with_noise(self) -> Self:
        """Return the model: it has no noise."""
        return self

    @property
    def public_parts(self) -> dict[str, Any]:
        """What the public model shows of this one, besides the release."""
        return {
            "classes": None if self.labels is None else self.labels.classes,
            "declared": self.scope.declared,
            **self.formula.public_of(self.sums),
        }

    def rebuilt(self) -> Self:
        """Return the model with everything computed again from the rows it keeps."""
        rows = self.kept_rows()
        if rows is None:
            raise InvalidInput(
                "this model keeps no data (keep_data=False), so there is nothing to "
                "compute its release again from; verify(certificate, record) checks "
                "the documents"
            )
        return replace(self.reanchor(rows), theta=None, answers=[])


def groups_of(rows: Rows, labels: Labels) -> tuple[NDArray[np.intp], int]:
    """Return the group of each row, one for each code, and how many there are."""
    codes = rows.y.astype(np.intp)
    most = max(int(labels.codes.max(initial=0)), int(codes.max(initial=0)))
    return codes, most + 1
