"""The other side of alarms: a webhook receiver and an MQTT broker on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(check: Callable[[], bool], seconds: float = 15.0) -> None:
    """Bounded: a check that never holds fails the test."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Receiver:
    """Answers with the given statuses in turn, then with 200; keeps what came with its headers."""

    def __init__(self, statuses: list[int]) -> None:
        self.came: list[tuple[dict[str, str], bytes, int]] = []
        waiting = list(statuses)
        came = self.came

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = waiting.pop(0) if waiting else 200
                came.append(({key.lower(): value for key, value in self.headers.items()}, body, status))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"

    @property
    def taken(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body, status in self.came if status == 200]


@contextmanager
def receive(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses))
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()


@contextmanager
def run_broker(folder: Path, port: int) -> Iterator[None]:
    """Debian's mosquitto, on loopback."""
    if MOSQUITTO is None:
        pytest.skip("no mosquitto is installed (Debian: apt-get install mosquitto)")
    folder.mkdir(exist_ok=True)
    (folder / "broker.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    command = [MOSQUITTO, "-c", str(folder / "broker.conf")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for(answers)
        yield
    finally:
        process.terminate()
        process.wait(10)
