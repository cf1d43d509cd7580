# SPDX-License-Identifier: Apache-2.0
"""What a fit in the registry is told: weights, and what was chosen on the data."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.model_selection import GridSearchCV

from expunge import Budget, from_sklearn, load, verify
from expunge.exceptions import InvalidInput
from expunge.linear_model.base import private_model
from expunge.linear_model.fitting import read_shipped, ship
from expunge.linear_model.tuned import TunedClassifier
from expunge.promise.scope import CHOSEN, OTHER_RELEASES
from expunge.registry import Registry
from tests.registries import BUDGET, by_name, data, estimator, private_model_of

SEARCHES = ("grid search", GridSearchCV(estimator(), {"alpha": [1.0]}))


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Lend an empty registry."""
    with Registry.create(tmp_path / "registry") as registry:
        yield registry


class TestWeights:
    @pytest.mark.parametrize("scaling", ["mean", "sum"])
    def test_reach_the_model_and_go_with_their_rows(
        self, registry: Registry, scaling: str
    ) -> None:
        X, y, owners = data()
        weight = np.linspace(0.0, 3.0, len(X))
        model = estimator(scaling=scaling, budget=Budget(sigma=1e-3))
        registry.fit("model", model, X, y, subjects=owners, sample_weight=weight)
        registry.forget(["person 50"])
        stay = np.array(owners) != "person 50"
        share = weight[stay].sum() / weight.sum()
        assert model.alpha is not None
        alpha = model.alpha / (1.0 if scaling == "mean" else share)
        retrained = estimator(alpha=alpha, budget=None)
        retrained.fit(X[stay], y[stay], sample_weight=weight[stay])
        custody = private_model_of(registry, "model")
        theta = private_model(retrained).answer.draft.theta
        gap = np.linalg.norm(custody.answer.draft.theta - theta)
        assert gap <= custody.answer.radius.value
        plain = estimator(alpha=alpha, budget=None).fit(X[stay], y[stay])
        apart = private_model(plain).answer.draft.theta - theta
        assert np.linalg.norm(apart) > 10.0 * custody.answer.radius.value

    def test_reach_a_model_in_the_place_of_another(self, registry: Registry) -> None:
        registry.fit("model", estimator(), **by_name(data()))
        weight = np.arange(1.0, 121.0)
        registry.models.refit(
            "model", estimator(), **by_name(data()), sample_weight=weight.tolist()
        )
        assert np.array_equal(registry.models.case("model").rows.weight, weight)

    @pytest.mark.parametrize("weight", [[1.0, 2.0], [-1.0] * 120, [np.nan] * 120])
    def test_in_doubt_are_refused(self, registry: Registry, weight: Any) -> None:
        with pytest.raises(ValueError):
            registry.fit("model", estimator(), **by_name(data()), sample_weight=weight)
        assert registry.models.names() == []


class TestSearch:
    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("kind", ["plain", "tuned"])
    def test_is_stated_for_good(
        self, registry: Registry, search: object, kind: str
    ) -> None:
        model: Any = estimator()
        if kind == "tuned":
            model = TunedClassifier(alphas=(1.0, 0.1), budget=BUDGET, folds=3)
        registry.fit("model", model, **by_name(data()), search=search)
        for person in ("person 3", "person 4"):
            (status,) = registry.status().models
            certificate = status.certificate
            assert certificate.status == "no promise"
            assert certificate.selection == "not covered"
            assert CHOSEN in certificate.not_covered
            assert verify(certificate, registry.models.record("model")).valid
            registry.forget([person])

    def test_of_one_fit_is_not_that_of_the_next(self, registry: Registry) -> None:
        registry.fit("model", estimator(), **by_name(data()))
        assert registry.model("model").certificate_.status == "certified"
        registry.models.refit("model", estimator(), **by_name(data()), search="by eye")
        assert registry.model("model").certificate_.status == "no promise"
        registry.models.refit("model", estimator(), **by_name(data()))
        assert registry.model("model").certificate_.status == "certified"


class TestWhatWasDeclaredBefore:
    """A model that was fitted, declared or adopted elsewhere keeps its claims here."""

    def test_a_declared_search_stays_declared(self, registry: Registry) -> None:
        model = estimator(budget=BUDGET).fit(*data()[:2]).declare_tuned(SEARCHES[1])
        for name, given in (("a", model), ("b", pickle.loads(pickle.dumps(model)))):
            registry.fit(name, given, **by_name(data()))
            paper = registry.model(name).certificate_
            assert (paper.status, paper.selection) == ("no promise", "not covered")
            assert CHOSEN in paper.not_covered
            assert verify(paper, registry.models.record(name)).valid

    def test_adopted_classes_stay_balanced(self, registry: Registry) -> None:
        X, y, owners = data()
        y = np.where(np.arange(len(y)) % 4 == 0, y, 0)
        balanced = SklearnLogistic(class_weight="balanced").fit(X, y)
        model = from_sklearn(balanced, X, y, owners)
        registry.fit("model", model, X, y, subjects=owners)
        release = registry.model("model")
        assert release.class_weight == "balanced"
        assert release.certificate_.selection == "not known"
        np.testing.assert_array_equal(release.predict(X), model.predict(X))
        np.testing.assert_allclose(release.coef_, model.coef_, atol=1e-9)

    def test_weights_of_a_fit_must_be_given(
        self, registry: Registry, tmp_path: Path
    ) -> None:
        X, y, owners = data()
        model = estimator().fit(X, y, sample_weight=np.arange(1.0, len(X) + 1.0))
        model.save(tmp_path / "saved")
        ship(model, tmp_path / "shipped.safetensors")
        copies = (
            load(tmp_path / "saved"),
            read_shipped(tmp_path / "shipped.safetensors"),
        )
        for given in (model, pickle.loads(pickle.dumps(model)), *copies):
            with pytest.raises(InvalidInput, match="fitted with weights"):
                registry.fit("model", given, X, y, subjects=owners)
        registry.fit(
            "model", clone(model), X, y, subjects=owners
        )  # as was never fitted

    def test_an_earlier_fit_under_the_contract_is_told(
        self, registry: Registry
    ) -> None:
        fresh = estimator(budget=replace(BUDGET, releases=5))
        registry.fit("first", fresh, **by_name(data()))
        assert OTHER_RELEASES not in registry.model("first").certificate_.not_covered
        registry.fit("second", fresh, **by_name(data()))
        registry.models.refit("first", estimator(), **by_name(data()))
        for name in ("first", "second"):
            paper = registry.model(name).certificate_
            assert OTHER_RELEASES in paper.not_covered
            assert verify(paper, registry.models.record(name)).valid
