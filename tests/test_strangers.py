# SPDX-License-Identifier: Apache-2.0
"""Known people and strangers take the same steps, from word to accepted request."""

from collections.abc import Callable
from typing import Any

import pytest

from expunge.exceptions import InvalidInput
from expunge.registry import Registry, Request
from expunge.rights import Identifier
from tests.registries import (
    aliases_opened,
    asked_of_database,
    data,
    estimator,
    require_consistent,
)

ADDRESSES = {
    "known": "email:ada@example.org",
    "unknown": "email:eve@example.org",
    "last": "email:zoe@example.org",
}


@pytest.fixture
def named(registry: Registry) -> Registry:
    """Lend a registry that knows two people by address, under two keys."""
    registry.aliases.add([("person 3", Identifier("email", "ada@example.org"))])
    registry.keys.rotate_tag_key()
    registry.aliases.add([("person 4", Identifier("email", "bob@example.org"))])
    return registry


def steps_of(
    registry: Registry, do: Callable[[], Any]
) -> tuple[list[tuple[str, int]], int]:
    """Return what is asked of the store, and how often something is opened."""
    do()  # prepares statements and connections
    with aliases_opened() as opened, asked_of_database(registry) as seen:
        do()
    return seen, len(opened)


class TestWords:
    @pytest.mark.parametrize("strangers", [True, False])
    def test_take_the_same_steps(self, named: Registry, strangers: bool) -> None:
        def steps(word: str) -> object:
            return steps_of(
                named,
                lambda: named.aliases.resolve([word], strangers=strangers),
            )

        first, *others = map(steps, ADDRESSES.values())
        assert all(one == first for one in others)

    def test_each_of_several_takes_them(self, named: Registry) -> None:
        asked = [Identifier("email", f"{i}@example.org") for i in range(5)]
        known = [("person 5", one) for one in asked]
        before = steps_of(named, lambda: named.aliases.find(asked))
        named.aliases.add(known)
        assert named.aliases.find(asked) == {one: "person 5" for one in asked}
        assert steps_of(named, lambda: named.aliases.find(asked)) == before
        assert before[1] == 5

    def test_lead_to_whom_they_led(self, named: Registry) -> None:
        words = [*ADDRESSES.values(), "email:bob@example.org", "id:person 9", "nobody"]
        meant = ["person 3", *words[1:3], "person 4", "person 9", "nobody"]
        assert named.aliases.resolve(words, strangers=True) == meant
        assert named.aliases.resolve(words) == meant

    def test_no_model_decides_what_is_refused(self, named: Registry) -> None:
        """An id that looks like an alias is one that nobody has, and can be named."""
        X, y, owners = data()
        odd = {"person 1": "email:broken", "person 2": "urn:x:1"}
        ids = [odd.get(owner, owner) for owner in owners]
        named.fit("odd", estimator(), X, y, subjects=ids)
        named.aliases.add([("person 7", Identifier("urn", "x:1"))])
        for word in ("email:broken", "email:typo"):
            with pytest.raises(InvalidInput, match="cannot be used"):
                named.aliases.resolve([word], strangers=True)
        assert named.aliases.resolve(["urn:x:1"], strangers=True) == ["person 7"]
        assert named.aliases.resolve(["id:urn:x:1"], strangers=True) == ["urn:x:1"]


class TestRequests:
    def test_nobody_is_looked_up(self, registry: Registry) -> None:
        def accept(name: str) -> None:
            registry.requests.accept([Request((name,))], strangers=True)

        accept("person 1")  # prepares statements and connections
        asked = []
        for name in ("person 3", "nobody", "person 3", "nobody 2"):
            with asked_of_database(registry) as seen:
                accept(name)
            asked.append(seen)
        assert all(one == asked[0] for one in asked)
        words = " ".join(statement for statement, _ in asked[0]).split()
        assert not {"subjects", "rows", "subjects.tag", "pages"} & {*words}
        registry.requests.apply()
        require_consistent(registry)
