# SPDX-License-Identifier: Apache-2.0
"""Telling apart: how well known and unknown people differ in what was observed.

The measure is the area under the ROC curve (AUC): the chance that a feature orders a
known and an unknown person rightly, 0.5 for a coin. Its limit is by DeLong (1988).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

LEVEL = 0.999
LIMIT = 0.55
ALL = "all of it, by boosted trees"


class Separation(NamedTuple):
    """How well something tells: the AUC, at least 0.5, and its standard error."""

    feature: str
    auc: float
    error: float

    @property
    def limit(self) -> float:
        """The upper limit of the AUC."""
        return float(self.auc + norm.ppf(LEVEL) * self.error)

    @property
    def surprise(self) -> float:
        """The chance that a feature that tells nothing seems to tell as much."""
        if not self.error:
            return float(self.auc == 0.5)
        return float(2 * norm.sf((self.auc - 0.5) / self.error))

    def __str__(self) -> str:
        name = f"{self.feature:36} AUC {self.auc:.3f}"
        return f"{name}, at most {self.limit:.3f} (p = {self.surprise:.2g})"


def is_telling(found: Sequence[Separation]) -> bool:
    """Return whether known people can be told, by all features or by one.

    For all together chance must be shown: the limit is small. One feature of many may
    have been seen too seldom for that; it must not tell more than chance explains.
    """
    together, *each = found
    least = min((one.surprise for one in each), default=1.0)
    return together.limit >= LIMIT or least < (1 - LEVEL) / len(each)


def separate(feature: str, values: Any, *, known: Any, groups: Any) -> Separation:
    """Return how well the order of values tells who is known, within groups.

    NaN was not seen. The AUC is the mean over groups, weighted by their sizes.
    """
    every = np.asarray(values, float)
    seen = np.isfinite(every)
    parts = []
    for group in np.unique(groups):
        some = seen & (np.asarray(groups) == group)
        if min(np.bincount(known[some], minlength=2)) > 1:
            parts.append((some.sum(), *measure_auc(every[some], known[some])))
    if not parts:
        return Separation(feature, 0.5, 0.0)
    weights, areas, errors = map(np.asarray, zip(*parts, strict=True))
    weights = weights / weights.sum()
    auc, error = weights @ areas, np.sqrt(weights**2 @ errors**2)
    return Separation(feature, float(max(auc, 1 - auc)), float(error))


def measure_auc(values: Any, known: Any) -> tuple[float, float]:
    """Return the AUC and its standard error, by ranks with ties in the middle."""
    yes, no = values[known], values[~known]
    n_yes, n_no = len(yes), len(no)
    ranks = rankdata(np.concatenate([yes, no]))
    # For each one the share of the other group that lies below it.
    below_yes = (ranks[:n_yes] - rankdata(yes)) / n_no
    below_no = (ranks[n_yes:] - rankdata(no)) / n_yes
    variance = below_yes.var(ddof=1) / n_yes + below_no.var(ddof=1) / n_no
    return float(below_yes.mean()), float(np.sqrt(variance))


def separate_all(
    features: Mapping[str, Sequence[float]],
    known: Sequence[bool],
    *,
    groups: Sequence[float],
) -> list[Separation]:
    """Return how well all features together tell, and then each, worst first."""
    labels = np.asarray(known, bool)
    each = [
        separate(name, values, known=labels, groups=groups)
        for name, values in features.items()
    ]
    X = np.column_stack(
        [np.asarray(one, float) for one in (*features.values(), groups)]
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    guesses = cross_val_predict(model, X, labels, cv=folds, method="predict_proba")
    whole = np.zeros(len(labels))
    together = separate(ALL, guesses[:, 1], known=labels, groups=whole)
    return [together, *sorted(each, key=lambda one: one.surprise)]
