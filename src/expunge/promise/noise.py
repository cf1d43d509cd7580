# SPDX-License-Identifier: Apache-2.0
"""Noise: the only module that draws random numbers.

A release adds g Z to a model rounded to the grid g, Z a vector of independent
discrete Gaussians. All of it is integers times a power of two, so nothing of the
model hides in the low bits of a float. ``SecureNoise`` draws from a cryptographic
source, ahead of need; ``SeededNoise`` repeats itself, for tests and benchmarks. How
random bits become a discrete Gaussian is the business of ``sampler``.
Nothing here knows a model, a radius or a promise beyond sigma and the grid.
"""

import os
import secrets
from _thread import start_new_thread
from collections import deque
from contextlib import suppress
from copy import copy
from math import frexp, inf
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..exceptions import InvalidInput
from .budget import Budget
from .sampler import TableSampler

if TYPE_CHECKING:  # SciPy takes a while to import, and a key is drawn without it
    from ..core.arrays import Vector

Source: TypeAlias = Literal["secure", "seeded"]

# A rounded model and its noise both stay below 2^52 steps, so their sum is exact.
LARGEST_STEPS = 2.0**52
# Noise of 2^12 standard deviations is still exact; more has probability e^(-2^23).
LARGEST_SCALE = 2.0**40
# Vectors that a thread draws at most, and numbers where vectors are long: to start one
# costs as much as a vector of a thousand numbers.
AT_ONCE, MOST_NUMBERS = 8, 2**15
# Of a key or a salt: 256 bits that nobody guesses.
SECRET_BYTES = 32


class Noise(Protocol):
    """Fresh noise for one release after another."""

    @property
    def source(self) -> Source:
        """Where the randomness comes from, as the certificate names it."""

    def draw(self, n_parameters: int) -> "Vector":
        """Return one vector of noise, multiples of the grid; use it once."""


class SeededNoise:
    """Gaussian noise rounded to a grid, the same again for the same seed.

    Anyone who knows the seed can subtract the noise: for tests and benchmarks.

    Parameters
    ----------
    sigma, grid
        Standard deviation, and the power of two the noise is a multiple of.
    seed
        Zero or a positive integer.
    """

    source: Literal["seeded"] = "seeded"

    def __init__(self, sigma: float, grid: float, seed: int) -> None:
        _require_scale(sigma, grid)
        given: object = seed
        if not isinstance(given, int | np.integer) or given < 0:
            raise InvalidInput(
                f"random_state={seed!r}; give zero or a positive integer, or None for "
                "noise from a secure source"
            )
        self._grid = grid
        self._scale = sigma / grid
        self._seed = int(seed)
        self._generator = np.random.default_rng(self._seed)

    def at(self, number: int) -> "SeededNoise":
        """Return the noise of the release of this number, and of no other."""
        noise = copy(self)
        noise._generator = np.random.default_rng([self._seed, number])
        return noise

    def draw(self, n_parameters: int) -> "Vector":
        """Return the next vector of the sequence."""
        _require_parameters(n_parameters)
        steps = self._generator.normal(0.0, self._scale, n_parameters)
        noise: Vector = np.rint(steps) * self._grid
        return noise


