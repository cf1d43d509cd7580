# SPDX-License-Identifier: Apache-2.0
r"""Plan: what a contract allows on given rows, before anyone signs it.

    how many    rows can go until the radius no longer fits, taken at random, in a
                cluster, or in the hardest order found
    how good    the release is under the contract's noise, and under a tenth and ten
                times as much

Nothing is retrained on the way: radii come from the state, a batch equals a stream, so
a count is found by trying few of them. Every count is a real removal by the verbs of
``unlearn``. Which rows are hard, and how good the model is, are facts about the rows:
a contract chosen from its own training rows is not fixed before the data is seen. Hence
the warning, and the advice to plan on public or held-out rows.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..blocks import largest_norm
from ..budget import Budget
from ..capacity import Plan, capacity_by_privacy, contract_risk_bound
from ..exceptions import InvalidInput, Unsupported
from ..mechanisms import Mechanism, Newton
from ..objective import Objective
from ..regularity import regularity_of
from ..rows import Rows
from ..unlearn import Custody, begin
from .orders import removal_orders
from .reach import KINDS, Progress, Trial, accepted_radii, reached, trial
from .report import PlanReport
from .scores import Scored, noise_free, released, takes_numbers

LOOK = (
    "Planning looks at the rows: a contract chosen from its own training rows is not "
    "covered by any certificate. Choose it from public or held-out rows."
)


class PlanningLooksAtData(UserWarning):
    """A plan was made on rows that nobody declared public or held out.

    Silence it with ``Options(public=True)`` where that is true, or with
    ``warnings.simplefilter("ignore", PlanningLooksAtData)``.
    """


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """How to plan; the defaults serve.

    Parameters
    ----------
    public
        Whether the rows are public or held out, so that looking at them is free.
    scored_on
        Rows to score releases on; the planned rows themselves if not given.
    factors
        Multiples of the contract's sigma to score.
    draws, seed
        Releases drawn for each sigma, and the seed of noise and random order.
    progress
        Is told what is being tried, in words without figures of the data.
    """

    public: bool = False
    scored_on: Rows | None = None
    factors: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    draws: int = 20
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse a plan without draws or sigmas."""
        if self.draws < 1 or not self.factors or not min(self.factors) > 0.0:
            raise InvalidInput(
                f"draws={self.draws}, factors={self.factors}; score at least one draw "
                "at one positive multiple of sigma"
            )


def plan(
    objective: Objective,
    rows: Rows,
    budget: Budget,
    mechanism: Mechanism | None = None,
    options: Options | None = None,
) -> PlanReport:
    """Return what the contract allows on these rows.

    Parameters
    ----------
    objective, rows
        What would be fitted, and on which rows: public or held-out ones, as many as
        there will be.
    budget
        The contract to try.
    mechanism
        Newton if not given. One that looks at the rows at each request has nothing to
        plan and is refused.
    options
        How to plan.
    """
    options = Options() if options is None else options
    mechanism = Newton() if mechanism is None else mechanism
    if mechanism.needs_rows:
        raise Unsupported(
            f"{type(mechanism).__name__} looks at the remaining rows at every request, "
            "so its answers fit whatever is removed; plan for Newton or Jackknife"
        )
    if not options.public:
        warnings.warn(LOOK, PlanningLooksAtData, stacklevel=2)
    _tell(options, "fit on all rows")
    custody = begin(objective, rows, mechanism, budget)
    trials = _trials(custody, rows, options)
    scored_on = rows if options.scored_on is None else options.scored_on
    noised = _noised(custody, scored_on, trials, options)
    fits = accepted_radii(custody, budget)
    assert fits is not None  # or begin had raised
    reaches = tuple(reached(kind, trials, fits) for kind in KINDS)
    largest = max(reach.without_rows for reach in reaches)
    ignored, risk = _by_constants(custody, rows, largest)
    size = custody.draft.theta.size
    return PlanReport(
        budget=budget,
        mechanism=type(mechanism).__name__.lower(),
        n_samples=len(rows),
        n_parameters=size,
        allowed=budget.radius_budget(size) - budget.solver_error(size),
        reaches=reaches,
        metric="R2" if takes_numbers(objective.loss) else "accuracy",
        noise_free=noise_free(objective.loss, scored_on, custody.draft.theta),
        noised=noised,
        ignored=ignored,
        risk=risk,
        not_covered=_not_covered(options),
    )


def _trials(custody: Custody, rows: Rows, options: Options) -> dict[str, Trial]:
    """Return one trial for each order."""
    _tell(options, "order the rows")
    orders = removal_orders(custody, rows, options.seed)
    return {
        name: trial(custody, rows, order, partial(_tell, options, name))
        for name, order in orders.items()
    }


def _noised(
    custody: Custody, rows: Rows, trials: Mapping[str, Trial], options: Options
) -> tuple[Scored, ...]:
    """Return scores and removals for multiples of the contract's sigma."""
    budget, theta = custody.budget, custody.draft.theta
    assert budget is not None
    found = []
    for factor in sorted(options.factors):
        contract = replace(budget, sigma=factor * budget.sigma)
        _tell(options, f"sigma {contract.sigma:g}", f"{options.draws} releases drawn")
        seeds = options.seed, options.draws
        scored = released(custody.objective.loss, rows, theta, contract, seeds)
        fits = accepted_radii(custody, contract)
        if fits is not None:
            counts = {name: trials[name].without_rows(fits) for name in trials}
            typical, worst = counts["typical"], min(counts.values())
            scored = replace(scored, typical=typical, worst=worst)
        found.append(scored)
    return tuple(found)


def _by_constants(
    custody: Custody, rows: Rows, n_removed: int
) -> tuple[int | None, float | None]:
    """Return what constants alone say: removals to ignore, and excess risk."""
    objective, budget = custody.objective, custody.budget
    assert budget is not None
    size = custody.draft.theta.size
    room, tau = budget.radius_budget(size), budget.solver_error(size)
    known = regularity_of(objective, budget.row_norm or largest_norm(rows))
    try:
        ignored = capacity_by_privacy(known, len(rows), room, tau)
    except (InvalidInput, Unsupported):
        return None, None
    if not objective.smooth or objective.scaling == "sum":
        return ignored, None
    figures = Plan(known, len(rows), size, budget.epsilon, budget.delta)
    sigma = budget.sigma
    return ignored, contract_risk_bound(figures, n_removed, radius=room, sigma=sigma)


def _tell(options: Options, *words: str) -> None:
    """Tell whoever wants to know what is being done."""
    if options.progress is not None:
        options.progress(": ".join(words))


def _not_covered(options: Options) -> tuple[str, ...]:
    """Return what the figures are not."""
    declared = "The rows were declared public or held out: other rows will differ."
    own = (
        "Scores are on the planned rows; pass scored_on= for rows that were not fitted."
    )
    return (
        declared if options.public else LOOK,
        *(() if options.scored_on is not None else (own,)),
        "Counts belong to the orders tried; no search finds the worst rows of all, and "
        "a radius may rise and fall between the counts tried.",
        "A plan promises nothing. Each release is held against the contract anew.",
    )
