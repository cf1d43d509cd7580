# SPDX-License-Identifier: Apache-2.0
"""People in a registry: one under every spelling of the id, and none by position."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge.exceptions import InvalidInput, StoreFailed, UnknownSubject
from expunge.ledger import Receipt
from expunge.linear_model.tuned import TunedClassifier
from expunge.promise.scope import NO_PEOPLE
from expunge.registry import Registry, Request
from expunge.rights.identifiers import SPELLING
from tests.registries import (
    A_REQUEST,
    BUDGET,
    data,
    estimator,
    private_model_of,
    require_consistent,
    require_may_return,
)

COMPOSED, DECOMPOSED = "Zo\u00eb", "Zoe\u0308"
SPELLINGS = (COMPOSED, DECOMPOSED, f" {COMPOSED}", f"{DECOMPOSED}\u00a0")


def owners(*first: object) -> list[Any]:
    """Return whose row each is, the first rows being these people's."""
    return [*first, *data()[2][len(first) :]]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Lend a registry with a model in which one person is spelled in four ways."""
    X, y, _ = data()
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("all", estimator(), X, y, subjects=owners(*SPELLINGS, 7, "7"))
        yield registry


class TestSpelling:
    def test_one_person_is_one_in_a_fit(self, registry: Registry) -> None:
        others = set(data()[2][6:])
        assert registry.status().models[0].n_people == 2 + len(others)
        assert registry.requests.find_models([*SPELLINGS, 7]) == {
            COMPOSED: ("all",),
            "7": ("all",),
        }

    @pytest.mark.parametrize("spelling", SPELLINGS)
    def test_each_spelling_removes_all_rows(
        self, registry: Registry, spelling: str
    ) -> None:
        registry.forget([spelling])
        assert len(registry.models.case("all").rows) == len(data()[0]) - len(SPELLINGS)
        assert registry.requests.find_models(SPELLINGS) == {COMPOSED: ()}
        require_consistent(registry)

    def test_request_counts_a_person_once(self, registry: Registry) -> None:
        receipt = registry.forget([*SPELLINGS, " 7 ", 7], A_REQUEST)
        assert registry.requests.status(A_REQUEST).n_subjects == 2
        assert Receipt.from_json(receipt).entry.n_subjects == 2
        assert registry.status().models[0].certificate.n_subjects_removed == 2

    def test_same_request_in_another_spelling(self, registry: Registry) -> None:
        receipt = registry.forget([COMPOSED, "7"], A_REQUEST)
        assert registry.forget([" 7", DECOMPOSED, COMPOSED], A_REQUEST) == receipt
        both = [
            Request((DECOMPOSED, "7"), A_REQUEST),
            Request(("7 ", COMPOSED), A_REQUEST),
        ]
        first, second = registry.requests.accept(both)
        assert first == second == registry.requests.status(A_REQUEST)
        with pytest.raises(InvalidInput, match="asked for something else"):
            registry.forget([COMPOSED], A_REQUEST)
        assert registry.status().n_requests == 1

    def test_forgotten_people_do_not_return_under_another_spelling(
        self, registry: Registry
    ) -> None:
        X, y, _ = data()
        registry.forget([COMPOSED])
        with pytest.raises(InvalidInput, match=r"people who were forgotten \(1\)"):
            registry.fit("again", estimator(), X, y, subjects=owners(DECOMPOSED))
        registry.requests.readmit([f"\t{DECOMPOSED}"])
        registry.fit("again", estimator(), X, y, subjects=owners(COMPOSED))

    def test_settings_state_it(self, registry: Registry, tmp_path: Path) -> None:
        place = tmp_path / "registry" / "registry.json"
        settings = json.loads(place.read_text())
        assert settings["ids"] == SPELLING == "NFC, stripped"
        another = settings | {"ids": "as given"}
        lacking = {name: settings[name] for name in settings if name != "ids"}
        for other, said in ((another, "'as given'"), (lacking, "damaged")):
            place.write_text(json.dumps(other))
            with pytest.raises(StoreFailed, match=said):
                Registry.open(tmp_path / "registry")


class TestMissing:
    @pytest.mark.parametrize(
        "nobody", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT, 7.0, ""]
    )
    def test_nobody_is_no_person(self, registry: Registry, nobody: object) -> None:
        X, y, _ = data()
        calls: list[Callable[[], object]] = [
            lambda: registry.fit("new", estimator(), X, y, subjects=owners(nobody)),
            lambda: registry.models.refit(
                "all", estimator(), X, y, subjects=owners(nobody)
            ),
            lambda: registry.forget([COMPOSED, nobody]),
            lambda: registry.requests.accept([Request((nobody,))]),  # type: ignore[arg-type]
            lambda: registry.requests.find_models([nobody]),
            lambda: registry.requests.readmit([nobody]),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="cannot be the id of a person"):
                call()
        assert registry.models.names() == ["all"]
        assert registry.status().n_requests == 0

    def test_word_for_nothing_is_a_word(self, registry: Registry) -> None:
        X, y, _ = data()
        registry.fit("new", estimator(), X, y, subjects=owners("nan", "None"))
        assert registry.requests.find_models(["nan", "None"]) == {
            "nan": ("new",),
            "None": ("new",),
        }


class TestNoPeople:
    @pytest.fixture(params=["plain", "tuned"])
    def model(self, request: pytest.FixtureRequest) -> Any:
        """Return an estimator of each kind in turn."""
        if request.param == "plain":
            return estimator()
        return TunedClassifier(alphas=(1.0, 0.1), budget=BUDGET, folds=3)

    def test_position_is_no_id(self, registry: Registry, model: Any) -> None:
        X, y, _ = data()
        registry.fit("nobody", model, X, y)
        everybody = range(len(X))
        held = registry.requests.find_models(everybody)
        assert {who for who, models in held.items() if models} == {"7"}
        assert held["7"] == ("all",)
        with pytest.raises(UnknownSubject, match="2 of 3"):
            registry.forget([7, 8, 9])
        before = registry.model("nobody").coef_
        registry.forget([7])
        assert np.array_equal(registry.model("nobody").coef_, before)
        assert private_model_of(registry, "nobody").n_removed == 0
        assert len(registry.models.case("nobody").rows) == len(X)
        require_consistent(registry)

    def test_position_is_not_a_forgotten_person(self, registry: Registry) -> None:
        X, y, _ = data()
        registry.forget([7])
        registry.fit("nobody", estimator(), X, y)  # which has a row 7
        registry.models.refit("nobody", estimator(), X, y)
        with pytest.raises(InvalidInput, match=r"were forgotten \(1\)"):
            require_may_return(registry, *map(str, range(len(X))))

    def test_status_and_certificate_say_so(self, registry: Registry) -> None:
        X, y, _ = data()
        for name in ("nobody", "none"):
            registry.fit(name, estimator(), X, y)
        people = {one.name: one.n_people for one in registry.status().models}
        assert people == {"all": 59, "nobody": 0, "none": 0}
        said = registry.model("nobody").certificate_.not_covered
        assert NO_PEOPLE in said
        assert NO_PEOPLE not in registry.model("all").certificate_.not_covered

    def test_model_gets_people_when_it_is_replaced(self, registry: Registry) -> None:
        X, y, who = data()
        registry.fit("nobody", estimator(), X, y)
        registry.models.refit("nobody", estimator(), X, y, subjects=who)
        assert registry.status().models[1].n_people == len(set(who))
        registry.forget(["person 3"])
        registry.models.refit("nobody", estimator(), X, y)
        assert registry.requests.find_models(["person 4"]) == {"person 4": ("all",)}
        require_consistent(registry)

    def test_rows_without_people_are_kept(self, registry: Registry) -> None:
        X, y, _ = data()
        registry.fit("nobody", estimator(), X, y)
        registry.models.reanchor("nobody")
        assert np.array_equal(registry.models.case("nobody").rows.dense()[:, :-1], X)
