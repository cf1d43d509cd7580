# SPDX-License-Identifier: Apache-2.0
"""Random tables of numbers and categories, split and written out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expunge.core.split import SplitMatrix
from expunge.preprocessing.features import Feature, Features

Array = NDArray[np.float64]


class Drawn(NamedTuple):
    """Which table: ``scaled`` says what was scaled, "numbers" or "flags" too."""

    seed: int
    n_rows: int
    scaled: str = "numbers"
    n_numbers: int = 2

    def __str__(self) -> str:
        return "-".join(map(str, self))


DRAWS = [
    *(Drawn(seed, 40, scaled) for seed in range(6) for scaled in ("numbers", "flags")),
    Drawn(6, 1),
    Drawn(7, 300, "flags", 0),
    Drawn(8, 300, "numbers", 0),
    Drawn(9, 2, "flags"),
]


def draw_features(drawn: Drawn) -> tuple[Features, Array]:
    """Return features and raw rows: numbers, then categories by their codes.

    Among the columns are numbers far from zero, a category of one level, one with a
    level of a single row, and codes that have no feature or share one. Where flags are
    scaled, nearly all rows have one level: what a scaler subtracts nearly cancels.
    """
    rng = np.random.default_rng(drawn.seed)
    n, made, columns = drawn.n_rows, [], []
    for j in range(drawn.n_numbers):
        x = 10.0 ** rng.uniform(0.0, 6.0) + rng.normal(size=n)
        scale = float(x.std()) or 1.0
        made.append(Feature(f"n{j}", j, None, float(x.mean()), scale, 0.0, np.nan))
        columns.append(x)
    shares: list[Any] = [[1.0], [0.98, 0.02], np.full(9, 1 / 9), [0.5, 0.3, 0.2]]
    for k, share in enumerate(shares, start=drawn.n_numbers):
        levels = rng.choice(len(share), n, p=share).astype(float)
        levels[0] = len(share)  # a level of its own
        groups: list[tuple[int, ...]] = [(code,) for code in range(len(share) + 1)]
        if k == drawn.n_numbers + 2:  # one is dropped, two share a feature
            groups = [(1, 2), *groups[3:]]
        if k == drawn.n_numbers + 3:
            levels[rng.random(n) < 0.1] = -1.0
        for codes in groups:
            hits = float(np.isin(levels, codes).mean())
            scale, offset = 1.0, 0.0
            if drawn.scaled == "flags" and k % 2:
                scale = float(np.sqrt(hits * (1.0 - hits))) or 1.0
                offset = -hits / scale
            elif drawn.scaled == "flags":
                scale = 0.5
            made.append(Feature(f"f{k}", k, codes, 0.0, scale, offset, np.nan))
        columns.append(levels)
    order = rng.permutation(len(made))  # columns of X in any order
    return Features.of([made[j] for j in order]), np.column_stack(columns)


def write_out(features: Features, raw: Array) -> Array:
    """Return the features of rows, each by its definition."""
    layout, columns = features.layout, []
    for j, (column, codes) in enumerate(
        zip(layout.columns.tolist(), layout.codes, strict=True)
    ):
        x, offset, scale = raw[:, column], features.offset[j], features.scale[j]
        if codes is None:
            columns.append((x - features.centre[j]) / scale + offset)
        else:
            columns.append(np.where(np.isin(x, codes), offset + 1.0 / scale, offset))
    return np.column_stack(columns)


def draw_rows(drawn: Drawn) -> tuple[Any, Array, Callable[[int], SplitMatrix]]:
    """Return rows split and dense, a constant last, and what splits one alone."""
    features, raw = draw_features(drawn)
    dense = np.hstack([write_out(features, raw), np.ones((len(raw), 1))])
    assert features.encode(raw).tobytes() == dense[:, :-1].tobytes()

    def alone(row: int) -> SplitMatrix:
        return features.split(raw[row : row + 1], [1.0])

    return features.split(raw, [1.0]), dense, alone
