# SPDX-License-Identifier: Apache-2.0
r"""Ridge and linear regression by exact moments: they forget to the last bit.

Columns x and targets y lie on a grid, so that their moments are integers. With n rows,
sums s and t, and the centred moments (n times the usual ones)

    C = n X'X - s s' ,   c = n X'y - s t ,

the coefficients solve (C + n alpha I) w = c, in integers, and each is published as the
nearest number of a grid that the moments alone determine (``core.decided``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from numbers import Real
from operator import mul
from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from ..core.arrays import Matrix, Vector
from ..core.decided import Solver, solve_rounded
from ..core.rows import Rows
from ..core.values import stored
from ..core.whole_sums import (
    WholeSums,
    check_decimals,
    from_integers,
    products,
    to_integers,
    whole_numbers,
)
from ..exceptions import InvalidInput
from ..private_model.exact import Formula
from ..private_model.labels import Labels
from .exact import ExactEstimator
from .parameters import name_unknown

MOST_COLUMNS = 2000  # a matrix of integers of this width takes half a gibibyte
BITS = 40  # of a coefficient, beside the scale that targets and columns give it
N_PARTS = 10  # n alpha and n X'X have 128 bits more than X'X


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Moments(Formula):
    """Least squares with a penalty alpha |w|^2, from sums of products.

    Attributes
    ----------
    alpha
        The penalty, as its decimals are written: 0.1 is one tenth.
    intercept
        Whether there is one.
    decimals
        The grid of columns and targets.
    """

    alpha: str
    intercept: bool
    decimals: int

    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return all products of ones, columns and targets, (1 + d + k)^2."""
        del labels
        y = rows.y[:, None] if rows.y.ndim == 1 else rows.y
        X = whole_numbers(rows.dense(), self.decimals)
        y = whole_numbers(y, self.decimals, name="y")
        columns = np.hstack([np.ones((len(rows), 1)), X])
        left, right = columns, y
        if np.any(rows.weight != 1.0):
            left, right = (part * rows.weight[:, None] for part in (columns, y))
            if max(np.abs(one).max(initial=0.0) for one in (left, right)) >= 2.0**53:
                raise InvalidInput(
                    "X or y times sample_weight is beyond 2^53; lower the weights"
                )
        return WholeSums(
            {
                "columns": products(left, columns),
                "targets": products(left, y),
                "squares": products(right, y),
            }
        )

    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return coefficients, and the intercept last, a column for each target."""
        del labels
        columns, targets, squares = (
            to_integers(sums.parts[name]) for name in ("columns", "targets", "squares")
        )
        n, s, t = columns[0, 0], columns[0, 1:], targets[0]
        if not n:
            raise InvalidInput("all weights are zero; give some rows weight")
        A, c = columns[1:, 1:], targets[1:]
        spread = squares.diagonal()
        factor = 1
        if self.intercept:
            A, c = n * A - np.outer(s, s), n * c - np.outer(s, t)
            spread, factor = n * spread - t * t, n
        # In units of the grid alpha is one of its squares; its denominator goes across.
        penalty = Fraction(self.alpha) * 10 ** (2 * self.decimals)
        below = penalty.denominator
        A, c, spread = below * A, below * c, below * spread
        if penalty:
            A = A + np.diag([penalty.numerator * factor] * len(A))
        solver = Solver(from_integers(A, N_PARTS))
        found = []
        for k in range(c.shape[1]):
            grid = [
                BITS - (int(spread[k]).bit_length() - one.bit_length()) // 2
                for one in solver.diagonal
            ]
            solved = solve_rounded(solver, c[:, k].tolist(), grid=grid)
            pairs = zip(solved, grid, strict=True)
            coef = [z / Fraction(2) ** g for z, g in pairs]
            theta = [float(one) for one in coef]
            if self.intercept:
                rest = t[k] - sum(map(mul, map(Fraction, s.tolist()), coef))
                theta.append(float(rest / (n * 10**self.decimals)))
            found.append(theta)
        return np.array(found).T.ravel()

    def describe(self) -> Mapping[str, Any]:
        """Return it as a certificate states it."""
        return {
            "loss": {"name": "SquaredError", "decimals": self.decimals},
            "penalty": {"name": "SquaredNorm", "alpha": float(self.alpha)},
            "intercept": self.intercept,
            "needs_every_class": False,
        }


class MomentsEstimator(MultiOutputMixin, RegressorMixin, ExactEstimator):
    """Least squares by exact moments, for one target or several."""

    decimals: int
    fit_intercept: bool

    def _moments(self, alpha: Any) -> Moments:
        """Return the formula of the parameters, once they are checked."""
        check_decimals(self.decimals)
        if self.decimals is None:
            raise InvalidInput("decimals=None; say to how many decimals, such as 6")
        if not (isinstance(alpha, Real) and isfinite(alpha) and float(alpha) >= 0.0):
            raise InvalidInput(f"alpha={alpha!r}; it must be a number, not below zero")
        return Moments(repr(float(alpha)), bool(self.fit_intercept), self.decimals)

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Labels | None]:
        if y is None:
            raise InvalidInput(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None"
            )
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=reset
        )
        if X.shape[1] > MOST_COLUMNS:
            mebibytes = X.shape[1] ** 2 * 200 >> 20
            raise InvalidInput(
                f"X has {X.shape[1]} columns, and exact moments are for {MOST_COLUMNS} "
                f"at most (their products would take {mebibytes} MiB); "
                "take LinearRegression, which forgets up to noise"
            )
        y = np.asarray(y, dtype=np.float64)
        if reset:
            self._n_targets = None if y.ndim == 1 else y.shape[1]
        elif self._public.n_targets != (None if y.ndim == 1 else y.shape[1]):
            raise InvalidInput("y has another number of targets than at the fit")
        return X, y, None

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release: (d,), or (k, d) for several targets."""
        public = self._public
        coef = public.coefficients[0]
        return coef[0] if public.n_targets is None else coef

    @property
    def intercept_(self) -> Any:
        """Intercept of the last release: a number, or one for each target."""
        public = self._public
        intercept = public.coefficients[1]
        return intercept[0] if public.n_targets is None else intercept

    def predict(self, X: Any) -> Any:
        """Return the predictions: (n,), or (n, k) for several targets."""
        public = self._public
        coef, intercept = public.coefficients
        X = validate_data(self, X, dtype=np.float64, reset=False)
        found = X @ coef.T + intercept
        return found[:, 0] if public.n_targets is None else found

    def _fill(self, plain: Any) -> Any:
        plain.coef_, plain.intercept_ = np.array(self.coef_), np.array(self.intercept_)
        plain.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_.copy()
        return plain


