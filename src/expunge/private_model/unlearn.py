# SPDX-License-Identifier: Apache-2.0
r"""The verbs: begin, forget, release, as pure functions over a custody.

A ``Custody`` is all that an operator holds between requests: the noise-free state
and draft, the radius, the account. It is private. ``release`` is the only way out of
it, and the only place where a draft meets noise:

    begin     fit, and certify that the solver's error is within tau, or fail
    forget    subtract the rows; make the answer fit the contract:
              as it is -> looked at on the rows -> polished -> retrained
    release   radius + tau <= radius budget? then round, add noise, certify

Without the remaining rows an answer that does not fit stays as it is, and ``release``
refuses it. That refusal is visible and makes no claim.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TypeAlias

from ..core.arrays import Private, Vector
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.solver import Model, Solution, minimise, require_converged
from ..core.sums import largest_norm
from ..exceptions import (
    CannotRemove,
    CapacityExceeded,
    InvalidInput,
    NotCertifiable,
    NotConverged,
    NotPositiveDefinite,
)
from ..promise.accountant import Accountant, Fitted, Removed, release_event
from ..promise.budget import Budget
from ..promise.certificate import Certificate, Scope, certify
from ..promise.noise import SECRET_BYTES, Noise, random_bytes, round_to_grid
from ..promise.radius import Radius, best_radius
from ..promise.record import Record
from ..removal import Draft, Mechanism, Newton, State, measure_gradient
from ..removal.retrain import measure_weight, require_rows, rescale_model, retrain
from ..removal.state import initial_state, keep_sums
from ..removal.summary import Summary, summarise

Scored: TypeAlias = tuple[float, float, float]
"""A candidate's alpha, and the ends of the interval of its error."""

Remaining: TypeAlias = Rows | Callable[[], Rows]

POLISHING_STEPS = 3
REFUSALS = (NotPositiveDefinite, NotConverged, CannotRemove)
LOOKED = "accepted on rows"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Release:
    """What may leave: noised parameters with their certificate.

    Attributes
    ----------
    theta
        The parameters, (d k,), read-only. Without a budget they carry no noise, and
        the certificate says so.
    certificate
        What is promised about them.
    """

    theta: Vector
    certificate: Certificate

    def __repr__(self) -> str:
        return f"Release({self.certificate.status}, {self.theta.size} parameters)"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Custody(Private):
    """What the operator holds. Private: no figure of it may be published.

    Attributes
    ----------
    objective
        As it was at the fit: part of the contract.
    mechanism, budget
        How removals are answered, and the contract; None makes no claim.
    state, draft, radius
        The removal's state, its answer, and how far that may be from retraining.
    decisions
        What was done for the last request.
    n_samples, n_removed, fit_weight
        Rows at the first fit, rows removed since, and the weight at the first fit, to
        which "sum" scaling refers for ever: set by ``begin`` and never again.
    seconds
        How long the last request took.
    accountant
        The contract's account of events.
    released
        The release of this very state, once there is one.
    choice
        Of a tuned model, where each candidate's error must lie, see ``Record``.
    scope
        What certificates state of the model beside contract and objective.
    """

    objective: Objective
    mechanism: Mechanism
    budget: Budget | None
    state: State
    draft: Draft
    radius: Radius
    decisions: tuple[str, ...]
    n_samples: int
    n_removed: int
    fit_weight: float
    seconds: float
    accountant: Accountant
    released: tuple[Release, Record] | None = None
    choice: tuple[Scored, ...] = ()
    scope: Scope = field(default_factory=Scope)

    def objective_for(self, rows: Rows) -> Objective:
        """Return what a fit to these remaining rows minimises: the removal's target.

        Under "sum" scaling alpha W stays that of the first fit, however often the
        model was anchored or fitted again since.
        """
        return self.objective.after(rows.total_weight / self.fit_weight)


