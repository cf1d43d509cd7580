# SPDX-License-Identifier: Apache-2.0
r"""Reach: how far an order of removals can be followed under a contract.

A count is found by real removals: round numbers first, then bisection between the last
that fits and the first that does not. Nothing is retrained, since the radius comes from
the state, and a batch equals a stream. Radii do not depend on sigma, so one set of
them answers for every contract.

Orders: which rows a plan removes first.

Only the order is chosen here. That a heuristic ranks rows badly costs a plan its
sharpness and never its truth: whatever the order, its radii are the real ones.

Scores: what noise costs a release, measured on rows.

Releases are drawn as ``unlearn.release`` would draw them, with seeded noise: the same
seed for every sigma, so that two sigmas differ by their size alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import inf, nan
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Index, Matrix, Private, Vector, catch_lapack_errors, row_norms
from ..core.linalg import Symmetric
from ..core.losses import Loss
from ..core.rows import Rows
from ..core.solver import add_quadratic
from ..core.sums import BLOCK_ROWS, block_sum, loss_hessian, predict
from ..exceptions import CannotRemove, ExpungeError, InvalidInput, NotPositiveDefinite
from ..private_model.unlearn import Custody, forget
from ..promise.budget import Budget
from ..promise.noise import SeededNoise, round_to_grid
from ..promise.radius import best_radius
from ..removal import measure_gradient

Kind: TypeAlias = Literal["typical", "worst", "clustered"]
Fits: TypeAlias = Callable[[float], bool]
Progress: TypeAlias = Callable[[str], None]

KINDS: tuple[Kind, ...] = ("typical", "worst", "clustered")


@dataclass(frozen=True, slots=True)
class Reach:
    """How many removals of one kind the contract allows.

    Attributes
    ----------
    kind, order
        "typical", "worst" or "clustered", and the name of the order of
        ``removal_orders`` that was followed by the state alone.
    without_rows, with_rows
        The count at which the answer still fits, and at one more does not: by the
        state alone, and with one look at the remaining rows.
    then
        What one more makes of the answer when the remaining rows are at hand.
    tried
        (count, radius by the state alone) for every count tried in this order.
    """

    kind: Kind
    order: str
    without_rows: int
    with_rows: int
    then: str
    tried: tuple[tuple[int, float], ...]


class Radii(dict[int, float]):
    """Radius by number of rows removed, each computed when first asked for."""

    def __init__(self, radius: Callable[[int], float]) -> None:
        super().__init__()
        self._radius = radius

    def __missing__(self, count: int) -> float:
        self[count] = self._radius(count)
        return self[count]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trial(Private):
    """One order of removal: its radii, and what is done beyond them."""

    most: int
    by_state: Radii
    on_rows: Radii
    settled: Callable[[int], str]

    def without_rows(self, fits: Fits) -> int:
        """Return the count until which the state's own radius fits."""
        return _last(self.by_state, fits, 0, self.most)

    def with_rows(self, fits: Fits) -> int:
        """Return the count until which one look at the rows is enough."""
        return _last(self.on_rows, fits, self.without_rows(fits), self.most)


def _last(radii: Radii, fits: Fits, low: int, most: int) -> int:
    """Return a count from ``low`` on that fits while one more does not.

    Round counts until the first that does not fit, then bisection. A looser ``fits``
    never finds less: it turns upwards wherever a stricter one does.
    """
    for high in (count for count in round_counts(most) if count > low):
        if not fits(radii[high]):
            break
        low = high
    else:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(radii[middle]) else (low, middle)
    return low


