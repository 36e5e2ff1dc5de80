"""What Prometheus reads: requests, latencies, scores, alarms per detector, loads of models."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one process; with several workers `text` adds up all of them (PROMETHEUS_MULTIPROC_DIR)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fewone_requests", "Requests by route and status", ["method", "route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "fewone_request_seconds", "Time to answer", ["method", "route"], buckets=LATENCIES, registry=self.registry
        )
        self.scores = Counter("fewone_scores", "Decisions", ["detector"], registry=self.registry)
        self.alarms = Counter("fewone_alarms", "Decisions that were anomalous", ["detector"], registry=self.registry)
        self.loads = Histogram("fewone_load_seconds", "Loading a detector from the folder", registry=self.registry)
        self.loaded = Gauge(
            "fewone_loaded_detectors", "Detectors in memory", registry=self.registry, multiprocess_mode="livesum"
        )
        self.undelivered = Gauge(
            "fewone_undelivered_alarms", "Alarms that wait", ["way"], registry=self.registry, multiprocess_mode="max"
        )
        self.dropped = Counter(
            "fewone_dropped_alarms", "Alarms that found the queue full", ["way"], registry=self.registry
        )

    def text(self) -> bytes:
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
