# SPDX-License-Identifier: Apache-2.0
r"""Planning: try what a budget allows on given rows, before you commit to it.

Every count is a real removal through ``unlearn``, and few are needed (``removals``).
``report`` shows what was found.

Which rows are hard to remove, and how good the model is, are facts about the rows. A
budget chosen from its own training rows was not fixed before the data was seen, hence
the warning: plan on public or held-out rows.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core.objective import Objective
from ..core.rows import Rows, in_memory
from ..core.sums import largest_norm
from ..display.progress import ProgressBar
from ..exceptions import InvalidInput, Unsupported
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.capacity import (
    CapacityPlan,
    budget_risk_bound,
    capacity_by_privacy,
    regularity_of,
)
from ..removal import Mechanism
from ..removal.matrix_free import settle_mechanism
from .removals import (
    KINDS,
    ReleaseScore,
    RemovalLimit,
    RemovalSequence,
    find_limit,
    follow_order,
    labels_are_numbers,
    make_radius_test,
    removal_orders,
    require_plannable,
    score_releases,
    score_without_noise,
)
from .report import WORDS, PlanReport

WARNING = (
    "Planning looks at the rows: a budget chosen from its own training rows is not "
    "covered by any certificate. Choose it from public or held-out rows."
)


class PlanningLooksAtData(UserWarning):
    """A plan was made on rows that nobody declared public or held out.

    Silence it with ``PlanOptions(public=True)`` where that is true, or with
    ``PlanOptions(silent=True)`` where the reader is told so: the report says it too.
    """


@dataclass(frozen=True, slots=True, repr=False)
class PlanOptions:
    """How to plan; the defaults will usually do.

    Parameters
    ----------
    public
        Whether the rows are public or held out, so that you may look at them freely.
    scored_on
        Rows to score releases on; the planned rows themselves if not given.
    factors
        Multiples of the budget's sigma to score.
    draws, seed
        Releases drawn for each sigma, and the seed of noise and random order.
    verbose
        Whether to draw a progress bar. It counts sigmas and orders of removal, which
        are the same for all rows, not the removals that were tried.
    silent
        Whether to leave the warning to the report, which has it among what it does not
        cover.
    """

    public: bool = False
    scored_on: Rows | None = None
    factors: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    draws: int = 20
    seed: int = 0
    verbose: bool = False
    silent: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidInput for a plan without draws or sigmas."""
        if self.draws < 1 or not self.factors or not min(self.factors) > 0.0:
            raise InvalidInput(
                f"draws={self.draws}, factors={self.factors}; score at least one draw "
                "at one positive multiple of sigma"
            )


def plan(
    objective: Objective,
    rows: Rows,
    *,
    budget: Budget,
    mechanism: Mechanism | None = None,
    options: PlanOptions | None = None,
) -> PlanReport:
    """Return what the budget allows on these rows.

    Parameters
    ----------
    objective, rows
        What would be fitted, and on which rows: public or held-out ones, as many as
        there will be.
    budget
        The budget to try.
    mechanism
        The rule's own if not given. Mechanisms that look at the rows at each request
        are refused: for them there is nothing to plan.
    options
        How to plan.
    """
    options = PlanOptions() if options is None else options
    mechanism, name = settle_mechanism(mechanism, objective, rows=rows)
    require_plannable(mechanism)
    if not (options.public or options.silent):
        warnings.warn(WARNING, PlanningLooksAtData, stacklevel=2)
    scored_on = rows if options.scored_on is None else options.scored_on
    n_steps = 2 + len(options.factors) * len(WORDS) + len(KINDS)
    with ProgressBar("planning", n_steps, shown=options.verbose) as bar:
        model = PrivateModel.fit(objective, rows, mechanism=mechanism, budget=budget)
        bar.count()
        sequences = _follow_orders(model, rows, seed=options.seed)
        bar.count()
        noised = _score_sigmas(
            model, scored_on, sequences=sequences, options=options, bar=bar
        )
        limits = _find_limits(model, sequences, bar=bar)
    largest = max(limit.without_rows for limit in limits)
    ignored, risk = _bound_by_constants(model, rows, n_removed=largest)
    loss, theta = objective.loss, model.answer.draft.theta
    size = model.answer.draft.theta.size
    return PlanReport(
        budget=budget,
        mechanism=name,
        n_samples=len(rows),
        n_parameters=size,
        allowed=budget.radius_budget(size) - budget.solver_error(size),
        limits=limits,
        metric="R2" if labels_are_numbers(loss) else "accuracy",
        noise_free=score_without_noise(loss, scored_on, theta=theta),
        noised=noised,
        ignored=ignored,
        risk=risk,
        not_covered=_caveats(options),
        public=options.public,
    )


