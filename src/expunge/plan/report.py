# SPDX-License-Identifier: Apache-2.0
r"""Plan: what a budget allows on given rows, before you commit to it.

    how many    rows can be removed before the radius no longer fits: at random, in a
                cluster, or in the hardest order found
    how good    the release is under the budget's noise, and under a tenth to ten times
                as much

Every count is a real removal through ``unlearn``, and few are needed (``removals``). A
report prints as a table of text, or as a plot if matplotlib is installed.

Which rows are hard to remove, and how good the model is, are facts about the rows. A
budget chosen from its own training rows was not fixed before the data was seen, hence
the warning: plan on public or held-out rows.
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
from ..core.objective import Objective, Rows
from ..core.sums import largest_norm
from ..exceptions import InvalidInput, Unsupported, needing
from ..private_model.model import PrivateModel
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
    ReleaseScore,
    RemovalLimit,
    RemovalSequence,
    find_limit,
    follow_order,
    labels_are_numbers,
    make_radius_test,
    removal_orders,
    round_counts,
    score_releases,
    score_without_noise,
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
WARNING = (
    "Planning looks at the rows: a budget chosen from its own training rows is not "
    "covered by any certificate. Choose it from public or held-out rows."
)
# Below this an R2 is as bad as any, and would flatten the rest of the plot.
LOWEST_R2 = -1.0
# Colours that stay apart for the colour-blind (Okabe and Ito).
STYLES: Mapping[Kind, tuple[str, str]] = {
    "typical": ("#0072B2", "o"),
    "worst": ("#D55E00", "v"),
    "clustered": ("#009E73", "s"),
}


class PlanningLooksAtData(UserWarning):
    """A plan was made on rows that nobody declared public or held out.

    Silence it with ``PlanOptions(public=True)`` where that is true, or with
    ``warnings.simplefilter("ignore", PlanningLooksAtData)``.
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
    progress
        Called with what is being tried, in words that hold no figures of the data.
    """

    public: bool = False
    scored_on: Rows | None = None
    factors: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    draws: int = 20
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for a plan without draws or sigmas."""
        if self.draws < 1 or not self.factors or not min(self.factors) > 0.0:
            raise InvalidInput(
                f"draws={self.draws}, factors={self.factors}; score at least one draw "
                "at one positive multiple of sigma"
            )


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport(Private):
    """What a budget allows on given rows. Only ``table`` and ``plot`` show it.

    Attributes
    ----------
    budget, mechanism
        The budget, and the mechanism's name.
    n_samples, n_parameters
        n rows and d parameters.
    allowed
        The largest radius that fits: the radius budget less tau.
    limits
        One for each kind of removal.
    metric
        "accuracy" or "R2": what ``score`` means.
    noise_free, noised
        Scores of the model without noise, and of releases by sigma.
    ignored
        How many requests the noise would hide if they were ignored, for any rows, from
        constants alone; None where constants give no bound.
    risk
        Bound on the expected excess risk of any release the budget accepts, up to the
        largest count without rows; None likewise.
    not_covered
        What these figures do not say, in sentences.
    """

    budget: Budget
    mechanism: str
    n_samples: int
    n_parameters: int
    allowed: float
    limits: tuple[RemovalLimit, ...]
    metric: str
    noise_free: ReleaseScore
    noised: tuple[ReleaseScore, ...]
    ignored: int | None
    risk: float | None
    not_covered: tuple[str, ...]

    def __repr__(self) -> str:
        return "PlanReport(private; table() shows it)"

    def table(self) -> str:
        """Return the report as text."""
        parts = [self._heading(), self._counts(), self._radii(), self._scores()]
        notes = "\n".join(
            fill(note, 80, initial_indent="- ", subsequent_indent="  ")
            for note in self.not_covered
        )
        return "\n\n".join([*parts, notes]) + "\n"

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return radius by count and score by sigma as a figure; save it at ``path``.

        Needs matplotlib: install the extra ``plots``.
        """
        with needing("plots", "a plot"):
            from matplotlib.figure import Figure
        figure = Figure(figsize=(11.0, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_radii(left, self)
        _draw_scores(right, self)
        figure.suptitle(f"What the budget allows: {self._terms()}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _terms(self) -> str:
        joint = self.budget.releases
        claim = "each release" if joint is None else f"{joint} releases jointly"
        return (
            f"{self.mechanism}, epsilon={self.budget.epsilon:g}, "
            f"delta={self.budget.delta:g}, sigma={self.budget.sigma:g}, {claim}"
        )

    def _heading(self) -> str:
        return (
            f"Plan: {self._terms()}\n"
            f"{self.n_samples} rows, {self.n_parameters} parameters; a radius up to "
            f"{self.allowed:.3g} fits"
        )

    def _counts(self) -> str:
        lines = [("rows that may go", "without rows", "with rows", "one more")]
        for limit in self.limits:
            counts = str(limit.without_rows), str(limit.with_rows)
            lines.append((_label(limit), *counts, limit.then))
        ignored = "no bound" if self.ignored is None else str(self.ignored)
        lines.append(("any, requests ignored", ignored, "", "by constants alone"))
        risk = "no bound" if self.risk is None else f"at most {self.risk:.3g}"
        return (
            f"{_align_columns(lines, last_is_text=True)}\n"
            "Without the remaining rows one more is refused, visibly. With them it is "
            "answered\nas stated, and counting starts again from there.\n"
            f"Expected excess risk until then, by constants alone: {risk}"
        )

    def _radii(self) -> str:
        lines = [("rows removed", *(f"{each.kind} radius" for each in self.limits))]
        tried = [dict(limit.tried) for limit in self.limits]
        for count in round_counts(self.n_samples - 1):
            found = [radii.get(count) for radii in tried]
            if any(radius is not None for radius in found):
                lines.append((str(count), *map(_figure, found)))
        return _align_columns(lines)

    def _scores(self) -> str:
        lines = [("sigma", self.metric, "lowest", "loss", "typical fit", "worst fit")]
        for each in (self.noise_free, *self.noised):
            scores = f"{each.score:.4f}", f"{each.lowest:.4f}", f"{each.loss:.4g}"
            counts = _figure(each.typical), _figure(each.worst)
            lines.append((f"{each.sigma:g}", *scores, *counts))
        return _align_columns(lines)


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
        Newton if not given. Mechanisms that look at the rows at each request are
        refused: for them there is nothing to plan.
    options
        How to plan.
    """
    options = PlanOptions() if options is None else options
    mechanism = Newton() if mechanism is None else mechanism
    if mechanism.needs_rows:
        raise Unsupported(
            f"{type(mechanism).__name__} looks at the remaining rows at every request, "
            "so its answers fit whatever is removed; plan for Newton or Jackknife"
        )
    if not options.public:
        warnings.warn(WARNING, PlanningLooksAtData, stacklevel=2)
    _tell(options, "fit on all rows")
    model = PrivateModel.fit(objective, rows, mechanism=mechanism, budget=budget)
    sequences = _follow_orders(model, rows, options=options)
    scored_on = rows if options.scored_on is None else options.scored_on
    noised = _score_sigmas(model, scored_on, sequences=sequences, options=options)
    accepts = make_radius_test(model, budget)
    assert accepts is not None  # or fit would have raised
    limits = tuple(find_limit(kind, sequences, accepts=accepts) for kind in KINDS)
    largest = max(limit.without_rows for limit in limits)
    ignored, risk = _bound_by_constants(model, rows, n_removed=largest)
    loss, theta = objective.loss, model.answer.draft.theta
    size = model.answer.draft.theta.size
    return PlanReport(
        budget=budget,
        mechanism=type(mechanism).__name__.lower(),
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
    )


