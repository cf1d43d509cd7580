# SPDX-License-Identifier: Apache-2.0
r"""How many removals a budget allows, and what its noise costs.

*Orders*: a plan removes rows in five orders, from harmless to hard. An order that ranks
rows badly makes the plan less sharp, never wrong: its radii are real in any order.

*Limits*: counts are found by real removals, first at round numbers, then by bisection
between the last count that fits and the first that does not. Nothing is retrained,
because radii come from the state and a batch equals a stream. Radii do not depend on
sigma, so one set of them serves every budget.

*Scores*: releases are drawn as ``unlearn.release`` draws them, from seeded noise. Every
sigma uses the same seed, so releases under two sigmas differ only in scale.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf, nan
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Index, Matrix, Vector, catch_lapack_errors, row_norms
from ..core.losses import Loss
from ..core.objective import add_quadratic
from ..core.rows import BLOCK_ROWS, Rows, block_sum
from ..core.sums import loss_hessian, predict
from ..core.values import Private
from ..exceptions import (
    CannotRemove,
    ExpungeError,
    InvalidInput,
    NotPositiveDefinite,
    Unsupported,
)
from ..private_model.model import PrivateModel
from ..promise.budget import Budget
from ..promise.noise import SeededNoise, round_to_grid
from ..promise.radius import best_radius
from ..removal import Mechanism, measure_gradient

Kind: TypeAlias = Literal["typical", "worst", "clustered"]
Accepts: TypeAlias = Callable[[float], bool]
"""Whether a radius fits the budget."""

KINDS: tuple[Kind, ...] = ("typical", "worst", "clustered")
# Share of the mean curvature that keeps a Hessian definite where nothing else does.
SHIFT = 1e-9


@dataclass(frozen=True, slots=True)
class RemovalLimit:
    """How many removals of one kind the budget allows.

    Attributes
    ----------
    kind, order
        "typical", "worst" or "clustered", and the name of the order of
        ``removal_orders`` that gave the count without rows.
    without_rows, with_rows
        The count at which the answer still fits, while at one more it does not: from
        the state alone, and with one look at the remaining rows.
    then
        How one more is answered when the remaining rows are at hand.
    tried
        (count, radius from the state alone) for every count tried in this order.
    """

    kind: Kind
    order: str
    without_rows: int
    with_rows: int
    then: str
    tried: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class ReleaseScore:
    """Scores of releases under one sigma.

    Attributes
    ----------
    sigma
        Standard deviation of the noise; zero for the noise-free model.
    score, lowest
        Mean and lowest accuracy (or R2) of the releases drawn.
    loss
        Mean loss of a row, averaged over the releases.
    typical, worst
        Removals this sigma allows from the state alone, with the budget's epsilon and
        delta; None without noise, or where the fit itself cannot be certified.
    """

    sigma: float
    score: float
    lowest: float
    loss: float
    typical: int | None = None
    worst: int | None = None


class Radii(dict[int, float]):
    """Radius by number of rows removed, each computed when first asked for."""

    def __init__(self, radius: Callable[[int], float]) -> None:
        super().__init__()
        self._radius = radius

    def __missing__(self, count: int) -> float:
        self[count] = self._radius(count)
        return self[count]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RemovalSequence(Private):
    """One order of removal.

    Attributes
    ----------
    most
        How many rows can be removed at all.
    by_state, on_rows
        Radii from the state alone, and with one look at the remaining rows.
    describe_answer
        Says how a count is answered when the remaining rows are at hand.
    """

    most: int
    by_state: Radii
    on_rows: Radii
    describe_answer: Callable[[int], str]

    def without_rows(self, accepts: Accepts) -> int:
        """Return the count up to which the state's own radius fits."""
        return _last_fitting(self.by_state, accepts, low=0, most=self.most)

    def with_rows(self, accepts: Accepts) -> int:
        """Return the count up to which one look at the rows is enough."""
        low = self.without_rows(accepts)
        return _last_fitting(self.on_rows, accepts, low=low, most=self.most)


