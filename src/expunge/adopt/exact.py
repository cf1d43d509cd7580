# SPDX-License-Identifier: Apache-2.0
"""Adopt scikit-learn's naive Bayes and nearest centroids, which are exact sums of rows.

Nothing is solved: the same sums are taken of the rows, and the numbers of the fitted
model must be those that follow from them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import naive_bayes, neighbors
from sklearn.utils.validation import check_is_fitted

from ..exceptions import InvalidInput, Unsupported
from ..linear_model.exact import ExactClassifier
from ..linear_model.naive_bayes import (
    BernoulliNB,
    ComplementNB,
    MultinomialNB,
    NearestCentroid,
)

OPTIONS = ("classes", "decimals", "keep_data", "sample_weight")
# scikit-learn sums in floating point; ours are rounded once.
SAME = 1e-7


@dataclass(frozen=True, slots=True)
class _Adoptable:
    """What a model becomes, which parameters it takes along, and what must agree."""

    ours: Callable[..., ExactClassifier]
    parameters: tuple[str, ...]
    results: tuple[str, ...]


PRIORS = ("alpha", "fit_prior", "class_prior")
LOGARITHMS = ("feature_log_prob_", "class_log_prior_")
KINDS: Mapping[type, _Adoptable] = {
    naive_bayes.MultinomialNB: _Adoptable(MultinomialNB, PRIORS, LOGARITHMS),
    naive_bayes.BernoulliNB: _Adoptable(BernoulliNB, (*PRIORS, "binarize"), LOGARITHMS),
    # Of several classes it does not use the priors.
    naive_bayes.ComplementNB: _Adoptable(
        ComplementNB, (*PRIORS, "norm"), LOGARITHMS[:1]
    ),
    neighbors.NearestCentroid: _Adoptable(NearestCentroid, (), ("centroids_",)),
}
# What a nearest centroid must not be asked for, and what ours is.
PLAIN = {"metric": "euclidean", "shrink_threshold": None, "priors": "uniform"}


def adopt_exact(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    subjects: Iterable[object] | None,
    options: Mapping[str, Any],
) -> ExactClassifier:
    """Return a model that forgets to the last bit, from one of ``KINDS``."""
    check_is_fitted(estimator)
    kind, name = KINDS[type(estimator)], type(estimator).__name__
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise InvalidInput(
            f"from_sklearn does not take {', '.join(unknown)} for {name}, which "
            "becomes a model of exact sums without noise; it takes "
            f"{', '.join(OPTIONS)}"
        )
    if isinstance(estimator, neighbors.NearestCentroid):
        for parameter, wanted in PLAIN.items():
            value = getattr(estimator, parameter)
            if value != wanted:
                raise Unsupported(
                    f"{name} with {parameter}={value!r} is not a function of exact "
                    f"sums; fit it with {parameter}={wanted!r}, then adopt it"
                )
    given = dict(options)
    weight = given.pop("sample_weight", None)
    settings = {one: getattr(estimator, one) for one in kind.parameters}
    model = kind.ours(**settings, **given)
    model.fit(X, y, subjects=subjects, sample_weight=weight)
    theirs = [estimator.classes_, *(getattr(estimator, one) for one in kind.results)]
    ours = [model.classes_, *(getattr(model, one) for one in kind.results)]
    for result, one, other in zip(
        ("classes_", *kind.results), theirs, ours, strict=True
    ):
        if not _are_same(one, other):
            raise InvalidInput(
                f"{result} of {name} does not follow from these rows; pass the X, y "
                "and sample_weight that it was fitted on"
            )
    return model


def _are_same(one: Any, other: Any) -> bool:
    """Return whether results are the same, but for the rounding of long sums."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool((one == other).all())
    return bool(np.allclose(one, other, rtol=SAME, atol=SAME))
