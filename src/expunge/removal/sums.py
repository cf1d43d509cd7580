# SPDX-License-Identifier: Apache-2.0
r"""Sums: all that a removal may know of the rows, and the algebra of what changes them.

``Sums`` hold, for rows with weights w at one point theta,

    sum w,    sum w grad loss,    sum w Hessian of the loss,    sum w |x| x x',  ...

d- and d x d-sized, never rows. They are not divided by anything and know no penalty, so
they are a vector space: rows that leave are subtracted and rows that come are added,
all folds but one are ``total - own``, balanced classes are a weighted sum of the sums
over each class, and features that are a linear map of others have ``mapped`` sums. What
reads a model adds the quadratic (``state``).

Rounding is part of the algebra. A sum over rows is off by at most

    2 u k M,    u = 2^-53,

M the sum of the sizes of all terms that were ever added (``Magnitude``), k through how
many roundings a term went at most. Of S + T it is M_S + M_T, and of S - T, whose rows
are among those of S, it is M_S: magnitudes never shrink, because what was subtracted
has left its rounding behind. k_S + k_T + 1 bounds both k, and is no less than what
somebody counts who sums over the same rows afresh, in any order.

A few rows change a d x d matrix by rank-one updates, O(d^2) each (``Few``); a batch by
one block sum.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Self

import numpy as np

from ..core.arrays import Matrix, Vector
from ..core.feature_map import FeatureMap
from ..core.linalg import Symmetric, weighted_sum
from ..core.losses import Loss
from ..core.rows import Rows, RowSource, block_sum, block_sums
from ..core.sums import (
    curvature_rows,
    curvature_sizes,
    entries_term,
    hessian_terms,
    join_hessian,
    kink_masses,
    kink_term,
    loss_hessian,
    loss_slopes,
    moment_term,
    most_entries,
    norm_moment,
    overview,
    overview_term,
    read_overview,
    row_sizes,
    size_term,
)
from ..core.values import NOT_STORED, Private, replace_fields, stored
from ..exceptions import InvalidInput, Unsupported

# Roundings of an entry where features change: of both rows and of the map.
LIFTED = 48


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Magnitude(Private):
    """Sizes of all that was ever summed, by which rounding and growth are bounded.

    Attributes
    ----------
    row_norm
        Largest norm of a row, intercept included.
    slope
        sum w |slope| |x|.
    steepness
        sum w |slope|^2.
    square_norm
        sum w |x|^2.
    curvature
        sum w tr C, C the curvature of a row's predictors.
    hessian, moment
        Traces of the Hessian and of the moment, or bounds on them.
    gram
        A bound on the largest eigenvalue of sum w x x' over the penalised columns.
    weight
        sum w.
    n_entries
        The most entries of a row; infinite if nobody counted them.
    """

    row_norm: float
    slope: float
    steepness: float
    square_norm: float
    curvature: float
    hessian: float
    moment: float
    gram: float
    weight: float
    n_entries: float = inf

    def __add__(self, other: "Magnitude") -> "Magnitude":
        """Return the sizes of both together."""
        return Magnitude(
            row_norm=max(self.row_norm, other.row_norm),
            slope=self.slope + other.slope,
            steepness=self.steepness + other.steepness,
            square_norm=self.square_norm + other.square_norm,
            curvature=self.curvature + other.curvature,
            hessian=self.hessian + other.hessian,
            moment=self.moment + other.moment,
            gram=self.gram + other.gram,
            weight=self.weight + other.weight,
            n_entries=max(self.n_entries, other.n_entries),
        )

    def times(self, factor: float, *, longer: float = 1.0) -> "Magnitude":
        """Return the sizes with weights multiplied, and rows so much longer."""
        factor, square = abs(factor), longer * longer
        return Magnitude(
            row_norm=longer * self.row_norm,
            slope=factor * longer * self.slope,
            steepness=factor * self.steepness,
            square_norm=factor * square * self.square_norm,
            curvature=factor * self.curvature,
            hessian=factor * square * self.hessian,
            moment=factor * square * longer * self.moment,
            gram=factor * square * self.gram,
            weight=factor * self.weight,
            n_entries=self.n_entries if longer == 1.0 else inf,  # zeros need not stay
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Few(Private):
    """What a few rows add to matrices, not multiplied out.

    The Hessian is Z'Z, Z (n k, d k), or (blocks, n, d) if outputs are apart; likewise
    the moment, if it is kept.
    """

    hessian: Matrix
    moment: Matrix | None


@stored
@dataclass(frozen=True, repr=False, eq=False)
class Sums(Private):
    """Weighted sums over rows at one point.

    Attributes
    ----------
    loss, theta
        What is summed, and where: (d k,).
    weight, n_rows
        The rows' weight, and their number.
    gradient
        sum w grad loss, (d k,).
    magnitude
        Sizes of all that was summed; None of rows that are only to be subtracted, whose
        sizes are in what they are subtracted from.
    roundings
        Through how many roundings a term went at most.
    hessian
        sum w Hessian of the loss, (d k, d k) or k blocks (d, d); None if not kept.
    moment
        sum w |x| x x', (d, d), which bounds the third-order term; None if not kept.
    kinks
        sum w |x|^2 binned by the distance to a jump of the curvature; None for a loss
        without jumps.
    subtracted
        Whether rows were subtracted: their predictors were computed twice.
    few
        Of few rows, what stands for Hessian and moment; None of many.
    curvature, intercept_columns
        sum w C with C the curvature of a row's predictors, (k, k), and sum w c x with c
        its diagonal, (d, k): what is kept instead of matrices; None if not kept.
    """

    loss: Loss
    theta: Vector
    weight: float
    n_rows: int
    gradient: Vector
    magnitude: Magnitude | None
    roundings: float
    hessian: Symmetric | None = None
    moment: Symmetric | None = None
    kinks: Vector | None = None
    subtracted: bool = False
    few: Few | None = field(default=None, metadata=NOT_STORED)
    curvature: Matrix | None = None
    intercept_columns: Matrix | None = None

    replace = replace_fields

    @property
    def sizes(self) -> Magnitude:
        """The sizes of all that was summed."""
        if self.magnitude is None:
            raise InvalidInput("sums over rows that leave can only be subtracted")
        return self.magnitude

    @property
    def loss_hessian(self) -> Symmetric:
        """The Hessian of the loss, which must have been kept."""
        if self.hessian is None:
            raise Unsupported(
                "these sums have no Hessian: the model is too wide for one, or the "
                "mechanism keeps none; use MatrixFree(), or certified=True"
            )
        return self.hessian

    def keeping(
        self, *, hessian: bool = False, moment: bool = False, curvature: bool = False
    ) -> "Sums":
        """Return some of the sums, to be overwritten by themselves."""
        if moment and self.moment is None:
            raise InvalidInput("a certified state needs sums with their moment")
        return self.replace(
            hessian=self.loss_hessian.copy() if hessian else None,
            moment=self.moment.copy() if moment and self.moment else None,
            kinks=self.kinks if moment else None,
            curvature=self.curvature if curvature else None,
            intercept_columns=self.intercept_columns if curvature else None,
        )

    def over(self, rows: Rows, *, leaving: bool = False) -> "Sums":
        """Return the same sums over other rows: to be added, or just subtracted."""
        loss, theta = self.loss, self.theta
        hessian: Symmetric | None = None
        moment: Symmetric | None = None
        few: Few | None = None
        if self.hessian is not None and len(rows) <= max(1, rows.n_columns // 8):
            few = Few(curvature_rows(loss, rows, theta=theta), None)
            if self.moment is not None:
                scale = np.sqrt(rows.weight * rows.norms())
                few = Few(few.hessian, rows.dense() * scale[:, None])
        elif self.hessian is not None:  # a sum costs less than so many updates
            hessian = loss_hessian(loss, rows, theta=theta)
            if self.moment is not None:
                moment = Symmetric.from_dense(norm_moment(rows))
        curvature: Matrix | None = None
        intercept_columns: Matrix | None = None
        if self.curvature is not None:
            seen = overview(
                loss,
                rows,
                theta=theta,
                intercept_columns=self.intercept_columns is not None,
            )
            gradient, curvature, intercept_columns = (
                seen.gradient,
                seen.curvature,
                seen.intercept_columns,
            )
        else:
            gradient = loss_slopes(loss, rows, theta=theta)
        kinks = None
        if self.kinks is not None:
            kinks = kink_masses(loss, rows, theta=theta, leaving=leaving)
        return self.replace(
            weight=rows.total_weight,
            n_rows=len(rows),
            gradient=gradient,
            magnitude=None if leaving else _measure(loss, rows, theta=theta),
            roundings=float(rows.n_additions),
            hessian=hessian,
            moment=moment,
            kinks=kinks,
            subtracted=False,
            few=few,
            curvature=curvature,
            intercept_columns=intercept_columns,
        )

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums over both sets of rows."""
        return self.plus(other)

    def __sub__(self, other: "Sums") -> "Sums":
        """Return the sums without some of their rows."""
        return self.minus(other)

    def plus(self, other: "Sums", *, overwrite: bool = False) -> Self:
        """Return the sums over both; ``overwrite`` lets them take over this memory."""
        sizes = self.sizes + other.sizes
        return self._combine(other, 1.0, overwrite=overwrite).replace(magnitude=sizes)

    def minus(self, other: "Sums", *, overwrite: bool = False) -> Self:
        """Return the sums without some of their rows; ``overwrite`` as for ``plus``."""
        return self._combine(other, -1.0, overwrite=overwrite)

    def __rmul__(self, factor: float) -> "Sums":
        """Return the sums with every weight multiplied."""
        assert self.few is None
        hessian, moment = self.hessian, self.moment
        kinks, curvature, intercept_columns = (
            None if part is None else factor * part
            for part in (self.kinks, self.curvature, self.intercept_columns)
        )
        return self.replace(
            weight=factor * self.weight,
            gradient=factor * self.gradient,
            magnitude=self.sizes.times(factor),
            roundings=self.roundings + 1.0,
            hessian=None if hessian is None else weighted_sum([(factor, hessian)]),
            moment=None if moment is None else weighted_sum([(factor, moment)]),
            kinks=kinks,
            curvature=curvature,
            intercept_columns=intercept_columns,
        )

    def mapped(self, features: FeatureMap) -> "Sums":
        """Return the sums over x = A'e from these over e, at a point near theta.

        The loss of the rows x has at theta the gradient A'(c + H (A theta - theta_0)) +
        third order, and at a = S theta_0 the Hessian A'HA. Moment and kinks stay those
        of e: they bound the third-order term about A s + (A a - theta_0), times kappa
        (docs/radii.md).

        Terms are at most kappa, kappa^2, kappa^3 times as large as in e, and the rows
        that retraining sees agree with A'e up to a few roundings of their entries.
        """
        theta = features.back(self.theta)
        offset = features.lift(theta) - self.theta
        hessian = self.loss_hessian
        return self.replace(
            theta=theta,
            gradient=features.transpose(self.gradient + hessian @ offset),
            hessian=features.map_hessian(hessian),
            magnitude=self.sizes.times(1.0, longer=features.row_growth),
            roundings=self.roundings + LIFTED,
        )

    def _combine(self, other: "Sums", sign: float, *, overwrite: bool) -> Self:
        """Return self + sign other, with the magnitude of self."""
        changes: dict[str, object] = {
            "subtracted": sign < 0.0 or self.subtracted or other.subtracted,
            "weight": self.weight + sign * other.weight,
            "n_rows": self.n_rows + int(sign) * other.n_rows,
            "gradient": _add(self.gradient, other.gradient, sign=sign),
            "roundings": self.roundings + other.roundings + 1.0,
        }
        few = other.few
        if self.hessian is not None and few is not None:
            changes["hessian"] = self.hessian.update(
                sign, few.hessian, overwrite=overwrite
            )
        elif self.hessian is not None:
            terms = [(1.0, self.hessian), (sign, other.loss_hessian)]
            changes["hessian"] = weighted_sum(terms)
        if self.moment is not None and few is not None:
            assert few.moment is not None
            changes["moment"] = self.moment.update(
                sign, few.moment, overwrite=overwrite
            )
        elif self.moment is not None:
            assert other.moment is not None
            changes["moment"] = weighted_sum([(1.0, self.moment), (sign, other.moment)])
        if self.kinks is not None:
            # Masses are not negative; by rounding a difference may be.
            mass = _add(self.kinks, other.kinks, sign=sign)
            changes["kinks"] = np.maximum(mass, 0.0)
        if self.curvature is not None:
            changes["curvature"] = _add(self.curvature, other.curvature, sign=sign)
        if self.intercept_columns is not None:
            changes["intercept_columns"] = _add(
                self.intercept_columns, other.intercept_columns, sign=sign
            )
        return self.replace(**changes)


