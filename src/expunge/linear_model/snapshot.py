# SPDX-License-Identifier: Apache-2.0
"""Snapshot: all that a fitted estimator is at one moment, replaced as one object.

A request computes the next snapshot from the present one, and a single assignment makes
it so: an interrupt before it leaves the old model whole, one after it the new. Whoever
predicts in another thread sees one or the other. Pickles and copies take the public
part alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from numpy.typing import NDArray

from ..budget import Budget
from ..certificate import CHOSEN
from ..events import TunedOnData
from ..record import Record
from ..unlearn import Release
from .holdings import Holdings, publish, settle


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The public part: what predictions, files and copies need.

    Attributes
    ----------
    release
        Noised parameters with their certificate.
    parameters
        Of the estimator, as they were at the fit.
    classes
        Of a classifier.
    weighted
        Whether the rows of the fit had weights.
    """

    release: Release
    parameters: Mapping[str, Any]
    classes: NDArray[Any] | None = None
    weighted: bool = False


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Snapshot:
    """What everybody may see of a model, and what only its operator holds."""

    shown: Shown
    holdings: Holdings | None = None
    record: Record | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self.shown.release!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what is private."""
        return Snapshot, (self.shown,)

    @property
    def public(self) -> "Snapshot":
        """The snapshot without what is private."""
        return Snapshot(self.shown)

    def released(self, holdings: Holdings) -> "Snapshot":
        """Return the snapshot with a release of these holdings."""
        return snapshot_of(holdings, self.shown.parameters, self.shown.weighted)

    def holding(self, holdings: Holdings) -> "Snapshot":
        """Return the snapshot with other holdings, and nothing else released."""
        return replace(self, holdings=holdings)

    def tuned_by(self, search: object) -> "Snapshot":
        """Return the snapshot with a choice made on the data stated, and not covered.

        ``search`` made the choice, or is the name of what did.
        """
        assert self.holdings is not None
        public = _not_covering_a_choice(self.shown.release)
        name = search if isinstance(search, str) else type(search).__name__
        custody = self.holdings.custody
        account = custody.accountant.compose(TunedOnData(name))
        custody = replace(custody, accountant=account)
        if custody.released is not None:  # the release shown is of this very state
            custody = replace(custody, released=(public, custody.released[1]))
        return replace(
            self,
            shown=replace(self.shown, release=public),
            holdings=replace(self.holdings, custody=custody),
        )

    def settled(self) -> "Snapshot":
        """Finish a request whose snapshot counts already; see ``holdings.settle``."""
        if self.holdings is None or self.holdings.strike is None:
            return self
        return self.holding(settle(self.holdings))


def snapshot_of(
    holdings: Holdings, parameters: Mapping[str, Any], weighted: bool
) -> Snapshot:
    """Release holdings, and return the snapshot that shows the release."""
    holdings, public, record = publish(holdings)
    labels = holdings.labels
    classes = None if labels is None else labels.classes
    return Snapshot(Shown(public, parameters, classes, weighted), holdings, record)


def _not_covering_a_choice(public: Release) -> Release:
    """Return a release whose certificate covers no choice made on the data."""
    paper = public.certificate
    certificate = replace(
        paper,
        status="radius-only",
        selection="not covered",
        not_covered=tuple(dict.fromkeys((*paper.not_covered, CHOSEN))),
    )
    return Release(public.theta, certificate)


_USED: WeakValueDictionary[int, Budget] = WeakValueDictionary()


def note_use(budget: Budget | None) -> None:
    """Note that a fit was released under this contract."""
    if budget is not None:
        _USED[id(budget)] = budget


def was_used(budget: Budget | None) -> bool:
    """Return whether another fit was released under this very contract."""
    return budget is not None and _USED.get(id(budget)) is budget
