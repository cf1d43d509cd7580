# SPDX-License-Identifier: Apache-2.0
"""Processes killed at any moment while rows are set aside, come back or are held."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger import HoldEnded
from expunge.registry import NewRows, Registry, Request
from tests.registries import (
    A_REQUEST,
    HELD,
    IN_USE,
    RESTRICTED,
    ask,
    data,
    features_of,
    hold,
    open_apart,
    registry_at,
    require_consistent,
    require_fitted_to,
    require_retrained,
    rows_of,
    set_clock,
    today,
    where,
)
from tests.thorough import either
from tests.users import killed_at

PERSON = "person 3"
UNTIL = str(today() + timedelta(days=30))
# Calls to the system from one kill to the next; each right begins at another.
STRIDE = either(11, thorough=3)


def corrected() -> dict[str, NewRows]:
    X, y, _ = data()
    mine = rows_of(PERSON)
    return {"all": NewRows(X[mine] + 1.0, y[mine])}


def as_hold() -> Request:
    return Request(
        (PERSON,), A_REQUEST, right="hold", reason="legal-claims", until=UNTIL
    )


def prepare_nothing(registry: Registry) -> None:
    """Leave the person in use."""


def prepare_restricted(registry: Registry) -> None:
    ask(registry, "restrict", PERSON)


def prepare_held(registry: Registry) -> None:
    hold(registry, PERSON, until=UNTIL)


Prepare = Callable[[Registry], None]
# How it begins, what is asked, and where the rows are in the end.
STORIES: dict[str, tuple[Prepare, Callable[[], Request], dict[str, str]]] = {
    "restrict": (
        prepare_nothing,
        lambda: Request((PERSON,), A_REQUEST, right="restrict"),
        RESTRICTED,
    ),
    "hold": (prepare_nothing, as_hold, HELD),
    "lift": (
        prepare_restricted,
        lambda: Request((PERSON,), A_REQUEST, right="lift"),
        IN_USE,
    ),
    "rectify": (
        prepare_nothing,
        lambda: Request((PERSON,), A_REQUEST, right="rectify", rows=corrected()),
        IN_USE,
    ),
    "erase": (prepare_restricted, lambda: Request((PERSON,), A_REQUEST), {}),
    "end-hold": (
        prepare_held,
        lambda: Request((PERSON,), A_REQUEST, right="end-hold"),
        {},
    ),
}


def send(folder: Path, asked: Request) -> None:
    """Do what a process does that sends a request and applies what waits."""
    with Registry.open(folder) as registry:
        registry.requests.accept([asked], strangers=True)
        registry.requests.apply()


def require_answered(
    registry: Registry, name: str, before: dict[str, str], after: dict[str, str]
) -> None:
    """See that all of it happened, or that nobody was told of it and nothing did."""
    try:
        registry.requests.apply()
    except InvalidInput as error:
        # They are not in the journal, and nobody was told that they are safe.
        assert name == "rectify" and "send the request again" in str(error)
        assert where(registry, PERSON) == before
        registry.requests.accept([STORIES[name][1]()])
        registry.requests.apply()
    accepted = registry.status().n_requests > len(before_requests(name))
    assert where(registry, PERSON) == (after if accepted else before)
    end = where(registry, PERSON)
    if name == "rectify" and accepted:
        X, y, _ = data()
        X[rows_of(PERSON)] += 1.0
        require_fitted_to(registry, X, y)
    else:
        require_retrained(registry, *([] if end == IN_USE else [PERSON]))
    if end in (RESTRICTED, HELD):
        assert np.array_equal(open_apart(registry, PERSON), features_of(PERSON))
    require_consistent(registry)


def before_requests(name: str) -> list[str]:
    """Return what was asked before, one for each request."""
    return [] if STORIES[name][0] is prepare_nothing else ["before"]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_request_is_answered_once_or_not_at_all(tmp_path: Path, name: str) -> None:
    prepare, make, after = STORIES[name]
    template = tmp_path / "template"
    with registry_at(template) as registry:
        prepare(registry)
        before = where(registry, PERSON)
    asked = make()
    first = list(STORIES).index(name) % STRIDE
    for place in count(first, STRIDE):
        folder = Path(shutil.copytree(template, tmp_path / f"at {place}"))
        killed = killed_at(place, lambda folder=folder: send(folder, asked))  # type: ignore[misc]
        with Registry.open(folder) as registry:
            require_answered(registry, name, before, after)
        shutil.rmtree(folder)
        if not killed:
            break
    assert place > 20


@pytest.mark.slow
def test_a_hold_that_ends_is_stated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    with registry_at(template) as registry:
        prepare_held(registry)
    set_clock(monkeypatch, today() + timedelta(days=31))
    with Registry.open(template) as registry:
        registry.confirm_clock()  # it jumped

    def work(folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.requests.apply()

    for place in count(0, STRIDE):
        folder = Path(shutil.copytree(template, tmp_path / f"at {place}"))
        killed = killed_at(place, lambda folder=folder: work(folder))  # type: ignore[misc]
        with Registry.open(folder) as registry:
            registry.requests.apply()
            assert where(registry, PERSON) == {}
            ended = [
                one for one in registry.ledger.entries() if isinstance(one, HoldEnded)
            ]
            assert len(ended) == 1
            require_retrained(registry, PERSON)
            require_consistent(registry)
        shutil.rmtree(folder)
        if not killed:
            break
    assert place > 10
