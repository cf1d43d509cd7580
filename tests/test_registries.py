# SPDX-License-Identifier: Apache-2.0
"""What tests say of registries can be false, and is told when it tests nothing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from expunge.registry import Registry
from tests.registries import (
    HELD,
    IN_USE,
    POINTS,
    RESTRICTED,
    Crash,
    after,
    ask,
    before,
    before_each,
    catch_up,
    crash_at,
    crash_with_a_line_in_the_journal_alone,
    hold,
    keys_apart,
    keys_in_use,
    knows_its_journal,
    opens_apart,
    perhaps_crashing_at,
    today,
    where,
)

PERSON = "person 3"


@pytest.mark.parametrize("point", POINTS)
def test_every_point_is_there(point: str) -> None:
    for owner, name in POINTS[point]:
        assert callable(getattr(owner, name))


@pytest.mark.parametrize("act", [before, after, before_each])
def test_a_point_that_nobody_comes_to_is_told(act: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match="nobody came to the point of erasing"):
        with act("erasing", list):
            pass


def test_a_crash_that_does_not_happen_is_told(registry: Registry) -> None:
    with pytest.raises(pytest.fail.Exception):
        with crash_at("erasing", nth=2):
            registry.forget([PERSON])


@pytest.mark.parametrize("late", [False, True])
def test_crashes_come_before_or_after(registry: Registry, late: bool) -> None:
    with pytest.raises(Crash), perhaps_crashing_at("committing", after=late):
        registry.forget([PERSON])
    assert where(registry, PERSON) == ({} if late else IN_USE)


def test_whose_rows_are_where(registry: Registry) -> None:
    assert where(registry, PERSON) == IN_USE
    ask(registry, "restrict", PERSON)
    assert where(registry, PERSON) == RESTRICTED
    hold(registry, PERSON, until=str(today() + timedelta(days=9)))
    assert where(registry, PERSON) == HELD
    assert where(registry, "nobody") == {}


def test_keys_that_open_rows_apart_are_found(registry: Registry) -> None:
    ask(registry, "restrict", PERSON)
    opening = {
        key
        for key in keys_apart(registry, "all") | keys_in_use(registry, "all")
        if opens_apart(registry, PERSON, "all", key=key)
    }
    assert opening and opening <= keys_apart(registry, "all")


def test_a_line_in_the_journal_alone_is_not_in_the_database(registry: Registry) -> None:
    assert knows_its_journal(registry)
    with crash_with_a_line_in_the_journal_alone():
        registry.forget([PERSON])
    assert not knows_its_journal(registry)
    catch_up(registry)
    assert knows_its_journal(registry)