def round_counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on, and at last ``most``."""
    decade = 1
    while decade < most:
        yield from (step * decade for step in (1, 2, 5) if step * decade < most)
        decade *= 10
    if most > 0:
        yield most


def trial(custody: Custody, rows: Rows, order: Index, tell: Progress) -> Trial:
    """Return the trial of one order."""

    def held(count: int) -> Custody | None:
        tell(f"{count} of {len(rows)} rows removed")
        try:
            return forget(custody, rows.take(order[:count]))
        except (NotPositiveDefinite, CannotRemove):  # no answer from the state alone
            return None

    def by_state(count: int) -> float:
        after = held(count)
        return inf if after is None else after.radius.value

    def on_rows(count: int) -> float:
        after, remaining = held(count), rows.without(order[:count])
        if after is None or custody.budget is None:
            return inf
        seen = measure_gradient(after.state, after.draft, remaining)
        row_norm = custody.budget.row_norm
        return best_radius(
            after.state, seen, remaining=remaining, row_norm=row_norm
        ).value

    def settled(count: int) -> str:
        tell(f"{count} of {len(rows)} rows removed, the others at hand")
        gone = order[:count]
        try:
            return forget(custody, rows.take(gone), rows.without(gone)).decisions[0]
        except ExpungeError as error:
            return f"no answer ({type(error).__name__})"

    return Trial(len(rows) - 1, Radii(by_state), Radii(on_rows), settled)


def reached(kind: Kind, trials: Mapping[str, Trial], fits: Fits) -> Reach:
    """Return how far a kind can go; the worst is the hardest of all orders."""
    names = list(trials) if kind == "worst" else [kind]
    order = min(names, key=lambda name: trials[name].without_rows(fits))
    blind = trials[order]
    seeing = min((trials[name] for name in names), key=lambda t: t.with_rows(fits))
    count = seeing.with_rows(fits)
    over = count == seeing.most
    return Reach(
        kind=kind,
        order=order,
        without_rows=blind.without_rows(fits),
        with_rows=count,
        then="no row left to fit" if over else seeing.settled(count + 1),
        tried=tuple(sorted(blind.by_state.items())),
    )


def accepted_radii(custody: Custody, budget: Budget) -> Fits | None:
    """Return which radii the contract accepts; None if not even the fit's."""
    size = custody.draft.theta.size
    try:
        room, tau = budget.radius_budget(size), budget.solver_error(size)
    except InvalidInput:  # a tau that this sigma leaves no room for
        return None
    if not custody.radius.value <= tau:
        return None
    return lambda radius: radius + tau <= room


@dataclass(frozen=True, slots=True)
class Scored:
    """Releases under one sigma.

    Attributes
    ----------
    sigma
        The noise; zero for the noise-free model.
    score, lowest
        Mean and lowest accuracy (or R2) of the releases drawn.
    loss
        Mean loss of a row, averaged over the releases.
    typical, worst
        Removals this sigma allows by the state alone, epsilon and delta as in the
        contract; None where the fit itself cannot be certified, or without noise.
    """

    sigma: float
    score: float
    lowest: float
    loss: float
    typical: int | None = None
    worst: int | None = None


def noise_free(loss: Loss, rows: Rows, theta: Vector) -> Scored:
    """Return the scores of the model itself."""
    score, lost = _score(loss, rows, theta)
    return Scored(sigma=0.0, score=score, lowest=score, loss=lost)


def released(
    loss: Loss, rows: Rows, theta: Vector, contract: Budget, seeds: tuple[int, int]
) -> Scored:
    """Return the scores of releases of this model under a contract.

    ``seeds`` are the seed of the noise and how many releases to draw from it.
    """
    seed, draws = seeds
    noise = SeededNoise(contract.sigma, contract.grid, seed)
    rounded = round_to_grid(theta, contract.grid)
    thetas = [rounded + noise.draw(theta.size) for _ in range(draws)]
    found = np.array([_score(loss, rows, each) for each in thetas])
    return Scored(
        sigma=contract.sigma,
        score=float(found[:, 0].mean()),
        lowest=float(found[:, 0].min()),
        loss=float(found[:, 1].mean()),
    )


def _score(loss: Loss, rows: Rows, theta: Vector) -> tuple[float, float]:
    """Return accuracy or R2 on these rows, and the mean loss."""
    numbers = takes_numbers(loss)

    def term(block: Rows) -> tuple[float, float]:
        eta = predict(loss, block, theta)
        if numbers:
            errors = (eta - block.y).reshape(len(block), -1)
            points = np.einsum("ij,ij->i", errors, errors)
        elif loss.outputs == 1:
            points = np.where(eta > 0.0, 1.0, -1.0) == block.y
        else:
            points = np.argmax(eta, axis=1) == block.y
        lost = loss.value(block.y, eta)
        return float(block.weight @ points), float(block.weight @ lost)

    points, lost = block_sum(term, rows)
    weight = rows.total_weight
    if not numbers:
        return points / weight, lost / weight
    spread = rows.y - np.average(rows.y, axis=0, weights=rows.weight)
    total = float(np.sum(rows.weight @ spread**2))
    return (1.0 - points / total if total > 0.0 else nan), lost / weight


