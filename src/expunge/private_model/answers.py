# SPDX-License-Identifier: Apache-2.0
r"""Answers: what a fit or a removal computes, made to fit the budget.

``FitTerms`` are fixed at the fit: objective, mechanism, budget. An ``Answer`` is
what was computed last: the removal's state, its draft, and how far that draft may be
from retraining. These functions lead from one answer to the next:

    fit_answer       solve on all rows, certified to be within tau of the minimiser
    retrain_answer   the same on the remaining rows
    change_rows      the mechanism's own answer to rows that leave or come
    improve_answer   look at it on the remaining rows, then polish, a step and a look at
                     a time, then retrain, until it is accepted
    anchor_here      an answer that was looked at, with all sums rebuilt from the rows
    anchor_answer    the same after one more step

An answer is accepted (``Answer.fits``) if its radius is within what the budget leaves
for removals, and if somebody who fits the remaining rows would get an answer as well:
near the limit of rounding a fit is refused, and then we must refuse too, or our answer
alone would tell that people left. Where that is not certain, the fit itself is run on
the remaining rows, from nothing, and its outcome is the answer, errors included.

A look costs one pass over the rows. It needs neither a new Hessian nor a new anchor:
steps are by the Hessian at hand, from which the leavers have been subtracted. The
anchor moves after so many looks, once the answer is found.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, nextafter

import numpy as np

from ..core.arrays import Vector, norm
from ..core.linalg import threads_for
from ..core.measurement import measure
from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..core.solver import (
    Solution,
    Stop,
    choose_start,
    find_minimiser,
    minimise,
    minimise_wide,
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
from ..promise.floor import known_floor
from ..promise.radius import Radii, Radius
from ..removal import Draft, Mechanism, State, measure_gradient
from ..removal.matrix_free import (
    SMALLEST_GRADIENT,
    MatrixFree,
    anchor_measured,
    keep_short_cut,
)
from ..removal.newton import hessian_step
from ..removal.state import draft_of, make_draft, require_rows, summarise
from .target_units import TargetUnits
from .training_rows import RowChange

POLISHING_STEPS = 3
SLOWEST = 0.5  # what a step must leave of the gradient at most to go on
# Looks after which the sums are rebuilt at the answer, constants of the contract: where
# every answer is looked at, and where an anchor nearby spares many answers a look.
LOOKS_PER_ANCHOR, FEW_LOOKS = 64, 2
WIDE_STEPS = 6
WIDE_PATIENCE = 10  # rounds of a fit by which its radius is not halved
AIM = 0.9  # at this share of the gradient that should do, a step of a wide model aims
REFUSALS = (NotPositiveDefinite, NotConverged, CannotRemove)
MEASURED = "accepted on rows"


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FitTerms(Private):
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
        Whether radii are made as small as they can be, not only small enough.
    looks
        Whether every request looks at the rows, needed or not: where noise is small,
        so that the time of an answer does not tell who needed a look.
    units
        Of the targets of the rows as they are now, in which the budget is counted;
        None where it is counted in the units of the parameters.
    """

    objective: Objective
    mechanism: Mechanism
    budget: Budget | None
    fit_weight: float
    smallest_radii: bool = False
    looks: bool = False
    units: TargetUnits | None = None

    @property
    def unit(self) -> float:
        """What one of the budget's lengths is in parameters."""
        return 1.0 if self.units is None else self.units.unit

    @property
    def looks_per_anchor(self) -> int:
        """After how many looks the anchor moves."""
        return LOOKS_PER_ANCHOR if self.looks else FEW_LOOKS

    @property
    def row_norm(self) -> float | None:
        """The declared bound on the norm of a row, if there is one."""
        return None if self.budget is None else self.budget.row_norm

    def radius_allowed(self, state: State) -> float:
        """Return which radius is small enough; zero if none is."""
        if self.budget is None or self.smallest_radii:
            return 0.0
        return self.unit * self.budget.removal_budget(state.anchor.size)

    def solver_error(self, n_parameters: int) -> float:
        """Return tau, in the units of the parameters; infinite without a budget."""
        if self.budget is None:
            return inf
        return self.unit * self.budget.solver_error(n_parameters)

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
    as_a_fit
        Whether a fit to the same rows is certain to be answered too; always true of a
        fit from nothing.
    n_looks
        Looks at the rows since the anchor.
    unit
        What one of the budget's lengths is in parameters.
    """

    state: State
    draft: Draft
    radius: Radius
    decisions: tuple[str, ...]
    n_steps: int = 1
    as_a_fit: bool = False
    n_looks: int = 0
    unit: float = 1.0

    @property
    def stated_radius(self) -> float:
        """The radius as the budget counts it, rounded up."""
        value = self.radius.value
        return value if self.unit == 1.0 else nextafter(value / self.unit, inf)

    def fits(self, budget: Budget | None) -> bool:
        """Whether radius + tau is within the budget, and a fit would be answered too.

        True without a budget.
        """
        if budget is None:
            return True
        allowed = self.unit * budget.removal_budget(self.draft.theta.size)
        return self.as_a_fit and self.radius.value <= allowed


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


def fit_answer(terms: FitTerms, rows: RowSource, *, start: Vector | None) -> Answer:
    """Return the answer of a first fit.

    Raises NotCertifiable if the solver's error cannot be certified to be within the
    budget's tau, and InvalidInput if a row is longer than the budget allows.
    """
    declared = terms.row_norm
    if declared is not None and largest_norm(rows) > declared:
        raise InvalidInput(
            f"a row is longer than the budget's row_norm={declared:g} (intercept "
            "included); scale or clip the rows before fitting, or declare a larger one"
        )
    return _fit_fully(terms, rows, start=start, decision="fitted")


def retrain_answer(terms: FitTerms, rows: RowSource, *, start: Vector | None) -> Answer:
    """Return the answer of a full fit to the remaining rows."""
    if not rows.total_weight > 0.0:
        raise CannotRemove(
            "no row with positive weight would be left; delete the model instead"
        )
    return _fit_fully(terms, rows, start=start, decision="retrained")


def _fit_fully(
    terms: FitTerms, rows: RowSource, *, start: Vector | None, decision: str
) -> Answer:
    """Return the answer of a full fit, within tau.

    From the start given if a fit from nothing is certain to be answered too; otherwise
    from nothing, so that its outcome, errors included, is that of any fit to the rows.
    """
    if start is not None:
        with suppress(*REFUSALS, NotCertifiable):
            warm = _solve(terms, rows, start=start, decision=decision)
            if _require_within_tau(warm, terms).as_a_fit:
                return warm
    if isinstance(rows, Rows) and rows.absent is not None:
        rows = rows.gather()  # sums round as those of a fit do, to the last bit
    cold = _solve(terms, rows, start=None, decision=decision)
    return replace(_require_within_tau(cold, terms), as_a_fit=True)


def _solve(
    terms: FitTerms,
    rows: RowSource,
    *,
    start: Vector | None,
    decision: str,
    stop: Stop | None = None,
) -> Answer:
    """Return the answer at the minimiser, or raise NotConverged.

    The radius has the last word: what it shows to be within tau of the minimiser is
    solved, however large a gradient rounding leaves there. A solver that is to ``stop``
    early need not have got anywhere.
    """
    if not terms.mechanism.keeps_matrices:
        return solve_wide(terms, rows, start=start, decision=decision)
    objective = terms.objective_for(rows)
    with rows.algebra():
        if stop is not None:
            solution = minimise(objective, rows, start=start, stop=stop)
        else:
            solution = find_minimiser(objective, rows, start=start)
    try:
        if stop is None:
            require_converged(objective, rows, solution=solution)
    except NotConverged:
        with suppress(*REFUSALS, NotCertifiable):
            answer = _answer_at(terms, rows, solution=solution, decision=decision)
            if terms.budget is not None:
                return _require_within_tau(answer, terms)
        raise
    return _answer_at(terms, rows, solution=solution, decision=decision)


def change_rows(
    terms: FitTerms,
    before: Answer,
    *,
    change: RowChange,
    remaining: Callable[[], RowSource] | None,
    overwrite: bool,
) -> Answer:
    """Return the mechanism's own answer, with its radius unless it is looked at.

    Parameters
    ----------
    terms, before
        What was fixed at the fit, and the answer before the request.
    change
        The rows that leave and those that come, as the model sees them.
    remaining
        Returns all rows after the request, for a mechanism that needs them.
    overwrite
        Overwrite the old state instead of copying it.
    """
    mechanism, size = terms.mechanism, before.state.block_size
    # Passes over rows may use every core.
    with nullcontext() if mechanism.needs_rows else threads_for(size):
        state = mechanism.update(
            before.state, change.removed, added=change.added, overwrite=overwrite
        )
        if mechanism.retrains and remaining is not None:
            rows = require_rows(state, remaining())
            return retrain_answer(terms, rows, start=before.draft.theta)
        return answer_removal(terms, state, rows=remaining)


def answer_removal(
    terms: FitTerms, state: State, *, rows: Callable[[], RowSource] | None
) -> Answer:
    """Return the mechanism's answer in this state, solved as far as need be.

    Where the anchor can be the answer, it stays that while its radius is small enough,
    and nobody fetches the rows. Else each step over them aims at a gradient for which
    the radius should be; the radius measured there decides. An answer that is looked at
    in any case has no radius before.
    """
    allowed, mechanism = terms.radius_allowed(state), terms.mechanism
    looks = terms.looks and rows is not None
    still = mechanism.answer_at_anchor(state)
    if still is None:
        seen = rows() if rows is not None and mechanism.needs_rows else None

        def answer(state: State, enough: float) -> Answer:
            state, draft = mechanism.step(state, seen, enough=enough)
            if looks and draft.measured is None:
                return Answer(state, draft, Radius(inf, "residual"), ("accepted",))
            return _judge(terms, state, draft=draft, rows=seen)

        # What stays unsolved takes a small share of the radius allowed, if one is.
        best = answer(state, SOLVER_SHARE * allowed * known_floor(state))
        if best.radius.value > allowed and best.draft.residual is not None:
            return answer(best.state, 0.0)
        return best
    best = _judge(terms, state, draft=still)
    if rows is None or (best.radius.value <= allowed and not looks):
        return best
    remaining = rows()
    for n_steps in range(1, WIDE_STEPS + 1):
        assert best.draft.measured is not None
        radii = Radii(best.state, best.draft, terms.row_norm)
        share = AIM * min(1.0, radii.enough(allowed))
        enough = share * norm(best.draft.measured)
        state, draft = mechanism.step(best.state, remaining, enough=enough)
        judged = _judge(terms, state, draft=draft)
        best = replace(judged, decisions=(f"polished {n_steps} times",))
        if best.radius.value <= allowed or not allowed:
            break
    if terms.budget is None and not isfinite(best.radius.value):
        # Nobody looks again: from an anchor without curvature a step may lead nowhere.
        assert best.draft.measured is not None
        goal = SMALLEST_GRADIENT * best.state.sums.weight
        if not norm(best.draft.measured) <= goal:
            return retrain_answer(terms, require_rows(state, remaining), start=None)
    return best


def _judge(
    terms: FitTerms,
    state: State,
    *,
    draft: Draft,
    rows: RowSource | None = None,
    smallest: bool = False,
) -> Answer:
    """Return a draft with its radius, and whether a fit would be answered too.

    The one place where that is decided (docs/radii.md, "Acceptance").
    """
    budget, row_norm = terms.budget, terms.row_norm
    enough = 0.0 if smallest else terms.radius_allowed(state)
    radii = Radii(state, draft, row_norm, rows)
    units, theta = terms.units, draft.theta
    scaling = 0.0 if units is None else units.rounding(theta)
    radius = radii.best(max(enough - scaling, 0.0))
    radius = replace(radius, value=radius.value + scaling)
    as_a_fit = budget is None
    if budget is not None:
        tau = terms.solver_error(theta.size)
        allowed = terms.unit * budget.removal_budget(theta.size)
        if radius.value <= allowed:  # of no use otherwise
            within = radius.value + tau
            scaling = 0.0 if units is None else units.rounding(theta, within=within)
            enough = min(tau, allowed) - scaling
            as_a_fit = radii.of_a_fit(within, enough=enough) <= enough
    decisions = ("accepted",)
    return Answer(state, draft, radius, decisions, as_a_fit=as_a_fit, unit=terms.unit)


def solve_wide(
    terms: FitTerms, rows: RowSource, *, start: Vector | None, decision: str
) -> Answer:
    """Return the answer of a full fit without matrices, solved to the budget's tau."""
    objective, budget = terms.objective_for(rows), terms.budget
    at = measure(objective, rows, theta=choose_start(objective, rows, start=start))
    tau = inf
    if budget is not None:  # a fit beyond what removals may be is of no use either
        size = at.theta.size
        tau = terms.unit * min(budget.solver_error(size), budget.removal_budget(size))
    goal, short_cut, sums, n_steps = SMALLEST_GRADIENT, None, None, 0
    before, bound, patience = inf, inf, WIDE_PATIENCE
    while True:
        solution = minimise_wide(
            objective, rows, start=at, goal=goal, short_cut=short_cut
        )
        at, short_cut = solution.at, solution.short_cut
        n_steps += solution.n_steps
        state = anchor_measured(objective, rows, at=at, before=sums)
        sums, state = state.sums, keep_short_cut(state, short_cut)
        draft = MatrixFree().answer_at_anchor(state)
        answer = _judge(terms, state, draft=draft, smallest=True)
        # Down to rounding if need be: that fits get there is what requests rest on.
        # Where the objective falls for ever gradients vanish too, and radii do not.
        patience -= not answer.radius.value < 0.5 * bound
        stuck = not (at.residual < 0.5 * before and patience)
        if answer.radius.value <= tau or stuck:
            break
        bound = answer.radius.value
        # Of the gradient that was reached: it may be well below the goal.
        before = at.residual
        share = Radii(state, draft, terms.row_norm).enough(tau)
        goal = before * AIM * min(1.0, share)
    return replace(answer, decisions=(decision,), n_steps=n_steps)


