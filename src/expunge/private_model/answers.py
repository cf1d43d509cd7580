# SPDX-License-Identifier: Apache-2.0
r"""Answers: what a fit or a removal computes, made to fit the budget.

An ``Agreement`` is fixed at the fit: objective, mechanism, budget. An ``Answer`` is
what was computed last: the removal's state, its draft, and how far that draft may be
from retraining. These functions lead from one answer to the next:

    fit_answer       solve on all rows, certified to be within tau of the minimiser
    retrain_answer   the same on the remaining rows
    change_rows      the mechanism's own answer to rows that leave or come
    improve_answer   measure it on the remaining rows, then polish, then retrain, until
                     its radius is within what the budget leaves for removals
    anchor_answer    one more step, with all sums rebuilt from the remaining rows
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf

from ..core.arrays import Vector, norm
from ..core.linalg import threads_for
from ..core.objective import Objective
from ..core.rows import RowSource
from ..core.solver import (
    Model,
    Solution,
    Stop,
    choose_start,
    minimise,
    require_converged,
)
from ..core.sums import largest_norm
from ..core.values import Private, stored
from ..exceptions import (
    CannotRemove,
    InvalidInput,
    NotCertifiable,
    NotConverged,
    NotPositiveDefinite,
)
from ..promise.budget import SOLVER_SHARE, Budget
from ..promise.radius import Radius, best_radius, known_floor
from ..removal import Draft, Mechanism, Newton, State, measure_gradient
from ..removal.matrix_free import SMALLEST_GRADIENT, keep_short_cut, stand_still
from ..removal.mechanisms import measure_weight, require_rows, rescale_model, retrain
from ..removal.state import initial_state, is_matrix_free, keep_sums
from ..removal.summary import find_minimiser, summarise, summarise_measured
from ..wide.measurement import measure
from ..wide.solver import minimise_wide
from .training_rows import RowChange

POLISHING_STEPS = 3
WIDE_STEPS = 6
# A step of a wide model aims at this share of the gradient that should do, and at no
# less than this share of the present one at a time: a radius shrinks faster than it.
AIM, LEAST_AIM = 0.5, 0.02
REFUSALS = (NotPositiveDefinite, NotConverged, CannotRemove)
MEASURED = "accepted on rows"


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Agreement(Private):
    """What is fixed at the fit.

    Attributes
    ----------
    objective
        What is minimised, stated as of the first fit.
    mechanism
        How removals are answered.
    budget
        What is promised; None promises nothing.
    fit_weight
        The total weight at the first fit; "sum" scaling always refers to it.
    smallest_radii
        Whether radii are made as small as they can be, not only small enough: for
        plans.
    """

    objective: Objective
    mechanism: Mechanism
    budget: Budget | None
    fit_weight: float
    smallest_radii: bool = False

    @property
    def row_norm(self) -> float | None:
        """The declared bound on the norm of a row, if there is one."""
        return None if self.budget is None else self.budget.row_norm

    def room(self, state: State) -> float:
        """Return which radius is small enough; zero if none is."""
        if self.budget is None or self.smallest_radii:
            return 0.0
        return self.budget.removal_budget(state.anchor.size)

    def objective_for(self, rows: RowSource) -> Objective:
        """Return what a fit to these remaining rows minimises: the removal's target.

        Under "sum" scaling alpha W stays that of the first fit, even after the model
        is anchored or fitted again.
        """
        return self.objective.after(rows.total_weight / self.fit_weight)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Answer(Private):
    """What was computed last.

    Attributes
    ----------
    state, draft, radius
        The removal's state, its draft, and how far that may be from retraining.
    decisions
        What was done to get it.
    n_steps
        Steps of the solver on the way; one for a mechanism's own answer.
    """

    state: State
    draft: Draft
    radius: Radius
    decisions: tuple[str, ...]
    n_steps: int = 1

    def fits(self, budget: Budget | None) -> bool:
        """Whether radius + tau is within the budget; true without one."""
        if budget is None:
            return True
        return self.radius.value <= budget.removal_budget(self.draft.theta.size)


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Adoption(Private):
    """How far the given coefficients were from the minimiser. Private.

    Attributes
    ----------
    shift, relative_shift
        Norm of the change of all coefficients, intercepts included; the same over
        the norm of the minimiser.
    residual
        Norm of the gradient of the mean objective at the given coefficients (of the
        proximal gradient where the penalty has a kink): zero at the minimiser.
    """

    shift: float
    relative_shift: float
    residual: float


def fit_answer(
    agreement: Agreement, rows: RowSource, *, start: Vector | None
) -> Answer:
    """Return the answer of a first fit.

    Raises NotCertifiable if the solver's error cannot be certified to be within the
    budget's tau, and InvalidInput if a row is longer than the budget allows.
    """
    declared = agreement.row_norm
    if declared is not None and largest_norm(rows) > declared:
        raise InvalidInput(
            f"a row is longer than the budget's row_norm={declared:g} (intercept "
            "included); scale or clip the rows before fitting, or declare a larger one"
        )
    if is_matrix_free(agreement.mechanism):
        answer = solve_wide(agreement, rows, start=start, decision="fitted")
    else:
        with rows.algebra():
            solution = find_minimiser(agreement.objective, rows, start=start)
        require_converged(agreement.objective, rows, solution=solution)
        answer = _answer_at(agreement, rows, solution=solution, decision="fitted")
    return _require_within_tau(answer, agreement.budget)


def retrain_answer(
    agreement: Agreement, rows: RowSource, *, start: Vector | None
) -> Answer:
    """Return the answer of a full fit to the remaining rows."""
    if not rows.total_weight > 0.0:
        raise CannotRemove(
            "no row with positive weight would be left; delete the model instead"
        )
    if is_matrix_free(agreement.mechanism):
        answer = _retrain_wide(agreement, rows, start=start)
    else:
        with rows.algebra():
            solution = retrain(agreement.objective_for(rows), rows, start=start)
        answer = _answer_at(agreement, rows, solution=solution, decision="retrained")
    return _require_within_tau(answer, agreement.budget)


def change_rows(
    agreement: Agreement,
    before: Answer,
    *,
    change: RowChange,
    remaining: Callable[[], RowSource] | None,
    spend: bool,
) -> Answer:
    """Return the mechanism's own answer, with its radius.

    Parameters
    ----------
    agreement, before
        What was fixed at the fit, and the answer before the request.
    change
        The rows that leave and those that come, as the model sees them.
    remaining
        Returns all rows after the request, for a mechanism that needs them.
    spend
        Overwrite the old state instead of copying it.
    """
    mechanism, size = agreement.mechanism, before.state.block_size
    if is_matrix_free(mechanism):
        state = mechanism.update(before.state, change.removed, added=change.added)
        return answer_wide(agreement, state, remaining=remaining)
    rows = None
    if mechanism.needs_rows and remaining is not None:
        rows = remaining()
    # Passes over rows may use every core.
    with nullcontext() if mechanism.needs_rows else threads_for(size):
        state = mechanism.update(
            before.state, change.removed, added=change.added, spend=spend
        )
        return answer_removal(agreement, state, rows=rows)


def answer_removal(
    agreement: Agreement, state: State, *, rows: RowSource | None
) -> Answer:
    """Return the mechanism's answer in this state, solved as far as need be."""
    room = agreement.room(state)

    def answer(state: State, enough: float) -> Answer:
        state, draft = agreement.mechanism.step(state, rows, enough=enough)
        radius = best_radius(
            state, draft, remaining=rows, row_norm=agreement.row_norm, enough=room
        )
        return Answer(state, draft, radius, ("accepted",))

    # What stays unsolved takes a small share of the room, if there is room for it.
    found = answer(state, SOLVER_SHARE * room * known_floor(state))
    if found.radius.value > room and found.draft.residual is not None:
        return answer(found.state, 0.0)
    return found


