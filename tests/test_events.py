# SPDX-License-Identifier: Apache-2.0
"""Events: frozen facts that say nothing about a removed row."""

from dataclasses import FrozenInstanceError, fields
from math import inf, nan
from typing import Any

import pytest

from expunge.exceptions import InvalidInput
from expunge.promise import accountant
from expunge.promise.accountant import Event, Fitted, Released, Removed


def is_event(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event) and kind is not Event


KINDS: dict[str, Any] = {
    name: kind for name, kind in vars(accountant).items() if is_event(kind)
}

# The constitution: names and fields that ledgers rely on. Once expunge is released,
# rows are added, never taken away or changed.
CONSTITUTION = {
    "Fitted": ["n_parameters"],
    "Removed": ["n_subjects"],
    "Released": ["gdp"],
    "Unprotected": [],
    "TunedOnData": ["how"],
    "TunedRemovably": ["certified"],
    "Added": ["n_subjects"],
    "Untuned": [],
    "ReleasedExactly": [],
}


def test_events_are_those_of_the_constitution() -> None:
    found = {name: [f.name for f in fields(kind)] for name, kind in KINDS.items()}
    assert found == CONSTITUTION


@pytest.mark.parametrize("kind", KINDS.values())
def test_event_is_a_frozen_fact_without_behaviour(kind: Any) -> None:
    assert "__final__" in vars(kind)
    event = kind(*(1 for _ in fields(kind)))
    assert event == kind(*(1 for _ in fields(kind)))
    assert hash(event) is not None
    with pytest.raises((FrozenInstanceError, TypeError)):
        event.radius = 1.0
    public = [value for name, value in vars(kind).items() if name[0] != "_"]
    assert not any(callable(value) for value in public)


@pytest.mark.parametrize("gdp", [-1.0, nan, inf])
def test_costs_are_finite(gdp: float) -> None:
    with pytest.raises(InvalidInput, match="Unprotected"):
        Released(gdp)


def test_counts_are_counts() -> None:
    with pytest.raises(InvalidInput, match="n_parameters=-1"):
        Fitted(-1)
    with pytest.raises(InvalidInput, match="n_subjects=-1"):
        Removed(-1)
    with pytest.raises(InvalidInput, match="n_subjects=True"):
        Removed(True)


def test_module_states_its_constitution() -> None:
    assert "never removed" in str(accountant.__doc__)
