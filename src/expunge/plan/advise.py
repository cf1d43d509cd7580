# SPDX-License-Identifier: Apache-2.0
r"""Advice: which sigma to take, and how many people may leave.

More noise costs accuracy, and lets more people leave before an answer has to read the
remaining rows; a model that keeps none must refuse there. ``suggest_budget`` tries a
grid of sigmas on data that you give it, and recommends the largest whose loss of score
you accept. What an attacker may guess follows from the budget alone: Phi(mu/2),
``promise.budget.guess_of`` of the mu that it promises.

Give public or older data. A budget that was chosen from the rows it protects depends on
them, and no certificate covers that choice.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import ceil, sqrt
from numbers import Integral
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ..display.cards import Card
from ..display.plots import (
    BLUE,
    GREEN,
    ORANGE,
    end_at_one,
    make_figure,
    show_counts,
    show_shares,
)
from ..display.progress import ProgressBar, is_watched
from ..exceptions import InvalidInput, NotCertifiable
from ..linear_model.base import Forgetful
from ..promise.budget import Budget, guess_of
from ..promise.scope import TWO_RELEASES
from .trials import DRAWS, ORDERS, SigmaTrial, Trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The plot shows a loss of so many times what is accepted.
SHOWN_LOSS = 10.0
SIGMAS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommended budget, and what it means in figures. Made by ``suggest_budget``.

    Attributes
    ----------
    budget
        The recommended budget.
    max_loss, requests
        What was asked for.
    metric
        "accuracy" or "R2": what a score is.
    noise_free
        The score without noise.
    trials
        What each sigma does, the smallest first.
    tried
        How many people really left for each sigma, at most.
    owner
        Whose rows a request removes: "row" or "person".
    """

    budget: Budget
    max_loss: float
    requests: int
    metric: str
    noise_free: float
    trials: tuple[SigmaTrial, ...]
    tried: int
    owner: str

    @property
    def line(self) -> str:
        """The budget as a line of code."""
        plain = Budget()
        stated = [
            f"{setting.name}={getattr(self.budget, setting.name)!r}"
            for setting in fields(Budget)
            if setting.name in ("epsilon", "delta", "sigma")
            or getattr(self.budget, setting.name) != getattr(plain, setting.name)
        ]
        return f"Budget({', '.join(stated)})"

    @property
    def guess(self) -> float:
        """How often an attacker's best guess is right: Phi(mu/2)."""
        # All releases that the promise is about, together.
        return guess_of(self.budget.gdp * sqrt(self.budget.releases or 1))

    @property
    def chosen(self) -> SigmaTrial:
        """What the recommended sigma does."""
        return next(trial for trial in self.trials if trial.sigma == self.budget.sigma)

    @property
    def may_leave(self) -> dict[str, int]:
        """How many may leave before an answer needs the rows: the range and the worst.

        No more than ``tried``, which is how many left.
        """
        counts = self.chosen.at_random
        return {
            "at_random_least": min(counts),
            "at_random_most": max(counts),
            "at_worst": self.chosen.at_worst,
        }

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the budget means, in words: which sigma, and how many may leave."""
        chosen = self.chosen
        n_releases = self.budget.releases
        seen = "a release" if n_releases is None else f"all {n_releases} releases"
        return (
            f"Which sigma? {self.budget.sigma:g}, the largest tried that loses no more "
            f"than you accept: the released model {self._describe_loss()}.",
            f"How many may leave? {self._describe_leaving()}",
            f"About {chosen.without_look} of {self.requests} single requests are "
            "answered without reading the rows again; the others read them, and are "
            "answered too if the model keeps its rows.",
            f"An attacker's best guess whether one person was removed, or the model "
            f"retrained without them, improves from 50 % to at most "
            f"{ceil(1000.0 * self.guess) / 10.0:g} % by looking at {seen}.",
            f"None of this is about {TWO_RELEASES}. Where that matters, let several "
            "people leave with one release.",
            *self._describe_smaller(),
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the figures rest on, in sentences."""
        sampled = f"; up to {self.tried} were tried" * (self.tried < self.requests)
        return (
            "The data you will fit are like these, and about as many.",
            f"Each request removes one {self.owner}, drawn at random{sampled}. People "
            "who have much in common, or much influence, need the rows sooner.",
            f"The worst order is the worst found: those {self._people} leave first "
            "that were measured to move the model most together. No search finds the "
            "worst of all.",
            "The attacker knows everything but the noise: Phi(mu/2) of the Gaussian, "
            "with the mu that the budget promises, no matter who leaves.",
            "These are public or older data; keep the figures private if the data are. "
            "If you fit the model to these very rows, say so with "
            'declare_tuned("suggest_budget"): no certificate covers a budget that was '
            "chosen from its own rows.",
        )

    def table(self) -> str:
        """Return score and requests by sigma as text."""
        lines = self._cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, tuple("-" * width for width in widths))
        shown = (
            [line[0].ljust(widths[0])]
            + [cell.rjust(n) for cell, n in zip(line[1:-1], widths[1:-1], strict=True)]
            + [line[-1]]
            for line in lines
        )
        return "\n".join(map("  ".join, shown))

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return the three figures by sigma as a figure; save it at ``path``.

        Needs matplotlib: install the extra ``plots``.
        """
        figure = make_figure(15.0, 4.6)
        left, middle, right = figure.subplots(1, 3)
        _draw_scores(left, self)
        _draw_leaving(middle, self)
        _draw_requests(right, self)
        figure.suptitle(f"What noise costs and gives: {self.line}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def __str__(self) -> str:
        words, assumed = map(_list_sentences, (self.sentences, self.assumed))
        parts = [self.line, words, self.table(), f"Assumed:\n{assumed}"]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        return Card(
            self.line,
            " ".join(self.sentences),
            tables=(tuple(self._cells()),),
            folded=(("What this assumes", self.assumed),),
        ).to_html()

    def _cells(self) -> list[tuple[str, ...]]:
        free = f"{self.noise_free:.4f}"
        lines: list[tuple[str, ...]] = [
            (
                *("sigma", self.metric, "lowest", "loss"),
                *("leave, random", "leave, worst", "requests without a look"),
            ),
            ("0", free, free, "0.0000", "-", "-", "no noise, no promise"),
        ]
        tried = {trial.sigma: trial for trial in self.trials}
        for sigma in sorted({*SIGMAS, *tried}):
            shown: tuple[str, ...] = ("-",) * 5 + ("cannot be certified",)
            if trial := tried.get(sigma):
                figures = trial.score, trial.lowest, self.noise_free - trial.score
                counts = sorted({min(trial.at_random), max(trial.at_random)})
                mark = ", recommended" * (sigma == self.budget.sigma)
                shown = (
                    *(f"{figure:.4f}" for figure in figures),
                    "-".join(map(str, counts)),
                    str(trial.at_worst),
                    f"{trial.without_look} of {self.requests}{mark}",
                )
            lines.append((f"{sigma:g}", *shown))
        return lines

    @property
    def _people(self) -> str:
        return "rows" if self.owner == "row" else "people"

    def _describe_loss(self) -> str:
        accuracy = self.metric == "accuracy"
        times, unit = (100.0, "points") if accuracy else (1000.0, "thousandths")
        free = (
            f"{100.0 * self.noise_free:.1f} %" if accuracy else f"{self.noise_free:.3f}"
        )
        lost, most = (
            f"{times * loss:.1f}" if times * loss >= 0.05 else "less than 0.1"
            for loss in (
                self.noise_free - self.chosen.score,
                self.noise_free - self.chosen.lowest,
            )
        )
        return (
            f"loses about {lost} {unit} of {self.metric}, of {free} without noise "
            f"({most} in the worst of {DRAWS} tries)"
        )

    def _describe_leaving(self) -> str:
        least, most, worst = self.may_leave.values()
        look = (
            "before an answer had to read the remaining rows, where a model that keeps "
            "no rows must refuse."
        )
        if least < self.tried:
            counts = f"between {least} and {most}" if least < most else f"{most}"
            more = " (all that were tried)" * (most == self.tried)
            return (
                f"In {ORDERS} random orders {counts}{more} {self._people} left {look} "
                f"In the worst order found it was {worst}."
            )
        worse = f"In the worst order found {worst} left {look}"
        if worst == self.tried:
            worse = "The same holds for the worst order found."
        return (
            f"In {ORDERS} random orders all {most} {self._people} that were tried "
            f"left, and no answer had to read the remaining rows. {worse}"
        )

    def _describe_smaller(self) -> tuple[str, ...]:
        """Say if less noise would answer as many, and let as many leave at random."""
        chosen = self.chosen
        least = next(
            trial
            for trial in self.trials
            if trial.without_look == chosen.without_look
            and trial.at_random == chosen.at_random
        )
        if least.sigma == self.budget.sigma:
            return ()
        return (
            f"sigma={least.sigma:g} answers as many with less noise (in the worst "
            f"order {least.at_worst} may leave).",
        )


def suggest_budget(
    X: Any,
    y: ArrayLike,
    estimator: Forgetful,
    *,
    subjects: Iterable[object] | None = None,
    max_loss: float = 0.01,
    requests: int = 1000,
    **promise: Any,
) -> Advice:
    """Return the budget with the most noise whose loss of score you accept.

    It also says, for each sigma tried, how many people may leave before an answer has
    to read the remaining rows.

    Parameters
    ----------
    X, y
        Public or older data of the kind that the model will be fitted to.
    estimator
        The estimator you want to fit; it stays as it is.
    subjects
        The owner of each row. Without it every request removes one row.
    max_loss
        How much of the score the noise may cost: 0.01 is one point of accuracy, or
        0.01 of R2.
    requests
        How many requests you expect before you fit the model again.
    promise
        What to promise: epsilon, delta, releases, and what else ``Budget`` takes but
        sigma. What is not given is that of the estimator's budget, if it has one, and
        its sigma is tried too; otherwise epsilon is 1 and delta 1e-5.
    """
    if not max_loss > 0.0:
        raise InvalidInput(
            f"max_loss={max_loss!r}; give a positive number, such as 0.01"
        )
    if not (isinstance(requests, Integral) and requests >= 1):
        raise InvalidInput(f"requests={requests!r}; give a positive integer")
    trials = Trials.of(estimator, X, y, subjects=subjects, requests=requests)
    template = make_template(estimator, promise)
    if template.releases is not None and template.releases <= requests:
        raise InvalidInput(
            f"releases={template.releases} are too few for requests={requests}, each "
            f"of which makes one; plan releases={requests + 1}, or expect fewer"
        )
    own = estimator.get_params(deep=False).get("budget")
    stated = None if own is None else own.sigma
    sigmas = sorted({*SIGMAS} if stated is None else {*SIGMAS, stated})
    found: list[SigmaTrial] = []
    with ProgressBar("trying sigmas", len(sigmas) + 2, shown=is_watched()) as bar:
        free = float(trials.score_releases(None).mean())
        bar.count()
        # What this cannot certify, no smaller one can.
        worst = trials.find_worst_order(replace(template, sigma=sigmas[-1]))
        bar.count()
        for sigma in sigmas:
            budget = replace(template, sigma=sigma)
            before = found[-1] if found else None
            with suppress(NotCertifiable):
                found.append(trials.try_budget(budget, worst, before=before))
            bar.count()
    return Advice(
        budget=replace(template, sigma=choose_sigma(found, free, max_loss=max_loss)),
        max_loss=max_loss,
        requests=requests,
        metric=trials.metric,
        noise_free=free,
        trials=tuple(found),
        tried=trials.n_leaving,
        owner="row" if subjects is None else "person",
    )


def choose_sigma(
    trials: Sequence[SigmaTrial], noise_free: float, *, max_loss: float
) -> float:
    """Return the largest sigma whose loss is accepted."""
    accepted = [trial.sigma for trial in trials if noise_free - trial.score <= max_loss]
    if not accepted:
        least = trials[0]
        raise InvalidInput(
            f"max_loss={max_loss:g}, but sigma={least.sigma:g}, the smallest that can "
            f"be certified, costs {noise_free - least.score:.2g}; accept more, or "
            "scale the columns to similar ranges"
        )
    return max(accepted)


def make_template(estimator: Forgetful, promise: Mapping[str, Any]) -> Budget:
    """Return what to promise, as a budget whose sigma is still to be chosen."""
    if "sigma" in promise:
        raise InvalidInput(
            f"sigma={promise['sigma']!r}; leave it out: suggest_budget finds it"
        )
    own: Budget | None = estimator.get_params(deep=False).get("budget")
    return replace(own or Budget(), **promise)


def _list_sentences(sentences: Iterable[str]) -> str:
    """Return sentences as a list; a number stays beside its sign."""
    lines = (
        fill(
            sentence.replace(" %", "_%"),
            80,
            initial_indent="- ",
            subsequent_indent="  ",
        )
        for sentence in sentences
    )
    return "\n".join(lines).replace("_%", " %")


def _draw_scores(axes: "Axes", advice: Advice) -> None:
    """Draw score by sigma, and how much of it may be lost."""
    sigmas = [trial.sigma for trial in advice.trials]
    means = [trial.score for trial in advice.trials]
    lowest = [trial.lowest for trial in advice.trials]
    axes.plot(sigmas, means, color=BLUE, marker="o", label="mean of the releases")
    axes.fill_between(
        sigmas, lowest, means, alpha=0.2, lw=0.0, label="down to the lowest"
    )
    free, allowed = advice.noise_free, advice.noise_free - advice.max_loss
    axes.axhline(free, color="black", ls="--", label="without noise")
    axes.axhline(allowed, color="black", ls=":", label="the loss you accept")
    axes.axvline(advice.budget.deviation, color=ORANGE, ls=":", label="recommended")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=advice.metric,
        title=f"What noise costs: {advice.metric} of a release",
        # What costs far more than you accept would flatten the rest.
        ylim=(max(min(lowest), allowed - SHOWN_LOSS * advice.max_loss), None),
    )
    (show_shares if advice.metric == "accuracy" else end_at_one)(axes.yaxis)
    axes.legend(frameon=False, loc="lower left")
    axes.grid(alpha=0.25)


def _draw_leaving(axes: "Axes", advice: Advice) -> None:
    """Draw how many may leave before an answer needs the rows, by sigma."""
    sigmas = [trial.sigma for trial in advice.trials]
    least = [min(trial.at_random) for trial in advice.trials]
    most = [max(trial.at_random) for trial in advice.trials]
    worst = [trial.at_worst for trial in advice.trials]
    axes.fill_between(
        sigmas, least, most, color=BLUE, alpha=0.2, lw=0.0, label="random orders"
    )
    axes.plot(sigmas, least, color=BLUE, marker="o", label="least of them")
    axes.plot(sigmas, worst, color=GREEN, marker="v", label="worst order found")
    axes.axhline(advice.tried, color="black", ls="--", label="all that were tried")
    axes.axvline(advice.budget.deviation, color=ORANGE, ls=":", label="recommended")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=advice._people,
        title=f"How many {advice._people} may leave before rows are read",
        ylim=(0.0, None),
    )
    show_counts(axes.yaxis)
    axes.legend(edgecolor="none", framealpha=0.7)
    axes.grid(alpha=0.25)


def _draw_requests(axes: "Axes", advice: Advice) -> None:
    """Draw the share of requests that need no look at the rows, by sigma."""
    sigmas = [trial.sigma for trial in advice.trials]
    shares = [trial.without_look / advice.requests for trial in advice.trials]
    axes.plot(sigmas, shares, color=BLUE, marker="o")
    axes.axvline(advice.budget.deviation, color=ORANGE, ls=":", label="recommended")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=f"share of {advice.requests} requests",
        title="Single requests answered without reading rows",
        ylim=(0.0, 1.0),
    )
    show_shares(axes.yaxis)
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.25)