def begin(
    objective: Objective,
    rows: Rows,
    mechanism: Mechanism | None = None,
    budget: Budget | None = None,
    start: Vector | None = None,
) -> Custody:
    """Fit the objective and take the result into custody.

    Raises NotCertifiable if the budget asks for a solver error that cannot be
    certified, and InvalidInput if a row is longer than the contract promises.
    """
    clock = perf_counter()
    _require_promised_norm(budget, rows)
    mechanism = Newton() if mechanism is None else mechanism
    solution = minimise(objective, rows, start=start)
    require_converged(objective, rows, solution)
    anchor = _anchored(objective, rows, solution, budget)
    return Custody(
        objective=objective,
        mechanism=mechanism,
        budget=budget,
        state=mechanism.init(anchor.summary),
        draft=anchor.draft,
        radius=_within_tau(anchor, budget),
        decisions=("fitted",),
        n_samples=len(rows),
        n_removed=0,
        fit_weight=rows.total_weight,
        seconds=perf_counter() - clock,
        accountant=Accountant(budget).compose(Fitted(solution.theta.size)),
        scope=Scope(mechanism=type(mechanism).__name__.lower()),
    )


def forget(
    custody: Custody,
    removed: Rows,
    remaining: Remaining | None = None,
    *,
    n_subjects: int = 1,
    spend: bool = False,
) -> Custody:
    """Return the custody without these rows, its answer made to fit the contract.

    Parameters
    ----------
    custody
        What is held; unchanged if anything raises.
    removed
        The rows to remove.
    remaining
        All other rows where they are kept, or a function that fetches them if they
        are needed. With them the answer always fits.
    n_subjects
        How many people the rows belong to.
    spend
        Overwrite the old state instead of copying it; the old custody is lost,
        also if this raises.
    """
    if not len(removed):
        return custody
    clock = perf_counter()
    again = LOOKED in custody.decisions
    entered = _entered(custody, len(removed), n_subjects)
    try:
        answered = _answered(entered, removed, remaining, spend=spend)
    except REFUSALS:
        if remaining is None or spend:
            raise
        # Retraining does not refuse: with rows at hand, neither do we.
        answered = _retrained(entered, _fetched(remaining), custody.draft.theta)
    if remaining is not None and not fits(answered):
        answered = _settled(answered, _fetched(remaining), again=again)
    return replace(answered, seconds=perf_counter() - clock)


def refit(
    custody: Custody,
    objective: Objective,
    remaining: Rows,
    *,
    n_subjects: int,
    start: Vector | None = None,
) -> Custody:
    """Return the custody of a full fit to the rows that remain, under one contract.

    What ``forget`` is when no update of the old sums can follow: a tuned choice moves,
    preprocessing changes every row, or a class is gone. Solved to the end and certified
    like a fit; the account and the weight of the first fit go on.

    Parameters
    ----------
    custody
        What is held; unchanged if anything raises.
    objective
        What retraining minimises, stated as of the first fit.
    remaining
        All rows but the removed ones; they may have other columns and labels now.
    n_subjects
        How many people were removed.
    start
        Where the solver begins.
    """
    clock = perf_counter()
    objective.require_columns(remaining.X.shape[1])
    n_removed = custody.n_samples - custody.n_removed - len(remaining)
    size = remaining.X.shape[1] * objective.loss.outputs
    entered = _entered(custody, n_removed, n_subjects)
    account = entered.accountant
    if account.n_parameters != size:
        account = account.compose(Fitted(size)).compose(
            Removed(account.n_subjects_removed)
        )
    moved = replace(entered, objective=objective, accountant=account)
    moved = _retrained(moved, remaining, start)
    return replace(moved, seconds=perf_counter() - clock)


def _entered(custody: Custody, n_removed: int, n_subjects: int) -> Custody:
    """Return the custody with a request counted and nothing done about it yet."""
    return replace(
        custody,
        n_removed=custody.n_removed + n_removed,
        accountant=custody.accountant.compose(Removed(n_subjects)),
        released=None,
    )


