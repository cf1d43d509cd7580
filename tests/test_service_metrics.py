# SPDX-License-Identifier: Apache-2.0
"""Metrics need a token, say what is so, and are about nobody."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families

from expunge.registry import Callback, Registry, Request
from tests.registries import N_PEOPLE, data, estimator, today

from .services import PATIENCE, InProcess, apply_window, serve_in_process

NAMES = {
    "expunge_requests",
    "expunge_oldest_pending_seconds",
    "expunge_deadline_seconds_min",
    "expunge_releases_left",
    "expunge_clock_doubtful",
    "expunge_outstanding_releases",
    "expunge_apply_seconds",
    "expunge_callbacks",
}
DAY = 24 * 60 * 60
ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as running:
        yield running


def read(service: InProcess) -> dict[tuple[str, str], float]:
    """Return the metrics: values by name and label."""
    answer = service.call("GET", "/metrics", "audit")
    assert answer.status_code == 200
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("scope", "code"), [("request", 403), ("operate", 200), ("audit", 200)]
)
def test_they_need_a_token_with_a_scope(
    service: InProcess, scope: str, code: int
) -> None:
    assert service.call("GET", "/metrics", scope).status_code == code


def test_nobody_sees_them_without_a_token(service: InProcess) -> None:
    assert service.http.get("/metrics").status_code == 401
    assert "expunge_" not in service.http.get("/metrics").text


def test_all_have_a_name_a_sentence_and_labels_that_are_about_nobody(
    service: InProcess,
) -> None:
    service.registry.requests.accept([Request(("person 3",))])
    text = service.call("GET", "/metrics", "audit").text
    families = list(text_string_to_metric_families(text))
    # The library adds when a histogram began.
    names = {family.name.removesuffix("_created") for family in families}
    assert names == NAMES
    assert all(family.documentation.endswith(".") for family in families)
    labels = {
        label
        for family in families
        for sample in family.samples
        for label in sample.labels
    }
    assert {"stage", "model", "le"} <= labels <= {"stage", "model", "outcome", "le"}
    assert "person 3" not in text and ID not in text


def test_requests_are_counted_by_stage(service: InProcess) -> None:
    assert ("expunge_deadline_seconds_min", "") not in read(service)
    assert read(service)["expunge_oldest_pending_seconds", ""] == 0
    asked = [Request((name,)) for name in ("person 3", "person 4", "stranger")]
    service.registry.requests.accept(asked, strangers=True)
    service.registry.requests.cancel(asked[0].request)
    found = read(service)
    assert found["expunge_requests", "accepted"] == 2
    assert found["expunge_requests", "cancelled"] == 1
    assert found["expunge_requests", "completed"] == 0
    apply_window(service)
    found = read(service)
    assert found.get(("expunge_requests", "accepted"), 0) == 0
    assert found["expunge_requests", "completed"] == 2
    assert found["expunge_oldest_pending_seconds", ""] == 0


def test_the_first_deadline_may_be_past(service: InProcess) -> None:
    asked = [
        Request((f"person {days}",), submitted=today() - timedelta(days), regime="ccpa")
        for days in (0, 50)
    ]
    service.registry.requests.accept(asked)
    found = read(service)["expunge_deadline_seconds_min", ""]
    assert -6 * DAY < found <= -4 * DAY
    service.registry.requests.cancel(asked[1].request)
    found = read(service)["expunge_deadline_seconds_min", ""]
    assert 44 * DAY < found <= 45 * DAY


def test_releases_that_are_left_or_out_are_counted(
    service: InProcess, tmp_path: Path
) -> None:
    X, y, owners = data()
    budget = estimator().budget
    assert budget is not None
    few = estimator(budget=type(budget)(sigma=10.0, releases=5))
    service.registry.fit("few", few, X, y, subjects=owners)
    service.registry.models.ship("few", tmp_path / "few.safetensors")
    found = read(service)
    assert found["expunge_releases_left", "few"] == 4
    assert ("expunge_releases_left", "all") not in found  # any number
    assert found["expunge_outstanding_releases", "few"] == 0
    service.registry.forget([f"person {N_PEOPLE - 1}"])
    found = read(service)
    assert found["expunge_releases_left", "few"] == 3
    assert found["expunge_outstanding_releases", "few"] == 1
    assert found["expunge_outstanding_releases", "all"] == 0
    service.registry.models.withdraw("few", 1)
    assert read(service)["expunge_outstanding_releases", "few"] == 0


def test_batches_are_timed(registry: Registry) -> None:
    with serve_in_process(registry, applies=True, window=1) as service:
        service.registry.requests.accept([Request(("person 3",), ID)])
        end = monotonic() + PATIENCE
        while read(service)["expunge_requests", "completed"] == 0:
            assert monotonic() < end
        assert read(service)["expunge_apply_seconds_count", ""] >= 1


def test_callbacks_are_counted_by_outcome(service: InProcess) -> None:
    url = "https://desk.example.org/done"
    service.registry.deliveries.add_callbacks([Callback(ID, url, "webhook")])
    text = service.call("GET", "/metrics", "audit").text
    assert "expunge_callbacks" in text and "desk.example.org" not in text
