# SPDX-License-Identifier: Apache-2.0
"""Accountant: from events to what has been spent and what is left.

*Events* are frozen facts about a model. A ledger keeps them and outlives code, hence:

- once expunge is released, an event is never removed and its meaning never changes;
- a field added later has a default under which old events mean what they meant;
- an event of an unknown kind is refused; nothing is guessed;
- no field depends on a removed row: no radius, no number of rows, no timing.

*Costs* are those of Gaussian differential privacy: planned figures, fixed before the
data is seen. A release under a budget may cost mu = ``budget.gdp``. Costs compose
exactly, mu^2 = mu_1^2 + mu_2^2 + ..., also when each release is chosen in the light of
earlier ones, as long as every cost stays below a cap fixed in advance. Hence two
claims:

- "each release" (``releases=None``): each costs at most mu(epsilon, delta), and nothing
  is said about several together;
- "all releases jointly" (``releases=T``): each costs at most mu(epsilon, delta) /
  sqrt(T), at most T are made, and together they are (epsilon, delta). The accountant is
  the filter: it refuses release T + 1, whatever the data.

It counts what was promised, never what a removal turned out to cost: realised costs are
functions of the removed rows, and their sum is no guarantee. It draws no noise and sees
no model.
"""

from dataclasses import dataclass
from functools import singledispatch
from math import hypot, inf, isfinite
from typing import Literal, TypeAlias, final

from ..core.values import replace_fields, stored
from ..exceptions import InvalidInput, NotCertifiable, ScheduleExhausted, Unsupported
from .budget import Budget, epsilon_of
from .noise import Source

Claim: TypeAlias = Literal["each release", "all releases jointly"]
Selection: TypeAlias = Literal[
    "not known", "none", "certified", "recomputed", "not covered"
]
# A cost may exceed its cap by this much, relatively: the cap is itself rounded.
ROUNDING = 1e-12


