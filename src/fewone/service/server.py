"""The server's processes: sockets, workers, signals, logs. Enters: settings. Leaves: when it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import uvicorn
from sqlalchemy.exc import SQLAlchemyError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from fewone.errors import FewoneError
from fewone.service.database import connect, migrate
from fewone.service.fair_listener import FairListener, make_turns
from fewone.service.guard import Guard
from fewone.service.logs import write_logs
from fewone.service.settings import ServiceSettings
from fewone.service.store import DetectorStore

SETTINGS = "FEWONE_SERVICE_SETTINGS"
HEAD_SECONDS = 10.0
GRACE_SECONDS = 30
SWITCH_SECONDS = 0.0005
"""Threads hand over the interpreter sooner than Python's 5 ms: an answer must not wait for another's scores."""
RUBBISH_AFTER = 10_000
"""New objects until Python looks for rubbish: a request makes some dozens, and a look holds up those that wait."""
START_SECONDS = 120
"""A worker that does not answer its supervisor for so long is replaced; on a busy machine imports alone take many."""


class PatientProtocol(HttpToolsProtocol):
    """A connection whose head of a request does not come in time is closed (uvicorn waits for ever)."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting = self.cycle is None or self.cycle.response_complete
        if not waiting:
            self._head_came()
        elif self._timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_came()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _head_came(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def create_app() -> Guard:
    """For each worker process, which finds its settings in the environment."""
    from fewone.service.app import build_app

    settings = ServiceSettings.from_json(os.environ[SETTINGS])
    write_logs()
    sys.setswitchinterval(SWITCH_SECONDS)
    torch.set_num_threads(1)
    app = build_app(settings)
    gc.set_threshold(RUBBISH_AFTER)
    gc.freeze()  # what was imported stays: looking through it for rubbish would hold up answers
    return app


def check_address(settings: ServiceSettings) -> None:
    """Beyond this machine only with tokens."""
    if settings.token_file or settings.tokens:
        return
    try:
        loopback = settings.host == "localhost" or ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise FewoneError(
            f"--host {settings.host}: without tokens only this machine (127.0.0.1) is served; set FEWONE_TOKENS or"
            f" --tokens FILE"
        )


def prepare(settings: ServiceSettings) -> None:
    """Folder and database, before any worker starts: what is wrong with them is told in one line."""
    try:
        DetectorStore(Path(settings.folder)).prepare()
        engine = connect(settings.database_url, settings.power_safe)
        migrate(engine, settings.home)
        engine.dispose()
    except OSError as error:
        raise FewoneError(f"{settings.folder}: cannot be used ({error.strerror}); give another --folder") from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        raise FewoneError(f"--database: cannot be used ({reason}); start it or give another") from error


def serve(settings: ServiceSettings, announce: Callable[[str], None]) -> None:
    """Serve until a signal; `announce` hears the address once the port is ours."""
    check_address(settings)
    prepare(settings)
    os.environ[SETTINGS] = settings.to_json()
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named: without it asyncio leaves Nagle's delay on, 40 ms for every answer.
    listener = FairListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(512)
    except OSError as error:
        raise FewoneError(
            f"{settings.host}:{settings.port}: cannot be served ({error.strerror}); give another --port or --host"
        ) from error
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        "fewone.service.server:create_app",
        factory=True,
        http=PatientProtocol,
        ws="none",
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=512,
        timeout_worker_healthcheck=START_SECONDS,
    )
    write_logs(logging.INFO)
    announce(f"http://{'[' + settings.host + ']' if family == socket.AF_INET6 else settings.host}:{port}")
    if settings.workers == 1:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn ends gracefully, then sends itself the signal once more
        uvicorn.Server(config).run(sockets=[listener])
        return
    with tempfile.TemporaryDirectory(prefix="fewone-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        listener.turns = make_turns(Path(folder) / "turns", settings.workers)
        Multiprocess(config, sockets=[listener]).run()
