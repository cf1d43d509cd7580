# SPDX-License-Identifier: Apache-2.0
"""Summary: T(S), everything that removal may know of the training set.

It holds sums over the rows at one point theta, the anchor: d- and d x d-sized, never
rows. All sums are in units of the weight W at the anchor and cover the *loss* alone.
The quadratic of the objective is added where it is used, because under "mean" scaling a
removal changes it by a full-rank term.

``learn`` fits an objective and returns its summary. It refuses a solution whose
measured residual is above the tolerance: every later claim is about the minimiser.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import SAFETY, Matrix, Vector, norm
from ..core.blocks import SymmetricMatrix, weighted_sum
from ..core.linalg import Symmetric
from ..core.objective import Objective
from ..core.rows import RowSource, block_sum, block_sums
from ..core.solver import TOLERANCE, Solution, choose_start, minimise, require_converged
from ..core.sums import (
    Overview,
    entries_term,
    hessian_terms,
    join_hessian,
    kink_term,
    moment_term,
    most_entries,
    norm_sums,
    overview_term,
    read_overview,
    size_term,
)
from ..core.values import Private, stored
from ..exceptions import InvalidInput, Unsupported
from ..wide.measurement import Measurement, measure
from ..wide.preconditioner import Near
from ..wide.solver import minimise_by_products

MANY = 1024  # parameters, beyond which steps by a Hessian cost more than passes


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Scales(Private):
    """Sizes of what was ever summed, by which rounding and growth are bounded.

    Attributes
    ----------
    row_norm
        Largest norm of a row, intercept included.
    slope
        (1/W) sum w |slope| |x|.
    square_norm
        (1/W) sum w |x|^2.
    hessian, moment
        Traces of the Hessian and of the moment.
    n_rows
        Number of rows that were summed, those that came later included.
    weight
        Their weight over W: one at the anchor.
    n_entries
        The most entries of such a row; infinite if nobody counted them.
    n_additions
        Through how many additions a term of these sums passed at most; infinite if
        nobody counted them: then n_rows is a bound.
    """

    row_norm: float
    slope: float
    square_norm: float
    hessian: float
    moment: float
    n_rows: int
    weight: float = 1.0
    n_entries: float = inf
    n_additions: float = inf


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Summary(Private):
    """Sums over the rows at the anchor.

    Attributes
    ----------
    objective
        What theta minimises (up to the solver's residual) on these rows.
    theta
        The anchor, (d k,).
    subgradient
        One of alpha times the kink at theta; None if nobody knows.
    gradient
        (1/W) sum w grad loss at theta.
    curvature, lever
        How the predictors are curved at theta, as a ``Measurement`` has it.
    hessian
        (1/W) sum w Hessian of the loss at theta, (d k, d k) or k blocks (d, d); None of
        a model that is too wide for it.
    moment
        (1/W) sum w |x| x x', (d, d); None if it was not asked for.
    kinks
        (1/W) sum w |x|^2 binned by the distance to a jump of the curvature; None
        for a loss without jumps.
    scales
        Sizes of what was summed.
    weight, n_rows
        W and the number of rows.
    """

    objective: Objective
    theta: Vector
    subgradient: Vector | None
    gradient: Vector
    curvature: Matrix
    lever: Matrix | None
    hessian: SymmetricMatrix | None
    moment: Symmetric | None
    kinks: Vector | None
    scales: Scales
    weight: float
    n_rows: int

    @property
    def loss_hessian(self) -> SymmetricMatrix:
        """The Hessian, which a mechanism with matrices needs."""
        if self.hessian is None:
            raise Unsupported(
                "this summary has no Hessian: the model is too wide for one; use "
                "MatrixFree()"
            )
        return self.hessian


def summarise(
    objective: Objective,
    rows: RowSource,
    *,
    theta: Vector,
    subgradient: Vector | None = None,
    moment: bool = True,
) -> Summary:
    """Return the sums over these rows with theta as the anchor.

    ``subgradient`` is one of alpha times the kink at theta, where it is known; a
    smooth objective needs none. Without the ``moment``, which certificates without
    rows rest on, it takes half the time.
    """
    weight = rows.total_weight
    if not weight > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to sum")
    if theta.size != rows.n_columns * objective.loss.outputs:
        raise InvalidInput(
            f"theta has {theta.size} parameters; the rows call for "
            f"{rows.n_columns * objective.loss.outputs}"
        )
    anchor = np.array(theta, dtype=np.float64)
    found = _sum_once(objective, rows, theta=anchor, moment=moment)
    sums, hessian = found.overview, found.hessian / weight
    third, kinks = found.moment, found.kinks
    slope, square, cube, largest = found.sizes
    return Summary(
        objective=objective,
        theta=anchor,
        subgradient=np.zeros(anchor.size) if objective.smooth else subgradient,
        gradient=sums.gradient / weight,
        curvature=sums.curvature / weight,
        lever=None if sums.lever is None else sums.lever / weight,
        hessian=hessian,
        moment=None if third is None else Symmetric.from_dense(third / weight),
        kinks=None if kinks is None else kinks / weight,
        scales=Scales(
            row_norm=float(largest.value),
            slope=slope / weight,
            square_norm=square / weight,
            hessian=float(hessian.diagonal.sum()),
            moment=cube / weight,
            n_rows=len(rows),
            n_entries=found.n_entries,
            n_additions=rows.n_additions,
        ),
        weight=weight,
        n_rows=len(rows),
    )


class _Sums(NamedTuple):
    """What ``summarise`` sums; None for what was not asked for."""

    overview: Overview
    hessian: SymmetricMatrix
    sizes: tuple[Any, ...]
    n_entries: int
    moment: Matrix | None
    kinks: Vector | None


def _sum_once(
    objective: Objective, rows: RowSource, *, theta: Vector, moment: bool
) -> _Sums:
    """Return all sums at theta by one pass, and one more for each further Hessian term.

    Each sum has the bits that a pass of its own would give it.
    """
    loss = objective.loss
    lever = objective.n_free > 0 and loss.independent
    first, *further = hessian_terms(loss, rows.n_columns, theta=theta)
    terms = {
        "overview": overview_term(loss, theta=theta, lever=lever),
        "hessian": first,
        "sizes": size_term(loss, theta=theta),
        "entries": entries_term,
    }
    if moment:
        terms["moment"] = moment_term
    if loss.curvature_jump > 0.0:
        terms["kinks"] = kink_term(loss, theta=theta)
    sums = dict(zip(terms, block_sums(list(terms.values()), rows), strict=True))
    more = [block_sum(term, rows)[0] for term in further]
    return _Sums(
        read_overview(loss, sums["overview"]),
        join_hessian(loss, [sums["hessian"][0], *more]),
        sums["sizes"],
        int(sums["entries"][0].value),
        sums["moment"][0] if moment else None,
        sums["kinks"][0] if "kinks" in sums else None,
    )


def summarise_measured(
    objective: Objective,
    rows: RowSource,
    *,
    at: Measurement,
    scales: Scales | None = None,
) -> Summary:
    """Return the sums at a measured point without any matrix: no further pass.

    ``scales`` are those of these rows and perhaps more, in units of the weight of
    these; computed from the rows if not given.
    """
    weight = rows.total_weight
    if scales is None:
        square, cube, largest = norm_sums(rows)
        scales = Scales(
            row_norm=largest,
            slope=0.0,
            square_norm=square / weight,
            hessian=0.0,
            moment=cube / weight,
            n_rows=len(rows),
            n_entries=most_entries(rows),
            n_additions=rows.n_additions,
        )
    square = scales.square_norm
    return Summary(
        objective=objective,
        theta=at.theta,
        subgradient=objective.nearest_subgradient(at.theta, at.gradient),
        gradient=at.loss_gradient,
        curvature=at.curvature,
        lever=at.lever,
        hessian=None,
        moment=None,
        kinks=None,
        # Bounds: of a sum of products by Cauchy and Schwarz, and of the Hessian's norm.
        scales=replace(
            scales,
            slope=sqrt(at.steepness * square) * SAFETY,
            hessian=objective.loss.curvature_bound * square,
        ),
        weight=weight,
        n_rows=len(rows),
    )


def merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """Return the summary of several sets of rows together, without moments.

    All must be of the same objective at the same anchor.
    """
    first, weight = summaries[0], sum(part.weight for part in summaries)
    shares = [part.weight / weight for part in summaries]
    parts = list(zip(shares, summaries, strict=True))
    lever = None if first.lever is None else _mean([p.lever for p in summaries], shares)
    scales = [(share, part.scales) for share, part in parts]
    return replace(
        first,
        gradient=np.asarray(sum(share * part.gradient for share, part in parts)),
        curvature=_mean([part.curvature for part in summaries], shares),
        lever=lever,
        hessian=weighted_sum([(share, part.loss_hessian) for share, part in parts]),
        moment=None,
        kinks=None,
        scales=Scales(
            row_norm=max(part.row_norm for _, part in scales),
            slope=sum(share * part.slope for share, part in scales),
            square_norm=sum(share * part.square_norm for share, part in scales),
            hessian=sum(share * part.hessian for share, part in scales),
            moment=sum(share * part.moment for share, part in scales),
            n_rows=sum(part.n_rows for _, part in scales),
            n_entries=max(part.n_entries for _, part in scales),
        ),
        weight=weight,
        n_rows=sum(part.n_rows for part in summaries),
    )


def _mean(parts: Sequence[Any], shares: Sequence[float]) -> Matrix:
    """Return the weighted mean of arrays."""
    return np.asarray(sum(s * part for s, part in zip(shares, parts, strict=True)))


def find_minimiser(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> Solution:
    """Return the minimiser, found by products where there are many parameters.

    A Hessian of several outputs costs as much as hundreds of passes. What asks for one
    afterwards computes it once, at the minimiser, and not at every step.
    """
    size = rows.n_columns * objective.loss.outputs
    if size <= MANY or not objective.smooth:
        return minimise(objective, rows, start=start)
    at = measure(objective, rows, theta=choose_start(objective, rows, start=start))
    found = minimise_by_products(objective, rows, start=at, goal=0.5 * TOLERANCE)
    if norm(found.at.gradient) > TOLERANCE:
        return minimise(objective, rows, start=found.at.theta)
    theta, gradient = found.at.theta, found.at.gradient
    assert found.short_cut is not None
    near = Near(theta, gradient, found.at.curvature)
    # How far a step from here would lead, as for every solution.
    step = norm(found.short_cut.advance(objective, near) - theta)
    return Solution(theta, gradient, np.zeros(size), step, found.n_steps, 0)


def learn(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> Summary:
    """Fit the objective to the rows and return the Summary at the minimiser."""
    solution = find_minimiser(objective, rows, start=start)
    require_converged(objective, rows, solution=solution)
    return summarise(
        objective, rows, theta=solution.theta, subgradient=solution.subgradient
    )
