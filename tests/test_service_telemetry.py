# SPDX-License-Identifier: Apache-2.0
"""Spans and metrics of the service tell routes, and nothing that a caller wrote."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from expunge.registry import Registry
from expunge.service import intake
from expunge.service.logs import TELEMETRY

from .services import InProcess, serve_in_process

ID = "0123456789abcdef0123456789abcdef"
NAME, ADDRESS, NUMBER = "ada.lovelace", "ada@example.org", "4915112345678"
CANARIES = (NAME, ADDRESS, "ada%40example.org", NUMBER)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {
    "User-Agent": NAME,
    "X-Forwarded-For": ADDRESS,
    "Cookie": f"name={NAME}",
    "Host": f"{NAME}.example.org",
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "tracestate": f"desk={NAME}",
    "baggage": f"person={NUMBER}",
}


class Seen(NamedTuple):
    """A service, and what its telemetry recorded."""

    service: InProcess
    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader
    logs: InMemoryLogRecordExporter

    def served(self) -> list[ReadableSpan]:
        """Return the spans of whole calls."""
        return [
            one
            for one in self.spans.get_finished_spans()
            if "http.request.method" in (one.attributes or {})
        ]

    def text(self) -> str:
        """Return everything that was recorded."""
        spans = [
            one.to_json() + repr(one.get_span_context())
            for one in self.spans.get_finished_spans()
        ]
        data = self.metrics.get_metrics_data()
        logs = [repr(one.log_record) for one in self.logs.get_finished_logs()]
        return "\n".join([*spans, data.to_json() if data else "", *logs])


@pytest.fixture
def seen(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    monkeypatch.setitem(TELEMETRY, "tracer_provider", tracers)
    monkeypatch.setitem(TELEMETRY, "meter_provider", MeterProvider([metrics]))
    monkeypatch.setitem(TELEMETRY, "logger_provider", loggers)
    with serve_in_process(registry) as service:
        yield Seen(service, spans, metrics, logs)


def test_spans_are_named_by_routes(seen: Seen) -> None:
    body = {"id": ID, "people": [{"id": "person 3"}]}
    assert seen.service.call("POST", "/api/v1/requests", json=body).status_code == 201
    seen.service.call("GET", f"/api/v1/requests/{ID}")
    seen.service.call("GET", "/api/v1/models/all")
    seen.service.call("GET", "/no/such/page")
    names = [one.name for one in seen.served()]
    assert names == [
        "POST /api/v1/requests",
        "GET /api/v1/requests/{request}",
        "GET /api/v1/models/{name}",
        "GET",
    ]
    codes = [
        (one.attributes or {})["http.response.status_code"] for one in seen.served()
    ]
    assert codes == [201, 200, 200, 404]
    assert ID not in seen.text()


def test_traces_of_callers_go_on(seen: Seen) -> None:
    seen.service.call("GET", "/api/v1/window", headers=HEADERS)
    (span,) = seen.served()
    found = span.get_span_context()
    assert found is not None and f"{found.trace_id:032x}" == TRACE
    assert span.parent is not None and f"{span.parent.span_id:016x}" == PARENT
    assert not found.trace_state


@pytest.mark.parametrize("canary", [NAME, ADDRESS, NUMBER])
def test_nothing_that_a_caller_writes_is_recorded(seen: Seen, canary: str) -> None:
    calls = [
        ("GET", f"/api/v1/requests/{canary}", None),
        ("GET", f"/api/v1/models/{canary}", None),
        ("DELETE", f"/api/v1/tokens/{canary}", None),
        ("GET", f"/{canary}/page", None),
        ("GET", f"/api/v1/requests?state={canary}&cursor={canary}", None),
        ("GET", f"/api/v1/requests?{canary}=1", None),
        (canary.replace("@", "-"), "/api/v1/requests", None),
        ("POST", "/api/v1/requests", {"people": [{"email": ADDRESS, "id": canary}]}),
        ("POST", "/api/v1/requests", {"people": [{canary: canary}], canary: canary}),
        ("POST", "/api/v1/requests/batch", canary),
    ]
    for method, path, body in calls:
        seen.service.call(method, path, json=body, headers=HEADERS)
    assert len(seen.served()) == len(calls)
    for one in (*CANARIES, canary.upper()):
        assert one not in seen.text()


def test_errors_are_recorded_without_their_text(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError(f"cannot find {ADDRESS}")

    monkeypatch.setattr(intake.Intake, "show", fail)
    assert seen.service.call("GET", f"/api/v1/requests/{ID}").status_code == 500
    (span,) = seen.served()
    assert (span.attributes or {})["error.type"] == "RuntimeError"
    assert not span.events
    assert ADDRESS not in seen.text()
    assert not seen.logs.get_finished_logs()
