# SPDX-License-Identifier: Apache-2.0
"""A request knows who sent it, and its id stands for everything that was sent."""

from dataclasses import replace

import pytest

from expunge.exceptions import RequestConflict
from expunge.ledger import Receipt
from expunge.registry import Registry, Request
from expunge.rights import Identifier
from tests.registries import folder_of

ASKED = Request(
    ("stranger", "email:ada@example.org"),
    sender="desk",
    envelope="what else was sent",
    n_people=1,
)


def test_the_sender_is_kept(registry: Registry) -> None:
    (status,) = registry.requests.accept([ASKED], strangers=True)
    assert status.sender == "desk"
    assert registry.requests.status(ASKED.request) == status


def test_a_request_sent_again_is_the_same_request(registry: Registry) -> None:
    first = registry.requests.accept([ASKED], strangers=True)
    assert registry.requests.accept([ASKED], strangers=True) == first


@pytest.mark.parametrize(
    "change",
    [{"sender": "other"}, {"envelope": "other"}, {"envelope": ""}, {"right": "object"}],
)
def test_the_same_id_cannot_stand_for_something_else(
    registry: Registry, change: dict[str, str]
) -> None:
    registry.requests.accept([ASKED], strangers=True)
    with pytest.raises(RequestConflict, match="asked for something else"):
        registry.requests.accept([replace(ASKED, **change)], strangers=True)  # type: ignore[arg-type]


def test_without_an_envelope_the_people_are_compared(registry: Registry) -> None:
    bare = replace(ASKED, envelope="")
    registry.requests.accept([bare], strangers=True)
    with pytest.raises(RequestConflict, match="asked for something else"):
        registry.requests.accept([replace(bare, subjects=("other",))], strangers=True)


def test_a_request_by_an_alias_is_the_same_once_the_alias_is_gone(
    registry: Registry,
) -> None:
    address = Identifier("email", "ada@example.org")
    registry.aliases.add([("person 7", address)])
    asked = replace(ASKED, subjects=tuple(registry.aliases.find([address]).values()))
    registry.requests.accept([asked], strangers=True)
    registry.requests.apply()
    assert registry.aliases.find([address]) == {}
    again = replace(asked, subjects=("email:ada@example.org",))
    (status,) = registry.requests.accept([again], strangers=True)
    assert (status.stage, status.outcome) == ("completed", "done")


def test_a_receipt_counts_people_and_not_their_ids(registry: Registry) -> None:
    registry.requests.accept([ASKED], strangers=True)
    registry.requests.apply()
    receipt = registry.requests.receipt(ASKED.request)
    assert receipt is not None
    assert Receipt.from_json(receipt).entry.n_subjects == 1


def test_no_envelope_is_kept(registry: Registry) -> None:
    registry.requests.accept([ASKED], strangers=True)
    folder = folder_of(registry)
    for path in folder.rglob("*"):
        if path.is_file():
            assert b"what else was sent" not in path.read_bytes()
