"""Decisions as they fall, to whoever listens: one look at the database serves all listeners of a worker."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fewone.service.errors import ServiceError, as_service_error
from fewone.service.history import History
from fewone.service.store import DetectorStore

EVERY = 0.5
"""Seconds between looks for decisions of other workers; those of this one are told at once."""
PAUSE = 0.05
"""Seconds between looks while decisions come one after the other: listeners must not slow down what they listen to."""
BEHIND = 1000
"""A listener that falls so many events behind is sent away; it comes back with the last id it saw."""
LISTENERS = 200
OVERLAP = 200
"""Transactions of several workers end out of order: so many ids are looked at again."""


class EventHub:
    """Tells new decisions to listeners, each with the name of its detector."""

    def __init__(self, store: DetectorStore, history: History) -> None:
        self._store, self._history = store, history
        self._listeners: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._news = asyncio.Event()
        self._seen: deque[int] = deque(maxlen=4 * OVERLAP)
        self._names: dict[str, str] = {}
        self._last = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Something was stored by this worker."""
        self._news.set()

    def close_soon(self) -> None:
        """From a signal: listeners end at their next chance."""
        self._closed = True
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._end_listeners()
        if self._task is not None:
            self._task.cancel()

    def names(self) -> dict[str, str]:
        return {self._store.pointer(name).uid: name for name in self._store.names()}

    async def listen(self, name: str | None, after: int | None) -> AsyncIterator[str]:
        """Server-sent events of one detector or of all; after: the last id that the listener saw."""
        if self._closed or len(self._listeners) >= LISTENERS:
            raise ServiceError(503, "too many listen already or the service is going down; try again later", 10)
        await self._start()
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(BEHIND + 1)
        self._listeners.add(queue)
        try:
            yield ": listening\n\n"
            for event in await self._missed(after):
                if name in (None, event["detector"]):
                    yield _format(event)
            while True:
                try:
                    event_or_end = await asyncio.wait_for(queue.get(), 15)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if event_or_end is None:
                    return
                if name in (None, event_or_end["detector"]):
                    yield _format(event_or_end)
        finally:
            self._listeners.discard(queue)

    async def _start(self) -> None:
        if self._task is None:
            self._last = await asyncio.to_thread(self._history.last_id)
            self._task = asyncio.create_task(self._watch())

    async def _missed(self, after: int | None) -> list[dict[str, Any]]:
        if after is None:
            return []
        rows = await asyncio.to_thread(self._history.newest, after, BEHIND)
        return await asyncio.to_thread(self._tell, [row for row in rows if row["id"] <= self._last])

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), EVERY)
            self._news.clear()
            if self._closed:
                self._end_listeners()
                return
            if not self._listeners:
                self._last = max(self._last, await self._safely(self._history.last_id, self._last))
                await asyncio.sleep(PAUSE)
                continue
            after = max(0, self._last - OVERLAP)
            rows = await self._safely(self._history.newest, [], after, BEHIND)
            fresh = [row for row in rows if row["id"] not in self._seen and row["id"] > self._last - OVERLAP]
            if not self._seen:  # the first look: what was there before is no news
                fresh = [row for row in fresh if row["id"] > self._last]
            self._seen.extend(row["id"] for row in rows if row["id"] not in self._seen)
            self._last = max([self._last, *(row["id"] for row in rows)])
            for event in await self._safely(self._tell, [], fresh):
                self._spread(event)
            await asyncio.sleep(PAUSE)

    async def _safely(self, work: Any, otherwise: Any, *arguments: Any) -> Any:
        """While the database is away there is no news."""
        try:
            return await asyncio.to_thread(work, *arguments)
        except Exception as error:
            if as_service_error(error) is None:
                raise
            return otherwise

    def _tell(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(row["detector"] not in self._names for row in rows):
            self._names = self.names()
        return [{**row, "detector": self._names[row["detector"]]} for row in rows if row["detector"] in self._names]

    def _end_listeners(self) -> None:
        for listener in self._listeners:
            listener.put_nowait(None)

    def _spread(self, event: dict[str, Any]) -> None:
        for listener in list(self._listeners):
            if listener.qsize() >= BEHIND:
                self._listeners.discard(listener)
                listener.put_nowait(None)
            else:
                listener.put_nowait(event)


def _format(event: dict[str, Any]) -> str:
    return f"id: {event['id']}\nevent: decision\ndata: {json.dumps(event)}\n\n"