def _add(ours: Vector, theirs: Vector | None, *, sign: float) -> Vector:
    assert theirs is not None
    total: Vector = ours + theirs if sign > 0.0 else ours - theirs
    return total


def _measure(loss: Loss, rows: Rows, *, theta: Vector) -> Magnitude:
    """Return the sizes of what a few rows add to sums at theta."""
    slope, steepness, square, cube, longest = row_sizes(loss, rows, theta=theta)
    curvature, hessian = curvature_sizes(loss, rows, theta=theta)
    return Magnitude(
        row_norm=longest,
        slope=slope,
        steepness=steepness,
        square_norm=square,
        curvature=curvature,
        hessian=hessian,
        moment=cube,
        gram=square,
        weight=rows.total_weight,
        n_entries=most_entries(rows),
    )


def sum_rows(
    loss: Loss,
    rows: RowSource,
    *,
    theta: Vector,
    moment: bool = True,
    intercept_columns: bool = False,
) -> Sums:
    """Return all sums over rows at theta, by one pass.

    Where outputs are many, each further part of the Hessian takes a pass. Each sum has
    the bits that a pass of its own would give it. Without the ``moment``, which
    certificates without rows rest on, it takes half the time.
    """
    if theta.size != rows.n_columns * loss.outputs:
        raise InvalidInput(
            f"theta has {theta.size} parameters; the rows call for "
            f"{rows.n_columns * loss.outputs}"
        )
    point = np.array(theta, dtype=np.float64)
    first, *further = hessian_terms(loss, rows.n_columns, theta=point)
    terms = {
        "overview": overview_term(
            loss, theta=point, intercept_columns=intercept_columns
        ),
        "hessian": first,
        "sizes": size_term(loss, theta=point),
        "entries": entries_term,
    }
    if moment:
        terms["moment"] = moment_term
    if loss.curvature_jump > 0.0:
        terms["kinks"] = kink_term(loss, theta=point)
    totals = dict(zip(terms, block_sums(list(terms.values()), rows), strict=True))
    more = [block_sum(term, rows)[0] for term in further]
    hessian = join_hessian(loss, [totals["hessian"][0], *more])
    seen = read_overview(loss, totals["overview"])
    slope, steepness, square, cube, largest = totals["sizes"]
    weight = rows.total_weight
    return Sums(
        loss=loss,
        theta=point,
        weight=weight,
        n_rows=len(rows),
        gradient=seen.gradient,
        magnitude=Magnitude(
            row_norm=float(largest.value),
            slope=slope,
            steepness=steepness,
            square_norm=square,
            curvature=float(np.trace(seen.curvature)),
            hessian=float(hessian.diagonal.sum()),
            moment=cube,
            gram=square,
            weight=weight,
            n_entries=int(totals["entries"][0].value),
        ),
        roundings=float(rows.n_additions),
        hessian=hessian,
        moment=Symmetric.from_dense(totals["moment"][0]) if moment else None,
        kinks=totals["kinks"][0] if "kinks" in totals else None,
        curvature=seen.curvature,
        intercept_columns=seen.intercept_columns,
    )
