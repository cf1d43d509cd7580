# SPDX-License-Identifier: Apache-2.0
r"""Naive Bayes and nearest centroids, by exact sums over the rows of each class.

With counts N_c of rows and N_cj of column j, all integers, and smoothing a:

    multinomial   log (N_cj + a) / sum_j (N_cj + a)
    complement    the same of all other classes, as weights against the class
    Bernoulli     log (N_cj + a) / (N_c + 2 a), of columns that are there or not
    centroid      N_cj / N_c

Logarithms are published on a grid of 2^-32, each the nearest to its own, so that they
follow from the integers on any machine (``core.decided``).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp
from sklearn import naive_bayes, neighbors
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import Tags

from ..core.arrays import Matrix, Vector
from ..core.decided import LOG_ERROR, quotients, round_logs
from ..core.rows import Rows
from ..core.values import stored
from ..core.whole_sums import (
    Whole,
    WholeSums,
    check_decimals,
    count_by_group,
    entries_of,
    sum_by_group,
    whole_numbers,
    with_entries,
)
from ..exceptions import EmptyClass, InvalidInput
from ..private_model.exact import Formula, groups_of
from ..private_model.labels import Labels
from .exact import ExactClassifier, scores
from .parameters import name_unknown


def sums_by_class(rows: Rows, labels: Labels | None, *, numbers: Any) -> WholeSums:
    """Return how much weight each class has, and its sums of these whole numbers."""
    assert labels is not None
    group, n_groups = groups_of(rows, labels)
    weight = rows.weight
    if np.any(weight != 1.0):
        largest = np.abs(entries_of(numbers))
        if largest.max(initial=0.0) * weight.max() >= 2.0**53:
            raise InvalidInput(
                "X times sample_weight is beyond 2^53; lower the weights"
            )
        each = weight[:, None]
        if not isinstance(numbers, np.ndarray):
            each = np.repeat(weight, np.diff(numbers.indptr))
        numbers = with_entries(numbers, entries_of(numbers) * each)
    return WholeSums(
        {
            "rows": count_by_group(weight, group, n_groups=n_groups),
            "columns": sum_by_group(numbers, group, n_groups=n_groups),
        }
    )


def present(sums: WholeSums, labels: Labels | None) -> tuple[Whole, Whole]:
    """Return weight and sums of the classes that there are, (k,) and (k, d)."""
    assert labels is not None
    return sums.narrow("rows")[labels.codes], sums.narrow("columns")[labels.codes]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CountsByClass(Formula):
    """Naive Bayes over counts: what scikit-learn's parameters of these names mean.

    Attributes
    ----------
    kind
        "multinomial", "complement" or "bernoulli".
    alpha, norm, binarize
        Smoothing; whether complement weights are normalised; above what a column is
        there.
    fit_prior, class_prior
        Whether classes are as likely as their rows, or how likely they are.
    decimals
        The grid of the columns; None for whole numbers.
    """

    kind: str
    alpha: float
    fit_prior: bool
    class_prior: tuple[float, ...] | None
    decimals: int | None = None
    norm: bool = False
    binarize: float | None = None

    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return counts of rows and of columns for each class."""
        return sums_by_class(rows, labels, numbers=self.counted(rows.X))

    def counted(self, X: Any) -> Any:
        """Return what is counted of rows: whole numbers."""
        if self.kind == "bernoulli":
            if self.binarize is not None:
                X = binarized(X, self.binarize)
            return whole_numbers(X, None)
        return whole_numbers(X, self.decimals)

    def describe(self) -> Mapping[str, Any]:
        """Return it as a certificate states it."""
        names = {"multinomial": "MultinomialNB", "complement": "ComplementNB"}
        loss: dict[str, Any] = {"name": names.get(self.kind, "BernoulliNB")}
        if self.kind == "complement":
            loss["norm"] = self.norm
        if self.kind == "bernoulli":
            loss["binarize"] = self.binarize
        else:
            loss["decimals"] = self.decimals
        prior = None if self.class_prior is None else list(self.class_prior)
        return {
            "loss": loss | {"fit_prior": self.fit_prior, "class_prior": prior},
            "penalty": {"name": "Smoothing", "alpha": self.alpha},
            "intercept": True,
            "needs_every_class": False,
        }

    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return logarithms, a column for each class, and those of the classes last."""
        n_rows, counts = present(sums, labels)
        parts = {
            "multinomial": self._multinomial,
            "complement": self._complement,
            "bernoulli": self._bernoulli,
        }
        coef, added = parts[self.kind](counts, n_rows)
        prior = self._prior(n_rows)
        if self.kind == "complement" and len(n_rows) > 1:
            prior = np.zeros_like(prior)
        return np.vstack([coef.T, added + prior]).ravel()

    def _prior(self, n_rows: Whole) -> Vector:
        k = len(n_rows)
        if self.class_prior is not None:
            if len(self.class_prior) != k:
                raise InvalidInput(
                    f"class_prior has {len(self.class_prior)} numbers and there are "
                    f"{k} classes; give one for each"
                )
            given = [Fraction(p) for p in self.class_prior]
            return _logs(np.array(self.class_prior), lambda at: {given[at]: 1})
        if not self.fit_prior:
            return _logs(np.full(k, 1.0 / k), lambda _: {Fraction(1, k): 1})
        total = int(n_rows.sum())
        if not total:
            raise InvalidInput("all weights are zero; nothing can be counted")
        return _logs(n_rows / total, lambda at: {Fraction(int(n_rows[at]), total): 1})

    def _smoothed(self, counts: Whole) -> tuple[Matrix, "Exactly"]:
        """Return (N_cj + a) / sum_j (N_cj + a), and the same as a fraction."""
        a, unit, d = Fraction(self.alpha), 10 ** (self.decimals or 0), counts.shape[1]
        below = [Fraction(int(n), unit) + d * a for n in counts.sum(axis=1).tolist()]
        flat = counts.ravel()
        if not all(below):
            raise InvalidInput("a class counts nothing, and alpha=0 smooths nothing")
        near = (counts / float(unit) + self.alpha) / np.array(
            [[float(one)] for one in below]
        )

        def exactly(at: int) -> Mapping[Fraction, int]:
            return {(Fraction(int(flat[at]), unit) + a) / below[at // d]: 1}

        return near, exactly

    def _multinomial(self, counts: Whole, n_rows: Whole) -> tuple[Matrix, Vector]:
        near, exactly = self._smoothed(counts)
        return _logs(near, exactly), np.zeros(len(n_rows))

    def _complement(self, counts: Whole, n_rows: Whole) -> tuple[Matrix, Vector]:
        near, exactly = self._smoothed(counts.sum(axis=0) - counts)
        logged = _logs(near, exactly)
        # Of numbers on a grid, so that any division gives the same.
        weights = logged / logged.sum(axis=1, keepdims=True) if self.norm else -logged
        return weights, np.zeros(len(n_rows))

    def _bernoulli(self, counts: Whole, n_rows: Whole) -> tuple[Matrix, Vector]:
        """Return log p - log (1 - p) for each column, and sum log (1 - p)."""
        a, d = Fraction(self.alpha), counts.shape[1]
        there = counts + self.alpha
        absent = n_rows[:, None] - counts + self.alpha
        flat, every = counts.ravel(), n_rows.tolist()

        def odds(at: int) -> Mapping[Fraction, int]:
            return {(int(flat[at]) + a) / (every[at // d] - int(flat[at]) + a): 1}

        def nowhere(at: int) -> Mapping[Fraction, int]:
            powers = Counter(counts[at].tolist())
            below = every[at] + 2 * a
            return {(every[at] - n + a) / below: p for n, p in powers.items()}

        near = np.log(absent / (n_rows + 2.0 * self.alpha)[:, None])
        sizes = np.abs(near).sum(axis=1)
        error = LOG_ERROR * (d + sizes) + d * 2.0**-52 * sizes
        none = round_logs(near.sum(axis=1), nowhere, error=error)
        return _logs(there / absent, odds), none


Exactly: TypeAlias = Callable[[int], Mapping[Fraction, int]]


def _logs(near: NDArray[Any], exactly: Exactly) -> Vector:
    with np.errstate(divide="ignore"):
        return round_logs(np.log(near), exactly)


def binarized(X: Any, threshold: float) -> Any:
    """Return 1 where a number is above the threshold, and 0 elsewhere."""
    if sparse.issparse(X) and threshold < 0:
        raise InvalidInput(
            f"binarize={threshold}: of sparse rows it must not be negative"
        )
    return with_entries(X, (entries_of(X) > threshold).astype(np.float64))


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class MeansByClass(Formula):
    """The mean of the rows of each class, each number divided once."""

    decimals: int

    def sums_of(self, rows: Rows, labels: Labels | None) -> WholeSums:
        """Return counts of rows and sums of columns for each class."""
        return sums_by_class(rows, labels, numbers=whole_numbers(rows.X, self.decimals))

    def publish(self, sums: WholeSums, labels: Labels | None) -> Vector:
        """Return the centroids, a column for each class."""
        n_rows, totals = present(sums, labels)
        if not n_rows.all():
            raise EmptyClass(
                "all weights of a class are zero, or it has no rows: it has no mean; "
                "leave classes= out, so that a class leaves with its last row"
            )
        below = n_rows.astype(object) * 10**self.decimals
        means = quotients(totals.astype(object), below[:, None])
        return np.ascontiguousarray(means.T).ravel()

    def describe(self) -> Mapping[str, Any]:
        """Return it as a certificate states it."""
        return {
            "loss": {"name": "NearestCentroid", "decimals": self.decimals},
            "penalty": {"name": "none"},
            "intercept": False,
            "needs_every_class": True,
        }


class NaiveBayes(ExactClassifier):
    """Naive Bayes over counts, which forgets to the last bit."""

    alpha: float
    fit_prior: bool
    class_prior: Sequence[float] | None

    def _counts(self, kind: str, **own: Any) -> CountsByClass:
        """Return the formula of the parameters, once they are checked."""
        check_decimals(self.decimals)
        alpha, prior = self.alpha, self.class_prior
        if not (isinstance(alpha, Real) and isfinite(alpha) and float(alpha) > 0.0):
            raise InvalidInput(
                f"alpha={alpha!r}; smoothing must be a number above zero, or a column "
                "that no row of a class has would rule the class out"
            )
        if prior is not None:
            prior = tuple(float(p) for p in prior)
            if not all(isfinite(p) and p > 0.0 for p in prior):
                raise InvalidInput(f"class_prior={prior}; give numbers above zero")
        return CountsByClass(
            kind, float(alpha), bool(self.fit_prior), prior, self.decimals, **own
        )

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Labels | None]:
        X, y, labels = super()._read(X, y, reset=reset)
        if isinstance(self, BernoulliNB):
            binary = self.binarize is None
            if binary and not np.isin(entries_of(X), (0.0, 1.0)).all():
                raise InvalidInput(
                    "X holds other numbers than 0 and 1, and binarize=None says that "
                    "it does not; set binarize=0.0"
                )
            return X, y, labels
        self._require_counts(X)
        return X, y, labels

    def _require_counts(self, X: Any) -> None:
        if np.min(entries_of(X), initial=0.0) < 0.0:
            raise InvalidInput(
                f"Negative values in data passed to {type(self).__name__} (input X): "
                "counts are not negative"
            )

    @property
    def class_log_prior_(self) -> Vector:
        """The logarithm of how likely each class is, in the last release."""
        return self._public.coefficients[1]

    @property
    def feature_log_prob_(self) -> Matrix:
        """The logarithms of the last release, (k, d), as scikit-learn has them."""
        return self._public.coefficients[0]

    def predict_joint_log_proba(self, X: Any) -> Matrix:
        """Return the joint logarithmic probability of rows and classes."""
        return scores(self, X)

    def predict_log_proba(self, X: Any) -> Matrix:
        """Return the logarithm of the probability of each class."""
        joint = self.predict_joint_log_proba(X)
        found: Matrix = joint - logsumexp(joint, axis=1, keepdims=True)
        return found

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> Any:
        """Return the class of each row."""
        public = self._public
        best = np.argmax(self.predict_joint_log_proba(X), axis=1)
        return np.asarray(public.classes)[best]

    def _fill(self, plain: Any) -> Any:
        plain.classes_ = self.classes_.copy()
        plain.class_log_prior_ = self.class_log_prior_.copy()
        plain.feature_log_prob_ = self.feature_log_prob_.copy()
        plain.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_.copy()
        return plain

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: columns are counts."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not isinstance(self, BernoulliNB)
        tags.classifier_tags.poor_score = True  # on numbers that are no counts
        return tags


class MultinomialNB(NaiveBayes):
    """Multinomial naive Bayes that forgets to the last bit.

    Parameters
    ----------
    alpha, fit_prior, class_prior
        As in scikit-learn: smoothing, and how likely classes are beforehand.
    decimals
        The grid that columns are rounded to. None: they are whole numbers.
    classes
        All classes, declared in advance; without it a class leaves with its last row.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    @name_unknown
    def __init__(
        self,
        alpha: float = 1.0,
        fit_prior: bool = True,
        class_prior: Sequence[float] | None = None,
        decimals: int | None = None,
        classes: Sequence[Any] | None = None,
        keep_data: bool = True,
    ) -> None:
        self.alpha = alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.decimals = decimals
        self.classes = classes
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        return self._counts("multinomial")

    def to_sklearn(self) -> Any:
        """Return scikit-learn's MultinomialNB with the release in it."""
        return self._fill(naive_bayes.MultinomialNB(alpha=self.alpha))


