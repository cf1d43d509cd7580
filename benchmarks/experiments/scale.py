# SPDX-License-Identifier: Apache-2.0
"""Scales: how much of the experiments to run, quick or full."""

from dataclasses import dataclass

from ..comparison.streams import STREAMS


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to run.

    Attributes
    ----------
    name
        "quick" or "full".
    alphas
        The penalties of the curves; the comparison takes the first.
    seeds
        Runs of everything.
    points
        Where on a curve a model is read, and slow contenders are timed.
    checkpoints
        After how many removals contenders are compared; those beyond what a setting
        removes are left out.
    streams
        The orders of requests of the comparison.
    comparisons
        The settings in which all contenders are compared; the others have curves alone.
    draws
        Noise drawn for each accuracy under a promise.
    rows
        Training rows at most; ``None`` takes them all. A quarter as many are tested.
    removals
        Requests at most.
    """

    name: str
    alphas: tuple[float, ...]
    seeds: int
    points: int
    checkpoints: tuple[int, ...]
    streams: tuple[str, ...]
    comparisons: tuple[str, ...]
    draws: int
    rows: int | None
    removals: int


FULL = Scale(
    "full",
    alphas=(1e-3, 1e-4, 1e-5, 1e-6),
    seeds=3,
    points=26,
    checkpoints=(1, 10, 50, 200, 500, 1000, 2500, 5000),
    streams=tuple(STREAMS),
    comparisons=("digits", "mnist", "warfarin", "svhn-histogram"),
    draws=3,
    rows=None,
    removals=5000,
)
QUICK = Scale(
    "quick",
    alphas=(1e-3,),
    seeds=3,
    points=4,
    checkpoints=(1, 10, 50, 100),
    streams=("random", "poisoning"),
    comparisons=("digits", "warfarin"),
    draws=3,
    rows=800,
    removals=100,
)
SCALES = {scale.name: scale for scale in (QUICK, FULL)}