@np.errstate(over="ignore", invalid="ignore")  # of steps that go too far
def improve_answer(terms: FitTerms, answer: Answer, *, remaining: RowSource) -> Answer:
    """Return an answer that fits the budget: looked at, polished, or retrained.

    The state stays at its anchor, unless the model is retrained, or the old sums are
    too far off to tell that a fit would be answered too.
    """
    rows = require_rows(answer.state, remaining)
    if answer.draft.measured is not None:  # on these rows already
        if answer.fits(terms.budget):
            return answer
        return retrain_answer(terms, rows, start=answer.draft.theta)
    state, draft = answer.state.weighing(rows.total_weight), answer.draft
    step, before = None, inf
    with suppress(*REFUSALS):
        for n_steps in range(POLISHING_STEPS + 1):
            draft = measure_gradient(state, draft, remaining=rows)
            assert draft.measured is not None
            judged = _judge(terms, state, draft=draft, rows=rows)
            done = f"polished {n_steps} times" if n_steps else MEASURED
            if judged.fits(terms.budget):
                return replace(
                    judged,
                    state=_after_look(terms, answer.state, draft=draft),
                    decisions=(done,),
                    n_steps=max(1, n_steps),
                    n_looks=n_steps + 1,
                )
            if judged.radius.value <= terms.radius_allowed(state):
                anchored = anchor_here(terms, rows, draft=draft, decision=done)
                if anchored.fits(terms.budget):
                    return anchored
                break
            left = norm(draft.measured)
            if state.sums.hessian is None or left > SLOWEST * before:
                break
            step, before = step or hessian_step(state), left
            minimum = step(draft.theta, draft.measured - draft.subgradient)
            draft = make_draft(minimum)
    return retrain_answer(terms, rows, start=draft.theta)