class ComplementNB(NaiveBayes):
    """Complement naive Bayes that forgets to the last bit.

    Parameters
    ----------
    alpha, fit_prior, class_prior, norm
        As in scikit-learn: smoothing, how likely classes are beforehand, and whether
        weights are normalised.
    decimals
        The grid that columns are rounded to. None: they are whole numbers.
    classes
        All classes, declared in advance; without it a class leaves with its last row.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    @name_unknown
    def __init__(
        self,
        alpha: float = 1.0,
        fit_prior: bool = True,
        class_prior: Sequence[float] | None = None,
        norm: bool = False,
        decimals: int | None = None,
        classes: Sequence[Any] | None = None,
        keep_data: bool = True,
    ) -> None:
        self.alpha = alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.norm = norm
        self.decimals = decimals
        self.classes = classes
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        return self._counts("complement", norm=bool(self.norm))

    def to_sklearn(self) -> Any:
        """Return scikit-learn's ComplementNB with the release in it."""
        plain = naive_bayes.ComplementNB(alpha=self.alpha, norm=self.norm)
        return self._fill(plain)


class BernoulliNB(NaiveBayes):
    """Naive Bayes of columns that are there or not, which forgets to the last bit.

    Parameters
    ----------
    alpha, fit_prior, class_prior, binarize
        As in scikit-learn: smoothing, how likely classes are beforehand, and above what
        a column is there; None if the columns are 0 and 1.
    classes
        All classes, declared in advance; without it a class leaves with its last row.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    decimals = None

    @name_unknown
    def __init__(
        self,
        alpha: float = 1.0,
        binarize: float | None = 0.0,
        fit_prior: bool = True,
        class_prior: Sequence[float] | None = None,
        classes: Sequence[Any] | None = None,
        keep_data: bool = True,
    ) -> None:
        self.alpha = alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.classes = classes
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        return self._counts("bernoulli", binarize=self.binarize)

    def _check(self, X: Any) -> Any:
        X = super()._check(X)
        return X if self.binarize is None else binarized(X, self.binarize)

    @property
    def feature_log_prob_(self) -> Matrix:
        """The logarithm of how likely each column is there, (k, d)."""
        odds = self._public.coefficients[0]
        found: Matrix = -np.logaddexp(0.0, -odds)
        return found

    @property
    def class_log_prior_(self) -> Vector:
        """The logarithm of how likely each class is, in the last release."""
        odds, intercept = self._public.coefficients
        found: Vector = intercept + np.logaddexp(0.0, odds).sum(axis=1)
        return found

    def to_sklearn(self) -> Any:
        """Return scikit-learn's BernoulliNB with the release in it."""
        plain = naive_bayes.BernoulliNB(alpha=self.alpha, binarize=self.binarize)
        return self._fill(plain)