def plan_model(model: PrivateModel, options: PlanOptions | None = None) -> PlanReport:
    """Return what the budget of a model allows on the rows that it keeps.

    With preprocessing the features are taken as they are now.
    """
    rows, budget = model.remaining_rows(), model.budget
    if rows is None or budget is None:
        raise InvalidInput(
            "a plan needs rows and a budget: set keep_data=True and budget=..., or "
            "call expunge.plan.plan with other rows"
        )
    rows = in_memory(rows).gather()
    return plan(
        model.agreement.objective_for(rows),
        rows,
        budget=budget,
        mechanism=model.agreement.mechanism,
        options=options,
    )


def _follow_orders(
    model: PrivateModel, rows: Rows, *, seed: int
) -> dict[str, RemovalSequence]:
    """Return one sequence of removals for each order."""
    orders = removal_orders(model, rows, seed=seed)
    return {
        name: follow_order(model, rows, order=order) for name, order in orders.items()
    }


def _score_sigmas(
    model: PrivateModel,
    rows: Rows,
    *,
    sequences: Mapping[str, RemovalSequence],
    options: PlanOptions,
    bar: ProgressBar,
) -> tuple[ReleaseScore, ...]:
    """Return scores and removals for multiples of the budget's sigma."""
    budget, theta = model.budget, model.answer.draft.theta
    assert budget is not None
    found = []
    for factor in sorted(options.factors):
        scaled = replace(budget, sigma=factor * budget.sigma)
        score = score_releases(
            model.objective.loss,
            rows,
            theta=theta,
            budget=scaled,
            seeds=(options.seed, options.draws),
        )
        accepts = make_radius_test(model, scaled)
        counts = {}
        for name, sequence in sequences.items():
            if accepts is not None:
                counts[name] = sequence.without_rows(accepts)
            bar.count()
        if counts:
            typical, worst = counts["typical"], min(counts.values())
            score = replace(score, typical=typical, worst=worst)
        found.append(score)
    return tuple(found)


def _find_limits(
    model: PrivateModel, sequences: Mapping[str, RemovalSequence], *, bar: ProgressBar
) -> tuple[RemovalLimit, ...]:
    """Return the limit of each kind under the budget itself."""
    assert model.budget is not None
    accepts = make_radius_test(model, model.budget)
    assert accepts is not None  # or fit would have raised
    limits = []
    for kind in KINDS:
        limits.append(find_limit(kind, sequences, accepts=accepts))
        bar.count()
    return tuple(limits)


def _bound_by_constants(
    model: PrivateModel, rows: Rows, *, n_removed: int
) -> tuple[int | None, float | None]:
    """Return what constants alone say: requests to ignore, and excess risk."""
    objective, budget = model.objective, model.budget
    assert budget is not None
    size = model.answer.draft.theta.size
    room, tau = budget.radius_budget(size), budget.solver_error(size)
    known = regularity_of(objective, budget.row_norm or largest_norm(rows))
    try:
        ignored = capacity_by_privacy(known, len(rows), radius_budget=room, tau=tau)
    except (InvalidInput, Unsupported):
        return None, None
    if not objective.smooth or objective.scaling == "sum":
        return ignored, None
    figures = CapacityPlan(known, len(rows), size, budget.epsilon, budget.delta)
    sigma = budget.sigma
    return ignored, budget_risk_bound(figures, n_removed, radius=room, sigma=sigma)


def _caveats(options: PlanOptions) -> tuple[str, ...]:
    """Return what the figures do not say."""
    declared = "The rows were declared public or held out: other rows will differ."
    own = (
        "Scores are on the planned rows, to which the model was fitted. Rows that it "
        "has not seen may score lower."
    )
    return (
        declared if options.public else WARNING,
        *(() if options.scored_on is not None else (own,)),
        "Counts belong to the orders tried. No search finds the worst rows of all, and "
        "a radius may rise and fall between the counts tried.",
        "A plan promises nothing. Each release is checked against the budget again.",
    )
