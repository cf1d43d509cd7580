# SPDX-License-Identifier: Apache-2.0
"""The private record: it shows nothing, and cannot be changed once committed to."""

import copy
import pickle
from dataclasses import replace
from hashlib import sha256
from math import inf, nan
from typing import Any

import pytest

from expunge.exceptions import InvalidInput
from expunge.promise.noise import random_bytes
from expunge.promise.verification import Record
from tests.certificates import SALT, record


def test_commitment_is_the_hash_of_the_file() -> None:
    text = record().to_json()
    assert record().commitment() == sha256(text.encode()).hexdigest()
    assert Record.from_json(text) == record()
    assert Record.from_json(text).salt == SALT


@pytest.mark.parametrize(
    "change",
    [
        {"radius": 1e-3 * (1 + 1e-15)},
        {"radius": inf},
        {"radius_kind": "measured"},
        {"decisions": ("accepted",)},
        {"decisions": ()},
        {"n_samples": 401},
        {"n_removed": 4},
        {"timings": {}},
        {"timings": {"forget": 0.26}},
        {"salt": bytes(32)},
    ],
)
def test_commitment_binds_every_field(change: dict[str, Any]) -> None:
    assert replace(record(), **change).commitment() != record().commitment()


def test_commitment_hides_behind_the_salt() -> None:
    salts = (random_bytes(32) for _ in range(3))
    assert len({replace(record(), salt=salt).commitment() for salt in salts}) == 3


def test_nothing_is_shown() -> None:
    assert repr(record()) == str(record()) == "Record(private)"


def test_record_leaves_as_json_alone() -> None:
    for travel in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Record is private"):
            travel(record())


@pytest.mark.parametrize(
    "change",
    [
        {"radius": -0.125},
        {"radius": nan},
        {"radius_kind": "guessed"},
        {"n_removed": -125},
        {"timings": {"forget": -0.125}},
        {"timings": ["0.125"]},
        {"salt": b"0.125"},
        {"salt": "zz" * 32},
        {"version": 125},
    ],
)
def test_refusals_quote_no_figure(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"Record: {next(iter(change))};") as caught:
        replace(record(), **change)
    assert "125" not in str(caught.value)


def test_no_bound_is_none() -> None:
    unbounded = record(inf)
    assert unbounded.radius is None
    assert '"radius":null' in unbounded.to_json()
    assert Record.from_json(unbounded.to_json()) == unbounded