class SecureNoise:
    """Discrete Gaussian noise on a grid from the system's random bits, drawn ahead.

    P(Z = z) is proportional to exp(-(g z)^2 / (2 sigma^2)) for each coordinate. The
    time that a draw takes says something about what was drawn, so the next vectors of
    the size last asked for are drawn beforehand, several by a thread that then ends.
    Each is handed out once, and never leaves the process: not by pickling or copying,
    and a forked child discards them.

    Parameters
    ----------
    sigma, grid
        Standard deviation, and the power of two the noise is a multiple of.
    """

    source: Literal["secure"] = "secure"

    def __init__(self, sigma: float, grid: float) -> None:
        _require_scale(sigma, grid)
        self._grid = grid
        self._sample = TableSampler(sigma / grid, random_bytes)
        # Threads share it without a lock, which a fork could leave locked for ever: a
        # deque gives each that is in it to one of them. It holds the same batch once
        # for each vector that may still be taken from it.
        self._ahead: deque[_Batch] = deque()

    def __repr__(self) -> str:
        return "SecureNoise()"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "SecureNoise cannot be pickled or copied: noise drawn ahead would be used "
            "twice; make a new one from the same budget instead"
        )

    def prepare(self, n_parameters: int) -> None:
        """Start drawing a vector of this size, without waiting for it."""
        _require_parameters(n_parameters)
        self._ahead.append(self._start(n_parameters, number=1))

    def draw(self, n_parameters: int) -> "Vector":
        """Return a fresh vector, at once if one of this size is ready."""
        _require_parameters(n_parameters)
        batch = self._take(n_parameters)
        drawn = batch.vectors.get()
        if isinstance(drawn, Exception):
            self._ahead.clear()  # what its batch has left is the same error
            raise drawn
        # With half of a batch to go, so that the next is drawn by then. Batches grow,
        # since a model that is loaded for a single release needs no more than one.
        if len(self._ahead) <= batch.number // 2:
            more = self._start(n_parameters, number=2 * batch.number)
            self._ahead.extend([more] * more.number)
        return drawn

    def _take(self, size: int) -> "_Batch":
        """Return a batch with a vector for this caller alone."""
        with suppress(IndexError):
            while True:
                batch = self._ahead.popleft()
                if batch.process is _this_process and batch.size == size:
                    return batch
        return self._start(size, number=1)

    def _start(self, size: int, *, number: int) -> "_Batch":
        """Have a thread draw so many vectors, or fewer where they are long."""
        number = max(1, min(number, AT_ONCE, MOST_NUMBERS // size))
        batch = _Batch(_this_process, size, number, SimpleQueue())
        # A daemon, like every thread started so. Thread.start would wait for it to run:
        # 12 ms of a release on a busy machine.
        start_new_thread(self._fill, (batch,))
        return batch

    def _fill(self, batch: "_Batch") -> None:
        """Draw a batch, or tell those who wait why there is none."""
        try:
            numbers = self._sample(batch.size * batch.number) * self._grid
            # All at once: who waits for one waits for all, whatever they are.
            for vector in numbers.reshape(batch.number, batch.size):
                batch.vectors.put(vector.copy())
        except Exception as error:
            for _ in range(batch.number):
                batch.vectors.put(error)


class _Batch(NamedTuple):
    """Vectors of noise that are drawn, or being drawn, for one process."""

    process: object
    size: int
    number: int
    vectors: "SimpleQueue[Vector | Exception]"


def _leave_parent() -> None:
    """In a forked child: be another process, which shares no noise with the parent."""
    global _this_process
    _this_process = object()


# Not its number, which a later process may have again.
_this_process = object()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


def make_noise(budget: Budget, random_state: int | None) -> Noise:
    """Return the noise of a budget: secure, or seeded if a seed is given.

    Parameters
    ----------
    budget
        Its sigma and its grid matter.
    random_state
        ``None``, or a seed for tests and benchmarks.
    """
    if random_state is None:
        return SecureNoise(budget.deviation, budget.grid)
    return SeededNoise(budget.deviation, budget.grid, random_state)


def noise_for(noise: Noise | None, number: int) -> Noise | None:
    """Return noise for the release of this number.

    What repeats itself is taken by number: no two releases share it, whatever was drawn
    in between, in this process or in another.
    """
    return noise.at(number) if isinstance(noise, SeededNoise) else noise


def round_to_grid(theta: "Vector", grid: float) -> "Vector":
    """Return the nearest vector whose entries are multiples of the grid, exactly.

    It moves theta by at most sqrt(d) grid / 2, which the radius budget pays for.
    Parameters beyond 2^52 grid, which float64 could not hold on the grid, are put
    there: projecting on a box brings no two models further apart, and refusing would
    tell something of a noise-free one.

    Parameters
    ----------
    theta
        Parameters, (d,), finite.
    grid
        A power of two.
    """
    _require_grid(grid)
    size, largest = float(np.maximum.reduce(np.abs(theta))), LARGEST_STEPS * grid
    if not size < inf:  # nor if it is no number
        raise InvalidInput("a parameter is not finite; there is no model to release")
    if size > largest:
        theta = np.clip(theta, -largest, largest)
    rounded: Vector = theta / grid
    np.rint(rounded, out=rounded)
    rounded *= grid
    rounded += 0.0  # turns -0.0 into 0.0, whose sign would tell the model's
    return rounded


def random_bytes(n_bytes: int) -> bytes:
    """Return this many fresh secret bytes, for a key, a salt, a nonce or an id."""
    return secrets.token_bytes(n_bytes)


def _require_scale(sigma: float, grid: float) -> None:
    """Refuse noise finer than its grid or too coarse for exact arithmetic."""
    _require_grid(grid)
    if not grid <= sigma <= LARGEST_SCALE * grid:
        raise InvalidInput(
            f"sigma={sigma} on a grid of {grid}; it must be between 1 and "
            f"{LARGEST_SCALE:.3g} steps (Budget.grid chooses well)"
        )


def _require_grid(grid: float) -> None:
    """Refuse a grid on which float64 is not exact."""
    if not grid > 0.0 or frexp(grid)[0] != 0.5:
        raise InvalidInput(f"grid={grid}; it must be a power of two")


def _require_parameters(n_parameters: int) -> None:
    """Refuse noise for no parameters."""
    if n_parameters < 1:
        raise InvalidInput(f"n_parameters={n_parameters}; draw noise for at least one")
