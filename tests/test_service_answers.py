# SPDX-License-Identifier: Apache-2.0
"""What answers hold: every method, body and code that a program goes by."""

import errno
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from expunge.exceptions import Busy, StoreFailed
from expunge.registry import Registry
from expunge.service.problems import describe_error

from .registries import by_name, data, estimator, queue_message
from .services import InProcess, serve_in_process

API = "/api/v1"


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as running:
        yield running


def count_statements(service: InProcess, path: str) -> int:
    """Return how many statements of SQL an answer takes."""
    seen: list[str] = []

    def note(*given: Any) -> None:
        seen.append(given[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert service.call("GET", path).status_code == 200
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(seen)


def test_one_model_costs_the_same_among_many(service: InProcess) -> None:
    paths = [f"{API}/models/all{end}" for end in ("", "/certificate")]
    for path in paths:
        service.call("GET", path)  # the token is looked up once
    few = [count_statements(service, path) for path in paths]
    for number in range(4):
        service.registry.fit(f"other{number}", estimator(), **by_name(data()))
    assert [count_statements(service, path) for path in paths] == few


@pytest.mark.parametrize("name", ["none", "~all", "%7Eall", "%3Fall"])
def test_an_unknown_model_is_unknown(service: InProcess, name: str) -> None:
    answer = service.call("GET", f"{API}/models/{name}")
    assert answer.status_code == 404
    assert name not in answer.text


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"{API}/requests", "GET, POST"),
        (f"{API}/requests/{'0' * 32}", "DELETE, GET"),
        (f"{API}/tokens", "GET, POST"),
        (f"{API}/window", "GET"),
    ],
)
def test_a_wrong_method_is_told_all_that_there_are(
    service: InProcess, path: str, methods: str
) -> None:
    answer = service.call("PATCH", path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, methods)


@pytest.mark.parametrize("due", ["0", "7", "1767225600", "2026", "-1"])
def test_a_number_is_no_day(service: InProcess, due: str) -> None:
    answer = service.call("GET", f"{API}/requests?due={due}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0] == {
        "field": "query.due",
        "reason": "it must be a day such as 2026-03-01",
    }


def test_a_day_is_sent_as_text(service: InProcess) -> None:
    for day in (0, 20_000, 1767225600, "1767225600"):
        body = {"people": [{"id": "person 3"}], "submitted": day}
        answer = service.call("POST", f"{API}/requests", json=body)
        assert answer.status_code == 422, day
        assert "a day such as" in answer.text


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ledger/head", "application/json"),
        ("/ledger/export", "application/x-ndjson"),
        ("/keys", "application/x-pem-file"),
        ("/models/{name}/release", "application/octet-stream"),
        ("/models/{name}/certificate", "application/json"),
        ("/requests/{request}/receipt", "application/json"),
    ],
)
def test_openapi_says_what_a_file_is(service: InProcess, path: str, kind: str) -> None:
    paths = service.http.get(f"{API}/openapi.json").json()["paths"]
    assert list(paths[API + path]["get"]["responses"]["200"]["content"]) == [kind]


def test_programs_manage_webhooks(service: InProcess) -> None:
    path, url = f"{API}/webhooks", "https://hooks.example.org/secret-path"
    asked = {"url": url, "events": ["request.completed"]}
    made = service.call("POST", path, json=asked)
    assert made.status_code == 201 and made.json()["secret"].startswith("whsec_")
    listed = service.call("GET", path)
    assert made.json()["secret"] not in listed.text
    assert listed.json()["webhooks"] == [{"id": made.json()["id"], **asked}]
    changes: list[dict[str, Any]] = [{"events": []}, {"events": ["other"]}]
    for wrong in (*changes, {"url": "ftp://x"}):
        assert service.call("POST", path, json={**asked, **wrong}).status_code == 422
    assert service.call("DELETE", f"{path}/{made.json()['id']}").status_code == 204
    assert service.call("GET", path).json() == {"webhooks": []}
    unknown = service.call("DELETE", f"{path}/ada@example.org")
    assert unknown.status_code == 422 and "ada" not in unknown.text
    lines = [(one.action, one.target) for one in service.registry.access.trail()]
    assert lines == [
        (f"{word} webhook", made.json()["id"]) for word in ("add", "remove")
    ]


def test_programs_follow_deliveries(service: InProcess) -> None:
    deliveries = service.registry.deliveries
    endpoint, _ = deliveries.add_endpoint("https://hooks.example.org/secret-path")
    for digit in "123":
        queue_message(service.registry, endpoint.id, digit * 32)
    found, cursor = [], ""
    while cursor is not None:
        query = f"limit=2&cursor={cursor}"
        page = service.call("GET", f"{API}/deliveries?{query}", "audit")
        assert "secret-path" not in page.text
        found += page.json()["deliveries"]
        cursor = page.json()["next"]
    assert {one["request"] for one in found} == {digit * 32 for digit in "123"}
    assert all(one["state"] == "waiting" and one["due"] for one in found)
    path = f"{API}/deliveries/{found[0]['id']}/replay"
    assert service.call("POST", path, "operate").status_code == 204
    assert service.call("POST", path, "audit").status_code == 403


class _Driver(Exception):
    """What a driver of PostgreSQL raises; its text may quote what was written."""

    sqlstate = "53100"


def _caused(cause: BaseException) -> StoreFailed:
    failed = StoreFailed("the database failed")
    failed.__cause__ = cause
    return failed


def _full() -> sqlite3.Error:
    full = sqlite3.OperationalError("ada@example.org")
    full.sqlite_errorname = "SQLITE_FULL"
    return full


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (_Driver("ada@example.org"), "SQLSTATE 53100"),
        (_full(), "SQLITE_FULL"),
        (OSError(errno.ENOSPC, "ada@example.org"), "ENOSPC"),
    ],
)
def test_a_failure_of_the_store_names_its_code(cause: Exception, code: str) -> None:
    said, text = describe_error(_caused(cause))
    assert said == 503 and text.endswith(f"({code})")
    assert "ada" not in text


def test_other_failures_name_nothing() -> None:
    busy = Busy("another process works")
    busy.__cause__ = _Driver()
    for error in (busy, StoreFailed("person 3")):
        assert describe_error(error)[1].endswith("in a few seconds")
