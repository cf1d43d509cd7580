# SPDX-License-Identifier: Apache-2.0
r"""The objective: mean loss plus penalty plus ridge, as a value without data.

For rows S with weights w_i, W = sum of the weights,

    F_S(theta) = (1/W) sum_S w_i loss(y_i, x_i.theta)
                 + alpha penalty(theta) + (ridge/2) |theta|^2 .

Conventions. ``theta`` is a vector of d*k parameters: the (d, k) matrix of
coefficients, row by row, k the outputs of the loss. With an intercept the last
row belongs to a column of ones; neither penalty nor ridge touches it unless
``penalize_intercept``. The *smooth part* is loss + ridge + the penalty's
quadratic; the kink of the penalty enters through ``shrink`` alone.

The target of a removal is what fitting the remaining rows gives. ``scaling``
says which objective that fit minimises: "mean" keeps alpha and ridge, "sum"
keeps alpha W and ridge W, as scikit-learn does at a constant C = 1/(alpha W).

``Objective.rows`` makes training rows of a design matrix with labels and weights: it
checks the values and appends the intercept's column of ones.
"""

from dataclasses import dataclass, replace
from math import isfinite, sqrt
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csr_array

from ..exceptions import InvalidInput
from .arrays import Design, Vector, row_norms, row_squares
from .linalg import Symmetric
from .losses import Loss
from .penalties import Penalty
from .rows import Rows
from .split import SplitMatrix
from .values import LARGEST, SMALLEST, require_magnitude, stored

Scaling: TypeAlias = Literal["mean", "sum"]