def answer_wide(
    agreement: Agreement, state: State, *, remaining: Callable[[], RowSource] | None
) -> Answer:
    """Return the answer of a matrix-free mechanism: as it is, or moved over the rows.

    The rows are fetched only if the last answer is too far. Each step aims at a
    gradient for which the radius should fit; the radius measured there decides.
    """
    room, found = agreement.room(state), _stand_still(agreement, state)
    if remaining is None or found.radius.value <= room:
        return found
    rows = remaining()
    for n_steps in range(1, WIDE_STEPS + 1):
        assert found.draft.measured is not None
        share = AIM * min(1.0, max(room / found.radius.value, LEAST_AIM))
        enough = share * norm(found.draft.measured) if room else 0.0
        state, _ = agreement.mechanism.step(found.state, rows, enough=enough)
        decisions = (f"polished {n_steps} times",)
        found = replace(_stand_still(agreement, state), decisions=decisions)
        if found.radius.value <= room or not room:
            break
    return found


def _stand_still(agreement: Agreement, state: State) -> Answer:
    """Return the anchor of a matrix-free state as the answer, with its radius."""
    draft = stand_still(state)
    radius = best_radius(
        state, draft, row_norm=agreement.row_norm, enough=agreement.room(state)
    )
    return Answer(state, draft, radius, ("accepted",))


