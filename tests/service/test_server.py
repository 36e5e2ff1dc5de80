"""Worker processes over one port; a request that the end of the service breaks off."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from fewone.service.guard import Guard
from fewone.service.metrics import Metrics
from fewone.service.server import FairListener
from fewone.service.settings import Limits


def test_a_worker_takes_one_connection_a_turn_and_leaves_the_next_to_others() -> None:
    with FairListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        taken = [listener.accept()[0]]
        with pytest.raises(BlockingIOError):
            listener.accept()
        taken.append(listener.accept()[0])
        for one in (*taken, *clients):
            one.close()


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
