# SPDX-License-Identifier: Apache-2.0
"""Metrics: how much waits, how long, and what is left, for Prometheus.

They are read when they are asked for. None is about a person, and none is a radius.
How long a batch took depends on who is in it, so all of them need a token.
"""

from collections.abc import Callable, Iterator, Mapping

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool

from ..registry import Registry
from ..registry.now import now
from ..registry.window import SECOND
from .auth import CanWatch

BUCKETS = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0)


class RegistryCollector(Collector):
    """Reads the metrics of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def describe(self) -> Iterator[Metric]:
        """Return nothing: nothing is read when the service starts."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        counts, time = self._registry.count_requests(), now()
        yield _make(
            "expunge_requests",
            "Requests at each stage.",
            label="stage",
            values=counts.stages,
        )
        waited = 0 if counts.oldest is None else max(0, time - counts.oldest)
        yield GaugeMetricFamily(
            "expunge_oldest_pending_seconds",
            "How long the oldest unanswered request has waited.",
            waited / SECOND,
        )
        if counts.due is not None:
            yield GaugeMetricFamily(
                "expunge_deadline_seconds_min",
                "Time to the next deadline; negative if it has passed.",
                (counts.due - time) / SECOND,
            )
        yield from self._collect_models()
        yield _make(
            "expunge_callbacks",
            "Callbacks and webhooks by outcome.",
            label="outcome",
            values=self._registry.deliveries.count(),
        )

    def _collect_models(self) -> Iterator[Metric]:
        status = self._registry.status()
        yield GaugeMetricFamily(
            "expunge_clock_doubtful",
            "1 if the clock must be set right or confirmed (expunge clock confirm).",
            int(not status.clock.is_believed),
        )
        left = {
            one.name: max(0, one.certificate.releases - one.certificate.n_releases)
            for one in status.models
            if one.certificate.releases is not None
        }
        yield _make(
            "expunge_releases_left",
            "Releases that a budget has left.",
            label="model",
            values=left,
        )
        out = dict.fromkeys((one.name for one in status.models), 0)
        for release in status.outstanding:
            out[release.model] = out.get(release.model, 0) + 1
        yield _make(
            "expunge_outstanding_releases",
            "Releases that left, are superseded and were not taken back.",
            label="model",
            values=out,
        )


def _make(name: str, text: str, *, label: str, values: Mapping[str, int]) -> Metric:
    """Return a gauge with a value for each label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in sorted(values.items()):
        family.add_metric([value], number)
    return family


class Metrics:
    """The metrics of a service."""

    def __init__(self, registry: Registry) -> None:
        self._collected = CollectorRegistry()
        self._collected.register(RegistryCollector(registry))
        self._applying = Histogram(
            "expunge_apply_seconds",
            "How long a window's requests took to be applied.",
            registry=self._collected,
            buckets=BUCKETS,
        )

    def observe_batch(self, seconds: float) -> None:
        """Count a batch."""
        self._applying.observe(seconds)

    def render(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._collected)


def make_metrics_router(render: Callable[[], bytes]) -> APIRouter:
    """Return the route that Prometheus scrapes."""
    router = APIRouter()

    @router.get("/metrics", include_in_schema=False)
    async def show_metrics(caller: CanWatch) -> Response:
        """Show the metrics."""
        data = await run_in_threadpool(render)
        return Response(data, media_type=CONTENT_TYPE_LATEST)

    return router