def solve_wide(
    agreement: Agreement, rows: RowSource, *, start: Vector | None, decision: str
) -> Answer:
    """Return the answer of a full fit without matrices, solved to the budget's tau."""
    objective, budget = agreement.objective_for(rows), agreement.budget
    at = measure(objective, rows, theta=choose_start(objective, rows, start=start))
    tau = inf if budget is None else budget.solver_error(at.theta.size)
    goal, short_cut, scales, n_steps = SMALLEST_GRADIENT, None, None, 0
    for _ in range(WIDE_STEPS):
        solution = minimise_wide(
            objective, rows, start=at, goal=goal, short_cut=short_cut
        )
        at, short_cut = solution.at, solution.short_cut
        n_steps += solution.n_steps
        summary = summarise_measured(objective, rows, at=at, scales=scales)
        scales, state = summary.scales, agreement.mechanism.init(summary)
        state = keep_short_cut(state, short_cut)
        answer = _stand_still(replace(agreement, smallest_radii=True), state)
        if answer.radius.value <= tau or not solution.n_steps:
            break
        # Of the gradient that was reached: it may be well below the goal.
        assert answer.draft.measured is not None
        share = AIM * max(tau / answer.radius.value, LEAST_AIM)
        goal = share * min(goal, norm(answer.draft.measured))
    return replace(answer, decisions=(decision,), n_steps=n_steps)


def _retrain_wide(
    agreement: Agreement, rows: RowSource, *, start: Vector | None
) -> Answer:
    """Return the answer from the start given and, if that leads nowhere, from nothing.

    A fit to the remaining rows would start from nothing: it must not be refused here.
    """
    try:
        answer = solve_wide(agreement, rows, start=start, decision="retrained")
        return _require_within_tau(answer, agreement.budget)
    except (*REFUSALS, NotCertifiable):
        return solve_wide(agreement, rows, start=None, decision="retrained")


def improve_answer(
    agreement: Agreement, answer: Answer, *, remaining: RowSource, again: bool
) -> Answer:
    """Return an answer that fits the budget: measured, polished, or retrained.

    If the request before this one needed the rows too (``again``), measuring may be
    enough, but the next request would need them as well. Polishing moves the anchor,
    after which many requests fit without rows.
    """
    rows = require_rows(answer.state, remaining)
    if is_matrix_free(agreement.mechanism):
        return retrain_answer(agreement, rows, start=answer.draft.theta)
    state = measure_weight(answer.state, rows)
    draft = measure_gradient(state, answer.draft, remaining=rows)
    radius = best_radius(
        state,
        draft,
        remaining=rows,
        row_norm=agreement.row_norm,
        enough=agreement.room(state),
    )
    measured = replace(answer, draft=draft, radius=radius, decisions=(MEASURED,))
    if measured.fits(agreement.budget) and not again:
        return measured
    theta = answer.draft.theta
    try:
        solution = minimise(
            agreement.objective_for(rows),
            rows,
            start=theta,
            chord=_chord(state),
            stop=Stop(POLISHING_STEPS),
        )
        done = f"polished {solution.n_steps} times"
        polished = _answer_at(agreement, rows, solution=solution, decision=done)
    except REFUSALS:
        return retrain_answer(agreement, rows, start=theta)
    if polished.fits(agreement.budget):
        return polished
    return retrain_answer(agreement, rows, start=theta)


def anchor_answer(
    agreement: Agreement, answer: Answer, *, remaining: RowSource
) -> Answer:
    """Return the answer after one more step, with sums rebuilt from the rows."""
    rows = require_rows(answer.state, remaining)
    objective, start = agreement.objective_for(rows), answer.draft.theta
    if is_matrix_free(agreement.mechanism):
        return solve_wide(agreement, rows, start=start, decision="re-anchored")
    solution = minimise(objective, rows, start=start, stop=Stop(1))
    return _answer_at(agreement, rows, solution=solution, decision="re-anchored")


def _answer_at(
    agreement: Agreement, rows: RowSource, *, solution: Solution, decision: str
) -> Answer:
    """Return the answer anchored at a solution on these rows, nothing removed yet."""
    objective = agreement.objective_for(rows)
    summary = summarise(
        objective, rows, theta=solution.theta, subgradient=solution.subgradient
    )
    measured = solution.gradient + solution.subgradient
    draft = Draft(summary.theta, solution.subgradient, measured)
    whole = keep_sums(initial_state(summary), summary, moment=True)
    radius = best_radius(whole, draft, remaining=rows, row_norm=agreement.row_norm)
    with rows.algebra():
        state = agreement.mechanism.init(summary)
    return Answer(state, draft, radius, (decision,), solution.n_steps)


def _require_within_tau(answer: Answer, budget: Budget | None) -> Answer:
    """Return the answer of a full fit; raise NotCertifiable if it is beyond tau."""
    if budget is not None:
        tau = budget.solver_error(answer.draft.theta.size)
        if not answer.radius.value <= tau:
            raise NotCertifiable(
                f"the fit cannot be certified to be within tau={tau:.1e} of the "
                "minimiser; scale the columns to similar ranges, raise alpha or ridge, "
                "penalise the intercept, or raise sigma or tau"
            )
    return answer


def _chord(state: State) -> Model | None:
    """Return the quadratic model of the remaining rows, if H_U is kept."""
    if state.hessian is None:
        return None
    return rescale_model(Newton().model(state), state.kept)