def _after_look(terms: FitTerms, state: State, *, draft: Draft) -> State:
    """Return the state from which the next answer starts."""
    # What a look showed helps the next one; a bound without a look pays for it.
    if terms.looks:
        return terms.mechanism.after_look(state, draft)
    return state.replace(last=draft.theta)


def anchor_answer(terms: FitTerms, answer: Answer, *, remaining: RowSource) -> Answer:
    """Return the answer after one more step, with sums rebuilt from the rows."""
    rows = require_rows(answer.state, remaining)
    anchored = _solve(
        terms,
        rows,
        start=answer.draft.theta,
        decision="re-anchored",
        stop=Stop(after=1),
    )
    if anchored.fits(terms.budget):
        return anchored
    return retrain_answer(terms, rows, start=None)


def _answer_at(
    terms: FitTerms, rows: RowSource, *, solution: Solution, decision: str
) -> Answer:
    """Return the answer anchored at a solution on these rows."""
    draft = draft_of(solution, rows)
    answer = anchor_here(terms, rows, draft=draft, decision=decision)
    return replace(answer, n_steps=solution.n_steps)


def anchor_here(
    terms: FitTerms, rows: RowSource, *, draft: Draft, decision: str
) -> Answer:
    """Return the answer anchored at a draft measured on these rows, with new sums."""
    whole = summarise(terms.objective_for(rows), rows, theta=draft.theta)
    # What else a draft tells is about another anchor.
    draft = Draft(draft.theta, draft.subgradient, draft.measured)
    plain = replace(
        whole, sums=whole.sums.replace(curvature=None, intercept_columns=None)
    )
    judged = _judge(terms, plain, draft=draft, rows=rows, smallest=True)
    with rows.algebra():
        state = terms.mechanism.init(whole)
    return replace(judged, state=state, decisions=(decision,))


def _require_within_tau(answer: Answer, terms: FitTerms) -> Answer:
    """Return the answer of a full fit; raise NotCertifiable if it is beyond tau."""
    if terms.budget is not None:
        size = answer.draft.theta.size
        if not answer.radius.value <= terms.solver_error(size):
            tau = terms.budget.solver_error(size)
            objective = answer.state.objective
            held = "penalise the intercept, " if objective.n_free else ""
            # What does not follow from the contract would be a function of who left.
            raise NotCertifiable(
                f"the fit cannot be certified to be within tau={tau:.1e} of the "
                f"minimiser; scale the columns to similar ranges, {objective.stricter},"
                f" {held}or raise sigma or tau"
            )
    return answer
