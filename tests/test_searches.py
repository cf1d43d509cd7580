# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's searches: what certificates of the models they fit may say."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import Budget, load
from expunge.exceptions import InvalidInput
from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
)
from expunge.registry import Registry

ALPHAS = {"alpha": [1e-1, 1e-4]}
X, Y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)[:200]
Y = Y[:200]
ESTIMATORS = [LogisticRegression(), SoftmaxRegression(), LinearRegression()]


def _grid(model: Any) -> Any:
    return GridSearchCV(model, ALPHAS, cv=2).fit(X, Y).best_estimator_


def _random(model: Any) -> Any:
    search = RandomizedSearchCV(model, ALPHAS, n_iter=2, cv=2, random_state=0)
    return search.fit(X, Y).best_estimator_


def _halving(model: Any) -> Any:
    search = HalvingGridSearchCV(
        model, ALPHAS, resource="n_samples", min_resources=100, cv=2, random_state=0
    )
    return search.fit(X, Y).best_estimator_


def _folds(model: Any) -> Any:
    return cross_validate(model, X, Y, cv=2, return_estimator=True)["estimator"][0]


def _pipeline(model: Any) -> Any:
    whole = make_pipeline(StandardScaler(), model)
    name = type(model).__name__.lower()
    grid = {f"{name}__alpha": ALPHAS["alpha"]}
    return GridSearchCV(whole, grid, cv=2).fit(X, Y).best_estimator_[-1]


SEARCHES = [_grid, _random, _halving, _folds, _pipeline]


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__[1:])
@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_what_a_search_fits_does_not_say_that_nothing_was_chosen(
    model: Any, search: Callable[[Any], Any]
) -> None:
    """Nor if that was declared of the estimator that the search was given."""
    for selection in (None, "none"):
        given = clone(model).set_params(budget=Budget())
        given.selection = selection
        best = search(given)
        assert best.certificate_.selection == "not known"
        assert best.certificate_.status == "certified"
        assert given.selection == selection  # the caller's own stays as it was


def test_who_declares_it_is_believed() -> None:
    model = LogisticRegression(budget=Budget(), selection="none").fit(X, Y)
    assert model.certificate_.selection == "none"
    assert model.forget(rows=[3]).certificate_.selection == "none"
    assert model.fit(X, Y).certificate_.selection == "none"
    assert model.declare_tuned("a notebook").certificate_.selection == "not covered"
    assert clone(model).fit(X, Y).certificate_.selection == "not known"


def test_a_search_that_is_declared_is_not_covered() -> None:
    search = GridSearchCV(LogisticRegression(budget=Budget()), ALPHAS, cv=2).fit(X, Y)
    best = search.best_estimator_.declare_tuned(search)
    assert best.certificate_.selection == "not covered"
    assert best.certificate_.status == "no promise"


def test_other_words_are_refused() -> None:
    given: list[Any] = ["not known", "certified", True]
    for words in given:
        model = LogisticRegression(selection=words)
        with pytest.raises(InvalidInput, match="selection="):
            model.fit(X, Y)


def test_tuned_models_know_how_they_chose() -> None:
    model = TunedClassifier(alphas=ALPHAS["alpha"], folds=2, budget=Budget())
    assert model.fit(X, Y).certificate_.selection == "certified"
    assert clone(model).fit(X, Y).certificate_.selection == "certified"


def test_declarations_last(tmp_path: Any) -> None:
    """In a file, and in a registry, which fits a copy of its own."""
    model = LogisticRegression(budget=Budget(), selection="none")
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("given", model, X, Y)
        assert registry.model("given").certificate_.selection == "none"
        registry.fit("plain", LogisticRegression(budget=Budget()), X, Y)
        assert registry.model("plain").certificate_.selection == "not known"
    model.fit(X, Y).save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.forget(rows=[5]).certificate_.selection == "none"


def test_scores_of_a_search_without_a_budget_have_no_noise() -> None:
    """With one they have that of the releases they are scores of."""

    def scores(budget: Budget | None) -> Any:
        return cross_val_score(LinearRegression(budget=budget), X, Y, cv=3)

    assert np.array_equal(scores(None), scores(None))
    noisy = Budget(sigma=1.0)
    assert not np.array_equal(scores(noisy), scores(noisy))
    # The noise of the default is too small to choose by.
    assert np.abs(scores(Budget()) - scores(None)).max() < 0.01