class Event:
    """Anything that happened to a model."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Fitted(Event):
    """A model was fitted; nobody has been removed from it yet.

    Costs nothing: the fitted model is private until it is released.
    """

    n_parameters: int

    def __post_init__(self) -> None:
        """Refuse fewer parameters than none, as models have that answer questions."""
        _require_count("n_parameters", self.n_parameters, least=0)


@final
@dataclass(frozen=True, slots=True)
class Removed(Event):
    """People who were in the model asked to be removed, and were.

    Costs nothing: requests are public, and an operator who retrains gets the same.
    """

    n_subjects: int

    def __post_init__(self) -> None:
        """Refuse a negative number of people."""
        _require_count("n_subjects", self.n_subjects, least=0)


@final
@dataclass(frozen=True, slots=True)
class Added(Event):
    """People came into the model after its fit, or brought more rows.

    Costs nothing: requests are public, and an operator who retrains gets the same. A
    person counts once for each request.
    """

    n_subjects: int

    def __post_init__(self) -> None:
        """Refuse an addition of nobody: a certificate would not tell it from a fit."""
        _require_count("n_subjects", self.n_subjects, least=1)


@final
@dataclass(frozen=True, slots=True)
class Released(Event):
    """A model was published with the noise of the budget.

    ``gdp`` is what the release may cost: the mu of Gaussian differential privacy up
    to which it was allowed to differ from the release of an operator who retrains.
    """

    gdp: float

    def __post_init__(self) -> None:
        """Refuse a cost that is not a number."""
        if not (isfinite(self.gdp) and self.gdp >= 0.0):
            raise InvalidInput(
                f"gdp={self.gdp}; it must be a finite mu, zero or positive; a release "
                "that promises nothing is Unprotected()"
            )


@final
@dataclass(frozen=True, slots=True)
class Unprotected(Event):
    """A model was published that promises nothing. Costs infinity.

    There was no noise, or seeded noise that the budget does not allow.
    """


@final
@dataclass(frozen=True, slots=True)
class ReleasedExactly(Event):
    """A model was published whose numbers equal those of retraining to the last bit.

    Costs nothing: an operator who retrains publishes the same. It hides nothing either.
    """


@final
@dataclass(frozen=True, slots=True)
class TunedOnData(Event):
    """Something was chosen by looking at the data, and removal does not undo it.

    Costs infinity: the choice may tell who was there (the paper's Proposition 1).
    ``how`` names the procedure, for example "grid search", never its outcome.
    """

    how: str


@final
@dataclass(frozen=True, slots=True)
class Untuned(Event):
    """The operator declares that nothing was chosen by looking at the data.

    Costs nothing. Without it that is not known: nobody can see who called a fit.
    """


@final
@dataclass(frozen=True, slots=True)
class TunedRemovably(Event):
    """Something was chosen as it would be chosen on the remaining rows alone.

    Costs nothing. ``certified`` names the method, fixed beforehand: true when error
    bars prove the choice, false when the whole choice is computed again.
    """

    certified: bool


def _require_count(name: str, value: int, *, least: int) -> None:
    if isinstance(value, bool) or not value >= least:
        raise InvalidInput(f"{name}={value}; it must be an integer, at least {least}")


@stored
@dataclass(frozen=True)
class Accountant:
    """What may be claimed after the events so far.

    Parameters
    ----------
    budget
        The budget; None promises nothing.
    n_parameters, n_subjects_removed, n_subjects_added
        Size of the model, and how many people were removed and added since it was
        fitted.
    n_releases
        How many releases were made under the budget.
    selection
        How what was tuned was chosen; "not known" until somebody says so, and "not
        covered" once and for all.
    joint, largest
        Costs as mu: of everything together, and of the most expensive release.
    """

    budget: Budget | None
    n_parameters: int = 0
    n_subjects_removed: int = 0
    n_subjects_added: int = 0
    n_releases: int = 0
    selection: Selection = "not known"
    joint: float = 0.0
    largest: float = 0.0

    @property
    def claim(self) -> Claim | None:
        """What the promise is about; None without a budget."""
        if self.budget is None:
            return None
        if self.budget.releases is None:
            return "each release"
        return "all releases jointly"

    @property
    def gdp(self) -> float:
        """What the claim has cost so far, as mu."""
        if self.claim == "all releases jointly":
            return self.joint
        return self.largest

    @property
    def holds(self) -> bool:
        """Whether there is a promise and nothing has broken it."""
        return self.budget is not None and isfinite(self.gdp)

    def compose(self, event: Event) -> "Accountant":
        """Return the account after the event; refuse and change nothing if it cannot.

        Raises
        ------
        Unsupported
            The event is unknown.
        ScheduleExhausted
            All planned releases are made; this depends on their number alone.
        NotCertifiable
            The release may cost more than the budget grants it.
        """
        # Looked up by exact type: what derives from a known event may mean more.
        after = _count.registry.get(type(event), _refuse_unknown)
        return after(event, self)

    def resize(self, n_parameters: int) -> "Accountant":
        """Return the account for releases of another length; people stay counted."""
        resized = self.compose(Fitted(n_parameters))
        resized = resized.compose(Removed(self.n_subjects_removed))
        came = self.n_subjects_added
        return resized.compose(Added(came)) if came else resized

    def without_counts(self) -> "Accountant":
        """Return what stays the same from one release to the next."""
        cost = 0.0 if self.holds else inf
        return Accountant(
            self.budget,
            n_parameters=self.n_parameters,
            n_releases=1,
            selection=self.selection,
            joint=cost,
            largest=cost,
        )

    def spent(self, delta: float) -> float:
        """Return the epsilon that the promised costs amount to at this delta.

        Of all releases together under a joint claim, of the most expensive one
        otherwise. Infinite after ``TunedOnData`` or ``Unprotected``.
        """
        return epsilon_of(self.gdp, delta)

    def remaining(self) -> int | None:
        """Return how many releases are left; None if their number is not planned."""
        if self.budget is None or self.budget.releases is None:
            return None
        return self.budget.releases - self.n_releases


def is_permitted(budget: Budget | None, noise_source: Source | None) -> bool:
    """Return whether noise from this source can bear the promise of the budget."""
    if budget is None or noise_source is None:
        return False
    return noise_source != "seeded" or budget.allow_seeded


def release_event(
    budget: Budget | None, noise_source: Source | None
) -> Released | Unprotected:
    """Return the event of a release under this budget with noise of this source."""
    if budget is None or not is_permitted(budget, noise_source):
        return Unprotected()
    return Released(budget.gdp)


def _refuse_unknown(event: Event, before: Accountant) -> Accountant:
    """Refuse an event whose cost could only be guessed."""
    del before
    raise Unsupported(
        f"unknown event {type(event).__name__}; it was written by a newer expunge, or "
        "by hand: upgrade rather than guess its cost"
    )


_count = singledispatch(_refuse_unknown)


@_count.register
def _count_fit(event: Fitted, before: Accountant) -> Accountant:
    return replace_fields(
        before,
        n_parameters=event.n_parameters,
        n_subjects_removed=0,
        n_subjects_added=0,
    )


@_count.register
def _count_removal(event: Removed, before: Accountant) -> Accountant:
    total = before.n_subjects_removed + event.n_subjects
    return replace_fields(before, n_subjects_removed=total)


@_count.register
def _count_addition(event: Added, before: Accountant) -> Accountant:
    total = before.n_subjects_added + event.n_subjects
    return replace_fields(before, n_subjects_added=total)


@_count.register
def _count_tuning_on_data(event: TunedOnData, before: Accountant) -> Accountant:
    del event
    return replace_fields(before, selection="not covered", joint=inf, largest=inf)


@_count.register
def _count_declaration(event: Untuned, before: Accountant) -> Accountant:
    del event
    if before.selection != "not known":
        return before
    return replace_fields(before, selection="none")


@_count.register
def _count_removable_tuning(event: TunedRemovably, before: Accountant) -> Accountant:
    if before.selection == "not covered":  # a later choice does not undo an earlier
        return before
    return replace_fields(
        before, selection="certified" if event.certified else "recomputed"
    )


@_count.register
def _count_release(event: Released, before: Accountant) -> Accountant:
    _require_schedule(before)
    cap = 0.0 if before.budget is None else before.budget.gdp
    if event.gdp > cap * (1.0 + ROUNDING):
        raise NotCertifiable(
            f"a release that may cost mu={event.gdp:.6g} exceeds {cap:.6g}, which the "
            "budget grants to each; lower it, or plan a larger epsilon or fewer "
            "releases"
        )
    joint = hypot(before.joint, event.gdp)
    return _add_release(before, joint, largest=max(before.largest, event.gdp))


@_count.register
def _count_unprotected_release(event: Unprotected, before: Accountant) -> Accountant:
    del event
    _require_schedule(before)
    return _add_release(before, inf, largest=inf)


@_count.register
def _count_exact_release(event: ReleasedExactly, before: Accountant) -> Accountant:
    del event
    if before.budget is not None:
        raise NotCertifiable(
            "a release without noise, under a budget that promises some; an exact "
            "model has no budget"
        )
    return _add_release(before, before.joint, largest=before.largest)


def _add_release(before: Accountant, joint: float, *, largest: float) -> Accountant:
    """Return the account with one more release made."""
    made = before.n_releases + 1
    return replace_fields(before, n_releases=made, joint=joint, largest=largest)


def _require_schedule(before: Accountant) -> None:
    """Refuse what comes after the last planned release."""
    if before.remaining() == 0:
        raise ScheduleExhausted(
            f"all {before.n_releases} releases that the budget planned have been made; "
            "plan more with Budget(releases=...) and fit again under that budget"
        )
