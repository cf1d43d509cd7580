# SPDX-License-Identifier: Apache-2.0
r"""Advice: which sigma to take, and what it does to the model and to its people.

Noise of any size keeps the same promise. What it buys is time, where the rows are kept:
the less noise, the more requests read them. Where they are not kept it buys requests
that can be answered at all. What it costs is accuracy, and decisions about everybody
else that change with each request. And it happens to hide a leaver's label from
somebody who kept the release before, which retraining would not.

``advise`` measures all of this on data that you give it, for sigmas from 1e-4 to 1.
With rows it recommends the smallest noise at an acceptable time, without them the
largest that does little harm. Give public or older data: a budget that was chosen from
the rows it protects depends on them, and no certificate covers that choice.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from ..exceptions import InvalidInput
from ..linear_model.base import Forgetful
from ..promise.budget import (
    SIGMA_WITH_ROWS,
    SIGMA_WITHOUT_ROWS,
    Budget,
    guess_of,
)
from ..promise.decisions import describe_share
from .trials import ORDERS, SigmaTrial, Trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The plot shows a loss of so many times what is accepted.
SHOWN_LOSS = 10.0
SIGMAS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# Nobody notices noise that changes no more than this beyond what changes anyway: a
# share of decisions, or what predictions move by in deviations of y.
UNNOTICED = {"accuracy": 0.005, "R2": 0.05, "D2": 0.05}


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """A recommended budget, and what each sigma does. Made by ``advise``.

    Attributes
    ----------
    budget
        The recommended budget.
    max_seconds, max_loss, requests
        What was asked for.
    rows_kept
        Whether the model keeps its rows.
    metric
        "accuracy", "R2", or "D2" (the share of the deviance that is explained): what a
        score is.
    noise_free, changed_anyway
        The score without noise, and what one request changes without it, because the
        model is another without those who left.
    boosted
        The score of gradient boosting on the same held-out rows; None where it does not
        take them.
    trials
        What each sigma does, the smallest first.
    uncertified
        The sigmas tried under which no fit can be certified.
    tried
        How many people really left for each sigma, at most.
    owner
        Whose rows a request removes: "row" or "person".
    """

    budget: Budget
    max_seconds: float
    max_loss: float
    requests: int
    rows_kept: bool
    metric: str
    noise_free: float
    changed_anyway: float
    trials: tuple[SigmaTrial, ...]
    uncertified: tuple[float, ...]
    tried: int
    owner: str
    boosted: float | None = None

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
    def default(self) -> float:
        """The sigma of a budget that names none."""
        return SIGMA_WITH_ROWS if self.rows_kept else SIGMA_WITHOUT_ROWS

    @property
    def chosen(self) -> SigmaTrial:
        """What the recommended sigma does."""
        sigma = self.budget.deviation
        return next(trial for trial in self.trials if trial.sigma == sigma)

    @property
    def guess(self) -> float:
        """How often it is guessed whether a release was retrained: Phi(mu/2)."""
        # All releases that the promise is about, together.
        return guess_of(self.budget.gdp * sqrt(self.budget.releases or 1))

    @property
    def may_leave(self) -> dict[str, int] | None:
        """How many may leave before an answer needs the rows: the range and the worst.

        No more than ``tried``, which is how many left. None where the rows are kept and
        each release is promised on its own: then an answer reads them, and that is all.
        """
        counts, worst = self.chosen.at_random, self.chosen.at_worst
        if counts is None or worst is None:
            return None
        return {
            "at_random_least": min(counts),
            "at_random_most": max(counts),
            "at_worst": worst,
        }

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why this sigma, and what it means."""
        n_releases = self.budget.releases
        seen = "a release" if n_releases is None else f"all {n_releases} releases"
        changed, anyway = (
            _say(self._show_change(share), about="about ")
            for share in (self.chosen.changed, self.changed_anyway)
        )
        guessed = _say(describe_share(self.chosen.label_guess))
        changes = f"changes {changed} of everybody else's decisions"
        if self.metric != "accuracy":
            changes = f"moves a prediction by {changed} deviations of y"
        return (
            self._explain(),
            f"A release {self._describe_loss()}. One request {changes}; without noise "
            f"it would be {anyway}, because the model is another.",
            self._describe_requests(),
            *self._describe_leaving(),
            "Whoever kept the release before and knows a leaver's features guesses "
            f"{self._label} from the two releases in {guessed} of cases, where chance "
            "is right in 50 %. Retraining without noise would tell it too; where it "
            "matters, answer several people at once.",
            *self._describe_boosting(),
            f"An attacker's best guess whether one person was removed, or the model "
            f"retrained without them, improves from 50 % to at most "
            f"{ceil(1000.0 * self.guess) / 10.0:g} % by looking at {seen}: this does "
            "not depend on sigma.",
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the figures rest on, in sentences."""
        sampled = f"; up to {self.tried} were tried" * (self.tried < self.requests)
        worst = (
            f"The worst order is the worst found: those {self._people} leave first "
            "that were measured to move the model most together. No search finds the "
            "worst of all.",
        )
        exact = (
            "It is about coefficients alone. Where sigma is a share of the targets' "
            "deviation, that deviation is public, exact, and without noise: two of "
            "them tell a single leaver's target by themselves.",
        )
        return (
            "The data you will fit are like these, and about as many.",
            f"Each request removes one {self.owner}, drawn at random{sampled}. People "
            "who have much in common, or much influence, need the rows sooner.",
            *(worst * (self.may_leave is not None)),
            "Times are processor time of this machine, releases included.",
            "Whoever guesses a label knows both releases, the leaver's features, the "
            "model's curvature and all other rows; two labels are as likely as each "
            "other. The figure is a mean over leavers: some are guessed more often.",
            *(exact * (self.metric != "accuracy")),
            "These are public or older data; keep the figures private if the data are. "
            "If you fit the model to these very rows, say so with "
            'declare_tuned("advise"): no certificate covers a budget that was chosen '
            "from its own rows.",
        )

    def table(self) -> str:
        """Return what each sigma does as text."""
        lines = self._cells()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, tuple("-" * width for width in widths))
        shown = (
            [line[0].ljust(widths[0])]
            + [cell.rjust(n) for cell, n in zip(line[1:-1], widths[1:-1], strict=True)]
            + [line[-1]]
            for line in lines
        )
        return "\n".join("  ".join(cells).rstrip() for cells in shown)

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return what the table has by sigma as a figure; save it at ``path``.

        Needs matplotlib: install the extra ``plots``.
        """
        counted = self.may_leave is not None
        figure = make_figure(20.0 if counted else 15.0, 4.6)
        score, changed, label, *leaving = figure.subplots(1, 4 if counted else 3)
        sigmas = [trial.sigma for trial in self.trials]
        what = "Decisions" if self.metric == "accuracy" else "Predictions"
        score.plot(sigmas, [t.score for t in self.trials], color=BLUE, marker="o")
        score.axhline(self.noise_free, color="black", ls="--", label="without noise")
        # What costs far more than you accept would flatten the rest.
        least = self.noise_free - SHOWN_LOSS * self.max_loss
        score.set(title=f"{self.metric} of a release", ylabel=self.metric)
        score.set(ylim=(max(min(t.score for t in self.trials), least), None))
        (show_shares if self.metric == "accuracy" else end_at_one)(score.yaxis)
        changed.plot(sigmas, [t.changed for t in self.trials], color=BLUE, marker="o")
        changed.set(title=f"{what} changed by one request", yscale="log")
        guesses = [t.label_guess for t in self.trials]
        label.plot(sigmas, guesses, color=BLUE, marker="o")
        label.set(title="A leaver's label, guessed right", ylim=(0.5, 1.0))
        show_shares(label.yaxis)
        for axes in leaving:
            counts = [t.at_random or (0,) for t in self.trials]
            few, many = [min(one) for one in counts], [max(one) for one in counts]
            axes.fill_between(sigmas, few, many, color=BLUE, alpha=0.2, lw=0.0)
            axes.plot(sigmas, few, color=BLUE, marker="o", label="random orders")
            worst = [t.at_worst or 0 for t in self.trials]
            axes.plot(sigmas, worst, color=GREEN, marker="v", label="worst order found")
            axes.set(title="How many may leave before rows are read", ylim=(0.0, None))
            axes.set(ylabel=self._people)
            show_counts(axes.yaxis)
        for axes in (score, changed, label, *leaving):
            axes.axvline(self.chosen.sigma, color=ORANGE, ls=":", label="recommended")
            axes.set(xscale="log", xlabel="sigma: standard deviation of the noise")
            axes.legend(edgecolor="none", framealpha=0.7)
            axes.grid(alpha=0.25)
        figure.suptitle(f"What noise costs and gives: {self.line}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def __str__(self) -> str:
        words, assumed = map(_list_sentences, (self.sentences, self.assumed))
        parts = [self.line, self.table(), words, f"Assumed:\n{assumed}"]
        return "\n\n".join(parts) + "\n"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return Card(
            self.line,
            " ".join(self.sentences),
            tables=(tuple(self._cells()),),
            folded=(("What this assumes", self.assumed),),
        ).to_html()

    def _cells(self) -> list[tuple[str, ...]]:
        counted = self.may_leave is not None
        heads = ["sigma", self.metric, "changed", "time"]
        if self.metric != "accuracy":
            heads[2] = "moved"
        heads += [f"looks of {self.requests}"] * self.rows_kept
        heads += ["leave, random", "leave, worst"] * counted
        lines = [(*heads, "label guessed", "")]
        none = ("-",) * (len(heads) - 3)
        free = f"{self.noise_free:.4f}", self._show_change(self.changed_anyway)
        lines.append(("0", *free, *none, "100 %", "no promise"))
        for sigma in self.uncertified:
            lines.append((f"{sigma:g}", *"---", *none, "cannot be certified"))
        for trial in self.trials:
            cells = [
                f"{trial.sigma:g}",
                f"{trial.score:.4f}",
                self._show_change(trial.changed),
                _show_time(trial.seconds),
            ]
            if self.rows_kept:
                cells.append(str(trial.looks))
            if trial.at_random is not None:
                least, most = min(trial.at_random), max(trial.at_random)
                cells.append(f"{least}-{most}" if least < most else f"{most}")
                cells.append(str(trial.at_worst))
            marks = ["recommended"] * (trial.sigma == self.budget.deviation)
            marks += ["default"] * (trial.sigma == self.default)
            cells.append(describe_share(trial.label_guess))
            lines.append((*cells, ", ".join(marks)))
        return lines

    def _show_change(self, changed: float) -> str:
        return (
            describe_share(changed) if self.metric == "accuracy" else f"{changed:.2g}"
        )

    @property
    def _people(self) -> str:
        return "rows" if self.owner == "row" else "people"

    @property
    def _label(self) -> str:
        if self.metric == "accuracy":
            return "their label"
        return "which of two targets, one deviation apart, was theirs,"

    def _explain(self) -> str:
        """Say in a sentence why this sigma was chosen."""
        sigma, least = f"{self.chosen.sigma:g}", self.trials[0].sigma
        if not self.rows_kept:
            return (
                f"Why {sigma}? The rows are not kept, so noise alone hides how far an "
                "answer is from retraining: it is the largest tried that costs no more "
                f"than {self.max_loss:g} of {self.metric}."
            )
        why = (
            f"Why {sigma}? The rows are kept, so more noise would buy nothing but "
            "time: it is the smallest tried whose requests take at most "
            f"{self.max_seconds:g} s on average"
        )
        if self.chosen.sigma == self.default and least < self.default:
            return f"{why}; less would make no difference that anyone sees."
        if self.chosen.sigma < self.default:
            return f"{why} and change hardly anything."
        return f"{why}."

    def _describe_loss(self) -> str:
        accuracy = self.metric == "accuracy"
        times, unit = (100.0, "points") if accuracy else (1000.0, "thousandths")
        free = (
            f"{100.0 * self.noise_free:.1f} %" if accuracy else f"{self.noise_free:.3f}"
        )
        lost = times * (self.noise_free - self.chosen.score)
        shown = f"about {lost:.2g}" if lost >= 0.01 else "less than 0.01"
        return f"loses {shown} {unit} of {self.metric}, of {free} without noise"

    def _describe_boosting(self) -> tuple[str, ...]:
        """Say how far this kind of model is from gradient boosting."""
        if self.boosted is None:
            return ()
        ours, theirs = (
            f"{100.0 * one:.1f} %" if self.metric == "accuracy" else f"{one:.3f}"
            for one in (self.noise_free, self.boosted)
        )
        return (
            f"Gradient boosting (scikit-learn's, which cannot forget) reaches {theirs} "
            f"on the same held-out rows, where this model reaches {ours}.",
        )

    def _describe_requests(self) -> str:
        taken = f"A request takes about {_show_time(self.chosen.seconds)}"
        if not self.rows_kept:
            return f"{taken}, where it can be answered."
        return (
            f"{taken} on average; about {self.chosen.looks} of {self.requests} read "
            "the remaining rows again."
        )

    def _describe_leaving(self) -> tuple[str, ...]:
        if self.may_leave is None:
            return ()
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
                f"In the worst order found it was {worst}.",
            )
        worse = f"In the worst order found {worst} left {look}"
        if worst == self.tried:
            worse = "The same holds for the worst order found."
        return (
            f"In {ORDERS} random orders all {most} {self._people} that were tried "
            f"left, and no answer had to read the remaining rows. {worse}",
        )


def advise(
    X: Any,
    y: ArrayLike,
    estimator: Forgetful,
    *,
    subjects: Iterable[object] | None = None,
    sample_weight: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    max_seconds: float = 1.0,
    max_loss: float = 0.01,
    requests: int = 1000,
    verbose: bool = False,
    **promise: Any,
) -> Advice:
    """Say which sigma to take, and what each sigma does to a model like yours.

    Parameters
    ----------
    X, y
        Public or older data of the kind that the model will be fitted to: what the
        estimator's ``fit`` takes, texts or times and events among it.
    estimator
        The estimator you want to fit; it stays as it is. Its ``keep_data`` says whether
        the rows are kept.
    subjects
        The owner of each row. Without it every request removes one row.
    sample_weight, exposure, offset
        As the estimator's ``fit`` takes them. R2 and D2 count rows by their weights.
    max_seconds
        How much processor time a request may take on average, where rows are kept.
    max_loss
        How much of the score the noise may cost where they are not: 0.01 is one point
        of accuracy, or 0.01 of R2 or D2.
    requests
        How many requests you expect before you fit the model again.
    verbose
        Whether to draw a progress bar where nobody seems to watch.
    promise
        What to promise: epsilon, delta, releases, and what else ``Budget`` takes but
        sigma. What is not given is that of the estimator's budget, if it has one, and
        its sigma is tried too; otherwise that of ``Budget()``.
    """
    for name, value in (("max_seconds", max_seconds), ("max_loss", max_loss)):
        if not value > 0.0:
            raise InvalidInput(f"{name}={value!r}; give a positive number")
    if not (isinstance(requests, Integral) and requests >= 1):
        raise InvalidInput(f"requests={requests!r}; give a positive integer")
    trials = Trials.of(
        estimator,
        X,
        y,
        subjects=subjects,
        requests=int(requests),
        sample_weight=sample_weight,
        exposure=exposure,
        offset=offset,
    )
    own = estimator.get_params(deep=False).get("budget")
    template = make_template(own, promise)
    if template.releases is not None and template.releases <= requests:
        raise InvalidInput(
            f"releases={template.releases} are too few for requests={requests}, each "
            f"of which makes one; plan releases={requests + 1}, or expect fewer"
        )
    stated = None if own is None else own.sigma
    sigmas = sorted({*SIGMAS} if stated is None else {*SIGMAS, stated})
    with ProgressBar(
        "advising", trials.n_steps(sigmas), shown=verbose or is_watched()
    ) as bar:
        free, found = trials.run(
            [replace(template, sigma=sigma) for sigma in sigmas], bar.count
        )
    kept = trials.keeps_rows
    sigma = choose_sigma(
        found,
        rows_kept=kept,
        max_seconds=max_seconds,
        lowest=free.score - max_loss,
        unnoticed=free.changed + UNNOTICED[trials.metric],
    )
    return Advice(
        budget=replace(template, sigma=sigma),
        max_seconds=max_seconds,
        max_loss=max_loss,
        requests=int(requests),
        rows_kept=kept,
        metric=trials.metric,
        noise_free=free.score,
        changed_anyway=free.changed,
        trials=tuple(found),
        uncertified=tuple(sigmas[: len(sigmas) - len(found)]),
        tried=trials.n_leaving,
        owner="row" if subjects is None else "person",
        boosted=trials.boost(),
    )


def make_template(own: Budget | None, promise: Mapping[str, Any]) -> Budget:
    """Return what to promise, as a budget whose sigma is still to be chosen."""
    if "sigma" in promise:
        raise InvalidInput(f"sigma={promise['sigma']!r}; leave it out: advise finds it")
    return replace(own or Budget(), **promise)


def choose_sigma(
    trials: Sequence[SigmaTrial],
    *,
    rows_kept: bool,
    max_seconds: float,
    lowest: float,
    unnoticed: float,
) -> float:
    """Return the sigma to take.

    Parameters
    ----------
    trials
        What each sigma does, the smallest first.
    rows_kept, max_seconds
        If rows are kept: the smallest sigma whose requests take no longer, but none
        below the default unless the default would be noticed.
    lowest
        Otherwise: the largest sigma whose score is no lower.
    unnoticed
        How much may change unnoticed.
    """
    if not rows_kept:
        accepted = [trial.sigma for trial in trials if trial.score >= lowest]
        if not accepted:
            raise InvalidInput(
                f"even sigma={trials[0].sigma:g}, the smallest that can be certified, "
                "costs more than max_loss; accept more, keep the rows "
                "(keep_data=True), or raise alpha"
            )
        return max(accepted)
    quick = [trial for trial in trials if trial.seconds <= max_seconds]
    if not quick:
        fastest = min(trials, key=lambda trial: trial.seconds)
        raise InvalidInput(
            f"max_seconds={max_seconds:g}: a request takes {fastest.seconds:.2g} s of "
            f"processor time under sigma={fastest.sigma:g}, the quickest tried; accept "
            "as much"
        )
    larger = [trial for trial in quick if trial.sigma >= SIGMA_WITH_ROWS]
    if larger and larger[0].changed <= unnoticed:
        return larger[0].sigma
    calm = [trial.sigma for trial in quick if trial.changed <= unnoticed]
    return max(calm) if calm else quick[0].sigma


def _say(shown: str, *, about: str = "") -> str:
    """Return a share in words, where it is known from one side alone."""
    words = {"<": "less than", ">": "more than"}
    return words[shown[0]] + shown[1:] if shown[0] in words else about + shown


def _show_time(seconds: float) -> str:
    """Return a time with two digits."""
    value, unit = (seconds, "s") if seconds >= 1.0 else (1000.0 * seconds, "ms")
    return f"{value:.1f} {unit}" if value < 10.0 else f"{value:.0f} {unit}"


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
