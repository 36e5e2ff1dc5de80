"""Worker processes over one port; a request that the end of the service breaks off."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from contextlib import suppress
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest

from fewone.service.fair_listener import PATIENCE, FairListener, make_turns
from fewone.service.guard import Guard
from fewone.service.metrics import Metrics
from fewone.service.settings import Limits


def open_listeners(place: Path, workers: int) -> list[FairListener]:
    """One port, as each of the workers has it."""
    first = FairListener(socket.AF_INET, socket.SOCK_STREAM, me=1)
    first.bind(("127.0.0.1", 0))
    first.listen(32)
    copies = [
        FairListener(first.family, first.type, fileno=os.dup(first.fileno()), me=2 + n) for n in range(workers - 1)
    ]
    turns = make_turns(place / "turns", workers)
    for one in (first, *copies):
        one.setblocking(False)
        one.turns = turns
    return [first, *copies]


def connect_all(listeners: list[FairListener], count: int) -> list[socket.socket]:
    return [socket.create_connection(listeners[0].getsockname()) for _ in range(count)]


def close_all(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()


def test_connections_that_come_together_are_shared_by_the_workers_one_each(tmp_path: Path) -> None:
    listeners = open_listeners(tmp_path, 3)
    clients = connect_all(listeners, 6)
    taken = [one.accept()[0] for one in (*listeners, *listeners)]
    assert len(taken) == 6
    close_all(*listeners, *clients, *taken)


def test_a_worker_that_took_one_leaves_the_next_to_the_others(tmp_path: Path) -> None:
    first, second = listeners = open_listeners(tmp_path, 2)
    clients = connect_all(listeners, 3)
    taken = [first.accept()[0]]
    for _ in range(5):
        with pytest.raises(BlockingIOError):
            first.accept()
    taken += [second.accept()[0], first.accept()[0]]
    close_all(*listeners, *clients, *taken)


def test_a_worker_that_does_not_answer_is_waited_for_but_a_moment(tmp_path: Path) -> None:
    first, _ = listeners = open_listeners(tmp_path, 2)
    clients = connect_all(listeners, 6)
    taken = [first.accept()[0]]
    begin = time.monotonic()
    while len(taken) < 6 and time.monotonic() < begin + 10:
        with suppress(BlockingIOError):
            taken.append(first.accept()[0])
    assert len(taken) == 6 and PATIENCE <= time.monotonic() - begin < 5
    close_all(*listeners, *clients, *taken)


def test_one_worker_alone_waits_for_nobody() -> None:
    with FairListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        clients = connect_all([listener], 2)
        close_all(listener.accept()[0], listener.accept()[0], *clients)


def test_the_listener_comes_to_another_process_as_what_it_is() -> None:
    assert FairListener in ForkingPickler(BytesIO()).dispatch_table


def test_a_request_that_the_end_breaks_off_is_told_so_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[dict[str, Any]] = []

    async def never(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def run() -> None:
        scope = {"type": "http", "method": "GET", "path": "/slow", "headers": []}
        task = asyncio.create_task(Guard(never, Limits(), Metrics(), open_to_all=False)(scope, receive, send))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with caplog.at_level(logging.INFO, "fewone.service"):
        asyncio.run(run())
    assert sent[0]["status"] == 503 and "going down" in json.loads(sent[1]["body"])["error"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert all(record.exc_info is None for record in caplog.records)
