"""What the service tells about itself, for Prometheus.

Requests are counted as they are answered; what stands in the database is read when the metrics
are asked for (`records.operations.census`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from records import OK, RecordError, Store
from records.operations import census

MEDIA_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"
"""The route of requests for paths that no route has: one label, however many paths are tried."""

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass
class Metrics:
    """The metrics of one server, in a registry of their own."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _last_id: int | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = field(default_factory=dict)
    """Of each route, method and status: as many as the registry has."""

    def __post_init__(self) -> None:
        kept = self.registry
        ProcessCollector(registry=kept)
        PlatformCollector(registry=kept)
        self.requests = Counter(
            "autosched_requests", "Requests answered.", ["route", "method", "status"], registry=kept
        )
        self.seconds = Histogram(
            "autosched_request_seconds",
            "Time until the answer was sent; of event streams, until its first part was.",
            ["route", "method"],
            buckets=_BUCKETS,
            registry=kept,
        )
        self.streams = Gauge("autosched_streams_open", "Event streams open.", registry=kept)
        self.jobs = Gauge("autosched_jobs", "Jobs in the database.", ["state"], registry=kept)
        self.queue_age = Gauge(
            "autosched_queue_age_seconds", "How long the oldest queued job waits.", registry=kept
        )
        self.trials = Counter(
            "autosched_trials",
            "Trials stored by any server since this one was first asked, by status.",
            ["status"],
            registry=kept,
        )
        self.workers = Gauge(
            "autosched_workers", "Devices of this server's pool.", ["healthy"], registry=kept
        )
        self.running = Gauge(
            "autosched_jobs_here", "Jobs that run as processes of this server.", registry=kept
        )
        self.database_up = Gauge(
            "autosched_database_up", "1 if the database could be read just now.", registry=kept
        )
        self.trials.labels(OK)

    def count_request(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """Count an answered request of the route with that template."""
        route, method = route or UNMATCHED, method if method in _METHODS else "other"
        key = route, method, status
        counted = self._counted.get(key)
        if counted is None:
            # Looking them up by labels takes several times as long as counting.
            counted = (
                self.requests.labels(route, method, str(status)),
                self.seconds.labels(route, method),
            )
            self._counted[key] = counted
        counted[0].inc()
        counted[1].observe(seconds)

    def read_database(self, store: Store) -> bool:
        """Bring what stands in the database up to date; False, and the old values stay, where it is
        away."""
        with self._reading:
            try:
                found = census.take(store, self._last_id)
            except RecordError:
                self.database_up.set(0)  # this is what the metric is for
                return False
            self._last_id = found.last_id
        self.database_up.set(1)
        for state, count in found.jobs.items():
            self.jobs.labels(state).set(count)
        self.queue_age.set(found.queue_seconds)
        for status, count in found.trials.items():
            self.trials.labels(status).inc(count)
        return True

    def count_workers(self, healthy: Sequence[bool]) -> None:
        """Set the number of devices that are healthy, and of those that are not."""
        for state in (True, False):
            self.workers.labels(str(state).lower()).set(healthy.count(state))

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self.registry)