def follow_order(model: PrivateModel, rows: Rows, *, order: Index) -> RemovalSequence:
    """Return the sequence that removes rows in this order."""
    agreement = replace(model.agreement, smallest_radii=True)
    measured = replace(model, agreement=agreement)

    def remove(count: int) -> PrivateModel | None:
        try:
            return measured.forget(rows.take(order[:count]))
        except (NotPositiveDefinite, CannotRemove):  # no answer from the state alone
            return None

    def by_state(count: int) -> float:
        after = remove(count)
        return inf if after is None else after.answer.radius.value

    def on_rows(count: int) -> float:
        after, remaining = remove(count), rows.without(order[:count])
        if after is None or model.budget is None:
            return inf
        seen = measure_gradient(
            after.answer.state, after.answer.draft, remaining=remaining
        )
        row_norm = model.budget.row_norm
        return best_radius(
            after.answer.state, seen, remaining=remaining, row_norm=row_norm
        ).value

    def describe_answer(count: int) -> str:
        gone = order[:count]
        try:
            return model.forget(
                rows.take(gone), remaining=rows.without(gone)
            ).answer.decisions[0]
        except ExpungeError as error:
            return f"no answer ({type(error).__name__})"

    return RemovalSequence(
        len(rows) - 1, Radii(by_state), Radii(on_rows), describe_answer
    )


def find_limit(
    kind: Kind, sequences: Mapping[str, RemovalSequence], *, accepts: Accepts
) -> RemovalLimit:
    """Return the limit of one kind; the worst is the hardest of all orders."""
    names = list(sequences) if kind == "worst" else [kind]
    order = min(names, key=lambda name: sequences[name].without_rows(accepts))
    blind = sequences[order]
    candidates = (sequences[name] for name in names)
    seeing = min(candidates, key=lambda each: each.with_rows(accepts))
    count = seeing.with_rows(accepts)
    over = count == seeing.most
    return RemovalLimit(
        kind=kind,
        order=order,
        without_rows=blind.without_rows(accepts),
        with_rows=count,
        then="no row left to fit" if over else seeing.describe_answer(count + 1),
        tried=tuple(sorted(blind.by_state.items())),
    )


def _last_fitting(radii: Radii, accepts: Accepts, *, low: int, most: int) -> int:
    """Return a count from ``low`` on that fits, while one more does not.

    Round counts up to the first that does not fit, then bisection. A looser test never
    finds less: it turns upwards wherever a stricter one does.
    """
    for high in (count for count in round_counts(most) if count > low):
        if not accepts(radii[high]):
            break
        low = high
    else:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accepts(radii[middle]) else (low, middle)
    return low


def round_counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50 and so on, and finally ``most``."""
    decade = 1
    while decade < most:
        yield from (step * decade for step in (1, 2, 5) if step * decade < most)
        decade *= 10
    if most > 0:
        yield most


def require_plannable(mechanism: Mechanism) -> None:
    """Refuse a mechanism that looks at the rows at every request."""
    if mechanism.needs_rows:
        raise Unsupported(
            f"{type(mechanism).__name__} looks at the remaining rows at every request, "
            "so its answers fit whatever is removed; plan for Newton or Jackknife"
        )


def make_radius_test(model: PrivateModel, budget: Budget) -> Accepts | None:
    """Return which radii the budget accepts; None if it does not accept the fit's."""
    size = model.answer.draft.theta.size
    try:
        room, tau = budget.radius_budget(size), budget.solver_error(size)
    except InvalidInput:  # this sigma leaves no room for tau
        return None
    if not model.answer.radius.value <= tau:
        return None
    return lambda radius: radius + tau <= room


def score_without_noise(loss: Loss, rows: Rows, *, theta: Vector) -> ReleaseScore:
    """Return the scores of the noise-free model."""
    score, lost = _score(loss, rows, theta=theta)
    return ReleaseScore(sigma=0.0, score=score, lowest=score, loss=lost)