def _answered(
    custody: Custody, removed: Rows, remaining: Remaining | None, *, spend: bool
) -> Custody:
    """Return the custody with the mechanism's own answer and its radius."""
    mechanism = custody.mechanism
    state = mechanism.update(custody.state, removed, spend=spend)
    rows = None
    if mechanism.needs_rows and remaining is not None:
        rows = _fetched(remaining)
    state, draft = mechanism.step(state, rows)
    radius = best_radius(
        state, draft, remaining=rows, row_norm=_row_norm(custody.budget)
    )
    return replace(
        custody, state=state, draft=draft, radius=radius, decisions=("accepted",)
    )


def release(
    custody: Custody, noise: Noise | None = None
) -> tuple[Custody, Release, Record]:
    """Return the custody with its release, and the private record behind it.

    A state is released once: asking again returns the same release. Raises
    CapacityExceeded if the answer does not fit the contract, and ScheduleExhausted
    if all planned releases are made.
    """
    if custody.released is not None:
        return (custody, *custody.released)
    budget, theta = custody.budget, custody.draft.theta
    require_fit(custody)
    if (budget is None) != (noise is None):
        raise InvalidInput("noise goes with a budget: give both, or neither")
    source = None if noise is None else noise.source
    accountant = custody.accountant.compose(release_event(budget, source))
    record = _record(custody)
    certificate = certify(
        accountant,
        custody.objective,
        scope=custody.scope,
        noise_source=source,
        commitment=record.commitment(),
    )
    if budget is not None and noise is not None:
        theta = round_to_grid(theta, budget.grid) + noise.draw(theta.size)
    public = theta.copy()
    public.setflags(write=False)
    made = (Release(public, certificate), record)
    return (replace(custody, accountant=accountant, released=made), *made)


def _record(custody: Custody) -> Record:
    """Return what stands behind the release and depends on rows."""
    return Record(
        radius=custody.radius.value,
        radius_kind=custody.radius.kind,
        decisions=custody.decisions,
        n_samples=custody.n_samples,
        n_removed=custody.n_removed,
        timings={"request": custody.seconds},
        salt=random_bytes(SECRET_BYTES),
        choice=custody.choice,
        selection=custody.accountant.selection,
    )


def replay(
    custody: Custody, requests: Iterable[tuple[Rows, Remaining | None]]
) -> Custody:
    """Return the custody after these requests, each as it was answered.

    An auditor who is shown the data begins with the same rows and replays the same
    requests in order: decisions are deterministic, so that the radius reached is the
    one to hold against a record, ``verify(certificate, record, radius=...)``.
    """
    for removed, remaining in requests:
        custody = forget(custody, removed, remaining)
    return custody


def reanchor(custody: Custody, remaining: Rows) -> Custody:
    """Return the custody with its sums made anew from the remaining rows.

    The old anchor, which had seen the removed rows, and every sum that they were
    subtracted from are gone with the old custody.
    """
    rows = require_rows(custody.state, remaining)
    objective, start = custody.objective_for(rows), custody.draft.theta
    steps = minimise(objective, rows, start=start, max_steps=1)
    return _moved(custody, rows, steps, "re-anchored")


def fits(custody: Custody) -> bool:
    """Whether radius + tau is within the budget; always without one."""
    if custody.budget is None:
        return True
    size = custody.draft.theta.size
    tau = custody.budget.solver_error(size)
    return custody.radius.value + tau <= custody.budget.radius_budget(size)