class ExactRidge(MomentsEstimator):
    """Ridge regression that forgets to the last bit.

    Minimises |y - X w - b|^2 + alpha |w|^2, as scikit-learn's ``Ridge`` does, at the
    rows rounded to the grid.

    Parameters
    ----------
    alpha
        The penalty, above zero.
    fit_intercept
        Whether there is an intercept.
    decimals
        The grid that X and y are rounded to, each number by itself.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    @name_unknown
    def __init__(
        self,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        decimals: int = 6,
        keep_data: bool = True,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.decimals = decimals
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        return self._moments(self.alpha)

    def to_sklearn(self) -> Any:
        """Return scikit-learn's Ridge with the release in it."""
        return self._fill(linear_model.Ridge(alpha=self.alpha))


class ExactLinearRegression(MomentsEstimator):
    """Least squares that forget to the last bit.

    Columns that depend on one another are refused: no one solution is then best.

    Parameters
    ----------
    fit_intercept
        Whether there is an intercept.
    decimals
        The grid that X and y are rounded to, each number by itself.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    @name_unknown
    def __init__(
        self, fit_intercept: bool = True, decimals: int = 6, keep_data: bool = True
    ) -> None:
        self.fit_intercept = fit_intercept
        self.decimals = decimals
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        return self._moments(0.0)

    def to_sklearn(self) -> Any:
        """Return scikit-learn's LinearRegression with the release in it."""
        return self._fill(linear_model.LinearRegression())
