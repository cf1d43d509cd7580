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
from collections.abc import Callable
from copy import copy
from math import frexp, inf
from threading import Condition, Lock
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np

from ..exceptions import InvalidInput, needing
from .budget import Budget, SecureSource
from .sampler import TableSampler

if TYPE_CHECKING:  # SciPy takes a while to import, and a key is drawn without it
    from ..core.arrays import Vector

Source: TypeAlias = Literal["secure", "opendp", "seeded"]
Integers: TypeAlias = Callable[[list[int]], list[int]]

# Vectors kept ahead of need: 2 to 32, and about so many numbers in between.
SMALLEST_POOL, LARGEST_POOL, POOL_NUMBERS = 2, 32, 2**18
# Integers asked of OpenDP in one call, about 15 ms: a fork waits no longer. Tables give
# that many in a millisecond.
CHUNK, AT_ONCE = 1024, 2**14
# A rounded model and its noise both stay below 2^52 steps, so their sum is exact.
LARGEST_STEPS = 2.0**52
# Noise of 2^12 standard deviations is still exact; more has probability e^(-2^23).
LARGEST_SCALE = 2.0**40
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
    """Discrete Gaussian noise on a grid from a cryptographic source, drawn ahead.

    P(Z = z) is proportional to exp(-(g z)^2 / (2 sigma^2)) for each coordinate. The
    time that a draw takes says something about what was drawn, so a background thread
    keeps vectors of the size last asked for, each handed out once. They never leave
    the process: not by pickling or copying, and a forked child starts with none.

    Parameters
    ----------
    sigma, grid
        Standard deviation, and the power of two the noise is a multiple of.
    source
        "secure" for tables and the operating system's random bits, or "opendp".
    """

    def __init__(
        self, sigma: float, grid: float, *, source: SecureSource = "secure"
    ) -> None:
        _require_scale(sigma, grid)
        self.source: Source = source
        self._grid = grid
        self._sample = _make_sampler(source, sigma / grid)
        self._at_once = CHUNK if source == "opendp" else AT_ONCE
        self._forget_all()
        _in_process.add(self)

    def __repr__(self) -> str:
        return "SecureNoise()"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "SecureNoise cannot be pickled or copied: noise drawn ahead would be used "
            "twice; make a new one from the same budget instead"
        )

    @property
    def ready(self) -> int:
        """Number of vectors drawn ahead and not yet used."""
        return len(self._pool)

    def prepare(self, n_parameters: int) -> None:
        """Start drawing vectors of this size, without waiting for them."""
        _require_parameters(n_parameters)
        with self._turn, self._changed:
            self._refill(n_parameters)

    def draw(self, n_parameters: int) -> "Vector":
        """Return one fresh vector, at once if one of this size is ready."""
        _require_parameters(n_parameters)
        # One caller at a time: another may want another size.
        with self._turn, self._changed:
            self._refill(n_parameters)
            self._changed.wait_for(lambda: self._pool or not self._filling)
            if not self._pool:
                raise self._failure
            noise = self._pool.popleft()
            self._refill(n_parameters)
        return noise

    def _forget_all(self) -> None:
        """Start with an empty pool, no thread and locks that nobody holds."""
        self._turn = Lock()
        self._changed = Condition()
        self._pool: deque[Vector] = deque()
        self._size = 0
        self._filling = False
        self._failure: Exception = RuntimeError("no sampler has run")

    def _refill(self, n_parameters: int) -> None:
        """Make sure that a thread fills the pool with this size; the lock is held."""
        if n_parameters != self._size:
            self._pool.clear()
            self._size = n_parameters
        # Half empty: starting a thread costs as much as a small vector.
        if 2 * len(self._pool) <= pool_size(n_parameters) and not self._filling:
            # A daemon, like every thread started so. Thread.start would wait for it
            # to run: 12 ms of a release on a busy machine.
            start_new_thread(self._fill, ())
            self._filling = True

    def _fill(self) -> None:
        """Draw until the pool is full, and end.

        Samplers run in these threads alone. They never fork, so a child cannot
        inherit the state of a generator that was local to a thread.
        """
        try:
            while True:
                with self._changed:
                    size, n_ready = self._size, len(self._pool)
                missing = pool_size(size) - n_ready
                if missing <= 0:
                    break
                # Many together cost less than one by one, but somebody may wait.
                wanted = max(1, min(missing, self._at_once // size)) if n_ready else 1
                vectors = self._sample(wanted * size).reshape(wanted, size) * self._grid
                with self._changed:
                    if size == self._size:
                        self._pool.extend(vectors)
                        self._changed.notify_all()
        except Exception as error:
            self._failure = error  # for the caller who waits
        finally:
            with self._changed:
                self._filling = False
                self._changed.notify_all()


def pool_size(n_parameters: int) -> int:
    """Return how many vectors of this size are kept ahead of need."""
    return max(SMALLEST_POOL, min(LARGEST_POOL, POOL_NUMBERS // n_parameters))


def _make_sampler(source: SecureSource, scale: float) -> "Callable[[int], Vector]":
    """Return what draws discrete Gaussians of this deviation."""
    if source == "opendp":
        return OpenDpSampler(scale)
    return TableSampler(scale, random_bytes)


class OpenDpSampler:
    """Discrete Gaussians drawn exactly by OpenDP, from OpenSSL's random bits.

    Parameters
    ----------
    scale
        Their deviation, at least 1.
    """

    def __init__(self, scale: float) -> None:
        with needing("opendp", "noise='opendp'"):
            from opendp.domains import atom_domain, vector_domain
            from opendp.measurements import make_gaussian
            from opendp.metrics import l2_distance
            from opendp.mod import enable_features
        enable_features("contrib")  # where OpenDP keeps it, its proof included
        space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
        self._integers: Integers = make_gaussian(*space, scale=scale)

    def __call__(self, size: int) -> "Vector":
        """Return this many independent draws, in pieces between which you may fork."""
        draws: list[int] = []
        while len(draws) < size:
            zeros = [0] * min(CHUNK, size - len(draws))
            with _fork_gate:
                draws += self._integers(zeros)
        return np.array(draws, dtype=np.float64)


class _ForkGate:
    """Keeps OpenDP and forks apart.

    A child forked while another thread is inside OpenDP would inherit whatever locks
    that thread held, and wait for them for ever. Any number of threads may be inside; a
    fork waits until none is, and holds newcomers off until it is over.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start with nobody inside, no fork and a lock that nobody holds."""
        self._changed = Condition()
        self._inside = 0
        self._forking = 0

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Hold off newcomers and wait until nobody is inside."""
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        """Let them in again."""
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()


def _reset_after_fork() -> None:
    """In a forked child: share no noise with the parent, and wait for no thread."""
    _fork_gate.reset()
    for noise in _in_process:
        noise._forget_all()


_fork_gate = _ForkGate()
_in_process: WeakSet[SecureNoise] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork_gate.close,
        after_in_parent=_fork_gate.open,
        after_in_child=_reset_after_fork,
    )


def make_noise(budget: Budget, random_state: int | None) -> Noise:
    """Return the noise of a budget: secure, or seeded if a seed is given.

    Parameters
    ----------
    budget
        Its sigma, its grid and the source that it names matter.
    random_state
        ``None``, or a seed for tests and benchmarks.
    """
    if random_state is None:
        return SecureNoise(budget.sigma, budget.grid, source=budget.noise)
    return SeededNoise(budget.sigma, budget.grid, random_state)


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