def plan_model(model: PrivateModel, options: PlanOptions | None = None) -> PlanReport:
    """Return what the budget of a model allows on the rows that it keeps."""
    rows, budget = model.remaining_rows(), model.budget
    if rows is None or budget is None:
        raise InvalidInput(
            "a plan needs rows and a budget: set keep_data=True and budget=..., or "
            "call expunge.plan.plan with other rows"
        )
    return plan(
        model.objective_for(rows),
        rows,
        budget=budget,
        mechanism=model.agreement.mechanism,
        options=options,
    )


def _follow_orders(
    model: PrivateModel, rows: Rows, *, options: PlanOptions
) -> dict[str, RemovalSequence]:
    """Return one sequence of removals for each order."""
    _tell(options, "order the rows")
    orders = removal_orders(model, rows, seed=options.seed)
    return {
        name: follow_order(model, rows, order=order, tell=partial(_tell, options, name))
        for name, order in orders.items()
    }


def _score_sigmas(
    model: PrivateModel,
    rows: Rows,
    *,
    sequences: Mapping[str, RemovalSequence],
    options: PlanOptions,
) -> tuple[ReleaseScore, ...]:
    """Return scores and removals for multiples of the budget's sigma."""
    budget, theta = model.budget, model.answer.draft.theta
    assert budget is not None
    found = []
    for factor in sorted(options.factors):
        scaled = replace(budget, sigma=factor * budget.sigma)
        _tell(options, f"sigma {scaled.sigma:g}", f"{options.draws} releases drawn")
        score = score_releases(
            model.objective.loss,
            rows,
            theta=theta,
            budget=scaled,
            seeds=(options.seed, options.draws),
        )
        accepts = make_radius_test(model, scaled)
        if accepts is not None:
            counts = {
                name: sequence.without_rows(accepts)
                for name, sequence in sequences.items()
            }
            typical, worst = counts["typical"], min(counts.values())
            score = replace(score, typical=typical, worst=worst)
        found.append(score)
    return tuple(found)


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