def takes_numbers(loss: Loss) -> bool:
    """Whether labels are numbers, not classes: one half is no class."""
    shape = (1,) if loss.outputs == 1 else (1, loss.outputs)
    try:
        loss.labels(np.full(shape, 0.5))
    except InvalidInput:
        return False
    return True


# Share of the Hessian's mean curvature that keeps it definite where nothing else does.
SHIFT = 1e-9


def removal_orders(custody: Custody, rows: Rows, seed: int = 0) -> dict[str, Index]:
    """Return the orders in which a plan removes rows, by name.

    "typical" is a permutation by a hash of positions; "clustered" goes from its first
    row to that row's neighbours, those of its class first where labels are classes;
    "largest" goes by the effect |H^-1 g| of each row on the model; "aligned"
    and "opposed" by its part along the direction in which effects vary most, since
    effects in one direction add up and others cancel.

    Parameters
    ----------
    custody
        A fit on these rows.
    rows
        All rows, none removed.
    seed
        Chooses the permutation.
    """
    effects = _effects(custody, rows)

    def by_row(figure: Callable[[Matrix], Vector]) -> Vector:
        blocks = rows.blocks(BLOCK_ROWS)
        return np.concatenate([figure(effects(block)) for block in blocks])

    def term(block: Rows) -> tuple[Matrix]:
        vectors = effects(block)
        return (vectors.T @ vectors,)

    with catch_lapack_errors():
        leading: Vector = np.linalg.eigh(block_sum(term, rows)[0])[1][:, -1]
    sizes = by_row(row_norms)
    along = by_row(lambda vectors: vectors @ leading)
    typical = _shuffled(len(rows), seed)
    return {
        "largest": np.argsort(-sizes, kind="stable"),
        "aligned": np.argsort(-along, kind="stable"),
        "opposed": np.argsort(along, kind="stable"),
        "clustered": _neighbours(custody.objective.loss, rows, int(typical[0])),
        "typical": typical,
    }


def _shuffled(n_rows: int, seed: int) -> Index:
    """Return a permutation by a hash of positions: nothing here draws."""
    keys = [blake2b(f"{seed}:{i}".encode(), digest_size=16) for i in range(n_rows)]
    digests = [key.digest() for key in keys]
    return np.array(sorted(range(n_rows), key=digests.__getitem__), dtype=np.intp)


def _effects(custody: Custody, rows: Rows) -> Callable[[Rows], Matrix]:
    """Return the map from rows to H^-1 w g, g a row's share of the gradient."""
    objective, draft = custody.objective, custody.draft
    loss, theta = objective.loss, draft.theta
    total = Symmetric.from_dense(loss_hessian(loss, rows, theta) / rows.total_weight)
    H = add_quadratic(objective, total)
    shift = np.full(H.size, SHIFT * float(H.diagonal.mean()))
    factor = H.add_diagonal(shift).cholesky()
    # Under "mean" scaling a row takes its share of the penalty along.
    penalty = objective.quadratic_gradient(theta) + draft.subgradient
    shared = penalty if objective.scaling == "mean" else np.zeros_like(theta)

    def effects(block: Rows) -> Matrix:
        slope = loss.slope(block.y, predict(loss, block, theta))
        slope = slope.reshape(len(block), -1)
        lifted = np.einsum("ia,ic->iac", block.dense(), slope)
        gradients = lifted.reshape(len(block), -1) + shared
        vectors: Matrix = factor.solve((gradients * block.weight[:, None]).T).T
        return vectors

    return effects


def _neighbours(loss: Loss, rows: Rows, centre: int) -> Index:
    """Return all rows from the nearest to this one to the farthest, its class first."""
    point = rows.take(slice(centre, centre + 1)).dense()[0]
    distance = rows.norms() ** 2 - 2.0 * (rows.X @ point)
    if takes_numbers(loss):
        return np.argsort(distance, kind="stable")
    return np.lexsort((distance, rows.y != rows.y[centre]))
