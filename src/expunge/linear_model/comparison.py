# SPDX-License-Identifier: Apache-2.0
"""Compare two releases on rows of your own: how good the model was, and how good it is.

Only what was released is looked at, so anybody who holds both releases can do it. Each
release has fresh noise: two releases of the same people differ as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score

from ..display.cards import Card, Cells
from ..display.plots import BLUE, ORANGE, make_figure, show_shares, write_plainly
from ..exceptions import InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metric: TypeAlias = Literal["accuracy", "R2"]

EVERYTHING = "all rows"
NOTES = (
    "A release has fresh noise each time: small differences come from it, and tell "
    "nothing about the people who left.",
    "Rows that the model was fitted on flatter it, and their score depends on whose "
    "rows they are: score rows that were never fitted.",
    "Accuracy tells how useful a release is, not whether people were forgotten: its "
    "certificate is about that.",
)
# Below this an R2 is as bad as any.
LOWEST_R2 = -1.0
# More bars than this are not readable; the table has them all.
MOST_BARS = 20


@dataclass(frozen=True, slots=True)
class ScorePair:
    """The score of two releases on the same rows.

    Attributes
    ----------
    name
        All rows, a class, or a target.
    n_rows
        How many rows were scored.
    before, after
        Accuracy or R2 of the two releases.
    """

    name: str
    n_rows: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseComparison:
    """How good two releases are on the same rows.

    Attributes
    ----------
    metric
        "accuracy" or "R2".
    pairs
        All rows first, then each class or target if there are several.
    n_changed
        How many rows are predicted differently; None for a regression.
    """

    metric: Metric
    pairs: tuple[ScorePair, ...]
    n_changed: int | None

    @property
    def before(self) -> float:
        """The score of the first release on all rows."""
        return self.pairs[0].before

    @property
    def after(self) -> float:
        """The score of the second release on all rows."""
        return self.pairs[0].after

    def __repr__(self) -> str:
        scores = f"{self._format(self.before)} before, {self._format(self.after)} after"
        text = f"{self.metric} {scores}, on {self.pairs[0].n_rows} rows"
        if self.n_changed is None:
            return text
        return f"{text}; {self.n_changed} of them are predicted differently"

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return the scores as bars, before beside after; save them at ``path``.

        Needs matplotlib: install the extra ``plots``.
        """
        shown = self.pairs[:MOST_BARS]
        figure = make_figure(6.0, 1.4 + 0.5 * len(shown))
        axes = figure.subplots()
        places = np.arange(len(shown))
        for shift, word, colour in ((-0.19, "before", BLUE), (0.19, "after", ORANGE)):
            scores = [max(getattr(pair, word), LOWEST_R2) for pair in shown]
            axes.barh(places + shift, scores, height=0.36, color=colour, label=word)
        names = [write_plainly(pair.name) for pair in shown]
        axes.set_yticks(places, labels=names)
        axes.invert_yaxis()
        axes.set(xlabel=self.metric, xlim=(min(0.0, axes.get_xlim()[0]), 1.0))
        if self.metric == "accuracy":
            show_shares(axes.xaxis)
        axes.set_axisbelow(True)
        axes.grid(axis="x", alpha=0.25)
        figure.legend(frameon=False, loc="outside upper right", ncols=2)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        text = repr(self)
        return Card(
            "Before and after",
            f"{text[0].upper()}{text[1:]}.",
            tables=(self._lines(),),
            folded=(("What this does not say", NOTES),),
        ).to_html()

    def _lines(self) -> Cells:
        lines = [("", "rows", "before", "after", "change")]
        for pair in self.pairs:
            scores = self._format(pair.before), self._format(pair.after)
            change = pair.after - pair.before
            shown = f"{change:+.4f}"
            if self.metric == "accuracy":
                shown = f"{100.0 * change:+.1f} points"
            lines.append((pair.name, str(pair.n_rows), *scores, shown))
        return tuple(lines)

    def _format(self, score: float) -> str:
        if self.metric == "accuracy":
            return f"{100.0 * score:.1f} %"
        return f"{score:.4f}"


def compare_releases(before: Any, after: Any, X: Any, y: Any) -> ReleaseComparison:
    """Return how good two releases are on rows that you hand over.

    Parameters
    ----------
    before, after
        Two fitted models of the same kind: estimators, copies of them (a copy has the
        release alone, so ``copy.deepcopy(model)`` keeps the one before a request),
        models read from shipped files, or plain ones from ``to_sklearn``.
    X, y
        Rows to score, with their labels or targets; best those never fitted.
    """
    kinds = is_classifier(before), is_classifier(after)
    if kinds[0] != kinds[1]:
        raise InvalidInput(
            f"{type(before).__name__} and {type(after).__name__}: one predicts classes "
            "and the other does not; compare two releases of one model"
        )
    wanted = np.asarray(y)
    if len(wanted) < 2:
        raise InvalidInput(f"y has {len(wanted)} rows; pass two or more to score")
    predicted = np.asarray(before.predict(X)), np.asarray(after.predict(X))
    if not kinds[0]:
        return ReleaseComparison("R2", tuple(_score_targets(wanted, predicted)), None)
    n_changed = int(np.sum(predicted[0] != predicted[1]))
    return ReleaseComparison(
        "accuracy", tuple(_score_classes(wanted, predicted)), n_changed
    )


def _score_classes(wanted: Any, predicted: tuple[Any, Any]) -> Iterator[ScorePair]:
    """Yield the accuracy on all rows, and on the rows of each class."""
    scores = (float(accuracy_score(wanted, found)) for found in predicted)
    yield ScorePair(EVERYTHING, len(wanted), *scores)
    for label in np.unique(wanted):
        here = wanted == label
        shares = (float(np.mean(found[here] == label)) for found in predicted)
        yield ScorePair(str(label), int(np.sum(here)), *shares)


def _score_targets(wanted: Any, predicted: tuple[Any, Any]) -> Iterator[ScorePair]:
    """Yield the mean R2, and that of each target if there are several."""
    scores = (float(r2_score(wanted, found)) for found in predicted)
    yield ScorePair(EVERYTHING, len(wanted), *scores)
    for i in range(wanted.shape[1] if wanted.ndim > 1 else 0):
        parts = (float(r2_score(wanted[:, i], found[:, i])) for found in predicted)
        yield ScorePair(f"target {i}", len(wanted), *parts)