def score_releases(
    loss: Loss, rows: Rows, *, theta: Vector, budget: Budget, seeds: tuple[int, int]
) -> ReleaseScore:
    """Return the scores of releases of this model under a budget.

    ``seeds`` are the seed of the noise, and how many releases to draw.
    """
    seed, draws = seeds
    noise = SeededNoise(budget.sigma, budget.grid, seed)
    rounded = round_to_grid(theta, budget.grid)
    thetas = [rounded + noise.draw(theta.size) for _ in range(draws)]
    found = np.array([_score(loss, rows, theta=each) for each in thetas])
    return ReleaseScore(
        sigma=budget.sigma,
        score=float(found[:, 0].mean()),
        lowest=float(found[:, 0].min()),
        loss=float(found[:, 1].mean()),
    )


def _score(loss: Loss, rows: Rows, *, theta: Vector) -> tuple[float, float]:
    """Return accuracy or R2 on these rows, and the mean loss."""
    numbers = labels_are_numbers(loss)

    def term(block: Rows) -> tuple[float, float]:
        eta = predict(loss, block, theta=theta)
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


def labels_are_numbers(loss: Loss) -> bool:
    """Return whether labels are numbers rather than classes: one half is no class."""
    shape = (1,) if loss.outputs == 1 else (1, loss.outputs)
    try:
        loss.labels(np.full(shape, 0.5))
    except InvalidInput:
        return False
    return True


def removal_orders(
    model: PrivateModel, rows: Rows, *, seed: int = 0
) -> dict[str, Index]:
    """Return the orders in which a plan removes rows, by name.

    "typical" is a permutation by a hash of positions. "clustered" starts with the first
    row of "typical" and goes on to its neighbours, those of its class first where
    labels are classes. "largest" goes by the effect |H^-1 g| of each row on the model.
    "aligned" and "opposed" go by the effect along the direction in which effects vary
    most, because effects in one direction add up while others cancel.

    Parameters
    ----------
    model
        A fit on these rows.
    rows
        All rows, none removed.
    seed
        Chooses the permutation.
    """
    effects = _effects(model, rows)

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
    typical = permute(len(rows), seed)
    centre = int(typical[0])
    return {
        "largest": np.argsort(-sizes, kind="stable"),
        "aligned": np.argsort(-along, kind="stable"),
        "opposed": np.argsort(along, kind="stable"),
        "clustered": _neighbours(model.objective.loss, rows, centre=centre),
        "typical": typical,
    }


def permute(count: int, seed: int) -> Index:
    """Return positions in the order of their hashes, without drawing random numbers."""
    keys = [blake2b(f"{seed}:{i}".encode(), digest_size=16) for i in range(count)]
    digests = [key.digest() for key in keys]
    return np.array(sorted(range(count), key=digests.__getitem__), dtype=np.intp)


def _effects(model: PrivateModel, rows: Rows) -> Callable[[Rows], Matrix]:
    """Return the map from rows to H^-1 w g, g being a row's share of the gradient."""
    objective, draft = model.objective, model.answer.draft
    loss, theta = objective.loss, draft.theta
    mean = loss_hessian(loss, rows, theta=theta) / rows.total_weight
    H = add_quadratic(objective, mean)
    shift = np.full(H.size, SHIFT * float(H.diagonal.mean()))
    factor = H.add_diagonal(shift).cholesky()
    # Under "mean" scaling a row takes its share of the penalty with it.
    penalty = objective.quadratic_gradient(theta) + draft.subgradient
    shared = penalty if objective.scaling == "mean" else np.zeros_like(theta)

    def effects(block: Rows) -> Matrix:
        slope = loss.slope(block.y, predict(loss, block, theta=theta))
        slope = slope.reshape(len(block), -1)
        lifted = np.einsum("ia,ic->iac", block.dense(), slope)
        gradients = lifted.reshape(len(block), -1) + shared
        vectors: Matrix = factor.solve((gradients * block.weight[:, None]).T).T
        return vectors

    return effects


def _neighbours(loss: Loss, rows: Rows, *, centre: int) -> Index:
    """Return all rows by distance from this one, those of its class first."""
    point = rows.take(slice(centre, centre + 1)).dense()[0]
    distance = rows.norms() ** 2 - 2.0 * (rows.X @ point)
    if labels_are_numbers(loss):
        return np.argsort(distance, kind="stable")
    return np.lexsort((distance, rows.y != rows.y[centre]))
