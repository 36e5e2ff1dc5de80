"""What the routes of one worker share: the actions, who may ask, threads, counters, listeners, ways out for alarms."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request

from fewone.service.actions import Actions, Current
from fewone.service.alarms import AlarmQueue, open_queues
from fewone.service.database import connect, migrate
from fewone.service.errors import ServiceError
from fewone.service.events import EventHub
from fewone.service.history import History
from fewone.service.judging import Judged
from fewone.service.metrics import Metrics
from fewone.service.settings import ServiceSettings
from fewone.service.store import DetectorStore
from fewone.service.together import Together
from fewone.service.tokens import Permission, TokenBook

Result = TypeVar("Result")


class Service:
    """One worker. One thread scores what is large, another single windows, others do everything else."""

    def __init__(self, settings: ServiceSettings, metrics: Metrics, book: TokenBook) -> None:
        self.settings, self.metrics, self.book = settings, metrics, book
        store = DetectorStore(Path(settings.folder))
        store.prepare()
        engine = connect(settings.database_url, settings.power_safe)
        migrate(engine, settings.home)
        self.history = History(engine, settings.kept_values)
        self.actions = Actions(settings, store, self.history)
        self.actions.on_load = metrics.loads.observe
        self.hub = EventHub(store, self.history)
        self.queues: list[AlarmQueue] = open_queues(
            settings.alarms, settings.home / "alarms", lambda way: metrics.dropped.labels(way).inc()
        )
        self._scoring = ThreadPoolExecutor(1, thread_name_prefix="scores")
        self._working = ThreadPoolExecutor(4, thread_name_prefix="work")
        self._waiting = 0
        self.together = Together(self.actions.store_scores_now, settings.limits.waiting)

    def close(self) -> None:
        """What was accepted is finished first."""
        self.actions.ending.set()
        self.hub.close()
        self._scoring.shutdown()
        self.together.close()
        self._working.shutdown()
        self.history.close()
        for queue in self.queues:
            queue.close()

    async def work(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Something that may take a while."""
        return await asyncio.get_running_loop().run_in_executor(self._working, call, *arguments)

    async def score(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Something that others wait for; too many waiting are sent away."""
        if self._waiting >= self.settings.limits.waiting:
            raise ServiceError(503, "too many requests wait for scores; slow down and try again", 1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._scoring, call, *arguments)
        finally:
            self._waiting -= 1

    def announce(self, current: Current, judged: Judged, ids: list[int]) -> None:
        """Count what was stored, put alarms on their way."""
        self.metrics.scores.labels(current.name).inc(len(ids))
        alarms = judged.anomalous.nonzero()[0].tolist()
        if alarms:
            self.metrics.alarms.labels(current.name).inc(len(alarms))
        for queue in self.queues:
            for row in alarms:
                queue.put(describe_alarm(current.name, current.pointer.version, judged, row, ids[row]))
        self.metrics.loaded.set(len(self.actions.loaded))


def describe_alarm(name: str, version: int | None, judged: Judged, row: int, id_: int | None) -> dict[str, Any]:
    """What leaves the house with an alarm."""
    return {
        "detector": name,
        "version": version,
        "id": id_,
        "at": time.time(),
        "source": judged.thing.source,
        "place": int(judged.places[row]),
        "worst": int(judged.worst[row]),
        "decision": float(judged.decisions[row]),
        "probability": float(judged.probabilities[row]),
    }


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


class Needs:
    """A route's permission; `app.py` refuses a route that names none."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> None:
        service_of(request).book.check(request.headers.get("authorization"), self.permission)