class NearestCentroid(ExactClassifier):
    """The class whose mean is nearest, of means that forget to the last bit.

    Parameters
    ----------
    decimals
        The grid that columns are rounded to, each number by itself.
    classes
        All classes, declared in advance; without it a class leaves with its last row.
    keep_data
        Whether the model keeps its rows, so that it knows whose they are.
    """

    @name_unknown
    def __init__(
        self,
        decimals: int = 6,
        classes: Sequence[Any] | None = None,
        keep_data: bool = True,
    ) -> None:
        self.decimals = decimals
        self.classes = classes
        self.keep_data = keep_data

    def _formula(self) -> Formula:
        check_decimals(self.decimals)
        if self.decimals is None:
            raise InvalidInput("decimals=None; say to how many decimals, such as 6")
        return MeansByClass(self.decimals)

    @property
    def centroids_(self) -> Matrix:
        """The means of the last release, (k, d)."""
        return self._public.coefficients[0]

    def predict(self, X: Any) -> Any:
        """Return the class of each row."""
        public = self._public
        nearest = pairwise_distances_argmin(self._check(X), public.coefficients[0])
        return np.asarray(public.classes)[nearest]

    def to_sklearn(self) -> Any:
        """Return scikit-learn's NearestCentroid with the release in it."""
        plain = neighbors.NearestCentroid()
        plain.classes_ = self.classes_.copy()
        plain.centroids_ = self.centroids_.copy()
        plain.class_prior_ = np.full(len(plain.classes_), 1.0 / len(plain.classes_))
        plain.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_.copy()
        return plain
