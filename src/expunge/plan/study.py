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

Report: the figures of a plan, and how a person reads them.

As a table of text, or as a plot if matplotlib is there; it is imported when asked for.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ..core.arrays import Private
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.sums import largest_norm
from ..exceptions import InvalidInput, MissingExtra, Unsupported
from ..private_model.unlearn import Custody, begin
from ..promise.budget import Budget
from ..promise.capacity import (
    CapacityPlan,
    budget_risk_bound,
    capacity_by_privacy,
    regularity_of,
)
from ..removal import Mechanism, Newton
from .removals import (
    KINDS,
    Kind,
    Progress,
    Reach,
    Scored,
    Trial,
    accepted_radii,
    noise_free,
    reached,
    released,
    removal_orders,
    round_counts,
    takes_numbers,
    trial,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# What each order of removal means.
WORDS: Mapping[str, str] = {
    "typical": "at random",
    "clustered": "a row's neighbours",
    "largest": "largest effects",
    "aligned": "effects in one direction",
    "opposed": "effects in one direction",
}
# Below this an R2 is as bad as any, and would flatten the rest of the plot.
LOWEST_R2 = -1.0
# Colours that stay apart for the colour-blind (Okabe and Ito).
STYLES: Mapping[Kind, tuple[str, str]] = {
    "typical": ("#0072B2", "o"),
    "worst": ("#D55E00", "v"),
    "clustered": ("#009E73", "s"),
}


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport(Private):
    """What a contract allows on given rows. It prints by ``table`` alone.

    Attributes
    ----------
    budget, mechanism
        The contract, and the mechanism's name.
    n_samples, n_parameters
        n rows and d parameters.
    allowed
        The largest radius that fits: the radius budget less tau.
    reaches
        One for each kind of removal.
    metric
        "accuracy" or "R2": what ``score`` means.
    noise_free, noised
        The model without noise, and releases by sigma.
    ignored
        Removals that the noise would hide if nobody acted on them, whichever rows,
        by constants alone; None where constants bound nothing.
    risk
        Bound on the expected excess risk of any release the contract accepts after
        ``reaches``' largest count by the state alone; None likewise.
    not_covered
        What these figures are not, in sentences.
    """

    budget: Budget
    mechanism: str
    n_samples: int
    n_parameters: int
    allowed: float
    reaches: tuple[Reach, ...]
    metric: str
    noise_free: Scored
    noised: tuple[Scored, ...]
    ignored: int | None
    risk: float | None
    not_covered: tuple[str, ...]

    def __repr__(self) -> str:
        return "PlanReport(private; table() shows it)"

    def table(self) -> str:
        """Return the report as text for a person to read."""
        parts = [self._heading(), self._counts(), self._radii(), self._scores()]
        notes = "\n".join(
            fill(note, 80, initial_indent="- ", subsequent_indent="  ")
            for note in self.not_covered
        )
        return "\n\n".join([*parts, notes]) + "\n"

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return radius by count and score by sigma as a figure; save it at ``path``.

        Needs matplotlib, the extra ``plots``.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtra(
                "a plot needs matplotlib, which is not installed; run "
                "pip install expunge[plots], or read table()"
            ) from error
        figure = Figure(figsize=(11.0, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_radii(left, self)
        _draw_scores(right, self)
        figure.suptitle(f"What the contract allows: {self._contract()}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _contract(self) -> str:
        joint = self.budget.releases
        claim = "each release" if joint is None else f"{joint} releases jointly"
        return (
            f"{self.mechanism}, epsilon={self.budget.epsilon:g}, "
            f"delta={self.budget.delta:g}, sigma={self.budget.sigma:g}, {claim}"
        )

    def _heading(self) -> str:
        return (
            f"Plan: {self._contract()}\n"
            f"{self.n_samples} rows, {self.n_parameters} parameters; a radius up to "
            f"{self.allowed:.3g} fits"
        )

    def _counts(self) -> str:
        lines = [("rows that may go", "without rows", "with rows", "one more")]
        for reach in self.reaches:
            counts = str(reach.without_rows), str(reach.with_rows)
            lines.append((_label(reach), *counts, reach.then))
        ignored = "no bound" if self.ignored is None else str(self.ignored)
        lines.append(("any, requests ignored", ignored, "", "by constants alone"))
        risk = "no bound" if self.risk is None else f"at most {self.risk:.3g}"
        return (
            f"{_aligned(lines, last_is_text=True)}\n"
            "Without the remaining rows one more is refused, for all to see; with them "
            "it is\nanswered as named and counting starts again from there.\n"
            f"Expected excess risk until then, by constants alone: {risk}"
        )

    def _radii(self) -> str:
        lines = [("rows removed", *(f"{each.kind} radius" for each in self.reaches))]
        tried = [dict(reach.tried) for reach in self.reaches]
        for count in round_counts(self.n_samples - 1):
            found = [radii.get(count) for radii in tried]
            if any(radius is not None for radius in found):
                lines.append((str(count), *map(_figure, found)))
        return _aligned(lines)

    def _scores(self) -> str:
        lines = [("sigma", self.metric, "lowest", "loss", "typical fit", "worst fit")]
        for each in (self.noise_free, *self.noised):
            scores = f"{each.score:.4f}", f"{each.lowest:.4f}", f"{each.loss:.4g}"
            counts = _figure(each.typical), _figure(each.worst)
            lines.append((f"{each.sigma:g}", *scores, *counts))
        return _aligned(lines)


def _label(reach: Reach) -> str:
    """Return the kind of removal in words."""
    return f"{reach.kind}: {WORDS[reach.order]}"


def _figure(value: float | None) -> str:
    """Return a number as the table shows it."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2e}" if isfinite(value) else "no bound"


def _aligned(lines: Sequence[tuple[str, ...]], *, last_is_text: bool = False) -> str:
    """Return lines of cells in columns, a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    final = len(widths) - 1

    def cell(i: int, text: str) -> str:
        left = i == 0 or (last_is_text and i == final)
        return text.ljust(widths[i]) if left else text.rjust(widths[i])

    drawn = ["  ".join(cell(i, text) for i, text in enumerate(line)) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [drawn[0], rule, *drawn[1:]])


def _draw_radii(axes: "Axes", report: PlanReport) -> None:
    """Draw radius by count for each kind, and what the contract allows."""
    for reach in report.reaches:
        finite = [pair for pair in reach.tried if isfinite(pair[1]) and pair[1] > 0.0]
        counts, radii = [n for n, _ in finite], [radius for _, radius in finite]
        colour, marker = STYLES[reach.kind]
        words = f"{_label(reach)}, {reach.without_rows} fit"
        axes.plot(counts, radii, color=colour, marker=marker, ms=3.5, label=words)
    axes.axhline(
        report.allowed, color="black", ls="--", label=f"allowed, {report.allowed:.3g}"
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rows removed",
        ylabel="radius: bound on the distance to retraining",
        title="Radius after removals, by the state alone",
    )
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)


def _draw_scores(axes: "Axes", report: PlanReport) -> None:
    """Draw score by sigma beside the noise-free score."""
    sigmas = [each.sigma for each in report.noised]
    means = [each.score for each in report.noised]
    lowest = [each.lowest for each in report.noised]
    axes.plot(sigmas, means, color="#0072B2", marker="o", label="mean of the draws")
    axes.fill_between(
        sigmas, lowest, means, alpha=0.2, lw=0.0, label="down to the lowest"
    )
    free = report.noise_free.score
    axes.axhline(free, color="black", ls="--", label="without noise")
    axes.axvline(report.budget.sigma, color="#D55E00", ls=":", label="the contract")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=report.metric,
        title=f"What noise costs: {report.metric} of a release",
    )
    if min(lowest) < LOWEST_R2:
        axes.set_ylim(bottom=LOWEST_R2)
    axes.legend(frameon=False, loc="lower left")
    axes.grid(alpha=0.25)


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
        ignored = capacity_by_privacy(known, len(rows), radius_budget=room, tau=tau)
    except (InvalidInput, Unsupported):
        return None, None
    if not objective.smooth or objective.scaling == "sum":
        return ignored, None
    figures = CapacityPlan(known, len(rows), size, budget.epsilon, budget.delta)
    sigma = budget.sigma
    return ignored, budget_risk_bound(figures, n_removed, radius=room, sigma=sigma)


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