def require_fit(custody: Custody) -> None:
    """Raise CapacityExceeded unless the answer fits the contract."""
    if not fits(custody):
        raise CapacityExceeded(
            "the contract is exhausted: without the remaining rows this model cannot "
            "be certified any further; hand over the remaining rows, or fit anew"
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Anchor(Private):
    """A solution on rows with its sums and radius."""

    summary: Summary
    draft: Draft
    radius: Radius


def _anchored(
    objective: Objective, rows: Rows, solution: Solution, budget: Budget | None
) -> _Anchor:
    """Return sums, answer and radius at a solution: nothing is removed there."""
    summary = summarise(
        objective, rows, solution.theta, subgradient=solution.subgradient
    )
    measured = solution.gradient + solution.subgradient
    draft = Draft(summary.theta, solution.subgradient, measured)
    state = keep_sums(initial_state(summary), summary, moment=True)
    radius = best_radius(state, draft, remaining=rows, row_norm=_row_norm(budget))
    return _Anchor(summary, draft, radius)


def _within_tau(anchor: _Anchor, budget: Budget | None) -> Radius:
    """Return the radius of a full fit, or raise if it is beyond the solver's share."""
    if budget is not None:
        size = anchor.draft.theta.size
        if not anchor.radius.value <= budget.solver_error(size):
            raise NotCertifiable(
                f"the fit cannot be certified to be within tau="
                f"{budget.solver_error(size):.1e} of the minimiser; bring the "
                "columns to a like scale, raise alpha or ridge, penalise the "
                "intercept, or raise sigma or tau"
            )
    return anchor.radius


def _settled(custody: Custody, remaining: Rows, *, again: bool) -> Custody:
    """Return the custody with an answer that fits: looked at, polished, retrained.

    When the request before this one needed the rows ``again``, a look would do but
    the next request would need them too: polishing moves the anchor, after which
    many requests fit without a look.
    """
    rows = require_rows(custody.state, remaining)
    state, norm = measure_weight(custody.state, rows), _row_norm(custody.budget)
    seen = measure_gradient(state, custody.draft, rows)
    radius = best_radius(state, seen, remaining=rows, row_norm=norm)
    looked = replace(custody, draft=seen, radius=radius, decisions=(LOOKED,))
    if fits(looked) and not again:
        return looked
    try:
        solution = minimise(
            custody.objective_for(rows),
            rows,
            start=custody.draft.theta,
            chord=_chord(state),
            max_steps=POLISHING_STEPS,
        )
        polished = _moved(custody, rows, solution, f"polished {solution.n_steps} times")
    except REFUSALS:
        return _retrained(custody, rows, custody.draft.theta)
    if fits(polished):
        return polished
    return _retrained(custody, rows, custody.draft.theta)


def _retrained(custody: Custody, rows: Rows, start: Vector | None) -> Custody:
    """Return the custody with a full fit of the remaining rows."""
    if len(rows) != custody.n_samples - custody.n_removed:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones"
        )
    if not rows.total_weight > 0.0:
        raise CannotRemove(
            "no row with weight would be left, and a model needs at least one; delete "
            "the model instead"
        )
    solution = retrain(custody.objective_for(rows), rows, start=start)
    return _moved(custody, rows, solution, "retrained", full=True)


def _chord(state: State) -> Model | None:
    """Return the model of the remaining rows' own objective, if H_U is kept."""
    if state.hessian is None:
        return None
    return rescale_model(Newton().model(state), state.kept)


def _moved(
    custody: Custody, rows: Rows, solution: Solution, how: str, *, full: bool = False
) -> Custody:
    """Return the custody with this solution on the remaining rows as its anchor."""
    anchor = _anchored(custody.objective_for(rows), rows, solution, custody.budget)
    return replace(
        custody,
        state=custody.mechanism.init(anchor.summary),
        draft=anchor.draft,
        radius=_within_tau(anchor, custody.budget) if full else anchor.radius,
        decisions=(how,),
    )


def _fetched(remaining: Remaining) -> Rows:
    return remaining() if callable(remaining) else remaining


def _row_norm(budget: Budget | None) -> float | None:
    return None if budget is None else budget.row_norm


def _require_promised_norm(budget: Budget | None, rows: Rows) -> None:
    """Raise InvalidInput if a row is longer than the contract says."""
    promised = _row_norm(budget)
    if promised is not None and largest_norm(rows) > promised:
        raise InvalidInput(
            f"a row is longer than the contract's row_norm={promised:g} (intercept "
            "included); scale or clip the rows before fitting, or promise more"
        )
