# SPDX-License-Identifier: Apache-2.0
"""The accountant: its laws for every event, and another library's composition."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import inf, isfinite, nan, sqrt

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    NotCertifiable,
    ScheduleExhausted,
    Unsupported,
)
from expunge.promise.accountant import (
    Accountant,
    Added,
    Event,
    Fitted,
    Released,
    ReleasedExactly,
    Removed,
    TunedOnData,
    TunedRemovably,
    Unprotected,
    Untuned,
    release_event,
)
from expunge.promise.budget import Budget, delta_of, epsilon_of, mu_of
from tests.test_events import KINDS

DELTA = 1e-5
EACH = Budget(epsilon=1.0, delta=DELTA)
JOINT = Budget(epsilon=1.0, delta=DELTA, releases=4)
BUDGETS = (EACH, JOINT, None)

FREE: tuple[Event, ...] = (
    Fitted(3),
    Removed(0),
    Removed(7),
    Added(4),
    TunedRemovably(certified=True),
    TunedRemovably(certified=False),
    Untuned(),
)
COSTLY: tuple[Event, ...] = (
    Released(JOINT.gdp),
    Released(0.5 * JOINT.gdp),
    Unprotected(),
    TunedOnData("grid search"),
)
EVERY = (*FREE, *COSTLY, ReleasedExactly())


def compose(budget: Budget | None, events: Iterable[Event]) -> Accountant:
    """Return the account after the events, those that are refused left out."""

    def then(accountant: Accountant, event: Event) -> Accountant:
        try:
            return accountant.compose(event)
        except (ScheduleExhausted, NotCertifiable):
            return accountant

    return reduce(then, events, Accountant(budget))


def test_every_event_is_tried() -> None:
    assert {type(event) for event in EVERY} == set(KINDS.values())


@dataclass(frozen=True)
class Cheaper(Released):  # type: ignore[misc]
    """A kind of release that this accountant has never heard of."""


@pytest.mark.parametrize("unknown", [Event(), Cheaper(0.0), "released", None, object()])
def test_unknown_events_are_refused(unknown: Event) -> None:
    with pytest.raises(Unsupported, match="unknown event"):
        Accountant(EACH).compose(unknown)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("event", FREE)
def test_what_is_free_costs_nothing(event: Event, budget: Budget | None) -> None:
    accountant = Accountant(budget).compose(event)
    assert accountant.spent(DELTA) == 0.0
    assert accountant.remaining() == Accountant(budget).remaining()


def test_an_exact_release_costs_nothing_and_needs_no_budget() -> None:
    accountant = Accountant(None).compose(ReleasedExactly())
    assert accountant.n_releases == 1
    assert accountant.spent(DELTA) == 0.0
    for budget in (EACH, JOINT):
        with pytest.raises(NotCertifiable, match="without noise, under a budget"):
            Accountant(budget).compose(ReleasedExactly())


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("event", [Unprotected(), TunedOnData("grid search")])
def test_what_promises_nothing_costs_infinity(
    event: Event, budget: Budget | None
) -> None:
    accountant = Accountant(budget).compose(event)
    assert accountant.spent(DELTA) == inf
    assert not accountant.holds
    # For good: no later event makes up for it.
    assert compose(budget, [event, *EVERY]).spent(DELTA) == inf


@given(st.lists(st.sampled_from(EVERY)), st.sampled_from(BUDGETS))
def test_cost_never_falls(events: list[Event], budget: Budget | None) -> None:
    accounts = [compose(budget, events[:i]) for i in range(len(events) + 1)]
    costs = [accountant.gdp for accountant in accounts]
    assert costs == sorted(costs)


@given(st.lists(st.sampled_from(EVERY)), st.sampled_from([EACH, JOINT]))
def test_filter_keeps_the_promise_whatever_comes(
    events: list[Event], budget: Budget
) -> None:
    accountant = compose(budget, events)
    assert accountant.holds == isfinite(accountant.gdp)
    if accountant.holds:
        assert accountant.spent(DELTA) <= budget.epsilon * (1 + 1e-9)


def test_accounts_are_values() -> None:
    before = Accountant(JOINT)
    after = before.compose(Released(JOINT.gdp))
    assert (before.n_releases, after.n_releases) == (0, 1)
    assert before == Accountant(JOINT)


def test_joint_claim_spends_itself_exactly_and_then_refuses() -> None:
    accountant = Accountant(JOINT)
    for left in (3, 2, 1, 0):
        accountant = accountant.compose(release_event(JOINT, "secure"))
        assert accountant.remaining() == left
    assert accountant.claim == "all releases jointly"
    assert accountant.spent(DELTA) == pytest.approx(1.0, rel=1e-9)
    for event in (Released(0.0), Unprotected()):
        with pytest.raises(ScheduleExhausted, match="all 4 releases"):
            accountant.compose(event)
    assert accountant.compose(Removed(1)).n_subjects_removed == 1


def test_claim_about_each_release_has_no_end() -> None:
    accountant = compose(EACH, [Released(EACH.gdp)] * 50)
    assert accountant.claim == "each release"
    assert accountant.remaining() is None
    assert accountant.n_releases == 50
    assert accountant.spent(DELTA) == pytest.approx(1.0, rel=1e-9)


def test_release_beyond_its_share_is_refused() -> None:
    with pytest.raises(NotCertifiable, match="exceeds"):
        Accountant(JOINT).compose(Released(1.001 * JOINT.gdp))
    with pytest.raises(NotCertifiable, match="exceeds 0"):
        Accountant(None).compose(Released(0.1))


def test_selection_follows_the_choice_and_stays_uncovered() -> None:
    assert Accountant(EACH).selection == "not known"
    declared = Accountant(EACH).compose(Untuned())
    assert declared.selection == "none"
    removable = declared.compose(TunedRemovably(certified=True))
    assert removable.selection == "certified"
    again = removable.compose(TunedRemovably(certified=False))
    assert again.selection == "recomputed"
    assert again.compose(Untuned()).selection == "recomputed"
    tuned = again.compose(TunedOnData("grid search")).compose(Untuned())
    assert tuned.compose(TunedRemovably(certified=True)).selection == "not covered"


def test_requests_are_counted_from_the_fit() -> None:
    accountant = compose(EACH, [Fitted(3), Removed(2), Added(4), Removed(5), Added(1)])
    assert (accountant.n_parameters, accountant.n_subjects_removed) == (3, 7)
    assert accountant.n_subjects_added == 5
    resized = accountant.resize(4)
    assert (resized.n_parameters, resized.n_subjects_removed) == (4, 7)
    assert resized.n_subjects_added == 5
    fresh = accountant.compose(Fitted(4))
    assert (fresh.n_subjects_removed, fresh.n_subjects_added) == (0, 0)


def test_nobody_cannot_be_added() -> None:
    with pytest.raises(InvalidInput, match="n_subjects=0"):
        Added(0)


def test_noise_decides_what_a_release_is() -> None:
    assert release_event(EACH, "secure") == Released(EACH.gdp)
    assert release_event(EACH, "seeded") == Unprotected()
    assert release_event(Budget(allow_seeded=True), "seeded") == Released(EACH.gdp)
    assert release_event(None, None) == Unprotected()
    assert Accountant(None).claim is None


@pytest.mark.parametrize("releases", [1, 3, 20])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_joint_spending_agrees_with_dp_accounting(
    epsilon: float, releases: int
) -> None:
    budget = Budget(epsilon=epsilon, delta=DELTA, releases=releases)
    theirs = PLDAccountant()
    theirs.compose(GaussianDpEvent(1.0 / budget.gdp), releases)
    ours = compose(budget, [Released(budget.gdp)] * releases).spent(DELTA)
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-3)


def test_uneven_spending_agrees_with_dp_accounting() -> None:
    shares = (0.2, 1.0, 0.7)
    theirs = PLDAccountant()
    for share in shares:
        theirs.compose(GaussianDpEvent(1.0 / (share * JOINT.gdp)))
    ours = compose(JOINT, [Released(share * JOINT.gdp) for share in shares])
    assert ours.spent(DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-3)
    assert ours.gdp == pytest.approx(JOINT.gdp * sqrt(sum(s * s for s in shares)))


@given(st.floats(1e-3, 20.0), st.floats(1e-10, 0.5))
def test_epsilon_is_the_smallest_and_errs_on_the_private_side(
    mu: float, delta: float
) -> None:
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta
    if epsilon > 0.0:
        assert delta_of(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-6)


def test_epsilon_inverts_mu() -> None:
    for epsilon in (0.01, 1.0, 30.0):
        assert epsilon_of(mu_of(epsilon, DELTA), DELTA) == pytest.approx(epsilon)
    assert epsilon_of(0.0, DELTA) == 0.0
    assert epsilon_of(inf, DELTA) == inf
    for delta in (0.0, 1.0, nan):
        with pytest.raises(InvalidInput, match="delta"):
            epsilon_of(1.0, delta)


def test_refusals_are_errors_of_the_house() -> None:
    for error in (ScheduleExhausted, NotCertifiable, Unsupported):
        assert issubclass(error, ExpungeError)
