# SPDX-License-Identifier: Apache-2.0
"""Restrictions that are lifted: who may be fitted then, and what is released."""

import json
from pathlib import Path
from typing import Any

import pytest

from expunge.registry import Registry, Request
from tests.registries import registry_at

ONE, TWO = "person 1", "person 2"


@pytest.fixture
def registry(tmp_path: Path) -> Any:
    with registry_at(tmp_path / "registry") as registry:
        yield registry


def ask(registry: Registry, right: Any, person: str = ONE) -> str:
    """Have a request answered, and return its outcome."""
    asked = Request((person,), right=right)
    registry.requests.accept([asked], strangers=True)
    registry.requests.apply()
    return registry.requests.status(asked.request).outcome


class TestKeptOut:
    @pytest.mark.parametrize("before", [(), ("restrict",)])
    def test_a_lift_takes_no_erasure_back(
        self, registry: Registry, before: tuple[str, ...]
    ) -> None:
        for right in before:
            ask(registry, right)
        ask(registry, "erase")
        assert ask(registry, "lift") == "nothing found"
        assert registry.requests.find_forgotten([ONE]) == (ONE,)

    def test_a_lift_of_several_takes_back_restrictions_alone(
        self, registry: Registry
    ) -> None:
        ask(registry, "restrict", ONE)
        ask(registry, "object", TWO)
        both = Request((ONE, TWO), right="lift")
        registry.requests.accept([both], strangers=True)
        registry.requests.apply()
        assert registry.requests.find_forgotten([ONE, TWO]) == (TWO,)

    @pytest.mark.parametrize("n_times", range(2, 6))
    def test_what_comes_last_in_a_batch_counts(
        self, registry: Registry, n_times: int
    ) -> None:
        rights: Any = ("restrict", "lift", "restrict", "lift", "restrict")[:n_times]
        for right in rights:
            registry.requests.accept([Request((ONE,), right=right)])
        registry.requests.apply()
        out = registry.requests.find_forgotten([ONE])
        assert out == ((ONE,) if rights[-1] == "restrict" else ())

    def test_restricted_people_may_be_readmitted(self, registry: Registry) -> None:
        ask(registry, "restrict")
        registry.requests.readmit([ONE])
        assert not registry.requests.find_forgotten([ONE])


def test_what_is_lifted_in_its_batch_needs_no_release(registry: Registry) -> None:
    before = registry.status().models
    first, second = Request((ONE,), right="restrict"), Request((ONE,), right="lift")
    for one in (first, second):
        registry.requests.accept([one])
    registry.requests.apply()
    assert [model.number for model in registry.status().models] == [
        model.number for model in before
    ]
    for one in (first, second):
        receipt = json.loads(registry.requests.receipt(one.request) or "")
        assert receipt["entry"]["outcome"] == "done"
        assert receipt["entry"]["certificates"] == {}
