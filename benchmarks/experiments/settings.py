# SPDX-License-Identifier: Apache-2.0
"""The settings of the experiments: data, model, and how many rows leave.

mnist     digits 3 and 8, rows of unit norm, no intercept, L2
warfarin  a dose above 30 mg a week, L1 with a ridge of 1e-4; encoded by
          ``data.encode_warfarin``, a fifth of the patients for testing. The flags of
          one column sum to one: no intercept is needed, and without the ridge the
          Hessian has no inverse and there is no jackknife
svhn-*    digits 3 and 8 on street signs, L2 on features of unit norm: "dp" and
          "untrained" are a small network's, "histogram" and "scattering" are fixed
adult     an income above 50K, rows of unit norm, no intercept, L2
digits    3 and 8 of the small digits that come with scikit-learn, L2: for those
          who have no data at hand
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sklearn.datasets import load_digits

from expunge import L1, L2, Logistic, Objective

from .. import data
from ..comparison.protocol import Problem
from ..data import Dataset
from ..features import Extractor, FeatureMap, Histogram, Scattering, load_features
from . import openml
from .scale import Scale

Split: TypeAlias = tuple[Dataset, Dataset]

RIDGE = 1e-4
FEATURES: dict[str, FeatureMap] = {
    "dp": Extractor(),
    "untrained": Extractor.untrained(),
    "histogram": Histogram(),
    "scattering": Scattering(),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where data are looked for, and where computed features are kept."""

    data_dir: Path | None
    cache: Path


@dataclass(frozen=True, slots=True)
class Setting:
    """Data and a model.

    Attributes
    ----------
    name, title
        For files, and for people.
    load
        Training and test rows from a source; may raise DataNotFound.
    objective
        The model at an alpha.
    removals
        How many rows leave in a full run.
    sigma
        Noise of the size that the paper fixes for its accuracies.
    alphas
        At how many of a scale's alphas its curves are measured.
    """

    name: str
    title: str
    load: Callable[[Source], Split]
    objective: Callable[[float], Objective]
    removals: int
    sigma: float = 0.1
    alphas: int = 4

    def problem(self, split: Split, alpha: float) -> Problem:
        """Return what contenders are given."""
        objective = self.objective(alpha)
        train, test = (objective.rows(part.X, part.y) for part in split)
        return Problem(self.name, objective, train, test)

    def requests(self, scale: Scale) -> int:
        """Return how many rows leave at this scale."""
        return min(self.removals, scale.removals)


def ridge_logistic(alpha: float) -> Objective:
    """Return logistic loss with L2, no intercept."""
    return Objective(Logistic(), L2(), alpha=alpha)


def sparse_logistic(alpha: float) -> Objective:
    """Return logistic loss with L1 and a small ridge, no intercept."""
    return Objective(Logistic(), L1(), alpha=alpha, ridge=RIDGE)


def thin(split: Split, rows: int | None) -> Split:
    """Return at most so many training rows, and a quarter as many test rows."""
    if rows is None:
        return split
    train, test = split
    return _sample(train, rows), _sample(test, rows // 4)


def _sample(dataset: Dataset, rows: int) -> Dataset:
    """Return the first rows of a seeded permutation, or all."""
    chosen = np.random.default_rng(0).permutation(len(dataset))[:rows]
    return Dataset(dataset.X[chosen], dataset.y[chosen])


def split_rows(dataset: Dataset, share: float = 0.8) -> Split:
    """Return a seeded split into training and test rows."""
    order = np.random.default_rng(0).permutation(len(dataset))
    n_train = int(share * len(dataset))
    train, test = order[:n_train], order[n_train:]
    return Dataset(dataset.X[train], dataset.y[train]), Dataset(
        dataset.X[test], dataset.y[test]
    )


def unit(dataset: Dataset) -> Dataset:
    """Return the rows divided by their own norm."""
    norms = np.linalg.norm(dataset.X, axis=1, keepdims=True)
    return Dataset(dataset.X / norms, dataset.y)


def digits(source: Source) -> Split:
    """Return scikit-learn's 3s and 8s; 8 is +1."""
    del source
    X, y = load_digits(return_X_y=True)
    chosen = (y == 3) | (y == 8)
    return split_rows(unit(Dataset(X[chosen], np.where(y[chosen] == 8, 1.0, -1.0))))


def mnist(source: Source) -> Split:
    """Return MNIST's 3s and 8s, from files or else from OpenML."""
    try:
        train = data.mnist_3_vs_8(source.data_dir)
        return train, data.mnist_3_vs_8(source.data_dir, test=True)
    except data.DataNotFound as missing:
        return openml.mnist(missing)


def adult(source: Source) -> Split:
    """Return Adult, from files or else from OpenML."""
    try:
        train, test = data.adult(source.data_dir)
    except data.DataNotFound as missing:
        train, test = openml.adult(missing)
    return unit(train), unit(test)


def warfarin(source: Source) -> Split:
    """Return four fifths of the patients, and the others."""
    return split_rows(data.warfarin(source.data_dir))


def svhn(kind: str, source: Source) -> Split:
    """Return SVHN's 3s and 8s as features, computed once."""
    features = load_features(source.cache, FEATURES[kind], source.data_dir)
    return features.train, features.test


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("digits", "scikit-learn digits 3 vs 8", digits, ridge_logistic, 60),
        Setting("mnist", "MNIST 3 vs 8", mnist, ridge_logistic, 5000),
        Setting("warfarin", "Warfarin", warfarin, sparse_logistic, 1000, sigma=0.01),
        *(
            Setting(
                f"svhn-{kind}",
                f"SVHN 3 vs 8, {kind}",
                partial(svhn, kind),
                ridge_logistic,
                5000,
                # A thousand features, and not the paper's: two penalties suffice.
                alphas=2 if kind == "scattering" else 4,
            )
            for kind in FEATURES
        ),
        Setting("adult", "Adult", adult, ridge_logistic, 2000),
    )
}

# What the command's words stand for; quick runs need no torch.
WORDS = {
    "digits": ("digits",),
    "mnist": ("mnist",),
    "warfarin": ("warfarin",),
    "svhn": tuple(f"svhn-{kind}" for kind in FEATURES),
    "adult": ("adult",),
    "all": tuple(SETTINGS),
}
QUICK_LEAVES_OUT = ("svhn-dp", "svhn-untrained", "svhn-scattering")


def choose_settings(word: str, scale: Scale) -> list[Setting]:
    """Return the settings that a word stands for at this scale."""
    names = WORDS[word]
    if scale.name == "quick":
        names = tuple(name for name in names if name not in QUICK_LEAVES_OUT)
    return [SETTINGS[name] for name in names]
