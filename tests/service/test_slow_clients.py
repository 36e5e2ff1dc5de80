"""Clients that send too slowly, or nothing, are sent away and hold nobody up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from tests.service.receivers import free_port, wait_for

from fewone.service import server
from fewone.service.app import build_app
from fewone.service.settings import Limits, ServiceSettings


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A real server of this process with little patience."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    limits = Limits(idle_seconds=0.3, request_seconds=1.0)
    app = build_app(ServiceSettings(str(tmp_path / "detectors"), limits=limits))
    number = free_port()
    config = uvicorn.Config(app, port=number, http=server.PatientProtocol, log_config=None, access_log=False)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_for(lambda: running.started, 30)
    yield number
    running.should_exit = True
    thread.join(30)


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(15)
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_head_that_does_not_come_ends_the_connection(port: int) -> None:
    for sent in (b"", b"GET /health HTT"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)
            begin = time.monotonic()
            assert b"200" not in read_all(connection)
            assert time.monotonic() - begin < 10


@pytest.mark.parametrize("pause", [5.0, 0.1], ids=["stops", "drips"])
def test_a_body_that_comes_too_slowly_is_refused(port: int, pause: float) -> None:
    head = (
        b"POST /detectors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    answers: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head)
        reader = threading.Thread(target=lambda: answers.append(read_all(connection)))
        reader.start()
        end = time.monotonic() + 10
        while not answers and time.monotonic() < end:
            try:
                connection.sendall(b" ")
            except OSError:
                break
            reader.join(pause)
        reader.join(10)
    assert answers and answers[0].startswith(b"HTTP/1.1 408") and b"too slowly" in answers[0]