def _tell(options: PlanOptions, *words: str) -> None:
    """Report what is being done, if anyone asked."""
    if options.progress is not None:
        options.progress(": ".join(words))


def _caveats(options: PlanOptions) -> tuple[str, ...]:
    """Return what the figures do not say."""
    declared = "The rows were declared public or held out: other rows will differ."
    own = (
        "Scores are on the planned rows; pass scored_on= for rows that were not fitted."
    )
    return (
        declared if options.public else WARNING,
        *(() if options.scored_on is not None else (own,)),
        "Counts belong to the orders tried. No search finds the worst rows of all, and "
        "a radius may rise and fall between the counts tried.",
        "A plan promises nothing. Each release is checked against the budget again.",
    )


def _label(limit: RemovalLimit) -> str:
    """Return the kind of removal in words."""
    return f"{limit.kind}: {WORDS[limit.order]}"


def _figure(value: float | None) -> str:
    """Return a number as the table shows it."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2e}" if isfinite(value) else "no bound"


def _align_columns(
    lines: Sequence[tuple[str, ...]], *, last_is_text: bool = False
) -> str:
    """Return lines of cells in columns, with a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    final = len(widths) - 1

    def cell(i: int, text: str) -> str:
        left = i == 0 or (last_is_text and i == final)
        return text.ljust(widths[i]) if left else text.rjust(widths[i])

    drawn = ["  ".join(cell(i, text) for i, text in enumerate(line)) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [drawn[0], rule, *drawn[1:]])


def _draw_radii(axes: "Axes", report: PlanReport) -> None:
    """Draw radius by count for each kind, and the largest radius that fits."""
    for limit in report.limits:
        finite = [pair for pair in limit.tried if isfinite(pair[1]) and pair[1] > 0.0]
        counts, radii = [n for n, _ in finite], [radius for _, radius in finite]
        colour, marker = STYLES[limit.kind]
        words = f"{_label(limit)}, {limit.without_rows} fit"
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
    axes.axvline(report.budget.sigma, color="#D55E00", ls=":", label="the budget")
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
