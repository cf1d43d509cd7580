# SPDX-License-Identifier: Apache-2.0
"""Snapshot: all that a fitted estimator is at one moment, replaced as one object.

A request computes the next snapshot from the present one, and a single assignment makes
it so: an interrupt before it leaves the old model whole, one after it the new. A
prediction in another thread sees one or the other. Pickles and copies take the public
part alone.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from numpy.typing import NDArray

from ..core.losses import Loss
from ..exceptions import InvalidInput
from ..promise.accountant import TunedOnData
from ..promise.budget import Budget, is_made_here
from ..promise.certificate import CHOSEN, STANDARD
from ..promise.record import Record
from .holdings import Holdings, publish, settle
from .unlearn import Custody, Release


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The public part: what predictions, files and copies need.

    Attributes
    ----------
    release
        Noised parameters with their certificate.
    parameters
        Of the estimator, as they were at the fit.
    classes, pair
        Of a classifier, and its loss once two of them are left.
    weighted
        Whether the rows of the fit had weights.
    declared
        What made choices by looking at the data.
    """

    release: Release
    parameters: Mapping[str, Any]
    classes: NDArray[Any] | None = None
    pair: Loss | None = None
    weighted: bool = False
    declared: tuple[str, ...] = ()


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
        name, custody = _name(search), self.holdings.custody
        account = custody.accountant.compose(TunedOnData(name))
        scope = replace(custody.scope, declared=(*custody.scope.declared, name))
        custody = replace(custody, accountant=account, scope=scope)
        if custody.released is not None:  # the release shown is of this very state
            custody = replace(custody, released=(public, custody.released[1]))
        return replace(
            self,
            shown=replace(self.shown, release=public, declared=scope.declared),
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
    shown = Shown(
        public,
        parameters,
        classes=None if labels is None else labels.classes,
        pair=None if labels is None else labels.pair,
        weighted=weighted,
        declared=holdings.custody.scope.declared,
    )
    return Snapshot(shown, holdings, record)


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


def carry(
    custody: Custody, before: Snapshot | None = None, search: object = None
) -> Custody:
    """Return the custody of a fit with what was declared of it, now or before.

    Parameters
    ----------
    custody
        Of the fit, not yet released.
    before
        Of the estimator, where it was fitted before.
    search
        What chose something by looking at the data, or its name; None if nothing did.
    """
    names = () if search is None else (_name(search),)
    scope, apart = custody.scope, used_before(custody.budget)
    if before is not None:
        names = (*before.shown.declared, *names)
        if before.shown.declared:
            said = before.shown.release.certificate.not_covered
            further = tuple(text for text in said if text not in STANDARD)
            scope = replace(scope, not_covered=(*scope.not_covered, *further))
    account = custody.accountant
    for name in names:
        account = account.compose(TunedOnData(name))
    scope = replace(scope, declared=names, counted_apart=scope.counted_apart or apart)
    return replace(custody, accountant=account, scope=scope)


def require_weights(before: Snapshot | None, sample_weight: object) -> None:
    """Refuse to fit a model without the weights that it was fitted with."""
    if before is not None and before.shown.weighted and sample_weight is None:
        raise InvalidInput(
            "this model was fitted with weights (sample_weight, or class_weight of the "
            "estimator that it was adopted from), and without them it would be another "
            "model; pass sample_weight=..., or an estimator that was not fitted"
        )


def _name(search: object) -> str:
    """Return the name of what made a choice."""
    return search if isinstance(search, str) else type(search).__name__


_USED: WeakValueDictionary[int, Budget] = WeakValueDictionary()
_COUNTING = threading.Lock()


def used_before(budget: Budget | None) -> bool:
    """Note that a fit is released under this contract; return if another was.

    One that was made in another process may be in use there.
    """
    if budget is None:
        return False
    with _COUNTING:
        used = _USED.get(id(budget)) is budget or not is_made_here(budget)
        _USED[id(budget)] = budget
    return used