@stored
@dataclass(frozen=True, slots=True)
class Objective:
    """A regularised convex objective, complete but for the rows.

    Parameters
    ----------
    loss, penalty
        What is lost on a row and what coefficients cost.
    alpha
        Positive factor of the penalty (the paper's lambda).
    ridge
        Non-negative factor of |theta|^2 / 2 beside the penalty.
    scaling
        "mean" or "sum"; see the module docstring.
    intercept
        Whether a column of ones is appended to every design.
    penalize_intercept
        Whether penalty and ridge act on the intercept too.
    C
        1/(alpha W), if alpha follows from it. Certificates then state C: it is the same
        no matter who leaves, and alpha would tell W.
    """

    loss: Loss
    penalty: Penalty
    alpha: float
    ridge: float = 0.0
    scaling: Scaling = "mean"
    intercept: bool = False
    penalize_intercept: bool = False
    C: float | None = None

    def __post_init__(self) -> None:
        """Refuse factors and switches outside their domain."""
        # Objectives that are equal read the same in a certificate: 1 is no True there.
        for name, given in (("alpha", self.alpha), ("ridge", self.ridge)):
            if not isinstance(given, Real):
                raise InvalidInput(f"{name}={given!r}; it must be a number")
            object.__setattr__(self, name, float(given))
        if not (isfinite(self.alpha) and self.alpha > 0.0):
            raise InvalidInput(f"alpha={self.alpha}; it must be a positive number")
        require_magnitude("alpha", self.alpha)
        if not (isfinite(self.ridge) and self.ridge >= 0.0):
            raise InvalidInput(f"ridge={self.ridge}; it must be zero or positive")
        if self.ridge:
            require_magnitude("ridge", self.ridge)
        if self.scaling not in ("mean", "sum"):
            raise InvalidInput(f"scaling={self.scaling!r}; choose 'mean' or 'sum'")
        if self.C is not None and (self.scaling != "sum" or self.ridge):
            raise InvalidInput(
                f"C={self.C} with scaling={self.scaling!r}, ridge={self.ridge}; it "
                "needs 'sum' and no ridge"
            )
        if self.penalize_intercept and not self.intercept:
            raise InvalidInput("penalize_intercept=True needs intercept=True")
        for name in ("intercept", "penalize_intercept"):
            object.__setattr__(self, name, bool(getattr(self, name)))

    @property
    def stricter(self) -> str:
        """How to penalise more, in the words in which its factor was chosen."""
        return "raise alpha or ridge" if self.C is None else "lower C"

    @property
    def smooth(self) -> bool:
        """Whether the whole objective is smooth."""
        return self.penalty.smooth

    @property
    def needs_every_class(self) -> bool:
        """Whether there is one minimiser only if every class has rows.

        A free intercept runs off to infinity, or is not determined, where a loss of
        margins sees one side alone.
        """
        return self.n_free > 0 and self.loss.margin

    @property
    def quadratic(self) -> float:
        """mu: the factor of |theta|^2 / 2 over the penalised coefficients."""
        return self.alpha * self.penalty.strong_convexity + self.ridge

    def quadratic_form(self, n_parameters: int) -> tuple[Vector, Vector | None]:
        """Return the Hessian of the quadratic as a diagonal and a gauge vector.

        The gauge g adds (g.theta)^2 / 2. It is there when the loss does not feel
        a constant added to all outputs and nothing penalises the intercepts: it
        pins their sum to zero and leaves the minimum as it is.
        """
        diagonal = np.full(n_parameters, self.quadratic)
        if not self.n_free:
            return diagonal, None
        diagonal[-self.n_free :] = 0.0
        if not self.loss.shift_invariant:
            return diagonal, None
        gauge = np.zeros(n_parameters)
        gauge[-self.n_free :] = 1.0 / sqrt(self.n_free)
        return diagonal, gauge

    def quadratic_gradient(self, theta: Vector, *, scale: float = 1.0) -> Vector:
        """Return the gradient of the quadratic at theta, times a number."""
        gradient = (scale * self.quadratic) * theta
        if not self.n_free:
            return gradient
        free, gradient[-self.n_free :] = theta[-self.n_free :], 0.0
        if self.loss.shift_invariant:
            gauge = np.full(self.n_free, 1.0 / sqrt(self.n_free))
            gradient[-self.n_free :] = scale * (gauge @ free) * gauge
        return gradient

    def penalty_value(self, theta: Vector) -> float:
        """Return all that does not depend on rows: penalty, ridge, gauge."""
        quadratic = 0.5 * float(self.quadratic_gradient(theta) @ theta)
        part = theta[: theta.size - self.n_free].reshape(-1, self.loss.outputs)
        return quadratic + self.alpha * self.penalty.kink(part)

    def shrink(
        self, v: Vector, step: float | Vector, *, outputs: int | None = None
    ) -> Vector:
        """Return the proximal operator of step times alpha times the kink.

        For a separable penalty v may be the coefficients of fewer ``outputs``.
        """
        if self.penalty.smooth:
            return v
        outputs = self.loss.outputs if outputs is None else outputs
        end = v.size - self.n_free // self.loss.outputs * outputs
        if isinstance(step, np.ndarray):
            step = step[:end].reshape(-1, outputs)
        shrunk = v.copy()
        part = v[:end].reshape(-1, outputs)
        shrunk[:end] = self.penalty.shrink(part, self.alpha * step).ravel()
        return shrunk

    def nearest_subgradient(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the subgradient of alpha kink at theta that cancels most of this."""
        if self.penalty.smooth:
            return np.zeros_like(theta)
        end, outputs = theta.size - self.n_free, self.loss.outputs
        parts = (v[:end].reshape(-1, outputs) for v in (theta, gradient / -self.alpha))
        found = np.zeros_like(theta)
        found[:end] = self.alpha * self.penalty.subgradient(*parts).ravel()
        return found

    def after(self, kept: float) -> "Objective":
        """Return the objective of a fit on the remaining share ``kept`` of W."""
        if self.scaling == "mean":
            return self
        return replace(self, alpha=self.alpha / kept, ridge=self.ridge / kept)

    def rows(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Rows:
        """Check a design with labels and weights and return it as Rows.

        Raises InvalidInput on NaN, infinite values, wrong shapes or labels
        outside the domain of the loss.
        """
        labels = self.loss.labels(y)
        design = self.design(X)
        n_samples, n_columns = design.shape
        if len(labels) != n_samples:
            raise InvalidInput(
                f"X has {n_samples} rows and y has {len(labels)} labels; "
                "give one label for each row"
            )
        self.require_columns(n_columns)
        return Rows(design, labels, check_weights(sample_weight, n_samples))

    def require_columns(self, n_columns: int) -> None:
        """Raise InvalidInput unless the penalty fits designs so wide."""
        free_rows = self.n_free // self.loss.outputs
        self.penalty.require_shape(n_columns - free_rows, self.loss.outputs)

    @property
    def n_free(self) -> int:
        """How many trailing parameters nothing penalises."""
        unpenalised = self.intercept and not self.penalize_intercept
        return self.loss.outputs if unpenalised else 0

    def design(self, X: Any) -> Any:
        """Return X as finite float64, dense or CSR, with the column of ones.

        Split rows come with theirs.
        """
        if isinstance(X, SplitMatrix):
            _require_representable(X, self.intercept)
            return X
        if sparse.issparse(X):
            return sparse_design(X, self.intercept)
        try:
            dense: NDArray[Any] = np.ascontiguousarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"X must hold numbers: {error}") from error
        if dense.ndim != 2:
            raise InvalidInput(
                f"X has shape {dense.shape}; it must be (rows, features), even for a "
                "single row"
            )
        _require_representable(dense, self.intercept)
        if self.intercept:
            dense = np.hstack([dense, np.ones((len(dense), 1))])
        return dense


def add_quadratic(
    objective: Objective, hessian: Symmetric, *, scale: float = 1.0
) -> Symmetric:
    """Return the loss's Hessian plus scale times the objective's quadratic."""
    diagonal, gauge = objective.quadratic_form(hessian.size)
    shifted = hessian.add_diagonal(scale * diagonal)
    return shifted if gauge is None else shifted.update(scale, gauge[None, :])


def sparse_design(X: Any, intercept: bool) -> Design:
    """Return a sparse X as CSR, with the column of ones if asked for."""
    matrix = _with_narrow_indices(sparse.csr_array(X, dtype=np.float64))
    if not matrix.has_canonical_format:  # entries given twice mean their sum
        matrix = matrix.copy()
        matrix.sum_duplicates()
    _require_representable(matrix, intercept)
    return _append_ones(matrix) if intercept else matrix


def _with_narrow_indices(matrix: Any) -> csr_array[Any, tuple[int, int]]:
    """Return a CSR matrix with indices of 32 bits, unless it is too large for them."""
    n_rows, n_columns = matrix.shape
    largest = max(matrix.nnz + n_rows, n_columns)  # with a column of ones
    kind = np.int32 if largest < np.iinfo(np.int32).max else np.int64
    if matrix.indices.dtype == matrix.indptr.dtype == kind:
        same: csr_array[Any, tuple[int, int]] = matrix
        return same
    indices, indptr = (part.astype(kind) for part in (matrix.indices, matrix.indptr))
    return sparse.csr_array((matrix.data, indices, indptr), shape=matrix.shape)


def _append_ones(matrix: Any) -> csr_array[Any, tuple[int, int]]:
    """Return a CSR matrix with a column of ones after its last."""
    n_rows, n_columns = matrix.shape
    ends = matrix.indptr[1:]
    parts = (
        np.insert(matrix.data, ends, 1.0),
        np.insert(matrix.indices, ends, n_columns),
        matrix.indptr + np.arange(n_rows + 1, dtype=matrix.indptr.dtype),
    )
    return sparse.csr_array(parts, shape=(n_rows, n_columns + 1))


def _require_representable(X: Any, intercept: bool) -> None:
    """Raise InvalidInput on NaN, infinity and rows beyond the range of what is taken.

    The squares of the norms tell at once. A column of ones makes a short row long
    enough, and an entry that is small beside others of its row does no harm.
    """
    squares = row_squares(X)
    if len(squares) == 1 and SMALLEST**2 < float(squares[0]) < LARGEST**2:
        return  # most requests are one row: faster than by the arrays below
    good = (squares > SMALLEST**2) & (squares < LARGEST**2)
    if good.all():
        return
    entries: Any = X.numbers if isinstance(X, SplitMatrix) else X
    values = np.asarray(entries.data if sparse.issparse(X) else entries)
    finite = np.isfinite(values)
    if not finite.all():
        raise InvalidInput(
            f"X holds NaN or infinite values ({int((~finite).sum())} of them); impute "
            "or drop them first"
        )
    norms = row_norms(X[~good])
    bad = norms > LARGEST
    if not intercept:
        bad |= (norms > 0.0) & (norms < SMALLEST)
    if bad.any():
        raise InvalidInput(
            f"a row of X has norm {norms[bad][0]:.3g}; the norm of a row must be zero "
            f"or between {SMALLEST:g} and {LARGEST:g}: rescale its columns"
        )


def check_weights(sample_weight: ArrayLike | None, n_samples: int) -> Vector:
    """Return one finite non-negative weight for each row."""
    if sample_weight is None:
        return np.ones(n_samples)
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"sample_weight must be numbers: {error}") from error
    if weight.shape != (n_samples,):
        raise InvalidInput(
            f"sample_weight has shape {weight.shape} and X has {n_samples} rows; give "
            "one weight for each row"
        )
    if not (np.isfinite(weight).all() and (weight >= 0.0).all()):
        raise InvalidInput("sample_weight must be finite and not negative")
    if (weight > LARGEST).any():
        raise InvalidInput(
            f"sample_weight holds {weight.max():.3g}; a weight must be at most "
            f"{LARGEST:g}: divide all of them by the same factor"
        )
    return weight
